"""Regression with noise that depends on the inputs and is learned: a second Gaussian process for its logarithm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import gpytorch
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean, Mean
from torch import Tensor

from ..._support import checks, states
from ...approximation import with_features
from ...inference.latent.variational import GaussianWeights
from ...inference.sums.mean_basis import mean_values
from ...likelihoods import LogVarianceLikelihood, MultitaskFixedNoiseGaussianLikelihood, MultivariateNormal
from ...likelihoods.quadrature import log_mean_density
from ..variational.model import WeightSpaceVariationalGP
from ..weight_space import WeightSpaceGP
from ..weight_space.predictor import log_evidence
from ..weight_space.row_summation import check_rows
from .noise_fit import NoiseFit, TrainingParts, best_fit, least_noise

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel


class KnownNoiseGP(WeightSpaceGP):
    """The function with known noise: what a grid cuts off is no noise of its rows, in the posterior as in the bound."""

    @property
    def raises_noise(self) -> bool:
        return False


class HeteroscedasticGP(torch.nn.Module):
    r"""A Gaussian process with random features and a noise variance that a second one learns as a function of x.

    .. math:: y_t = f_t(x) + \epsilon_t, \qquad \epsilon_t \sim N(0, e^{g_t(x)}), \qquad
        f_t(x) = m_t(x) + \phi_t(x)^\top w, \quad g_t(x) = m_g(x) + \psi(x)^\top u_t

    With :math:`q(u) = N(\mu, S)` and :math:`s_i = \exp(E g_i - \tfrac12 \mathrm{Var}\, g_i)`,

    .. math:: \log p(y) \ge \log N(y; m, \Phi \Phi^\top + \mathrm{diag}(s)) - \tfrac14 \sum_i \mathrm{Var}\, g_i
        - KL\big(q(u) \,\|\, N(0, I)\big)

    :meth:`condition` maximizes it over q(u) by natural-gradient steps of O(N D^2); :func:`rfgp.fit` learns all other
    parameters from it too. No noise below the rounding of the targets, or of the regression, is learned.

    :param kernel: the kernel of f, of one or several outputs, made by :func:`rfgp.approximate`.
    :param noise_kernel: the kernel of the log noise variances, scalar, with real or complex features.
    :param mean: the mean function of f, as for :class:`WeightSpaceGP`; default: ZeroMean.
    :param noise_mean: that of g, with the batch shape (T,) or none; default: a ConstantMean for every output.
    :raises ValueError: for kernels without features or of the wrong kind, complex features of f, or maps that wait for
        the first inputs.

    Source: Goldberg, Williams and Bishop (1997); Lazaro-Gredilla and Titsias (2011), Eq. 5.

    >>> import gpytorch, rfgp
    >>> x, y = torch.rand(200, 1).double(), torch.randn(200).double()
    >>> kernels = [gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double() for _ in range(2)]
    >>> model = HeteroscedasticGP(*[rfgp.approximate(kernel, 32, input_dim=1, seed=0) for kernel in kernels])
    >>> model.condition(x, y).noise_variance(x[:3]).shape
    torch.Size([3])
    """

    def __init__(
        self, kernel: Kernel, noise_kernel: Kernel, mean: Mean | None = None, noise_mean: Mean | None = None
    ) -> None:
        super().__init__()
        features = with_features(kernel)
        if features.is_complex:
            raise ValueError(
                "expected real features of the function, got complex ones, whose real part has no evidence; use the "
                ":ctr form of the method"
            )
        outputs = _num_outputs(features)
        self.function = KnownNoiseGP(features, _known_noise(features, outputs), mean)
        self._set_residual(is_in_bound=False)
        count = outputs if features.has_output_factor else None
        if noise_mean is None:
            noise_mean = ConstantMean(batch_shape=torch.Size([] if count is None else [count]))
            noise_mean = noise_mean.to(next(features.parameters()))
        self.log_noise = WeightSpaceVariationalGP(noise_kernel, LogVarianceLikelihood(count), noise_mean)
        self.bound: float | None = None

    @property
    def covar_module(self) -> FeatureKernel:
        """The kernel of the function."""
        return self.function.covar_module

    @property
    def mean_module(self) -> Mean:
        """The mean of the function."""
        return self.function.mean_module

    @property
    def likelihood(self) -> Likelihood:
        """Known noise: that of a row is given by :meth:`noise_variance`."""
        return self.function.likelihood

    @property
    def num_outputs(self) -> int:
        """The number T of outputs."""
        return self.function.num_outputs

    def condition(self, x: Tensor, y: Tensor) -> Self:
        """Find the best distributions of function and log noise, with the parameters as they are.

        :param x: inputs (N, d).
        :param y: targets (N,), or (N, T) for several outputs, with NaN for missing ones.
        :raises ValueError: for bad data; the model stays as it was.
        """
        x = checks.columns(x)
        before = self._state()
        try:
            with torch.no_grad():
                at = self.parts(x, y)
                best = self.best(at, self.log_noise.weights())
                self.set(at, best)
        except BaseException:
            self._restore(before)
            raise
        return self

    def __call__(self, x: Tensor) -> MultivariateNormal:
        """The posterior of the function at inputs, as GPyTorch's models give it: :meth:`posterior`."""
        return self.posterior(x)

    def posterior(self, x: Tensor) -> MultivariateNormal:
        """The posterior of the function at inputs (..., N, d), or (N, d) for several outputs, without noise.

        :raises ValueError: for bad inputs, or where the model is not fitted, or stale.
        """
        x = checks.columns(x)
        posterior: Any = self.function.posterior(x)
        return posterior

    def noise_variance(self, x: Tensor) -> Tensor:
        r"""The expected noise variance :math:`\exp(E g + \tfrac12 \mathrm{Var}\, g)`, (N,) or (N, T), at x (N, d)."""
        x = checks.columns(x)
        log_noise = self.log_noise.posterior(x)
        return (log_noise.mean + 0.5 * log_noise.variance).exp()

    def predictive(self, x: Tensor) -> MultivariateNormal:
        """Mean and covariance of new targets at inputs (N, d), with the expected noise variance.

        The density of a target is no normal one: see :meth:`log_prob`.
        """
        x = checks.columns(x)
        noisy: Any = self.likelihood(self.posterior(x), noise=self.noise_variance(x))
        return noisy

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        r"""The log density of each target, :math:`\log E_g N(y; E f, \mathrm{Var} f + e^g)`, by quadrature.

        :param x: inputs (N, d).
        :param y: targets (N,), or (N, T), as is the result, with NaN for missing ones.
        :raises ValueError: for bad data.
        """
        x = checks.columns(x)
        function, log_noise = self.posterior(x), self.log_noise.posterior(x)
        if checks.floating(y, "y").shape != function.mean.shape:
            raise ValueError(f"expected y of shape {tuple(function.mean.shape)}, got {tuple(y.shape)}; pass targets")
        function_variance, square = function.variance.unsqueeze(-1), (y - function.mean).square().unsqueeze(-1)

        def log_density(g: Tensor) -> Tensor:
            variance = function_variance + g.exp()
            return -0.5 * ((2.0 * math.pi * variance).log() + square / variance)

        return log_mean_density(log_density, log_noise.mean, log_noise.variance).to(y.dtype)

    def parts(self, x: Tensor, y: Tensor) -> TrainingParts:
        """Training data x (N, d) and y (N,) or (N, T), with the parts of log noise; a ValueError for bad data."""
        checks.finite(checks.inputs(x).detach())
        checks.tensor(y, "y")
        wanted = (len(x), self.num_outputs) if self.covar_module.has_output_factor else (len(x),)
        if x.dim() != 2 or not y.is_floating_point() or y.shape != wanted:
            raise ValueError(
                f"expected real targets of shape {wanted} for x of shape (N, d), got {y.dtype} {tuple(y.shape)} for "
                f"{tuple(x.shape)}; reshape them"
            )
        observed = ~torch.isnan(y)
        if not bool(observed.any()):
            raise ValueError("expected an observed target at least, got none; check for NaN")
        if not bool(torch.isfinite(y[observed]).all()):
            raise ValueError("expected finite targets, got infinite ones; remove these rows")
        if y.dim() == 1:
            x, y, observed = x[observed], y[observed], observed[observed]
        with torch.no_grad():
            prior = self.covar_module(x).evaluate_kernel()
            mean = mean_values(self.mean_module, x).expand(len(x), self.num_outputs).reshape(y.shape)
            residual = torch.where(observed, y - mean, 0.0).double()
            missing = least_noise(y, self.mean_module, x, prior)
            residual_variance = None if self.covar_module.has_output_factor else self.covar_module.residual_variance(x)
            if residual_variance is not None:
                missing = missing + residual_variance.double()
        return TrainingParts(x, y, observed, self.log_noise.variational_strategy.at(x), prior, residual, missing)

    def best(self, at: TrainingParts, start: GaussianWeights) -> NoiseFit:
        """The distribution of the weights of log noise that maximizes the bound, by steps from a start."""
        return best_fit(at, self.log_noise.likelihood, start)

    def set(self, at: TrainingParts, fit: NoiseFit) -> None:
        """Take over a distribution of log noise, and fit the function with it."""
        self._set_residual(is_in_bound=False)
        self.function.condition(at.x, at.y, noise=fit.noise)
        self.log_noise.set_weights(fit.weights)
        self.log_noise.eval()
        self.bound = fit.bound

    def collapsed(self, at: TrainingParts, noise: Tensor) -> Tensor:
        """The log evidence with known noise variances (N,) or (N, T), differentiable in the parameters of f."""
        has_residual = self.covar_module.residual_variance(at.x[:1].detach()) is not None
        self._set_residual(is_in_bound=has_residual)
        return log_evidence(self.function, check_rows(self.function, at.x, at.y, noise, is_all=True))

    def _set_residual(self, is_in_bound: bool) -> None:
        """Let sums for the bound contain the variance that features of one output lack."""
        is_single = not self.covar_module.has_output_factor
        self.function.residual = "vfe" if is_single and is_in_bound else "none"

    def _state(self) -> tuple[Any, ...]:
        strategy = self.log_noise.variational_strategy
        values = [p.detach().clone() for p in strategy.parameters()]
        return dict(self.function.__dict__), values, self.bound, self.log_noise.training

    def _restore(self, state: tuple[Any, ...]) -> None:
        attributes, values, self.bound, training = state
        self.function.__dict__.clear()
        self.function.__dict__.update(attributes)
        with torch.no_grad():
            for parameter, value in zip(self.log_noise.variational_strategy.parameters(), values, strict=True):
                parameter.copy_(value)
        self.log_noise.train(training)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state as torch modules do; the state of another model raises an error and changes nothing."""
        before = self._state()
        try:
            states.check(self.log_noise, _under("log_noise.", state_dict), strict=strict)
            self.function.load_state_dict(_under("function.", state_dict), strict, assign)
            return self.log_noise.load_state_dict(_under("log_noise.", state_dict), strict, assign)
        except BaseException:
            self._restore(before)
            raise


def _num_outputs(kernel: FeatureKernel) -> int:
    factor = kernel.output_factor()
    return 1 if isinstance(factor, Tensor) else factor.num_outputs


def _known_noise(kernel: FeatureKernel, num_outputs: int) -> gpytorch.likelihoods.Likelihood:
    like = next(kernel.parameters())
    if kernel.has_output_factor:
        return MultitaskFixedNoiseGaussianLikelihood(like.new_ones(1, num_outputs))
    return FixedNoiseGaussianLikelihood(like.new_ones(1))


def _under(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a state under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
