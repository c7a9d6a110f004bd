"""Tables in files and data frames: what their columns are, and how they become inputs and targets."""

from .encoding import Encoding, InputColumn
from .report import Column
from .table import Table, read

__all__ = ["Column", "Encoding", "InputColumn", "Table", "read"]
