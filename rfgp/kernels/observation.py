"""The kernel of observations that differ from row to row: values, derivatives, averages and integrals over regions."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, ConstantKernel, Kernel, MaternKernel, ProductKernel, ScaleKernel
from gpytorch.means import Mean, MultitaskMean, ZeroMean
from linear_operator import to_dense
from torch import Tensor

from .._support import checks
from .._support.torch_names import has_values
from ..functionals import Gradient, Value
from ..functionals.observations import ObservationRows, num_columns, split
from ..functionals.observations.quadrature import extents, nodes
from .changed_inputs import ChangesInputs
from .checked import CheckedKernel, refuse_last_dim_is_batch
from .laplace import LaplaceKernel
from .observed import LinearlyObservedKernel
from .operator_valued import OperatorValuedKernel

_ENTRIES = 2**24
"""Covariances between nodes that are held at a time: 128 MiB in float64."""


class ObservationKernel(ChangesInputs, CheckedKernel, Kernel):
    r"""The kernel of measurements of a function or field: at points, of derivatives, averages and integrals.

    .. math:: k(r, r') = L_r L_{r'} k(x, x'), \qquad L_r f = \frac1{|R|} \int_R \sum_t a_t f_t(x)\, dx

    The inputs are rows of :mod:`rfgp.functionals.observations`. The kernel is a Gauss-Legendre quadrature, its Fourier
    features are exact:

    .. math:: \phi(r)_j = e^{\mathrm{i} w_j^\top c}\, a^\top S(w_j)\,
        \mathrm{sinc}(w_j^\top s) \prod_k \mathrm{sinc}(w_{jk} h_k), \qquad S(w) = (1, \mathrm{i} w)

    for a scalar function, and S = b(w) for a field. The mean is to be zero: add a ConstantKernel for an unknown
    constant.

    :param base_kernel: the kernel of the function, or an operator-valued kernel of a field. Exact derivatives are those
        of RBFKernel, MaternKernel and ConstantKernel, and of scales, sums and products of them.
    :param input_dim: the number d of coordinates, time included.
    :param num_nodes: the number of nodes of the quadrature in every direction of a region; default: 8, enough for
        regions of up to three lengthscales of an RBFKernel.
    :raises ValueError: for what is no kernel, or one without so many coordinates.

    Source: errata, identity 5, with the transform of a uniform density as symbol.

    >>> import gpytorch, torch
    >>> from rfgp.functionals.observations import boxes
    >>> x = boxes(torch.zeros(4, 2), torch.ones(4, 2))
    >>> ObservationKernel(gpytorch.kernels.RBFKernel(), input_dim=2)(x).shape
    torch.Size([4, 4])
    """

    def __init__(self, base_kernel: Kernel, input_dim: int, num_nodes: int = 8, **kwargs: Any) -> None:
        checks.instance("base_kernel", base_kernel, Kernel, "a GPyTorch kernel", "such as RBFKernel()")
        dim = checks.positive_integer("input_dim", input_dim)
        num_outputs(base_kernel, dim)
        super().__init__(**kwargs)
        self.base_kernel = base_kernel
        self.input_dim = dim
        self.num_nodes = checks.positive_integer("num_nodes", num_nodes)

    def coordinates(self, x: Tensor) -> Tensor:
        """The centers of the regions, (..., N, d): inputs of the base kernel."""
        return x[..., : self.input_dim]

    def rows(self, x: Tensor) -> ObservationRows:
        """The rows taken apart."""
        function = getattr(self.base_kernel, "exact_kernel", self.base_kernel)
        outputs = num_outputs(function, self.input_dim)
        wanted = num_columns(self.input_dim, outputs)
        if x.shape[-1] != wanted:
            what = "the value and derivatives of a function" if outputs is None else f"{outputs} outputs"
            raise ValueError(
                f"expected rows of rfgp.functionals.observations with {wanted} columns, for {what} of {self.input_dim} "
                f"coordinates, got {x.shape[-1]}; make them by points, boxes, segments or derivatives"
            )
        rows = split(x, self.input_dim)
        is_rough = outputs is None and has_values() and _is_rough(function)
        if is_rough and has_derivatives(rows):
            raise ValueError(
                "expected values of a process without derivatives, got rows with derivatives; use an RBFKernel or a "
                "MaternKernel with nu of at least 1.5"
            )
        return rows

    @property
    def is_stationary(self) -> bool:
        """False: rows differ in more than their place."""
        return False

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """The kernel matrix of selected rows, (..., N, M), or its diagonal, (..., N)."""
        refuse_last_dim_is_batch(last_dim_is_batch)
        left, right = (self._kind(checks.inputs(x)) for x in (x1, x2))
        if diag:
            alike = _groups(torch.cat([left, right], dim=-1))
            return _in_place(alike, [self._variances(x1[..., i, :], x2[..., i, :]) for i in alike], -1)
        rows, columns = _groups(left), _groups(right)
        blocks = [_in_place(columns, [self._block(x1[..., i, :], x2[..., j, :]) for j in columns], -1) for i in rows]
        return _in_place(rows, blocks, -2)

    def _kind(self, x: Tensor) -> Tensor:
        """What identifies rows whose quadrature differs, (N, d + 2): extents, and whether there are derivatives."""
        rows = self.rows(x)
        is_derivative = (rows.weights[..., 1:] != 0).any(-1, keepdim=True)
        return torch.cat([extents(rows), is_derivative.reshape(-1, *is_derivative.shape[-2:]).any(0)], dim=-1)

    def _variances(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The kernel of pairs of rows of one kind."""
        if self.batch_shape:
            return self._block(x1, x2).diagonal(dim1=-2, dim2=-1)
        size = self._size(x1, x2, 1)
        pairs = zip(x1.unsqueeze(-2).split(size, -3), x2.unsqueeze(-2).split(size, -3), strict=True)
        return torch.cat([self._quadrature(left, right).squeeze((-2, -1)) for left, right in pairs], dim=-1)

    def _block(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The kernel matrix of rows of one kind each."""
        size = self._size(x1, x2, x2.shape[-2])
        return torch.cat([self._quadrature(rows, x2) for rows in x1.split(size, dim=-2)], dim=-2)

    def _size(self, x1: Tensor, x2: Tensor, columns: int) -> int:
        """How many rows to take at a time, so that covariances between all nodes fit in memory."""
        left, right = split(x1, self.input_dim), split(x2, self.input_dim)
        num_nodes = self.num_nodes ** sum(int(extents(rows)[0].sum()) for rows in (left, right))
        return max(1, _ENTRIES // (columns * num_nodes * left.weights.shape[-1] ** 2))

    def _quadrature(self, x1: Tensor, x2: Tensor) -> Tensor:
        left, right = split(x1, self.input_dim), split(x2, self.input_dim)
        x, mass1 = nodes(left, self.num_nodes)
        y, mass2 = nodes(right, self.num_nodes)
        values = self._outputs(left, right, x.flatten(-3, -2), y.flatten(-3, -2))
        values = values.unflatten(-1, y.shape[-3:-1]).unflatten(-3, x.shape[-3:-1])
        a, b = left.weights[..., : values.shape[-6]], right.weights[..., : values.shape[-5]]
        return torch.einsum("...tunqmp,q,p,...nt,...mu->...nm", values, mass1, mass2, a, b)

    def _outputs(self, left: ObservationRows, right: ObservationRows, x: Tensor, y: Tensor) -> Tensor:
        """The covariances of the outputs that are needed at nodes, (..., T, T, N, M)."""
        base, outputs = self.base_kernel, num_outputs(self.base_kernel, self.input_dim)
        if outputs is not None:
            values = to_dense(base(x, y))
            values = values.unflatten(-1, (y.shape[-2], outputs)).unflatten(-3, (x.shape[-2], outputs))
            return values.movedim((-3, -1), (-4, -3))
        if has_derivatives(left) or has_derivatives(right):
            return jets(base, x, y)
        return to_dense(base(x, y))[..., None, None, :, :]


def num_outputs(kernel: Kernel, input_dim: int) -> int | None:
    """The number of outputs of a field, or None for a scalar function."""
    columns = kernel.ard_num_dims
    if kernel.active_dims is None and columns not in (None, input_dim):
        raise ValueError(f"expected input_dim={columns} as ard_num_dims says, got {input_dim}; correct one of the two")
    x = torch.zeros(1, input_dim)
    if kernel.active_dims is not None and int(kernel.active_dims.max()) >= input_dim:
        raise ValueError(
            f"expected active_dims below input_dim={input_dim}, got {int(kernel.active_dims.max())}; change one"
        )
    count = int(kernel.num_outputs_per_input(x, x))
    is_field = count > 1 or any(isinstance(part, OperatorValuedKernel) for part in kernel.modules())
    return count if is_field else None


def check_observed_mean(kernel: Kernel, mean: Mean | None) -> None:
    """Raise a ValueError where the inputs of a kernel are rows of observations, and the mean is not zero."""
    parts = list(mean.base_means) if isinstance(mean, MultitaskMean) else [mean]
    is_zero = all(part is None or isinstance(part, ZeroMean) for part in parts)
    if not is_zero and any(isinstance(part, ObservationKernel) for part in kernel.modules()):
        raise ValueError(
            "expected a ZeroMean for rows of rfgp.functionals.observations, of whose derivatives and integrals other "
            f"means know nothing, got a {type(mean).__name__}; add a "
            "ConstantKernel to the base kernel for an unknown constant"
        )


def has_derivatives(rows: ObservationRows) -> bool:
    """Whether rows of a scalar function have a derivative among them, or may have one."""
    return not has_values() or bool((rows.weights[..., 1:] != 0).any())


def _is_rough(kernel: Kernel) -> bool:
    """Whether a part of a kernel is one of a process without derivatives."""
    return any(
        isinstance(part, LaplaceKernel) or (isinstance(part, MaternKernel) and part.nu < 1.0)
        for part in kernel.modules()
    )


def _groups(kinds: Tensor) -> list[Tensor]:
    """The numbers of the rows of every kind."""
    distinct, which = kinds.unique(dim=0, return_inverse=True)
    return [(which == k).nonzero().squeeze(-1) for k in range(len(distinct))]


def _in_place(indices: list[Tensor], parts: list[Tensor], dim: int) -> Tensor:
    """Parts of a tensor at the places that their indices say."""
    return torch.cat(parts, dim=dim).index_select(dim, torch.cat(indices).argsort())


def jets(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """The covariances of f and its first derivatives at two sets of points, (..., 1 + d, 1 + d, N, M)."""
    dims = kernel.active_dims
    if dims is None:
        return _jets(kernel, x, y)
    chosen = torch.cat([dims.new_zeros(1), dims + 1])
    inner = _jets(kernel, x.index_select(-1, dims), y.index_select(-1, dims))
    rows = inner.new_zeros(*inner.shape[:-4], 1 + x.shape[-1], *inner.shape[-3:]).index_copy(-4, chosen, inner)
    result = rows.new_zeros(*rows.shape[:-3], 1 + x.shape[-1], *rows.shape[-2:])
    return result.index_copy(-3, chosen, rows)


def _jets(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """The same at inputs that ``active_dims`` have selected."""
    if isinstance(kernel, ScaleKernel):
        return kernel.outputscale[..., None, None, None, None] * _jets(kernel.base_kernel, x, y)
    if isinstance(kernel, AdditiveKernel):
        return reduce(torch.add, [jets(part, x, y) for part in kernel.kernels])
    if isinstance(kernel, ProductKernel):
        return reduce(_product, [jets(part, x, y) for part in kernel.kernels])
    if isinstance(kernel, ConstantKernel):
        return torch.nn.functional.pad(
            to_dense(kernel.forward(x, y))[..., None, None, :, :], (0, 0, 0, 0, 0, x.shape[-1], 0, x.shape[-1])
        )
    observed = LinearlyObservedKernel(kernel, [Value(), Gradient()])
    values, outputs = to_dense(observed.forward(x, y)), 1 + x.shape[-1]
    values = values.unflatten(-1, (y.shape[-2], outputs)).unflatten(-3, (x.shape[-2], outputs))
    return values.movedim((-3, -1), (-4, -3))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The product rule; every term that has a factor without derivatives comes up once for each side of the sum."""
    half = left.new_ones(left.shape[-4])
    half[0] = 0.5
    total = left * right[..., :1, :1, :, :] + left[..., :1, :1, :, :] * right
    total = total + left[..., :1, :, :] * right[..., :1, :, :, :] + left[..., :1, :, :, :] * right[..., :1, :, :]
    return total * half[:, None, None, None] * half[:, None, None]
