"""Groups of more values than weights that are left out: the posterior of all other rows is made anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ...linalg.complex_numbers import real_part
from ..posterior.posterior import GaussianPosterior
from ..sums.sufficient_statistics import SufficientStatistics
from .group_densities import noise_covariance
from .leave_out import FunctionPrediction

_HELD = 16
"""The sums over so many groups are held at a time."""


class RefittedGroup:
    """The functions of one draw of the weights without a group of more values than weights."""

    def __init__(self, draw: Any, posterior: GaussianPosterior) -> None:
        self.draw, self.posterior = draw, posterior

    def prediction(self, chosen: Tensor) -> FunctionPrediction:
        """Predictions at single rows with numbers (n,)."""
        scalar = self.draw.scalar_features(chosen)
        error = self.draw.errors(chosen, scalar, self.posterior.mean).squeeze(-1)
        variance = self.posterior.block_covariances(scalar, self.draw.factor)
        if self.draw.noise.is_complex:
            return FunctionPrediction(error, variance)
        return FunctionPrediction(real_part(error), real_part(variance))

    def root(self, chosen: Tensor) -> Tensor:
        """A root (..., n T, K) of the joint covariance at rows."""
        root = self.posterior.function_root(self.draw.scalar_features(chosen), self.draw.factor)
        return root if self.is_whole or not root.is_complex() else torch.cat([root.real, root.imag], dim=-1)

    @property
    def is_whole(self) -> bool:
        """Whether the posterior is that of the targets, and not its real part."""
        return self.draw.noise.is_complex or not self.draw.posterior.mean.is_complex()

    def log_prob(self, part: Tensor, error: Tensor) -> Tensor:
        r"""The joint log density of rows ``part`` (m,) of the group, from errors (..., m, T) of the fit to all rows.

        .. math:: e_g^H (S_g + V_{-g})^{-1} e_g = e_g^H S_g^{-1} (y_g - F_g m), \qquad
            \log|S_g + V_{-g}| = \log|S_g| + \log|B| - \log|B_{-g}|
        """
        draw = self.draw
        share, circle = (1.0, math.pi) if draw.noise.is_complex else (0.5, 2.0 * math.pi)
        total = draw.posterior.log_determinant - self.posterior.log_determinant
        step = max(piece.stop - piece.start for piece in draw.chunks())
        for chosen, errors in zip(part.split(step), error.split(step, dim=-2), strict=True):
            left = draw.errors(chosen, draw.scalar_features(chosen), draw.mean)
            white = draw.whitened(chosen, left).squeeze(-1)
            precision = draw.precisions(chosen)
            missing = precision.diagonal(dim1=-2, dim2=-1) == 0
            log_noise = torch.linalg.slogdet(noise_covariance(precision, missing)).logabsdet.sum(-1)
            total = total + real_part((errors.conj() * white).sum((-2, -1))) + log_noise
            total = total + (~missing).sum((-2, -1)) * math.log(circle)
        return -share * total


def sums_of_others(
    parts: Sequence[Tensor],
    sums: Callable[[Tensor], SufficientStatistics],
    merged: Callable[[SufficientStatistics | None, SufficientStatistics], SufficientStatistics],
    outside: SufficientStatistics | None,
) -> Iterator[SufficientStatistics]:
    """The sums over all rows but those of each part: additions alone, which lose no digits."""
    if len(parts) > _HELD:
        half = len(parts) // 2
        for chosen, others in ((parts[:half], parts[half:]), (parts[half:], parts[:half])):
            yield from sums_of_others(chosen, sums, merged, merged(outside, sums(torch.cat(list(others)))))
        return
    sums_of_parts = [sums(part) for part in parts]
    for left_out in range(len(sums_of_parts)):
        total = outside
        for number, part_sums in enumerate(sums_of_parts):
            if number != left_out:
                total = merged(total, part_sums)
        if total is not None:
            yield total
