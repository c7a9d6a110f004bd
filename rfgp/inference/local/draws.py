"""Functions drawn from a regression in blocks of near rows, with the residual of the features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..._support import checks
from ...linalg.cholesky_factor import factor_of
from ..posterior.draws import FunctionDraws
from .prediction import LocalConditioning

if TYPE_CHECKING:
    from .regression import LocalRegression

_ROUNDING = 0.6
"""The values of a draw are remembered up to this power of the rounding of the dtype of the inputs."""


class ResidualDraws:
    """S draws of the residual given the rows near every point, which remember where they were evaluated.

    They have the covariance of :meth:`LocalConditioning.covariance`: they are drawn jointly inside every block.
    """

    def __init__(self, conditioning: LocalConditioning, num_samples: int) -> None:
        self.conditioning = conditioning
        device = conditioning.rows.x.device
        self.x = conditioning.rows.x.new_empty(0, conditioning.rows.x.shape[-1])
        self.values = torch.empty(0, num_samples, dtype=torch.float64, device=device)

    @torch.no_grad()
    def at(self, x: Tensor) -> Tensor:
        """The values (N, S) at new points (N, d), in float64."""
        first = len(self.x)
        every = torch.cat([self.x, x.to(self.x)])
        values = torch.cat([self.values, self.values.new_empty(len(x), self.values.shape[-1])])
        places = self.conditioning.place(every)
        for block in places[first:].unique().tolist():
            points = (places == block).nonzero().squeeze(-1)
            count = int((points < first).sum())
            points = points.to(x.device)
            values[points[count:]] = self._drawn(every[points], values[points[:count]])
        self.x, self.values = every, values
        return values[first:]

    def _drawn(self, x: Tensor, known: Tensor) -> Tensor:
        """Values (t, S) at the last of some points (n + t, d), given those at the first, (n, S)."""
        covariance, count = self.conditioning.covariance(x).double(), len(known)
        if not count:
            return draws_of(covariance, known.shape[-1])
        rounding = torch.finfo(x.dtype).eps ** _ROUNDING * self.conditioning.residual.exact(x, diag=True).double()
        factor = factor_of(covariance[:count, :count] + torch.diag(rounding[:count]))
        weights = torch.cholesky_solve(covariance[:count, count:], factor).mT
        left = covariance[count:, count:] - weights @ covariance[:count, count:]
        return weights @ known + draws_of(left, known.shape[-1])


def draws_of(covariance: Tensor, num_samples: int) -> Tensor:
    """Draws (..., t, S) of normal distributions whose covariances (..., t, t) may be singular, but for rounding."""
    values, vectors = torch.linalg.eigh(covariance)
    noise = torch.randn(*values.shape, num_samples, dtype=values.dtype, device=values.device)
    return vectors @ (values.clamp_min(0.0).sqrt().unsqueeze(-1) * noise)


_ROWS = 4096


class LocalDraws(FunctionDraws):
    """Draws of functions: of their features by weights (K, S), and of their residual given the rows near every point.

    They have the means and covariances of the posterior. Later evaluations agree with earlier ones. Without gradients.
    """

    def __init__(self, regression: LocalRegression, weights: Tensor) -> None:
        self._regression, self._conditioning = regression, regression.conditioning()
        self._weights = regression.factor().scalar_weights(weights).squeeze(-2).detach()
        self._residual = ResidualDraws(self._conditioning, weights.shape[-1])
        self._values = self._weights.new_empty(0, weights.shape[-1])
        self._places: dict[bytes, int] = {}
        """Where the values at known points are, by the bytes of these."""

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        checks.finite(checks.inputs(x, self._residual.x.shape[-1]))
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
        parts = (
            self._regression.mean_given(part, self._conditioning.at(part), self._weights) for part in x.split(_ROWS)
        )
        self._values = torch.cat([self._values, torch.cat(list(parts)) + self._residual.at(x)])

    def take(self, index: Tensor) -> FunctionDraws:
        return _SomeOf(self, index)

    def __getstate__(self) -> dict[str, Any]:
        twin = self._regression.detached()
        residual = ResidualDraws(twin.conditioning(), self._weights.shape[-1])
        residual.x, residual.values = self._residual.x, self._residual.values
        state = {"_regression": twin, "_conditioning": residual.conditioning, "_residual": residual}
        return {**self.__dict__, **state}


class _SomeOf(FunctionDraws):
    """Some of the functions that are drawn together, by their numbers (M,), with the memory of all of them."""

    def __init__(self, draws: LocalDraws, index: Tensor) -> None:
        self.draws, self.index = draws, index

    def __call__(self, x: Tensor) -> Tensor:
        return self.draws(x)[self.index.to(x.device)]

    def take(self, index: Tensor) -> FunctionDraws:
        return _SomeOf(self.draws, self.index[index])
