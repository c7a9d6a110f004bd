"""The commands of ``rfgp``, one file each: their names, options, and what they do."""

<<<<<<< HEAD
from .listed import COMMANDS
=======
from . import compare, fit, predict, study

COMMANDS = (fit, predict, study, compare)
"""Modules with a ``NAME``, a line of ``HELP``, ``add_arguments(parser)`` and ``run(options)``, in the order of help."""
>>>>>>> refs/heads/tables

__all__ = ["COMMANDS"]
