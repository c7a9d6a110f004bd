"""Linear observations of a function or field: values, derivatives, gradients, and sums of such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpytorch.kernels import AdditiveKernel, Kernel, LCMKernel, MultitaskKernel, ScaleKernel
from linear_operator.operators import LinearOperator
from torch import Tensor

from ..functionals import Operator, PolynomialMatrix, Stacked, adjoint_matrix, degree, matrix_product
from .decomposable import DecomposableKernel
from .derivatives import check_smoothness, smoothness
from .operator_valued import OperatorValuedKernel
from .scale import with_scale_of
from .task_covariance import covariance_root, dense_covariance


class LinearlyObservedKernel(OperatorValuedKernel):
    r"""The kernel of linear operators with constant coefficients applied to a Gaussian process.

    .. math:: K(x, y) = \mathcal L_x \mathcal L_y^\top k(x, y), \qquad b(w) = S(w)\, b_k(w)

    The outputs are those of the operators in order; set targets that are not observed to NaN. Of tasks with the
    covariance :math:`\Gamma = A A^\top`, components are the tasks, and :math:`b_k(w) = A`.

    :param base_kernel: the kernel of the function or field: an RBFKernel, a MaternKernel with enough derivatives, a
        CurlFreeKernel, DivergenceFreeKernel or LinearlyObservedKernel; a MultitaskKernel, DecomposableKernel or
        LCMKernel of scalar ones; or scales and sums of these.
    :param operators: what is observed: differential operators of :mod:`rfgp.functionals`.
    :raises ValueError: where the process has too few derivatives, or an operator is not defined for it.

    Source: errata, identity 5; S Eq. 14 in complex form.

    >>> import gpytorch, torch
    >>> from rfgp.functionals import Gradient, Value
    >>> LinearlyObservedKernel(gpytorch.kernels.RBFKernel(), [Value(), Gradient()])(torch.zeros(4, 3)).shape
    torch.Size([16, 16])
    """

    def __init__(self, base_kernel: Kernel, operators: Sequence[Operator], **kwargs: Any) -> None:
        given = tuple(operators) if isinstance(operators, Sequence) else ()
        if not given or not all(isinstance(operator, Operator) for operator in given):
            raise ValueError(f"expected a list of rfgp.functionals, got {operators!r}; such as [Value(), Gradient()]")
        _check_parts(_leaves(base_kernel))
        super().__init__(base_kernel, **kwargs)
        self.operators = given
        if base_kernel.ard_num_dims is not None:
            self.covariance(base_kernel.ard_num_dims)

    @property
    def scalar_kernel(self) -> Kernel:
        return _components_of(self.base_kernel).scalar_kernel

    def distributed(self, is_selected: bool = False) -> Kernel:
        """The same kernel with scales and sums outside: of observations of scalar kernels and single fields.

        :param is_selected: whether it is for inputs that ``active_dims`` have selected.
        """
        return self._distributed(None if is_selected else self.active_dims)

    def _distributed(self, dims: Tensor | None) -> Kernel:
        """The same for parts that select inputs by ``active_dims``, or for inputs that have been selected."""
        base = self.base_kernel
        if isinstance(base, LinearlyObservedKernel):
            base = base._distributed(None)
        base = _scales_outside(base)
        if isinstance(base, ScaleKernel):
            return with_scale_of(base, self._of(base.base_kernel, dims))
        if isinstance(base, AdditiveKernel):
            return AdditiveKernel(*[self._of(part, dims) for part in base.kernels])
        return self

    def _of(self, base_kernel: Kernel, dims: Tensor | None) -> Kernel:
        return LinearlyObservedKernel(base_kernel, self.operators, active_dims=dims)._distributed(dims)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        kernel = self._distributed(None)
        if kernel is not self:
            return kernel.forward(x1, x2, diag=diag, last_dim_is_batch=last_dim_is_batch, **params)
        return super().forward(x1, x2, diag, last_dim_is_batch, **params)

    def num_outputs(self, input_dim: int) -> int:
        return len(self._operator.matrix(input_dim, self._components(input_dim)))

    def covariance(self, input_dim: int) -> PolynomialMatrix:
        rows = self._operator.matrix(input_dim, self._components(input_dim))
        inner = _components_of(self.base_kernel).covariance(input_dim)
        result = matrix_product(matrix_product(rows, inner), adjoint_matrix(rows))
        order = max(degree(result[t][t]) for t in range(len(result)))
        check_smoothness(self.scalar_kernel, (order + 1) // 2, f"the operators {list(self.operators)}")
        return result

    def factor(self, w: Tensor) -> Tensor:
        symbol = self._operator.symbol(w, self._components(w.shape[-1]))
        parities = {sum(alpha) % 2 for alpha in self._multi_indices(w.shape[-1])}
        if len(parities) == 1:  # a common phase does not matter, and without it the factor is real
            symbol = symbol.imag if 1 in parities else symbol.real
        inner = _components_of(self.base_kernel).factor(w)
        return symbol.to(inner.dtype) @ inner if inner.is_complex() else symbol @ inner.to(symbol.dtype)

    def powers(self, input_dim: int) -> tuple[int, ...]:
        inner = _components_of(self.base_kernel).powers(input_dim)
        outer = {sum(alpha) for alpha in self._multi_indices(input_dim)}
        return tuple(sorted({p + q for p in outer for q in inner}))

    @property
    def _operator(self) -> Operator:
        return Stacked(*self.operators)

    def _components(self, input_dim: int) -> int:
        return _components_of(_leaves(self.base_kernel)[0]).num_outputs(input_dim)

    def _multi_indices(self, input_dim: int) -> set[tuple[int, ...]]:
        rows = self._operator.matrix(input_dim, self._components(input_dim))
        return {alpha for row in rows for entry in row for alpha in entry}


@dataclass(frozen=True)
class _Tasks:
    """Components that are one function, or tasks with a covariance (T, T), as those of a field."""

    scalar_kernel: Kernel
    task_covariance: Any = None

    def num_outputs(self, input_dim: int) -> int:
        return 1 if self.task_covariance is None else len(self._matrix())

    def covariance(self, input_dim: int) -> PolynomialMatrix:
        zero = (0,) * input_dim
        if self.task_covariance is None:
            return [[{zero: 1.0}]]
        return [[{zero: entry} for entry in row.unbind()] for row in self._matrix().unbind()]

    def factor(self, w: Tensor) -> Tensor:
        return w.new_ones(1, 1) if self.task_covariance is None else covariance_root(self.task_covariance)

    def powers(self, input_dim: int) -> tuple[int, ...]:
        return (0,)

    def _matrix(self) -> Tensor:
        matrix = dense_covariance(self.task_covariance)
        if matrix.dim() > 2:
            raise ValueError(
                "expected tasks without batch dimensions to observe, got a covariance of shape "
                f"{tuple(matrix.shape)}; make a kernel for each"
            )
        return matrix


def _components_of(kernel: Kernel) -> OperatorValuedKernel | _Tasks:
    """The components of a kernel that is neither a scale nor a sum."""
    if isinstance(kernel, OperatorValuedKernel):
        return kernel
    if isinstance(kernel, MultitaskKernel):
        return _Tasks(kernel.data_covar_module, kernel.task_covar_module)
    return _Tasks(kernel)


def _scales_outside(kernel: Kernel) -> Kernel:
    """A kernel of tasks, whose data kernel is a scale or a sum, as a scale or a sum of kernels of tasks."""
    if isinstance(kernel, LCMKernel):
        return AdditiveKernel(*kernel.covar_module_list)
    if isinstance(kernel, MultitaskKernel):
        data, tasks = kernel.data_covar_module, kernel.task_covar_module
        if isinstance(data, ScaleKernel):
            return with_scale_of(data, DecomposableKernel(data.base_kernel, tasks))
        if isinstance(data, AdditiveKernel):
            return AdditiveKernel(*[DecomposableKernel(part, tasks) for part in data.kernels])
    return kernel


def _leaves(kernel: Kernel) -> list[Kernel]:
    """The kernels inside scales and sums."""
    kernel = _scales_outside(kernel)
    if isinstance(kernel, ScaleKernel):
        return _leaves(kernel.base_kernel)
    if isinstance(kernel, AdditiveKernel):
        return [leaf for part in kernel.kernels for leaf in _leaves(part)]
    return [kernel]


def _check_parts(parts: list[Kernel]) -> None:
    """Raise a ValueError where the parts of a sum cannot be observed as one function or field."""
    of_fields = [part for part in parts if isinstance(part, OperatorValuedKernel)]
    of_tasks = [part for part in parts if isinstance(part, MultitaskKernel)]
    for part in parts:
        if part not in of_fields:
            smoothness(_components_of(part).scalar_kernel)
    if 0 < len(of_fields) + len(of_tasks) < len(parts):
        raise ValueError(
            "expected a sum of scalar kernels or one of kernels of fields to observe, got both; observe them one by "
            "one and add the kernels of what is observed"
        )
    counts = {int(part.num_tasks) for part in of_tasks}
    if len(counts) > 1:
        raise ValueError(
            f"expected kernels of equally many tasks in a sum to observe, got {sorted(counts)}; correct num_tasks"
        )
    dims = [part.data_covar_module.active_dims for part in of_tasks]
    if any(selected is not None for selected in dims):
        raise ValueError(
            "expected active_dims on the MultitaskKernel, got them on its data kernel, where GPyTorch ignores them; "
            "move them"
        )
    if len(parts) > 1 and any(part.active_dims is not None for part in parts):
        raise ValueError(
            "expected no active_dims on the parts of a sum that is observed, whose derivatives would differ in number, "
            "got some; give active_dims to the LinearlyObservedKernel"
        )
