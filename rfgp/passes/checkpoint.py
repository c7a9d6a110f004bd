"""Files from which a fit of a source goes on where it was killed."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._support import checks, tensor_file
from ..data.batches import Batch, Batches

if TYPE_CHECKING:
    from ..models.weight_space.conditioning import FeatureSummation
    from ..models.weight_space.row_sums import FeatureSums

Running = Callable[[Iterable[Batch], Any], Iterator[Any]]
"""Takes batches and the sums before them, and yields the sums after each batch."""

_FORMAT = 3
_WRITER = "a fit with checkpoint="
_AGAIN = "delete it to begin again, or name another file"


class Checkpoint:
    """The file of a fit, written after so many rows; a ValueError for a folder that does not exist."""

    def __init__(self, path: str | os.PathLike[str], every: int) -> None:
        checks.instance("checkpoint", path, (str, os.PathLike), "a path", "pass a string or a pathlib.Path")
        self.path, self.every = Path(path), checks.positive_integer("checkpoint_every", every)
        if not self.path.resolve().parent.is_dir():
            raise ValueError(f"expected a folder that exists for checkpoint, got {str(path)!r}; make its folder first")

    @property
    def _name(self) -> str:
        return repr(str(self.path))

    def sums(self, summation: FeatureSummation, source: Iterable[Batch], running: Running) -> Iterator[FeatureSums]:
        """The sums so far, from the file if there is one, and then those after every batch.

        Batches before are read once more, and their digest compared; a ValueError for a damaged file or another pass.
        """
        name = source.description if isinstance(source, Batches) else f"a {type(source).__name__}"
        before, read = None, _Read(source)
        if self.path.exists():
            saved = tensor_file.read(self.path, _WRITER, _AGAIN)
            about = self._about(saved)
            for _ in itertools.islice(read, about["num_batches"]):
                pass
            before = self._checked(summation, name, saved, about, read)
            yield before
        sums, in_file = before, 0 if before is None else before.num_rows
        for sums in running(read, before):
            if sums.num_rows - in_file >= self.every:
                self._save(summation, name, sums, read)
                in_file = sums.num_rows
            yield sums
        if sums is not None and sums.num_rows > in_file:
            self._save(summation, name, sums, read)

    def _save(self, summation: FeatureSummation, name: str, sums: FeatureSums, read: _Read) -> None:
        values, tensors = summation.saved(sums)
        about = {
            "format": _FORMAT,
            "num_batches": read.num_batches,
            "batches": read.digest,
            "source": name,
            "made_with": summation.settings() | {"torch": torch.__version__},
            "sums": values,
        }
        contents: dict[str, Any] = {"about": json.dumps(about)}
        contents |= {f"sums.{key}": value for key, value in tensors.items()}
        for index, state in enumerate(summation.states()):
            contents |= {f"state.{index}.{key}": value.detach() for key, value in state.items()}
        tensor_file.write(self.path, contents)

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
        self, summation: FeatureSummation, name: str, saved: Mapping[str, Any], about: dict[str, Any], read: _Read
    ) -> FeatureSums:
        """The sums of the file, or a ValueError where they are those of another pass."""
        if about["source"] != name:
            raise self._other(name, about["source"])
        if read.last is None or read.digest != about["batches"]:
            raise self._other(f"the same rows in {about['num_batches']} batches of {name}", "others, or another order")
        summation.prepare(read.last if summation.waits else None)
        for setting, now in (summation.settings() | {"torch": torch.__version__}).items():
            if about["made_with"].get(setting) != now:
                raise self._other(f"{setting} {now}", about["made_with"].get(setting))
        for index, state in enumerate(summation.states()):
            before = _under(saved, f"state.{index}.")
            changed = sorted(before.keys() ^ state.keys())
            changed += [key for key, value in state.items() if key in before and not _are_equal(before[key], value)]
            if changed:
                raise self._other("the same parameters and random weights", f"another {', '.join(changed)}")
        return summation.restored(about["sums"], _under(saved, "sums."))

    def _other(self, wanted: str, got: Any) -> ValueError:
        return ValueError(f"expected {wanted} as in this call for the checkpoint {self._name}, got {got}; {_AGAIN}")


class _Read:
    """Batches as they are read, with the last one and a digest of all rows."""

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


def _are_equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b.detach().cpu())


def _under(saved: Mapping[str, Any], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in saved.items() if name.startswith(prefix)}
