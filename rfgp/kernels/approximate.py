"""The one new line: an exact kernel in, a kernel with random features out."""

from __future__ import annotations

import warnings
from functools import singledispatch

import torch
from gpytorch.kernels import Kernel, LinearKernel, PolynomialKernel, ScaleKernel
from torch import Tensor

from .. import _checks
from ..features import FeatureMap
from .composition import FeatureScaleKernel
from .families import degree, map_dim, unsupported
from .feature_kernel import FeatureKernel, FeatureStructure
from .recipe import MapRecipe


def approximate(
    kernel: Kernel,
    num_features: int,
    *,
    input_dim: int | None = None,
    method: str | FeatureMap = "auto",
    train_inputs: Tensor | None = None,
    seed: int | None = None,
) -> Kernel:
    r"""A kernel that shares the parameters of an exact one and computes with random features, at O(N D^2).

    .. math:: k(x, y) \approx \phi(x) \phi(y)^H, \qquad \phi(x) \in R^D \text{ or } C^D

    :param kernel: a GPyTorch PolynomialKernel or LinearKernel, or ScaleKernel around them.
    :param num_features: the number of columns D that come out (an exact linear kernel takes d columns instead).
    :param input_dim: the number of columns of the inputs; where it is None it is taken from ``train_inputs``,
        ``active_dims`` or ARD, and else from the first inputs the kernel sees.
    :param method: "auto" (complex-to-real TensorSRHT, and exact features for linear kernels), the name of a method, or
        a ready FeatureMap; see :class:`rfgp.kernels.MapRecipe`.
    :param train_inputs: the training inputs (N, d), from which the number of columns is taken.
    :param seed: the seed of the weights; drawn from PyTorch's default generator where it is None.
    :returns: a kernel with ``features``, ``scalar_features``, ``output_factor`` and ``exact_kernel``.
    :raises ValueError: for a kernel without random features, an unknown method, or dimensions that disagree.

    >>> import gpytorch
    >>> exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PolynomialKernel(power=3))
    >>> kernel = approximate(exact, num_features=128, input_dim=4, seed=0)
    >>> kernel(torch.randn(10, 4)).shape
    torch.Size([10, 10])
    """
    width = _checks.positive_integer("num_features", num_features)
    if not isinstance(kernel, Kernel):
        raise unsupported(kernel)
    if train_inputs is not None:
        _checks.finite(_checks.inputs(train_inputs, input_dim, "train_inputs"), "train_inputs")
        input_dim = train_inputs.shape[-1]
        if width > train_inputs.shape[-2]:
            warnings.warn(
                f"num_features={width} exceeds the {train_inputs.shape[-2]} training rows: the exact kernel costs less",
                stacklevel=2,
            )
    elif input_dim is not None:
        input_dim = _checks.positive_integer("input_dim", input_dim)
    if seed is None:
        seed = int(torch.randint(0, 2**31 - 1, ()))
    return _approximate(kernel, width, input_dim, method, seed)


@singledispatch
def _approximate(
    kernel: Kernel, num_features: int, input_dim: int | None, method: str | FeatureMap, seed: int
) -> Kernel:
    if isinstance(kernel, FeatureStructure):
        return kernel
    raise unsupported(kernel)


@_approximate.register
def _(kernel: ScaleKernel, num_features: int, input_dim: int | None, method: str | FeatureMap, seed: int) -> Kernel:
    if isinstance(kernel, FeatureStructure):
        return kernel
    if kernel.active_dims is not None and kernel.base_kernel.active_dims is None:
        input_dim = _num_active(kernel, input_dim)
    return FeatureScaleKernel(_approximate(kernel.base_kernel, num_features, input_dim, method, seed), kernel)


@_approximate.register
def _(
    kernel: PolynomialKernel, num_features: int, input_dim: int | None, method: str | FeatureMap, seed: int
) -> Kernel:
    name = "tensor_srht:ctr" if method == "auto" else method
    return _feature_kernel(kernel, num_features, input_dim, name, seed)


@_approximate.register
def _(kernel: LinearKernel, num_features: int, input_dim: int | None, method: str | FeatureMap, seed: int) -> Kernel:
    name = "linear" if method == "auto" else method
    return _feature_kernel(kernel, num_features, input_dim, name, seed)


def _feature_kernel(
    kernel: Kernel, num_features: int, input_dim: int | None, method: str | FeatureMap, seed: int
) -> FeatureKernel:
    if isinstance(method, FeatureMap):
        return FeatureKernel(kernel, method)
    recipe = MapRecipe(method, num_features, degree(kernel), seed)
    columns = _num_columns(kernel, input_dim)
    if columns is None:
        return FeatureKernel(kernel, recipe)
    reference = next(kernel.parameters())
    feature_map = recipe.build(map_dim(kernel, columns)).to(dtype=reference.dtype, device=reference.device)
    return FeatureKernel(kernel, feature_map)


def _num_columns(kernel: Kernel, input_dim: int | None) -> int | None:
    """The number of columns that reach the kernel, or None where nothing tells."""
    if kernel.active_dims is not None:
        input_dim = _num_active(kernel, input_dim)
    if kernel.ard_num_dims is not None and input_dim not in (None, kernel.ard_num_dims):
        raise ValueError(
            f"expected {kernel.ard_num_dims} columns as ard_num_dims says, got {input_dim}; correct one of the two"
        )
    return kernel.ard_num_dims if input_dim is None else input_dim


def _num_active(kernel: Kernel, input_dim: int | None) -> int:
    largest = int(kernel.active_dims.max())
    if input_dim is not None and largest >= input_dim:
        raise ValueError(f"expected active_dims below input_dim={input_dim}, got {largest}; correct one of the two")
    return kernel.active_dims.numel()


def with_features(kernel: Kernel) -> Kernel:
    """The kernel itself, with GPyTorch scale kernels around a feature kernel replaced by ones that keep the features.

    :param kernel: a kernel made by :func:`approximate`, or a ScaleKernel around one.
    :raises ValueError: where there are no features inside.
    """
    if isinstance(kernel, FeatureStructure):
        return kernel
    if isinstance(kernel, ScaleKernel):
        return FeatureScaleKernel(with_features(kernel.base_kernel), kernel)
    raise ValueError(
        f"expected a kernel with random features, got {type(kernel).__name__}; wrap it with rfgp.approximate"
    )
