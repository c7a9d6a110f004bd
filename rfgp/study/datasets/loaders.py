"""Where built-in data sets come from: archives in a data directory, and scikit-learn."""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..._support import optional
from .archive import read_arrays
from .base import Dataset, Scaling, Task, from_arrays, split

DATA_DIR_VARIABLE = "RFGP_DATA"


@dataclass(frozen=True)
class Loader(abc.ABC):
    """The loader of one data set, with its name, its task, and where it comes from."""

    name: str
    task: Task
    description: str
    provenance: str
    licence: str
    scaling: Scaling = "standardize"
    outputs: tuple[str, ...] = ()

    @abc.abstractmethod
    def arrays(self, data_dir: str | Path | None = None) -> dict[str, Any]:
        """The arrays x and y, or x_train, y_train, x_test and y_test."""

    def __call__(self, data_dir: str | Path | None = None, output: str | int | None = None) -> Dataset:
        """Load the data set; ``output`` is the name or the index of one of several outputs, or "all" of them."""
        chosen = self._columns(output)
        arrays = self.arrays(data_dir)
        try:
            if "x_train" in arrays:
                parts = arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"]
            else:
                y = self._take(arrays["y"], chosen)
                parts = split(self.name, arrays["x"], y)
        except KeyError as missing:
            raise ValueError(
                f"expected the array {missing} for {self.name}, got {', '.join(arrays)}; check the archive"
            ) from None
        return from_arrays(
            self.name,
            parts,
            self.task,
            provenance=self.provenance,
            licence=self.licence,
            scaling=self.scaling,
            outputs=self.outputs if chosen is None else (self.outputs[chosen],),
        )

    def _columns(self, output: str | int | None) -> int | None:
        """The index of the output to take; None takes all targets as they are."""
        if not self.outputs:
            if output is not None:
                raise ValueError(f"expected no output for {self.name}, which has one, got {output!r}; leave it out")
            return None
        if output == "all":
            return None
        if output is None:
            return 0
        if output in self.outputs:
            return self.outputs.index(str(output))
        if isinstance(output, int) and not isinstance(output, bool) and 0 <= output < len(self.outputs):
            return output
        raise ValueError(
            f'expected one of {", ".join(self.outputs)}, an index from 0 to {len(self.outputs) - 1} or "all" for the '
            f"output of {self.name}, got {output!r}; choose one of these"
        )

    def _take(self, y: np.ndarray, chosen: int | None) -> np.ndarray:
        if not self.outputs:
            return y
        if y.ndim != 2 or y.shape[1] != len(self.outputs):
            raise ValueError(
                f"expected targets of {self.name} of shape (N, {len(self.outputs)}), got {y.shape}; check the archive"
            )
        return y if chosen is None else y[:, chosen]


class Archive(Loader):
    """A data set in the file ``name``.npz of a data directory, with x and y or x_train, y_train, x_test and y_test."""

    def arrays(self, data_dir: str | Path | None = None) -> dict[str, Any]:
        return read_archive(self.name, data_dir)


class Bundled(Loader):
    """A data set that ships with scikit-learn, which needs no data directory."""

    def arrays(self, data_dir: str | Path | None = None) -> dict[str, Any]:
        datasets = optional.require("sklearn.datasets", "scikit-learn", self.name)
        x, y = getattr(datasets, f"load_{self.name}")(return_X_y=True)
        return {"x": x, "y": y}


def read_archive(name: str, data_dir: str | Path | None = None) -> dict[str, np.ndarray]:
    """All arrays of ``name``.npz in a data directory, by default that of the environment variable RFGP_DATA."""
    directory = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    if not directory:
        raise ValueError(
            f"expected a data directory with {name}.npz, got none; pass data_dir (--data-dir) or set "
            f"{DATA_DIR_VARIABLE}"
        )
    return read_arrays(Path(directory) / f"{name}.npz")
