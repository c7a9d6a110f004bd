"""One maximization of the log densities of rows given those near them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from .ascent import Ascent, Maximizer, NoValueError
from .chunked import chunked_sum
from .conditionals import Conditional
from .coordinates import Coordinates
from .moments import DataMoments
from .neighbor_scores import robust_mean
from .run import log_prior

_CHUNK = 2**17
"""Entries of the covariance matrices that are held at a time."""
_PRECISION, _SHARE_OF_ERROR, _SHARE_OF_TIED = 1e-9, 0.1, 0.03
"""How small gains and, in standard errors, gradients count as zero: few parameters are found more exactly."""
_STARTS = ((1.0, 1.0), (1.0, 0.01), (0.3, 1.0), (0.3, 0.01))
"""By what lengthscales and noise are multiplied for the starts that are compared."""
_ROWS_OF_STARTS = 128


class Climb:
    """A maximization of the mean log density of the last rows of groups (n, m + 1).

    :param is_tied: whether all lengthscales are multiplied by one number, and transforms stay.
    """

    def __init__(
        self,
        conditional: Conditional,
        moments: DataMoments,
        groups: Tensor,
        limit: int,
        is_tied: bool,
        is_late: Callable[[], bool] = lambda: False,
        report: Callable[[float], None] = lambda value: None,
    ) -> None:
        self.conditional, self.groups, self.report = conditional, groups, report
        self.coordinates = Coordinates(conditional.parts, moments)
        self.start = self.coordinates.values()
        self.directions = np.eye(len(self.start))
        if is_tied:
            lengths, others = self.coordinates.lengthscales, ~self.coordinates.transforms
            together = [lengths.astype(float)] if lengths.any() else []
            self.directions = np.vstack([*together, self.directions[others & ~lengths]])
        tolerance = (_SHARE_OF_TIED if is_tied else _SHARE_OF_ERROR) * len(groups) ** -0.5
        lower, upper = self._bounds()
        self._maximizer = Maximizer(self._evaluate, lower, upper, limit, tolerance, _PRECISION, is_late)

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """How far to go in every direction."""
        is_in = self.directions != 0
        low = np.where(is_in, self.coordinates.lower - self.start, -np.inf).max(-1)
        return low, np.where(is_in, self.coordinates.upper - self.start, np.inf).min(-1)

    def ascend(self) -> Ascent:
        """Maximize, and leave the parameters at the best point."""
        ascent = self._maximizer.run(np.zeros(len(self.directions)))
        self._assign(ascent.point)
        return ascent

    def keep_best(self) -> bool:
        """Leave the model with the best parameters seen so far; whether there are any."""
        if self._maximizer.best is None:
            return False
        self._assign(self._maximizer.best.point)
        self.conditional.write()
        return True

    @torch.no_grad()
    def choose_start(self) -> None:
        """Go on from the best of some multiples of the lengthscales and noises."""
        lengths, noises = self.coordinates.lengthscales, self.coordinates.noises
        groups, best = self.groups[:_ROWS_OF_STARTS], -np.inf
        for length, noise in _STARTS:
            point = self.start + np.log(length) * lengths + np.log(noise) * noises
            self.coordinates.assign(np.clip(point, self.coordinates.lower, self.coordinates.upper))
            try:
                self.conditional.profile(groups)
                value = mean_log_density(self.conditional, groups)
            except (ValueError, NanError, NotPSDError):
                continue
            if value > best:
                best, chosen = value, self.coordinates.values()
        if np.isfinite(best):
            self.start = chosen
            self._maximizer.lower, self._maximizer.upper = self._bounds()
        self.coordinates.assign(self.start)

    def _assign(self, point: np.ndarray) -> None:
        self.coordinates.assign(self.start + point @ self.directions)
        for parameter in self.coordinates.parameters:
            parameter.grad = None

    def _evaluate(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        self._assign(point)
        parameters = self.coordinates.parameters
        try:
            with torch.enable_grad():
                size = chunk_size(self.conditional, self.groups)
                total = chunked_sum(self.conditional.log_densities, self.groups, size, parameters)
                total = total + log_prior(self.conditional.kernel) * (len(self.groups) / len(self.conditional.x))
            total.backward()
            value, gradient = float(total.detach()), self.directions @ self.coordinates.gradient()
        except (ValueError, NanError, NotPSDError) as error:
            raise NoValueError from error
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            raise NoValueError
        self.report(value)
        return value / len(self.groups), gradient / len(self.groups)


@torch.no_grad()
def mean_log_density(conditional: Conditional, groups: Tensor) -> float:
    """The mean log density of the last rows of groups, given the others, as far as single rows do not decide it."""
    chunks = groups.split(chunk_size(conditional, groups))
    densities = torch.cat([conditional.log_densities(chunk) for chunk in chunks])
    return float(robust_mean(densities))


def chunk_size(conditional: Conditional, groups: Tensor) -> int:
    """How many groups are taken at a time."""
    return max(8, _CHUNK // (conditional.num_factors * groups.shape[-1] ** 2))
