"""How the sums of a weight-space model are saved beside its parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..._support import states
from ...inference import GramStatistics
from ...inference.local import LocalRows
from ..record import Record
from .checks import check_statistics
from .conditioned import Conditioned
from .row_sums import BlockSums, FeatureSums, Patterns, RowSums

if TYPE_CHECKING:
    from .model import WeightSpaceGP

_SUMS, _RECORD, _LOCAL = "statistics.", "fitted_with.", "local."
_BOUNDS, _DRAW = "input_bounds", "draw."
_KINDS = _SUMS, _RECORD, _LOCAL, _BOUNDS
_ALWAYS = ("num_classes", "alpha_epsilon", "patterns")


class SavedState(NamedTuple):
    """The classes of a likelihood (0 for others), the patterns of missing outputs, and the sums of every draw."""

    num_classes: int
    alpha_epsilon: float
    patterns: Patterns
    draws: tuple[Conditioned, ...]

    @classmethod
    def of(cls, model: WeightSpaceGP) -> SavedState:
        """The state of a model."""
        alpha = getattr(model.likelihood, "alpha_epsilon", None)
        draws = [draw.conditioned for draw in (model, *model.further_draws.of(model))]
        return cls(
            getattr(model.likelihood, "num_classes", 0),
            math.nan if alpha is None else float(alpha),
            model.patterns,
            tuple(draw for draw in draws if draw is not None),
        )

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by name."""
        state = {
            "num_classes": torch.tensor(self.num_classes),
            "alpha_epsilon": torch.tensor(self.alpha_epsilon, dtype=torch.float64),
            "patterns": torch.tensor(self.patterns, dtype=torch.bool),
        }
        for index, (sums, record) in enumerate(self.draws):
            start = f"{_DRAW}{index}." if index else ""
            parts = {_SUMS: sums.draws[0].state_dict(), _RECORD: {k: v.clone() for k, v in record.tensors.items()}}
            if sums.local is not None:
                parts[_LOCAL] = sums.local.state_dict()
            state |= {start + kind + name: value for kind, part in parts.items() for name, value in part.items()}
            if sums.input_bounds is not None:
                state[start + _BOUNDS] = sums.input_bounds.clone()
        return {prefix + name: value for name, value in state.items()}

    @classmethod
    def split(cls, state: Mapping[str, Any], prefix: str = "") -> tuple[SavedState | None, dict[str, Any]]:
        """What belongs to no part of the model in a state, if there, and the rest; a ValueError for a broken one."""
        states.check_mapping(state)
        names, kinds = [prefix + name for name in _ALWAYS], tuple(prefix + kind for kind in (*_KINDS, _DRAW))
        saved = {k: v for k, v in state.items() if k in names or k.startswith(kinds)}
        rest = {name: value for name, value in state.items() if name not in saved}
        if not saved:
            return None, rest
        if any(name not in saved for name in names) or not all(isinstance(value, Tensor) for value in saved.values()):
            raise ValueError(
                f"expected tensors for {', '.join(names)} beside the statistics, got a state without some; save it "
                "again"
            )
        num_classes, alpha_epsilon, patterns = (saved[name] for name in names)
        observed = tuple(tuple(pattern) for pattern in patterns.tolist())
        draws = tuple(_draws_of(saved, prefix, observed))
        return cls(int(num_classes), float(alpha_epsilon), observed, draws), rest

    def check(self, model: WeightSpaceGP) -> None:
        """Raise a ValueError where a model has another number of classes or draws."""
        classes = getattr(model.likelihood, "num_classes", 0)
        if self.num_classes != classes:
            raise ValueError(f"expected the state of a model with {classes} classes, got {self.num_classes}")
        if len(self.draws) not in (0, model.num_draws):
            raise ValueError(
                f"expected the state of a model with num_draws={model.num_draws}, got one with {len(self.draws)}; load "
                "it into a model that is made as the saved one was"
            )

    def restore(self, model: WeightSpaceGP) -> None:
        """Give a model what was saved beside its parts, or raise before anything changes."""
        if self.draws:
            model.noise.patterns = self.patterns
            for draw in self.draws:
                check_statistics(draw.sums.draws[0], model)
        device = next(model.covar_module.parameters()).device
        draws = [draw._replace(sums=draw.sums.named(model.patterns)).to(device) for draw in self.draws]
        if not draws and model.patterns:
            model.noise.patterns = ()
        if hasattr(model.likelihood, "set_alpha_epsilon"):
            model.likelihood.set_alpha_epsilon(self.alpha_epsilon)
        elif not math.isnan(self.alpha_epsilon):
            model.likelihood.alpha_epsilon = self.alpha_epsilon
        model.conditioned = draws[0] if draws else None
        model.further_draws.restore(tuple(draws[1:]))
        model.predictor.clear()
        model.training_data = []


def _draws_of(saved: Mapping[str, Tensor], prefix: str, patterns: Patterns) -> Iterator[Conditioned]:
    """What every draw of the weights was conditioned on."""
    start, count = prefix, 0
    while state := {
        name.removeprefix(start): value
        for name, value in saved.items()
        if name.startswith(tuple(start + kind for kind in _KINDS))
    }:
        statistics, record, local = (
            {name.removeprefix(kind): value for name, value in state.items() if name.startswith(kind)}
            for kind in (_SUMS, _RECORD, _LOCAL)
        )
        draws = (GramStatistics.from_state_dict(statistics),)
        bounds = state.get(_BOUNDS)
        sums: RowSums = FeatureSums(draws, patterns, input_bounds=None if bounds is None else bounds.cpu())
        if local:
            sums = BlockSums(LocalRows.from_state_dict(local), torch.float64, draws)
        yield Conditioned(sums, Record(record))
        count += 1
        start = f"{prefix}{_DRAW}{count}."
