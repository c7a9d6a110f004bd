"""Data sets for studies, read from files: built-in ones by name, and the user's own CSV and NPZ files."""

from __future__ import annotations

from pathlib import Path

from . import (
    concrete,
    diabetes,
    digits,
    energy,
    fashion_mnist,
    kin8nm,
    letter,
    mnist,
    powerplant,
    protein,
    yacht,
)
from .base import Dataset
from .sources import Source
from .table import read_table

LOADERS: dict[str, Source] = {
    module.load.name: module.load
    for module in (
        concrete,
        diabetes,
        digits,
        energy,
        fashion_mnist,
        kin8nm,
        letter,
        mnist,
        powerplant,
        protein,
        yacht,
    )
}
"""The loader of every built-in data set by name."""


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load a built-in data set.

    :param name: one of LOADERS; "digits" and "diabetes" come with scikit-learn, the others from a data directory.
    :param data_dir: the directory with ``name``.npz; that of the environment variable RFGP_DATA where it is None.
    :raises ValueError: for an unknown name, or where the file is not there.

    >>> dataset = load("diabetes")
    >>> dataset.x_train.shape, dataset.task
    (torch.Size([354, 10]), 'regression')
    """
    if name not in LOADERS:
        raise ValueError(
            f"expected one of {', '.join(LOADERS)}, or a .csv or .npz file, got {name!r}; choose one of these"
        )
    return LOADERS[name](data_dir)


__all__ = ["LOADERS", "Dataset", "load", "read_table"]
