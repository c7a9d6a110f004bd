"""Families: how each class of kernels is approximated, and the registry of families by kernel class."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from .._support.torch_names import has_values
from ..functionals import Operator
from ..inference import OutputFactor
from ..inference.posterior.covariance import ResidualCovariance
from ..kernels.checked import CheckedKernel
from ..kernels.stationary import StationaryKernel
from ..linalg import row_chunks
from ..linalg.frequency_grid import FrequencyGrid
from .landmarks import Landmarks
from .maps import DrawnMap, OwnMaps, WholeMaps
from .method import FeatureMethod
from .reference_tensor import reference_tensor
from .registry import FAMILIES, OF_MAPS, HasFeatures, without_features
from .request import Request
from .spectral_factor import SpectralFactor
from .spectral_weights import GridFrequencies, SpectralWeights, no_density
from .waves import Waves


class KernelMoments(NamedTuple):
    """Moments of a kernel estimate over the weights: mean (..., N T, M T), and variance (..., N, M) per block."""

    mean: Tensor
    variance: Tensor


class Family(abc.ABC):
    r"""How one class of kernels is approximated: the base class of what :func:`approximates` registers.

    A family looks at an exact kernel, and at the maps that it has drawn for it:

    .. math:: k(x, y) \approx \mathrm{Re}\, \phi(x) \phi(y)^H

    It is made anew wherever it is asked for, so that it has no state. A family of your own has the abstract members,
    and of the others what differs from the default. Members called ``active_...`` take inputs whose ``active_dims``
    have been selected.

    :param kernel: the kernel, with its present parameters.
    :param maps: what :meth:`draw` has returned, or None before; :class:`OwnMaps` where parts have theirs.

    >>> import gpytorch
    >>> family(gpytorch.kernels.RBFKernel()).methods[0]
    'fourier'
    """

    settings: ClassVar[tuple[str, ...]] = ()
    """Names of attributes of the kernel, other than tensors and parts, that a loaded state has to match."""
    passes_on: ClassVar[tuple[type[WholeMaps], ...]] = ()
    """Maps of whole kernels that belong to the kernel inside this one."""

    def __init__(self, kernel: Any, maps: Any = None) -> None:
        self.kernel = kernel
        self.maps = maps

    @classmethod
    def resolved(cls, kernel: Any) -> Any:
        """The kernel that is looked at in place of one, which has the same values and parameters."""
        return kernel

    # How a kernel is drawn

    @abc.abstractmethod
    def draw(self, request: Request) -> torch.nn.Module:
        """The maps whose features approximate the kernel; a ValueError without any."""

    def draw_landmarks(self, request: Request) -> torch.nn.Module:
        """Rows of the training inputs as landmarks.

        :raises ValueError: without training inputs, and for a kernel of several outputs.
        """
        method, x = request.method, request.select(self.kernel).x
        if x is None or method is None:
            raise ValueError(
                f"expected train_inputs for {str(method)!r}, whose landmarks are rows of them, got none; pass "
                "train_inputs, or make rfgp.approximation.LandmarkKernel(kernel, landmarks)"
            )
        rows = x.detach().reshape(-1, x.shape[-1]).to(reference_tensor(self.kernel, request.like))
        return Landmarks.chosen(self.kernel, rows, request.num_features, method.name, next(request.seeds))

    def draw_grid(self, request: Request) -> torch.nn.Module:
        """A grid of frequencies; a ValueError without a spectral density."""
        raise no_density(self.kernel)

    def spectral_weights(self, at: GridFrequencies) -> SpectralWeights:
        """The spectral density at frequencies of a grid, times the volume of a cell; differentiable."""
        raise no_density(self.kernel)

    def spectral_factor(self, at: GridFrequencies, operator: Operator | None = None) -> SpectralFactor:
        """That of several outputs, or of what an operator makes of them, with its factor b(w); differentiable."""
        if self.is_scalar:
            raise ValueError(
                "expected parts of several outputs in a sum of such on a Fourier grid, got "
                f"{type(self.kernel).__name__}; give scalar parts a covariance of the outputs by DecomposableKernel "
                "or MultitaskKernel"
            )
        raise no_density(self.kernel)

    def spectral_lines(self, at: GridFrequencies) -> tuple[Tensor, Tensor] | None:
        """The frequencies (n, d) of a kernel that has no others, and the weight (..., n) of each; else None."""
        return None

    def applicable(self, input_dim: int) -> tuple[FeatureMethod, ...] | None:
        """The methods, in real forms, that suit every part with an open method; None for exact kernels."""
        dims = self.kernel.active_dims
        return self._applicable(input_dim if dims is None else dims.numel())

    def _applicable(self, input_dim: int) -> tuple[FeatureMethod, ...] | None:
        """:meth:`applicable` for the number of columns that ``active_dims`` select."""
        return None

    @property
    def mixes_methods(self) -> bool:
        """Whether the kernel consists of parts with possibly different methods."""
        return False

    @property
    def is_scalar(self) -> bool:
        """Whether the kernel has one output, so that it may be a factor of a product."""
        return True

    @property
    def has_task_indices(self) -> bool:
        """Whether inputs are task indices. Their features multiply the number of features of a product."""
        return False

    @property
    def is_approximated(self) -> bool:
        """Whether the kernel is approximated already, with its own number of features."""
        return False

    def exact_columns(self, request: Request) -> int | None:
        """The number of columns of exact features, or None where the kernel is approximated."""
        return None

    def has_pairs(self, request: Request) -> bool:
        """Whether the number of features may have to be even, since columns come in pairs."""
        return False

    def truncates(self, method: FeatureMethod) -> bool:
        """Whether a method truncates an infinite series, so that features vanish far from the data."""
        return False

    def columnwise_method(self, request: Request) -> FeatureMethod | None:
        """The method for a factor of an element-wise product, with unbiased columns; None where there is none."""
        return None

    def own_method(self, request: Request) -> FeatureMethod | None:
        """The requested method, or None where the kernel does not have it."""
        return request.method

    @property
    def measure_kernel(self) -> Kernel | None:
        """The scalar kernel of an operator-valued kernel, whose spectral density others may share; else None."""
        return None

    def terms(self) -> list[Any]:
        """The terms of nested sums."""
        return [self.kernel]

    def products(self) -> list[ScaledProduct]:
        """The kernel as a sum of products, multiplied out."""
        return [ScaledProduct((), (self.kernel,))]

    @property
    def has_features(self) -> bool:
        """Whether all parts are approximated already, or have finitely many exact features."""
        return False

    def exact_maps(self) -> torch.nn.Module:
        """The maps of a kernel all of whose parts have features of their own or exact ones; else a ValueError."""
        raise ValueError(
            f"expected a kernel with random features, got {type(self.kernel).__name__}; wrap it with rfgp.approximate"
        )

    # The features of a kernel with maps

    def check(self) -> None:
        """Raise a ValueError where the maps are not those of such a kernel."""
        for part in self.parts:
            part.check()

    @property
    def num_scalar_features(self) -> int:
        """The number of columns D of the scalar features; a ValueError where a map has not been made yet."""
        raise self._without_features()

    def active_features(self, x: Tensor) -> Tensor:
        """The scalar features, (..., N, d) to (..., N, D)."""
        raise self._without_features()

    @property
    def parts(self) -> list[Family]:
        """The families of the parts; none for a kernel with features of its own."""
        return []

    @property
    def is_complex(self) -> bool:
        """Whether the features are complex; the kernel is then their real part."""
        return any(part.is_complex for part in self.parts)

    @property
    def has_unbiased_columns(self) -> bool:
        """Whether every column alone, times the root of D, estimates the kernel without bias."""
        return False

    def columnwise(self) -> Family | None:
        """The family with the same weights in unbiased columns, complex where they are pairs; None without any."""
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
        return self.like.new_ones(1, 1)

    def summands(self) -> list[Family]:
        """The families of kernels that add up to this one."""
        return [self]

    def separated(self) -> tuple[Family, Tensor] | None:
        """A scalar kernel and a covariance (T, T) of outputs whose product this is; None where there are none."""
        return None

    def active_real_features(self, x: Tensor) -> Tensor:
        """The scalar features, complex ones with their real and imaginary parts side by side."""
        features = self.active_features(x)
        return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features

    def matrix_features(self, x: Tensor) -> Tensor:
        """The real features of selected inputs whose products are the matrix of a scalar kernel: with its scale."""
        return self.active_real_features(x)

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
            f"expected Fourier features of a shift-invariant kernel, got others of {type(self.kernel).__name__}; "
            'use a Fourier method, or method="landmarks" for the whole kernel'
        )

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that ``scalar_features`` depends on."""
        yield from self.kernel.parameters()
        if self.maps is not None:
            yield from self.maps.parameters()

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

    def summed_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that sums over rows depend on: none for a frequency grid."""
        return self.feature_parameters()

    @property
    def input_dim(self) -> int:
        """The number of columns that ``active_dims`` leave; a ValueError where a map has not been made yet."""
        return self.parts[0].input_dim

    @property
    def unscaled(self) -> Family:
        """The family of the kernel inside output scales."""
        return self

    @property
    def total_outputscale(self) -> Tensor:
        """The product of the output scales around ``unscaled``."""
        return self.like.new_ones(())

    def leaves(self, x: Tensor | None = None) -> Iterator[tuple[Family, Tensor | None]]:
        """The families with maps of their own inside this one, with what they see of full inputs x."""
        yield from self.active_leaves(None if x is None else self.selected(x))

    def active_leaves(self, x: Tensor | None) -> Iterator[tuple[Family, Tensor | None]]:
        """:meth:`leaves` for selected inputs."""
        yield self, x

    # What follows from these

    @property
    def exact_kernel(self) -> Kernel:
        """The exact kernel, without the features that parts may have of their own."""
        return without_features(self.kernel)

    @property
    def active_dims(self) -> Tensor | None:
        """The columns of the inputs that the kernel sees; None for all."""
        dims: Tensor | None = self.kernel.active_dims
        return dims

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the kernel."""
        shape: torch.Size = self.kernel.batch_shape
        return shape

    @property
    def like(self) -> Tensor:
        """A tensor of the dtype and on the device of the features."""
        return self._like_or(None)

    def all_features(self, x: Tensor) -> Tensor:
        """Features (..., N, D) of the full inputs (..., N, d), or (..., N T, K) for T outputs, rows interleaved."""
        scalar = self.scalar_features(x)
        return self.outputs_factor().features(scalar) if self.has_output_factor else scalar

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) of the full inputs (..., N, d), without the output factor.

        :raises ValueError: for inputs of another dtype or device.
        """
        x = checks.columns(x)
        checks.same_kind(checks.inputs(x), self._like_or(x), "x", "the kernel")
        return self.active_features(self.selected(x))

    def _like_or(self, x: Tensor | None) -> Tensor:
        for parameter in self.kernel.parameters():
            like: Tensor = parameter
            return like
        return reference_tensor(self.kernel, x if self.maps is None else reference_tensor(self.maps, x))

    def selected(self, x: Tensor) -> Tensor:
        """The columns of the full inputs that ``active_dims`` select; a ValueError where there are too few."""
        dims = self.active_dims
        if dims is None:
            return x
        if has_values() and int(dims.max()) >= x.shape[-1]:
            raise ValueError(
                f"expected x with at least {int(dims.max()) + 1} columns, as active_dims says, got {x.shape[-1]}; "
                "correct one of the two"
            )
        return x.index_select(-1, dims)

    def outputs_factor(self) -> OutputFactor:
        """The factor of several outputs; a ValueError where there is one."""
        factor = self.output_factor()
        if not isinstance(factor, OutputFactor):
            raise ValueError("expected a kernel of several outputs, got a scalar one; use features(x)")
        return factor

    @property
    def scale_shape(self) -> torch.Size:
        """The batch shape of the output scale."""
        factor = self.output_factor()
        return factor.shape[:-2] if isinstance(factor, Tensor) else factor.batch_shape

    def residual_variance(self, x: Tensor) -> Tensor | None:
        """:meth:`residual_covariance` of each output alone, (..., N) or (..., N T)."""
        residual = self.residual_covariance(x)
        return None if residual is None else residual.variance()

    def residual_covariance(self, x: Tensor) -> ResidualCovariance | None:
        r"""The residual covariance (T, T) of outputs at points, :math:`K(x, x) - F(x) F(x)^\top`.

        None for features of the whole kernel; a ValueError where a map has not been made yet.
        """
        selected = self.selected(checks.inputs(x))
        chunks = row_chunks(x.shape[-2], self.num_scalar_features)
        parts = [part for rows in chunks if (part := self.active_residual(selected[..., rows, :])) is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        return parts[0]._replace(variances=torch.cat([part.variances for part in parts], dim=-2))

    def variance(self, x: Tensor) -> Tensor:
        """The squared norms (..., N) of all features of a scalar kernel at full inputs."""
        return self.matrix_features(self.selected(x)).square().sum(-1)

    def moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        """:meth:`active_moments` of full inputs."""
        return self.active_moments(self.selected(x), self.selected(y))

    @property
    def frequency_grid(self) -> FrequencyGrid | None:
        """:attr:`active_frequency_grid` for the full inputs."""
        grid, dims = self.active_frequency_grid, self.active_dims
        return grid if grid is None or dims is None else grid.selecting(dims)

    def summed_features(self, x: Tensor) -> Tensor:
        """:meth:`active_summed_features` of the full inputs."""
        return self.active_summed_features(self.selected(x))

    def waves(self, input_dim: int) -> Waves:
        """The plane waves of Fourier features, per unit of the full inputs; a ValueError for other features."""
        dims = self.active_dims
        if dims is None:
            return self.active_waves(input_dim)
        return self.active_waves(dims.numel()).embedded(dims, input_dim)

    def drawn_maps(self) -> list[DrawnMap]:
        """The feature maps that were drawn for the kernel, those of its parts included, each once."""
        modules = [*self.kernel.modules(), *(() if self.maps is None else self.maps.modules())]
        return list(dict.fromkeys(part for part in modules if isinstance(part, DrawnMap)))

    def _without_features(self) -> ValueError:
        return ValueError(
            f"expected a family with features for {type(self.kernel).__name__}, got {type(self).__name__}, which "
            "defines none; define num_scalar_features and active_features"
        )


class ScaledProduct(NamedTuple):
    """A product of kernels that are neither sums nor products, times output scales."""

    scales: tuple[Kernel, ...]
    factors: tuple[Kernel, ...]

    def times(self, other: ScaledProduct) -> ScaledProduct:
        """The product of both."""
        return ScaledProduct(self.scales + other.scales, self.factors + other.factors)


def check_no_operator(operator: Operator | None) -> None:
    """Raise a ValueError where an operator is asked for from a kernel that has no frequencies to apply it to."""
    if operator is not None:
        raise ValueError(
            f"expected an operator-valued kernel for the prediction of {operator}, got a scalar or decomposable one; "
            "observe a Gaussian or Matern kernel, or tasks with one, by LinearlyObservedKernel(kernel, [Value()])"
        )


def approximates(*kernels: type[Kernel]) -> Callable[[type[Family]], type[Family]]:
    """Register a family for classes of exact kernels, which :func:`rfgp.approximate` then accepts.

    Subclasses inherit the family, unless they override ``forward``, ``__call__``, ``covar_dist``,
    ``num_outputs_per_input`` or ``outputscale`` of a base that is not abstract.

    :param kernels: classes of GPyTorch kernels.
    :returns: a decorator of the :class:`Family`.
    :raises ValueError: for anything that is no kernel class.

    >>> import gpytorch, rfgp
    >>> from rfgp.approximation.families import GaussianFamily
    >>> class HeatKernel(gpytorch.kernels.RBFKernel):  # exp(-|x - y|^2 / (4 t)), with t the square of the lengthscale
    ...     def forward(self, x1, x2, **params):
    ...         return super().forward(x1 / 2.0**0.5, x2 / 2.0**0.5, **params)
    >>> @approximates(HeatKernel)
    ... class HeatFamily(GaussianFamily):
    ...     def scaled(self, x):
    ...         return super().scaled(x) / 2.0**0.5
    >>> rfgp.approximate(HeatKernel(), num_features=64, input_dim=3).num_scalar_features
    64
    """
    for kernel in kernels:
        if not (inspect.isclass(kernel) and issubclass(kernel, Kernel)):
            raise ValueError(f"expected classes of GPyTorch kernels, got {kernel!r}; such as RBFKernel")

    def register(kind: type[Family]) -> type[Family]:
        FAMILIES.update(dict.fromkeys(kernels, kind))
        _kinds.clear()
        return kind

    return register


class UnregisteredFamily(Family):
    """A kernel that no family is registered for, for some ``reason``: it has landmarks, and no other features."""

    def __init__(self, kernel: Any, reason: str = "") -> None:
        super().__init__(kernel)
        self._reason = reason

    @property
    def error(self) -> ValueError:
        """What is raised for all other features; the message lists the kernels that have some."""
        return unsupported(self.kernel, self._reason)

    def draw_landmarks(self, request: Request) -> torch.nn.Module:
        if not isinstance(self.kernel, Kernel):
            raise self.error
        return super().draw_landmarks(request)

    def draw(self, request: Request) -> torch.nn.Module:
        raise self.error

    def draw_grid(self, request: Request) -> torch.nn.Module:
        raise no_density(self.kernel) if isinstance(self.kernel, Kernel) else self.error

    def applicable(self, input_dim: int) -> tuple[FeatureMethod, ...] | None:
        raise self.error

    def exact_columns(self, request: Request) -> int | None:
        raise self.error

    def check(self) -> None:
        raise self.error

    def exact_maps(self) -> torch.nn.Module:
        raise self.error


class ApproximatedFamily(Family):
    """A kernel with features of its own as part of another one, where it stays as it is."""

    def draw(self, request: Request) -> torch.nn.Module:
        return OwnMaps()

    draw_landmarks = draw
    draw_grid = draw

    @property
    def is_scalar(self) -> bool:
        return not self.kernel.has_output_factor

    @property
    def is_approximated(self) -> bool:
        return True

    @property
    def has_features(self) -> bool:
        return True

    def exact_maps(self) -> torch.nn.Module:
        return OwnMaps()


def family(kernel: Any, maps: Any = None) -> Family:
    """The family of a kernel: that of its class, or of the nearest registered base class.

    Where none is registered, all but landmarks raises a ValueError that lists the kernels with features.

    :param kernel: an exact kernel, or one that :func:`rfgp.approximate` returns.
    :param maps: the maps that were drawn for it.

    >>> import gpytorch
    >>> isinstance(family(gpytorch.kernels.RBFKernel() + gpytorch.kernels.LinearKernel()), Family)
    True
    """
    kind, changed = _kinds.get(type(kernel)) or _kind_of(type(kernel))
    if kind is ApproximatedFamily:
        own: Family = kernel.family
        return ApproximatedFamily(kernel) if maps is None else own
    if not changed and (resolved := kind.resolved(kernel)) is not kernel:
        return family(resolved, maps)
    if isinstance(maps, WholeMaps) and not isinstance(maps, kind.passes_on):
        whole: Family = next(OF_MAPS[base] for base in type(maps).__mro__ if base in OF_MAPS)(kernel, maps)
        return whole
    return UnregisteredFamily(kernel, changed) if kind is UnregisteredFamily or changed else kind(kernel, maps)


_kinds: dict[type, tuple[type[Family], str]] = {}
"""The families of classes that were asked for since the last one was registered."""
_MANY = 1000
"""More classes are not kept: Pyro makes new ones for every sample."""


def _kind_of(kernel: type) -> tuple[type[Family], str]:
    """The family of a class, and why it is not its own one, if so."""
    base = next((base for base in kernel.__mro__ if base in FAMILIES), None)
    if issubclass(kernel, HasFeatures):
        found: tuple[type[Family], str] = ApproximatedFamily, ""
    elif base is None:
        found = UnregisteredFamily, ""
    else:
        overridden = _changed(kernel, base)
        reason = f" or, since it overrides {overridden} of {base.__name__}, register it with" if overridden else ""
        found = FAMILIES[base], reason
    if len(_kinds) > _MANY:
        _kinds.clear()
    _kinds[kernel] = found
    return found


_VALUES = ("forward", "__call__", "covar_dist", "num_outputs_per_input", "outputscale")
"""What gives a kernel its values."""


def _changed(kernel: type, base: type[Kernel]) -> str:
    """The names of the methods of a base, among those that define the kernel's values, that a class overrides."""
    if kernel is base or inspect.isabstract(base):
        return ""
    between = [cls for cls in kernel.__mro__[: kernel.__mro__.index(base)] if cls is not CheckedKernel]
    return ", ".join(name for name in _VALUES if any(name in vars(cls) for cls in between))


_GRADIENTS = ", here LinearlyObservedKernel(base_kernel, [Value(), Gradient()])"
_ADVICE = {
    "RBFKernelGrad": _GRADIENTS,
    "Matern52KernelGrad": _GRADIENTS,
    "InducingPointKernel": ', or approximate its base_kernel by method="landmarks" with train_inputs',
}


_LANDMARKS = ', or method="landmarks" with train_inputs, which takes any positive definite kernel of one output'


def unsupported(kernel: object, reason: str = "") -> ValueError:
    """The error for a kernel that has no random features."""
    kinds = (*FAMILIES, *StationaryKernel.__subclasses__())
    names = ", ".join(kind.__name__ for kind in kinds if not inspect.isabstract(kind))
    name = type(kernel).__name__
    advice = f"{reason} rfgp.approximation.approximates" if reason else ""
    if isinstance(kernel, Kernel):
        advice = _ADVICE.get(name, advice + _LANDMARKS)
    return ValueError(f"expected a kernel with random features ({names}), got {name}; use one of these{advice}")
