"""Models in files of tensors with a JSON header, which are read without unpickling."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpytorch
import torch
from torch import Tensor

from .._support import archives, checks, files
from .._version import __version__
from ..averaging.fitted_rows import FittedRows
from ..models.record import Recorded
from .decoder import Decoder
from .encoder import Encoder

FORMAT = 1
_MODELS = (torch.nn.Module, Recorded, FittedRows)
_KEYS = {"header", "tensors", "checksum"}


def save(model: Any, path: str | os.PathLike[str], *, with_rows: bool | None = None) -> None:
    r"""Write a model to a file of tensors, without training data.

    ``torch.load(path, weights_only=True)`` opens it. It appears whole or not at all, and the model stays as it was.

    *Rows.* Landmarks are in the file. Training rows are in it, with a warning, for a model with ``block_size``, for
    :class:`rfgp.models.LocalizedMaclaurinGP` and for averages of few rows, which predict with them. Saved without rows,
    a model with blocks predicts from its landmarks alone, and cannot be updated. A model of many classes has the
    features of the rows of small classes; saved without, it has C D\ :sup:`2` numbers in their place, and the same
    predictions.

    *Left out.* The rows of ``keep_data``; the noise and the labels of training rows; hooks, gradients and caches; and
    priors whose closures have no names: the header lists these. What a file cannot hold, such as a function, comes
    from ``into=`` of :func:`load`.

    :param model: a model of :mod:`rfgp.models`, fitted or not, an average of :mod:`rfgp.averaging`, or a kernel.
    :param path: the file to write.
    :param with_rows: whether training rows that predictions need are written; default: yes, with a warning.
    :raises ValueError: for a model of GPyTorch with training data, or one that cannot predict without rows.

    >>> import gpytorch, pathlib, rfgp, tempfile
    >>> x, y = torch.rand(100, 2), torch.rand(100)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.pt")
    ...     rfgp.save(model, path)
    ...     loaded = rfgp.load(path)
    >>> torch.equal(loaded.posterior(x).variance, model.posterior(x).variance)
    True
    """
    checks.file("path", path, "rfgp.save writes")
    if with_rows is not None:
        checks.flag("with_rows", with_rows)
    if not isinstance(model, _MODELS):
        raise ValueError(f"expected a model of rfgp.models, got {type(model).__name__}; pass a model, or a kernel")
    description = Encoder(with_rows is not False)
    with torch.inference_mode(False), torch.no_grad():
        root = description.of(model)
        header = json.dumps(
            {
                "format": FORMAT,
                "model": type(model).__name__,
                "versions": _versions(),
                "settings": _settings(model),
                "rows_seen": _rows_seen(model),
                "rows_kept": description.num_rows if description.with_rows else 0,
                "left_out": description.left_out,
                "root": root,
                "objects": description.objects,
            }
        )
        tensors = description.tensors
        content = {"header": header, "tensors": tensors, "checksum": _checksum(header, tensors)}
        files.write_whole(path, functools.partial(_write, content))
    if with_rows is None and description.num_rows:
        warnings.warn(
            f"the file holds {description.num_rows} training rows or their features, by which this "
            f"{type(model).__name__} predicts; pass with_rows=True to say that they may be there, or with_rows=False "
            "to leave them out at the price that rfgp.save names",
            stacklevel=2,
        )


def load(path: str | os.PathLike[str], *, into: Any = None, classes: Sequence[type] = ()) -> Any:
    """Read a model that :func:`save` wrote, and make it again without the code that made it.

    Predictions, evidence and updates are those of the saved model. Nothing is unpickled: only classes of rfgp,
    GPyTorch, PyTorch and ``classes`` are made. Tensors are loaded on the CPU.

    :param path: the file to read.
    :param into: a model made as the saved one was, which takes over all in place; for what a file cannot hold.
    :param classes: classes of your own that the model has, such as kernels.
    :raises ValueError: for a damaged file, one of another kind or newer, an unknown class, or another model ``into``.

    >>> import gpytorch, pathlib, rfgp, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "kernel.pt")
    ...     rfgp.save(rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2), path)
    ...     type(rfgp.load(path)).__name__
    'FeatureKernel'
    """
    checks.file("path", path, "rfgp.save wrote")
    checks.instance("classes", classes, (list, tuple), "a list of classes", "such as classes=[MyKernel]")
    for kind in classes:
        checks.instance("every one of classes", kind, type, "a class", "such as classes=[MyKernel]")
    if into is not None:
        advice = "make one as the saved one was, or leave into out"
        checks.instance("into", into, _MODELS, "a model", advice)
    name = repr(os.fspath(path))
    header, tensors = _read(Path(path), name)
    _check_versions(header, name)
    device = None if into is None else _device(into)
    try:
        model = Decoder(header["objects"], tensors, classes).build(header["root"], into)
    except Exception as error:  # a header may say anything
        if checks.is_own(error):
            raise
        raise ValueError(
            f"expected objects of rfgp {header['versions']['rfgp']} in {name} that rfgp {_versions()['rfgp']} knows, "
            f"got others ({type(error).__name__}: {error}); load it with the version that wrote it"
        ) from error
    if not isinstance(model, _MODELS):
        raise ValueError(f"expected a model in {name}, got {type(model).__name__}; save the model again")
    if isinstance(model, torch.nn.Module) and device is not None and device.type != "cpu":
        return model.to(device)
    return model


def _write(content: dict[str, Any], path: Path) -> None:
    with path.open("wb") as file:
        archives.write(content, file)


def _read(path: Path, name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a file, checked."""
    with path.open("rb") as file:
        start = file.read(9)
    if start == b"rfgp sums":
        raise ValueError(f"expected a file that rfgp.save wrote, got statistics in {name}; use GramStatistics.load")
    if start[:4] != b"PK\x03\x04":
        raise ValueError(
            f"expected a file that rfgp.save wrote, got {name}, which starts otherwise; save the model again"
        )
    if not zipfile.is_zipfile(path):
        raise ValueError(f"expected the whole of {name}, got a part of it; it is cut off; copy it again")
    try:
        with path.open("rb") as file:
            content = archives.read(file)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"expected a file that rfgp.save wrote, got pickled objects or damaged ones in {name}, which are not "
            "loaded; save the model again with rfgp.save"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"expected {name} as rfgp.save wrote it, got a damaged file; copy it again") from error
    if not isinstance(content, dict) or content.keys() != _KEYS or not isinstance(content["header"], str):
        raise ValueError(
            f"expected a file that rfgp.save wrote, got another one of torch.save in {name}; read it with torch.load"
        )
    header, tensors = content["header"], content["tensors"]
    are_tensors = isinstance(tensors, dict) and all(isinstance(value, Tensor) for value in tensors.values())
    if not header.isascii() or not are_tensors or _checksum(header, tensors) != content["checksum"]:
        raise ValueError(
            f"expected {name} as rfgp.save wrote it, got another checksum; it was changed or damaged; copy it again"
        )
    try:
        parsed: Any = json.loads(header)
        _ = int(parsed["format"]), parsed["root"], parsed["objects"]
        parsed["versions"] = {package: str(parsed["versions"][package]) for package in _versions()}
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"expected a header of rfgp.save in {name}, got another one; save the model again") from error
    return parsed, tensors


def _check_versions(header: Mapping[str, Any], name: str) -> None:
    """Raise a ValueError for a newer format, and warn of versions with which the objects may be others."""
    versions, now = header["versions"], _versions()
    if int(header["format"]) > FORMAT:
        raise ValueError(
            f"expected a file of format {FORMAT} at most, got format {header['format']} in {name}; it was written by "
            f"rfgp {versions['rfgp']}: install that version"
        )
    others = [f"{package} {versions[package]}" for package in now if _major(versions[package]) != _major(now[package])]
    if others:
        warnings.warn(
            f"{name} was written with {', '.join(others)}; predictions may differ with "
            f"{', '.join(f'{package} {version}' for package, version in now.items())}",
            stacklevel=3,
        )


def _versions() -> dict[str, str]:
    return {"rfgp": __version__, "torch": torch.__version__, "gpytorch": gpytorch.__version__}


def _major(version: str) -> str:
    return version.partition(".")[0]


def _settings(model: Any) -> dict[str, Any]:
    """The settings of a model that are numbers and strings, and its dtype."""
    plain = (bool, int, float, str, type(None))
    settings = {
        name: value for name, value in vars(model).items() if isinstance(value, plain) and not name.startswith("_")
    }
    kernel = getattr(model, "covar_module", model)
    parameter = next(kernel.parameters(), None) if isinstance(kernel, torch.nn.Module) else None
    return settings | {"dtype": None if parameter is None else str(parameter.dtype).removeprefix("torch.")}


def _rows_seen(model: Any) -> int | None:
    """The number of rows that a model was fitted to, where it counts them."""
    try:
        statistics = getattr(model, "statistics", None)
    except ValueError:  # not conditioned, or stale
        return None
    return None if statistics is None else int(statistics.num_rows)


def _device(model: Any) -> torch.device | None:
    """Where the parameters of a module are; None for other models."""
    first = next(model.parameters(), None) if isinstance(model, torch.nn.Module) else None
    return None if first is None else first.device


def _checksum(header: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of a header and of the names, dtypes, shapes and values of tensors."""
    digest = hashlib.sha256(header.encode())
    for name, value in tensors.items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
