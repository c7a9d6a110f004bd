"""An exact kernel in, a kernel with random features out, once it is said how methods are chosen."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .. import _checks
from ..features import FeatureMap
from .family import family, unsupported
from .like import like_tensor
from .method import Method
from .request import Request


def approximated(
    kernel: Kernel,
    num_features: int,
    *,
    input_dim: int | None = None,
    method: str | FeatureMap = "auto",
    train_inputs: Tensor | None = None,
    seed: int | None = None,
    choose: Callable[[Kernel, int, Tensor], str],
) -> Any:
    """What :func:`rfgp.approximate` returns, with methods chosen by a function of the caller.

    :param kernel: see there, as for all others.
    :param choose: names the method for a part with random features, their number, and the full inputs of the part.
    """
    width = _checks.positive_integer("num_features", num_features)
    if not isinstance(kernel, Kernel):
        raise unsupported(kernel)
    if train_inputs is not None:
        _checks.finite(_checks.inputs(train_inputs, input_dim, "train_inputs"), "train_inputs")
        input_dim = train_inputs.shape[-1]
    elif input_dim is not None:
        input_dim = _checks.positive_integer("input_dim", input_dim)
    request = Request(
        width,
        input_dim,
        train_inputs,
        like_tensor(kernel, train_inputs),
        itertools.count(int(torch.randint(0, 2**31 - 1, ())) if seed is None else _checks.seed(seed)),
        choose,
        method=None if isinstance(method, FeatureMap) or method == "auto" else Method.parse(method),
        feature_map=method if isinstance(method, FeatureMap) else None,
    )
    return family(kernel).approximate(request)


def with_features(kernel: Kernel) -> Any:
    """The kernel itself, with GPyTorch compositions around kernels with features replaced by ones that keep these.

    :param kernel: a kernel made by :func:`rfgp.approximate`, or a ScaleKernel, AdditiveKernel or MultitaskKernel
        of such.
    :raises ValueError: where there are no features inside.
    """
    return family(kernel).with_features()
