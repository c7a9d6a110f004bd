"""What a study has measured so far, in a folder: a run that is in it is never lost, and never measured again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from .._support import archives, files
from .datasets import Dataset
from .runs import Run, plain

FOLDER = "checkpoint"
_HEADER, _EXACT, _RUNS = "settings.json", "exact.pt", "runs.jsonl"


class StudyCheckpoint:
    """The folder of an unfinished study: its settings, learned parameters, and a line per run."""

    def __init__(self, directory: str | Path, header: dict[str, Any], resume: bool) -> None:
        self.folder = Path(directory) / FOLDER
        self.runs: list[Run] = []
        if resume and (self.folder / _HEADER).is_file():
            check_same(json.loads((self.folder / _HEADER).read_text(encoding="utf-8")), header, directory)
            self.runs = self._read()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            text = json.dumps(header, indent=2) + "\n"
            files.write_whole(self.folder / _HEADER, lambda path: path.write_text(text, encoding="utf-8"))

    def exact(self) -> dict[str, Any] | None:
        """What was kept of the exact model, if anything was."""
        path = self.folder / _EXACT
        if not path.is_file():
            return None
        with path.open("rb") as file:
            state: dict[str, Any] = archives.read(file)
        return state

    def keep_exact(self, state: dict[str, Any]) -> None:
        """Keep the exact model."""
        with files.whole_file(self.folder / _EXACT) as path, path.open("wb") as file:
            archives.write(state, file)

    def keep(self, run: Run) -> None:
        """Keep a run, on the disk before this returns."""
        line = json.dumps(plain(dataclasses.asdict(run)), allow_nan=False)
        with (self.folder / _RUNS).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.runs.append(run)

    def remove(self) -> None:
        """Remove the folder, once the results are written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self) -> list[Run]:
        """The runs of whole lines; what is left of a last line that was cut off goes."""
        path = self.folder / _RUNS
        if not path.is_file():
            return []
        whole = path.read_bytes().rpartition(b"\n")[0]
        lines = whole.decode("utf-8").splitlines()
        text = "".join(f"{line}\n" for line in lines)
        files.write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        return [Run.from_dict(json.loads(line)) for line in lines]


def check_same(kept: dict[str, Any], wanted: dict[str, Any], directory: str | Path) -> None:
    """Raise where settings differ, with the first that does."""
    for name, value in wanted.items():
        if kept.get(name) != value:
            raise ValueError(
                f"expected the settings of the study in {str(directory)!r}, which has {name} = {kept.get(name)!r}, "
                f"got {value!r}; choose that, or begin again by --force (force=True)"
            )


def fingerprint(dataset: Dataset) -> str:
    """A hash of all rows, by which data are known again."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test):
        digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()
