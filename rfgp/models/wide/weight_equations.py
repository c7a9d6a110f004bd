"""Conjugate gradients for the weights of one output, with features made again chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import torch
from torch import Tensor
from tqdm.auto import tqdm

from ..._support import checks
from ...linalg import cholesky, row_chunks
from ...linalg.conjugate_gradients import ConjugateGradients

_SIGNS = 2
_SHARE_OF_TOLERANCE = 0.9
"""What the iterations are asked for, so that rounding does not lift the residual itself above the tolerance."""


class Convergence(NamedTuple):
    r"""How well the weights m of a mean solve :math:`B m = h`, with residual :math:`\rho = h - B m`.

    .. math:: |\phi(x)^\top (B^{-1} h - m)| \le \sqrt{\phi(x)^\top B^{-1} \phi(x)}\; \|\rho\|

    :param num_iterations: the iterations of conjugate gradients, each a pass over the rows.
    :param residual: :math:`\|\rho\|`, computed anew at the end.
    :param relative_residual: :math:`\|\rho\| / \|h\|`.
    :param tolerance: the residual that was asked for.
    """

    num_iterations: int
    residual: float
    relative_residual: float
    tolerance: float

    @property
    def is_converged(self) -> bool:
        """Whether the residual is within the tolerance."""
        return self.residual <= self.tolerance


class WeightEquations(NamedTuple):
    r"""The equations :math:`(I + \Phi^\top S^{-1} \Phi)\, m = \Phi^\top S^{-1} r`, of which no matrix is formed.

    Features are real (n, D) of inputs (n, d); residuals r and precisions of S^{-1} are (N,) in float64.
    """

    features: Callable[[Tensor], Tensor]
    num_features: int
    x: Tensor
    residuals: Tensor
    precisions: Tensor

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """Chunks of rows with their features."""
        for rows in row_chunks(len(self.x), self.num_features):
            yield rows, self.features(self.x[rows])

    def product(self, column: Tensor) -> Tensor:
        """B times weights (D, 1), in float64: one pass over the rows."""
        weights = column.squeeze(-1)
        total = weights.clone()
        for rows, features in self.chunks():
            exact = features.double()
            total += exact.mT @ (self.precisions[rows] * (exact @ weights))
        return total.unsqueeze(-1)

    def sums(self, sketch: SignSketch) -> tuple[Tensor, Tensor]:
        r"""The right side h (D,), and :math:`\Phi^\top S^{-1} \Phi \Omega` (D, m), in float64, in one pass."""
        right = self.residuals.new_zeros(self.num_features)
        products = self.residuals.new_zeros(self.num_features, sketch.num_columns)
        for rows, features in self.chunks():
            right += features.mT.double() @ (self.precisions[rows] * self.residuals[rows])
            weighted = sketch.times(features) * self.precisions[rows, None].to(features.dtype)
            products += features.mT @ weighted
        return right, products


class SignSketch(NamedTuple):
    r"""A sparse random matrix :math:`\Omega` (D, m) with s signs in every row: their columns and values, (s, D)."""

    places: Tensor
    signs: Tensor
    num_columns: int

    @classmethod
    def draw(cls, num_rows: int, num_columns: int, device: torch.device) -> Self:
        """The sketch of D rows and m columns, the same at every call."""
        generator, shape = torch.Generator().manual_seed(0), (_SIGNS, num_rows)
        places = torch.randint(num_columns, shape, generator=generator)
        signs = 2 * torch.randint(2, shape, generator=generator) - 1
        return cls(places.to(device), signs.to(device), num_columns)

    def times(self, matrix: Tensor) -> Tensor:
        r"""A matrix (n, D) times :math:`\Omega`, (n, m)."""
        result = matrix.new_zeros(len(matrix), self.num_columns)
        for places, signs in zip(self.places, self.signs, strict=True):
            result.index_add_(1, places, matrix * signs)
        return result


class NystromPreconditioner:
    r"""An approximation of :math:`B = I + G` by two Cholesky factors of size m, from C (D, m) in float64.

    .. math:: P = I + C (\Omega^\top C + \nu I)^{-1} C^\top, \qquad C = G\, \Omega, \qquad P \le B

    Source: Z. Frangella, J. A. Tropp and M. Udell, Randomized Nystrom preconditioning, 2023, with a sparse sketch.
    """

    def __init__(self, products: Tensor, sketch: SignSketch, dtype: torch.dtype) -> None:
        core = sketch.times(products.mT)
        core = 0.5 * (core + core.mT)
        core.diagonal().add_(1.0 + torch.finfo(dtype).eps * float(core.trace()))
        self._root = torch.linalg.solve_triangular(cholesky(core), products.mT, upper=False)
        inner = self._root @ self._root.mT
        inner.diagonal().add_(1.0)
        self._factor = cholesky(inner)

    def solve(self, values: Tensor) -> Tensor:
        r""":math:`P^{-1}` times columns (D, R)."""
        return values - self._root.mT @ torch.cholesky_solve(self._root @ values, self._factor)


def solved(
    equations: WeightEquations, rank: int, tolerance: float, max_iterations: int, progress: bool | None
) -> tuple[Tensor, Convergence]:
    """The weights (D,), in float64, and how well they solve the equations."""
    width, device = equations.num_features, equations.residuals.device
    columns = min(rank, width)
    what = f"a preconditioner of {width} x {columns} numbers"
    checks.fits_in_memory(24.0 * width * columns, what, "choose a smaller preconditioner_rank")
    sketch = SignSketch.draw(width, columns, device)
    right, products = equations.sums(sketch)
    if not bool(torch.isfinite(right).all()):
        raise checks.overflow(equations.x)
    preconditioner = NystromPreconditioner(products, sketch, equations.x.dtype)
    del products

    target, disable = _SHARE_OF_TOLERANCE * tolerance, checks.no_bar(progress)
    solver = ConjugateGradients(equations.product, preconditioner.solve, right.unsqueeze(-1))
    with tqdm(desc="conjugate gradients", unit="pass", disable=disable, leave=False) as bar:
        while float(torch.linalg.vector_norm(solver.residual)) >= target and len(solver.steps) < max_iterations:
            solver.step()
            bar.update()
    solver.replace_residual()
    residual, scale = (float(torch.linalg.vector_norm(v)) for v in (solver.residual, right))
    relative = residual / scale if scale > 0.0 else 0.0
    return solver.solution.squeeze(-1), Convergence(len(solver.steps), residual, relative, tolerance)
