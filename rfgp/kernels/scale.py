"""The output scale of one kernel around another one."""

from __future__ import annotations

from gpytorch.kernels import Kernel, ScaleKernel

from .._support.gpytorch_names import with_part


def with_scale_of(source: ScaleKernel, kernel: Kernel) -> ScaleKernel:
    """A kernel with the very output scale of another one: parameter, constraint and priors."""
    twin = object.__new__(type(source))
    vars(twin).update(with_part(vars(source), "base_kernel", kernel))
    vars(twin)["_buffers"] = {**vars(source)["_buffers"], "active_dims": kernel.active_dims}
    return twin
