"""Families: how each class of exact kernels is approximated, and the registry of families by kernel class."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from gpytorch.kernels import Kernel
from torch import Tensor

from ..functionals import Operator
from ..kernels.checked import CheckedKernel
from ..kernels.stationary import StationaryKernel
from .landmark_kernel import LandmarkKernel, check_scalar
from .landmarks import choose_landmarks
from .method import Method
from .reference_tensor import reference_tensor
from .registry import FAMILIES
from .request import Request
from .spectral_factor import SpectralFactor
from .spectral_weights import GridFrequencies, SpectralWeights, no_density


class Family(abc.ABC):
    """How one class of exact kernels is approximated: the base class of what :func:`approximates` registers.

    >>> import gpytorch
    >>> family(gpytorch.kernels.RBFKernel()).methods[0]
    'fourier'
    """

    settings: ClassVar[tuple[str, ...]] = ()
    """Names of attributes of the kernel, other than tensors and parts, that a loaded state has to match."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    @abc.abstractmethod
    def approximate(self, request: Request) -> Any:
        """The kernel with random features, which shares the parameters of the exact one; a ValueError without any."""

    def with_landmarks(self, request: Request) -> Any:
        """The kernel with rows of the training inputs as landmarks.

        :raises ValueError: without training inputs, and for a kernel of several outputs.
        """
        method, x = request.method, request.select(self.kernel).x
        if x is None or method is None:
            raise ValueError(
                f"expected train_inputs for {str(method)!r}, whose landmarks are rows of them, got none; pass "
                "train_inputs, or make rfgp.approximation.LandmarkKernel(kernel, landmarks)"
            )
        rows = x.detach().reshape(-1, x.shape[-1]).to(reference_tensor(self.kernel, request.like))
        check_scalar(self.kernel, rows)
        return LandmarkKernel(
            self.kernel, choose_landmarks(self.kernel, rows, request.num_features, method.name, next(request.seeds))
        )

    def on_grid(self, request: Request) -> Any:
        """The kernel with the features of a grid of frequencies; a ValueError without a spectral density."""
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

    def applicable(self, input_dim: int) -> tuple[Method, ...] | None:
        """The methods, in real forms, that suit every part with an open method; None for exact kernels."""
        dims = self.kernel.active_dims
        return self._applicable(input_dim if dims is None else dims.numel())

    def _applicable(self, input_dim: int) -> tuple[Method, ...] | None:
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

    def truncates(self, method: Method) -> bool:
        """Whether a method truncates an infinite series, so that features vanish far from the data."""
        return False

    def columnwise_method(self, request: Request) -> Method | None:
        """The method for a factor of an element-wise product, with unbiased columns; None where there is none."""
        return None

    def own_method(self, request: Request) -> Method | None:
        """The requested method, or None where the kernel does not have it."""
        return request.method

    @property
    def unscaled(self) -> Any:
        """The kernel inside output scales."""
        return self.kernel

    @property
    def measure_kernel(self) -> Kernel | None:
        """The scalar kernel of an operator-valued kernel, whose spectral density others may share; else None."""
        return None

    def terms(self) -> list[Any]:
        """The terms of nested sums."""
        return [self.kernel]

    def products(self) -> list[list[Any]]:
        """The kernel as a sum of products, multiplied out: the factors of every product."""
        return [[self.kernel]]

    @property
    def has_features(self) -> bool:
        """Whether all parts are approximated already, or have finitely many exact features."""
        return False

    def with_features(self) -> Any:
        """The kernel with GPyTorch's compositions of approximated kernels replaced; a ValueError without features."""
        raise ValueError(
            f"expected a kernel with random features, got {type(self.kernel).__name__}; wrap it with rfgp.approximate"
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

    def with_landmarks(self, request: Request) -> Any:
        if not isinstance(self.kernel, Kernel):
            raise self.error
        return super().with_landmarks(request)

    def approximate(self, request: Request) -> Any:
        raise self.error

    def on_grid(self, request: Request) -> Any:
        raise no_density(self.kernel) if isinstance(self.kernel, Kernel) else self.error

    def applicable(self, input_dim: int) -> tuple[Method, ...] | None:
        raise self.error

    def exact_columns(self, request: Request) -> int | None:
        raise self.error

    def with_features(self) -> Any:
        raise self.error


def family(kernel: Any) -> Family:
    """The family of an exact or approximated kernel: that of its class, or of the nearest registered base class.

    Where none is registered, all but landmarks raises a ValueError that lists the kernels with features.

    >>> import gpytorch
    >>> isinstance(family(gpytorch.kernels.RBFKernel() + gpytorch.kernels.LinearKernel()), Family)
    True
    """
    for base in type(kernel).__mro__:
        if base in FAMILIES:
            if changed := _changed(type(kernel), base):
                reason = f" or, since it overrides {changed} of {base.__name__}, register it with"
                return UnregisteredFamily(kernel, reason)
            of_kernel: Family = FAMILIES[base](kernel)
            return of_kernel
    return UnregisteredFamily(kernel)


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
