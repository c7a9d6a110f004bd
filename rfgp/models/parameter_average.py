"""Predictions averaged over the parameters of a model, as mixtures of normals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, Normal

from .._support import checks
from .._support.gpytorch_names import CHOLESKY_ALWAYS, WITHOUT_INPUT_WARNING

_ROWS = 1000
"""How many points are predicted at a time: GPyTorch's exact models form the covariance of all."""
_STEPS = 60


class NormalMixture(MixtureSameFamily):
    r"""A mixture of normals of PyTorch, with quantiles.

    .. math:: p(y) = \sum_s w_s N(y \mid \mu_s, \sigma_s^2)

    ``mean``, ``variance``, ``stddev``, ``log_prob``, ``cdf`` and ``sample`` are those of PyTorch. Samples at several
    points are independent of each other.

    >>> from torch.distributions import Categorical, Normal
    >>> found = NormalMixture(Categorical(torch.ones(2)), Normal(torch.tensor([-1.0, 1.0]), torch.ones(2)))
    >>> found.icdf(0.5).abs() < 1e-6
    tensor(True)
    """

    def icdf(self, value: Tensor | float) -> Tensor:
        """The quantiles at levels between 0 and 1, by bisection between those of the components.

        :param value: levels, of a shape that broadcasts with that of the distribution.
        :raises ValueError: for other levels.
        """
        normals = self.component_distribution
        level = checks.real_tensor(value, "value").to(normals.mean)
        if not bool(((level > 0.0) & (level < 1.0)).all()):
            raise ValueError(f"expected levels between 0 and 1, got {value}; choose such as 0.975")
        sizes = zip(reversed(level.shape), reversed(self.batch_shape), strict=False)
        if any(size != own and 1 not in (size, own) for size, own in sizes):
            got = tuple(level.shape)
            raise ValueError(
                f"expected levels that broadcast with {tuple(self.batch_shape)}, got {got}; unsqueeze them"
            )
        ends = normals.icdf(level.unsqueeze(-1))
        low, high = ends.min(-1).values, ends.max(-1).values
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            is_below = self.cdf(middle) < level
            low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
        return 0.5 * (low + high)


class ParameterAverage(torch.nn.Module):
    r"""A model with one Gaussian target, averaged over draws of its parameters.

    .. math:: p(y_* \mid y) \approx \frac1S \sum_s N\big(y_* \mid \mu_s(x_*), \sigma_s^2(x_*)\big),
        \qquad \theta_s \sim p(\theta \mid y)

    :func:`rfgp.fit` makes it with ``strategy="average"``.

    :param members: the model at each of the S draws, conditioned on the same rows.
    :param input_dim: the number of columns d of its inputs.
    :raises ValueError: in predictions at other inputs.

    >>> import gpytorch, rfgp
    >>> x = torch.linspace(0.0, 6.0, 20, dtype=torch.float64).unsqueeze(-1)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel().double(), 20, method="landmarks", train_inputs=x)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    >>> average = rfgp.fit(model, x, x[:, 0].sin(), strategy="average").average
    >>> found = average.predictive(torch.tensor([[1.0], [30.0]], dtype=torch.float64))
    >>> bool(found.stddev[0] < 0.1 < found.stddev[1])
    True
    """

    def __init__(self, members: Sequence[torch.nn.Module], input_dim: int) -> None:
        super().__init__()
        self.members = torch.nn.ModuleList(members)
        self.input_dim = checks.positive_integer("input_dim", input_dim)
        self.requires_grad_(False).eval()

    def posterior(self, x: Tensor) -> NormalMixture:
        """The distributions of the function without noise at inputs (..., M, d), each alone."""
        return self._mixture(x, has_noise=False)

    def predictive(self, x: Tensor) -> NormalMixture:
        """The distributions of new observations at inputs (..., M, d), each alone."""
        return self._mixture(x, has_noise=True)

    def forward(self, x: Tensor) -> NormalMixture:
        """:meth:`posterior`, as GPyTorch's models give it in evaluation mode."""
        return self.posterior(x)

    def _mixture(self, x: Tensor, has_noise: bool) -> NormalMixture:
        x = checks.finite(checks.inputs(checks.columns(x), self.input_dim))
        checks.same_kind(x, next(self.parameters()), "x", "the model")
        with CHOLESKY_ALWAYS, WITHOUT_INPUT_WARNING:  # which is for models that may be in training
            parts = [_moments(member, x, has_noise) for member in self.members]
        means, variances = (torch.stack(part, dim=-1) for part in zip(*parts, strict=True))
        return NormalMixture(Categorical(torch.ones_like(means)), Normal(means, variances.sqrt()))


def _moments(member: Any, x: Tensor, has_noise: bool) -> tuple[Tensor, Tensor]:
    """Means and variances (..., M) of one model."""
    found = [member(chunk) for chunk in x.split(_ROWS, dim=-2)]
    mean, variance = (torch.cat([getattr(part, name) for part in found], dim=-1) for name in ("mean", "variance"))
    return mean, variance + member.likelihood.noise if has_noise else variance
