"""What a table or figure of a paper is, what it states, and the verdict on the statements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Options(NamedTuple):
    """How a script is run.

    :param quick: small sizes and data that come with scikit-learn, to see in seconds that it runs.
    :param data_dir: the directory of the data sets.
    :param out: the JSON of an earlier run of the same script, which may go on; the runner writes it.
    :param full: the largest sizes too, which take hours.
    """

    quick: bool
    data_dir: Path | None
    out: Path
    full: bool = False


class Claim(NamedTuple):
    """A value or statement of a paper beside ours.

    :param printed: what the paper prints.
    :param ours: what we get.
    :param holds: whether they agree; None where they cannot be compared.
    """

    printed: str
    ours: str
    holds: bool | None


@dataclass(frozen=True)
class Item:
    """A table or figure.

    :param name: T, B, M or S, and its number.
    :param script: the script in this folder that measures it.
    :param shows: what the paper says that it shows.
    :param data: the data that the paper has, and what is taken for those that are not there.
    :param differs: what else differs from the paper, for the verdict.
    """

    name: str
    script: str
    shows: str
    data: str
    differs: str = ""

    @property
    def path(self) -> Path:
        """Where the result of the full run is stored."""
        return HERE / "results" / f"{self.script}.json"

    def stored(self) -> dict[str, Any] | None:
        """The result of the full run, or None."""
        return json.loads(self.path.read_text()) if self.path.exists() else None


def verdict(claims: Sequence[Claim], differs: str = "", is_quick: bool = False) -> str:
    """One line: what is reproduced, what is not, and what differs.

    >>> verdict([Claim("1.0", "1.01", True), Claim("2.0", "3.0", False)])
    '1 of 2 reproduced; not (2)'
    """
    known = [(i, claim.holds) for i, claim in enumerate(claims, 1) if claim.holds is not None]
    part = "" if len(known) == len(claims) else " of what can be compared"
    failed = [f"({i})" for i, holds in known if not holds]
    if not known:
        text = "not comparable"
    elif not failed:
        text = f"{len(known)} of {len(known)}{part} reproduced" if part else "reproduced"
    elif len(failed) == len(known):
        text = "not reproduced"
    else:
        text = f"{len(known) - len(failed)} of {len(known)}{part} reproduced; not {', '.join(failed)}"
    return text + ("; quick run" if is_quick else "") + (f": {differs}" if differs else "")


def spread(values: Sequence[float], digits: int = 3) -> str:
    """The smallest and the largest of some values, to be read."""
    return f"{min(values):.{digits}g} to {max(values):.{digits}g}"
