"""The normal equations of regularized least squares with many outputs, and how they are solved."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import scipy
import torch
from torch import Tensor

from ..._support import checks
from ...approximation import FeatureKernel
from ...approximation.hooks.output_features import OutputFeatures
from ...inference import OutputFactor
from ...linalg import add_gram_, cholesky, mirror_, row_chunks

_BLOCK = 512
_MEMORY = 20
"""Pairs of steps and gradient differences that L-BFGS keeps."""
_REFINEMENTS = 4


class LeastSquaresData(NamedTuple):
    """Data in the form that all solvers take; the first ``len(targets)`` inputs are labeled."""

    kernel: FeatureKernel
    factor: OutputFactor
    x: Tensor
    targets: Tensor
    operator: Tensor | None
    graph: Tensor | None

    def adjoint(self, values: Tensor) -> Tensor:
        """Rows (l, T') times C: (l, T)."""
        return values if self.operator is None else values @ self.operator

    def sums(self) -> LeastSquaresEquations:
        """What the closed form needs of the data, chunk by chunk."""
        width, targets = self.factor.num_scalar, self.adjoint(self.targets)
        gram = targets.new_zeros(width, width)
        cross = targets.new_zeros(width, targets.shape[-1])
        for rows in row_chunks(len(targets), width):
            add_gram_(gram, cross, self.kernel.scalar_features(self.x[rows]), targets[rows])
        graph_gram = None if self.graph is None else self._graph_gram(self.graph)
        return LeastSquaresEquations(len(targets), self.factor, self.operator, mirror_(gram), cross, graph_gram)

    def _graph_gram(self, graph: Tensor) -> Tensor:
        features = self.kernel.scalar_features(self.x).double()
        blocks = [features.mT @ (graph @ block.contiguous()) for block in features.split(_BLOCK, dim=-1)]
        gram = torch.cat(blocks, dim=-1)
        return 0.5 * (gram + gram.mT)


class LeastSquaresEquations(NamedTuple):
    """Scalar Gram matrices (n, n), without and with the Laplacian between, and cross products (n, T) with C^T y."""

    num_rows: int
    factor: OutputFactor
    operator: Tensor | None
    gram: Tensor
    cross: Tensor
    graph_gram: Tensor | None

    def solution(self, regularization: float, manifold_regularization: float) -> Tensor:
        """The weights (K, 1)."""
        ridge, along_graph = self.num_rows * regularization, self.num_rows * manifold_regularization
        if self.factor.covariance_root is not None and (self.operator is None or along_graph == 0.0):
            return self._by_output(self.factor.covariance_root, ridge, along_graph)
        return self._in_closed_form(ridge, along_graph)

    def _in_closed_form(self, ridge: float, along_graph: float) -> Tensor:
        """The K x K system of M Eq. 71."""
        columns = self.factor.num_columns
        what = f"systems of {columns} x {columns} numbers"
        checks.fits_in_memory(24.0 * columns**2, what, "use fewer features or lbfgs")
        identity = torch.eye(self.factor.num_outputs, dtype=torch.float64, device=self.gram.device)
        operator = identity if self.operator is None else self.operator
        system = self.factor.gram(self.gram, operator.mT @ operator)
        if self.graph_gram is not None and along_graph > 0.0:
            system = system + self.factor.gram(along_graph * self.graph_gram, identity)
        system.diagonal().add_(ridge)
        return torch.cholesky_solve(self.factor.adjoint(self.cross.unsqueeze(-1)), cholesky(system))

    def _by_output(self, root: Tensor, ridge: float, along_graph: float) -> Tensor:
        """The same for features times a Kronecker root A: a system per eigenvalue of A^T C^T C A; B 5.3."""
        gram = self.gram
        if self.graph_gram is not None and along_graph > 0.0:
            gram = gram + along_graph * self.graph_gram
        observed = root if self.operator is None else self.operator @ root
        values, vectors = torch.linalg.eigh(observed.mT @ observed)
        right = self.cross @ root @ vectors
        solved = torch.empty_like(right)
        for value in values.unique():
            system = value.clamp_min(0.0) * gram
            system.diagonal().add_(ridge)
            solved[:, values == value] = torch.cholesky_solve(right[:, values == value], cholesky(system))
        return (solved @ vectors.mT).reshape(-1, 1)


def by_lbfgs(
    problem: LeastSquaresData, ridge: float, along_graph: float, tolerance: float, max_iterations: int
) -> tuple[Tensor, int]:
    """Minimize the objective, B Eq. 23, by its gradient, Eq. 26, from products with the features.

    Corrections are then minimized over, as in iterative refinement, since rounding hides the last decrease.
    """
    targets = problem.targets
    labeled, device = len(targets), targets.device
    features = OutputFeatures.of(problem.kernel.scalar_features(problem.x).double(), problem.factor)
    outputs = problem.factor.num_outputs

    def product(h: Tensor) -> Tensor:
        """The matrix of the normal equations times weights (K,)."""
        values = features.matvec(h).unflatten(-1, (-1, outputs))
        result = torch.zeros_like(values) if problem.graph is None else along_graph * (problem.graph @ values)
        observed = values[:labeled] if problem.operator is None else values[:labeled] @ problem.operator.mT
        result[:labeled] += problem.adjoint(observed)
        return features.rmatvec(result.flatten()) + ridge * h

    everything = targets.new_zeros(len(problem.x), outputs)
    everything[:labeled] = problem.adjoint(targets)
    right = features.rmatvec(everything.flatten())
    weights, residual = torch.zeros_like(right), right
    wanted, done = tolerance * float(right.abs().max()), 0
    for _ in range(_REFINEMENTS):
        scale = float(residual.abs().max())
        if scale <= wanted or done >= max_iterations:
            break
        direction = residual / scale

        def objective(flat: Any, direction: Tensor = direction) -> tuple[float, Any]:
            step = torch.as_tensor(flat, dtype=torch.float64, device=device)
            gradient = product(step) - direction
            return 0.5 * float(step @ (gradient - direction)), gradient.cpu().numpy()

        limit = max_iterations - done
        options = {"maxiter": limit, "maxfun": 2 * limit, "ftol": 0.0, "gtol": wanted / scale, "maxcor": _MEMORY}
        start = torch.zeros_like(right).cpu().numpy()
        result = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        weights = weights + scale * torch.as_tensor(result.x, dtype=torch.float64, device=device)
        residual, done = right - product(weights), done + int(result.nit)
    reached = float(residual.abs().max())
    if reached > 1.01 * wanted:
        warnings.warn(
            f"L-BFGS ended after {done} iterations with a gradient of {reached:.1e}, above the {wanted:.1e} of the "
            "tolerance; raise the regularization, max_iterations or tolerance, or use cholesky",
            stacklevel=5,
        )
    return weights.unsqueeze(-1), done
