"""Members whose kernel has a lengthscale for each input, and whose parameters are drawn from their posterior."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from ..linalg import cholesky
from .column_scale import ColumnScale
from .functions import ConditionedKernel, DrawnFunctions
from .input_scale import InputScale
from .member import Functions, JointNormal, Member, MemberRows, Moments, group_left_out
from .parameter_draws import Floats, most_probable, parameter_draws
from .smooth_kernel import SmoothKernel
from .table_kernel import FixedParts, TableKernel, fixed_matrices, has_lengthscales
from .target_kernel import TargetKernel

_STEPS, _STEPS_FROM_NEAR, _STEPS_OF_OTHER_ROWS = 100, 40, 10
"""Steps of the search for the most probable parameters, of one that begins at those of other rows, and of some rows."""
_MOST_ROWS = 500


class TableRows(FixedParts, MemberRows):
    """Inputs on a scale, and the parts of the kernel there that have no parameters but a scale."""

    def __init__(self, scale: InputScale, x: Tensor) -> None:
        self.scale, self.x = scale, scale(x)
        self.fixed = fixed_matrices(self.x, self.x)

    def of(self, some: Tensor) -> TableRows:
        """Some of the rows, by their numbers."""
        twin = copy.copy(self)
        twin.x, twin.fixed = self.x[some], self.fixed[:, some][:, :, some]
        return twin

    def with_inputs(self, x: Tensor) -> TableRows:
        return TableRows(self.scale, x)


class TableMember(Member[TableRows]):
    """Exact processes of rows (N, d) and targets (N, T), one for each target and draw of its parameters.

    :ivar modes: the most probable parameters (p,) of every target.
    :ivar vectors: draws (S, p).
    :ivar roots: roots (p, p) of the covariances of their proposals.

    :param rows: the inputs.
    :param target: the scale of the targets.
    :param y: the targets.
    """

    def __init__(self, rows: TableRows, target: ColumnScale, y: Tensor) -> None:
        self.rows, self.target, self.has_lengthscales = rows, target, has_lengthscales(rows.x.shape[1], len(rows.x))
        self.y = target.forward(y)
        self.modes = [kernel.start for kernel in self._kernels]
        self.vectors, self.roots = [mode[None] for mode in self.modes], [np.eye(len(mode)) for mode in self.modes]

    @property
    def _kernels(self) -> Sequence[TargetKernel]:
        rows = self.rows
        return [TableKernel(rows.x, column, rows.fixed, self.has_lengthscales) for column in self.y.mT]

    def _with_some(self, some: Tensor) -> TableMember:
        """The same with some of the rows, by their numbers."""
        twin = copy.copy(self)
        if len(some) < len(self.y):
            twin.rows, twin.y = self.rows.of(some), self.y[some]
        return twin

    @property
    def num_draws(self) -> int:  # type: ignore[override]
        """How many draws of the parameters each target has."""
        return len(self.vectors[0])

    def learn(
        self, count: int, num_proposals: int, near: TableMember | None = None, some: Tensor | None = None
    ) -> None:
        """Find the most probable parameters of every target, and draw from their posterior.

        :param count: the number of draws, or 0 for the most probable parameters alone.
        :param near: a member of some of the rows or of other scales, with draws: its parameters are near.
        :param some: the numbers of rows that are learned from; default: all.
        """
        kernels = self._kernels if some is None else self._with_some(some)._kernels
        if near is None:
            self.modes = [most_probable(kernel, kernel.start, _STEPS).vector for kernel in kernels]
        else:
            starts = zip(kernels, near.modes, near.roots, strict=True)
            self.modes = [most_probable(kernel, mode, _STEPS_FROM_NEAR, root).vector for kernel, mode, root in starts]
        self.vectors = [mode[None] for mode in self.modes]
        if count:
            pairs = zip(kernels, self.modes, strict=True)
            draws = [parameter_draws(kernel, mode, count, num_proposals) for kernel, mode in pairs]
            self.vectors, self.roots = [of.vectors for of in draws], [of.root for of in draws]

    def _posteriors(self, number: int) -> Iterator[tuple[TargetKernel, Floats, Tensor, Tensor]]:
        """For each draw of a target its vector, the Cholesky factor (N, N) of the covariance, and its solution (N,)."""
        kernel = self._kernels[number]
        for vector in self.vectors[number]:
            factor = _factor(kernel, vector)
            yield kernel, vector, factor, torch.cholesky_solve(kernel.y.unsqueeze(-1), factor).squeeze(-1)

    def _stacked(self, each: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> Moments:
        """Moments from those of every target and draw."""
        parts = [torch.stack([torch.stack([pair[part] for pair in of]) for of in each], dim=-1) for part in range(2)]
        return Moments(*parts)

    def left_out(self, groups: Sequence[Tensor] = ()) -> Moments:
        found = []
        for number, column in enumerate(self.y.mT):
            pairs = []
            for _, _, factor, alpha in self._posteriors(number):
                inverse = torch.cholesky_inverse(factor)
                block = functools.partial(_block, inverse)
                columns = column.unsqueeze(-1), alpha.unsqueeze(-1)
                mean, variance = group_left_out(*columns, inverse.diagonal(), block, groups)
                pairs.append((mean.squeeze(-1), variance))
            found.append(pairs)
        return self._stacked(found)

    def log_evidence(self) -> float:
        total = float(self.target.log_slope(self.target.inverse(self.y)).sum())
        for kernel, mode in zip(self._kernels, self.modes, strict=True):
            total += kernel.prior(mode)[0] - kernel.loss(mode, has_gradient=False)[0]
        return total - 0.5 * self.y.numel() * math.log(2.0 * math.pi)

    def with_targets(self, y: Tensor) -> TableMember:
        twin = copy.copy(self)
        twin.y = self.target.forward(y)
        return twin

    def with_rows(self, rows: TableRows, x: Tensor, y: Tensor) -> TableMember:
        twin = copy.copy(self)
        twin.rows, twin.y = rows, torch.cat([self.y, self.target.forward(y)])
        return twin

    def of_some(self, rows: TableRows, kept: Tensor) -> TableMember:
        """Draws move by what the most probable parameters do, which are found from those known in a few steps.

        At most 500 of the rows are learned from.
        """
        twin = copy.copy(self)
        twin.rows, twin.y = rows, self.y[kept]
        some = torch.randperm(len(kept), generator=Generator().manual_seed(0))[:_MOST_ROWS]
        kernels, twin.modes, twin.vectors = twin._with_some(some)._kernels, [], []
        for kernel, mode, draws, root in zip(kernels, self.modes, self.vectors, self.roots, strict=True):
            moved = most_probable(kernel, mode, _STEPS_OF_OTHER_ROWS, root).vector
            twin.modes.append(moved)
            twin.vectors.append(np.clip(draws + moved - mode, *np.transpose(kernel.bounds)))
        return twin

    def of_draws(self, places: Sequence[int]) -> TableMember:
        twin = copy.copy(self)
        twin.vectors = [draws[list(places)] for draws in self.vectors]
        return twin

    def predict(self, x: Tensor, has_noise: bool = True) -> Moments:
        new = self.rows.scale(x)
        crosses, found = self._kernels[0].between(self.rows.x, new), []
        for number in range(self.y.shape[1]):
            pairs = []
            for kernel, vector, mean, variance, _ in self._at(number, new, crosses):
                pairs.append((mean, variance + kernel.noise(vector) if has_noise else variance))
            found.append(pairs)
        return self._stacked(found)

    def _at(
        self, number: int, new: Tensor, crosses: Callable[[Floats], Tensor]
    ) -> Iterator[tuple[TargetKernel, Floats, Tensor, Tensor, Tensor]]:
        """For each draw of a target: its vector, means and variances (M,) of the function, half the reduction (N, M).

        :param new: inputs (M, d) on their scale.
        :param crosses: for vectors the kernel between training inputs and these.
        """
        for kernel, vector, factor, alpha in self._posteriors(number):
            cross = crosses(vector)
            half = torch.linalg.solve_triangular(factor, cross, upper=False)
            latent = (kernel.variance(vector, new) - half.square().sum(0)).clamp_min(0.0)
            yield kernel, vector, cross.mT @ alpha, latent, half

    def joint(self, x: Tensor, has_noise: bool = True) -> Callable[[int], Iterator[JointNormal]]:
        new, kernel = self.rows.scale(x), self._kernels[0]
        priors, crosses = kernel.between(new, new), kernel.between(self.rows.x, new)

        def of_target(number: int) -> Iterator[JointNormal]:
            for kernel, vector, mean, variance, half in self._at(number, new, crosses):
                covariance = priors(vector) - half.mT @ half
                covariance.diagonal().copy_(variance + kernel.noise(vector) if has_noise else variance)
                yield JointNormal(mean, covariance)

        return of_target

    def draw_functions(self, num_functions: int, generator: Generator | None) -> Functions:
        drawn = [self._drawn(number, num_functions, generator) for number in range(self.y.shape[1])]

        def values(x: Tensor) -> Tensor:
            new = self.rows.scale(x)
            return self.target.inverse(torch.cat([functions(new) for functions in drawn], dim=-1))

        return values

    def _drawn(self, number: int, num_functions: int, generator: Generator | None) -> Functions:
        kernel, vector = self._kernels[number], self.vectors[number][0]
        factor = _factor(kernel, vector)

        def cross(new: Tensor) -> Tensor:
            return kernel.between(new, kernel.x)(vector)

        def solve(columns: Tensor) -> Tensor:
            return torch.cholesky_solve(columns, factor)

        scale_of_target = torch.ones(1, dtype=torch.float64)
        given = ConditionedKernel(kernel.x, kernel.y.unsqueeze(-1), kernel.noise(vector), solve, cross, scale_of_target)
        return DrawnFunctions(kernel.drawn(vector, num_functions, generator), given, generator)


def _block(matrix: Tensor, rows: Tensor) -> Tensor:
    """Blocks (G, size, size) of a matrix for rows (G, size)."""
    return matrix[rows.unsqueeze(-1), rows.unsqueeze(-2)]


class SmoothMember(TableMember):
    """The same with the kernel of smooth functions."""

    @property
    def _kernels(self) -> Sequence[TargetKernel]:
        return [SmoothKernel(self.rows.x, column) for column in self.y.mT]


def _factor(kernel: TargetKernel, vector: Floats) -> Tensor:
    """The Cholesky factor (N, N) of the covariance of the targets."""
    total, _ = kernel.of_rows(vector)
    total.diagonal().add_(kernel.noise(vector))
    return cholesky(total)
