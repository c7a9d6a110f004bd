"""Predictions of every row from all others, from one fit and its rows, in chunks."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..linalg import joined, row_chunks
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
    x: Tensor, rows: Rows, noise: NoiseModel, predictions: Sequence[Prediction], residual: Tensor | None
) -> LeaveOneOut:
    """The predictions of observations from those of functions, with the moments of their mixture where these are many.

    :param x: inputs, (N, d).
    :param rows: the rows.
    :param noise: the noise of the likelihood.
    :param predictions: those of the functions, for every draw of the weights.
    :param residual: the variance that features lack, (..., N T); default: none.
    """
    error = torch.stack([prediction.error for prediction in predictions]).mean(0)
    covariance = torch.stack([_about(prediction, error) for prediction in predictions]).mean(0)
    size = error.shape[-1]
    if residual is not None:
        covariance = covariance + torch.diag_embed(residual.double().unflatten(-1, (-1, size)))
    targets, precision = noise.row_targets(rows), noise.row_precisions(rows)
    missing = precision.diagonal(dim1=-2, dim2=-1) == 0
    total = covariance + _noise_covariance(precision, missing)
    log_prob = _log_density(error, total, missing, noise.is_complex)
    diagonals = (part.diagonal(dim1=-2, dim2=-1) for part in (total, covariance))
    found = [value.masked_fill(missing, math.nan) for value in (targets - error, *diagonals)]
    if noise.is_of_parts:
        found = [torch.view_as_complex(found[0].contiguous()), *(value.sum(-1) for value in found[1:])]
    elif size == 1 and not noise.targets.has_tasks:
        found = [value.squeeze(-1) for value in found]
    mean, variance, latent = (value.to(x.dtype.to_complex() if value.is_complex() else x.dtype) for value in found)
    return LeaveOneOut(mean, variance, log_prob.sum(0) if noise.is_batched else log_prob, latent)


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

    :param regression: the regression, whose noise is that of the statistics.
    :param noise: the noise of the likelihood.
    :param x: inputs, (N, d).
    :param rows: the rows.
    :param residual: what the rows gained by the variance that features lack; default: nothing.

    Source: errata, identity 4 of the last section.
    """

    def __init__(
        self, regression: Regression, noise: NoiseModel, x: Tensor, rows: Rows, residual: TrainingResidual | None
    ) -> None:
        self.regression, self.noise, self.x, self.rows = regression, noise, x, rows
        self.residual = residual if residual is not None and residual.is_noise else None
        self.factor = regression.factor()
        mean = coefficients(regression.mean, noise.num_outputs, x.device)
        self.targets = noise.row_targets(rows) - basis(regression.mean, x).double() @ mean

    @torch.no_grad()
    def prediction(self, posterior: WeightPosterior | KroneckerPosterior) -> Prediction:
        """What the other rows predict.

        :param posterior: the posterior of the weights given all rows.
        :raises ValueError: where it does not follow from these rows.
        """
        size, start = self.factor.num_outputs, torch.zeros_like(posterior.mean)
        scale, left = (torch.linalg.vector_norm(self._gradient(weights)) for weights in (start, posterior.mean))
        if not float(left) <= _TOLERANCE * float(scale):
            raise _other_rows()
        mean = refined_mean(posterior, self._gradient)
        errors, variances, shrinks = [], [], []
        identity = torch.eye(size, dtype=torch.float64, device=self.x.device)
        for rows, scalar, precision in self._chunks():
            errors.append(self.targets[..., rows, :] - self._fitted(scalar, mean).squeeze(-1))
            variances.append(_variance_blocks(posterior, scalar, self.factor))
            shrinks.append(identity - variances[-1] @ precision.to(variances[-1].dtype))
        num_rows = len(self.x)
        error = joined(errors, num_rows)
        variance, shrink = (joined(parts, num_rows, dim=-3) for parts in (variances, shrinks))
        inverse = torch.linalg.inv_ex(shrink).inverse
        is_lossy = ~(torch.linalg.matrix_norm(inverse) < _LARGEST_INVERSE)
        lossy = is_lossy.reshape(-1, num_rows).any(0).nonzero().squeeze(-1)
        if len(lossy):
            inverse[..., lossy, :, :] = torch.linalg.inv(self._shrink_by_rows(posterior, lossy).to(inverse.dtype))
        left_out = (inverse.to(error.dtype) @ error.unsqueeze(-1)).squeeze(-1)
        return Prediction(left_out if self.noise.is_complex else real_part(left_out), inverse @ variance)

    def _chunks(self, width: int = 1) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Chunks of rows, with scalar features and precisions (..., n, T, T)."""
        kernel = self.regression.kernel
        for rows in row_chunks(len(self.x), max(width, self.factor.num_columns) * self.factor.num_outputs):
            yield rows, kernel.scalar_features(self.x[rows]), self._precisions(rows)

    def _precisions(self, chosen: slice | Tensor) -> Tensor:
        """The precisions (..., n, T, T) of some rows."""
        rows = self.rows.take(chosen)
        if self.residual is not None:
            known = self.residual.prepared(rows, self.noise.variances(rows))
            rows = self.residual.added(self.regression.kernel, self.x[chosen], known)
        return self.regression.noise.row_precisions(rows)

    def _fitted(self, scalar: Tensor, weights: Tensor) -> Tensor:
        """The functions of weights (..., K, S) at rows, (..., n, T, S)."""
        by_output = self.factor.scalar_weights(weights)
        return feature_product(scalar, by_output.flatten(-2)).unflatten(-1, by_output.shape[-2:])

    def _cross(self, scalar: Tensor, values: Tensor) -> Tensor:
        """The adjoint of :meth:`_fitted`: (..., n, T, S) to (..., K, S)."""
        return self.factor.adjoint(transposed_product(scalar, values.flatten(-2)).unflatten(-1, values.shape[-2:]))

    def _gradient(self, mean: Tensor) -> Tensor:
        """Half the derivative in the weights of the log posterior density, zero at their posterior mean."""
        parts = []
        for rows, scalar, precision in self._chunks():
            error = self.targets[..., rows, :].unsqueeze(-1) - self._fitted(scalar, mean)
            parts.append(self._cross(scalar, precision.to(error.dtype) @ error))
        return functools.reduce(torch.add, parts) - mean

    def _shrink_by_rows(self, posterior: WeightPosterior | KroneckerPosterior, chosen: Tensor) -> Tensor:
        """I - H of chosen rows, (..., A, T, T), as a sum of positive terms over all rows."""
        size, width = self.factor.num_outputs, len(chosen) * self.factor.num_outputs
        units = torch.eye(width, dtype=torch.float64, device=self.x.device).unflatten(0, (-1, size))
        own = self._precisions(chosen)
        unit_columns = torch.einsum("...atu,auk->...atk", own, units)
        scalar = self.regression.kernel.scalar_features(self.x[chosen])
        weights = posterior.solve(self._cross(scalar, unit_columns))

        def errors(weights: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
            for rows, scalar, precision in self._chunks(width):
                error = -self._fitted(scalar, weights)
                inside = (chosen >= rows.start) & (chosen < rows.stop)
                error[..., chosen[inside] - rows.start, :, :] += units[inside]
                yield scalar, error, precision.to(error.dtype) @ error

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
    return torch.linalg.inv(precision + torch.diag_embed(missing.to(precision.dtype)))


def _about(prediction: Prediction, error: Tensor) -> Tensor:
    """The second moments of a prediction about another mean."""
    shift = (prediction.error - error).unsqueeze(-1)
    return prediction.covariance + real_part(shift @ shift.mH)


def _log_density(error: Tensor, covariance: Tensor, missing: Tensor, is_complex: bool) -> Tensor:
    """The log density (..., N) of errors that are observed."""
    known, absent = error.masked_fill(missing, 0.0), missing.to(covariance.dtype)
    both = (1.0 - absent).unsqueeze(-1) * (1.0 - absent).unsqueeze(-2)
    factor = torch.linalg.cholesky(covariance * both + torch.diag_embed(absent))
    white = torch.linalg.solve_triangular(factor.to(known.dtype), known.unsqueeze(-1), upper=False).squeeze(-1)
    share, circle = (1.0, math.pi) if is_complex else (0.5, 2.0 * math.pi)
    terms = squared_modulus(white) + 2.0 * factor.diagonal(dim1=-2, dim2=-1).log() + math.log(circle)
    return -share * terms.masked_fill(missing, 0.0).sum(-1)
