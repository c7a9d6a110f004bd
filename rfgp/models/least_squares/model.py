"""Regularized least squares with many outputs in feature form, with unlabeled inputs and an output operator."""

from __future__ import annotations

import copy
from typing import NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..._support import checks
from ...approximation import FeatureKernel, with_features
from ...approximation.maps import maps_kept_on_error
from ...functionals import Operator
from ...inference import OutputFactor
from ...inference.posterior.products import feature_product
from ...linalg import row_chunks
from ..record import WEIGHTS, Record, Recorded
from .equations import LeastSquaresData, LeastSquaresEquations, by_lbfgs

SOLVERS = ("cholesky", "lbfgs")


class VectorLeastSquares(Recorded["_Fitted"]):
    r"""Least squares in the span of random features, with penalties on the norm and along a graph.

    .. math:: \min_f \frac1l \sum_{i=1}^l \|y_i - C f(x_i)\|^2 + \gamma_A \|f\|^2
        + \gamma_I \sum_{i,j=1}^{l+u} L_{ij}\, f(x_i)^\top f(x_j), \qquad f(x) = F(x) h

    .. math:: \Big(\sum_{i \le l} F_i^\top C^\top C F_i + l \gamma_I \sum_{ij} L_{ij} F_i^\top F_j + l \gamma_A I\Big) h
        = \sum_{i \le l} F_i^\top C^\top y_i

    Nothing of size (N T) x K is formed. Without a graph and with C = I the prediction is the posterior mean of a
    Gaussian process with noise variance :math:`l \gamma_A`.

    :param kernel: a kernel made by :func:`rfgp.approximate`, of one or many outputs, with real features.
    :param regularization: :math:`\gamma_A`, positive.
    :param output_operator: C (T', T); default: the identity.
    :param manifold_regularization: :math:`\gamma_I`, at least 0. It is not divided by the number of inputs.
    :param solver: "cholesky", or "lbfgs" with products at O(N n T) per iteration.
    :param tolerance: "lbfgs" ends where no entry of the gradient exceeds this part of the largest one at the start.
    :param max_iterations: of "lbfgs".
    :raises ValueError: for a kernel without real features, or other values.

    Source: M Eq. 67 and 71 (Theorem 14); B Eq. 23, 26 and 27.

    >>> import gpytorch, rfgp
    >>> exact = rfgp.kernels.CurlFreeKernel(gpytorch.kernels.RBFKernel())
    >>> model = VectorLeastSquares(rfgp.approximate(exact, num_features=32, input_dim=2), regularization=1e-3)
    >>> model.fit(torch.randn(50, 2), torch.randn(50, 2)).predict(torch.randn(4, 2)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        regularization: float,
        output_operator: Tensor | None = None,
        manifold_regularization: float = 0.0,
        solver: str = "cholesky",
        tolerance: float = 1e-8,
        max_iterations: int = 10_000,
    ) -> None:
        self.covar_module = with_features(kernel)
        if self.covar_module.is_complex:
            raise ValueError("expected a kernel with real features, got complex ones; use the real or :ctr form")
        self.regularization = _checked_penalty("regularization", regularization)
        name = "manifold_regularization"
        self.manifold_regularization = _checked_penalty(name, manifold_regularization, is_zero_allowed=True)
        self.output_operator = None if output_operator is None else _checked_operator(output_operator)
        self.solver = checks.choice("solver", solver, SOLVERS)
        self.tolerance = checks.positive("tolerance", tolerance, "1e-8 is usual")
        self.max_iterations = checks.positive_integer("max_iterations", max_iterations)
        self.num_iterations: int | None = None
        """Iterations of the last fit by "lbfgs"."""

    _verb = "fit(x, y)"

    @property
    def weights(self) -> Tensor:
        """The weights h of the features (K, 1), in float64."""
        return self._known().weights

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor, unlabeled: Tensor | None = None, laplacian: Tensor | None = None) -> Self:
        """Compute the weights, without gradients.

        :param x: labeled inputs (l, d).
        :param y: targets (l, T'), with T' = T where there is no output operator; or (l,) where T' = 1.
        :param unlabeled: inputs (u, d) without targets.
        :param laplacian: L (l + u, l + u) of the labeled and then the unlabeled inputs, symmetric and positive
            semi-definite, dense or sparse, such as :func:`knn_laplacian`; unused without ``manifold_regularization``.
        :raises ValueError: for bad or missing values, or a system that is not positive definite to working precision.
        """
        x = checks.columns(x)
        with maps_kept_on_error(self.covar_module):
            self._fitted, self.num_iterations = self._fit(x, y, unlabeled, laplacian)
        return self

    def _fit(
        self, x: Tensor, y: Tensor, unlabeled: Tensor | None, laplacian: Tensor | None
    ) -> tuple[_Fitted, int | None]:
        kernel, has_graph = self.covar_module, self.manifold_regularization > 0.0
        num_iterations = self.num_iterations
        self._check_inputs(x)
        every = x
        if unlabeled is not None:
            self._check_inputs(unlabeled, "unlabeled")
            checks.same_kind(unlabeled, x, "unlabeled", "x")
            if unlabeled.shape[-1] != x.shape[-1]:
                raise ValueError(
                    f"expected {x.shape[-1]} columns in unlabeled as in x, got {unlabeled.shape[-1]}; cut it"
                )
            every = torch.cat([x, unlabeled])
        if has_graph and laplacian is None:
            raise ValueError(
                "expected a laplacian for manifold_regularization, got none; use rfgp.models.knn_laplacian"
            )
        graph = None if laplacian is None else _checked_laplacian(laplacian, every)
        kernel.scalar_features(x[:1])
        factor = _output_factor(kernel)
        operator = None if self.output_operator is None else self.output_operator.to(x.device)
        if operator is not None and operator.shape[-1] != factor.num_outputs:
            raise ValueError(
                f"expected an output_operator with {factor.num_outputs} columns, one per output of the kernel, got "
                f"{tuple(operator.shape)}; correct one of the two"
            )
        columns = factor.num_outputs if operator is None else len(operator)
        targets = _checked_targets(y, x, columns)
        problem = LeastSquaresData(
            kernel, factor, every if has_graph else x, targets, operator, graph if has_graph else None
        )
        if self.solver == "lbfgs":
            penalties = len(x) * self.regularization, len(x) * self.manifold_regularization
            sums = None
            weights, num_iterations = by_lbfgs(problem, *penalties, self.tolerance, self.max_iterations)
        else:
            sums = problem.sums()
            weights = sums.solution(self.regularization, self.manifold_regularization)
        fitted = _Fitted(weights, sums, Record(self._state()))
        return fitted, num_iterations

    @torch.no_grad()
    def with_regularization(self, regularization: float, manifold_regularization: float | None = None) -> Self:
        """The same fit with other penalties, from the sums over the data; the default keeps the old graph penalty.

        :raises ValueError: where the model is not fitted, was fitted by "lbfgs", or has seen no graph for the penalty.
        """
        fitted, twin = self._known(), copy.copy(self)
        if fitted.sums is None:
            raise ValueError("expected a fit in closed form, got one by lbfgs; fit another model")
        twin.regularization = _checked_penalty("regularization", regularization)
        if manifold_regularization is not None:
            name = "manifold_regularization"
            twin.manifold_regularization = _checked_penalty(name, manifold_regularization, is_zero_allowed=True)
        if twin.manifold_regularization > 0.0 and fitted.sums.graph_gram is None:
            raise ValueError("expected a fit with manifold_regularization for another one, got one without; fit again")
        weights = fitted.sums.solution(twin.regularization, twin.manifold_regularization)
        twin._fitted = fitted._replace(weights=weights)
        return twin

    @torch.no_grad()
    def predict(self, x: Tensor, operator: Operator | None = None) -> Tensor:
        """The function at inputs (..., M, d); ``predict(x) @ C.mT`` is compared with the targets.

        :param operator: what to predict instead of the outputs, such as the divergence or the potential of a field.
        :returns: (..., M, T), or (..., M) for a scalar kernel and operators with one component; of the dtype of x.
        :raises ValueError: for bad inputs, or where the model is not fitted.
        """
        x = checks.columns(x)
        weights = self.weights
        self._check_inputs(x, is_batch=True)
        by_output = _output_factor(self.covar_module, operator).scalar_weights(weights).squeeze(-1)
        chunks = row_chunks(x.shape[-2], len(by_output))
        scalar = self.covar_module.scalar_features
        values = torch.cat([feature_product(scalar(x[..., rows, :]), by_output) for rows in chunks], dim=-2)
        is_scalar = not self.covar_module.has_output_factor or (operator is not None and values.shape[-1] == 1)
        return (values.squeeze(-1) if is_scalar else values).to(x.dtype)

    def _check_inputs(self, x: Tensor, name: str = "x", is_batch: bool = False) -> None:
        checks.finite(checks.inputs(x, name=name), name)
        if x.dim() != 2 and not is_batch:
            raise ValueError(f"expected {name} of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        parameter = next(self.covar_module.parameters(), None)
        if parameter is not None:
            checks.same_kind(x, parameter, name, "the kernel")

    def _state(self) -> dict[str, Tensor]:
        """What the weights depend on, by name."""
        state = {name: value.detach() for name, value in self.covar_module.named_parameters()}
        return state | {WEIGHTS: torch.tensor(self.covar_module.version)}


class _Fitted(NamedTuple):
    """Weights, the sums that they come from (None for L-BFGS), and what both depend on."""

    weights: Tensor
    sums: LeastSquaresEquations | None
    record: Record


def _output_factor(kernel: FeatureKernel, operator: Operator | None = None) -> OutputFactor:
    """The output factor in float64; for scalar kernels the root of their scale, as one of a single output."""
    factor = kernel.output_factor(operator)
    if isinstance(factor, Tensor):
        if factor.dim() != 2:
            raise ValueError(
                f"expected a kernel without batches, got output scales of shape {tuple(factor.shape[:-2])}"
            )
        return OutputFactor.kronecker(factor.double(), kernel.num_scalar_features)
    if factor.batch_shape:
        raise ValueError(f"expected a kernel without batches, got a batch shape of {tuple(factor.batch_shape)}")
    return factor.double()


def _checked_penalty(name: str, value: float, is_zero_allowed: bool = False) -> float:
    penalty = checks.number(value)
    if not 0.0 <= penalty < float("inf") or (penalty == 0.0 and not is_zero_allowed):
        wanted = "at least 0" if is_zero_allowed else "positive"
        raise ValueError(f"expected a finite {name} that is {wanted}, got {value!r}; try 1e-6")
    return penalty


def _checked_operator(operator: Tensor) -> Tensor:
    if checks.floating(operator, "output_operator").dim() != 2 or 0 in operator.shape:
        raise ValueError(f"expected an output_operator of shape (T', T), got {tuple(operator.shape)}; pass a matrix")
    return checks.finite(operator.detach().double(), "output_operator")


def _checked_targets(y: Tensor, x: Tensor, columns: int) -> Tensor:
    """Targets (l, T') in float64."""
    if not checks.tensor(y, "y").is_floating_point():
        raise ValueError(f"expected floating-point y, got {y.dtype}; convert it, or encode class labels")
    two_dimensional = y.unsqueeze(-1) if y.dim() == 1 and columns == 1 else y
    if two_dimensional.shape != (len(x), columns):
        raise ValueError(
            f"expected y of shape {(len(x), columns)}, one row per row of x, got {tuple(y.shape)}; reshape it"
        )
    checks.same_kind(y, x, "y", "x")
    return checks.finite(two_dimensional.detach(), "y").double()


def _checked_laplacian(laplacian: Tensor, x: Tensor) -> Tensor:
    """A symmetric matrix (N, N) in float64, dense or sparse in rows."""
    if not isinstance(laplacian, Tensor) or laplacian.shape != (len(x), len(x)):
        got = tuple(laplacian.shape) if isinstance(laplacian, Tensor) else type(laplacian).__name__
        raise ValueError(
            f"expected a laplacian of shape {(len(x), len(x))} for labeled and unlabeled inputs together, got {got}; "
            "use rfgp.models.knn_laplacian"
        )
    if laplacian.device != x.device:
        raise ValueError(f"expected a laplacian on {x.device}, where x is, got {laplacian.device}; move it")
    if laplacian.layout is torch.strided:
        matrix = checks.finite(laplacian.detach().double(), "laplacian")
        largest, difference = matrix.abs().max(), (matrix - matrix.mT).abs().max()
        is_symmetric = bool(difference <= 1e-5 * largest)
    else:
        matrix = laplacian.detach().to_sparse_coo().coalesce().double()
        values = checks.finite(matrix.values(), "laplacian")
        odd = (matrix - matrix.mT).coalesce().values()
        is_symmetric = not odd.numel() or bool(odd.abs().max() <= 1e-5 * values.abs().max())
    if not is_symmetric:
        raise ValueError("expected a symmetric laplacian, got one that is not; symmetrize the weights of the graph")
    return matrix
