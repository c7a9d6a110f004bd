"""Gaussian noise on complex observations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.priors import Prior
from gpytorch.settings import observation_nan_policy
from linear_operator.operators import ZeroLinearOperator
from torch import Tensor

from .._support import checks
from .._support.gpytorch_names import GaussianLikelihoodBase, is_observed
from .complex_normal import ComplexNormal


class ComplexNoise(GaussianLikelihoodBase):
    r"""The densities and the noise circularity of the likelihoods of complex observations.

    .. math:: E |\epsilon|^2 = \sigma^2, \qquad E \epsilon^2 = \rho \sigma^2, \qquad |\rho| < 1

    A learned circularity is :math:`\rho = z / \sqrt{1 + |z|^2}`, of a complex z in ``raw_circularity``.
    """

    raw_circularity: Any

    def _learn_circularity(self, has_pseudo_noise: bool, batch_shape: Sequence[int]) -> None:
        is_learned = checks.flag("has_pseudo_noise", has_pseudo_noise)
        raw = torch.nn.Parameter(torch.zeros(*batch_shape, 1, 2)) if is_learned else None
        self.register_parameter("raw_circularity", raw)

    @property
    def has_pseudo_noise(self) -> bool:
        """Whether the noise may be improper, with a circularity that is learned."""
        return self.raw_circularity is not None

    @property
    def circularity(self) -> Tensor:
        """The circularity coefficient of the noise, (..., 1), complex, of a modulus below one; zero if not learned."""
        if self.raw_circularity is None:
            known: Any = self
            return torch.zeros(1, dtype=torch.complex64, device=known.noise.device)
        raw = self.raw_circularity
        return torch.view_as_complex(raw / (1.0 + raw.square().sum(-1, keepdim=True)).sqrt())

    @circularity.setter
    def circularity(self, value: Tensor | complex) -> None:
        if self.raw_circularity is None:
            raise ValueError(
                "expected a likelihood that learns its circularity, got one of circular noise; make it with "
                "has_pseudo_noise=True"
            )
        known = torch.as_tensor(value).detach().to(self.raw_circularity.device, torch.complex128)
        if not bool((known.abs() < 1.0).all()):
            raise ValueError(f"expected a circularity of a modulus below 1, got {value!r}; it is E[e^2] / E|e|^2")
        raw = torch.view_as_real(known / (1.0 - known.abs().square()).sqrt())
        self.initialize(raw_circularity=raw.to(self.raw_circularity).expand_as(self.raw_circularity))

    @property
    def pseudo_noise(self) -> Tensor:
        r"""The pseudo-variances :math:`\rho \sigma^2`, of the shape of ``noise``, complex."""
        known: Any = self
        return self.circularity * known.noise

    @pseudo_noise.setter
    def pseudo_noise(self, value: Tensor | complex) -> None:
        known: Any = self
        self.circularity = torch.as_tensor(value) / known.noise.detach()

    def expected_log_prob(self, target: Tensor, input: ComplexNormal, *params: Any, **kwargs: Any) -> Tensor:
        r"""The expected log density (..., N) of every observation y (..., N), with the marginals of the function.

        .. math:: E_f \log p(y \mid f) = -\log(\pi \sigma^2) - \frac{|y - m|^2 + v}{\sigma^2}

        for circular noise and marginals of mean m and variance v.
        """
        function = _complex_normal(input)
        noise = self._noise(function.mean, *params, **kwargs)
        spread = function.variance, function.pseudo_variance
        return _log_densities(target, function, noise, self._pseudo(noise), spread)

    def log_marginal(self, observations: Tensor, function_dist: ComplexNormal, *params: Any, **kwargs: Any) -> Tensor:
        """The log density (..., N) of every observation y (..., N) by its marginal."""
        marginal = self.marginal(function_dist, *params, **kwargs)
        pseudo = None if marginal.is_proper else marginal.pseudo_variance
        return _log_densities(observations, marginal, marginal.variance, pseudo)

    def marginal(self, function_dist: ComplexNormal, *args: Any, **kwargs: Any) -> ComplexNormal:
        """The distribution of noisy observations of a function with the given distribution."""
        function = _complex_normal(function_dist)
        noise = self._noise(function.mean, *args, **kwargs)
        return function.plus_noise(noise, self._pseudo(noise))

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> ComplexNormal:
        """The distribution of independent observations of given complex function values, (..., N)."""
        if not isinstance(function_samples, Tensor) or not function_samples.is_complex():
            got = function_samples.dtype if isinstance(function_samples, Tensor) else type(function_samples).__name__
            raise ValueError(f"expected complex function values, got {got}; use a GaussianLikelihood for real ones")
        root = function_samples.new_zeros(*function_samples.shape, 1)
        noise = self._noise(function_samples, *args, **kwargs)
        return ComplexNormal(
            function_samples, covariance_root=root, diagonal=noise, pseudo_diagonal=self._pseudo(noise)
        )

    def __call__(self, input: ComplexNormal | Tensor, *args: Any, **kwargs: Any) -> ComplexNormal:
        if isinstance(input, Tensor):
            return self.forward(input, *args, **kwargs)
        return self.marginal(input, *args, **kwargs)

    def _noise(self, mean: Tensor, *params: Any, **kwargs: Any) -> Tensor:
        """The noise variances of observations of the shape of ``mean``, as they are now."""
        added = self._shaped_noise_covar(mean.shape, *params, **kwargs)
        if isinstance(added, ZeroLinearOperator):
            return torch.zeros_like(mean.real)
        return added.diagonal(dim1=-1, dim2=-2).clone()

    def _pseudo(self, noise: Tensor) -> Tensor | None:
        """The pseudo-variances of observations with these variances; None for circular noise."""
        return self.circularity * noise if self.has_pseudo_noise else None


class ComplexGaussianLikelihood(ComplexNoise, GaussianLikelihood):
    r"""Noise of variance :math:`\sigma^2` on complex observations, circular unless its pseudo-variance is learned.

    .. math:: y = f(x) + \epsilon, \qquad E |\epsilon|^2 = \sigma^2, \qquad E \epsilon^2 = \rho \sigma^2

    The other parameters are those of GPyTorch's GaussianLikelihood. For :class:`rfgp.models.WeightSpaceGP`; GPyTorch's
    ExactGP has no complex targets.

    :param has_pseudo_noise: whether to learn the circularity :math:`\rho`; default: circular noise.

    Source: T Eq. B.7.

    >>> likelihood = ComplexGaussianLikelihood(has_pseudo_noise=True)
    >>> likelihood.noise, likelihood.circularity = 2.0, 0.5j
    >>> round(float(likelihood.pseudo_noise.detach().imag), 3)
    1.0
    """

    def __init__(
        self,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
        batch_shape: Sequence[int] = (),
        has_pseudo_noise: bool = False,
        **kwargs: Any,
    ) -> None:
        checks.part("noise_prior", noise_prior, "gpytorch.priors.GammaPrior(2.0, 1.0)")
        checks.part("noise_constraint", noise_constraint, "gpytorch.constraints.GreaterThan(1e-4)")
        shape = torch.Size(checks.shape(batch_shape, "batch_shape"))
        super().__init__(noise_prior, noise_constraint, shape, **kwargs)
        self._learn_circularity(has_pseudo_noise, batch_shape)


class FixedNoiseComplexGaussianLikelihood(ComplexNoise, FixedNoiseGaussianLikelihood):
    r"""Complex noise of a known variance for every observation, circular unless its circularity is learned.

    .. math:: y_n = f(x_n) + \epsilon_n, \qquad E |\epsilon_n|^2 = s_n + \sigma^2, \qquad
        E \epsilon_n^2 = \rho (s_n + \sigma^2)

    ``likelihood(function, noise=test_noise)`` adds the known noise of other inputs than the training ones.

    :param noise: the noise variances of the training data, (N,).
    :param learn_additional_noise: whether to learn a further noise variance :math:`\sigma^2`.
    :param has_pseudo_noise: whether to learn the circularity :math:`\rho` of all the noise; default: circular noise.
    :param noise_prior: a prior on what is learned.
    :param noise_constraint: a constraint on what is learned.
    :raises ValueError: for noise that is not a tensor of positive, finite floating-point numbers.

    >>> likelihood = FixedNoiseComplexGaussianLikelihood(torch.tensor([0.5, 1.0]))
    >>> likelihood(torch.zeros(2, dtype=torch.complex64)).variance
    tensor([0.5000, 1.0000])
    """

    def __init__(
        self,
        noise: Tensor,
        learn_additional_noise: bool = False,
        has_pseudo_noise: bool = False,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
    ) -> None:
        if checks.floating(noise, "noise").dim() == 0:
            raise ValueError("expected noise of shape (N,), got a number; pass a variance per observation")
        known = noise[~torch.isnan(noise)]
        if not bool((known > 0).all()) or bool(torch.isinf(known).any()):
            raise ValueError("expected positive, finite noise variances, got others; square standard deviations")
        checks.flag("learn_additional_noise", learn_additional_noise)
        checks.part("noise_prior", noise_prior, "gpytorch.priors.GammaPrior(2.0, 1.0)")
        checks.part("noise_constraint", noise_constraint, "gpytorch.constraints.GreaterThan(1e-4)")
        options = {"noise_prior": noise_prior, "noise_constraint": noise_constraint}
        super().__init__(noise, learn_additional_noise, **options)
        self._learn_circularity(has_pseudo_noise, ())


def _complex_normal(distribution: Any) -> ComplexNormal:
    if not isinstance(distribution, ComplexNormal):
        raise ValueError(
            f"expected a ComplexNormal for a ComplexGaussianLikelihood, got {type(distribution).__name__}; give "
            "complex targets to rfgp.models.WeightSpaceGP, since GPyTorch's models have none"
        )
    return distribution


def _log_densities(
    y: Tensor,
    distribution: ComplexNormal,
    variance: Tensor,
    pseudo: Tensor | None,
    spread: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    r"""The expected log densities of y, :math:`-\log(\pi v) - (|y - m|^2 + s) / v` for circular noise, (..., N)."""
    policy, missing = observation_nan_policy.value(), torch.isnan(y)
    known = y if policy == "ignore" else torch.where(missing, 0.0, y)
    difference = known - distribution.mean
    square = difference.real.square() + difference.imag.square()
    square = square if spread is None else square + spread[0]
    if pseudo is None:
        values = -(square / variance + variance.log() + math.log(math.pi))
    else:
        pseudo_square = difference.square() if spread is None else difference.square() + spread[1]
        gap = variance.square() - pseudo.real.square() - pseudo.imag.square()
        quadratic = (variance * square - (pseudo.conj() * pseudo_square).real) / gap
        values = -(quadratic + 0.5 * gap.log() + math.log(math.pi))
    if policy == "mask":
        return values[..., is_observed(y, distribution.event_shape)]
    return values * ~missing if policy == "fill" else values
