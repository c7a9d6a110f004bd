"""The values of any scalar GPyTorch kernel, dense and in float64, whatever the dtype of its parameters."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor
from torch.func import functional_call


def accurate_values(kernel: Kernel, x: Tensor, y: Tensor, diag: bool = False) -> Tensor:
    """The kernel matrix (..., N, M) in float64, or the diagonal (..., N); gradients run back to all parameters.

    :param kernel: a scalar kernel, whose ``active_dims`` are not applied.
    :param x: selected inputs, (..., N, d).
    :param y: (..., M, d); x itself for the diagonal.
    :param diag: whether only the diagonal is wanted.

    >>> import gpytorch
    >>> accurate_values(gpytorch.kernels.RBFKernel(), torch.zeros(3, 2), torch.zeros(4, 2)).dtype
    torch.float64
    """
    batch = torch.broadcast_shapes(kernel.batch_shape, x.shape[:-2], y.shape[:-2])
    rows = [inputs.double().expand(*batch, *inputs.shape[-2:]) for inputs in (x, y)]
    values = _Values(kernel)
    known = [*values.named_parameters(), *values.named_buffers()]
    accurate = {name: value.double() for name, value in known if value.is_floating_point()}
    dense: Tensor = functional_call(values, accurate, (*rows, diag))
    return dense


class _Values(torch.nn.Module):
    """The values of a kernel as a module whose tensors can be replaced in a call."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Tensor, y: Tensor, diag: bool) -> Tensor:
        if not diag:
            return to_dense(self.kernel.forward(x, y))
        values = self.kernel.forward(x, y, diag=True)
        if values.dim() == x.dim():  # those of a kernel that does not know of diag
            values = values.diagonal(dim1=-1, dim2=-2)
        return to_dense(values)
