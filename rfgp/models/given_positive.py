"""A model, given that a function or its derivatives are positive: functions that rise or fall."""

from __future__ import annotations

import copy
import math

import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from torch import Tensor

from .._support import checks
from .weight_space.model import WeightSpaceGP

_ITERATIONS, _STEP, _CONVERGED = 500, 0.7, 1e-8
_FAR, _TERMS = 10.0, 30
"""Standard deviations below zero from which on moments follow from a continued fraction, and its terms."""
_LEAST = 1e-12
"""Of the precision of a site, relative to that of the posterior before it: weights of rows are positive."""


@torch.no_grad()
def given_positive(model: WeightSpaceGP, x: Tensor) -> WeightSpaceGP:
    r"""A copy of a fitted model, given that the function is positive where its mean would be negative.

    .. math:: p(f \mid y, L_j f > 0) \propto p(f \mid y) \prod_{j \in S} \Theta(L_j f)

    The rows x say which values :math:`L_i f` are to be positive. With the rows of
    :func:`rfgp.functionals.observations.derivatives`, and an :class:`rfgp.kernels.ObservationKernel`, these are
    derivatives: the function rises along their directions. S has the rows that are needed, the most certainly negative
    one first, until the mean is negative at none of x. Their step functions :math:`\Theta` are approximated by
    expectation propagation, and enter the copy as rows of Gaussian noise: it predicts, draws and is saved as any model,
    and takes more rows. Its evidence is none of the data. The parameters are those of the model, learned without signs.

    :param model: a WeightSpaceGP of one real output, fitted, with a GaussianLikelihood and without blocks.
    :param x: inputs (M, d), or rows of observations; the joint covariance of them all is formed, (M, M).
    :raises ValueError: for another model, one without data, and bad inputs; the model stays as it was.

    Source: J. Riihimäki and A. Vehtari, Gaussian processes with monotonicity information, 2010, with the step function
    for the probit, and Rasmussen and Williams (2006), Eq. 3.58, for its moments.

    >>> import gpytorch, rfgp
    >>> x = torch.linspace(0.0, 1.0, 20, dtype=torch.float64).unsqueeze(-1)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel().double(), 16, input_dim=1, seed=0)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    >>> model = model.condition(x, x.squeeze(-1) - 0.5)
    >>> bool(model.posterior(x).mean.min() < 0.0 < given_positive(model, x).posterior(x).mean.min())
    True
    """
    _check(model)
    x = checks.columns(x)
    if checks.inputs(x).dim() != 2:
        raise ValueError(f"expected x of shape (M, d), got {tuple(x.shape)}; flatten it")
    checks.fits_in_memory(24.0 * len(x) ** 2, f"the covariance of {len(x)} rows", "pass fewer rows")
    before = model.posterior(x)
    if before.mean.dim() != 1:
        raise ValueError(
            f"expected a model of one output, got means of shape {tuple(before.mean.shape)}; observe a field by rows "
            "of an ObservationKernel, which have weights of its outputs"
        )
    mean, covariance = before.mean.double(), before.covariance_matrix.double()
    sites = _sites(mean, covariance)
    twin = copy.deepcopy(model)
    if sites is None:
        return twin
    rows, precision, shift = sites
    noise = float(model.likelihood.noise)
    return twin.update(x[rows], (shift / precision).to(before.mean), weights=(noise * precision).to(before.mean))


def _check(model: WeightSpaceGP) -> None:
    """Raise a ValueError where a model has no joint normal posterior of one function with learned noise."""
    checks.instance("model", model, WeightSpaceGP, "a WeightSpaceGP", "fit one to the rows first")
    likelihood = model.likelihood
    is_plain = isinstance(likelihood, GaussianLikelihood) and not isinstance(likelihood, FixedNoiseGaussianLikelihood)
    if not is_plain:
        raise ValueError(f"expected a GaussianLikelihood, got {type(likelihood).__name__}; fit a model with one")
    if model.covar_module.is_complex:
        raise ValueError(
            'expected real features, whose posterior is that of the function, got complex ones; use a method ":ctr"'
        )
    if model.block_size is not None or model.num_draws != 1:
        raise ValueError(
            f"expected a model without blocks and of one draw, got block_size={model.block_size} and num_draws="
            f"{model.num_draws}; leave them out"
        )


def _sites(mean: Tensor, covariance: Tensor) -> tuple[list[int], Tensor, Tensor] | None:
    """The numbers of the rows whose signs are needed, and precisions and shifts (S,) of their sites; None for none."""
    spread = covariance.diagonal().clamp_min(torch.finfo(mean.dtype).tiny).sqrt()
    rows: list[int] = []
    precision, shift, at = mean.new_zeros(0), mean.new_zeros(0), mean
    while bool((at < 0.0).any()) and len(rows) < len(mean):
        score = at / spread
        score[rows] = math.inf
        rows.append(int(score.argmin()))
        own, prior = covariance[rows][:, rows], mean[rows]
        start = (torch.nn.functional.pad(part, (0, 1)) for part in (precision, shift))
        precision, shift = _propagated(prior, own, *start)
        system = precision.unsqueeze(-1) * own
        system.diagonal().add_(1.0)
        at = mean + covariance[:, rows] @ torch.linalg.solve(system, shift - precision * prior)
    return (rows, precision.clamp_min(_LEAST / spread[rows].square()), shift) if rows else None


def _propagated(mean: Tensor, covariance: Tensor, precision: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    r"""Precisions :math:`\tau` and shifts :math:`\nu` of Gaussian sites for the signs of normal values, (S,) each.

    The sites reproduce the moments of a positive value of the cavity N(m, s^2).
    """
    for _ in range(_ITERATIONS):
        system = covariance * precision
        system.diagonal().add_(1.0)
        found = torch.linalg.solve(system, torch.cat([covariance, (mean + covariance @ shift).unsqueeze(-1)], dim=-1))
        variance, center = found.diagonal(), found[:, -1]
        cavity = 1.0 / variance - precision
        m, s = (center / variance - shift) / cavity, cavity.rsqrt()
        tilted, narrow = _positive_moments(m / s)
        tilted, narrow = s * tilted, narrow / cavity
        if float(((tilted - center) / variance.sqrt()).abs().max()) < _CONVERGED:
            return precision, shift
        precision = precision + _STEP * ((1.0 / narrow - cavity).clamp_min(0.0) - precision)
        shift = shift + _STEP * (tilted / narrow - m * cavity - shift)
    raise ValueError(
        "expected signs for which expectation propagation converges, got rows that say nearly the same; leave some out"
    )


def _positive_moments(z: Tensor) -> tuple[Tensor, Tensor]:
    r"""The mean and the variance (S,) of normal values N(z, 1) that are positive.

    .. math:: u = z + \rho, \qquad v = 1 - \rho u, \qquad \rho = \frac{N(z)}{\Phi(z)} =
        t + \cfrac{1}{t + \cfrac{2}{t + \cdots}}, \qquad t = -z

    Far below zero, where these differences lose their digits, u and v follow from the continued fraction.

    Source: Rasmussen and Williams (2006), Eq. 3.58, and Abramowitz and Stegun (1964), Eq. 26.2.14.
    """
    ratio = (-0.5 * z.square() - 0.5 * math.log(2.0 * math.pi) - torch.special.log_ndtr(z)).exp()
    mean, t = z + ratio, (-z).clamp_min(_FAR)
    rest = t
    for k in range(_TERMS, 1, -1):
        rest, last = t + k / rest, rest
    far = 1.0 / rest
    is_far = z < -_FAR
    return torch.where(is_far, far, mean), torch.where(is_far, far * (2.0 / last - far), 1.0 - ratio * mean)
