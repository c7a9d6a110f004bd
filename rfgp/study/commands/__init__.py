"""The commands of ``rfgp``, one file each: their names, options, and what they do."""

from .listed import COMMANDS

__all__ = ["COMMANDS"]
