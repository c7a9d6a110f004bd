"""Files from which a fit of a source goes on where it was killed."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import _checks
from ..inference import GramStatistics, tensor_file
from ..kernels.map_holder import map_holders
from .batches import Batch, Batches
from .impropriety import SomeRows
from .progress import Running
from .record import Record
from .row_sums import RowSums

_FORMAT = 2
_WRITER = "a fit with checkpoint="
_AGAIN = "delete it to begin again, or name another file"


class Checkpoint:
    """The file of a fit, and how often it is written.

    :param path: the file.
    :param every: it is written after so many rows, at the end of a batch.
    :raises ValueError: for a path in a folder that does not exist.
    """

    def __init__(self, path: str | os.PathLike[str], every: int) -> None:
        _checks.instance("checkpoint", path, (str, os.PathLike), "a path", "pass a string or a pathlib.Path")
        self.path, self.every = Path(path), _checks.positive_integer("checkpoint_every", every)
        if not self.path.resolve().parent.is_dir():
            raise ValueError(f"expected a folder that exists for checkpoint, got {str(path)!r}; make its folder first")

    @property
    def _name(self) -> str:
        return repr(str(self.path))

    def sums(self, model: Any, source: Batches, running: Running) -> Iterator[RowSums]:
        """The sums over rows so far, first those of the file where it is there, and then those after every batch.

        The batches before are read once more and not summed: their digest tells whether the data are the same.

        :param model: the model.
        :param source: the batches.
        :param running: sums over batches.
        :raises ValueError: for a damaged file, or one of another fit.
        """
        before, read = None, _Read(source)
        if self.path.exists():
            saved = tensor_file.read(self.path, _WRITER, _AGAIN)
            about = self._about(saved)
            for _ in itertools.islice(read, about["num_batches"]):
                pass
            before = self._checked(model, source, saved, about, read)
            yield before
        sums, in_file = before, 0 if before is None else before.num_rows
        for sums in running(read, before):
            if sums.num_rows - in_file >= self.every:
                self._save(model, source, sums, read)
                in_file = sums.num_rows
            yield sums
        if sums is not None and sums.num_rows > in_file:
            self._save(model, source, sums, read)

    def _save(self, model: Any, source: Batches, sums: RowSums, read: _Read) -> None:
        about = {
            "format": _FORMAT,
            "num_batches": read.num_batches,
            "num_rows": sums.num_rows,
            "batches": read.digest,
            "patterns": sums.patterns,
            "source": source.description,
            "made_with": _made_with(model),
        }
        tensors: dict[str, Any] = {"about": json.dumps(about)}
        for index, total in enumerate(sums.draws):
            tensors |= {f"sums.{index}.{name}": value for name, value in total.state_dict().items()}
        for index, state in enumerate(_states(model)):
            tensors |= {f"state.{index}.{name}": value.detach() for name, value in state.items()}
        if sums.some is not None:
            tensors |= {f"some.{name}": value for name, value in sums.some._asdict().items()}
        if sums.input_bounds is not None:
            tensors["input_bounds"] = sums.input_bounds
        tensor_file.write(self.path, tensors)

    def _about(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(saved.get("about"), str):
            raise ValueError(f"expected a file that {_WRITER} wrote, got other sums in {self._name}; name another file")
        about: dict[str, Any] = json.loads(saved["about"])
        if about["format"] != _FORMAT:
            raise ValueError(
                f"expected a checkpoint of format {_FORMAT}, got format {about['format']} in {self._name}; {_AGAIN}"
            )
        return about

    def _checked(
        self, model: Any, source: Batches, saved: Mapping[str, Any], about: dict[str, Any], read: _Read
    ) -> RowSums:
        """The sums of the file, or a ValueError where they are those of another fit."""
        if about["source"] != source.description:
            raise self._other(source.description, about["source"])
        if read.last is None or read.digest != about["batches"]:
            raise self._other(
                f"the same rows in {about['num_batches']} batches of {source.description}", "others, or another order"
            )
        if any(part.feature_map is None for part in map_holders(model.covar_module)):
            with torch.no_grad():
                model._checked_rows(*read.last, False)
                model.covar_module.scalar_features(read.last[0][:1])
        for name, now in _made_with(model).items():
            if about["made_with"].get(name) != now:
                raise self._other(f"{name} {now}", about["made_with"].get(name))
        states = _states(model)
        for index, state in enumerate(states):
            record = Record(_under(saved, f"state.{index}."))
            if not record.is_of({name: value.cpu() for name, value in state.items()}):
                changed = record.changes(state) or sorted(record.tensors.keys() ^ state.keys())
                raise self._other("the same parameters and random weights", f"another {', '.join(changed)}")
        device = next(model.covar_module.parameters()).device
        draws = [GramStatistics.from_state_dict(_under(saved, f"sums.{k}.")).to(device) for k in range(len(states))]
        some = _under(saved, "some.")
        patterns = tuple(tuple(pattern) for pattern in about["patterns"])
        model._noise.patterns = patterns
        kept = SomeRows(some["x"].to(device), some["y"].to(device)) if some else None
        return RowSums(tuple(draws), patterns, kept, None, about["num_rows"], saved.get("input_bounds"))

    def _other(self, wanted: str, got: Any) -> ValueError:
        return ValueError(f"expected {wanted} as in this call for the checkpoint {self._name}, got {got}; {_AGAIN}")


class _Read:
    """Batches as they are read, with the last one and a number that stands for the rows of all of them.

    :param batches: the batches.
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches, self._digest = iter(batches), hashlib.blake2b(digest_size=16)
        self.last: Batch | None = None
        self._hashed = self.num_batches = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self._hash_last()
        self.last = next(self._batches)
        self.num_batches += 1
        return self.last

    @property
    def digest(self) -> str:
        """The number that stands for all batches so far."""
        self._hash_last()
        return self._digest.hexdigest()

    def _hash_last(self) -> None:
        """Add the last batch to the digest, which is after its rows have been checked."""
        for value in () if self.last is None or self._hashed == self.num_batches else self.last:
            if value is not None:
                own = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
                self._digest.update(f"{own.dtype} {tuple(own.shape)}".encode())
                self._digest.update(own.reshape(-1).numpy().data)
        self._hashed = self.num_batches


def _made_with(model: Any) -> dict[str, str]:
    """What the sums depend on beside tensors, by name."""
    return {
        "kernel": str(model.covar_module),
        "likelihood": str(model.likelihood),
        "mean": str(model.mean_module),
        "residual": model.residual,
        "num_draws": str(model.num_draws),
        "product_dtype": str(model.product_dtype),
        "torch": torch.__version__,
    }


def _states(model: Any) -> list[dict[str, Tensor]]:
    """What the sums of every draw depend on, by name, with all parameters, since noise chooses dtypes of products."""
    own = {name: parameter.detach() for name, parameter in model.named_parameters()} | model._feature_state()
    return [own, *(draw._feature_state() for draw in model.further_draws.begin(model))]


def _under(saved: Mapping[str, Any], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in saved.items() if name.startswith(prefix)}
