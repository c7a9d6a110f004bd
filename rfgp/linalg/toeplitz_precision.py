"""The precision of the weights of a frequency grid that is never formed: solutions, log determinant and draws."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .cholesky_factor import factor_of, log_determinant_of
from .conjugate_gradients import ConjugateGradients
from .frequency_grid import head_of_gram
from .lanczos import lanczos
from .toeplitz_gram import ToeplitzGram

_HEAD = 1000
"""How many of the first orders the preconditioner has a dense block for."""
_TOLERANCE, _MOST_STEPS = 1e-4, 2000
_CHANGE, _MOST_ITERATIONS = 0.01, 150
_AT_ONCE = 4
"""So many columns share a product; their Krylov spaces are held."""


class Probes(NamedTuple):
    r"""What R random columns tell of a precision B.

    :param draws: columns with covariance :math:`B^{-1}`, (D, R).
    :param log_determinants: an estimate of log|B| by every column, (R,).
    :param inverse_diagonal: an estimate of the diagonal of :math:`B^{-1}` by all of them, (D,).
    """

    draws: Tensor
    log_determinants: Tensor
    inverse_diagonal: Tensor


class ToeplitzPrecision:
    r"""The matrix :math:`B = I + U G U` for a diagonal U and the Gram matrix G of a frequency grid.

    .. math:: P = \begin{pmatrix} B_{HH} & \\ & \mathrm{diag}(B) \end{pmatrix} = L L^\top, \qquad
        \log|B| = \log|P| + E\, z^\top \log(L^{-1} B L^{-\top}) z, \qquad
        w = L^{-\top} (L^{-1} B L^{-\top})^{-1/2} z \sim N(0, B^{-1})

    for z from N(0, I), and the features H of the first orders, whose amplitudes are the largest when a grid is chosen.

    :param amplitudes: the diagonal of U, (D,), in float64.

    Source: Ubaru, Chen and Saad (2017); Pleiss et al. (2020), arXiv 2006.11267, by Lanczos iterations.
    """

    def __init__(self, gram: ToeplitzGram, amplitudes: Tensor) -> None:
        self.gram, self.amplitudes = gram, amplitudes.detach()
        self._numbers, block = head_of_gram(gram.lags, gram.orders, _HEAD)
        inner = self.amplitudes[self._numbers]
        block = inner.unsqueeze(-1) * block * inner
        block.diagonal().add_(1.0)
        self._factor = factor_of(block)
        self._diagonal = 1.0 + self.amplitudes.square() * gram.diagonal.clamp_min(0.0)

    def product(self, columns: Tensor) -> Tensor:
        """B times columns (D, R)."""
        scale = self.amplitudes.unsqueeze(-1)
        return columns + scale * self.gram.product(scale * columns)

    def solve(self, right: Tensor) -> tuple[Tensor, Tensor]:
        """The solutions (D, R) of B m = h by conjugate gradients, and their residuals h - B m."""
        parts = [self._solved(part) for part in right.split(_AT_ONCE, dim=-1)]
        solutions, residuals = zip(*parts, strict=True)
        return torch.cat(solutions, dim=-1), torch.cat(residuals, dim=-1)

    def probes(self, columns: Tensor) -> Probes:
        """What columns (D, R) from N(0, I) tell."""
        draws, traces, diagonal = [], [], torch.zeros_like(self.amplitudes)
        for part in columns.split(_AT_ONCE, dim=-1):
            krylov = lanczos(self._preconditioned, part, _CHANGE, _MOST_ITERATIONS)
            draws.append(self._half_solved(krylov.products(torch.rsqrt), True))
            traces.append(krylov.quadratic_forms(torch.log))
            diagonal += (draws[-1].square() - self._half_solved(part, True).square()).sum(-1)
        log_determinants = self._log_determinant() + torch.cat(traces)
        return Probes(torch.cat(draws, dim=-1), log_determinants, self._inverse_diagonal() + diagonal / len(columns.mT))

    def _solved(self, right: Tensor) -> tuple[Tensor, Tensor]:
        solver = ConjugateGradients(self.product, self._preconditioner_solved, right)
        while float(torch.linalg.vector_norm(solver.residual, dim=0).max()) > 0.5 * _TOLERANCE:
            if len(solver.steps) == _MOST_STEPS:
                break
            solver.step()
        solver.replace_residual()
        size = float(torch.linalg.vector_norm(solver.residual, dim=0).max())
        if size > _TOLERANCE:
            raise ValueError(
                f"expected weights of a Fourier grid within {_TOLERANCE:g} posterior standard deviations after "
                f"{_MOST_STEPS} conjugate gradients, got {size:.2g}; the noise is too small for so many features: "
                "raise the noise, or take at most 4001 features, which are solved densely"
            )
        return solver.solution, solver.residual

    def _preconditioned(self, columns: Tensor) -> Tensor:
        return self._half_solved(self.product(self._half_solved(columns, True)), False)

    def _preconditioner_solved(self, columns: Tensor) -> Tensor:
        result = columns / self._diagonal.unsqueeze(-1)
        result[self._numbers] = torch.cholesky_solve(columns[self._numbers], self._factor)
        return result

    def _half_solved(self, columns: Tensor, is_transposed: bool) -> Tensor:
        r""":math:`L^{-1}`, or :math:`L^{-\top}`, times columns (D, R)."""
        result = columns / self._diagonal.sqrt().unsqueeze(-1)
        factor = self._factor.mT if is_transposed else self._factor
        inner = columns[self._numbers]
        result[self._numbers] = torch.linalg.solve_triangular(factor, inner, upper=is_transposed)
        return result

    def _log_determinant(self) -> Tensor:
        """log|P|."""
        diagonal = self._diagonal.log()
        diagonal[self._numbers] = 0.0
        return log_determinant_of(self._factor) + diagonal.sum()

    def _inverse_diagonal(self) -> Tensor:
        """The diagonal of the inverse of P."""
        result = 1.0 / self._diagonal
        result[self._numbers] = torch.cholesky_inverse(self._factor).diagonal()
        return result
