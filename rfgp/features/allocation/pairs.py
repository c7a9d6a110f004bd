"""Means over pairs of inputs: kernel terms, variances and covariances of every degree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from ..._support import checks

_SAMPLE = 500


class DegreeStatistics(NamedTuple):
    """Means over pairs for one degree: what variance and surrogate need for every number of features D."""

    variance: float  # of one feature
    covariance: float  # within a block of signs, before c(D, d)/D^2
    positive: float  # variance + (d - 1) covariance, over pairs with positive covariance
    negative_variance: float
    negative_covariance: float

    def surrogate(self, width: np.ndarray, block: int) -> np.ndarray:
        """The convex surrogate of the variance for numbers of features D, T Eq. D.4 and D.5."""
        v, c = self.negative_variance, self.negative_covariance
        return self.positive / width + np.where(width <= block, (v - c) / width + c, (v + (block - 1) * c) / width)

    def true_variance(self, width: int, block: int) -> float:
        """The variance with D features, T Table 5.1."""
        full, rest = divmod(width, block)
        pairs = full * block * (block - 1) + rest * (rest - 1)
        return self.variance / width + pairs / width**2 * self.covariance


def sample_pairs(
    x: Tensor, num_pairs: int | None, generator: Generator | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Left and right inputs whose kernel matrices hold the pairs, weights that average over these, and drawn rows."""
    data = x.detach().to("cpu", torch.float64)
    if data.dim() != 2 or len(data) < 2:
        raise ValueError(f"expected at least two inputs (N, d) for pairs, got shape {tuple(x.shape)}; pass more")
    if num_pairs is None:
        if len(data) > _SAMPLE:
            data = data[torch.randperm(len(data), generator=generator)[:_SAMPLE]]
        weights = 1.0 - torch.eye(len(data), dtype=torch.float64)
        return data, data, weights / weights.sum(), None
    count = checks.positive_integer("num_pairs", num_pairs)
    first = torch.randint(len(data), (count,), generator=generator)
    second = (first + torch.randint(1, len(data), (count,), generator=generator)) % len(data)
    weights = torch.full((count, 1, 1), 1.0 / count, dtype=torch.float64)
    return data[first].unsqueeze(-2), data[second].unsqueeze(-2), weights, torch.stack([first, second])


class PairTerms:
    """Kernel terms, variances and covariances of all pairs, in float64, scaled so that no power overflows."""

    def __init__(self, left: Tensor, right: Tensor, is_gaussian: bool, sketch: str, block: int) -> None:
        self.inner = left @ right.mT
        norms = left.square().sum(-1)[..., :, None], right.square().sum(-1)[..., None, :]
        self.norms = norms[0] * norms[1]
        is_gaussian_sketch = sketch == "gaussian"
        self.diagonal = torch.zeros_like(self.inner) if is_gaussian_sketch else left.square() @ right.square().mT
        self.log_envelope = -0.5 * (norms[0] + norms[1]) if is_gaussian else torch.zeros_like(self.inner)
        self.is_gaussian, self.block, self.is_structured = is_gaussian, block, sketch.startswith("tensor")

    def power(self, degree: int) -> Tensor:
        """The product of the envelopes and the inner product to the power of the degree."""
        return (self.inner * torch.exp(self.log_envelope / max(degree, 1))) ** degree * (
            torch.exp(self.log_envelope) if degree == 0 else 1.0
        )

    def exact(self, coefficients: Tensor, function: Callable[[Tensor], Tensor] | None) -> Tensor:
        """The exact kernel."""
        if self.is_gaussian:
            return torch.exp(self.inner + self.log_envelope)
        if function is not None:
            return function(self.inner)
        return torch.stack([float(a) * self.inner**n for n, a in enumerate(coefficients)]).sum(0)

    def single(self, degree: int, coefficient: float, form: str) -> tuple[Tensor, Tensor]:
        """Variance of one feature, and covariance of two that share their signs, of one weighted term."""
        scale = coefficient ** (2.0 / degree) * torch.exp(2.0 * self.log_envelope / degree)
        square, diagonal, norms = scale * self.inner.square(), scale * self.diagonal, scale * self.norms
        mean = square**degree
        raw = {"real": [norms + 2.0 * (square - diagonal)]}.get(form, [norms + square - diagonal])
        if form == "ctr":
            raw.append(2.0 * square - diagonal)
        variance = torch.stack([base**degree for base in raw]).mean(0) - mean
        if not self.is_structured:
            return variance, torch.zeros_like(variance)
        if self.block == 1:
            return torch.zeros_like(variance), torch.zeros_like(variance)
        shared = [(square - (base - square) / (self.block - 1)) ** degree for base in raw]
        return variance, torch.stack(shared).mean(0) - mean

    def statistics(self, degree: int, coefficient: float, form: str, weights: Tensor) -> DegreeStatistics:
        """Means over pairs for one degree."""
        variance, covariance = self.single(degree, coefficient, form)
        positive, negative = weights * (covariance > 0), weights * (covariance <= 0)
        means = [
            (weights * variance).sum(),
            (weights * covariance).sum(),
            (positive * (variance + (self.block - 1) * covariance)).sum(),
            (negative * variance).sum(),
            (negative * covariance).sum(),
        ]
        return DegreeStatistics(*[float(mean) for mean in means])

    def variances(self, degree: int, coefficient: float, form: str, width: int) -> Tensor:
        """The variance of every pair with ``width`` features."""
        variance, covariance = self.single(degree, coefficient, form)
        full, rest = divmod(width, self.block)
        return variance / width + (full * self.block * (self.block - 1) + rest * (rest - 1)) / width**2 * covariance


def standard_error(values: Tensor, weights: Tensor, rows: Tensor | None) -> float:
    """Of the mean over all pairs of independent rows, by their projections; or over pairs of the rows given, (2, M)."""
    if rows is None:
        projections = (values * weights).sum(-1) * len(values)
        return 2.0 * float(projections.std()) / math.sqrt(len(projections))
    deviations = (values - values.mean()).flatten() / len(values)
    by_row = torch.zeros(int(rows.max()) + 1, dtype=values.dtype)
    by_row.index_add_(0, rows[0], deviations).index_add_(0, rows[1], deviations)
    variance = float(deviations.square().sum())
    return math.sqrt(max(float(by_row.square().sum()) - variance, variance))
