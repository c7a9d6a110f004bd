"""How each likelihood turns rows into statistics, and statistics into the linear systems of weight space."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from typing import NamedTuple

import gpytorch
import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, Likelihood
from torch import Tensor

from .. import _checks, linalg
from ..likelihoods import ComplexGaussianLikelihood
from ..likelihoods.dirichlet import dirichlet_targets
from ..statistics import GramStatistics


class Rows(NamedTuple):
    """What one batch of rows adds to the statistics: arguments of :meth:`GramStatistics.update` after the features.

    Where the weights (and log noises) are matrices (N, G), every row belongs to all G groups, but for weights of zero.
    """

    targets: Tensor
    weights: Tensor | None = None
    log_noise: Tensor | None = None
    groups: Tensor | None = None
    num_groups: int = 1

    @property
    def center(self) -> Tensor:
        """The mean of the targets, (K,), in double precision: what is subtracted before they are summed."""
        exact = self.targets.to(linalg.accurate_dtype(self.targets.dtype))
        return exact.mean(0)

    @property
    def is_in_all_groups(self) -> bool:
        """Whether there are weights for every group."""
        return self.weights is not None and self.weights.dim() == 2

    def take(self, rows: slice | Tensor) -> Rows:
        """These rows alone, or all of them in another order."""
        weights, log_noise, groups = (None if part is None else part[rows] for part in self[1:4])
        return Rows(self.targets[rows], weights, log_noise, groups, self.num_groups)

    def of_group(self, group: int) -> tuple[Tensor, Rows]:
        """Which rows have a weight in a group, and what they add to it."""
        if self.weights is None:
            raise ValueError("expected weights for every group, got none")
        mine = self.weights[:, group] != 0
        log_noise = None if self.log_noise is None else self.log_noise[mine, group]
        return mine, Rows(self.targets[mine], self.weights[mine, group], log_noise)


class System(NamedTuple):
    r"""One regression in weight space: Gram matrix and cross products with precisions, and what the evidence needs.

    ``grams`` are matrices with coefficients whose sum is :math:`\Phi^H S^{-1} \Phi`, ``cross`` is
    :math:`\Phi^H S^{-1} r`, ``quadratic`` is :math:`r^H S^{-1} r` and ``log_noise`` is log|S|.
    """

    grams: list[tuple[Tensor, Tensor]]
    cross: Tensor
    quadratic: Tensor
    log_noise: Tensor


class Observations(abc.ABC):
    """The rows of one likelihood: how they are checked, summed, and combined into systems.

    Residuals are linear in known columns: the columns of ``targets`` are y (where it is not a label) and the basis of
    the mean function, so that mean parameters and homoscedastic noise need no new pass over the data.

    :param likelihood: the GPyTorch likelihood.
    """

    num_groups = 1
    num_systems = 1
    is_complex = False
    is_batched = False

    def __init__(self, likelihood: Likelihood) -> None:
        self.likelihood = likelihood

    @abc.abstractmethod
    def rows(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> Rows:
        """Checked rows; ``basis`` (N, k) holds the columns of the mean function."""

    @abc.abstractmethod
    def systems(self, statistics: GramStatistics, coefficients: Tensor) -> Iterator[System]:
        """The systems, one per class; ``coefficients`` are those of the mean, (k,) or (C, k)."""

    def noise(self, rows: Rows) -> Tensor:
        """The noise variances of rows of one output, (N,), in float64."""
        raise ValueError("expected one output with one noise variance per row, got several; sum over groups")

    @abc.abstractmethod
    def smallest_noise(self, rows: Rows) -> float:
        """The smallest noise variance of the rows."""

    def parameters(self) -> dict[str, Tensor]:
        """Parameters of the likelihood that enter the statistics."""
        return {}

    def num_values(self, statistics: GramStatistics) -> float:
        """The number of observed values."""
        return statistics.num_rows

    @property
    def numbers_of_groups(self) -> tuple[int, ...]:
        """How many groups the statistics may have."""
        return (self.num_groups,)

    def check_groups(self, statistics: GramStatistics) -> None:
        """Raise a ValueError where statistics from elsewhere do not have the groups of these observations."""
        if len(statistics.count) not in self.numbers_of_groups:
            wanted = " or ".join(map(str, self.numbers_of_groups))
            raise ValueError(
                f"expected statistics of {wanted} groups as the likelihood has, got {len(statistics.count)}; make them "
                "with a model of this likelihood"
            )

    def aligned(self, first: GramStatistics, second: GramStatistics) -> tuple[GramStatistics, GramStatistics]:
        """The same statistics with the same groups, so that they can be merged."""
        return first, second

    @property
    def constant(self) -> float:
        """The constant of the log density per row: log(2 pi) for real and log(pi) for complex rows."""
        return math.log(2.0 * math.pi)


def observations(likelihood: Likelihood) -> Observations:
    """The observations of a likelihood.

    :raises ValueError: for a likelihood that has no closed form in weight space.
    """
    if isinstance(likelihood, gpytorch.likelihoods.DirichletClassificationLikelihood):
        return ClassLabels(likelihood)
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        return FixedNoise(likelihood)
    if isinstance(likelihood, GaussianLikelihood):
        return Homoscedastic(likelihood)
    raise ValueError(
        "expected a Gaussian, fixed-noise, complex Gaussian or Dirichlet classification likelihood, got "
        f"{type(likelihood).__name__}; use one of these"
    )


def _residual(coefficients: Tensor, target: float = 1.0) -> Tensor:
    """Coefficients (k + 1, 1) of the residual target * y - basis @ coefficients in the columns [y, basis]."""
    return torch.cat([coefficients.new_full((1,), target), -coefficients]).unsqueeze(-1)


def _sums(statistics: GramStatistics, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Cross products (D, 1) and sum of squares of a residual over the rows of the only group."""
    cross, outer = statistics.of_combination(residual)
    square = outer.squeeze()
    return cross[0], square.real if square.is_complex() else square


class Homoscedastic(Observations):
    """Real or complex targets with one noise variance, which the statistics do not contain."""

    def __init__(self, likelihood: GaussianLikelihood) -> None:
        super().__init__(likelihood)
        self.is_complex = isinstance(likelihood, ComplexGaussianLikelihood)
        if likelihood.noise.numel() != 1:
            raise ValueError(
                f"expected a likelihood with one noise variance, got a batch of shape {tuple(likelihood.noise.shape)}; "
                "fit one model per element"
            )

    @property
    def constant(self) -> float:
        """log(pi) for complex rows, else log(2 pi)."""
        return math.log(math.pi) if self.is_complex else super().constant

    def smallest_noise(self, rows: Rows) -> float:
        """The noise variance."""
        return float(self.likelihood.noise.detach())

    def noise(self, rows: Rows) -> Tensor:
        """The noise variance, for every row."""
        return self.likelihood.noise.double().reshape(1).expand(len(rows.targets))

    def rows(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> Rows:
        if noise is not None:
            raise ValueError(
                "expected no noise for a likelihood that learns it, got some; use FixedNoiseGaussianLikelihood"
            )
        _checks.targets(y, x)
        if y.is_complex() != self.is_complex:
            wanted, likelihood = (
                ("complex", "GaussianLikelihood") if self.is_complex else ("real", "ComplexGaussianLikelihood")
            )
            raise ValueError(f"expected {wanted} targets, got {y.dtype}; use {likelihood}")
        return Rows(torch.cat([y.unsqueeze(-1), basis.to(y.dtype)], dim=-1))

    def systems(self, statistics: GramStatistics, coefficients: Tensor) -> Iterator[System]:
        noise = self.likelihood.noise.double().squeeze()
        cross, square = _sums(statistics, _residual(coefficients))
        grams = [(1.0 / noise, statistics.gram[0])]
        yield System(grams, cross / noise, square / noise, statistics.num_rows * noise.log())


class FixedNoise(Observations):
    """Real targets with a known noise variance per row, plus a learnt one where the likelihood has it."""

    def smallest_noise(self, rows: Rows) -> float:
        """The inverse of the largest precision."""
        return float("inf") if rows.weights is None else 1.0 / float(rows.weights.detach().max())

    def noise(self, rows: Rows) -> Tensor:
        """The inverse precisions."""
        return super().noise(rows) if rows.weights is None else 1.0 / rows.weights

    def rows(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> Rows:
        _checks.targets(y, x)
        if y.is_complex():
            raise ValueError(f"expected real targets, got {y.dtype}; use ComplexGaussianLikelihood")
        if noise is None:
            noise = self.likelihood.noise_covar.noise
            if not is_all or noise.shape != y.shape:
                raise ValueError(
                    f"expected the noise of {len(y)} rows, got a likelihood that knows {noise.shape[-1]}; pass noise="
                )
            noise = noise.to(x)
        total = _checks.noise(noise, x).double()
        if self.likelihood.second_noise_covar is not None:
            total = total + self.likelihood.second_noise_covar.noise.double()
        return Rows(torch.cat([y.unsqueeze(-1), basis], dim=-1), 1.0 / total, total.log())

    def systems(self, statistics: GramStatistics, coefficients: Tensor) -> Iterator[System]:
        grams = [(torch.ones_like(statistics.log_noise[0]), statistics.gram[0])]
        yield System(grams, *_sums(statistics, _residual(coefficients)), statistics.log_noise[0])

    def parameters(self) -> dict[str, Tensor]:
        return {f"likelihood.{name}": value for name, value in self.likelihood.named_parameters()}


class ClassLabels(Observations):
    r"""Integer labels: every class is a regression, and all of them share one pass over the data.

    With the Gram matrices of the rows of each class, :math:`G_c`, and their sum G, class c has
    :math:`\Phi^H S_c^{-1} \Phi = (G - G_c) / s_0 + G_c / s_1`, and so on for the other sums.
    """

    def __init__(self, likelihood: gpytorch.likelihoods.DirichletClassificationLikelihood) -> None:
        super().__init__(likelihood)
        self.num_groups = self.num_systems = likelihood.num_classes
        self.is_batched = True

    def smallest_noise(self, rows: Rows) -> float:
        """The noise variance inside a class, without what is learnt."""
        values = dirichlet_targets(self.likelihood.alpha_epsilon)
        return min(values.inside_noise, values.outside_noise)

    def rows(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> Rows:
        if noise is not None:
            raise ValueError("expected no noise for class labels, got some; the likelihood computes it from the labels")
        labels = _checks.labels(y, x, self.num_groups)
        targets = torch.cat([basis.new_ones(len(basis), 1), basis], dim=-1)
        return Rows(targets, groups=labels, num_groups=self.num_groups)

    def systems(self, statistics: GramStatistics, coefficients: Tensor) -> Iterator[System]:
        values = dirichlet_targets(self.likelihood.alpha_epsilon)
        extra = self.likelihood.second_noise_covar
        added = torch.zeros((), dtype=torch.float64) if extra is None else extra.noise.double()
        added = added.to(coefficients.device).expand(self.num_systems, 1)
        pooled = statistics.pooled()
        for c in range(self.num_systems):
            inside_noise, outside_noise = values.inside_noise + added[c, 0], values.outside_noise + added[c, 0]
            mean = coefficients if coefficients.dim() == 1 else coefficients[c]
            inside, outside = _residual(mean, values.inside), _residual(mean, values.outside)
            own = statistics.of_group(c)
            every_cross, every_square = _sums(pooled, outside)
            other_cross, other_square = _sums(own, outside)
            own_cross, own_square = _sums(own, inside)
            rows_inside = statistics.count[c]
            yield System(
                [(1.0 / outside_noise, pooled.gram[0]), (1.0 / inside_noise - 1.0 / outside_noise, own.gram[0])],
                (every_cross - other_cross) / outside_noise + own_cross / inside_noise,
                (every_square - other_square) / outside_noise + own_square / inside_noise,
                rows_inside * inside_noise.log() + (statistics.num_rows - rows_inside) * outside_noise.log(),
            )
