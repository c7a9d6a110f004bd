"""A kernel of transformed inputs: learned metrics, warpings and deep kernels."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from .._support import checks
from .changed_inputs import ChangesInputs
from .checked import CheckedKernel, refuse_last_dim_is_batch


class InputTransformKernel(ChangesInputs, CheckedKernel, Kernel):
    r"""A kernel of transformed inputs, whose transform is learned with the other parameters.

    .. math:: k(x, x') = k_0(g(x), g(x'))

    With a :class:`LinearMap` it has a full metric in place of a lengthscale per input, with a warping such as
    :class:`KumaraswamyWarp` it is not stationary, and with a network it is a deep kernel.

    :param base_kernel: a kernel of one output.
    :param transform: a module from inputs (..., N, d) to inputs (..., N, r) of the base kernel, of rows one by one: no
        batch normalization.
    :param kwargs: as for GPyTorch kernels, such as ``active_dims``.
    :raises ValueError: for what is no kernel or no module.

    Source: A. G. Wilson et al., Deep kernel learning, 2016.

    >>> import gpytorch, rfgp, torch
    >>> x = torch.randn(100, 3)
    >>> kernel = InputTransformKernel(gpytorch.kernels.MaternKernel(1.5), rfgp.kernels.LinearMap(x))
    >>> rfgp.approximate(kernel, 20, method="landmarks", train_inputs=x, seed=0).features(x).shape
    torch.Size([100, 20])
    """

    def __init__(self, base_kernel: Kernel, transform: torch.nn.Module, **kwargs: Any) -> None:
        checks.instance("base_kernel", base_kernel, Kernel, "a GPyTorch kernel", "such as MaternKernel(1.5)")
        checks.instance("transform", transform, torch.nn.Module, "a module", "such as rfgp.kernels.LinearMap(x)")
        super().__init__(**kwargs)
        self.base_kernel = base_kernel
        self.transform = transform

    def coordinates(self, x: Tensor) -> Tensor:
        changed: Tensor = self.transform(x)
        checks.inputs(changed, name="transform(x)")
        if changed.shape[:-1] != x.shape[:-1]:
            raise ValueError(
                f"expected a transform that keeps the rows of inputs {tuple(x.shape)}, got {tuple(changed.shape)}; "
                "transform the rows one by one"
            )
        return changed

    @property
    def is_stationary(self) -> bool:
        """False: the transform may bend the inputs."""
        return False

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """The kernel matrix of selected inputs, (..., N, M), or its diagonal, (..., N)."""
        refuse_last_dim_is_batch(last_dim_is_batch)
        left = self.coordinates(x1)
        right = left if x2 is x1 else self.coordinates(x2)
        return to_dense(self.base_kernel(left, right, diag=diag, **params))

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """That of the base kernel."""
        return int(self.base_kernel.num_outputs_per_input(x1, x2))
