"""Scales of inputs in which distances say what is near for a kernel."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel
from torch import Tensor

from ..kernels.changed_inputs import ChangesInputs
from ..kernels.input_transform import InputTransformKernel
from .registry import without_features

_SAMPLE, _NOTHING = 256, 1e-12
"""Rows at which a transform is linearized, and what counts as zero of its metric, relative to the largest part."""


def input_scales(kernel: Kernel, x: Tensor) -> Tensor:
    """What inputs (N, d) are multiplied by before distances are measured: (d,), or (d, r) for transformed inputs.

    A column is divided by its shortest lengthscale, else by its standard deviation; unseen ones have zero. Of a
    transform that is not linear, the mean metric counts.
    """
    if any(isinstance(part, InputTransformKernel) for part in kernel.modules()):
        return _root(_mean_metric(kernel, x.detach()[:: max(1, len(x) // _SAMPLE)].double()))
    units = torch.full_like(x[0], float("inf"), dtype=torch.float64)
    is_seen = torch.zeros_like(units, dtype=torch.bool)
    for leaf, (columns,) in leaves(kernel, torch.arange(x.shape[-1], device=x.device).unsqueeze(0)):
        is_seen[columns] = True
        lengths = leaf.lengthscale.detach().flatten(0, -2).amin(0).to(units) if _has_lengths(leaf) else units[:0]
        if len(lengths) in (1, len(columns)):
            units[columns] = torch.minimum(units[columns], lengths.expand(len(columns)))
    is_open = is_seen & units.isinf()
    if bool(is_open.any()):
        spread = x.detach().double().std(0, correction=0)
        units = torch.where(is_open & (spread > 0), spread, units)
    return 1.0 / units


@torch.enable_grad()
def _mean_metric(kernel: Kernel, x: Tensor) -> Tensor:
    r"""The mean over rows (n, d) of :math:`\sum_k J^\top J / \ell^2`, with the Jacobians J of what the parts see."""
    x = x.requires_grad_(True)
    metric = x.new_zeros(x.shape[-1], x.shape[-1])
    for leaf, values in leaves(kernel, x):
        spread = values.detach().std(0, correction=0)
        lengths = leaf.lengthscale.detach().flatten(0, -2).amin(0).to(x) if _has_lengths(leaf) else spread
        for value, length in zip(values.unbind(-1), lengths.expand(values.shape[-1]), strict=True):
            (slopes,) = torch.autograd.grad(value.sum(), x, retain_graph=True)
            if length > 0:
                metric += slopes.mT @ slopes / (len(x) * length.square())
    return metric


def _root(metric: Tensor) -> Tensor:
    """A matrix (d, r) whose product with its transpose is a metric (d, d)."""
    values, directions = torch.linalg.eigh(metric)
    is_seen = values >= _NOTHING * values[-1]
    return directions[:, is_seen] * values[is_seen].sqrt()


def _has_lengths(kernel: Kernel) -> bool:
    """Whether a kernel has lengthscales in units of its inputs, other than those of a periodic one."""
    return kernel.has_lengthscale and not hasattr(kernel, "period_length")


def leaves(kernel: Kernel, x: Tensor) -> Iterator[tuple[Kernel, Tensor]]:
    """The parts that have no parts, or features of their own, with what they see of x (..., N, d)."""
    if kernel.active_dims is not None:
        x = x.index_select(-1, kernel.active_dims)
    yield from _inner_leaves(kernel, x)


def _inner_leaves(kernel: Kernel, x: Tensor) -> Iterator[tuple[Kernel, Tensor]]:
    kernel = without_features(kernel)
    x = kernel.coordinates(x) if isinstance(kernel, ChangesInputs) else x
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part is not kernel]
    direct = [part for part in parts if not any(part in other.modules() for other in parts if other is not part)]
    if not direct:
        yield kernel, x
    for part in direct:
        is_composed = isinstance(kernel, AdditiveKernel | ProductKernel | ChangesInputs)
        yield from leaves(part, x) if is_composed else _inner_leaves(part, x)
