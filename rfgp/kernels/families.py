"""What each family of exact kernels feeds to a feature map: scaled inputs, their dimension, and which maps fit."""

from __future__ import annotations

from functools import singledispatch

import torch
from gpytorch.kernels import Kernel, LinearKernel, PolynomialKernel
from torch import Tensor

from .. import _checks
from ..features import ComplexToReal, FeatureMap, LinearFeatures, PolynomialSketch

SUPPORTED = "PolynomialKernel, LinearKernel and ScaleKernel around them"


def unsupported(kernel: object) -> ValueError:
    """The error for a kernel that has no feature map."""
    return ValueError(
        f"expected a kernel with random features ({SUPPORTED}), got {type(kernel).__name__}; use one of these"
    )


@singledispatch
def scaled_inputs(kernel: Kernel, x: Tensor) -> Tensor:
    """The inputs of the feature map of ``kernel``, (..., N, d) to (..., N, d'), which carry its hyperparameters."""
    raise unsupported(kernel)


@singledispatch
def map_dim(kernel: Kernel, input_dim: int) -> int:
    """The number of columns of ``scaled_inputs`` for inputs of ``input_dim`` columns."""
    raise unsupported(kernel)


@singledispatch
def degree(kernel: Kernel) -> int:
    """The polynomial degree of the kernel."""
    raise unsupported(kernel)


def check_map(kernel: Kernel, feature_map: FeatureMap) -> None:
    """Raise a ValueError where the target of the map is not the family and degree of the kernel."""
    inner = feature_map.feature_map if isinstance(feature_map, ComplexToReal) else feature_map
    wanted = degree(kernel)
    if not isinstance(inner, PolynomialSketch | LinearFeatures) or inner.degree != wanted:
        got = getattr(inner, "degree", None)
        raise ValueError(
            f"expected a polynomial feature map of degree {wanted} for {type(kernel).__name__}, got "
            f"{type(inner).__name__}{'' if got is None else f' of degree {got}'}; pass degree={wanted} to the map"
        )


@scaled_inputs.register
def _(kernel: PolynomialKernel, x: Tensor) -> Tensor:
    root = kernel.offset.sqrt().unsqueeze(-1)
    batch = torch.broadcast_shapes(x.shape[:-2], root.shape[:-2])
    return torch.cat([x.expand(*batch, *x.shape[-2:]), root.expand(*batch, x.shape[-2], 1)], dim=-1)


@map_dim.register
def _(kernel: PolynomialKernel, input_dim: int) -> int:
    return input_dim + 1


@degree.register
def _(kernel: PolynomialKernel) -> int:
    return _checks.positive_integer("power", kernel.power, largest=20)


@scaled_inputs.register
def _(kernel: LinearKernel, x: Tensor) -> Tensor:
    return x * kernel.variance.sqrt()


@map_dim.register
def _(kernel: LinearKernel, input_dim: int) -> int:
    return input_dim


@degree.register
def _(kernel: LinearKernel) -> int:
    return 1
