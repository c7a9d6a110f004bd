"""What the state of a weight-space model holds beside the tensors of its parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ..inference import GramStatistics
from ..inference.local import LocalRows
from .record import Record

_SUMS, _FITTED, _LOCAL = "statistics.", "fitted_with.", "local."
_ALWAYS = ("num_classes", "alpha_epsilon", "patterns")


class Fitted(NamedTuple):
    """The sums over the training data, what they were computed with, and the rows where blocks of them are kept."""

    statistics: GramStatistics
    record: Record
    local: LocalRows | None = None

    def to(self, device: torch.device) -> Self:
        """The same on a device, to which the sums are moved in place."""
        self.statistics.to(device)
        self.record.to(device)
        return self._replace(local=None if self.local is None else self.local.to(device))


class SavedState(NamedTuple):
    """The classes of a likelihood, the patterns of missing outputs, and what was fitted.

    :param num_classes: the number of classes; 0 for other likelihoods.
    :param alpha_epsilon: that of a Dirichlet likelihood, else NaN.
    :param patterns: which outputs are observed in every group of rows.
    :param fitted: statistics and their record, if there are any.
    """

    num_classes: int
    alpha_epsilon: float
    patterns: tuple[tuple[bool, ...], ...]
    fitted: Fitted | None

    @classmethod
    def of(cls, likelihood: Any, patterns: tuple[tuple[bool, ...], ...], fitted: Fitted | None) -> SavedState:
        """The state of a model with this likelihood."""
        alpha = getattr(likelihood, "alpha_epsilon", None)
        return cls(getattr(likelihood, "num_classes", 0), math.nan if alpha is None else float(alpha), patterns, fitted)

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by name."""
        own = {
            "num_classes": torch.tensor(self.num_classes),
            "alpha_epsilon": torch.tensor(self.alpha_epsilon, dtype=torch.float64),
            "patterns": torch.tensor(self.patterns, dtype=torch.bool),
        }
        if self.fitted is not None:
            own |= {_SUMS + name: value for name, value in self.fitted.statistics.state_dict().items()}
            own |= {_FITTED + name: value.clone() for name, value in self.fitted.record.tensors.items()}
            if self.fitted.local is not None:
                own |= {_LOCAL + name: value for name, value in self.fitted.local.state_dict().items()}
        return {prefix + name: value for name, value in own.items()}

    @classmethod
    def split(cls, state: Mapping[str, Any], prefix: str = "") -> tuple[SavedState | None, dict[str, Any]]:
        """What belongs to no part of the model in a state, if it is there, and all else.

        :raises ValueError: where only some of it is there, or something is no tensor, or the sums are not whole.
        """
        names, kinds = [prefix + name for name in _ALWAYS], tuple(prefix + kind for kind in (_SUMS, _FITTED, _LOCAL))
        own = {k: v for k, v in state.items() if k in names or k.startswith(kinds)}
        rest = {name: value for name, value in state.items() if name not in own}
        if not own:
            return None, rest
        if any(name not in own for name in names) or not all(isinstance(value, Tensor) for value in own.values()):
            raise ValueError(
                f"expected tensors for {', '.join(names)} beside the statistics, got a state without some; save it "
                "again"
            )
        num_classes, alpha_epsilon, patterns = (own[name] for name in names)
        sums, record, local = (
            {name.removeprefix(kind): value for name, value in own.items() if name.startswith(kind)} for kind in kinds
        )
        rows = LocalRows.from_state_dict(local) if local else None
        fitted = Fitted(GramStatistics.from_state_dict(sums), Record(record), rows) if sums else None
        observed = tuple(tuple(pattern) for pattern in patterns.tolist())
        return cls(int(num_classes), float(alpha_epsilon), observed, fitted), rest

    def check_classes(self, likelihood: Any) -> None:
        """Raise a ValueError where a likelihood has another number of classes."""
        classes = getattr(likelihood, "num_classes", 0)
        if self.num_classes != classes:
            raise ValueError(f"expected the state of a model with {classes} classes, got {self.num_classes}")

    def set_alpha_epsilon(self, likelihood: Any) -> None:
        """Give a Dirichlet likelihood the value that was saved."""
        if hasattr(likelihood, "set_alpha_epsilon"):
            likelihood.set_alpha_epsilon(self.alpha_epsilon)
        elif not math.isnan(self.alpha_epsilon):
            likelihood.alpha_epsilon = self.alpha_epsilon
