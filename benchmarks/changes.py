"""Results beside those of an earlier commit: ``python benchmarks/changes.py COMMIT``, which measures nothing.

For each kind of number that both have, such as "seconds" or "coverage", it prints how many there are, the median of the
ratios after / before, and the smallest and the largest ratio with its place. ``--all`` prints every number.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

from common import HERE


class Change(NamedTuple):
    """A number at a place of a result, before and after."""

    place: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """After / before; one where both are zero."""
        if self.before == self.after:
            return 1.0
        return self.after / self.before if self.before else math.copysign(math.inf, self.after)

    def __str__(self) -> str:
        return f"{self.ratio:8.3f}  {self.before:.4g} -> {self.after:.4g}  {self.place}"


def numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a result with their places; those of lists have the number of the entry."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if not (place == "" and key == "environment"):
                yield from numbers(part, f"{place} > {key}" if place else str(key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, float(value)


def changes(before: Any, after: Any) -> list[Change]:
    """The numbers that both results have."""
    known = dict(numbers(before))
    return [Change(place, known[place], value) for place, value in numbers(after) if place in known]


def kinds(found: list[Change]) -> dict[str, list[Change]]:
    """Changes by the last name of their places."""
    by_kind: dict[str, list[Change]] = {}
    for change in found:
        names = [part for part in change.place.split(" > ") if not part.isdigit()]
        by_kind.setdefault(names[-1] if names else change.place, []).append(change)
    return by_kind


def at_commit(commit: str, name: str) -> Any | None:
    """A result as it was at a commit; None where there was none."""
    command = ["git", "show", f"{commit}:benchmarks/results/{name}"]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def main() -> None:
    """Print the changes of all results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--all", action="store_true", help="print every number")
    options = parser.parse_args()
    for path in sorted((HERE / "results").glob("*.json")):
        before, after = at_commit(options.commit, path.name), json.loads(path.read_text(encoding="utf-8"))
        if before is None:
            print(f"{path.stem}: new")
            continue
        commits = [result["environment"]["commit"][:8] for result in (before, after)]
        if commits[0] == commits[1]:
            print(f"{path.stem}: not measured again")
            continue
        print(f"{path.stem}: {' -> '.join(commits)}")
        for kind, found in kinds(changes(before, after)).items():
            ordered = sorted(found, key=lambda change: change.ratio)
            print(f"  {kind}: {len(found)} numbers, median ratio {statistics.median(c.ratio for c in found):.3f}")
            for change in ordered if options.all else [ordered[0], ordered[-1]][: len(ordered)]:
                if change.ratio != 1.0:
                    print(f"  {change}")


if __name__ == "__main__":
    main()
