"""Where built-in data sets come from: archives in a data directory, and scikit-learn."""

from __future__ import annotations

import abc
import importlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .base import Dataset, Scaling, Task, from_arrays, split

DATA_DIR_VARIABLE = "RFGP_DATA"


@dataclass(frozen=True)
class Source(abc.ABC):
    """The loader of one data set.

    :param name: the name of the data set.
    :param task: "classification" or "regression".
    :param provenance: where the data come from.
    :param licence: the terms of use.
    :param scaling: the scaling that suits the inputs.
    :param output: which column of the targets to take, where there are several.
    """

    name: str
    task: Task
    provenance: str
    licence: str
    scaling: Scaling = "standardize"
    output: int | None = None

    @abc.abstractmethod
    def arrays(self, data_dir: str | Path | None = None) -> dict[str, Any]:
        """The arrays x and y, or x_train, y_train, x_test and y_test."""

    def __call__(self, data_dir: str | Path | None = None) -> Dataset:
        """Load the data set.

        :param data_dir: the directory of archives; that of the environment variable RFGP_DATA where it is None.
        :raises ValueError: where the data set needs a directory or a file that is not there.
        """
        arrays = self.arrays(data_dir)
        try:
            if "x_train" in arrays:
                parts = arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"]
            else:
                y = arrays["y"] if self.output is None else arrays["y"][:, self.output]
                parts = split(self.name, arrays["x"], y)
        except KeyError as missing:
            raise ValueError(
                f"expected the array {missing} for {self.name}, got {', '.join(arrays)}; check the archive"
            ) from None
        return from_arrays(
            self.name, parts, self.task, provenance=self.provenance, licence=self.licence, scaling=self.scaling
        )


class Archive(Source):
    """A data set in the file ``name``.npz of a data directory, with x and y or x_train, y_train, x_test and y_test."""

    def arrays(self, data_dir: str | Path | None = None) -> dict[str, Any]:
        directory = data_dir or os.environ.get(DATA_DIR_VARIABLE)
        if not directory:
            raise ValueError(
                f"expected a data directory with {self.name}.npz, got none; pass data_dir (--data-dir) or set "
                f"{DATA_DIR_VARIABLE}"
            )
        return read_arrays(Path(directory) / f"{self.name}.npz")


class Bundled(Source):
    """A data set that ships with scikit-learn, which needs no data directory."""

    def arrays(self, data_dir: str | Path | None = None) -> dict[str, Any]:
        try:
            datasets = importlib.import_module("sklearn.datasets")
        except ImportError:
            raise ImportError(
                f"expected scikit-learn for {self.name}, got an environment without; pip install 'rfgp[study]'"
            ) from None
        x, y = getattr(datasets, f"load_{self.name}")(return_X_y=True)
        return {"x": x, "y": y}


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an NPZ file by name.

    :raises ValueError: where there is no file, or it is not an archive of plain arrays.
    """
    if not path.is_file():
        raise ValueError(f"expected an existing file, got {str(path)!r}; check the path")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile):
        raise ValueError(
            f"expected a NumPy archive of plain arrays, got {str(path)!r}, which is not one; save it with numpy.savez"
        ) from None
