"""Regularised least squares with many outputs in feature form, with unlabelled inputs and an output operator."""

from __future__ import annotations

import warnings
from typing import NamedTuple, Self

import scipy.optimize
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .. import _checks
from ..kernels.approximate import with_features
from ..kernels.feature_kernel import FeatureStructure
from ..kernels.output_features import OutputFeatures
from ..linalg import add_gram_, cholesky, mirror_, row_chunks
from ..operators import Operator
from ..output_factor import OutputFactor
from ..posterior import feature_product

SOLVERS = ("cholesky", "lbfgs")
_BLOCK = 512
_MEMORY = 20
"""Pairs of steps and gradient differences that L-BFGS keeps."""


class VectorLeastSquares:
    r"""The function in the span of random features that fits data best, smooth and smooth along a graph.

    .. math:: \min_f \frac1l \sum_{i=1}^l \|y_i - C f(x_i)\|^2 + \gamma_A \|f\|^2
        + \gamma_I \sum_{i,j=1}^{l+u} L_{ij}\, f(x_i)^\top f(x_j), \qquad f(x) = F(x) h

    The penalty of the graph runs over labelled and unlabelled inputs. The weights solve

    .. math:: \Big(\sum_{i \le l} F_i^\top C^\top C F_i + l \gamma_I \sum_{ij} L_{ij} F_i^\top F_j + l \gamma_A I\Big) h
        = \sum_{i \le l} F_i^\top C^\top y_i

    which is built from two scalar Gram matrices, :math:`\Psi^\top \Psi` and :math:`\Psi^\top L \Psi`: nothing of size
    (N T) x K is formed. Decomposable kernels with C = I or :math:`\gamma_I = 0` take one n x n system per output.
    Without a graph and with C = I this is ridge regression with :math:`\lambda = \gamma_A`, whose prediction is the
    posterior mean of a Gaussian process with noise variance :math:`l \gamma_A`.

    :param kernel: a kernel made by :func:`rfgp.approximate`, of one or many outputs, with real features.
    :param regularization: :math:`\gamma_A`, positive.
    :param output_operator: C (T', T); the identity where it is None.
    :param manifold_regularization: :math:`\gamma_I`, at least 0. It is not divided by the number of inputs.
    :param solver: "cholesky", in closed form; or "lbfgs", which needs products with the features alone, at O(N n T)
        per iteration.
    :param tolerance: "lbfgs" ends where no entry of the gradient exceeds this part of the largest one at the start.
    :param max_iterations: of "lbfgs".
    :raises ValueError: for a kernel without real features, or other values.

    Source: M Eq. 67 and 71 (Theorem 14); B Eq. 23, 26 and 27.

    >>> import gpytorch, rfgp
    >>> exact = rfgp.kernels.CurlFreeKernel(gpytorch.kernels.RBFKernel())
    >>> kernel = rfgp.approximate(exact, num_features=32, input_dim=2)
    >>> model = VectorLeastSquares(kernel, regularization=1e-3)
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
        tolerance: float = 1e-7,
        max_iterations: int = 10_000,
    ) -> None:
        self.covar_module = with_features(kernel)
        if self.covar_module.is_complex:
            raise ValueError("expected a kernel with real features, got complex ones; use the real or :ctr form")
        if not 0.0 < regularization < float("inf"):
            raise ValueError(f"expected a positive regularization, got {regularization}; try 1e-6")
        if not 0.0 <= manifold_regularization < float("inf"):
            raise ValueError(
                f"expected a manifold_regularization of at least 0, got {manifold_regularization}; try 1e-3"
            )
        if not tolerance > 0.0:
            raise ValueError(f"expected a positive tolerance, got {tolerance}; 1e-7 is usual")
        self.regularization = float(regularization)
        self.manifold_regularization = float(manifold_regularization)
        self.output_operator = None if output_operator is None else _checked_operator(output_operator)
        self.solver = _checks.choice("solver", solver, SOLVERS)
        self.tolerance = float(tolerance)
        self.max_iterations = _checks.positive_integer("max_iterations", max_iterations)
        self.num_iterations: int | None = None
        """Iterations of the last fit by "lbfgs"."""
        self._fitted: _Fitted | None = None

    @property
    def weights(self) -> Tensor:
        """The weights h of the features (K, 1), in float64.

        :raises ValueError: before the first fit, or where parameters or random weights have changed since.
        """
        if self._fitted is None:
            raise ValueError("expected a fitted model, got one without data; call fit(x, y) first")
        now = self._state()
        changed = [name for name, value in self._fitted.state.items() if not torch.equal(value, now[name])]
        if changed:
            raise ValueError(
                f"expected the parameters that the model was fitted with, got a new {', '.join(changed)}; "
                "call fit(x, y) again"
            )
        return self._fitted.weights

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor, unlabelled: Tensor | None = None, laplacian: Tensor | None = None) -> Self:
        """Compute the weights, without gradients.

        :param x: labelled inputs (l, d).
        :param y: targets (l, T'), with T' = T where there is no output operator; or (l,) where T' = 1.
        :param unlabelled: inputs (u, d) without targets.
        :param laplacian: L (l + u, l + u) of the labelled inputs and then the unlabelled ones, symmetric and positive
            semi-definite, dense or sparse, such as that of :func:`knn_laplacian`. Without ``manifold_regularization``
            it has no effect.
        :returns: the model.
        :raises ValueError: for bad or missing values, or a system that is not positive definite to working precision.
        """
        kernel, has_graph = self.covar_module, self.manifold_regularization > 0.0
        self._check_inputs(x)
        every = x
        if unlabelled is not None:
            self._check_inputs(unlabelled, "unlabelled")
            _checks.same_kind(unlabelled, x, "unlabelled", "x")
            if unlabelled.shape[-1] != x.shape[-1]:
                raise ValueError(f"expected {x.shape[-1]} columns in unlabelled as in x, got {unlabelled.shape[-1]}")
            every = torch.cat([x, unlabelled])
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
        problem = _Problem(kernel, factor, every if has_graph else x, targets, operator, graph if has_graph else None)
        penalties = len(x) * self.regularization, len(x) * self.manifold_regularization
        if self.solver == "lbfgs":
            weights, self.num_iterations = _by_lbfgs(problem, *penalties, self.tolerance, self.max_iterations)
        elif factor.covariance_root is not None and (operator is None or not has_graph):
            weights = _by_output(problem, factor.covariance_root, *penalties)
        else:
            weights = _in_closed_form(problem, *penalties)
        self._fitted = _Fitted(weights, {name: value.clone() for name, value in self._state().items()})
        return self

    @torch.no_grad()
    def predict(self, x: Tensor, operator: Operator | None = None) -> Tensor:
        """The function at inputs; ``predict(x) @ C.mT`` is what the targets are compared with.

        :param x: inputs (..., M, d).
        :param operator: what to predict instead of the outputs of an operator-valued kernel, such as the divergence or
            the potential of a field.
        :returns: (..., M, T) for T outputs, or (..., M) for a scalar kernel, of the dtype of x.
        :raises ValueError: for bad inputs, or where the model is not fitted.
        """
        weights = self.weights
        self._check_inputs(x, is_batch=True)
        by_output = _output_factor(self.covar_module, operator).scalar_weights(weights).squeeze(-1)
        chunks = row_chunks(x.shape[-2], len(by_output))
        scalar = self.covar_module.scalar_features
        values = torch.cat([feature_product(scalar(x[..., rows, :]), by_output) for rows in chunks], dim=-2)
        return (values if self.covar_module.has_output_factor else values.squeeze(-1)).to(x.dtype)

    def _check_inputs(self, x: Tensor, name: str = "x", is_batch: bool = False) -> None:
        _checks.finite(_checks.inputs(x, name=name), name)
        if x.dim() != 2 and not is_batch:
            raise ValueError(f"expected {name} of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        parameter = next(self.covar_module.parameters(), None)
        if parameter is not None:
            _checks.same_kind(x, parameter, name, "the kernel")

    def _state(self) -> dict[str, Tensor]:
        """What the weights depend on, by name."""
        state = {name: value.detach() for name, value in self.covar_module.named_parameters()}
        return state | {"set of random weights": torch.tensor(self.covar_module.draws)}


class _Fitted(NamedTuple):
    weights: Tensor
    state: dict[str, Tensor]


class _Problem(NamedTuple):
    """Data in the form that all solvers take; the first ``len(targets)`` inputs are labelled."""

    kernel: FeatureStructure
    factor: OutputFactor
    x: Tensor
    targets: Tensor
    operator: Tensor | None
    graph: Tensor | None

    def adjoint(self, values: Tensor) -> Tensor:
        """Rows (l, T') times C: (l, T)."""
        return values if self.operator is None else values @ self.operator

    def sums(self) -> tuple[Tensor, Tensor]:
        """Gram matrix (n, n) and cross products (n, T) of the labelled rows, chunk by chunk."""
        width, targets = self.factor.num_scalar, self.adjoint(self.targets)
        gram = targets.new_zeros(width, width)
        cross = targets.new_zeros(width, targets.shape[-1])
        for rows in row_chunks(len(targets), width):
            add_gram_(gram, cross, self.kernel.scalar_features(self.x[rows]), targets[rows])
        return mirror_(gram), cross

    def graph_gram(self) -> Tensor:
        """The scalar Gram matrix with the Laplacian between, (n, n)."""
        if self.graph is None:
            raise ValueError("expected a laplacian, got none; pass it to fit")
        features = self.kernel.scalar_features(self.x).double()
        blocks = [features.mT @ (self.graph @ block.contiguous()) for block in features.split(_BLOCK, dim=-1)]
        gram = torch.cat(blocks, dim=-1)
        return 0.5 * (gram + gram.mT)


def _in_closed_form(problem: _Problem, ridge: float, along_graph: float) -> Tensor:
    """The K x K system of M Eq. 71."""
    factor, columns = problem.factor, problem.factor.num_columns
    _checks.fits_in_memory(
        24.0 * columns**2, f"systems of {columns} x {columns} numbers", "use fewer features or lbfgs"
    )
    gram, cross = problem.sums()
    identity = torch.eye(factor.num_outputs, dtype=torch.float64, device=gram.device)
    operator = identity if problem.operator is None else problem.operator
    system = factor.gram(gram, operator.mT @ operator)
    if problem.graph is not None:
        system = system + factor.gram(along_graph * problem.graph_gram(), identity)
    system.diagonal().add_(ridge)
    return torch.cholesky_solve(factor.cross(cross, identity), cholesky(system))


def _by_output(problem: _Problem, root: Tensor, ridge: float, along_graph: float) -> Tensor:
    """The same for the Kronecker product of features with a root A: one n x n system per eigenvector of A^T C^T C A.

    Source: B 5.3, where it is called a Stein equation.
    """
    gram, cross = problem.sums()
    if problem.graph is not None:
        gram = gram + along_graph * problem.graph_gram()
    observed = root if problem.operator is None else problem.operator @ root
    values, vectors = torch.linalg.eigh(observed.mT @ observed)
    right = cross @ root @ vectors
    solved = []
    for value, column in zip(values.clamp_min(0.0), right.unbind(-1), strict=True):
        system = value * gram
        system.diagonal().add_(ridge)
        solved.append(torch.cholesky_solve(column.unsqueeze(-1), cholesky(system)))
    return (torch.cat(solved, dim=-1) @ vectors.mT).reshape(-1, 1)


def _by_lbfgs(
    problem: _Problem, ridge: float, along_graph: float, tolerance: float, max_iterations: int
) -> tuple[Tensor, int]:
    """Half the objective, B Eq. 23, and its gradient, Eq. 26, from products with the features; scaled to gradient 1."""
    targets = problem.targets
    count, device = len(targets), targets.device
    features = OutputFeatures.of(problem.kernel.scalar_features(problem.x).double(), problem.factor)
    outputs = problem.factor.num_outputs
    everything = targets.new_zeros(len(problem.x), outputs)
    everything[:count] = problem.adjoint(targets)
    scale = float(features.rmatvec(everything.flatten()).abs().max())
    if scale == 0.0:
        return targets.new_zeros(problem.factor.num_columns, 1), 0

    def objective(flat: object) -> tuple[float, object]:
        h = torch.as_tensor(flat, dtype=torch.float64, device=device)
        values = features.matvec(h).unflatten(-1, (-1, outputs))
        fitted = values[:count] if problem.operator is None else values[:count] @ problem.operator.mT
        residual = fitted - targets
        from_values = torch.zeros_like(values)
        from_values[:count] = problem.adjoint(residual)
        total = residual.square().sum() + ridge * h.square().sum()
        if problem.graph is not None:
            smoothed = along_graph * (problem.graph @ values)
            total = total + (values * smoothed).sum()
            from_values += smoothed
        gradient = features.rmatvec(from_values.flatten()) + ridge * h
        return 0.5 * float(total) / scale, (gradient / scale).cpu().numpy()

    start = targets.new_zeros(problem.factor.num_columns).cpu().numpy()
    options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "ftol": 0.0, "gtol": tolerance}
    result = scipy.optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B", options=options | {"maxcor": _MEMORY}
    )
    reached = float(abs(result.jac).max())
    if reached > tolerance:
        warnings.warn(
            f"L-BFGS ended after {result.nit} iterations with a gradient of {reached:.1e} of that at the start, above "
            f"the tolerance {tolerance:.1e}; raise the regularization, max_iterations or tolerance, or use cholesky",
            stacklevel=3,
        )
    return torch.as_tensor(result.x, dtype=torch.float64, device=device).unsqueeze(-1), int(result.nit)


def _output_factor(kernel: FeatureStructure, operator: Operator | None = None) -> OutputFactor:
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


def _checked_operator(operator: Tensor) -> Tensor:
    if not isinstance(operator, Tensor) or not operator.is_floating_point() or operator.dim() != 2:
        got = tuple(operator.shape) if isinstance(operator, Tensor) else type(operator).__name__
        raise ValueError(f"expected a floating-point output_operator of shape (T', T), got {got}; pass a matrix")
    return _checks.finite(operator.detach().double(), "output_operator")


def _checked_targets(y: Tensor, x: Tensor, columns: int) -> Tensor:
    """Targets (l, T') in float64."""
    if not isinstance(y, Tensor) or not y.is_floating_point():
        got = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"expected a floating-point tensor for y, got {got}; convert it, or encode class labels")
    two_dimensional = y.unsqueeze(-1) if y.dim() == 1 and columns == 1 else y
    if two_dimensional.shape != (len(x), columns):
        raise ValueError(f"expected y of shape {(len(x), columns)}, one row per row of x, got {tuple(y.shape)}")
    _checks.same_kind(y, x, "y", "x")
    return _checks.finite(two_dimensional.detach(), "y").double()


def _checked_laplacian(laplacian: Tensor, x: Tensor) -> Tensor:
    """A symmetric matrix (N, N) in float64, dense or sparse in rows."""
    if not isinstance(laplacian, Tensor) or laplacian.shape != (len(x), len(x)):
        got = tuple(laplacian.shape) if isinstance(laplacian, Tensor) else type(laplacian).__name__
        raise ValueError(
            f"expected a laplacian of shape {(len(x), len(x))} for labelled and unlabelled inputs together, got {got}"
        )
    if laplacian.device != x.device:
        raise ValueError(f"expected a laplacian on {x.device}, where x is, got {laplacian.device}; move it")
    if laplacian.layout is torch.strided:
        matrix = _checks.finite(laplacian.detach().double(), "laplacian")
        largest, difference = matrix.abs().max(), (matrix - matrix.mT).abs().max()
        is_symmetric = bool(difference <= 1e-5 * largest)
    else:
        matrix = laplacian.detach().to_sparse_coo().coalesce().double()
        values = _checks.finite(matrix.values(), "laplacian")
        odd = (matrix - matrix.mT).coalesce().values()
        is_symmetric = not odd.numel() or bool(odd.abs().max() <= 1e-5 * values.abs().max())
    if not is_symmetric:
        raise ValueError("expected a symmetric laplacian, got one that is not; symmetrise the weights of the graph")
    return matrix
