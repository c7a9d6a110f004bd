"""Approximation of exact kernels by kernels with random features."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from ..features import FeatureMap
from .family import family, unsupported
from .method import Method
from .reference_tensor import reference_tensor
from .request import Request


def approximated(
    kernel: Kernel,
    num_features: int | None,
    *,
    input_dim: int | None = None,
    method: str | FeatureMap = "auto",
    train_inputs: Tensor | None = None,
    seed: int | None = None,
    choose: Callable[[Kernel, int, Tensor], str],
) -> Any:
    """What :func:`rfgp.approximate` does; ``choose`` names the method of a part, for a width and its full inputs."""
    named = None if isinstance(method, FeatureMap) or method == "auto" else Method.parse(method)
    is_open_ended = num_features is None and named is not None and named.is_grid
    width = 1 if is_open_ended else checks.positive_integer("num_features", num_features)
    if not isinstance(kernel, Kernel):
        raise unsupported(kernel)
    if train_inputs is not None:
        checks.finite(checks.inputs(train_inputs, input_dim, "train_inputs"), "train_inputs")
        input_dim = train_inputs.shape[-1]
    elif input_dim is not None:
        input_dim = checks.positive_integer("input_dim", input_dim)
    request = Request(
        width,
        input_dim,
        train_inputs,
        reference_tensor(kernel, train_inputs),
        itertools.count(int(torch.randint(0, 2**31 - 1, ())) if seed is None else checks.seed(seed)),
        choose,
        is_open_ended,
        method=named,
        feature_map=method if isinstance(method, FeatureMap) else None,
    )
    of_kernel = family(kernel)
    if request.method is not None and request.method.is_of_whole:
        return of_kernel.on_grid(request) if request.method.is_grid else of_kernel.with_landmarks(request)
    return of_kernel.approximate(request)


def with_features(kernel: Kernel) -> Any:
    """Replace GPyTorch's compositions of approximated kernels by those of rfgp, which keep the features.

    :param kernel: a kernel made by :func:`rfgp.approximate`, or a ScaleKernel, AdditiveKernel, ProductKernel,
        MultitaskKernel or LCMKernel of such kernels, or of exact ones such as LinearKernel and IndexKernel.
    :returns: a :class:`RandomFeatureKernel` with the same parameters.
    :raises ValueError: where a part has no features, or two factors of a product have the same random weights.

    >>> import gpytorch, rfgp
    >>> exact = (gpytorch.kernels.RBFKernel(), gpytorch.kernels.MaternKernel())
    >>> smooth, rough = (rfgp.approximate(kernel, 64, input_dim=2) for kernel in exact)
    >>> with_features(gpytorch.kernels.AdditiveKernel(smooth, rough)).num_scalar_features
    128
    """
    return family(kernel).with_features()
