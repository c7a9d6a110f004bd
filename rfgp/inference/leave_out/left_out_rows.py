"""The functions of features at rows that are left out, from one fit and its rows, in chunks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ...linalg import row_chunks
from ...linalg.complex_numbers import real_part
from ..noise import NoiseModel
from ..posterior.posterior import GaussianPosterior, cast, refined_mean
from ..posterior.products import feature_product, transposed_product
from ..posterior.regression import Regression
from ..sums.accumulation import accumulate
from ..sums.mean_basis import basis, coefficients
from ..sums.rows import Part, Rows
from ..sums.sufficient_statistics import SufficientStatistics
from ..sums.training_residual import TrainingResidual
from .leave_out import FunctionPrediction, FunctionsWithoutRows, ObservationPrediction, block_diagonal, noise_covariance

_HELD = 16
"""The sums over so many groups are held at a time."""


class RefittedGroup:
    """The functions of one draw of the weights without a group of more values than weights."""

    def __init__(self, draw: LeftOutRows, posterior: GaussianPosterior) -> None:
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


_LARGEST_INVERSE = 100.0
"""The norm of (I - H)^-1 from which on the digits of I - H are taken from the rows."""
_TOLERANCE = 1e-4
"""Up to which share of its first value the gradient of a posterior may be left at its mean."""


def check_summed(statistics: SufficientStatistics, rows: Rows) -> None:
    """Raise a ValueError where rows are not as many as those of the statistics, in every group."""
    counts = (rows.all_weights() != 0).sum(0).to(statistics.count)
    if len(counts) != len(statistics.count) or not torch.equal(counts, statistics.count):
        raise other_rows()


def other_rows() -> ValueError:
    """The error where rows are not those of the fit."""
    return ValueError("expected the rows of the fit, got others; pass the x, y and noise that were fitted")


class LeftOutRows(FunctionsWithoutRows):
    r"""The functions at groups of rows without these, from the posterior given all rows.

    .. math:: y_g - \mu_{-g} = (I - H_g)^{-1} (y_g - F_g m), \qquad V_{-g} = (I - H_g)^{-1} V_g, \qquad
        V_g = F_g B^{-1} F_g^H, \qquad H_g = V_g S_g^{-1}

    for the T outputs of all rows of a group. Where :math:`I - H_g` is small it is computed from the rows, as

    .. math:: S_g^{-1} (I - H_g) = \min_W \sum_j (\delta_{gj} I - F_j W)^H S_j^{-1} (\delta_{gj} I - F_j W) + W^H W

    a sum of positive terms, at O(N D^2) in all. Groups of more values than weights take B from the sums over all
    others.
    Separable covariances with one precision P of complete rows form no matrix of T outputs:
    :math:`M^\top P M = \mathrm{diag}(\gamma)` for :math:`M = A V`, and :math:`V_g = \sum_r W_{gr} \otimes M_r
        M_r^\top`.

    :param x: inputs, (N, d).
    :param residual: the residual variance of the rows; default: nothing.

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
        posterior: GaussianPosterior,
        product_dtype: torch.dtype,
    ) -> None:
        self.regression, self.noise, self.x, self.rows, self.posterior = regression, noise, x, rows, posterior
        self.training_residual, self.product_dtype = residual, product_dtype
        self.residual = residual if residual is not None and residual.is_noise else None
        self.factor = regression.factor()
        self.num_outputs, self.largest = self.factor.num_outputs, self.factor.num_columns
        self.coefficients = coefficients(regression.mean, noise.num_outputs, x.device)
        is_one = rows.weights is None and rows.num_groups == 1 and not noise.is_batched and self.residual is None
        self.common = regression.noise.precisions(1)[0] if is_one else None
        self.directions = None if self.common is None else posterior.output_directions(self.factor)
        self.is_separable = self.directions is not None
        is_single = product_dtype == torch.float32 and self.num_outputs == 1 and not posterior.batch_shape
        self.point_variance = posterior.point_variance(self.factor).to(product_dtype) if is_single else None
        gradients = self._gradient(torch.cat([torch.zeros_like(posterior.mean), posterior.mean], dim=-1))
        scale, left = (torch.linalg.vector_norm(gradient) for gradient in gradients.unbind(-1))
        if not float(left) <= _TOLERANCE * float(scale):
            raise other_rows()
        self.mean = refined_mean(posterior, self._gradient)

    def chunks(self, width: int = 1) -> list[slice]:
        """Chunks of the rows."""
        columns = max(width, self.factor.num_columns) * self.factor.num_outputs
        return row_chunks(len(self.x), max(columns, self.posterior.batch_shape.numel()))

    @torch.no_grad()
    def prediction(self, chosen: Part, size: int = 1) -> tuple[FunctionPrediction, Tensor]:
        """What the other rows predict at groups of rows, and which groups lose digits, (g,)."""
        width, scalar = size * self.num_outputs, self.scalar_features(chosen)
        error = self.errors(chosen, scalar, self.mean).flatten(-3).unflatten(-1, (-1, width))
        variance = self._covariances(scalar, size)
        identity = torch.eye(width, dtype=torch.float64, device=self.x.device)
        precision = block_diagonal(self.precisions(chosen), size)
        shrink = identity - _product(variance, precision.to(variance.dtype))
        inverse = _inverse(shrink)
        norm = inverse.abs()[..., 0, 0] if width == 1 else torch.linalg.matrix_norm(inverse)
        is_lossy = ~(norm < _LARGEST_INVERSE)
        return self._left_out(error, inverse, variance), is_lossy.reshape(-1, is_lossy.shape[-1]).any(0)

    @torch.no_grad()
    def prediction_from_rows(self, chosen: Tensor, size: int = 1) -> FunctionPrediction:
        """What the other rows predict at groups of rows, with digits that are taken from all rows."""
        scalar = self.scalar_features(chosen)
        error = self.errors(chosen, scalar, self.mean).flatten(-3).unflatten(-1, (-1, size * self.num_outputs))
        variance = self.posterior.block_covariances(scalar, self.factor, size)
        inverse = torch.linalg.inv(self._shrink_by_rows(self.posterior, chosen, size))
        return self._left_out(error, inverse.to(torch.promote_types(inverse.dtype, variance.dtype)), variance)

    def _covariances(self, scalar: Tensor, size: int) -> Tensor:
        """The covariances (..., g, m T, m T) of the functions; of single values in float32 where Gram products are."""
        if self.point_variance is None or size > 1:
            return self.posterior.block_covariances(scalar, self.factor, size)
        return self.point_variance(cast(scalar, torch.float32)).double().unsqueeze(-1)

    def _left_out(self, error: Tensor, inverse: Tensor, variance: Tensor) -> FunctionPrediction:
        left_out = _product(inverse.to(error.dtype), error.unsqueeze(-1)).squeeze(-1)
        covariance = _product(inverse, variance.to(inverse.dtype))
        if self.noise.is_complex:
            return FunctionPrediction(left_out, covariance)
        return FunctionPrediction(real_part(left_out), real_part(covariance))

    @torch.no_grad()
    def separable(self, chosen: Part, size: int = 1) -> tuple[ObservationPrediction, Tensor]:
        """What :meth:`prediction` gives for a separable covariance, as observations."""
        precision = self.common
        if self.directions is None or precision is None:
            raise ValueError("expected a separable posterior of complete rows, got another; use prediction")
        scalar, targets = self.scalar_features(chosen), self.noise.row_targets(self.rows.take(chosen))
        error = self.errors(chosen, scalar, self.mean).squeeze(-1).unflatten(0, (-1, size))
        directions, gamma = self.directions
        variances = self.posterior.direction_covariances(scalar, size)
        identity = torch.eye(size, dtype=torch.float64, device=self.x.device)
        shrink = identity - gamma[:, None, None] * variances
        inner = _product(_inverse(shrink), variances)
        white = error @ precision
        turned = _product(inner, (white @ directions).mT.unsqueeze(-1)).squeeze(-1).mT
        left_out = error + turned @ directions.mT
        log_noise = -torch.linalg.slogdet(precision).logabsdet
        logs = shrink[..., 0, 0].log() if size == 1 else torch.linalg.slogdet(shrink).logabsdet
        log_det = size * log_noise - logs.sum(-1)
        constant = error.shape[-1] * math.log(2.0 * math.pi)
        joint = -0.5 * ((left_out * white).sum((-2, -1)) + log_det + size * constant)
        by_row, left = inner.diagonal(dim1=-2, dim2=-1).mT.flatten(0, 1), left_out.flatten(0, 1)
        log_prob = joint
        if size > 1:
            whole = 1.0 + by_row * gamma
            explained = ((left @ precision @ directions).square() * by_row / whole).sum(-1)
            square = ((left @ precision) * left).sum(-1) - explained
            log_prob = -0.5 * (square + log_noise + whole.log().sum(-1) + constant)
        latent = by_row @ directions.square().mT
        variance = latent + torch.linalg.inv(precision).diagonal()
        smallest = shrink[..., 0, 0] if size == 1 else torch.linalg.eigvalsh(shrink)[..., 0]
        is_lossy = ~(1.0 / smallest.amin(-1) < _LARGEST_INVERSE) | (smallest <= 0).any(-1)
        return ObservationPrediction(targets - left, variance, log_prob, latent, joint), is_lossy

    @torch.no_grad()
    def without_large(self, parts: Sequence[Tensor]) -> Iterator[RefittedGroup]:
        """The functions without each of some groups, whose posteriors come from the sums over all other rows."""
        rows = self.rows
        if self.training_residual is not None:
            rows = self.training_residual.prepared(rows, self.noise.variances(rows))

        def sums(chosen: Tensor) -> SufficientStatistics:
            kernel, noise = self.regression.kernel, self.noise
            return accumulate(
                kernel,
                noise,
                self.x[chosen],
                rows.take(chosen),
                self.product_dtype,
                residual=self.training_residual,
            )

        if not parts:
            return
        is_outside = torch.ones(len(self.x), dtype=torch.bool, device=self.x.device)
        is_outside[torch.cat(list(parts))] = False
        outside = sums(is_outside.nonzero().squeeze(-1)) if bool(is_outside.any()) else None
        for statistics in sums_of_others(parts, sums, self.noise.merged, outside):
            yield RefittedGroup(self, self.regression.posterior(statistics))

    @torch.no_grad()
    def means_without(self, x: Tensor, errors: Tensor, numbers: Tensor, num_groups: int) -> Tensor:
        r"""The means at new inputs x (n, d) without each group of rows, (G, n, T), for real features.

        .. math:: \mu_{-g}(x) = \mu(x) - F(x) B^{-1} \sum_{i \in g} F_i^\top S_i^{-1} (y_i - \mu_{-g}(x_i))

        :param errors: the errors of the targets without the group of each row, (N, T).
        :param numbers: the number of the group of every row, (N,).
        """
        scalar = self.regression.kernel.scalar_features(x)
        mean = basis(self.regression.mean, x).double() @ self.coefficients + self._fitted(scalar, self.mean).squeeze(-1)
        weights = self.posterior.solve(self.factor.features(scalar.double()).mT)
        total = torch.zeros(num_groups, weights.shape[-1], dtype=torch.float64, device=x.device)
        for part in self.chunks(weights.shape[-1]):
            white = self.whitened(part, errors[part].unsqueeze(-1))
            total.index_add_(0, numbers[part], (self._fitted(self.scalar_features(part), weights) * white).sum(-2))
        return mean - total.unflatten(-1, mean.shape)

    def scalar_features(self, chosen: Part) -> Tensor:
        """The scalar features of some rows."""
        features: Tensor = self.regression.kernel.scalar_features(self.x[chosen])
        return features

    def errors(self, chosen: Part, scalar: Tensor, weights: Tensor) -> Tensor:
        """What weights (..., K, S) leave of the targets of some rows, (..., n, T, S)."""
        mean = basis(self.regression.mean, self.x[chosen]).double() @ self.coefficients
        targets = self.noise.row_targets(self.rows.take(chosen)) - mean
        return targets.unsqueeze(-1) - self._fitted(scalar, weights)

    def precisions(self, chosen: Part) -> Tensor:
        """The precisions (..., n, T, T) of some rows."""
        rows = self.rows.take(chosen)
        if self.residual is not None:
            prepared = self.residual.prepared(rows, self.noise.variances(rows))
            rows = self.residual.added(self.regression.kernel, self.x[chosen], prepared)
        return self.regression.noise.row_precisions(rows)

    def whitened(self, chosen: Part, error: Tensor) -> Tensor:
        """Errors (..., n, T, S) times the precisions of their rows."""
        if self.common is not None:
            return torch.einsum("tu,...nus->...nts", self.common.to(error.dtype), error)
        return _product(self.precisions(chosen).to(error.dtype), error)

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
            scalar = self.scalar_features(part)
            total = total + self._cross(scalar, self.whitened(part, self.errors(part, scalar, mean)))
        return total

    def _shrink_by_rows(self, posterior: GaussianPosterior, chosen: Tensor, rows_of_group: int) -> Tensor:
        """I - H of groups of rows, (..., g, m T, m T), as a sum of positive terms over all rows."""
        width, size = len(chosen) * self.num_outputs, rows_of_group * self.num_outputs
        units = torch.eye(width, dtype=torch.float64, device=self.x.device).unflatten(0, (-1, self.num_outputs))
        precisions = self.precisions(chosen)
        unit_columns = torch.einsum("...atu,auk->...atk", precisions, units)
        scalar = self.regression.kernel.scalar_features(self.x[chosen])
        weights = posterior.solve(self._cross(scalar, unit_columns))

        def errors(weights: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
            for part in self.chunks(width):
                scalar = self.scalar_features(part)
                error = -self._fitted(scalar, weights)
                inside = (chosen >= part.start) & (chosen < part.stop)
                error[..., chosen[inside] - part.start, :, :] += units[inside]
                yield scalar, error, self.whitened(part, error)

        gradient = functools.reduce(torch.add, (self._cross(scalar, white) for scalar, _, white in errors(weights)))
        weights = weights + posterior.solve(gradient - weights)
        by_row = weights.unflatten(-1, (-1, size))
        total = torch.einsum("...kat,...kau->...atu", by_row.conj(), by_row)
        for _, error, white in errors(weights):
            pair = (part.unflatten(-1, (-1, size)) for part in (error.conj(), white))
            total = total + torch.einsum("...nsat,...nsau->...atu", *pair)
        missing = precisions.diagonal(dim1=-2, dim2=-1) == 0
        covariance = block_diagonal(noise_covariance(precisions, missing), rows_of_group).to(total.dtype)
        absent = missing.to(total.dtype).flatten(-2).unflatten(-1, (-1, size))
        return covariance @ (total + torch.diag_embed(absent))


def _inverse(matrices: Tensor) -> Tensor:
    """The inverses of matrices (..., T, T), of whatever numbers where there are none."""
    return 1.0 / matrices if matrices.shape[-1] == 1 else torch.linalg.inv_ex(matrices).inverse


def _product(matrices: Tensor, others: Tensor) -> Tensor:
    """The products of matrices (..., T, T) and (..., T, S); element by element for one output."""
    return matrices * others if matrices.shape[-1] == 1 else matrices @ others
