"""Families: how each class of exact kernels is approximated, and the registry of families by kernel class."""

from __future__ import annotations

import abc
import inspect
import re
from collections.abc import Callable
from typing import Any, ClassVar

from gpytorch.kernels import Kernel

from .checked import CheckedKernel
from .method import Method
from .request import Request


class Family(abc.ABC):
    """How one class of exact kernels is approximated: the base class of what :func:`approximates` registers.

    :param kernel: the exact kernel.
    """

    settings: ClassVar[tuple[str, ...]] = ()
    """Names of attributes of the kernel, other than tensors and parts, that a loaded state has to match."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    @abc.abstractmethod
    def approximate(self, request: Request) -> Any:
        """The kernel with random features, which shares the parameters of the exact one.

        :raises ValueError: where the kernel has no such features.
        """

    def applicable(self, input_dim: int) -> tuple[Method, ...] | None:
        """The methods, in real forms, that suit every part whose method is open; None for exact kernels.

        :param input_dim: the number of columns of the full inputs.
        """
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

    def with_features(self) -> Any:
        """The kernel, with GPyTorch's compositions of approximated kernels replaced by those of rfgp.

        :raises ValueError: where there are no features inside.
        """
        raise ValueError(
            f"expected a kernel with random features, got {type(self.kernel).__name__}; wrap it with rfgp.approximate"
        )


FAMILIES: dict[type[Kernel], type[Family]] = {}
"""The families by the kernels that :func:`approximates` has registered them for."""


def approximates(*kernels: type[Kernel]) -> Callable[[type[Family]], type[Family]]:
    """Register a family for classes of exact kernels, which :func:`rfgp.approximate` then accepts.

    A subclass of a registered kernel inherits its family. A subclass that overrides ``forward``, ``__call__``,
    ``covar_dist``, ``num_outputs_per_input`` or ``outputscale`` is a different kernel, and has to be registered itself,
    unless its base is abstract.

    :param kernels: classes of GPyTorch kernels.
    :returns: a decorator of the :class:`Family`.
    :raises ValueError: for anything that is no kernel class.

    >>> import gpytorch, math, rfgp, torch
    >>> from rfgp.kernels import approximates
    >>> from rfgp.kernels.families import GaussianFamily
    >>> class HeatKernel(gpytorch.kernels.RBFKernel):  # exp(-|x - y|^2 / (4 t)), with t the square of the lengthscale
    ...     def forward(self, x1, x2, **params):
    ...         return super().forward(x1 / math.sqrt(2.0), x2 / math.sqrt(2.0), **params)
    >>> @approximates(HeatKernel)
    ... class HeatFamily(GaussianFamily):
    ...     def scaled(self, x):
    ...         return super().scaled(x) / math.sqrt(2.0)
    >>> rfgp.approximate(HeatKernel(), num_features=64)(torch.zeros(2, 3)).shape
    torch.Size([2, 2])
    """
    for kernel in kernels:
        if not (inspect.isclass(kernel) and issubclass(kernel, Kernel)):
            raise ValueError(f"expected classes of GPyTorch kernels, got {kernel!r}; such as RBFKernel")

    def register(known: type[Family]) -> type[Family]:
        FAMILIES.update(dict.fromkeys(kernels, known))
        return known

    return register


def family(kernel: Any) -> Family:
    """The family registered for the class of a kernel, or for its nearest registered base class.

    :param kernel: an exact kernel, or an approximated one.
    :raises ValueError: where no family is registered; the message lists the kernels that have one.
    """
    for base in type(kernel).__mro__:
        if base in FAMILIES:
            if changed := _changed(type(kernel), base):
                raise unsupported(kernel, f" or, since it overrides {changed} of {base.__name__}, register it with")
            return FAMILIES[base](kernel)
    raise unsupported(kernel)


def settings(kernel: Kernel) -> dict[str, Any]:
    """The settings of a kernel that are neither tensors nor parts, by name; none of a kernel without a family."""
    known = next((FAMILIES[base].settings for base in type(kernel).__mro__ if base in FAMILIES), ())
    return {name: vars(kernel)[name] for name in known if name in vars(kernel)}


def described(kernel: Kernel) -> str:
    """The classes of a kernel and of its parts, with their settings, which a loaded state has to match."""
    kernels = [(n, part) for n, part in kernel.named_modules(remove_duplicate=False) if isinstance(part, Kernel)]
    return "; ".join(f"{name} {_class_and_settings(part)}" for name, part in kernels).strip()


def _class_and_settings(kernel: Kernel) -> str:
    texts = [f"{name}={float(v) if isinstance(v, int) else v!r}" for name, v in settings(kernel).items()]
    return re.sub(r" at 0x[0-9a-f]+", "", f"{type(kernel).__name__}({', '.join(texts)})")


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
    "LCMKernel": ", here a sum of MultitaskKernels",
}


def unsupported(kernel: object, reason: str = "") -> ValueError:
    """The error for a kernel that has no features."""
    names = ", ".join(known.__name__ for known in FAMILIES if not inspect.isabstract(known))
    name = type(kernel).__name__
    advice = _ADVICE.get(name, f"{reason} rfgp.kernels.approximates" if reason else "")
    return ValueError(f"expected a kernel with random features ({names}), got {name}; use one of these{advice}")
