"""A kernel that was tried for a study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Candidate:
    """A kernel and what its exact model loses on rows that are left out.

    :param kernel: its name.
    :param nlpd: the mean negative log density of a row that is left out, given all others, at learned parameters.
    :param behind: how much that is above the best kernel's.
    :param behind_error: the standard error of this difference, over rows; 0 where it is infinite.
    """

    kernel: str
    nlpd: float
    behind: float
    behind_error: float

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Candidate:
        """A candidate from what JSON made of it, where numbers that are not finite are None.

        :param record: its fields by name.
        """
        nlpd, behind, error = record["nlpd"], record["behind"], record["behind_error"]
        nlpd, behind = (math.inf if value is None else value for value in (nlpd, behind))
        return cls(record["kernel"], nlpd, behind, error)
