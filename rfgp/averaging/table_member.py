"""Members whose kernel has a lengthscale for each input, and whose parameters are drawn from their posterior."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from ..linalg import cholesky
from .column_scale import ColumnScale
from .functions import ConditionedKernel, DrawnFunctions
from .input_scale import InputScale
from .member import Functions, JointNormal, Member, MemberRows, Moments, by_rows, group_left_out, groups_by_size
from .parameter_draws import TOLERANCE, Floats, most_probable, parameter_draws
from .smooth_kernel import SmoothKernel
from .table_kernel import FixedParts, TableKernel, fixed_matrices, has_lengthscales
from .target_kernel import TargetKernel

_STEPS, _STEPS_FROM_NEAR, _STEPS_OF_OTHER_ROWS = 100, 40, 10
"""Steps of the search for the most probable parameters, of one that begins at those of other rows, and of some rows."""
_MOST_ROWS = 500
_CACHED_VALUES, _BLOCK_VALUES, _LEAST_BLOCK = 2**17, 3_000_000, 2000
"""Kernels of new rows are made for so many values at once, which the processor's cache holds, and their parts without
parameters for so many, or so many rows."""


_Known = Tensor | slice
"""Some of the rows: their numbers, a mask of all, or all of them as a slice."""


class TableRows(FixedParts, MemberRows):
    """Inputs on a scale, and the parts of the kernel there that have no parameters but a scale."""

    def __init__(self, scale: InputScale, x: Tensor) -> None:
        self.scale, self.x = scale, scale(x)
        self.fixed = fixed_matrices(self.x, self.x)

    def of(self, some: _Known) -> TableRows:
        """Some of the rows."""
        twin = copy.copy(self)
        twin.x, twin.fixed = self.x[some], self.fixed[:, some][:, :, some]
        return twin

    def with_inputs(self, x: Tensor) -> TableRows:
        return TableRows(self.scale, x)


class _Posterior(NamedTuple):
    """A kernel, its parameters (p,), the Cholesky factor (n, n) of the covariance, and its solution (n,).

    :param known: which of the rows (N,) these are.
    """

    kernel: TargetKernel
    known: _Known
    vector: Floats
    factor: Tensor
    alpha: Tensor


class TableMember(Member[TableRows]):
    """Exact processes of rows (N, d) and targets (N, T), one for each target and draw of its parameters.

    :ivar modes: the most probable parameters (p,) of every target.
    :ivar vectors: draws (S, p).
    :ivar roots: roots (p, p) of the covariances of their proposals.

    :param rows: the inputs.
    :param target: the scale of the targets.
    :param y: the targets, with NaN for missing ones: every process has the rows where its target is known.
    """

    takes_missing = True

    def __init__(self, rows: TableRows, target: ColumnScale, y: Tensor) -> None:
        self.rows, self.target, self.has_lengthscales = rows, target, has_lengthscales(rows.x.shape[1], len(rows.x))
        self.y, self.optimism = target.forward(y), rows.scale.optimism
        self.modes = [kernel.start for kernel in self.kernels]
        self.vectors, self.roots = [mode[None] for mode in self.modes], [np.eye(len(mode)) for mode in self.modes]

    @property
    def kernels(self) -> Sequence[TargetKernel]:
        """The kernel of each target."""
        return [self._kernel(self.rows.of(known), y[known]) for y, known in zip(self.y.mT, self._known, strict=True)]

    def _kernel(self, rows: TableRows, y: Tensor) -> TargetKernel:
        """The kernel of rows (n, d) with a target (n,)."""
        return TableKernel(rows.x, y, rows.fixed, self.has_lengthscales)

    @property
    def _known(self) -> list[_Known]:
        """The rows in which each target is known."""
        known = ~self.y.isnan()
        return [slice(None) if bool(column.all()) else column for column in known.mT]

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

    def learn(self, near: TableMember | None = None, some: Tensor | None = None, tolerance: float = TOLERANCE) -> None:
        """Find the most probable parameters of every target.

        :param near: a member of some of the rows or of other scales, whose parameters are near.
        :param some: the numbers of rows that are learned from; default: all.
        :param tolerance: as in :func:`rfgp.averaging.most_probable`.
        """
        kernels = (self if some is None else self._with_some(some)).kernels
        if near is None:
            found = [most_probable(kernel, kernel.start, _STEPS, tolerance=tolerance) for kernel in kernels]
        else:
            starts = zip(kernels, near.modes, near.roots, strict=True)
            found = [most_probable(kernel, mode, _STEPS_FROM_NEAR, root, tolerance) for kernel, mode, root in starts]
        self.modes, self.roots = [mode.vector for mode in found], [mode.root for mode in found]
        self.vectors = [mode[None] for mode in self.modes]

    def draw(self, count: int, num_proposals: int) -> None:
        """Draw parameters of every target from their posterior."""
        pairs = zip(self.kernels, self.modes, strict=True)
        draws = [parameter_draws(kernel, mode, count, num_proposals) for kernel, mode in pairs]
        self.vectors, self.roots = [of.vectors for of in draws], [of.root for of in draws]

    def _posteriors(self, number: int, vectors: Floats) -> Iterator[_Posterior]:
        """Those of a target, for parameters (S, p)."""
        known = self._known[number]
        kernel = self._kernel(self.rows.of(known), self.y[known, number])
        for vector in vectors:
            factor = _factor(kernel, vector)
            alpha = torch.cholesky_solve(kernel.y.unsqueeze(-1), factor).squeeze(-1)
            yield _Posterior(kernel, known, vector, factor, alpha)

    def _moments(self, of_posterior: Callable[[_Posterior], tuple[Tensor, Tensor]]) -> Moments:
        """Means (M,) and variances of every target and draw; those of equal draws are computed once."""
        means, variances = [], []
        for number, vectors in enumerate(self.vectors):
            different, places = np.unique(vectors, axis=0, return_inverse=True)
            pairs = [of_posterior(posterior) for posterior in self._posteriors(number, different)]
            mean, variance = (torch.stack(part)[places.reshape(-1)] for part in zip(*pairs, strict=True))
            means.append(mean)
            variances.append(variance)
        return Moments(torch.stack(means, dim=-1), torch.stack(variances, dim=-1))

    def left_out(self, groups: Sequence[Tensor] = ()) -> Moments:
        def moments(given: _Posterior) -> tuple[Tensor, Tensor]:
            inverse = torch.cholesky_inverse(given.factor)
            columns = given.kernel.y.unsqueeze(-1), given.alpha.unsqueeze(-1)
            block = functools.partial(_block, inverse)
            if isinstance(given.known, slice):
                mean, variance = group_left_out(*columns, inverse.diagonal(), block, groups)
                return mean.squeeze(-1), variance
            group = torch.arange(len(self.y))
            for rows in groups:
                group[rows] = rows[:, :1]
            of_known = group_left_out(*columns, inverse.diagonal(), block, groups_by_size(group[given.known]))
            known, (mean, variance) = given.known, self._of_missing(given, given.known, inverse, group)
            mean[known], variance[known] = of_known[0].squeeze(-1), of_known[1]
            return mean, variance

        return self._moments(moments)

    def _of_missing(self, given: _Posterior, known: Tensor, inverse: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
        r"""Means and variances (N,) of a target in rows without it, by the rows of other groups that have it.

        .. math:: \mu - w_G^\top (A_{GG})^{-1} \alpha_G, \qquad v + w_G^\top (A_{GG})^{-1} w_G

        Here :math:`\mu` and v are those by all rows that have it, w their weights, and G the rows of the same group.

        :param known: which rows (N,) have it.
        :param inverse: the inverse A (n, n) of the covariance.
        :param group: the numbers (N,) of the groups.
        """
        kernel, _, vector, _, alpha = given
        missing, of_known = (~known).nonzero().flatten(), group[known]
        new = self.rows.x[missing]
        cross = kernel.between(kernel.x, new)(vector)
        weights = inverse @ cross
        means, variances = cross.mT @ alpha, kernel.variance(vector, new) - (cross * weights).sum(0)
        for number in of_known[torch.isin(of_known, group[missing])].unique().tolist():
            own, same = (group[missing] == number).nonzero().flatten(), (of_known == number).nonzero().flatten()
            of_group = weights[same][:, own]
            without = torch.linalg.solve(inverse[same][:, same], of_group)
            means[own] -= without.mT @ alpha[same]
            variances[own] += (without * of_group).sum(0)
        mean, variance = self.y.new_zeros(len(group)), self.y.new_ones(len(group))
        mean[missing], variance[missing] = means, variances.clamp_min(0.0) + kernel.noise(vector)
        return mean, variance

    def whitened(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Columns (N, C), and the first target (N, 1), times the inverse root of its covariance for the first draw."""
        kernel = self.kernels[0]
        both = torch.cat([columns, kernel.y.unsqueeze(-1)], dim=-1)
        found = torch.linalg.solve_triangular(_factor(kernel, self.vectors[0][0]), both, upper=False)
        return found[:, :-1], found[:, -1:]

    def log_evidence(self) -> float:
        total = float(self.target.log_slope(self.target.inverse(self.y)).nansum())
        for kernel, mode in zip(self.kernels, self.modes, strict=True):
            total += kernel.prior(mode)[0] - kernel.loss(mode, has_gradient=False)[0]
        return total - 0.5 * float((~self.y.isnan()).sum()) * math.log(2.0 * math.pi)

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
        kernels, twin.modes, twin.vectors = twin._with_some(some).kernels, [], []
        for kernel, mode, draws, root in zip(kernels, self.modes, self.vectors, self.roots, strict=True):
            moved = most_probable(kernel, mode, _STEPS_OF_OTHER_ROWS, root).vector
            twin.modes.append(moved)
            twin.vectors.append(np.clip(draws + moved - mode, *np.transpose(kernel.bounds)))
        return twin

    def of_draws(self, places: Sequence[int]) -> TableMember:
        twin = copy.copy(self)
        twin.vectors = [draws[list(places)] for draws in self.vectors]
        return twin

    @classmethod
    def predict_all(cls, members: Sequence[TableMember], x: Tensor, has_noise: bool = True) -> list[Moments]:
        found: dict[int, Moments] = {}
        for alike in by_rows(members):
            rows, between, parts = alike[0].rows, alike[0].kernels[0].between, []
            for new in rows.scale(x).split(max(_LEAST_BLOCK, _BLOCK_VALUES // len(rows.x))):
                blocks = new.split(max(1, _CACHED_VALUES // len(rows.x)))
                crosses = [between(rows.x, block) for block in blocks]
                parts.append([member._at(blocks, crosses, has_noise) for member in alike])
            for member, of_member in zip(alike, zip(*parts, strict=True), strict=True):
                found[id(member)] = Moments(*(torch.cat(part, dim=1) for part in zip(*of_member, strict=True)))
        return [found[id(member)] for member in members]

    def _at(self, blocks: Sequence[Tensor], crosses: Sequence[Callable[[Floats], Tensor]], has_noise: bool) -> Moments:
        """Predictions at blocks of inputs on their scale; for vectors the kernels between training inputs and these."""

        def moments(given: _Posterior) -> tuple[Tensor, Tensor]:
            kernel, known, vector, factor, alpha = given
            means, variances = [], []
            for new, cross_of in zip(blocks, crosses, strict=True):
                cross = cross_of(vector)[known]
                means.append(alpha @ cross)
                half = torch.linalg.solve_triangular(factor, cross, upper=False)
                variances.append(kernel.variance(vector, new) - half.square_().sum(0))
            variance = torch.cat(variances).clamp_min_(0.0)
            return torch.cat(means), variance + kernel.noise(vector) if has_noise else variance

        return self._moments(moments)

    def joint(self, x: Tensor, has_noise: bool = True) -> Callable[[int], Iterator[JointNormal]]:
        new, between = self.rows.scale(x), self.kernels[0].between
        priors, crosses = between(new, new), between(self.rows.x, new)

        def of_target(number: int) -> Iterator[JointNormal]:
            for kernel, known, vector, factor, alpha in self._posteriors(number, self.vectors[number]):
                cross = crosses(vector)[known]
                half = torch.linalg.solve_triangular(factor, cross, upper=False)
                covariance = priors(vector).sub_(half.mT @ half)
                latent = (kernel.variance(vector, new) - half.square().sum(0)).clamp_min(0.0)
                covariance.diagonal().copy_(latent + kernel.noise(vector) if has_noise else latent)
                yield JointNormal(cross.mT @ alpha, covariance)

        return of_target

    def draw_functions(self, num_functions: int, generator: Generator | None) -> Functions:
        drawn = [self._drawn(number, num_functions, generator) for number in range(self.y.shape[1])]

        def values(x: Tensor) -> Tensor:
            new = self.rows.scale(x)
            return self.target.inverse(torch.cat([functions(new) for functions in drawn], dim=-1))

        return values

    def _drawn(self, number: int, num_functions: int, generator: Generator | None) -> Functions:
        kernel, vector = self.kernels[number], self.vectors[number][0]
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

    def _kernel(self, rows: TableRows, y: Tensor) -> TargetKernel:
        return SmoothKernel(rows.x, y)


def _factor(kernel: TargetKernel, vector: Floats) -> Tensor:
    """The Cholesky factor (N, N) of the covariance of the targets."""
    total, _ = kernel.of_rows(vector)
    total.diagonal().add_(kernel.noise(vector))
    return cholesky(total)
