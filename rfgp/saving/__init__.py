"""Files of models: tensors, and a JSON header that says how they make up the model. Nothing is unpickled."""

from .file import load, save

__all__ = ["load", "save"]
