"""What is known about every kind of exact kernel as a part of a tree of kernels, and the register of these kinds."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from gpytorch.kernels import Kernel

from .checked import CheckedKernel
from .method import Method
from .request import Request


class Family(abc.ABC):
    """The answers of one kind of kernel to all that :func:`rfgp.approximate` asks of the parts of a tree.

    :param kernel: the exact kernel.
    """

    settings: ClassVar[tuple[str, ...]] = ()
    """Attributes of the kernel that are neither tensors nor parts, and that a state has to agree in."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    @abc.abstractmethod
    def approximate(self, request: Request) -> Any:
        """The kernel with random features that share the parameters of this one.

        :raises ValueError: where the kernel has no such features.
        """

    def applicable(self, input_dim: int) -> tuple[Method, ...] | None:
        """The methods, with their real forms, that suit all open parts; None where there is nothing to choose.

        :param input_dim: the number of columns of the full inputs.
        """
        dims = self.kernel.active_dims
        return self._applicable(input_dim if dims is None else dims.numel())

    def _applicable(self, input_dim: int) -> tuple[Method, ...] | None:
        """The same for the number of columns that ``active_dims`` leave."""
        return None

    @property
    def mixes_methods(self) -> bool:
        """Whether there are parts, which may have methods of their own."""
        return False

    @property
    def is_scalar(self) -> bool:
        """Whether the kernel has one output, so that it may be a factor of a product."""
        return True

    @property
    def numbers_tasks(self) -> bool:
        """Whether inputs are numbers of tasks, whose columns come on top of the number of features of a product."""
        return False

    @property
    def is_ready(self) -> bool:
        """Whether the kernel has features already, of a width of its own."""
        return False

    def exact_columns(self, request: Request) -> int | None:
        """The number of columns of exact features, or None where the kernel is approximated."""
        return None

    def has_pairs(self, request: Request) -> bool:
        """Whether features that approximate the kernel come in pairs, or may do so."""
        return False

    def truncates(self, method: Method) -> bool:
        """Whether a method leaves out the tail of the series of a part, so that features fail off the data."""
        return False

    def columnwise_method(self, request: Request) -> Method | None:
        """The method for a factor of a product whose single columns are without bias, or None where there is none."""
        return None

    def own_method(self, request: Request) -> Method | None:
        """The method asked for, or None for a factor that has no such method."""
        return request.method

    @property
    def unscaled(self) -> Any:
        """The kernel inside output scales."""
        return self.kernel

    @property
    def measure_kernel(self) -> Kernel | None:
        """The scalar kernel whose measure the frequencies of a field have, and may share with others; None for none."""
        return None

    def terms(self) -> list[Any]:
        """The terms of nested sums."""
        return [self.kernel]

    def products(self) -> list[list[Any]]:
        """The factors of the products whose sum is the kernel, once everything is multiplied out."""
        return [[self.kernel]]

    def with_features(self) -> Any:
        """The kernel itself, with GPyTorch's compositions around kernels with features replaced by ours.

        :raises ValueError: where there are no features inside.
        """
        raise ValueError(
            f"expected a kernel with random features, got {type(self.kernel).__name__}; wrap it with rfgp.approximate"
        )


FAMILIES: dict[type[Kernel], type[Family]] = {}
"""The families by the kernels that :func:`approximates` has registered them for."""


def approximates(*kernels: type[Kernel]) -> Callable[[type[Family]], type[Family]]:
    """Register a family for exact kernels, so that :func:`rfgp.approximate` and all that builds on it know them.

    A subclass of a registered kernel has the family of that one, as long as it has the same values. One that overrides
    ``forward``, ``__call__``, ``covar_dist``, ``num_outputs_per_input`` or ``outputscale`` is another kernel, and is
    refused until it is registered itself. Abstract kernels are contracts, whose subclasses define these.

    :param kernels: classes of GPyTorch kernels.
    :raises ValueError: for what is no class of kernels.

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
    """The family of a kernel: of its class, or of the nearest of its bases that has one.

    :raises ValueError: where there is none, with the kernels that have one.
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


_VALUES = ("forward", "__call__", "covar_dist", "num_outputs_per_input", "outputscale")
"""What gives a kernel its values."""


def _changed(kernel: type, base: type[Kernel]) -> str:
    """What of the values of a base a class overrides, so that it is another kernel; empty where there is nothing."""
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
