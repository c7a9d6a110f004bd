"""Copies, moves, states and pickles of a weight-space model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from torch import Tensor

from .. import _state
from ..inference import GramStatistics
from ..kernels.reference_tensor import reference_tensor
from .model_lock import alone
from .weight_space_checks import check_statistics
from .weight_space_parts import WeightSpaceParts
from .weight_space_state import Fitted, SavedState


class Saves(WeightSpaceParts):
    """A weight-space model whose state has its sums beside the tensors of its parts."""

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: all but the rows, which belong to the graph of the gradients."""
        return {**self.__dict__, "_rows": None}

    @alone
    def saved_attributes(self, with_rows: bool) -> dict[str, Any]:
        """What :func:`rfgp.save` writes: all but caches and rows, of which blocks and small classes need theirs.

        :param with_rows: whether the rows of blocks, and the features that hold small classes, are kept.
        """
        fitted = self._fitted
        if fitted is not None and not with_rows:
            fitted = fitted._replace(statistics=GramStatistics.of(fitted.statistics), local=None)
        own: dict[str, Any] = {"_fitted": fitted, "_posterior": None, "_some_rows": None, "training_data": []}
        return {**self.__getstate__(), **own}

    @property
    def num_rows_kept(self) -> int:
        """The number of training rows that are kept: those of blocks, or those whose features hold small classes."""
        if self._fitted is None:
            return 0
        statistics, local = self._fitted.statistics, self._fitted.local
        held = statistics.num_held_rows
        return held if local is None else len(local.x)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn)
        if self._fitted is not None:
            device = reference_tensor(self.covar_module, self._fitted.statistics.count).device
            self._fitted = self._fitted.to(device)
            self._posterior = None
        self._rows = None
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
        """Load a state as torch modules do; on an error the model stays as it was.

        :raises ValueError: for the state of another model; this one stays as it was.
        """
        with self._nothing_lost_on_error():
            saved, rest = SavedState.split(state_dict)
            if saved is not None:
                saved.check(self.likelihood, self.num_draws)
            elif strict:
                raise ValueError("expected the state of a WeightSpaceGP, got another one; pass its state_dict()")
            _state.check(self, rest, strict=strict)
            return super().load_state_dict(state_dict, strict, assign)

    @alone
    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.update(SavedState.of(self.likelihood, self._patterns, self._all_fitted()).named(prefix))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved, rest = SavedState.split(state_dict, prefix)
        with self._nothing_lost_on_error():
            if saved is not None:
                saved.check(self.likelihood, self.num_draws)
            _state.check(self, rest, prefix)
            super()._load_from_state_dict(rest, prefix, *args)
            if saved is not None:
                self._restore(saved)

    def _all_fitted(self) -> list[Fitted]:
        """What was fitted, for every draw of the weights."""
        models = (self, *self.further_draws.of(self))
        return [model._fitted for model in models if model._fitted is not None]

    def _restore(self, saved: SavedState) -> None:
        """Take over what was saved beside the parts of the model, or raise before anything changes."""
        if saved.fitted:
            self._noise.patterns = saved.patterns
            for fitted in saved.fitted:
                check_statistics(
                    fitted.statistics, self._features, self.mean_module, self._noise, self.residual == "vfe"
                )
                fitted.to(next(self.covar_module.parameters()).device)
        elif self._known_noise is not None:
            self._known_noise.patterns = ()
        saved.set_alpha_epsilon(self.likelihood)
        self._fitted, self._posterior, self._some_rows, self._rows = next(iter(saved.fitted), None), None, None, None
        self.further_draws.restore(saved.fitted[1:])
        self.training_data = []
