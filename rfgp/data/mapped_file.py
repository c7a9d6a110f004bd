"""The place of a memory-mapped array in its file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True)
class MappedFile:
    """A NumPy array whose numbers are in a file, to be opened in another process.

    :param path: the file.
    :param dtype: of the array.
    :param offset: the place of its first number, in bytes.
    :param shape: of the array.
    :param strides: in bytes.
    """

    path: str
    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: np.ndarray) -> Self | None:
        """That of a memory map or a view of one; None for other arrays, and for copies on write."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if not isinstance(root, np.memmap) or root.filename is None or root.mode == "c":
            return None
        offset = root.offset + array.ctypes.data - root.ctypes.data
        return cls(os.path.abspath(root.filename), array.dtype, offset, array.shape, array.strides)

    def open(self) -> np.ndarray:
        """The array, to be read alone."""
        return np.ndarray(self.shape, self.dtype, np.memmap(self.path, mode="r"), self.offset, self.strides)
