"""Predictions of every row from all others, from one fit and its rows, in chunks."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..linalg import row_chunks
from ..linalg.complex_numbers import real_part, squared_modulus
from .kronecker import KroneckerPosterior
from .mean_basis import basis, coefficients
from .noise import NoiseModel
from .posterior import WeightPosterior, refined_mean
from .products import feature_product, transposed_product
from .regression import Regression
from .rows import Rows
from .statistics import GramStatistics
from .training_residual import TrainingResidual

_LARGEST_INVERSE = 100.0
"""The norm of (I - H)^-1 from which on the digits of I - H are taken from the rows."""
_TOLERANCE = 1e-4
"""Up to which share of its first value the gradient of a posterior may be left at its mean."""


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
    >>> left_out = model.fit(x, y).leave_one_out(x, y)
    >>> left_out.log_prob.shape, bool((left_out.variance > left_out.latent_variance).all())
    (torch.Size([30]), True)
    """

    mean: Tensor
    variance: Tensor
    log_prob: Tensor
    latent_variance: Tensor


class Prediction(NamedTuple):
    """Predictions of the functions at rows that were left out.

    :param error: what is left of the targets, (..., N, T).
    :param covariance: of the T functions, (..., N, T, T).
    """

    error: Tensor
    covariance: Tensor


@torch.no_grad()
def leave_one_out(
    x: Tensor, rows: Rows, noise: NoiseModel, draws: Sequence[LeftOutRows], residual: Tensor | None
) -> LeaveOneOut:
    """The predictions of observations from those of functions, with the moments of their mixture where these are many.

    Nothing of their size is formed but the result: chunks of rows go all the way.

    :param x: inputs, (N, d).
    :param rows: the rows.
    :param noise: the noise of the likelihood.
    :param draws: the functions without a row, for every draw of the weights.
    :param residual: the variance that features lack, (..., N T); default: none.
    """
    added = None if residual is None else residual.double().unflatten(-1, (len(x), -1))
    axis = -1 if noise.is_batched else 0
    whole: list[Tensor] = []
    is_lossy = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for part in draws[0].chunks():
        if len(draws) == 1 and added is None and draws[0].is_separable:
            found, is_lossy[part] = draws[0].separable(part)
        else:
            pairs = [draw.prediction(part) for draw in draws]
            lack = None if added is None else added[..., part, :]
            found = _observations(rows.take(part), noise, [prediction for prediction, _ in pairs], lack)
            is_lossy[part] = torch.stack([flags for _, flags in pairs]).any(0)
        shaped = _shaped(found, noise, x.dtype)
        if not whole:
            whole = [_of_length(value, len(x), axis if value.dim() > 1 else 0) for value in shaped]
        for total, value in zip(whole, shaped, strict=True):
            _rows_of(total, part, axis).copy_(value)
    lossy = is_lossy.nonzero().squeeze(-1)
    if len(lossy):
        predictions = [draw.prediction_from_rows(lossy) for draw in draws]
        lack = None if added is None else added[..., lossy, :]
        exact = _shaped(_observations(rows.take(lossy), noise, predictions, lack), noise, x.dtype)
        for total, value in zip(whole, exact, strict=True):
            total.index_copy_(axis if total.dim() > 1 else 0, lossy, value)
    return LeaveOneOut(*whole)


class _Observations(NamedTuple):
    """Predictions of rows, (..., n, T), and their log densities, (..., n)."""

    mean: Tensor
    variance: Tensor
    log_prob: Tensor
    latent_variance: Tensor


def _observations(
    rows: Rows, noise: NoiseModel, predictions: Sequence[Prediction], residual: Tensor | None
) -> _Observations:
    """The predictions of observations, NaN where targets are missing.

    :param residual: the variance that features lack, (..., n, T); default: none.
    """
    error = torch.stack([prediction.error for prediction in predictions]).mean(0)
    covariance = torch.stack([_about(prediction, error) for prediction in predictions]).mean(0)
    if residual is not None:
        covariance = covariance + torch.diag_embed(residual)
    targets, precision = noise.row_targets(rows), noise.row_precisions(rows)
    missing = precision.diagonal(dim1=-2, dim2=-1) == 0
    total = covariance + _noise_covariance(precision, missing)
    log_prob = _log_density(error, total, missing, noise.is_complex)
    variance, latent = (part.diagonal(dim1=-2, dim2=-1) for part in (total, covariance))
    found = (value.masked_fill(missing, math.nan) for value in (targets - error, variance, latent))
    mean, variance, latent = found
    return _Observations(mean, variance, log_prob, latent)


def _shaped(found: _Observations, noise: NoiseModel, dtype: torch.dtype) -> LeaveOneOut:
    """Predictions as users get them."""
    mean, variance, log_prob, latent = found
    if noise.is_of_parts:
        mean, variance, latent = torch.view_as_complex(mean.contiguous()), variance.sum(-1), latent.sum(-1)
    elif mean.shape[-1] == 1 and not noise.targets.has_tasks:
        mean, variance, latent = (value.squeeze(-1) for value in (mean, variance, latent))
    mean, variance, latent = (
        value.to(dtype.to_complex() if value.is_complex() else dtype) for value in (mean, variance, latent)
    )
    return LeaveOneOut(mean, variance, log_prob.sum(0) if noise.is_batched else log_prob, latent)


def _of_length(value: Tensor, length: int, axis: int) -> Tensor:
    """An empty tensor like one, of another length along an axis."""
    shape = list(value.shape)
    shape[axis] = length
    return value.new_empty(shape)


def _rows_of(total: Tensor, part: slice, axis: int) -> Tensor:
    return total.narrow(axis if total.dim() > 1 else 0, part.start, part.stop - part.start)


def check_rows(statistics: GramStatistics, rows: Rows) -> None:
    """Raise a ValueError where rows are not as many as those of the statistics, in every group."""
    counts = (rows.all_weights() != 0).sum(0).to(statistics.count)
    if len(counts) != len(statistics.count) or not torch.equal(counts, statistics.count):
        raise _other_rows()


def _other_rows() -> ValueError:
    return ValueError("expected the rows of the fit, got others; pass the x, y and noise that were fitted")


class LeftOutRows:
    r"""The functions at every row without it, from the posterior given all rows.

    .. math:: y_i - \mu_{-i} = (I - H_i)^{-1} (y_i - F_i m), \qquad V_{-i} = (I - H_i)^{-1} V_i, \qquad
        V_i = F_i B^{-1} F_i^H, \qquad H_i = V_i S_i^{-1}

    for the T outputs of a row. Where :math:`I - H_i` is small, a difference of like numbers, it is taken from the rows:

    .. math:: S_i^{-1} (I - H_i) = \min_W \sum_j (\delta_{ij} I - F_j W)^H S_j^{-1} (\delta_{ij} I - F_j W) + W^H W

    a sum of positive terms, stationary in :math:`W = B^{-1} F_i^H S_i^{-1}`. There are at most about as many of these
    rows as features, so that all of it costs O(N D^2).

    With separable covariances and one precision P of complete rows, :math:`M^\top P M = \mathrm{diag}(\gamma)` for
    :math:`M = A V`, and :math:`V_i = M \mathrm{diag}(w_i) M^\top` for all rows: no T x T matrix of a row is formed.

    :param regression: the regression, whose noise is that of the statistics.
    :param noise: the noise of the likelihood.
    :param x: inputs, (N, d).
    :param rows: the rows.
    :param residual: what the rows gained by the variance that features lack; default: nothing.
    :param posterior: the posterior of the weights given all rows.
    :raises ValueError: where it does not follow from these rows.

    Source: errata, identity 4 of the last section.
    """

    @torch.no_grad()
    def __init__(
        self,
        regression: Regression,
        noise: NoiseModel,
        x: Tensor,
        rows: Rows,
        residual: TrainingResidual | None,
        posterior: WeightPosterior | KroneckerPosterior,
    ) -> None:
        self.regression, self.noise, self.x, self.rows, self.posterior = regression, noise, x, rows, posterior
        self.residual = residual if residual is not None and residual.is_noise else None
        self.factor = regression.factor()
        self.coefficients = coefficients(regression.mean, noise.num_outputs, x.device)
        is_one = rows.weights is None and rows.num_groups == 1 and not noise.is_batched and self.residual is None
        self.common = regression.noise.precisions(1)[0] if is_one else None
        start = torch.zeros_like(posterior.mean)
        scale, left = (torch.linalg.vector_norm(self._gradient(weights)) for weights in (start, posterior.mean))
        if not float(left) <= _TOLERANCE * float(scale):
            raise _other_rows()
        self.mean = refined_mean(posterior, self._gradient)

    @property
    def is_separable(self) -> bool:
        """Whether one small spectrum serves the outputs of all rows."""
        return isinstance(self.posterior, KroneckerPosterior) and self.common is not None

    def chunks(self, width: int = 1) -> list[slice]:
        """Chunks of the rows."""
        columns = max(width, self.factor.num_columns) * self.factor.num_outputs
        return row_chunks(len(self.x), max(columns, self.posterior.batch_shape.numel()))

    @torch.no_grad()
    def prediction(self, part: slice) -> tuple[Prediction, Tensor]:
        """What the other rows predict at some rows, and which of these lose digits, (n,)."""
        size, scalar = self.factor.num_outputs, self._scalar(part)
        error = self._error(part, scalar, self.mean).squeeze(-1)
        variance = _variance_blocks(self.posterior, scalar, self.factor)
        identity = torch.eye(size, dtype=torch.float64, device=self.x.device)
        shrink = identity - _product(variance, self._precisions(part).to(variance.dtype))
        inverse = 1.0 / shrink if size == 1 else torch.linalg.inv_ex(shrink).inverse
        norm = inverse.abs()[..., 0, 0] if size == 1 else torch.linalg.matrix_norm(inverse)
        is_lossy = ~(norm < _LARGEST_INVERSE)
        return self._left_out(error, inverse, variance), is_lossy.reshape(-1, len(scalar)).any(0)

    @torch.no_grad()
    def prediction_from_rows(self, chosen: Tensor) -> Prediction:
        """What the other rows predict at chosen rows, with digits that are taken from all rows.

        :param chosen: the numbers of the rows, (A,).
        """
        scalar = self._scalar(chosen)
        error = self._error(chosen, scalar, self.mean).squeeze(-1)
        variance = _variance_blocks(self.posterior, scalar, self.factor)
        inverse = torch.linalg.inv(self._shrink_by_rows(self.posterior, chosen))
        return self._left_out(error, inverse.to(torch.promote_types(inverse.dtype, variance.dtype)), variance)

    def _left_out(self, error: Tensor, inverse: Tensor, variance: Tensor) -> Prediction:
        left_out = _product(inverse.to(error.dtype), error.unsqueeze(-1)).squeeze(-1)
        covariance = _product(inverse, variance.to(inverse.dtype))
        return Prediction(left_out if self.noise.is_complex else real_part(left_out), covariance)

    @torch.no_grad()
    def separable(self, part: slice) -> tuple[_Observations, Tensor]:
        """What :meth:`prediction` gives for a separable covariance, as observations."""
        posterior, precision = self.posterior, self.common
        if not isinstance(posterior, KroneckerPosterior) or precision is None:
            raise ValueError("expected a separable posterior of complete rows, got another; use prediction")
        scalar, targets = self._scalar(part), self.noise.row_targets(self.rows.take(part))
        error = self._error(part, scalar, self.mean).squeeze(-1)
        directions, gamma = posterior.output_directions(self.factor)
        weights = posterior.direction_variances(scalar)
        shrink = 1.0 - weights * gamma
        white = error @ precision
        left_out = error + ((white @ directions) * (weights / shrink)) @ directions.mT
        latent = (weights / shrink) @ directions.square().mT
        log_det = -torch.linalg.slogdet(precision).logabsdet - shrink.log().sum(-1)
        square = (left_out * white).sum(-1)
        log_prob = -0.5 * (square + log_det + error.shape[-1] * math.log(2.0 * math.pi))
        variance = latent + torch.linalg.inv(precision).diagonal()
        is_lossy = ~(1.0 / shrink.amin(-1) < _LARGEST_INVERSE) | (shrink <= 0).any(-1)
        return _Observations(targets - left_out, variance, log_prob, latent), is_lossy

    def _scalar(self, chosen: slice | Tensor) -> Tensor:
        features: Tensor = self.regression.kernel.scalar_features(self.x[chosen])
        return features

    def _error(self, chosen: slice | Tensor, scalar: Tensor, weights: Tensor) -> Tensor:
        """What weights (..., K, S) leave of the targets of some rows, (..., n, T, S)."""
        mean = basis(self.regression.mean, self.x[chosen]).double() @ self.coefficients
        targets = self.noise.row_targets(self.rows.take(chosen)) - mean
        return targets.unsqueeze(-1) - self._fitted(scalar, weights)

    def _precisions(self, chosen: slice | Tensor) -> Tensor:
        """The precisions (..., n, T, T) of some rows."""
        rows = self.rows.take(chosen)
        if self.residual is not None:
            known = self.residual.prepared(rows, self.noise.variances(rows))
            rows = self.residual.added(self.regression.kernel, self.x[chosen], known)
        return self.regression.noise.row_precisions(rows)

    def _whitened(self, chosen: slice | Tensor, error: Tensor) -> Tensor:
        """Errors (..., n, T, S) times the precisions of their rows."""
        if self.common is not None:
            return torch.einsum("tu,...nus->...nts", self.common.to(error.dtype), error)
        return _product(self._precisions(chosen).to(error.dtype), error)

    def _fitted(self, scalar: Tensor, weights: Tensor) -> Tensor:
        """The functions of weights (..., K, S) at rows, (..., n, T, S)."""
        by_output = self.factor.scalar_weights(weights)
        return feature_product(scalar, by_output.flatten(-2)).unflatten(-1, by_output.shape[-2:])

    def _cross(self, scalar: Tensor, values: Tensor) -> Tensor:
        """The adjoint of :meth:`_fitted`: (..., n, T, S) to (..., K, S)."""
        return self.factor.adjoint(transposed_product(scalar, values.flatten(-2)).unflatten(-1, values.shape[-2:]))

    def _gradient(self, mean: Tensor) -> Tensor:
        """Half the derivative in the weights of the log posterior density, zero at their posterior mean."""
        total = -mean
        for part in self.chunks():
            scalar = self._scalar(part)
            total = total + self._cross(scalar, self._whitened(part, self._error(part, scalar, mean)))
        return total

    def _shrink_by_rows(self, posterior: WeightPosterior | KroneckerPosterior, chosen: Tensor) -> Tensor:
        """I - H of chosen rows, (..., A, T, T), as a sum of positive terms over all rows."""
        size, width = self.factor.num_outputs, len(chosen) * self.factor.num_outputs
        units = torch.eye(width, dtype=torch.float64, device=self.x.device).unflatten(0, (-1, size))
        own = self._precisions(chosen)
        unit_columns = torch.einsum("...atu,auk->...atk", own, units)
        scalar = self.regression.kernel.scalar_features(self.x[chosen])
        weights = posterior.solve(self._cross(scalar, unit_columns))

        def errors(weights: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
            for part in self.chunks(width):
                scalar = self._scalar(part)
                error = -self._fitted(scalar, weights)
                inside = (chosen >= part.start) & (chosen < part.stop)
                error[..., chosen[inside] - part.start, :, :] += units[inside]
                yield scalar, error, self._whitened(part, error)

        gradient = functools.reduce(torch.add, (self._cross(scalar, white) for scalar, _, white in errors(weights)))
        weights = weights + posterior.solve(gradient - weights)
        by_row = weights.unflatten(-1, (-1, size))
        total = torch.einsum("...kat,...kau->...atu", by_row.conj(), by_row)
        for _, error, white in errors(weights):
            pair = (part.unflatten(-1, (-1, size)) for part in (error.conj(), white))
            total = total + torch.einsum("...nsat,...nsau->...atu", *pair)
        missing = own.diagonal(dim1=-2, dim2=-1) == 0
        return _noise_covariance(own, missing).to(total.dtype) @ (total + torch.diag_embed(missing.to(total.dtype)))


def _variance_blocks(posterior: Any, scalar: Tensor, factor: Any) -> Tensor:
    """The covariance of the T outputs at every row given all rows, (..., n, T, T)."""
    if factor.num_outputs == 1:
        return posterior.function_variance(scalar, factor)[..., None, None]
    if isinstance(posterior, KroneckerPosterior):
        return posterior.row_covariances(scalar, factor)
    root = posterior.function_root(scalar, factor).unflatten(-2, (-1, factor.num_outputs))
    return root @ root.mH


def _noise_covariance(precision: Tensor, missing: Tensor) -> Tensor:
    """The noise covariance (..., N, T, T) of what is observed, and ones for what is missing."""
    whole = precision + torch.diag_embed(missing.to(precision.dtype))
    return 1.0 / whole if whole.shape[-1] == 1 else torch.linalg.inv(whole)


def _product(matrices: Tensor, others: Tensor) -> Tensor:
    """The products of matrices (..., T, T) and (..., T, S); element by element for one output."""
    return matrices * others if matrices.shape[-1] == 1 else matrices @ others


def _about(prediction: Prediction, error: Tensor) -> Tensor:
    """The second moments of a prediction about another mean."""
    shift = (prediction.error - error).unsqueeze(-1)
    return prediction.covariance + real_part(shift @ shift.mH)


def _log_density(error: Tensor, covariance: Tensor, missing: Tensor, is_complex: bool) -> Tensor:
    """The log density (..., N) of errors that are observed."""
    known, absent = error.masked_fill(missing, 0.0), missing.to(covariance.dtype)
    both = (1.0 - absent).unsqueeze(-1) * (1.0 - absent).unsqueeze(-2)
    whole = covariance * both + torch.diag_embed(absent)
    if whole.shape[-1] == 1:
        factor = whole.sqrt()
        white = known / factor.squeeze(-1)
    else:
        factor = torch.linalg.cholesky(whole)
        white = torch.linalg.solve_triangular(factor.to(known.dtype), known.unsqueeze(-1), upper=False).squeeze(-1)
    share, circle = (1.0, math.pi) if is_complex else (0.5, 2.0 * math.pi)
    terms = squared_modulus(white) + 2.0 * factor.diagonal(dim1=-2, dim2=-1).log() + math.log(circle)
    return -share * terms.masked_fill(missing, 0.0).sum(-1)
