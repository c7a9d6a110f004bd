"""Data sets for studies, read from files: built-in ones by name, and NPZ files of arrays."""

from __future__ import annotations

from pathlib import Path

from ..._support import checks
from .archive import read_archive
from .base import Dataset
from .catalog import LOADERS
from .wind import WindField, WindWindow, load_wind


def load(name: str, data_dir: str | Path | None = None, output: str | int | None = None) -> Dataset:
    """Load a built-in data set.

    :param name: one of LOADERS; "digits" and "diabetes" come with scikit-learn, the others from a data directory.
    :param data_dir: the directory with ``name``.npz; default: that of the environment variable RFGP_DATA.
    :param output: the name or the index of one of several outputs, or "all", (N, T); default: the first one.
    :raises ValueError: for an unknown name or output, or without the file.

    >>> dataset = load("diabetes")
    >>> dataset.x_train.shape, dataset.task
    (torch.Size([354, 10]), 'regression')
    """
    if not isinstance(name, str) or name not in LOADERS:
        raise ValueError(
            f"expected one of {', '.join(LOADERS)}, or a .csv or .npz file, got {name!r}; choose one of these"
        )
    checks.path("data_dir", data_dir)
    return LOADERS[name](data_dir, output)


__all__ = ["LOADERS", "Dataset", "WindField", "WindWindow", "load", "load_wind", "read_archive"]
