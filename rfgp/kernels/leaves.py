"""The parts of a kernel that have no parts, with the columns that they see."""

from __future__ import annotations

from collections.abc import Iterator

from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel
from torch import Tensor

from .feature_kernel import FeatureKernel
from .observation import ObservesRows


def leaves(kernel: Kernel, x: Tensor) -> Iterator[tuple[Kernel, Tensor]]:
    """The parts of a kernel that have no parts, or features of their own, with the columns that they see.

    :param kernel: an exact kernel, or one with features.
    :param x: its inputs, (..., N, d).
    """
    if kernel.active_dims is not None:
        x = x.index_select(-1, kernel.active_dims)
    yield from _inner_leaves(kernel, x)


def _inner_leaves(kernel: Kernel, x: Tensor) -> Iterator[tuple[Kernel, Tensor]]:
    x = kernel.coordinates(x) if isinstance(kernel, ObservesRows) else x
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part is not kernel]
    parts = [] if isinstance(kernel, FeatureKernel) else parts
    direct = [part for part in parts if not any(part in other.modules() for other in parts if other is not part)]
    if not direct:
        yield kernel, x
    for part in direct:
        is_composed = isinstance(kernel, AdditiveKernel | ProductKernel | ObservesRows)
        yield from leaves(part, x) if is_composed else _inner_leaves(part, x)
