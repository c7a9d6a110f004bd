"""Known Gaussian noise per observation and task."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.distributions import MultitaskMultivariateNormal, base_distributions
from gpytorch.likelihoods.noise_models import FixedGaussianNoise, MultitaskHomoskedasticNoise
from gpytorch.priors import Prior
from gpytorch.utils.warnings import GPInputWarning
from linear_operator.operators import DiagLinearOperator, LinearOperator, ZeroLinearOperator
from torch import Tensor
from torch.distributions import Independent

from .._support import checks
from .._support.gpytorch_names import GaussianLikelihoodBase, is_interleaved
from .normal import unclamped


class MultitaskFixedNoiseGaussianLikelihood(GaussianLikelihoodBase):
    r"""Independent Gaussian noise of a known variance for every observation of every task.

    .. math:: y_{nt} = f_t(x_n) + \epsilon_{nt}, \qquad \epsilon_{nt} \sim N(0, s_{nt} + \sigma_t^2)

    ``likelihood(function, noise=test_noise)`` adds the known noise (..., M, T) of other inputs than the training ones.
    Without it, functions of N points get the training noise, and others :math:`\sigma_t^2`, or nothing and a warning.

    :param noise: the noise variances of the training data, (..., N, T); GPyTorch rounds up those below its setting
        ``min_fixed_noise``.
    :param learn_additional_noise: whether to learn a further noise variance :math:`\sigma_t^2` per task.
    :param batch_shape: the batch shape of what is learned, which is (..., T).
    :param noise_prior: a prior on what is learned.
    :param noise_constraint: a constraint on what is learned, in place of GreaterThan(1e-4).
    :raises ValueError: for noise that is not a floating-point tensor (..., N, T) of finite non-negative numbers.

    >>> likelihood = MultitaskFixedNoiseGaussianLikelihood(torch.tensor([[0.1, 0.2], [0.3, 0.4]]))
    >>> likelihood(MultitaskMultivariateNormal(torch.zeros(2, 2), torch.eye(4))).variance
    tensor([[1.1000, 1.2000],
            [1.3000, 1.4000]])
    """

    noise_covar: FixedGaussianNoise

    def __init__(
        self,
        noise: Tensor,
        learn_additional_noise: bool = False,
        batch_shape: Sequence[int] = (),
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
    ) -> None:
        checks.part("noise_prior", noise_prior, "gpytorch.priors.GammaPrior(2.0, 1.0)")
        checks.part("noise_constraint", noise_constraint, "gpytorch.constraints.GreaterThan(1e-4)")
        shape = torch.Size(checks.shape(batch_shape, "batch_shape"))
        super().__init__(noise_covar=FixedGaussianNoise(_variances(noise)))
        self.num_tasks: int = noise.shape[-1]
        self.second_noise_covar: MultitaskHomoskedasticNoise | None = None
        if checks.flag("learn_additional_noise", learn_additional_noise):
            self.second_noise_covar = MultitaskHomoskedasticNoise(
                self.num_tasks,
                noise_prior=noise_prior,
                noise_constraint=noise_constraint,
                batch_shape=shape,
            )

    @property
    def noise(self) -> Tensor:
        """All noise variances of the training data, known and learned, (..., N, T); setting it sets the known ones."""
        return self.noise_covar.noise + self._second_rows

    @noise.setter
    def noise(self, value: Tensor) -> None:
        self.noise_covar = FixedGaussianNoise(_variances(value, num_tasks=self.num_tasks))

    @property
    def second_noise(self) -> float | Tensor:
        """The learned noise variances, (..., T); 0 where there are none."""
        return 0.0 if self.second_noise_covar is None else self.second_noise_covar.noise

    @second_noise.setter
    def second_noise(self, value: float | Tensor) -> None:
        if self.second_noise_covar is None:
            raise ValueError(
                "expected a likelihood that learns noise for second_noise, got one that does not; make it with "
                "learn_additional_noise=True"
            )
        self.second_noise_covar.initialize(noise=value)

    @property
    def _second_rows(self) -> float | Tensor:
        return 0.0 if self.second_noise_covar is None else self.second_noise_covar.noise.unsqueeze(-2)

    def get_fantasy_likelihood(
        self, *, noise: Tensor | None = None, **kwargs: Any
    ) -> MultitaskFixedNoiseGaussianLikelihood:
        """The likelihood of the training data and new observations of noise variances (..., M, T) together, a copy."""
        if noise is None:
            raise ValueError(
                f"expected the noise of the new observations, got none; pass noise= of shape (M, {self.num_tasks})"
            )
        new, old = _variances(noise, num_tasks=self.num_tasks), self.noise_covar.noise
        checks.same_kind(new, old, "noise", "the training noise")
        batch = torch.broadcast_shapes(old.shape[:-2], new.shape[:-2])
        both = torch.cat([part.expand(*batch, *part.shape[-2:]) for part in (old, new)], dim=-2)
        return deepcopy(self, {id(self.noise_covar): FixedGaussianNoise(both)})

    def _noise_rows(self, shape: torch.Size, noise: Tensor | None) -> Tensor | None:
        """The noise (..., N, T) of a function of shape (..., N, T); None where nothing is known about it."""
        if len(shape) < 2 or shape[-1] != self.num_tasks:
            raise ValueError(
                f"expected a function of shape (..., N, {self.num_tasks}), one column per task, got {tuple(shape)}; "
                "use a MultitaskMultivariateNormal with as many tasks as the noise has columns"
            )
        if noise is not None:
            rows = _variances(noise, shape[-2], self.num_tasks) + self._second_rows
        elif self.noise_covar.noise.shape[-2] == shape[-2]:
            rows = self.noise
        elif self.second_noise_covar is not None:
            rows = self.second_noise_covar.noise.unsqueeze(-2)
        else:
            return None
        batch = torch.broadcast_shapes(rows.shape[:-2], shape[:-2])
        return rows.expand(*batch, *shape[-2:])

    def _shaped_noise_covar(
        self,
        base_shape: torch.Size,
        *params: Any,
        noise: Tensor | None = None,
        interleaved: bool = True,
        **kwargs: Any,
    ) -> LinearOperator:
        """The diagonal noise covariance of a function of shape (..., N, T), in its order of points and tasks."""
        rows = self._noise_rows(base_shape, noise)
        if rows is None:
            size, known = base_shape[-2] * base_shape[-1], self.noise_covar.noise
            return ZeroLinearOperator(*base_shape[:-2], size, size, dtype=known.dtype, device=known.device)
        return DiagLinearOperator((rows if interleaved else rows.mT).flatten(-2))

    def marginal(
        self, function_dist: MultitaskMultivariateNormal, *args: Any, noise: Tensor | None = None, **kwargs: Any
    ) -> MultitaskMultivariateNormal:
        """The distribution of noisy observations of a function with event shape (N, T).

        :param noise: its noise variances (..., N, T), in place of those of the training data.
        """
        _multitask(function_dist)
        interleaved = is_interleaved(function_dist)
        added = self._shaped_noise_covar(function_dist.mean.shape, noise=noise, interleaved=interleaved)
        if isinstance(added, ZeroLinearOperator):
            warnings.warn(
                f"expected the noise of {function_dist.event_shape[-2]} points, got a likelihood that knows that of "
                f"{self.noise_covar.noise.shape[-2]} others; none is added: pass noise=",
                GPInputWarning,
                stacklevel=3,
            )
            return function_dist
        covariance = function_dist.lazy_covariance_matrix + added
        return function_dist.__class__(function_dist.mean, covariance, interleaved=interleaved)

    def forward(
        self, function_samples: Tensor, *params: Any, noise: Tensor | None = None, **kwargs: Any
    ) -> Independent:
        """The distribution of independent observations of given function values (..., N, T), event shape (T,)."""
        deviation = self._known_rows(function_samples.shape, noise).sqrt()
        return base_distributions.Independent(base_distributions.Normal(function_samples, deviation), 1)

    def expected_log_prob(
        self,
        target: Tensor,
        input: MultitaskMultivariateNormal,
        *params: Any,
        noise: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """The expected log density of every observation, summed over its tasks: (..., N)."""
        self._known_rows(_multitask(input).mean.shape, noise)
        return super().expected_log_prob(target, _independent(input), noise=noise)

    def log_marginal(
        self,
        observations: Tensor,
        function_dist: MultitaskMultivariateNormal,
        *params: Any,
        noise: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """The log density of every observation alone, summed over its tasks: (..., N)."""
        return super().log_marginal(observations, _independent(_multitask(function_dist)), noise=noise)

    def _known_rows(self, shape: torch.Size, noise: Tensor | None) -> Tensor:
        rows = self._noise_rows(shape, noise)
        if rows is None:
            raise ValueError(
                f"expected the noise of {shape[-2]} points, got a likelihood that knows that of "
                f"{self.noise_covar.noise.shape[-2]} others; pass noise="
            )
        return rows


def _multitask(function: Any) -> MultitaskMultivariateNormal:
    if not isinstance(function, MultitaskMultivariateNormal):
        raise ValueError(
            f"expected a MultitaskMultivariateNormal, got {type(function).__name__}; use FixedNoiseGaussianLikelihood "
            "for a single task"
        )
    return function


def _independent(function: MultitaskMultivariateNormal) -> MultitaskMultivariateNormal:
    """The marginals of a function alone, interleaved: what GPyTorch's densities per observation assume."""
    exact = unclamped(function)
    return exact.__class__(exact.mean, DiagLinearOperator(exact.variance.flatten(-2)))


def _variances(noise: Any, num_points: int | None = None, num_tasks: int | None = None) -> Tensor:
    """Return noise variances (..., N, T), or raise."""
    checks.floating(noise, "noise")
    points, tasks = num_points or "N", num_tasks or "T"
    is_fitting = noise.dim() >= 2 and num_points in (None, noise.shape[-2]) and num_tasks in (None, noise.shape[-1])
    if not is_fitting or noise.shape[-1] == 0:
        raise ValueError(
            f"expected noise of shape (..., {points}, {tasks}), got {tuple(noise.shape)}; pass a variance per point "
            "and task"
        )
    checks.finite(noise.detach(), "noise")
    if noise.numel() and bool((noise < 0).any()):
        raise ValueError(
            f"expected noise variances that are not negative, got a smallest one of {float(noise.min()):g}; square "
            "standard deviations"
        )
    return noise
