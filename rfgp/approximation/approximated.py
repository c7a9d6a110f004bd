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
from .feature_kernel import FeatureKernel
from .method import FeatureMethod
from .reference_tensor import reference_tensor
from .registry import is_approximated
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
    named = None if isinstance(method, FeatureMap) or method == "auto" else FeatureMethod.parse(method)
    is_open_ended = num_features is None and named is not None and named.is_grid
    width = 1 if is_open_ended else checks.positive_integer("num_features", num_features)
    if not isinstance(kernel, Kernel):
        raise unsupported(kernel)
    if input_dim is not None:
        input_dim = checks.positive_integer("input_dim", input_dim)
    if train_inputs is not None:
        checks.finite(checks.inputs(train_inputs, input_dim, "train_inputs"), "train_inputs")
        input_dim = train_inputs.shape[-1]
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
    if is_approximated(kernel):
        return kernel
    of_kernel, whole = family(kernel), request.method
    if whole is None or not whole.is_of_whole:
        return FeatureKernel(kernel, of_kernel.draw(request))
    return FeatureKernel(kernel, of_kernel.draw_grid(request) if whole.is_grid else of_kernel.draw_landmarks(request))
