"""Class labels of which a part is random, and more of them in some places than in others."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.distributions import MultitaskMultivariateNormal, base_distributions
from gpytorch.priors import LogNormalPrior, Prior
from gpytorch.utils.quadrature import GaussHermiteQuadrature1D
from torch import Tensor

from .._support import checks
from .several_functions import SeveralFunctionsLikelihood

_MEDIAN, _SPREAD = 0.5, 0.5
"""Of the prior on the scale of the noise function, and of its logarithm."""


class HeteroscedasticSoftmaxLikelihood(SeveralFunctionsLikelihood):
    r"""The softmax of C functions, where labels are random at a rate that depends on the inputs, by one more function.

    .. math:: p(y = c \mid f, g) = (1 - e)\, \mathrm{softmax}(f)_c + \frac{e}{C}, \qquad
        e = \mathrm{sigmoid}\Big(\log \frac{e_0}{1 - e_0} + s\, g\Big)

    A random label is any of the C classes, the right one included. The last of the C + 1 functions is g. What it has of
    its own is learned: the rate :math:`e_0`, ``noise``, where g is zero, and the scale s, ``noise_scale``.

    :param num_classes: the number C of classes.
    :param noise_scale_prior: a prior on s; default: log-normal with the median 1/2 and the factor :math:`\sqrt e`,
        since rates that jump from none to all labels explain every row, and predict none.
    :raises ValueError: for a number that is not an integer, or below two.

    Source: for labels that are wrong at one rate, D. Hernandez-Lobato et al., Robust multi-class Gaussian process
    classification, 2011, Eq. 3.

    >>> likelihood = HeteroscedasticSoftmaxLikelihood(num_classes=2)
    >>> likelihood.noise = 0.2
    >>> likelihood(torch.tensor([[30.0, 0.0, 0.0]])).probs.detach()
    tensor([[0.9000, 0.1000]])
    """

    num_classes: int
    start_variance = 30.0
    """Labels are nearly certain but for the noise; training that begins with labels in doubt stays with them."""
    raw_noise: torch.nn.Parameter
    raw_noise_constraint: Interval
    raw_noise_scale: torch.nn.Parameter
    raw_noise_scale_constraint: Interval

    def __init__(self, num_classes: int, noise_scale_prior: Prior | None = None) -> None:
        if checks.positive_integer("num_classes", num_classes) < 2:
            raise ValueError(f"expected at least two classes, got {num_classes}; count all labels")
        super().__init__(num_classes + 1, num_classes)
        self.register_parameter("raw_noise", torch.nn.Parameter(torch.zeros(1)))
        self.register_constraint("raw_noise", Interval(0.0, 1.0, initial_value=0.1))
        self.register_parameter("raw_noise_scale", torch.nn.Parameter(torch.zeros(1)))
        self.register_constraint("raw_noise_scale", Positive(initial_value=_MEDIAN))
        checks.part("noise_scale_prior", noise_scale_prior, "gpytorch.priors.GammaPrior(2.0, 4.0)")
        prior = noise_scale_prior or LogNormalPrior(math.log(_MEDIAN), _SPREAD)
        self.register_prior("noise_scale_prior", prior, _noise_scale, _set_noise_scale)
        self.quadrature = GaussHermiteQuadrature1D()

    @property
    def noise(self) -> Tensor:
        """The rate of random labels where g is zero, (1,)."""
        value: Tensor = self.raw_noise_constraint.transform(self.raw_noise)
        return value

    @noise.setter
    def noise(self, value: Tensor | float) -> None:
        wanted = torch.as_tensor(value).to(self.raw_noise)
        self.initialize(raw_noise=self.raw_noise_constraint.inverse_transform(wanted))

    @property
    def noise_scale(self) -> Tensor:
        """What g is multiplied by in the log odds of a random label, (1,)."""
        value: Tensor = self.raw_noise_scale_constraint.transform(self.raw_noise_scale)
        return value

    @noise_scale.setter
    def noise_scale(self, value: Tensor | float) -> None:
        _set_noise_scale(self, value)

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> torch.distributions.Categorical:
        """The distribution of labels given values (..., N, C + 1) of the functions."""
        functions, noise = function_samples.split((self.num_classes, 1), dim=-1)
        log_odds = self._log_odds(noise)
        right, random = torch.cat([torch.zeros_like(log_odds), log_odds], dim=-1).log_softmax(-1).split(1, dim=-1)
        parts = torch.broadcast_tensors(right + functions.log_softmax(-1), random - math.log(self.num_classes))
        return base_distributions.Categorical(logits=torch.stack(parts).logsumexp(0))

    def label_noise(self, latent: MultitaskMultivariateNormal) -> Tensor:
        r"""The expected rate of random labels, :math:`E\, e`, (N,), by the marginals of g.

        :param latent: the posterior of the C + 1 functions at N inputs.
        :raises ValueError: for another number of functions.
        """
        checks.instance(
            "latent", latent, MultitaskMultivariateNormal, "the posterior of the functions", "pass model.posterior(x)"
        )
        if latent.mean.shape[-1] != self.num_functions:
            raise ValueError(
                f"expected a posterior of {self.num_functions} functions, got one of {latent.mean.shape[-1]}; pass "
                "that of a model with this likelihood"
            )
        noise = torch.distributions.Normal(latent.mean[..., -1], latent.stddev[..., -1])
        rate: Tensor = self.quadrature(lambda g: self._log_odds(g).sigmoid(), noise)
        return rate

    def _log_odds(self, noise: Tensor) -> Tensor:
        return torch.logit(self.noise) + self.noise_scale * noise


def _noise_scale(likelihood: HeteroscedasticSoftmaxLikelihood) -> Tensor:
    return likelihood.noise_scale


def _set_noise_scale(likelihood: HeteroscedasticSoftmaxLikelihood, value: Tensor | float) -> None:
    wanted = torch.as_tensor(value).to(likelihood.raw_noise_scale)
    likelihood.initialize(raw_noise_scale=likelihood.raw_noise_scale_constraint.inverse_transform(wanted))
