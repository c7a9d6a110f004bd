"""Output scales that are shared between kernels."""

from __future__ import annotations

from gpytorch.kernels import Kernel, ScaleKernel


def share_scale(source: ScaleKernel, target: ScaleKernel) -> None:
    """Let ``target`` use the very parameter, constraint and prior of the output scale of ``source``."""
    target.raw_outputscale = source.raw_outputscale
    target.raw_outputscale_constraint = source.raw_outputscale_constraint
    if "outputscale_prior" in source._priors:
        target.register_prior(
            "outputscale_prior", source.outputscale_prior, target._outputscale_param, target._outputscale_closure
        )


def with_scale_of(source: ScaleKernel, kernel: Kernel) -> ScaleKernel:
    """A kernel with the very output scale of another one."""
    scaled = ScaleKernel(kernel, batch_shape=source.raw_outputscale.shape)
    share_scale(source, scaled)
    return scaled
