"""The interface of kernels with random features: what :func:`rfgp.approximate` returns."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from linear_operator.operators import LinearOperator
from torch import Tensor

from .._support import checks
from ..features.random_weights import weights_kept_on_error
from ..functionals import Operator
from ..inference import OutputFactor
from ..inference.posterior.covariance import ResidualCovariance
from ..kernels.checked import CheckedKernel, refuse_last_dim_is_batch
from ..kernels.randomized import randomized
from ..linalg import row_chunks
from ..linalg.frequency_grid import FrequencyGrid
from .checked_state import CheckedState
from .hooks.kernel_matrix import kernel_matrix, with_residual
from .hooks.output_features import OutputFeatures
from .hooks.prediction import FeaturePredictionStrategy
from .map_holder import map_holders, maps_kept_on_error
from .reference_tensor import reference_tensor
from .registry import composed
from .waves import Waves


class KernelMoments(NamedTuple):
    """Moments of a kernel estimate over the weights: mean (..., N T, M T), and variance (..., N, M) per block."""

    mean: Tensor
    variance: Tensor


class RandomFeatureKernel(CheckedKernel, CheckedState, Kernel, abc.ABC):
    r"""The base class of all kernels that :func:`rfgp.approximate` returns.

    .. math:: k(x, y) \approx \mathrm{Re}\, \phi(x) \phi(y)^H

    A kernel has the three abstract members, and of those below them what differs from the default. Members called
    ``active_...`` take inputs whose ``active_dims`` have been selected.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=64, input_dim=3)
    >>> kernel.features(torch.zeros(5, 3)).shape
    torch.Size([5, 64])
    """

    active_dims: Any
    includes_residual: bool = False
    """Whether matrices have the variance that the features leave over: in GPyTorch's variational models, where nothing
    else adds it. It is :math:`r(x)` where two inputs are equal, and zero elsewhere."""

    # What every kernel has to define

    @property
    @abc.abstractmethod
    def exact_kernel(self) -> Kernel:
        """The exact kernel, with the same parameters."""

    @property
    @abc.abstractmethod
    def num_scalar_features(self) -> int:
        """The number of columns D of the scalar features; a ValueError where a map has not been made yet."""

    @abc.abstractmethod
    def active_features(self, x: Tensor) -> Tensor:
        """The scalar features, (..., N, d) to (..., N, D)."""

    # What a kernel may define

    @property
    def parts(self) -> list[Any]:
        """The kernels with features that this one is made of; none for one with features of its own."""
        return []

    @property
    def is_complex(self) -> bool:
        """Whether the features are complex; the kernel is then their real part."""
        return any(part.is_complex for part in self.parts)

    @property
    def has_unbiased_columns(self) -> bool:
        """Whether every column alone, times the root of D, estimates the kernel without bias."""
        return False

    def columnwise(self) -> RandomFeatureKernel | None:
        """The kernel with the same weights in unbiased columns, complex where they are pairs; None where none exist."""
        return None

    @property
    def has_output_factor(self) -> bool:
        """Whether the kernel is operator-valued, with an OutputFactor."""
        return False

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        """The root (..., 1, 1) of the output scale of scalar kernels, else the factor of the outputs or of an operator.

        :raises ValueError: where there is no such operator for the kernel, or a map has not been made yet.
        """
        if operator is not None:
            check_no_operator(operator)
        return reference_tensor(self).new_ones(1, 1)

    @property
    def scale_shape(self) -> torch.Size:
        """The batch shape of the output scale."""
        factor = self.output_factor()
        return factor.shape[:-2] if isinstance(factor, Tensor) else factor.batch_shape

    def summands(self) -> list[Any]:
        """The kernels with features that add up to this one."""
        return [self]

    def separated(self) -> tuple[Any, Tensor] | None:
        """A scalar kernel and a covariance (T, T) of outputs whose product this is; None where there are none."""
        return None

    def active_real_features(self, x: Tensor) -> Tensor:
        """The scalar features, complex ones with their real and imaginary parts side by side."""
        features = self.active_features(x)
        return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        """What :meth:`residual_covariance` returns."""
        return None

    @property
    def has_residual_covariance(self) -> bool:
        r"""Whether :math:`k(x, y) - \phi(x) \phi(y)^\top` is positive semidefinite, as for landmarks."""
        return False

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        """Mean and variance of the estimate; None where there is no closed form."""
        return None

    def active_waves(self, input_dim: int) -> Waves:
        """The plane waves that the features are, as functions of ``input_dim`` columns."""
        raise ValueError(
            f"expected Fourier features of a shift-invariant kernel, got others of {type(self.exact_kernel).__name__}; "
            'use a Fourier method, or method="landmarks" for the whole kernel'
        )

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that ``scalar_features`` depends on."""
        return self.parameters()

    @property
    def active_frequency_grid(self) -> FrequencyGrid | None:
        """The equispaced frequencies whose cosines and sines, times amplitudes, are the scalar features; else None."""
        return None

    @property
    def summed_amplitudes(self) -> Tensor | None:
        """The amplitudes (D,) of the features of a frequency grid, which sums over rows do not contain."""
        return None

    def active_summed_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) without these amplitudes; a ValueError for rows outside the box of a grid."""
        return self.active_features(x)

    @property
    def version(self) -> int:
        """How many times the weights have been drawn anew; caches compare it."""
        total = 0
        for part in self.parts:
            total += part.version
        return total

    @property
    def input_dim(self) -> int:
        """The number of columns that ``active_dims`` leave; a ValueError where a map has not been made yet."""
        return self.parts[0].input_dim if self.parts else map_holders(self)[0].made_map().input_dim

    @property
    def exact_parts(self) -> list[Any]:
        """The modules beside kernels with features that have parameters of this one."""
        return []

    @property
    def unscaled(self) -> Any:
        """The kernel inside output scales."""
        return self

    @property
    def total_outputscale(self) -> Tensor:
        """The product of the output scales around ``unscaled``."""
        return reference_tensor(self).new_ones(())

    @property
    def description(self) -> str:
        """What a state has to agree in beside its tensors: the kind of the kernel, and settings that are no tensors."""
        return f"{type(self).__name__}(is_complex={self.is_complex})"

    # What users and models call

    def features(self, x: Tensor) -> Tensor:
        """Features (..., N, D) of the full inputs (..., N, d), or (..., N T, K) for T outputs, rows interleaved.

        :raises ValueError: for inputs of another dtype, or with which the features overflow.
        """
        x = checks.columns(x)
        with maps_kept_on_error(self):
            return checks.no_overflow(self.all_features(x), x, self)

    def all_features(self, x: Tensor) -> Tensor:
        """What :meth:`features` returns, which may be infinite."""
        scalar = self.scalar_features(x)
        return self.outputs_factor().features(scalar) if self.has_output_factor else scalar

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) of the full inputs (..., N, d), without the output factor.

        :raises ValueError: for inputs of another dtype or device.
        """
        x = checks.columns(x)
        checks.same_kind(checks.inputs(x), reference_tensor(self, x), "x", "the kernel")
        return self.active_features(self.selected(x))

    def feature_operator(self, x: Tensor) -> OutputFeatures:
        """The features (..., N T, K) of many outputs as a linear operator, whose products cost O(N n T); B 5.4.

        :raises ValueError: for a scalar kernel, whose features are ``features(x)``.
        """
        with maps_kept_on_error(self):
            return OutputFeatures.of(self.scalar_features(x), self.outputs_factor())

    def selected(self, x: Tensor) -> Tensor:
        """The columns of the full inputs that ``active_dims`` select; a ValueError where there are too few."""
        if self.active_dims is None:
            return x
        if int(self.active_dims.max()) >= x.shape[-1]:
            raise ValueError(
                f"expected x with more than {int(self.active_dims.max())} columns as active_dims says, got "
                f"{x.shape[-1]}; correct one of the two"
            )
        return x.index_select(-1, self.active_dims)

    def outputs_factor(self) -> OutputFactor:
        """The factor of several outputs; a ValueError where there is one."""
        factor = self.output_factor()
        if not isinstance(factor, OutputFactor):
            raise ValueError("expected a kernel of several outputs, got a scalar one; use features(x)")
        return factor

    def residual_variance(self, x: Tensor) -> Tensor | None:
        r"""The prior variance that landmarks, a grid or a truncated series lack, :math:`k(x, x) - \|\phi(x)\|^2`.

        Predictions add it. It is (..., N), or (..., N T) for T outputs; None for features of the whole kernel.

        :raises ValueError: where a map has not been made yet.
        """
        residual = self.residual_covariance(x)
        return None if residual is None else residual.variance()

    def residual_covariance(self, x: Tensor) -> ResidualCovariance | None:
        r"""What the features lack of the covariance (T, T) of outputs at points, :math:`K(x, x) - F(x) F(x)^\top`.

        None for features of the whole kernel.

        :raises ValueError: where a map has not been made yet.
        """
        selected = self.selected(checks.inputs(x))
        chunks = row_chunks(x.shape[-2], self.num_scalar_features)
        parts = [part for rows in chunks if (part := self.active_residual(selected[..., rows, :])) is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        return parts[0]._replace(variances=torch.cat([part.variances for part in parts], dim=-2))

    def moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        """Mean (..., N T, M T) and variance (..., N, M) of the estimate; None where there is no closed form."""
        return self.active_moments(self.selected(x), self.selected(y))

    @property
    def frequency_grid(self) -> FrequencyGrid | None:
        """:attr:`active_frequency_grid` for the full inputs."""
        grid, dims = self.active_frequency_grid, self.active_dims
        return grid if grid is None or dims is None else grid.selecting(dims)

    def summed_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that sums over rows depend on: none for a frequency grid."""
        return self.feature_parameters()

    def summed_features(self, x: Tensor) -> Tensor:
        """:meth:`active_summed_features` of the full inputs."""
        return self.active_summed_features(self.selected(x))

    def waves(self, input_dim: int) -> Waves:
        """The plane waves of Fourier features, per unit of the full inputs; a ValueError for other features."""
        if self.active_dims is None:
            return self.active_waves(input_dim)
        return self.active_waves(self.active_dims.numel()).embedded(self.active_dims, input_dim)

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new weights in place, from PyTorch's CPU generator by default; a ValueError before a map was made."""
        with weights_kept_on_error(self):
            for part in map_holders(self):
                part.made_map().resample(generator)
        return self

    def __add__(self, other: Kernel) -> Kernel:
        """The sum with another kernel, whose features are those of both side by side."""
        return composed(super().__add__(other), other)

    def __mul__(self, other: Kernel) -> Kernel:
        """The product with another kernel; a ValueError where both have the same random weights."""
        return composed(super().__mul__(other), other)

    def __radd__(self, other: Kernel) -> Kernel:
        """The sum, where this kernel is of a subclass of the other's class."""
        return composed(Kernel.__add__(other, self), other) if isinstance(other, Kernel) else NotImplemented

    def __rmul__(self, other: Kernel) -> Kernel:
        """The product, where this kernel is of a subclass of the other's class."""
        return composed(Kernel.__mul__(other, self), other) if isinstance(other, Kernel) else NotImplemented

    # What GPyTorch calls

    def __call__(self, x1: Tensor, x2: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """GPyTorch's lazy kernel matrix; inputs of another dtype or device are refused at once."""
        for x in (x1, x2):
            if isinstance(x, Tensor) and x.is_floating_point():
                checks.same_kind(x, reference_tensor(self, x), "x", "the kernel")
        return super().__call__(x1, x2, *args, **kwargs)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        """The kernel matrix of selected inputs, as an operator that knows its features, or its diagonal."""
        refuse_last_dim_is_batch(last_dim_is_batch)
        matrix = kernel_matrix(self, x1, x2, diag)
        return with_residual(self, matrix, x1, x2, diag) if self.includes_residual else matrix

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """One, or the number of outputs of the exact kernel."""
        return self.exact_kernel.num_outputs_per_input(x1, x2) if self.has_output_factor else 1

    def prediction_strategy(
        self,
        train_inputs: list[Tensor],
        train_prior_dist: MultivariateNormal,
        train_labels: Tensor,
        likelihood: Likelihood,
    ) -> FeaturePredictionStrategy:
        """Predictions in weight space."""
        return FeaturePredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def to_random_module(self) -> Self:
        """GPyTorch's copy for Pyro, whose parameters become those that are sampled."""
        return randomized(self)


def check_parts(kernels: Iterable[Any]) -> None:
    """Raise a ValueError where the parts of a composition are not kernels with features, or there are none."""
    for part in list(kernels) or [None]:
        what, advice = "a kernel with features", "wrap it with rfgp.approximate"
        checks.instance("every part", part, RandomFeatureKernel, what, advice)


def check_no_operator(operator: Operator | None) -> None:
    """Raise a ValueError where an operator is asked for from a kernel that has no frequencies to apply it to."""
    if operator is not None:
        raise ValueError(
            f"expected an operator-valued kernel for the prediction of {operator}, got a scalar or decomposable one; "
            "observe a scalar Gaussian or Matern kernel by LinearlyObservedKernel(kernel, [Value()])"
        )
