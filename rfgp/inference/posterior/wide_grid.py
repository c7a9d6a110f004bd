"""Regression on more frequencies of a grid than a dense matrix is formed for: products by fast Fourier transforms."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...linalg.toeplitz_gram import ToeplitzGram
from ...linalg.toeplitz_precision import Probes, ToeplitzPrecision
from ..noise.base import NoiseModel, residual_columns
from ..sums.grid_statistics import GridStatistics, refused
from ..sums.sufficient_statistics import SufficientStatistics
from .factor import OutputFactor
from .normal_equations import Equations, EvidenceTerms
from .posterior import GaussianPosterior, PointVariance

_PROBES, _DRAWS = 8, 64
"""Random columns for an evidence, and draws of the weights for covariances; the first are the same."""
_SEED = 0


class WideEquations(Equations):
    r"""The normal equations :math:`B = I + U G U`, :math:`h = U r` of one output, for sums of cosines and sines.

    U has the amplitudes over the deviation of the noise, and r the products of cosines and sines with the residual of
    the mean, over the same.
    """

    def __init__(
        self,
        noise: NoiseModel,
        statistics: SufficientStatistics,
        amplitudes: Tensor,
        factor: OutputFactor,
        coefficients: Tensor,
    ) -> None:
        sums, root, (precision, *_) = GridStatistics.of(statistics), factor.covariance_root, noise.precisions(1)
        if len(sums.count) > 1:
            raise refused("rows with weights beside others without", sums.num_features)
        if root is None or precision is None:
            raise ValueError("expected a scale of one output and its noise, got none; take fewer features")
        crosses, squares = sums.targets.of_combination(residual_columns(coefficients))
        of_noise = precision.reshape(()).sqrt()
        self.lags = sums.lags[0]
        self.gram = ToeplitzGram(self.lags.detach(), sums.orders)
        self.amplitudes = amplitudes.double() * root.reshape(()) * of_noise
        self.cross = crosses[0] * of_noise
        self.quadratic = (precision * squares).sum()
        self.log_noise = noise.log_noise(statistics)

    def posterior(self, tracks: bool = False) -> WidePosterior:
        if tracks:
            raise refused("gradients through the posterior", self.gram.num_features)
        precision = ToeplitzPrecision(self.gram, self.amplitudes)
        return WidePosterior(precision, self.amplitudes.detach().unsqueeze(-1) * self.cross.detach())

    def evidence_terms(self) -> EvidenceTerms:
        """The terms, with the log determinant by 8 random columns; see :attr:`WidePosterior.evidence_error`."""
        log_determinant, explained = _EvidenceTerms.apply(self.amplitudes, self.cross, self.lags, self.gram)
        return EvidenceTerms(self.quadratic - explained, log_determinant + self.log_noise)


class WidePosterior(GaussianPosterior):
    r"""The posterior :math:`N(m, B^{-1})` of the weights of a wide grid.

    .. math:: \mathrm{Cov} \approx \frac1M \sum_{k \le M} w_k w_k^\top, \qquad w_k \sim N(0, B^{-1}), \qquad M = 64

    The mean is that of conjugate gradients. Covariances of functions are those of 64 draws of the weights: variances
    have a relative standard error of :math:`\sqrt{2/64}`, 18 %, and deviations one of 9 %.
    """

    def __init__(self, precision: ToeplitzPrecision, cross: Tensor) -> None:
        self.precision = precision
        self.mean, _ = precision.solve(cross)

    @functools.cached_property
    def _probes(self) -> Probes:
        return self.precision.probes(random_columns(self.precision, _DRAWS))

    @property
    def log_determinant(self) -> Tensor:
        """An estimate of log|B|, (), by all draws."""
        return self._probes.log_determinants.mean()

    @property
    def evidence_error(self) -> float:
        """The standard error of the log evidence, which has the first 8 of the random columns."""
        return 0.5 * float(self._probes.log_determinants[:_PROBES].std()) / math.sqrt(_PROBES)

    @functools.cached_property
    def root(self) -> Tensor:
        """A root (D, M) of the covariance of the weights."""
        draws = self._probes.draws
        return draws / math.sqrt(draws.shape[-1])

    def solve(self, rhs: Tensor) -> Tensor:
        return self.precision.solve(rhs.double())[0]

    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        return scalar.double() @ (self.root * _scale(outputs))

    def variance_width(self, outputs: OutputFactor) -> int:
        return outputs.num_scalar

    def deviations(self, num_samples: int) -> Tensor:
        columns = torch.randn(len(self.mean), num_samples, dtype=self.mean.dtype, device=self.mean.device)
        return self.precision.probes(columns).draws

    def point_variance(self, outputs: OutputFactor) -> PointVariance:
        return PointVariance([self.root * _scale(outputs)])


class _EvidenceTerms(torch.autograd.Function):
    r"""The terms :math:`\log|B|` and :math:`h^\top B^{-1} h`, with gradients in amplitudes, cross products and lags.

    .. math:: \partial_{u_j} h^\top B^{-1} h = \frac{2 m_j^2}{u_j}, \qquad \partial_r h^\top B^{-1} h = 2 U m, \qquad
        d_G\, h^\top B^{-1} h = -m^\top U\, dG\, U m, \qquad d_G \log|B| = E\, z^\top B^{-1} U\, dG\, U z

    The last one is estimated with the random columns z of the log determinant.
    """

    @staticmethod
    def forward(ctx: Any, amplitudes: Tensor, cross: Tensor, lags: Tensor, gram: ToeplitzGram) -> tuple[Tensor, Tensor]:
        precision, right = ToeplitzPrecision(gram, amplitudes), amplitudes.unsqueeze(-1) * cross
        mean, residual = precision.solve(right)
        columns = random_columns(precision, _PROBES)
        log_determinant, slope = precision.log_determinant(columns, ctx.needs_input_grad[0])
        ctx.save_for_backward(amplitudes, mean, slope, lags)
        ctx.precision, ctx.orders = precision, gram.orders
        return log_determinant, (mean * (right + residual)).sum()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_log_determinant: Tensor, of_explained: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, None]:
        amplitudes, mean, slope, lags = ctx.saved_tensors
        of_amplitudes = of_log_determinant * slope + 2.0 * of_explained * mean.squeeze(-1).square() / amplitudes
        of_lags = None
        if ctx.needs_input_grad[2]:
            columns = random_columns(ctx.precision, _PROBES)
            solved, _ = ctx.precision.solve(columns)
            left, right, middle = (amplitudes.unsqueeze(-1) * part for part in (solved, columns, mean))
            with torch.enable_grad():
                sums = lags.detach().requires_grad_()
                gram = ToeplitzGram(sums, ctx.orders)
                trace = (left * gram.product(right)).sum() / columns.shape[-1]
                form = of_log_determinant * trace - of_explained * (middle * gram.product(middle)).sum()
            (of_lags,) = torch.autograd.grad(form, sums)
        return of_amplitudes, 2.0 * of_explained * amplitudes.unsqueeze(-1) * mean, of_lags, None


def random_columns(precision: ToeplitzPrecision, count: int) -> Tensor:
    """Columns (D, R) from N(0, I), the same at every call."""
    generator = torch.Generator().manual_seed(_SEED)
    columns = torch.randn(count, len(precision.amplitudes), generator=generator, dtype=torch.float64)
    return columns.mT.to(precision.amplitudes)


def _scale(outputs: OutputFactor) -> Tensor:
    root = outputs.covariance_root
    if root is None:
        raise ValueError("expected the scale of one output, got the factor of several; take fewer features")
    return root.reshape(())
