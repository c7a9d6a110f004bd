"""The expected log likelihood of rows under normal function values, with its gradients in their moments."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import gpytorch
import torch
from gpytorch.likelihoods import LaplaceLikelihood, Likelihood, SoftmaxLikelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from ...likelihoods import MultitaskMultivariateNormal, MultivariateNormal


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
