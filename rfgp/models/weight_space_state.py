"""What the state of a weight-space model holds beside the tensors of its parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from .. import _state
from ..inference import GramStatistics, SufficientStatistics
from ..inference.local import LocalRows
from .record import Record

_SUMS, _FITTED, _LOCAL = "statistics.", "fitted_with.", "local."
_BOUNDS, _DRAW = "input_bounds", "draw."
_KINDS = _SUMS, _FITTED, _LOCAL, _BOUNDS
_ALWAYS = ("num_classes", "alpha_epsilon", "patterns")


class Fitted(NamedTuple):
    """What was fitted.

    :param statistics: the sums over the training data.
    :param record: what they were computed with.
    :param local: the rows, where blocks of them are kept.
    :param input_bounds: powers of two between which the inputs lie, (2, d), on the CPU; None where they are not known,
        as in states from before they were kept.
    """

    statistics: SufficientStatistics
    record: Record
    local: LocalRows | None = None
    input_bounds: Tensor | None = None

    def to(self, device: torch.device) -> Self:
        """The same on a device, to which the sums are moved in place."""
        self.statistics.to(device)
        self.record.to(device)
        return self._replace(local=None if self.local is None else self.local.to(device))

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors by name."""
        own = {_SUMS + name: value for name, value in self.statistics.state_dict().items()}
        own |= {_FITTED + name: value.clone() for name, value in self.record.tensors.items()}
        if self.local is not None:
            own |= {_LOCAL + name: value for name, value in self.local.state_dict().items()}
        if self.input_bounds is not None:
            own[_BOUNDS] = self.input_bounds.clone()
        return own

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> Fitted:
        """What a state dict holds.

        :raises ValueError: where the sums are not whole.
        """
        sums, record, local = (
            {name.removeprefix(kind): value for name, value in state.items() if name.startswith(kind)}
            for kind in (_SUMS, _FITTED, _LOCAL)
        )
        rows = LocalRows.from_state_dict(local) if local else None
        inputs = state.get(_BOUNDS)
        return cls(GramStatistics.from_state_dict(sums), Record(record), rows, None if inputs is None else inputs.cpu())


class SavedState(NamedTuple):
    """The classes of a likelihood, the patterns of missing outputs, and what was fitted.

    :param num_classes: the number of classes; 0 for other likelihoods.
    :param alpha_epsilon: that of a Dirichlet likelihood, else NaN.
    :param patterns: which outputs are observed in every group of rows.
    :param fitted: statistics and their record for every draw of the weights, if there are any.
    """

    num_classes: int
    alpha_epsilon: float
    patterns: tuple[tuple[bool, ...], ...]
    fitted: tuple[Fitted, ...]

    @classmethod
    def of(cls, likelihood: Any, patterns: tuple[tuple[bool, ...], ...], fitted: Iterable[Fitted]) -> SavedState:
        """The state of a model with this likelihood."""
        alpha = getattr(likelihood, "alpha_epsilon", None)
        known = math.nan if alpha is None else float(alpha)
        return cls(getattr(likelihood, "num_classes", 0), known, patterns, tuple(fitted))

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by name."""
        own = {
            "num_classes": torch.tensor(self.num_classes),
            "alpha_epsilon": torch.tensor(self.alpha_epsilon, dtype=torch.float64),
            "patterns": torch.tensor(self.patterns, dtype=torch.bool),
        }
        for index, fitted in enumerate(self.fitted):
            start = f"{_DRAW}{index}." if index else ""
            own |= {start + name: value for name, value in fitted.state_dict().items()}
        return {prefix + name: value for name, value in own.items()}

    @classmethod
    def split(cls, state: Mapping[str, Any], prefix: str = "") -> tuple[SavedState | None, dict[str, Any]]:
        """What belongs to no part of the model in a state, if it is there, and all else.

        :raises ValueError: where only some of it is there, or something is no tensor, or the sums are not whole.
        """
        _state.check_mapping(state)
        names, kinds = [prefix + name for name in _ALWAYS], tuple(prefix + kind for kind in (*_KINDS, _DRAW))
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
        fitted = [Fitted.from_state_dict(first)] if (first := _under(prefix, own, _KINDS)) else []
        while further := _under(f"{prefix}{_DRAW}{len(fitted)}.", own, _KINDS):
            fitted.append(Fitted.from_state_dict(further))
        observed = tuple(tuple(pattern) for pattern in patterns.tolist())
        return cls(int(num_classes), float(alpha_epsilon), observed, tuple(fitted)), rest

    def check(self, likelihood: Any, num_draws: int) -> None:
        """Raise a ValueError where a likelihood has another number of classes, or a model another number of draws."""
        classes = getattr(likelihood, "num_classes", 0)
        if self.num_classes != classes:
            raise ValueError(f"expected the state of a model with {classes} classes, got {self.num_classes}")
        if len(self.fitted) not in (0, num_draws):
            raise ValueError(
                f"expected the state of a model with num_draws={num_draws}, got one with {len(self.fitted)}; load it "
                "into a model that is made as the saved one was"
            )

    def set_alpha_epsilon(self, likelihood: Any) -> None:
        """Give a Dirichlet likelihood the value that was saved."""
        if hasattr(likelihood, "set_alpha_epsilon"):
            likelihood.set_alpha_epsilon(self.alpha_epsilon)
        elif not math.isnan(self.alpha_epsilon):
            likelihood.alpha_epsilon = self.alpha_epsilon


def _under(prefix: str, state: Mapping[str, Any], kinds: tuple[str, ...]) -> dict[str, Any]:
    """The part of a state whose names begin with a prefix and one of the kinds, without the prefix."""
    found = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return {name: value for name, value in found.items() if name.startswith(kinds)}
