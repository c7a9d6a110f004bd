"""The precision of the weights of a frequency grid that is never formed: solutions, log determinant and draws."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .cholesky_factor import factor_of, log_determinant_of
from .conjugate_gradients import ConjugateGradients
from .frequency_grid import head_of_gram
from .lanczos import Krylov, lanczos
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
    """

    draws: Tensor
    log_determinants: Tensor


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
        self._numbers, self._head = head_of_gram(gram.lags, gram.orders, _HEAD)
        self._factor = factor_of(self._block(self.amplitudes[self._numbers]))
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
        draws, traces = [], []
        for part in columns.split(_AT_ONCE, dim=-1):
            krylov = self._krylov(part)
            draws.append(self._half_solved(krylov.products(torch.rsqrt), True))
            traces.append(krylov.quadratic_forms(torch.log))
        return Probes(torch.cat(draws, dim=-1), self._log_determinant() + torch.cat(traces))

    def log_determinant(self, columns: Tensor, has_slope: bool) -> tuple[Tensor, Tensor]:
        r"""The mean of :attr:`Probes.log_determinants`, (), and its derivative in the amplitudes (D,), zero without.

        .. math:: d\, z^\top \log(A) z = \mathrm{tr}\, S\, dA, \qquad
            dA = L^{-1} dB L^{-\top} - \Lambda A - A \Lambda^\top, \qquad \Lambda = L^{-1} dL
        """
        traces, slope, of_head = [], torch.zeros_like(self.amplitudes), torch.zeros_like(self._factor)
        of_tail = torch.zeros_like(self.amplitudes)
        for part in columns.split(_AT_ONCE, dim=-1):
            krylov = self._krylov(part)
            traces.append(krylov.quadratic_forms(torch.log))
            for column in range(part.shape[-1] if has_slope else 0):
                vectors, nodes, inner = krylov.log_slope(column)
                scaled = nodes.unsqueeze(-1) * inner
                solved, right = self._half_solved(vectors, True), vectors @ scaled
                slope += ((self._half_times(right) - solved @ inner) * solved).sum(-1)
                of_tail += (right * vectors).sum(-1)
                of_head += right[self._numbers] @ vectors[self._numbers].mT
        count = columns.shape[-1]
        if has_slope:
            slope = 2.0 * slope / (count * self.amplitudes)
            slope += self._slope_of_preconditioner(of_head / count, of_tail / count)
        return self._log_determinant() + torch.cat(traces).mean(), slope

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

    def _half_times(self, columns: Tensor) -> Tensor:
        """L times columns (D, R)."""
        result = columns * self._diagonal.sqrt().unsqueeze(-1)
        result[self._numbers] = self._factor @ columns[self._numbers]
        return result

    def _slope_of_preconditioner(self, of_head: Tensor, of_tail: Tensor) -> Tensor:
        r"""The derivative of :math:`\log|P| - 2\, \mathrm{tr}\, C \Lambda` in the amplitudes, at the present ones.

        :param of_head: C for the features of the block, (K, K).
        :param of_tail: the diagonal of C, (D,).
        """
        result = 2.0 * (1.0 - of_tail) * self.amplitudes * self.gram.diagonal / self._diagonal
        with torch.enable_grad():
            inner = self.amplitudes[self._numbers].requires_grad_()
            factor = factor_of(self._block(inner))
            weights = torch.linalg.solve_triangular(self._factor.mT, of_head.mT, upper=True)
            value = log_determinant_of(factor) - 2.0 * (weights * factor).sum()
            (of_numbers,) = torch.autograd.grad(value, inner)
        result[self._numbers] = of_numbers
        return result

    def _block(self, amplitudes: Tensor) -> Tensor:
        """The block of B for the features of the first orders with these amplitudes, (K, K)."""
        identity = torch.eye(len(amplitudes), dtype=amplitudes.dtype, device=amplitudes.device)
        return identity + amplitudes.unsqueeze(-1) * self._head * amplitudes

    def _krylov(self, columns: Tensor) -> Krylov:
        return lanczos(self._preconditioned, columns, _CHANGE, _MOST_ITERATIONS)
