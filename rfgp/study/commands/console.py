"""Terminals and pipes that commands write to."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\x1b(?!\[A)")
"""What moves the cursor, changes colors or turns text around, but for the line up of a progress bar."""


class Stream:
    """A stream whose reader may leave early; control characters are written as escapes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it where nobody reads."""
        try:
            return self._stream.write(_CONTROL.sub(lambda match: ascii(match[0])[1:-1], text))
        except BrokenPipeError:
            self._leave()
            return len(text)

    def flush(self) -> None:
        """Hand on what is written, or drop it where nobody reads."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> None:
        """Have the file of the stream lead nowhere, so that the end of the process does not fail either."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def lasting_streams() -> Iterator[None]:
    """Let no closed pipe stop what runs inside."""
    with contextlib.redirect_stdout(Stream(sys.stdout)), contextlib.redirect_stderr(Stream(sys.stderr)):
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
