"""Rows whose reading fails, or kills the process that reads them, in modules that other processes can import."""

import os
import signal
from pathlib import Path

import rfgp


class Unreadable(rfgp.data.ArraySource):
    """A source whose file is gone."""

    def batches(self, start=0):
        raise OSError("the disk has gone")


class Deadly(rfgp.data.ArraySource):
    """A source that kills the process that reads it; once, where ``mark`` names a file that tells of it."""

    mark = None

    def batches(self, start=0):
        kill_once(self.mark)
        return super().batches(start)


def kill_once(mark, value=None):
    """Kill this process, or return the value where the file that tells of it exists already."""
    if mark is None or not Path(mark).exists():
        if mark is not None:
            Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def kill_at(frame, place, mark):
    """A data frame, as which a process dies once where a row of it has the index ``place``."""
    return kill_once(mark, frame) if place in frame.index else frame
