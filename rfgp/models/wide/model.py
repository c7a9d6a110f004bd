"""Gaussian-process regression with more features than a Gram matrix can have."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from ..._support import checks
from ...approximation import with_features
from ...approximation.map_holder import maps_kept_on_error
from ...approximation.width_warning import warn_of_width
from ...inference import NoiseModel, noise_model
from ...inference.posterior.regression import Regression
from ...inference.sums.mean_basis import basis, check_mean, coefficients
from ...kernels.observation import check_observed_mean
from ...likelihoods import MultivariateNormal
from ...linalg import row_chunks
from ..record import WEIGHTS, Record, Recorded, WeightsCode
from ..weight_space import WeightSpaceGP
from ..weight_space.checks import check_scalar_kernel
from .weight_equations import Convergence, WeightEquations, solved


class WideWeightSpaceGP(Recorded["_Fitted"]):
    r"""Regression whose posterior mean has more features than a D x D matrix allows, by conjugate gradients.

    .. math:: B m = \Phi^\top S^{-1} (y - \mu), \qquad B = I + \Phi^\top S^{-1} \Phi, \qquad
        E f(x) = \mu(x) + \phi(x)^\top m

    Memory is N + chunk x D, and D x rank for a Nystrom preconditioner. Variances are those of the narrow kernel.
    Parameters are taken as they are: find them with a :class:`WeightSpaceGP` of the narrow kernel, which shares them
    where both kernels are made of the same exact one.

    :param kernel: the wide kernel, made by :func:`rfgp.approximate`, of one output and with real features.
    :param likelihood: a Gaussian or fixed-noise likelihood.
    :param mean: ZeroMean, ConstantMean or LinearMean; default: ZeroMean.
    :param narrow_kernel: the kernel that the variances come from, with some 1,000 or 2,000 columns.
    :param preconditioner_rank: the number of columns of the preconditioner; more make fewer iterations.
    :param tolerance: how far the mean may be from that of a direct solution, in posterior standard deviations.
    :param max_iterations: the largest number of iterations.
    :raises ValueError: for kernels of several outputs or with complex features, or another likelihood or mean.

    Source: T Eq. B.18 and B.19; identity 8 of the errata, in weight space.

    >>> import gpytorch, rfgp
    >>> exact = gpytorch.kernels.RBFKernel()
    >>> wide, narrow = (rfgp.approximate(exact, width, input_dim=2, seed=0) for width in (512, 32))
    >>> model = WideWeightSpaceGP(wide, gpytorch.likelihoods.GaussianLikelihood(), narrow_kernel=narrow)
    >>> model.condition(torch.rand(600, 2), torch.rand(600)).convergence.is_converged
    True
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        mean: Mean | None = None,
        *,
        narrow_kernel: Kernel,
        preconditioner_rank: int = 1024,
        tolerance: float = 0.01,
        max_iterations: int = 1000,
    ) -> None:
        self.covar_module = with_features(kernel)
        self.narrow_kernel = with_features(narrow_kernel)
        self.likelihood = likelihood
        self.mean_module = check_mean(ZeroMean() if mean is None else mean)
        check_observed_mean(self.covar_module, self.mean_module)
        self.noise = _checked_noise(likelihood, self.covar_module, self.narrow_kernel)
        for part in (self.covar_module, self.narrow_kernel):
            check_scalar_kernel(part, self.mean_module, self.noise)
        self.preconditioner_rank = checks.positive_integer("preconditioner_rank", preconditioner_rank)
        self.tolerance = checks.positive("tolerance", tolerance, "0.01 is a hundredth of a standard deviation")
        self.max_iterations = checks.positive_integer("max_iterations", max_iterations)
        self._weights_code = WeightsCode()

    @property
    def convergence(self) -> Convergence:
        """The iterations and the residual of the last fit."""
        return self._known().convergence

    @property
    def weights(self) -> Tensor:
        """The posterior mean of the weights of the features (D,), in float64."""
        return self._known().weights

    @property
    def narrow(self) -> WeightSpaceGP:
        """The narrower model that the variances come from, conditioned on the same rows."""
        return self._known().narrow

    @torch.no_grad()
    def condition(self, x: Tensor, y: Tensor, noise: Tensor | None = None, *, progress: bool | None = None) -> Self:
        """Compute the wide posterior mean and the narrow variances, without gradients; warns without convergence.

        :param x: inputs (N, d).
        :param y: targets (N,).
        :param noise: noise variances (N,), for a fixed-noise likelihood.
        :param progress: whether a bar counts the passes over the rows; default: on a terminal.
        :raises ValueError: for bad data; the model stays as it was.
        """
        x = checks.columns(x)
        with maps_kept_on_error(self.covar_module), maps_kept_on_error(self.narrow_kernel):
            narrow = WeightSpaceGP(self.narrow_kernel, self.likelihood, self.mean_module).condition(x, y, noise)
            weights, convergence = self._solved(x, y, noise, progress)
            self._fitted = _Fitted(weights, convergence, narrow, Record(self._state()))
        return self

    def _solved(self, x: Tensor, y: Tensor, noise: Tensor | None, progress: bool | None) -> tuple[Tensor, Convergence]:
        columns = basis(self.mean_module, x)
        rows = self.noise.rows(x, y, noise, columns, is_all=True)
        mean = columns.double() @ coefficients(self.mean_module, 1, x.device)
        self.covar_module.scalar_features(x[:1])
        width, scale = self.covar_module.num_scalar_features, self._scale()
        if width > len(x):
            warn_of_width(self.covar_module, f"{width} features exceed the {len(x)} training rows", stacklevel=4)
        equations = WeightEquations(
            self.covar_module.scalar_features,
            width,
            x,
            (rows.targets[:, 0].double() - mean.squeeze(-1)) / scale,
            scale.square() / self.noise.variances(rows),
        )
        settings = self.preconditioner_rank, self.tolerance, self.max_iterations
        weights, convergence = solved(equations, *settings, progress)
        if not convergence.is_converged:
            warnings.warn(
                f"conjugate gradients ended after {convergence.num_iterations} iterations with a residual of "
                f"{convergence.residual:.2g}, above the tolerance of {self.tolerance:.2g}: the mean may be off by "
                f"{convergence.residual:.2g} posterior standard deviations; raise max_iterations, preconditioner_rank "
                "or tolerance",
                stacklevel=4,
            )
        return weights, convergence

    def posterior(self, x: Tensor) -> MultivariateNormal:
        """The posterior of the function at inputs (..., N, d): wide mean, narrow covariance.

        :raises ValueError: for bad inputs, or where the model is not conditioned, or stale.
        """
        x = checks.columns(x)
        fitted = self._known()
        narrow: Any = fitted.narrow.posterior(x)
        regression = Regression(self.covar_module, self.mean_module, self.noise)
        return MultivariateNormal(regression.function(fitted.weights.unsqueeze(-1), x), narrow.lazy_covariance_matrix)

    @torch.no_grad()
    def mean_error_bound(self, x: Tensor) -> Tensor:
        r"""A bound (..., N) on the error of the mean at inputs (..., N, d), in the units of the targets.

        .. math:: |\phi(x)^\top (B^{-1} h - m)| \le \|\phi(x)\|\, \|h - B m\|

        :raises ValueError: for bad inputs, or where the model is not conditioned, or stale.
        """
        x = checks.columns(x)
        fitted, features = self._known(), self.covar_module.scalar_features
        checks.finite(checks.inputs(x))
        chunks = row_chunks(x.shape[-2], len(fitted.weights))
        norms = [torch.linalg.vector_norm(features(x[..., rows, :]), dim=-1, dtype=torch.float64) for rows in chunks]
        return self._scale() * fitted.convergence.residual * torch.cat(norms, dim=-1)

    def _scale(self) -> Tensor:
        """The root of the output scale, in float64."""
        root: Tensor = self.covar_module.output_factor()
        return root.detach().double().reshape(())

    def _state(self) -> dict[str, Tensor]:
        """What the mean depends on, by name."""
        parts = {"kernel": self.covar_module, "likelihood": self.likelihood, "mean": self.mean_module}
        state = {f"{part}.{name}": p for part, module in parts.items() for name, p in module.named_parameters()}
        fixed = self.covar_module.named_buffers()
        state |= {name: value for name, value in fixed if name.rpartition(".")[2] in ("center", "landmarks")}
        return {name: value.detach() for name, value in state.items()} | {
            WEIGHTS: self._weights_code.of(self.covar_module)
        }


class _Fitted(NamedTuple):
    """What was fitted, and what it was fitted with."""

    weights: Tensor
    convergence: Convergence
    narrow: WeightSpaceGP
    record: Record


def _checked_noise(likelihood: Likelihood, *parts: Any) -> NoiseModel:
    """The noise model of a likelihood, or a ValueError where the model is not one of real numbers of one output."""
    if any(part.has_output_factor or part.batch_shape or part.is_complex for part in parts):
        raise ValueError(
            "expected kernels of one output with real features, got several outputs, batches or complex features; make "
            "a model for each output, or use the real or :ctr form of the method"
        )
    noise = noise_model(likelihood)
    if noise.num_systems * noise.num_outputs > 1 or noise.is_batched or noise.is_complex:
        raise ValueError(
            f"expected a Gaussian or fixed-noise likelihood, got {type(likelihood).__name__}; use a WeightSpaceGP"
        )
    return noise
