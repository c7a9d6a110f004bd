"""Gaussian distributions of weights that are learned: expected log likelihoods, and natural-gradient steps."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeVar

import gpytorch
import torch
from gpytorch.likelihoods import LaplaceLikelihood, Likelihood, SoftmaxLikelihood
from linear_operator.operators import CholLinearOperator, DiagLinearOperator, TriangularLinearOperator
from torch import Tensor

from ...likelihoods import MultitaskMultivariateNormal, MultivariateNormal
from ...linalg.cholesky_factor import factor_of, log_determinant_of
from ..posterior.posterior import RootPosterior


class ExpectedLogLikelihood(NamedTuple):
    r"""The sum over rows of :math:`E \log p(y_i | f_i)`, and its gradients."""

    value: Tensor
    d_mean: Tensor
    d_variance: Tensor


def expected_log_likelihood(
    likelihood: Likelihood, y: Tensor, mean: Tensor, variance: Tensor, **kwargs: Any
) -> ExpectedLogLikelihood:
    """GPyTorch's expected log likelihood of rows whose function values are normal and independent.

    For a Softmax likelihood the gradient in the variances is half the expected second derivative, which has less
    variance than that of the draws and the right sign (Opper and Archambeau, 2009, Eq. 18 and 19).

    :param y: targets (N,).
    :param mean: (N,), or (C, N) for a likelihood of C functions.
    :param variance: of the shape of ``mean``.
    """
    with torch.enable_grad():
        leaves = mean.detach().requires_grad_(), variance.detach().requires_grad_()
        if isinstance(likelihood, SoftmaxLikelihood):
            return _of_softmax(likelihood, y, *leaves)
        value = expected_log_probabilities(likelihood, y, marginals(*leaves), **kwargs).sum()
        d_mean, d_variance = torch.autograd.grad(value, leaves, retain_graph=True)
    return ExpectedLogLikelihood(value, d_mean, d_variance)


def expected_log_probabilities(
    likelihood: Likelihood, y: Tensor, functions: gpytorch.distributions.MultivariateNormal, **kwargs: Any
) -> Tensor:
    r"""GPyTorch's expected log probability of every row; in closed form for a Laplace likelihood.

    .. math:: E|y - f| = \sqrt{2 v / \pi}\, e^{-r^2 / 2v} + r\, \mathrm{erf}(r / \sqrt{2 v}), \qquad r = y - m
    """
    if not isinstance(likelihood, LaplaceLikelihood):
        terms: Tensor = likelihood.expected_log_prob(y, functions, **kwargs)
        return terms
    residual, spread = y - functions.mean, (2.0 * functions.variance).sqrt()
    ratio = residual / spread
    distance = spread * ratio.square().neg().exp() / math.pi**0.5 + residual * ratio.erf()
    scale: Tensor = likelihood.noise.sqrt()
    return -distance / scale - (2.0 * scale).log()


def marginals(mean: Tensor, variance: Tensor) -> MultivariateNormal:
    """Independent normal function values, as GPyTorch's likelihoods take them: of several tasks for (C, N) values."""
    single = MultivariateNormal(mean, DiagLinearOperator(variance))
    return MultitaskMultivariateNormal.from_batch_mvn(single) if mean.dim() > 1 else single


def is_deterministic(likelihood: Likelihood) -> bool:
    """Whether the expected log likelihood is computed without random draws."""
    return type(likelihood).expected_log_prob is not Likelihood.expected_log_prob


def _of_softmax(likelihood: SoftmaxLikelihood, y: Tensor, mean: Tensor, variance: Tensor) -> ExpectedLogLikelihood:
    count = gpytorch.settings.num_likelihood_samples.value()
    noise = torch.randn(count, *mean.shape, dtype=mean.dtype, device=mean.device)
    functions = (mean + noise * variance.detach().sqrt()).mT
    logits = functions if likelihood.mixing_weights is None else functions @ likelihood.mixing_weights.to(mean.dtype).mT
    log_probabilities = logits.log_softmax(-1)
    value = log_probabilities.gather(-1, y.expand(count, -1).unsqueeze(-1)).sum() / count
    (d_mean,) = torch.autograd.grad(value, mean, retain_graph=True)
    with torch.no_grad():
        p = log_probabilities.exp()
        if likelihood.mixing_weights is None:
            curvature = p * (1.0 - p)
        else:
            weights = likelihood.mixing_weights.to(mean.dtype)
            curvature = p @ weights.square() - (p @ weights).square()
        d_variance = -0.5 * curvature.mean(0).mT
    return ExpectedLogLikelihood(value, d_mean, d_variance)


_SMALLEST_STEP = 1e-9
_MOST_STEPS, _SHORTEST = 500, 1e-3
"""Steps of an ascent, and how short they are at least."""


class GaussianWeights:
    r"""A distribution q(w) = N(m, S) of D weights with prior N(0, I), or of C independent sets of them.

    .. math:: f(x_i) = \phi_i^\top w, \qquad E f_i = \phi_i^\top m, \qquad \mathrm{Var} f_i = \phi_i^\top S \phi_i

    It is immutable. A step in the natural gradient of :math:`\sum_i E \log p(y_i | f_i) - KL(q \| N(0, I))` is

    .. math:: S^{-1} \leftarrow (1 - \rho) S^{-1} + \rho \big(I - 2 \textstyle\sum_i v_i \phi_i \phi_i^\top\big), \qquad
        v_i = \frac{\partial E \log p(y_i | f_i)}{\partial \mathrm{Var} f_i}

    and likewise for :math:`S^{-1} m`. For a Gaussian likelihood one step of size one is exact.

    :param linear: :math:`S^{-1} m`, (..., D), float64.
    :param precision: :math:`S^{-1}`, (..., D, D), positive definite; or its diagonal, (..., D).
    """

    def __init__(self, linear: Tensor, precision: Tensor) -> None:
        self.linear, self.precision = linear.double(), precision.double()
        self.is_diagonal = precision.shape == linear.shape
        if not self.is_diagonal and precision.shape != (*linear.shape, linear.shape[-1]):
            raise ValueError(
                f"expected a precision of shape {(*linear.shape, linear.shape[-1])} or its diagonal, got "
                f"{tuple(precision.shape)}; correct one of the two"
            )
        if self.is_diagonal and not bool((self.precision > 0).all()):
            raise ValueError(
                f"expected a positive definite precision, got a smallest entry of {float(self.precision.min()):.3g}; "
                "take a smaller step"
            )
        self.factor = self.precision.sqrt() if self.is_diagonal else factor_of(self.precision)

    @classmethod
    def of(cls, distribution: gpytorch.distributions.MultivariateNormal) -> Self:
        """The distribution that a GPyTorch one is, of the weights (..., D)."""
        mean, covariance = distribution.mean.detach().double(), distribution.lazy_covariance_matrix
        if isinstance(covariance, DiagLinearOperator):
            precision = covariance.diagonal().detach().double().reciprocal()
            return cls(precision * mean, precision)
        root = factor_of(covariance.to_dense().detach().double())
        precision = torch.cholesky_inverse(root)
        return cls((precision @ mean.unsqueeze(-1)).squeeze(-1), precision)

    @functools.cached_property
    def mean(self) -> Tensor:
        """m, (..., D)."""
        if self.is_diagonal:
            return self.linear / self.precision
        return torch.cholesky_solve(self.linear.unsqueeze(-1), self.factor).squeeze(-1)

    @property
    def kl_divergence(self) -> Tensor:
        """The divergence from N(0, I), (...)."""
        if self.is_diagonal:
            trace, log_det = self.precision.reciprocal().sum(-1), self.precision.log().sum(-1)
        else:
            root = torch.linalg.solve_triangular(self.factor, _eye_like(self.factor), upper=False)
            trace, log_det = root.square().sum((-2, -1)), log_determinant_of(self.factor)
        return 0.5 * (trace + self.mean.square().sum(-1) - self.mean.shape[-1] + log_det)

    def distribution(self) -> MultivariateNormal:
        """The same as a GPyTorch distribution, whose covariance knows its root."""
        if self.is_diagonal:
            return MultivariateNormal(self.mean, DiagLinearOperator(self.precision.reciprocal()))
        upper = factor_of(self.precision.flip((-2, -1))).flip((-2, -1))
        root = torch.linalg.solve_triangular(upper, _eye_like(upper), upper=True).mT
        return MultivariateNormal(self.mean, CholLinearOperator(TriangularLinearOperator(root)))

    @torch.no_grad()
    def moments(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (..., N) of the functions, for features (N, D) or (..., N, D), without gradients."""
        exact = features.detach().double()
        mean = (exact @ self.mean.unsqueeze(-1)).squeeze(-1)
        if self.is_diagonal:
            return mean, (exact.square() @ self.precision.reciprocal().unsqueeze(-1)).squeeze(-1)
        parts = [
            torch.linalg.solve_triangular(factor, rows.mT, upper=False).square().sum(-2)
            for factor, rows in _pairs(self.factor, exact)
        ]
        return mean, torch.stack(parts).reshape(mean.shape)

    @torch.no_grad()
    def feature_gradient(self, features: Tensor, d_mean: Tensor, d_variance: Tensor) -> Tensor:
        """The gradient in the features, of their shape, from those in means and variances, (..., N) each."""
        sets = zip(_flat(self.mean, 1), _flat(d_mean.double(), 1), _flat(d_variance.double(), 1), strict=True)
        pairs = _pairs(self.factor, features.detach().double(), dims=1 if self.is_diagonal else 2)
        parts = (
            in_mean.unsqueeze(-1) * mean + 2.0 * in_variance.unsqueeze(-1) * self._times_covariance(factor, rows)
            for (mean, in_mean, in_variance), (factor, rows) in zip(sets, pairs, strict=True)
        )
        is_shared = features.dim() == 2
        total = functools.reduce(torch.add, parts) if is_shared else torch.stack(list(parts)).reshape(features.shape)
        return total.to(features.dtype)

    def _times_covariance(self, factor: Tensor, features: Tensor) -> Tensor:
        """Features (N, D) times the covariance of one set of weights."""
        return features / factor.square() if self.is_diagonal else torch.cholesky_solve(features.mT, factor).mT

    @torch.no_grad()
    def target(
        self, features: Tensor, d_mean: Tensor, d_variance: Tensor, fitted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The natural parameters that a step of size one leads to: the prior's and those of the rows.

        :param d_mean: the gradient of the expected log likelihood in the means, (..., N).
        :param d_variance: that in the variances, (..., N).
        :param fitted: the means at which the gradients were taken, for a full covariance; default: those of these
            weights.
        """
        exact, weight = features.detach().double(), -2.0 * d_variance.double()
        if self.is_diagonal:
            added = (weight.unsqueeze(-2) @ exact.square()).squeeze(-2)
            linear = (d_mean.double().unsqueeze(-2) @ exact).squeeze(-2) + added * self.mean
            return linear, 1.0 + added
        if fitted is None:
            fitted = (exact @ self.mean.unsqueeze(-1)).squeeze(-1)
        linear = ((d_mean.double() + weight * fitted).unsqueeze(-2) @ exact).squeeze(-2)
        precision = torch.empty_like(self.precision)
        flat = precision.view(-1, *precision.shape[-2:])
        for index, (row_weights, rows) in enumerate(_pairs(weight, exact, dims=1)):
            torch.mm((rows * row_weights.unsqueeze(-1)).mT, rows, out=flat[index])
        precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
        return linear, precision

    @torch.no_grad()
    def stepped(self, target: tuple[Tensor, Tensor], step_size: float) -> Self:
        """The distribution after a step towards natural parameters, halved until the precision is positive definite."""
        size = step_size
        while True:
            try:
                linear, precision = (
                    torch.lerp(old, new, size) for old, new in zip((self.linear, self.precision), target, strict=True)
                )
                return type(self)(linear, precision)
            except ValueError:
                size *= 0.5
                if size < _SMALLEST_STEP:
                    raise


@dataclasses.dataclass(frozen=True)
class Sites:
    """What rows say of functions whose weights have a distribution: a bound, and its gradients in their moments.

    :param bound: the lower bound of the log evidence.
    :param d_mean: by the means of the functions, (N,) or (C, N).
    :param d_variance: by their variances.
    """

    weights: GaussianWeights
    bound: float
    d_mean: Tensor
    d_variance: Tensor


SitesKind = TypeVar("SitesKind", bound=Sites)


@torch.no_grad()
def natural_ascent(
    start: GaussianWeights, features: Tensor, sites: Callable[[GaussianWeights], SitesKind], precision: float
) -> SitesKind:
    r"""The distribution of weights with the largest bound, by steps in the natural gradient.

    .. math:: \theta \leftarrow (1 - \rho)\, \theta + \rho \, (\theta_0 + \textstyle\sum_i \theta_i), \qquad
        \theta_i = \big(d_{\mu i} - 2 d_{vi} \mu_i, \; -2 d_{vi}\big)

    with natural parameters :math:`\theta` of the weights, :math:`\theta_0` of their prior, and those of the sites of
    all rows: every step is a regression with known noise. Steps are halved until the bound rises.

    :param features: (N, D), or (C, N, D).
    :param sites: what rows say of functions with these weights; a ValueError where there is nothing to say.
    :param precision: the ascent ends where the bound rises by less than that, relatively.
    """
    now = sites(start)
    for _ in range(_MOST_STEPS):
        target, size, gain = now.weights.target(features, now.d_mean, now.d_variance), 1.0, -math.inf
        slack = precision * max(1.0, abs(now.bound))
        while gain < -slack and size >= _SHORTEST:
            new = _sites_after(now.weights, target, size, sites)
            gain, size = -math.inf if new is None else new.bound - now.bound, 0.5 * size
        if new is not None and gain > 0.0:
            now = new
        if gain <= slack:
            break
    return now


def _sites_after(
    weights: GaussianWeights,
    target: tuple[Tensor, Tensor],
    size: float,
    sites: Callable[[GaussianWeights], SitesKind],
) -> SitesKind | None:
    """The sites after a step, or None where these say nothing."""
    try:
        found = sites(weights.stepped(target, size))
    except ValueError:
        return None
    return found if math.isfinite(found.bound) else None


def learned_weights(distribution: gpytorch.distributions.MultivariateNormal) -> RootPosterior:
    """The weights of a GPyTorch distribution, differentiable in its parameters."""
    covariance = distribution.lazy_covariance_matrix
    if isinstance(covariance, DiagLinearOperator):
        return RootPosterior(distribution.mean, covariance.diagonal().sqrt())
    if isinstance(covariance, CholLinearOperator):
        return RootPosterior(distribution.mean, covariance.root.to_dense())
    return RootPosterior(distribution.mean, factor_of(covariance.to_dense()))


def _eye_like(matrix: Tensor) -> Tensor:
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return eye.expand(matrix.shape)


def _flat(values: Tensor, dims: int) -> Tensor:
    """Values with one batch dimension before the last ``dims``."""
    return values.reshape(-1, *values.shape[values.dim() - dims :])


def _pairs(values: Tensor, features: Tensor, dims: int = 2) -> list[tuple[Tensor, Tensor]]:
    """What every set of weights has, with its features, shared ones every time."""
    sets = _flat(values, dims)
    shared = _flat(features, 2)
    return list(zip(sets, shared.expand(len(sets), *shared.shape[-2:]), strict=True))
