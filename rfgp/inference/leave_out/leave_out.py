"""Predictions of rows from all others, one by one or group by group, from one fit and its rows."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..._support import checks
from ...linalg.complex_numbers import real_part, squared_modulus
from ..noise import NoiseModel
from ..posterior.covariance import ResidualCovariance
from ..sums.rows import Part, Rows


class LowRankDensity:
    r"""The log density of errors with a covariance :math:`R R^H + S` of a root that comes in chunks of rows.

    .. math:: e^H (S + R R^H)^{-1} e = e^H S^{-1} e - b^H A^{-1} b, \qquad A = I + R^H S^{-1} R, \qquad
        b = R^H S^{-1} e
    """

    def __init__(self, is_complex: bool) -> None:
        self.share, self.circle = (1.0, math.pi) if is_complex else (0.5, 2.0 * math.pi)
        self.inner: Tensor | float = 0.0
        self.cross: Tensor | float = 0.0
        self.terms: Tensor | float = 0.0

    def add(self, error: Tensor, root: Tensor, noise: Tensor, missing: Tensor) -> None:
        """Add rows: errors and a mask of missing ones (..., n, T), roots (..., n, T, K), noises S (..., n, T, T)."""
        factor = torch.linalg.cholesky(noise)
        columns = torch.cat([root.to(error.dtype), error.unsqueeze(-1)], dim=-1).masked_fill(missing.unsqueeze(-1), 0.0)
        white = torch.linalg.solve_triangular(factor.to(columns.dtype), columns, upper=False).flatten(-3, -2)
        roots, values = white[..., :-1], white[..., -1:]
        self.inner, self.cross = self.inner + roots.mH @ roots, self.cross + roots.mH @ values
        terms = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log() + math.log(self.circle)
        noise_terms = terms.masked_fill(missing, 0.0).sum((-2, -1))
        self.terms = self.terms + squared_modulus(values).sum((-2, -1)) + noise_terms

    def value(self) -> Tensor:
        """The log density, (...)."""
        inner = torch.as_tensor(self.inner)
        factor = torch.linalg.cholesky(inner + torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device))
        explained = torch.linalg.solve_triangular(factor, torch.as_tensor(self.cross), upper=False)
        log_det = 2.0 * real_part(factor.diagonal(dim1=-2, dim2=-1)).log().sum(-1)
        return -self.share * (self.terms - squared_modulus(explained).sum((-2, -1)) + log_det)


def block_diagonal(blocks: Tensor, size: int) -> Tensor:
    """Matrices (..., g m, T, T) of rows as block-diagonal ones of their groups, (..., g, m T, m T)."""
    if size == 1:
        return blocks
    by_group = blocks.unflatten(-3, (-1, size))
    identity = torch.eye(size, dtype=blocks.dtype, device=blocks.device)
    return torch.einsum("...atu,ab->...atbu", by_group, identity).flatten(-2).flatten(-3, -2)


def diagonal_blocks(matrices: Tensor, size: int) -> Tensor:
    """The blocks (..., g m, T, T) of rows on the diagonal of matrices of their groups, (..., g, m T, m T)."""
    blocks = matrices.unflatten(-2, (size, -1)).unflatten(-1, (size, -1))
    return blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3).flatten(-4, -3)


def noise_covariance(precision: Tensor, missing: Tensor) -> Tensor:
    """The noise covariance (..., N, T, T) of what is observed, and ones for what is missing."""
    whole = precision + torch.diag_embed(missing.to(precision.dtype))
    return 1.0 / whole if whole.shape[-1] == 1 else torch.linalg.inv(whole)


def log_density(error: Tensor, covariance: Tensor, missing: Tensor, is_complex: bool) -> Tensor:
    """The log density (..., N) of errors that are observed."""
    present, absent = error.masked_fill(missing, 0.0), missing.to(covariance.dtype)
    both = (1.0 - absent).unsqueeze(-1) * (1.0 - absent).unsqueeze(-2)
    whole = covariance * both + torch.diag_embed(absent)
    if whole.shape[-1] == 1:
        factor = whole.sqrt()
        white = present / factor.squeeze(-1)
    else:
        factor = torch.linalg.cholesky(whole)
        white = torch.linalg.solve_triangular(factor.to(present.dtype), present.unsqueeze(-1), upper=False).squeeze(-1)
    share, circle = (1.0, math.pi) if is_complex else (0.5, 2.0 * math.pi)
    terms = squared_modulus(white) + 2.0 * real_part(factor.diagonal(dim1=-2, dim2=-1)).log() + math.log(circle)
    return -share * terms.masked_fill(missing, 0.0).sum(-1)


_MATRICES = 6
"""Matrices of the size of a group that are held at a time."""


class LeaveOneOut(NamedTuple):
    """The predictions of N observations, each by a fit to all other rows with the same parameters.

    :param mean: (N,), complex for complex targets; (N, T) for several outputs, (C, N) for class labels; NaN where a
        target is missing.
    :param variance: that of the observation, with its noise, in the shape of the mean.
    :param log_prob: the log density of the observation of a row, (N,), in float64; summed over classes.
    :param latent_variance: that of the function, without noise, in the shape of the mean.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 16, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    >>> x, y = torch.randn(30, 2), torch.randn(30)
    >>> model.condition(x, y).leave_one_out(x, y).log_prob.shape
    torch.Size([30])
    """

    mean: Tensor
    variance: Tensor
    log_prob: Tensor
    latent_variance: Tensor


class LeaveGroupOut(NamedTuple):
    """The predictions of N observations in G groups, each by a fit to all other groups with the same parameters.

    The first four fields are those of :class:`LeaveOneOut`.

    :param labels: the labels of the groups in ascending order, (G,).
    :param group_log_prob: the joint log density of the observations of each group, (G,), in float64.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2, seed=0)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    >>> x, y = torch.rand(60, 2), torch.rand(60)
    >>> model.condition(x, y).leave_group_out(x, y, 5).group_log_prob.shape
    torch.Size([5])
    """

    mean: Tensor
    variance: Tensor
    log_prob: Tensor
    latent_variance: Tensor
    labels: Tensor
    group_log_prob: Tensor


class FunctionPrediction(NamedTuple):
    """Errors (..., g, m T) of the targets and covariances (..., g, m T, m T) of the functions at g left-out groups."""

    error: Tensor
    covariance: Tensor


class ObservationPrediction(NamedTuple):
    """Predictions of n rows, (..., n, T), their log densities, (..., n), and those of their groups, (..., g)."""

    mean: Tensor
    variance: Tensor
    log_prob: Tensor
    latent_variance: Tensor
    joint: Tensor


class FunctionsWithoutGroup(Protocol):
    """The functions of one draw of the weights without a group of more values than weights."""

    @property
    def is_whole(self) -> bool:
        """Whether :meth:`log_prob` answers."""

    def prediction(self, chosen: Tensor) -> FunctionPrediction:
        """Predictions at single rows of the group."""

    def root(self, chosen: Tensor) -> Tensor:
        """A root (..., n T, K) of their joint covariance."""

    def log_prob(self, part: Tensor, error: Tensor) -> Tensor:
        """The joint log density (...) of the group, of whose targets ``error`` (..., m, T) is left."""


class FunctionsWithoutRows(abc.ABC):
    """The functions of one draw of the weights without some of the rows."""

    num_outputs: int
    largest: int
    """The number of values up to which groups are left out by their own covariance."""
    is_separable: bool = False
    """Whether :meth:`separable` answers."""

    @abc.abstractmethod
    def chunks(self) -> list[slice]:
        """Chunks of the rows."""

    @abc.abstractmethod
    def prediction(self, chosen: Part, size: int) -> tuple[FunctionPrediction, Tensor]:
        """What the other rows predict at groups of so many rows, and which groups lose digits, (g,)."""

    @abc.abstractmethod
    def prediction_from_rows(self, chosen: Tensor, size: int) -> FunctionPrediction:
        """The same with digits that are taken from all rows."""

    def separable(self, chosen: Part, size: int) -> tuple[ObservationPrediction, Tensor]:
        """What :meth:`prediction` gives for a separable covariance, as observations."""
        raise ValueError("expected a separable posterior of complete rows, got another; use prediction")

    def without_large(self, parts: Sequence[Tensor]) -> Iterator[FunctionsWithoutGroup]:
        """The functions without each of some groups of more values than ``largest``."""
        return iter(())


def leave_one_out(
    x: Tensor, rows: Rows, noise: NoiseModel, draws: Sequence[FunctionsWithoutRows], residual: ResidualCovariance | None
) -> LeaveOneOut:
    """The predictions at x (N, d) from those of functions, with the moments of their mixture where these are many.

    :param residual: the residual variance of the rows; default: nothing.
    """
    work = _LeaveOut(x, rows, noise, draws, residual)
    return LeaveOneOut(*work.result([(part, 1) for part in draws[0].chunks()], []))


def leave_group_out(
    x: Tensor,
    rows: Rows,
    noise: NoiseModel,
    draws: Sequence[FunctionsWithoutRows],
    residual: ResidualCovariance | None,
    groups: Tensor,
) -> LeaveGroupOut:
    """The same for groups of rows with labels (N,), integers."""
    labels, numbers, counts = groups.unique(return_inverse=True, return_counts=True)
    order, num_values = numbers.argsort(stable=True), counts * draws[0].num_outputs
    starts, large = counts.cumsum(0) - counts, (num_values > draws[0].largest).nonzero().squeeze(-1)
    held = int(num_values.clamp_max(draws[0].largest).max())
    what = f"covariances of the {held:,} values of a group"
    checks.fits_in_memory(_MATRICES * 8.0 * held**2, what, "leave out smaller groups")
    bundles: list[tuple[Part, int]] = []
    for size in counts[num_values <= draws[0].largest].unique().tolist():
        places = starts[(counts == size) & (num_values <= draws[0].largest)]
        chosen = order[(places.unsqueeze(-1) + torch.arange(size, device=order.device)).flatten()]
        rows_at_once = max(part.stop - part.start for part in draws[0].chunks())
        bundles += [(part, size) for part in chosen.split(max(1, rows_at_once // size) * size)]
    parts = [order[starts[group] : starts[group] + counts[group]] for group in large.tolist()]
    work = _LeaveOut(x, rows, noise, draws, residual)
    predictions = work.result(bundles, parts)
    return LeaveGroupOut(*predictions, labels, work.joint[order[starts + counts - 1]])


class _LeaveOut:
    """The work of leaving out rows, and what was found; the arguments are those of :func:`leave_one_out`."""

    @torch.no_grad()
    def __init__(
        self,
        x: Tensor,
        rows: Rows,
        noise: NoiseModel,
        draws: Sequence[FunctionsWithoutRows],
        residual: ResidualCovariance | None,
    ) -> None:
        self.rows, self.noise, self.draws = rows, noise, draws
        self.residual = None if residual is None else residual.double()
        self.length, self.dtype, self.device = len(x), x.dtype, x.device
        self.axis = -1 if noise.is_batched else 0
        self.whole: list[Tensor] = []
        self.joint = torch.full((len(x),), math.nan, dtype=torch.float64, device=x.device)
        """The joint log density of each group, at its last row."""

    @torch.no_grad()
    def result(
        self, bundles: Sequence[tuple[Part, int]], large: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Means, variances, log densities and latent variances, by bundles of rows and the size of their groups."""
        lossy: dict[int, list[Tensor]] = {}
        is_separable = len(self.draws) == 1 and self.residual is None and self.draws[0].is_separable
        for chosen, size in bundles:
            if is_separable:
                observed, flags = self.draws[0].separable(chosen, size)
            else:
                pairs = [draw.prediction(chosen, size) for draw in self.draws]
                observed = self._observations(chosen, [prediction for prediction, _ in pairs], size)
                flags = torch.stack([flags_of_draw for _, flags_of_draw in pairs]).any(0)
            self._write(chosen, observed, size)
            if bool(flags.any()):
                lossy.setdefault(size, []).append(self._numbers(chosen).unflatten(0, (-1, size))[flags])
        for size, parts in lossy.items():
            groups = torch.cat(parts)
            at_once = len(groups) if size == 1 else max(1, self.draws[0].largest // (size * self.draws[0].num_outputs))
            for part in groups.split(at_once):
                chosen = part.flatten()
                predictions = [draw.prediction_from_rows(chosen, size) for draw in self.draws]
                self._write(chosen, self._observations(chosen, predictions, size), size)
        for part, *models in zip(large, *(draw.without_large(large) for draw in self.draws), strict=True):
            self._leave_out(part, models)
        mean, variance, log_prob, latent = self.whole
        return mean, variance, log_prob, latent

    def _numbers(self, chosen: Part) -> Tensor:
        return torch.arange(self.length, device=self.device)[chosen]

    def _leave_out(self, part: Tensor, models: Sequence[FunctionsWithoutGroup]) -> None:
        """Leave out a group of more values than weights."""
        is_simple = len(models) == 1 and self.residual is None and models[0].is_whole
        errors, low_rank = [], None
        for chosen in part.split(max(piece.stop - piece.start for piece in self.draws[0].chunks())):
            predictions = [model.prediction(chosen) for model in models]
            self._write(chosen, self._observations(chosen, predictions, 1), 1)
            error = torch.stack([prediction.error for prediction in predictions]).mean(0)
            if is_simple:
                errors.append(error)
                continue
            low_rank = LowRankDensity(self.noise.is_complex) if low_rank is None else low_rank
            shifts = [(prediction.error - error).flatten(-2).unsqueeze(-1) for prediction in predictions]
            roots = torch.cat([*(model.root(chosen) for model in models), *shifts], dim=-1) / math.sqrt(len(models))
            precision = self.noise.row_precisions(self.rows.take(chosen))
            low_rank.add(error, roots.unflatten(-2, error.shape[-2:]), *self._whole_noise(chosen, precision))
        joint = models[0].log_prob(part, torch.cat(errors, dim=-2)) if low_rank is None else low_rank.value()
        self.joint[part[-1]] = joint.sum() if self.noise.is_batched else joint

    def _whole_noise(self, chosen: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
        """Noise covariances (..., n, T, T) with the residual variance, and where targets are missing."""
        missing = precision.diagonal(dim1=-2, dim2=-1) == 0
        covariance = noise_covariance(precision, missing)
        return covariance if self.residual is None else covariance + self.residual.take(chosen).dense(), missing

    def _observations(
        self, chosen: Part, predictions: Sequence[FunctionPrediction], size: int
    ) -> ObservationPrediction:
        """The predictions of observations, NaN where targets are missing."""
        error = torch.stack([prediction.error for prediction in predictions]).mean(0)
        covariance = torch.stack([_about(prediction, error) for prediction in predictions]).mean(0)
        if self.residual is not None:
            covariance = covariance + block_diagonal(self.residual.take(chosen).dense(), size)
        rows = self.rows.take(chosen)
        targets, precision = self.noise.row_targets(rows), self.noise.row_precisions(rows)
        missing = precision.diagonal(dim1=-2, dim2=-1) == 0
        noise = noise_covariance(precision, missing)
        total = covariance + block_diagonal(noise, size)
        joint = log_density(error, total, _grouped(missing, size), self.noise.is_complex)
        by_row = error.unflatten(-1, (size, -1)).flatten(-3, -2)
        log_prob = joint
        if size > 1:
            log_prob = log_density(by_row, diagonal_blocks(total, size), missing, self.noise.is_complex)
        variance, latent = (
            real_part(part.diagonal(dim1=-2, dim2=-1)).unflatten(-1, (size, -1)).flatten(-3, -2)
            for part in (total, covariance)
        )
        observed = (value.masked_fill(missing, math.nan) for value in (targets - by_row, variance, latent))
        mean, variance, latent = observed
        return ObservationPrediction(mean, variance, log_prob, latent, joint)

    def _write(self, chosen: Part, observed: ObservationPrediction, size: int) -> None:
        """Write predictions of rows to their places, as users get them."""
        mean, variance, log_prob, latent, joint = observed
        if self.noise.is_of_parts:
            mean, variance, latent = torch.view_as_complex(mean.contiguous()), variance.sum(-1), latent.sum(-1)
        elif mean.shape[-1] == 1 and not self.noise.targets.has_tasks:
            mean, variance, latent = (value.squeeze(-1) for value in (mean, variance, latent))
        mean, variance, latent = (
            value.to(self.dtype.to_complex() if value.is_complex() else self.dtype)
            for value in (mean, variance, latent)
        )
        if self.noise.is_batched:
            log_prob, joint = log_prob.sum(0), joint.sum(0)
        values = mean, variance, log_prob, latent
        if not self.whole:
            self.whole = [_of_length(value, self.length, self._axis(value)) for value in values]
        for total, value in zip(self.whole, values, strict=True):
            total.movedim(self._axis(total), 0)[chosen] = value.movedim(self._axis(value), 0)
        if size > 1 or isinstance(chosen, Tensor):
            self.joint[self._numbers(chosen)[size - 1 :: size]] = joint

    def _axis(self, value: Tensor) -> int:
        return self.axis if value.dim() > 1 else 0


def _of_length(value: Tensor, length: int, axis: int) -> Tensor:
    """An empty tensor like one, of another length along an axis."""
    shape = list(value.shape)
    shape[axis] = length
    return value.new_empty(shape)


def _grouped(values: Tensor, size: int) -> Tensor:
    """Values (..., g m, T) of rows as those of their groups, (..., g, m T)."""
    return values.unflatten(-2, (-1, size)).flatten(-2)


def _about(prediction: FunctionPrediction, error: Tensor) -> Tensor:
    """The second moments of a prediction about another mean."""
    shift = (prediction.error - error).unsqueeze(-1)
    return prediction.covariance + real_part(shift @ shift.mH)
