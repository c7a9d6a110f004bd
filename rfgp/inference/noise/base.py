"""How noise turns rows into groups of equal precision, and sums over these into what a regression needs."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple, Self, TypeVar

import torch
from gpytorch.likelihoods import Likelihood
from torch import Tensor

from ..._support import checks
from ...linalg import accurate_dtype
from ..posterior.factor import OutputFactor
from ..posterior.normal_equations import Equations, Group, NormalEquations, WeightedSums, combined
from ..sums.rows import Rows
from ..sums.statistics import GramStatistics
from ..sums.sufficient_statistics import SufficientStatistics


class Targets(NamedTuple):
    """The required form of targets.

    :param has_columns: whether there is a column per output, with NaN for missing values; else targets are (N,).
    :param has_tasks: whether the likelihood has tasks, possibly a single one.
    """

    num_outputs: int = 1
    has_columns: bool = False
    has_tasks: bool = False
    is_complex: bool = False

    def columns(self, x: Tensor, y: Tensor, basis: Tensor) -> ObservedTargets:
        """Columns [y, basis] (N, T + k), and where y is observed, (N, T)."""
        if self.has_columns:
            return self._several(x, y, basis)
        if self.is_complex and isinstance(y, Tensor) and y.is_complex():
            values, observed = complete(y)
            columns = torch.cat([checks.targets(values, x).unsqueeze(-1), basis.to(y.dtype)], dim=-1)
            return ObservedTargets(columns, None if observed is None else observed.unsqueeze(-1))
        checks.targets(y, x)
        if y.is_complex() != self.is_complex:
            wanted, likelihood = (
                ("complex", "GaussianLikelihood") if self.is_complex else ("real", "ComplexGaussianLikelihood")
            )
            raise ValueError(f"expected {wanted} targets, got {y.dtype}; use {likelihood}")
        return ObservedTargets(torch.cat([y.unsqueeze(-1), basis.to(y.dtype)], dim=-1))

    def by_output(self, values: Tensor) -> Tensor:
        """Values (N,) of a single output as (N, 1); others as they are."""
        return values.unsqueeze(-1) if values.dim() == 1 and self.num_outputs == 1 else values

    def _several(self, x: Tensor, y: Tensor, basis: Tensor) -> ObservedTargets:
        checks.tensor(y, "y")
        values = self.by_output(y)
        if not y.is_floating_point() or values.shape != (len(x), self.num_outputs):
            wanted = f"({len(x)}, {self.num_outputs})"
            raise ValueError(
                f"expected floating-point targets of shape {wanted}, got {y.dtype} {tuple(y.shape)}; give a column per "
                "output, with NaN for those that are missing"
            )
        checks.same_kind(values, x, "y", "x")
        observed = ~torch.isnan(values)
        if bool(torch.isinf(values).any()):
            raise ValueError("expected finite targets, or NaN for missing ones, got infinite ones; correct them")
        if bool(observed.all()):
            return ObservedTargets(torch.cat([values, basis], dim=-1))
        if not bool(observed.any()):
            raise ValueError("expected at least one observed target, got NaN only; leave these rows out")
        filled = torch.where(observed, values, values.nanmean(0).nan_to_num(0.0))
        return ObservedTargets(torch.cat([filled, basis], dim=-1), observed)


class ObservedTargets(NamedTuple):
    """Checked targets, and what is known of their noise: all of rows that does not follow from parameters.

    :param columns: the columns that are regressed, targets and the basis of the mean, (..., N, K).
    :param observed: which outputs are observed, (..., N, T); None for all.
    :param variances: known noise variances, (..., N, T) or (N,), in float64.
    :param labels: the classes of the rows, (N,).
    :param weights: what divides the noise of the rows, (N,).
    """

    columns: Tensor
    observed: Tensor | None = None
    variances: Tensor | None = None
    labels: Tensor | None = None
    weights: Tensor | None = None

    def take(self, rows: Tensor) -> ObservedTargets:
        """Those of some rows."""
        return ObservedTargets(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


def complete(y: Tensor) -> tuple[Tensor, Tensor | None]:
    """Complex targets (N,), with the mean in place of NaN, and a mask of the observed ones (None for all)."""
    observed = ~torch.isnan(y)
    if bool(observed.all()):
        return y, None
    if not bool(observed.any()):
        raise ValueError("expected at least one observed target, got NaN only; leave these rows out")
    return torch.where(observed, y, y[observed].mean()), observed


def noise_of_observed(noise: Tensor, observed: Tensor | None) -> Tensor:
    """Noise variances (N,) with ones where targets are missing, whose noise does not matter."""
    if observed is None or not isinstance(noise, Tensor) or noise.shape != observed.shape:
        return noise
    return torch.where(observed, noise, torch.ones_like(noise))


class NoiseModel(abc.ABC):
    """The noise model of a likelihood: it groups rows by the precision of their T outputs.

    Rows of one group share a scalar Gram matrix. Residuals are linear in known columns: the targets y and the basis of
    the mean function. A subclass defines ``observations``, ``rows_of`` and
    ``precisions``, and is :func:`registered` for its likelihoods.

    :param targets: the required form of the targets.

    >>> import gpytorch
    >>> from rfgp.inference import noise_model
    >>> noise_model(gpytorch.likelihoods.GaussianLikelihood()).num_outputs
    1
    """

    num_systems: int = 1
    is_batched: ClassVar[bool] = False
    """Whether there is a regression per class, on the same rows."""
    is_of_parts: bool = False
    """Whether the outputs are the real and the imaginary part of complex targets."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        self.num_outputs, self.is_complex = targets.num_outputs, targets.is_complex
        self.patterns: tuple[tuple[bool, ...], ...] = ()

    @classmethod
    def of_likelihood(cls, likelihood: Likelihood, targets: Targets) -> Self | None:
        """The noise of a likelihood of a class that it is :func:`registered` for; None where it has another noise."""
        return None

    @property
    def statistics_kind(self) -> type[SufficientStatistics]:
        """How the sums over rows are held."""
        return GramStatistics

    @abc.abstractmethod
    def observations(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> ObservedTargets:
        """Checked targets and noise.

        :param x: inputs, (N, d).
        :param noise: noise variances that were given beside the targets y.
        :param basis: the columns of the mean function, (N, k).
        :param is_all: whether these are all rows, whose noise the likelihood may know.
        :raises ValueError: for rows that do not suit the likelihood.
        """

    @abc.abstractmethod
    def rows_of(self, observations: ObservedTargets) -> Rows:
        """Rows without regard to the weights."""

    def weigh(self, observations: ObservedTargets) -> Rows:
        """Rows by the precision of their outputs, at the present parameters."""
        rows = self.rows_of(observations)
        return rows if observations.weights is None else rows.weighted(observations.weights)

    def rows(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> Rows:
        """Checked rows, for the arguments of :meth:`observations`."""
        return self.weigh(self.observations(x, y, noise, basis, is_all))

    @property
    def has_one_covariance(self) -> bool:
        """Whether all rows have the same noise covariance of their outputs."""
        return False

    @abc.abstractmethod
    def precisions(self, num_groups: int) -> list[Tensor | None]:
        """The precision (..., T, T) of every group of rows, in float64; None where nothing is observed."""

    @abc.abstractmethod
    def log_noise(self, statistics: SufficientStatistics) -> Tensor:
        """The logarithm of the determinant of the noise covariance of all that is observed."""

    def covariance(self) -> Tensor:
        """The covariance (T, T) of the outputs of a row, where it is the same for all rows."""
        raise ValueError(
            f"expected noise with one covariance for all rows, got {type(self).__name__}; use a "
            "MultitaskGaussianLikelihood"
        )

    def smallest(self, rows: Rows) -> float:
        """The smallest noise variance of some rows, in any direction."""
        return float(torch.linalg.eigvalsh(self.covariance().detach()).min()) / rows.largest_weight

    def row_targets(self, rows: Rows) -> Tensor:
        """The targets of every regression, (..., N, T), in double precision."""
        columns = rows.targets[:, : self.num_outputs]
        return columns.to(accurate_dtype(columns.dtype))

    def row_precisions(self, rows: Rows) -> Tensor:
        """The precisions of the outputs of every row, (..., N, T, T), in float64; zero where they are missing."""
        zero = torch.zeros(self.num_outputs, self.num_outputs, dtype=torch.float64, device=rows.targets.device)
        precisions = torch.stack([zero if p is None else p for p in self.precisions(rows.num_groups)])
        if rows.weights is None and rows.groups is not None:
            return precisions[rows.groups]
        return torch.einsum("ng,gtu->ntu", rows.all_weights(), precisions)

    def variances(self, rows: Rows) -> Tensor:
        """The noise variances of rows of one output, (N,), in float64."""
        if self.num_outputs > 1:
            raise ValueError(f"expected one output for noise variances by row, got {self.num_outputs}; sum over groups")
        weights = rows.all_weights()
        precisions = [weights.new_zeros(1, 1) if p is None else p for p in self.precisions(rows.num_groups)]
        return 1.0 / (weights * torch.cat(precisions, dim=-1)).sum(-1)

    def equations(
        self, statistics: SufficientStatistics, factor: OutputFactor, coefficients: Tensor, tracks: bool = False
    ) -> Equations:
        """The normal equations of the weights, for coefficients (..., k, T) of the mean function."""
        return NormalEquations(self.weighted(statistics, residual_columns(coefficients)), factor)

    def weighted(self, statistics: SufficientStatistics, residual: Tensor) -> WeightedSums:
        """The weighted sums of residuals, combinations (K, T) of the columns of the targets."""
        crosses, squares = statistics.targets.of_combination(residual)
        count = statistics.targets.num_rows
        precisions = self.precisions(len(count))
        observed = [(index, precision) for index, precision in enumerate(precisions) if precision is not None]
        if len(precisions) > 1:
            observed = [part for part in observed if float(count[part[0]])] or observed[:1]
        groups, quadratic, grams = [], [], statistics.gram
        for index, precision in observed:
            groups.append((Group(precision, grams[index]), crosses[index]))
            square = (precision * squares[index]).sum()
            quadratic.append(square.real if square.is_complex() else square)
        return combined(groups, torch.stack(quadratic).sum(), self.log_noise(statistics))

    def parameters(self) -> dict[str, Tensor]:
        """Parameters of the likelihood that enter the statistics, by name."""
        return {}

    def num_values(self, statistics: SufficientStatistics) -> float:
        """The number of observed values."""
        return statistics.num_rows

    @property
    def numbers_of_groups(self) -> tuple[int, ...]:
        """How many groups the statistics may have."""
        return (1,)

    def check_groups(self, statistics: SufficientStatistics) -> None:
        """Raise a ValueError where statistics from elsewhere do not have the groups of this noise."""
        if len(statistics.count) not in self.numbers_of_groups:
            wanted = " or ".join(map(str, self.numbers_of_groups))
            raise ValueError(
                f"expected statistics of {wanted} groups as the likelihood has, got {len(statistics.count)}; make them "
                "with a model of this likelihood"
            )

    def aligned(
        self, first: SufficientStatistics, second: SufficientStatistics
    ) -> tuple[SufficientStatistics, SufficientStatistics]:
        """The same statistics with the same groups, so that they can be merged."""
        size = max(len(first.count), len(second.count))
        return _padded(first, size), _padded(second, size)

    def merged(self, total: SufficientStatistics | None, added: SufficientStatistics) -> SufficientStatistics:
        """The statistics of old rows, if there are any, and new ones together."""
        if total is None:
            return added
        first, second = self.aligned(total, added)
        return first.merge(second)

    def without(
        self, total: SufficientStatistics, removed: SufficientStatistics, is_centered: bool = True
    ) -> SufficientStatistics:
        """The statistics of old rows without some of them, perhaps centered at the targets that are left."""
        first, second = self.aligned(total, removed)
        observed = self.observed(len(first.count), first.count.device)
        left = first.of_observed(observed).subtract(
            second if observed is None else second.shifted(first.shift).of_observed(observed)
        )
        return left.recentered(observed) if is_centered else left

    def observed(self, num_groups: int, device: torch.device) -> Tensor | None:
        """Which outputs are observed in the rows of every group, (G, T); None for all."""
        if self.num_outputs == 1 or num_groups != self.num_outputs:
            return None
        return torch.eye(self.num_outputs, dtype=torch.bool, device=device)

    @property
    def constant(self) -> float:
        """The constant of the log density per observed value: log(2 pi), or log(pi) for complex ones."""
        return math.log(math.pi) if self.is_complex else math.log(2.0 * math.pi)


_KINDS: dict[type[Likelihood], list[type[NoiseModel]]] = {}
"""The noise models that are registered for classes of likelihoods."""
Kind = TypeVar("Kind", bound=type[NoiseModel])


def registered(*likelihoods: type[Likelihood]) -> Callable[[Kind], Kind]:
    """Register a noise model for classes of likelihoods and their subclasses.

    The nearest base class of a likelihood decides; of its noise models the last one that takes the likelihood.
    """

    def register(kind: Kind) -> Kind:
        for likelihood in likelihoods:
            _KINDS.setdefault(likelihood, []).append(kind)
        return kind

    return register


def registered_kinds(likelihood: Likelihood) -> Iterator[type[NoiseModel]]:
    """The noise models that may take a likelihood, the nearest first."""
    for parent in type(likelihood).__mro__:
        yield from reversed(_KINDS.get(parent, []))


def residual_columns(coefficients: Tensor, target: float = 1.0) -> Tensor:
    """Coefficients (..., T + k, T) of the residuals target * Y - basis @ coefficients in the columns [Y, basis]."""
    size = coefficients.shape[-1]
    identity = torch.eye(size, dtype=coefficients.dtype, device=coefficients.device)
    return torch.cat([(target * identity).expand(*coefficients.shape[:-2], size, size), -coefficients], dim=-2)


def weights_of(variances: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor]:
    """The precisions of known noise variances, and their logarithms; zeros where nothing is observed."""
    weights, log_noise = 1.0 / variances, variances.log()
    if observed is None:
        return weights, log_noise
    return torch.where(observed, weights, 0.0), torch.where(observed, log_noise, 0.0)


def _padded(statistics: SufficientStatistics, size: int) -> SufficientStatistics:
    """The statistics with groups without rows at their end."""
    missing = size - len(statistics.count)
    if not missing:
        return statistics
    return GramStatistics.concatenate([statistics, *[statistics.empty_group()] * missing])


def unit_matrices(size: int, device: torch.device) -> list[Tensor]:
    """The matrices (T, T), in float64, with a one on their diagonal for one output, for every output."""
    return [*torch.diag_embed(torch.eye(size, dtype=torch.float64, device=device))]
