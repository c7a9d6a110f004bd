"""The ``rfgp`` command: arguments in, one of the commands run, errors out."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ._version import __version__
from .study.commands import COMMANDS
from .study.commands.console import lasting_streams


class _Parser(argparse.ArgumentParser):
    """A parser that raises what is wrong, so that every error looks the same."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


class _CommandParser(_Parser):
    """The parser of one command, whose module is imported when there are arguments of it."""

    def __init__(self, *, command: str, **options: Any) -> None:
        super().__init__(**options)
        self._command = command

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse by the options that the module of the command adds."""
        module = importlib.import_module(f".study.commands.{self._command}", __package__)
        self.description = module.DESCRIPTION
        module.add_arguments(self)
        self.set_defaults(run=module.run)
        return super().parse_known_args(args, namespace)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    with lasting_streams():
        try:
            options = _parser().parse_args(argv)
            return options.run(options)
        except OSError as error:
            place = "" if error.filename is None else f" for {str(error.filename)!r}"
            return _failed(f"expected a path that can be used, got {error.strerror or error}{place}; check it")
        except (ValueError, ImportError) as error:
            return _failed(str(error))
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "memory" not in str(error):
                raise
            return _failed("expected data that fit in memory, got too many; use fewer rows, columns or --num-features")
        except KeyboardInterrupt as interrupt:
            print(f"rfgp: interrupted{': ' if interrupt.args else ''}{interrupt}", file=sys.stderr)
            return 130


def _failed(message: str) -> int:
    print(f"rfgp: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="rfgp", description="Random features for Gaussian processes.", allow_abbrev=False)
    parser.add_argument(
        "--version", action="version", version=f"rfgp {__version__}", help="print the version, and exit"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_CommandParser)
    for name, summary in COMMANDS.items():
        commands.add_parser(name, command=name, allow_abbrev=False, help=summary)
    return parser


if __name__ == "__main__":
    sys.exit(main())
