"""Exact kernels for a table: by name, or copies of those that are given."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Generator, Tensor

from ..kernels import InputTransformKernel, LinearMap
from ..linalg.sampling import drawing_from

KERNELS: dict[str, Callable[[int], Kernel]] = {
    "rbf": lambda columns: RBFKernel(ard_num_dims=columns),
    "matern12": lambda columns: MaternKernel(0.5, ard_num_dims=columns),
    "matern32": lambda columns: MaternKernel(1.5, ard_num_dims=columns),
    "matern52": lambda columns: MaternKernel(2.5, ard_num_dims=columns),
    "rq": lambda columns: RQKernel(ard_num_dims=columns),
    "linear": lambda columns: LinearKernel(ard_num_dims=columns),
    "polynomial": lambda columns: PolynomialKernel(power=2),
}
KERNELS |= {
    long: KERNELS[short]
    for long, short in (
        ("matern:0.5", "matern12"),
        ("matern:1.5", "matern32"),
        ("matern:2.5", "matern52"),
        ("polynomial:2", "polynomial"),
    )
}
"""Kernels by name, as functions of the number of columns, without an output scale."""


def input_kernel(kernel: str | Kernel, num_columns: int) -> Kernel:
    """A new kernel in float64: by name, with a lengthscale per column, or a copy of one that is given."""
    if isinstance(kernel, Kernel):
        return copy.deepcopy(kernel).double()
    if not isinstance(kernel, str) or kernel not in KERNELS:
        raise ValueError(
            f"expected a GPyTorch kernel or one of {', '.join(KERNELS)} for kernel, got {kernel!r}; choose one of these"
        )
    return KERNELS[kernel](num_columns).double()


_MOST_VARIANCE = 1e4
"""The largest variance of a function, in those of the target: with the smallest noise, Cholesky factors exist."""
_LEVEL = 0.7
"""The lengthscale of standardized inputs of levels, at which any two levels have a correlation below 1e-3."""


def kernel_of_levels(
    kernel: str | Kernel, num_columns: int, levels: list[list[int]], has_functions: bool = False
) -> str | Kernel:
    r"""A kernel of the other columns, with a random effect for each level of every group.

    .. math:: k(x, y) = k_0(u, v) + \sum_g \sigma_g^2 \, \delta_{g(x) g(y)} \, k_g(u, v)

    :param kernel: by name, "auto" for "matern32"; a kernel that is given stays as it is, as where there are no levels.
    :param levels: the columns of every group, one for each of its levels.
    :param has_functions: whether effects are functions of the other columns; else they are numbers, and k_g is 1.
    """
    if not levels or isinstance(kernel, Kernel) or kernel in ("linear", "polynomial"):
        return kernel
    name = "matern32" if kernel == "auto" else kernel
    of_levels = {column for group in levels for column in group}
    others = torch.tensor([column for column in range(num_columns) if column not in of_levels])

    def smooth(num_lengthscales: int) -> Kernel:
        made = input_kernel(name, num_lengthscales)
        made.active_dims, made.ard_num_dims = others, None if num_lengthscales == 1 else num_lengthscales
        return made

    parts = [_scaled(smooth(len(others)))] if len(others) else []
    for group in levels:
        same = RBFKernel(active_dims=group).initialize(lengthscale=_LEVEL)
        same.raw_lengthscale.requires_grad_(False)
        parts.append(_scaled(smooth(1) * same if has_functions and len(others) else same))
    return AdditiveKernel(*parts).double()


def mapped_kernel(kernel: Kernel, x: Tensor) -> Kernel:
    """A copy of a kernel with a lengthscale per column, in whose place a linear map of the inputs (N, d) divides."""
    copied = copy.deepcopy(kernel)
    (stationary,) = [part for part in copied.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    linear = LinearMap(x)
    linear.initialize(weight=torch.diag(1.0 / stationary.lengthscale.detach().reshape(-1)))
    base = copy.deepcopy(stationary)
    base.ard_num_dims = None
    base.register_parameter("raw_lengthscale", torch.nn.Parameter(torch.zeros_like(base.raw_lengthscale[..., :1])))
    base.lengthscale = 1.0
    base.raw_lengthscale.requires_grad_(False)
    for part in copied.modules():
        for name, child in part.named_children():
            if child is stationary:
                setattr(part, name, InputTransformKernel(base, linear))
    return copied


def fix_maps(kernel: Kernel) -> None:
    """Let linear maps of the inputs stay as they are, and lengthscales be learned in their place."""
    for part in kernel.modules():
        if isinstance(part, InputTransformKernel):
            part.transform.requires_grad_(False)
            part.base_kernel.raw_lengthscale.requires_grad_(True)


def is_rough(kernel: Kernel) -> bool:
    """Whether functions drawn from a kernel have at most one derivative, so that near rows tell most about them."""
    return any(isinstance(part, MaternKernel) and part.nu < 2.0 for part in kernel.modules())


def scaled_kernel(kernel: str | Kernel, num_columns: int) -> Kernel:
    """The kernel of one output: with an output scale where it comes by name."""
    made = input_kernel(kernel, num_columns)
    return made if isinstance(kernel, Kernel) or isinstance(made, LinearKernel) else _scaled(made).double()


def _scaled(kernel: Kernel) -> ScaleKernel:
    """A kernel with an output scale, which a function without noise does not raise beyond what float64 can tell."""
    return ScaleKernel(kernel, outputscale_constraint=Interval(0.0, _MOST_VARIANCE, initial_value=1.0))


def multitask_kernel(kernel: str | Kernel, num_columns: int, num_outputs: int, generator: Generator) -> Kernel:
    """The kernel of several outputs that share information; their covariance is learnt."""
    made = input_kernel(kernel, num_columns)
    example = torch.zeros(1, num_columns, dtype=torch.float64)
    if isinstance(kernel, Kernel) and made.num_outputs_per_input(example, example) > 1:
        return made
    with drawing_from(generator):
        return MultitaskKernel(made, num_tasks=num_outputs, rank=num_outputs).double()
