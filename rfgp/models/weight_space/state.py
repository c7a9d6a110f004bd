"""How the sums of a weight-space model are saved beside its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import gpytorch
import torch
from torch import Tensor

from ... import _state
from ..._gpytorch import forget_load_hooks
from ...data.batches import Batch
from ...inference import GramStatistics
from ...inference.local import LocalRows
from ...kernels.reference_tensor import reference_tensor
from ..model_lock import ModelLock, alone
from ..record import Record, WeightsCode
from .block_sums import BlockSums
from .checks import check_statistics
from .conditioned import Conditioned
from .row_sums import FeatureSums, Patterns, RowSums

_SUMS, _RECORD, _LOCAL = "statistics.", "fitted_with.", "local."
_BOUNDS, _DRAW = "input_bounds", "draw."
_KINDS = _SUMS, _RECORD, _LOCAL, _BOUNDS
_ALWAYS = ("num_classes", "alpha_epsilon", "patterns")


class SumsInState(gpytorch.Module):
    """A model whose ``state_dict``, copies and pickles have its sums over rows beside its parameters."""

    conditioned: Conditioned | None
    further_draws: Any
    likelihood: Any
    covar_module: Any
    training_data: list[Batch]
    nothing_lost_on_error: Callable[[], Any]

    def __init__(self) -> None:
        super().__init__()
        forget_load_hooks(self)
        self.lock = ModelLock()
        self.weights_code = WeightsCode()

    def forward(self, x: Tensor) -> Any:
        """:meth:`posterior`, as GPyTorch's models give it in evaluation mode."""
        return self.posterior(x)

    @property
    def num_rows_kept(self) -> int:
        """The number of rows that are kept: those of blocks, or those whose features hold small classes."""
        if self.conditioned is None:
            return 0
        sums = self.conditioned.sums
        return sums.draws[0].num_rows_held if sums.local is None else len(sums.local.x)

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: all but the rows that belong to the graph of gradients."""
        before = self.conditioned
        return {**self.__dict__, "conditioned": None if before is None else before.without_graph()}

    @alone
    def saved_attributes(self, with_rows: bool) -> dict[str, Any]:
        """What :func:`rfgp.save` writes.

        :param with_rows: whether the rows of blocks, and the features that hold small classes, are kept.
        """
        kept = self.conditioned
        if kept is not None:
            kept = kept._replace(sums=kept.sums.saved(with_rows))
        return {**self.__getstate__(), "conditioned": kept, "predictor": type(self.predictor)(), "training_data": []}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn)
        if self.conditioned is not None:
            device = reference_tensor(self.covar_module, self.conditioned.sums.draws[0].count).device
            self.conditioned = self.conditioned.to(device)
            self.predictor.clear()
        for draw in self.further_draws.of(self):
            draw._apply(fn)
        return self

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Make the maps of the further draws that a state has, or raise a ValueError where it has more or fewer."""
        if self.num_draws > 1 and f"{prefix}covar_module._extra_state" in state:
            _state.check(self.covar_module, state, f"{prefix}covar_module.")
            self.further_draws.prepare(self.covar_module, state, f"{prefix}further_draws.")

    @alone
    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state as torch modules do.

        :raises ValueError: for the state of another model; this one stays as it was.
        """
        with self.nothing_lost_on_error():
            saved, rest = _SavedState.split(state_dict)
            if saved is not None:
                saved.check(self)
            elif strict:
                raise ValueError("expected the state of a WeightSpaceGP, got another one; pass its state_dict()")
            _state.check(self, rest, strict=strict)
            return super().load_state_dict(state_dict, strict, assign)

    @alone
    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.update(_SavedState.of(self).named(prefix))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved, rest = _SavedState.split(state_dict, prefix)
        with self.nothing_lost_on_error():
            if saved is not None:
                saved.check(self)
            _state.check(self, rest, prefix)
            super()._load_from_state_dict(rest, prefix, *args)
            if saved is not None:
                saved.restore(self)


class _SavedState(NamedTuple):
    """The classes of a likelihood, the patterns of missing outputs, and what every draw is conditioned on.

    :param num_classes: the number of classes; 0 for other likelihoods.
    :param alpha_epsilon: that of a Dirichlet likelihood, else NaN.
    :param draws: sums and their record for every draw of the weights, if there are any.
    """

    num_classes: int
    alpha_epsilon: float
    patterns: Patterns
    draws: tuple[Conditioned, ...]

    @classmethod
    def of(cls, model: Any) -> _SavedState:
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
    def split(cls, state: Mapping[str, Any], prefix: str = "") -> tuple[_SavedState | None, dict[str, Any]]:
        """What belongs to no part of the model in a state, if it is there, and all else.

        :raises ValueError: where only some of it is there, or something is no tensor, or the sums are not whole.
        """
        _state.check_mapping(state)
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

    def check(self, model: Any) -> None:
        """Raise a ValueError where a model has another number of classes or draws."""
        classes = getattr(model.likelihood, "num_classes", 0)
        if self.num_classes != classes:
            raise ValueError(f"expected the state of a model with {classes} classes, got {self.num_classes}")
        if len(self.draws) not in (0, model.num_draws):
            raise ValueError(
                f"expected the state of a model with num_draws={model.num_draws}, got one with {len(self.draws)}; load "
                "it into a model that is made as the saved one was"
            )

    def restore(self, model: Any) -> None:
        """Give a model what was saved beside its parts, or raise before anything changes."""
        if self.draws:
            model.noise.patterns = self.patterns
            for draw in self.draws:
                check_statistics(draw.sums.draws[0], model)
        draws = [draw.to(next(model.covar_module.parameters()).device) for draw in self.draws]
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
