"""The commands of ``rfgp``, one file each: their names, options, and what they do."""

from . import compare, fit, predict, study

COMMANDS = (fit, predict, study, compare)
"""Modules with a ``NAME``, a line of ``HELP``, ``add_arguments(parser)`` and ``run(options)``, in the order of help."""

__all__ = ["COMMANDS"]
