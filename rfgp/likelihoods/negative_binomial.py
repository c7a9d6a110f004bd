"""Counts with more variance than Poisson ones."""

from __future__ import annotations

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.distributions import base_distributions
from gpytorch.priors import Prior
from torch import Tensor

from .._support import checks
from .counts import CountLikelihood


class NegativeBinomialLikelihood(CountLikelihood):
    r"""Counts with the mean exp(f) and a learned dispersion :math:`\alpha`, the form NB2.

    .. math:: y \mid f \sim \mathrm{NB}, \qquad E[y \mid f] = e^f, \qquad \mathrm{Var}[y \mid f] = e^f + \alpha e^{2f}

    Rows with an exposure e have the mean e exp(f), and the same dispersion: ``likelihood(f, exposure=e)``.
    GPyTorch's likelihood of this name has softplus(f) as its mean, and a variance that is a multiple of it.

    :param batch_shape: the batch shape of the dispersion; default: none.
    :param dispersion_prior: a prior on the dispersion.
    :param dispersion_constraint: default: positive.

    Source: Hilbe (2011), Negative Binomial Regression.

    >>> likelihood = NegativeBinomialLikelihood()
    >>> likelihood.dispersion = 0.5
    >>> likelihood(torch.zeros(2)).variance
    tensor([1.5000, 1.5000], grad_fn=<DivBackward0>)
    """

    raw_dispersion: torch.nn.Parameter
    raw_dispersion_constraint: Interval

    def __init__(
        self,
        batch_shape: torch.Size | tuple[int, ...] = (),
        dispersion_prior: Prior | None = None,
        dispersion_constraint: Interval | None = None,
    ) -> None:
        super().__init__()
        checks.part("dispersion_prior", dispersion_prior, "gpytorch.priors.GammaPrior(2.0, 1.0)")
        checks.part("dispersion_constraint", dispersion_constraint, "gpytorch.constraints.Positive()")
        shape = (*checks.shape(batch_shape, "batch_shape"), 1)
        self.register_parameter("raw_dispersion", torch.nn.Parameter(torch.zeros(shape)))
        self.register_constraint("raw_dispersion", dispersion_constraint or Positive())
        if dispersion_prior is not None:
            self.register_prior("dispersion_prior", dispersion_prior, _dispersion, _set_dispersion)

    @property
    def dispersion(self) -> Tensor:
        r"""The dispersion :math:`\alpha`, (..., 1)."""
        value: Tensor = self.raw_dispersion_constraint.transform(self.raw_dispersion)
        return value

    @dispersion.setter
    def dispersion(self, value: Tensor | float) -> None:
        _set_dispersion(self, value)

    def counts(self, f: Tensor) -> torch.distributions.NegativeBinomial:
        """The distribution of counts given the logarithms of their means."""
        return _counts(f, self.dispersion)

    def conditional(self, function_samples: Tensor) -> torch.distributions.NegativeBinomial:
        """The distribution of counts, given K values of the function at every input, (..., N, K)."""
        return _counts(function_samples, self.dispersion.unsqueeze(-1))


def _counts(f: Tensor, dispersion: Tensor) -> torch.distributions.NegativeBinomial:
    logits = f + dispersion.log()
    return base_distributions.NegativeBinomial((1.0 / dispersion).expand(logits.shape), logits=logits)


def _dispersion(likelihood: NegativeBinomialLikelihood) -> Tensor:
    return likelihood.dispersion


def _set_dispersion(likelihood: NegativeBinomialLikelihood, value: Tensor | float) -> None:
    wanted = torch.as_tensor(value).to(likelihood.raw_dispersion)
    likelihood.initialize(raw_dispersion=likelihood.raw_dispersion_constraint.inverse_transform(wanted))
