"""Output scales that are shared between kernels."""

from __future__ import annotations

from gpytorch.kernels import Kernel, ScaleKernel

from .._gpytorch import register_outputscale_prior


def share_scale(source: ScaleKernel, target: ScaleKernel) -> None:
    """Let ``target`` use the very parameter, constraint and prior of the output scale of ``source``."""
    del target.raw_outputscale  # a snapshot of a kernel has clones in place of parameters
    target.raw_outputscale = source.raw_outputscale
    target.raw_outputscale_constraint = source.raw_outputscale_constraint
    register_outputscale_prior(source, target)


def with_scale_of(source: ScaleKernel, kernel: Kernel) -> ScaleKernel:
    """A kernel with the very output scale of another one."""
    scaled = ScaleKernel(kernel, batch_shape=source.raw_outputscale.shape)
    share_scale(source, scaled)
    return scaled
