"""Functions drawn from a regression in blocks of near rows, with the residual of the features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from ..posterior.draws import FunctionDraws
from ..sums.mean_basis import basis
from .covariance import draws_of
from .prediction import LocalConditioning, LocalFeatures

_ROUNDING = 0.6
"""The values of a draw are remembered up to this power of the rounding of their dtype."""


class LocalDraws(FunctionDraws):
    """Draws of functions: of their features by weights (K, S), and of their residual jointly inside every block.

    Later evaluations agree with earlier ones. Without gradients.
    """

    def __init__(self, regression: Any, weights: Tensor) -> None:
        self._regression, self._rows = regression, regression.local
        self._weights = regression.factor().scalar_weights(weights).squeeze(-2).detach()
        self._values = self._weights.new_empty(0, weights.shape[-1])
        self._places: dict[bytes, int] = {}
        """Where the values at known points are, by the bytes of these."""

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        checks.finite(checks.inputs(x))
        flat = x.reshape(-1, x.shape[-1])
        keys = [row.tobytes() for row in (flat.double() + 0.0).cpu().numpy()]
        new: dict[bytes, int] = {}
        for number, key in enumerate(keys):
            if key not in self._places:
                new.setdefault(key, number)
        if new:
            self._draw(flat[torch.tensor(list(new.values()), device=x.device)])
            self._places |= {key: place for place, key in enumerate(new, len(self._places))}
        places = torch.tensor([self._places[key] for key in keys], dtype=torch.long, device=x.device)
        return self._values[places].to(x.dtype).mT.reshape(-1, *x.shape[:-1])

    def _draw(self, x: Tensor) -> None:
        """Draw the values (N, S) at new points (N, d), and remember them."""
        regression, first = self._regression, len(self._regression.local.x)
        values = self._values.new_empty(len(x), self._values.shape[-1])
        conditioning = LocalConditioning(regression.kernel, self._rows, None)
        for points, given, conditional in conditioning.conditionals(x):
            columns = conditional.weights @ self._rows.columns[given]
            near = LocalFeatures(
                conditional.features / conditioning.residual.root, columns, conditional.covariance.diagonal()
            )
            mean = regression.mean_given(x[points], near, self._weights)
            is_drawn = given >= first
            mean = mean + conditional.weights[:, is_drawn] @ self._values[given[is_drawn] - first]
            values[points] = mean + draws_of(conditional.covariance, values.shape[-1])
        columns = torch.nn.functional.pad(basis(regression.mean, x).double(), (1, 0))
        rounding = torch.finfo(x.dtype).eps ** _ROUNDING * regression.kernel.exact_kernel(x, diag=True).double()
        self._rows, _ = self._rows.extended(x, columns, rounding, splits=False)
        self._values = torch.cat([self._values, values])

    def take(self, index: Tensor) -> FunctionDraws:
        return _SomeOf(self, index)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_regression": self._regression.detached()}


class _SomeOf(FunctionDraws):
    """Some of the functions that are drawn together, by their numbers (M,), with the memory of all of them."""

    def __init__(self, draws: LocalDraws, index: Tensor) -> None:
        self.draws, self.index = draws, index

    def __call__(self, x: Tensor) -> Tensor:
        return self.draws(x)[self.index.to(x.device)]

    def take(self, index: Tensor) -> FunctionDraws:
        return _SomeOf(self.draws, self.index[index])
