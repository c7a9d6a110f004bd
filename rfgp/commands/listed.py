"""Which commands there are."""

from types import ModuleType

from . import compare, fit, predict, study

COMMANDS: tuple[ModuleType, ...] = (fit, predict, study, compare)
"""Modules with a ``NAME``, a line of ``HELP``, a ``DESCRIPTION``, ``add_arguments(parser)`` and ``run(options)``."""
