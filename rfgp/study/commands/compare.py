"""``rfgp compare``: two studies side by side."""

from __future__ import annotations

import argparse

DESCRIPTION = (
    "Compare two studies: what differs in their settings, in their verdicts and in what they measured, and whether "
    "that is more than standard errors explain."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    for name in ("first", "second"):
        parser.add_argument(name, metavar=name.upper(), help="the directory of a study, or its results.json")


def run(options: argparse.Namespace) -> int:
    """Print what differs."""
    from ... import study

    names = options.first, options.second
    print(study.compare(study.load(options.first), study.load(options.second), names))
    return 0
