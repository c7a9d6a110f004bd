"""Gaussian processes with any likelihood: a variational distribution of the weights of random features."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    DirichletClassificationLikelihood,
    FixedNoiseGaussianLikelihood,
    Likelihood,
    MultitaskGaussianLikelihood,
    SoftmaxLikelihood,
)
from gpytorch.means import Mean, ZeroMean
from gpytorch.variational import CholeskyVariationalDistribution, MeanFieldVariationalDistribution
from torch import Tensor

from ..._support import checks, states
from ..._support.gpytorch_names import OneDimensionalLikelihood
from ...approximation import with_features
from ...approximation.reference_tensor import reference_tensor
from ...inference.latent.latent_terms import possible_targets
from ...inference.latent.variational import (
    GaussianWeights,
    Sites,
    expected_log_likelihood,
    expected_log_probabilities,
    is_deterministic,
    natural_ascent,
)
from ...kernels.observation import check_observed_mean
from ...likelihoods import ComplexGaussianLikelihood, LogVarianceLikelihood, SeveralFunctionsLikelihood
from .strategy import FunctionParts, WeightSpaceVariationalStrategy

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel

_PRECISION = 1e-12
"""How little the bound rises, relatively, where the best weights are found."""
_DISTRIBUTIONS = {"full": CholeskyVariationalDistribution, "diagonal": MeanFieldVariationalDistribution}
_REFUSED = (
    ComplexGaussianLikelihood,
    DirichletClassificationLikelihood,
    FixedNoiseGaussianLikelihood,
    MultitaskGaussianLikelihood,
)


@dataclasses.dataclass(frozen=True)
class RowSites(Sites):
    """The sites of rows, with the sum of their expected log likelihoods, (), and its graph."""

    expected: Tensor


class WeightSpaceVariationalGP(gpytorch.models.ApproximateGP):
    r"""A Gaussian process with random features and any likelihood, by variational inference on the weights.

    .. math:: f(x) = m(x) + \phi(x)^\top w, \qquad q(w) = N(\mu, S), \qquad
        \log p(y) \ge \sum_i E_q \log p(y_i | f(x_i)) - KL\big(q(w) \,\|\, N(0, I)\big)

    It is a GPyTorch ApproximateGP, for GPyTorch's objectives, variational distributions and optimizers, and for
    :func:`rfgp.fit`. A minibatch of B rows costs O(B D^2 + D^3), or O(B D) for a diagonal S. The residual
    variance of the features is added to the variances.

    :param kernel: a scalar kernel made by :func:`rfgp.approximate`, or a GPyTorch ScaleKernel around one, whose output
        scale may have the batch shape (C,) for C functions. Complex features enter as real and imaginary parts.
    :param likelihood: any GPyTorch likelihood of one function, or a SoftmaxLikelihood, whose C functions share the
        features.
    :param mean: any GPyTorch mean function, with the batch shape (C,) if wanted; default: ZeroMean.
    :param covariance: the covariance of the weights: "full" or "diagonal"; or a GPyTorch variational distribution of
        the weights, such as a NaturalVariationalDistribution for ``gpytorch.optim.NGD``.
    :raises ValueError: for a kernel without features or of several outputs, or another likelihood or covariance.

    Source: T Section 4.3; Opper & Archambeau 2009.

    >>> import gpytorch, rfgp
    >>> x = torch.rand(100, 2)
    >>> kernel = rfgp.approximate(gpytorch.kernels.PolynomialKernel(power=2), num_features=16, input_dim=2)
    >>> model = WeightSpaceVariationalGP(kernel, gpytorch.likelihoods.BernoulliLikelihood())
    >>> objective = gpytorch.mlls.VariationalELBO(model.likelihood, model, num_data=100)
    >>> objective(model(x), (x[:, 0] > 0.5).float()).shape
    torch.Size([])
    """

    variational_strategy: WeightSpaceVariationalStrategy

    adds_residual_variance: ClassVar[bool] = True
    """Whether the model itself adds the residual variance of the features, so that its kernel does not."""

    def __init__(
        self, kernel: Kernel, likelihood: Likelihood, mean: Mean | None = None, *, covariance: Any = "full"
    ) -> None:
        features = with_features(kernel)
        _check_likelihood(likelihood)
        mean = ZeroMean() if mean is None else mean
        checks.instance("mean", mean, Mean, "a GPyTorch mean", "such as ConstantMean()")
        check_observed_mean(features, mean)
        batch_shape = _batch_shape(likelihood)
        _check_kernel(features, batch_shape)
        width = features.num_scalar_features * (2 if features.is_complex else 1)
        distribution = _distribution(covariance, width, batch_shape).to(reference_tensor(features))
        super().__init__(WeightSpaceVariationalStrategy(self, distribution))
        self.covar_module = features
        self.mean_module = mean
        self.likelihood = likelihood

    @property
    def num_functions(self) -> int:
        """The number C of functions: that of the likelihood."""
        return _batch_shape(self.likelihood).numel()

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior of one function at inputs (..., N, d)."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def posterior(self, x: Tensor) -> MultivariateNormal:
        """The distribution of the functions at inputs (..., N, d), without noise and gradients in the parameters.

        :returns: a MultivariateNormal (..., N), or a MultitaskMultivariateNormal (..., N, C) for C functions.
        :raises ValueError: for bad inputs.
        """
        x = checks.columns(x)
        checks.same_kind(checks.inputs(x), reference_tensor(self.covar_module, x), "x", "the kernel")
        with torch.no_grad():
            return copy.deepcopy(self).variational_strategy.lazy(x)

    def elbo(self, x: Tensor, y: Tensor, num_data: int | None = None) -> Tensor:
        r"""The evidence lower bound, a scalar estimated from B of N rows, without priors; differentiable.

        .. math:: \frac{N}{B} \sum_{i \le B} E_q \log p(y_i | f(x_i)) - KL

        :param x: inputs (B, d).
        :param y: targets or labels (B,).
        :param num_data: the number N of all rows; default: these are all.
        :raises ValueError: for bad data.
        """
        x = checks.columns(x)
        labels = self.checked_targets(x, y)
        count = _num_data(num_data, len(x))
        terms = expected_log_probabilities(self.likelihood, labels, self(x))
        return terms.sum() * (count / len(x)) - self.variational_strategy.kl_divergence()

    @torch.no_grad()
    def natural_step(self, x: Tensor, y: Tensor, num_data: int | None = None, step_size: float = 1.0) -> Tensor:
        """Move the distribution of the weights by a step in the natural gradient, and return the bound before it.

        :param x: inputs (B, d).
        :param y: targets or labels (B,).
        :param num_data: the number N of all rows; default: these are all.
        :param step_size: the length of the step, at most one; halved where the covariance would not stay positive.
        :raises ValueError: for bad data; the model stays as it was.
        """
        x = checks.columns(x)
        if checks.positive("step_size", step_size) > 1.0:
            raise ValueError(f"expected a step_size of at most 1, got {step_size}; a step of 1 goes all the way")
        labels = self.checked_targets(x, y)
        count = _num_data(num_data, len(x))
        weights = self.weights()
        at = self.variational_strategy.at(x)
        found = expected_log_likelihood(self.likelihood, labels, *at.moments(weights))
        scale = count / len(x)
        target = weights.target(at.features, scale * found.d_mean, scale * found.d_variance)
        self.set_weights(weights.stepped(target, step_size))
        return scale * found.value.detach() - weights.kl_divergence.sum()

    def condition(self, x: Tensor, y: Tensor) -> Self:
        """Find the best distribution of the weights, with the parameters as they are, and leave training mode.

        :param x: inputs (N, d).
        :param y: targets (N,), or labels.
        :raises ValueError: for bad data, and for a likelihood whose bound is estimated by random draws.
        """
        x = checks.columns(x)
        if not is_deterministic(self.likelihood):
            raise ValueError(
                f"expected a likelihood without random draws for condition, got {type(self.likelihood).__name__}; call "
                "natural_step(x, y) several times, or rfgp.fit"
            )
        labels = self.checked_targets(x, y)
        with torch.no_grad():
            at = self.variational_strategy.at(x)
            self.set_weights(self.best(at, labels, self.weights()).weights)
        return self.eval()

    def best(self, at: FunctionParts, y: Tensor, start: GaussianWeights) -> RowSites:
        """The distribution of the weights with the largest bound, given checked targets (N,), by steps from a start."""
        return natural_ascent(start, at.features, functools.partial(self._sites, at, y), _PRECISION)

    def _sites(self, at: FunctionParts, y: Tensor, weights: GaussianWeights) -> RowSites:
        found = expected_log_likelihood(self.likelihood, y, *at.moments(weights))
        bound = float(found.value.detach() - weights.kl_divergence.sum())
        return RowSites(weights, bound, found.d_mean, found.d_variance, found.value)

    def weights(self) -> GaussianWeights:
        """The distribution of the weights by its natural parameters, in float64."""
        return GaussianWeights.of(self.variational_strategy.variational_distribution)

    def set_weights(self, weights: GaussianWeights) -> None:
        """Take over a distribution of the weights, of the same shape."""
        self.variational_strategy.set_distribution(weights.distribution())

    def checked_targets(self, x: Tensor, y: Tensor) -> Tensor:
        """Targets or labels (N,) of inputs (N, d) as the likelihood takes them; a ValueError where they do not fit."""
        checks.finite(checks.inputs(x).detach())
        if x.dim() != 2:
            raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        checks.same_kind(x, reference_tensor(self.covar_module, x), "x", "the kernel")
        if isinstance(self.likelihood, SoftmaxLikelihood):
            return checks.labels(y, x, self.likelihood.num_classes)
        checks.finite(checks.one_per_row(checks.tensor(y, "y"), x, "y"), "y")
        if y.is_complex():
            raise ValueError(f"expected real targets, got {y.dtype}; use a WeightSpaceGP for complex ones")
        if isinstance(self.likelihood, BernoulliLikelihood) and not bool(((y == 0) | (y == 1)).all()):
            raise ValueError(
                f"expected labels 0 and 1 for a BernoulliLikelihood, got values between {float(y.min()):g} and "
                f"{float(y.max()):g}; convert them"
            )
        targets = y.to(x.dtype)
        is_plain = isinstance(self.likelihood, OneDimensionalLikelihood)
        return possible_targets(self.likelihood, targets) if is_plain else targets

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state as torch modules do; the state of another model raises an error and changes nothing."""
        states.check(self, state_dict, strict=strict)
        return super().load_state_dict(state_dict, strict, assign)


def _batch_shape(likelihood: Likelihood) -> torch.Size:
    """That of the functions of a likelihood: (C,) where there are several, else ()."""
    if isinstance(likelihood, SoftmaxLikelihood):
        return torch.Size([likelihood.num_features])
    count = likelihood.num_functions if isinstance(likelihood, LogVarianceLikelihood) else None
    return torch.Size() if count is None else torch.Size([count])


def _check_likelihood(likelihood: Any) -> None:
    checks.instance("likelihood", likelihood, Likelihood, "a GPyTorch likelihood", "such as BernoulliLikelihood()")
    if isinstance(likelihood, _REFUSED):
        raise ValueError(
            "expected a likelihood of one function or a SoftmaxLikelihood, got a "
            f"{type(likelihood).__name__}; use a WeightSpaceGP, whose posterior is exact"
        )
    if isinstance(likelihood, SeveralFunctionsLikelihood):
        raise ValueError(
            "expected a likelihood of one function or a SoftmaxLikelihood, got a "
            f"{type(likelihood).__name__} of several; use a LaplaceGP"
        )


def _check_kernel(kernel: FeatureKernel, batch_shape: torch.Size) -> None:
    if kernel.has_output_factor:
        raise ValueError(
            "expected a kernel of one output, got an operator-valued or multitask one; make a model for every output"
        )
    found = kernel.scale_shape
    if kernel.unscaled.batch_shape or found not in (torch.Size(), batch_shape):
        raise ValueError(
            f"expected batch shapes () or {tuple(batch_shape)} of the output scale, and () inside the features, got "
            f"{tuple(kernel.unscaled.batch_shape or found)}; batch only the ScaleKernel, over the functions"
        )


def _distribution(covariance: Any, width: int, batch_shape: torch.Size) -> Any:
    """GPyTorch's distribution of the weights, at the prior."""
    if isinstance(covariance, str):
        checks.choice("covariance", covariance, tuple(_DISTRIBUTIONS))
        return _DISTRIBUTIONS[covariance](width, batch_shape)
    shape = getattr(covariance, "shape", None)
    found = tuple(shape()) if isinstance(covariance, torch.nn.Module) and callable(shape) else None
    if found != (*batch_shape, width) or not isinstance(covariance(), MultivariateNormal):
        raise ValueError(
            f'expected "full", "diagonal" or a normal variational distribution of shape {(*batch_shape, width)} for '
            f"covariance, got {type(covariance).__name__} of shape {found}; give it {width} inducing points and the "
            f"batch shape {tuple(batch_shape)}"
        )
    return covariance


def _num_data(num_data: int | None, num_rows: int) -> int:
    """The number of all rows, of which some are given, or raise."""
    count = num_rows if num_data is None else checks.positive_integer("num_data", num_data)
    if count < num_rows:
        raise ValueError(f"expected num_data of at least the {num_rows} rows of x, got {num_data}; count all rows")
    return count
