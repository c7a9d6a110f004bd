"""Moments of sums of plane waves of independent inputs, in closed form."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import torch
from torch import Tensor

from .functions import WaveFunctions
from .inputs import InputDistribution

_CHUNK = 2**22  # entries of the matrices of all inputs that are held at a time


@dataclass(frozen=True)
class PartialVariances:
    r"""The variances :math:`V_S = \mathrm{Var}\, E[f(X) \mid X_S]` of F functions, and their means (F,).

    Of all inputs (F,), every input (F, d), all inputs but one (F, d), and every two inputs (F, d, d).
    """

    mean: Tensor
    variance: Tensor
    single: Tensor
    others: Tensor
    pairs: Tensor | None

    def taken(self, functions: slice) -> PartialVariances:
        """Those of some of the functions."""
        pairs = None if self.pairs is None else self.pairs[functions]
        mean, variance, single, others = (p[functions] for p in (self.mean, self.variance, self.single, self.others))
        return PartialVariances(mean, variance, single, others, pairs)


def partial_variances(
    functions: WaveFunctions, inputs: Sequence[InputDistribution], second_order: bool
) -> PartialVariances:
    r"""Means and variances of conditional means, at O(m^2 (d + F d)), and O(m^2 d^2 F) more for pairs.

    .. math:: V_S = \tfrac12 \mathrm{Re} \sum_{jl} \tilde c_j \bar{\tilde c}_l \Big(\prod_{k \in S}
        \chi_k(\omega_{jk} - \omega_{lk}) - \prod_{k \in S} \chi_k(\omega_{jk}) \bar\chi_k(\omega_{lk})\Big)
        + \tilde c_j \tilde c_l \Big(\prod_{k \in S} \chi_k(\omega_{jk} + \omega_{lk})
        - \prod_{k \in S} \chi_k(\omega_{jk}) \chi_k(\omega_{lk})\Big), \qquad
        \tilde c_j = c_j \prod_{k \notin S} \chi_k(\omega_{jk})
    """
    dim = len(inputs)
    chi, outside = _characteristics(functions.frequency, inputs)
    everything = (outside[0] * chi[0]).unsqueeze(-1) * functions.coefficient
    linear = _linear_parts(functions, inputs, outside)  # (d, F)
    pairs = list(combinations(range(dim), 2)) if second_order else []
    of_single = [functions.coefficient * a.unsqueeze(-1) for a in outside]
    of_others = [functions.coefficient * a.unsqueeze(-1) for a in chi]
    of_pairs = []
    for k, other in pairs:
        rest = [chi[i] for i in range(dim) if i not in (k, other)]
        of_pairs.append(functions.coefficient * _product([torch.ones_like(chi[0]), *rest]).unsqueeze(-1))
    zeros = torch.zeros_like(functions.constant)
    total, single, others = zeros, [zeros] * dim, [zeros] * dim
    both = [zeros] * len(pairs)
    for rows, matrices in _matrices(functions.frequency, inputs):
        ones = _Pair.ones_like(matrices[0])
        means = [_Pair.of_product(part[rows], part) for part in chi]
        behind, behind_means = [ones], [ones]
        for k in reversed(range(dim)):
            behind.append(behind[-1] * matrices[k])
            behind_means.append(behind_means[-1] * means[k])
        total = total + (behind[-1] - behind_means[-1]).form(functions.coefficient, rows)
        before, before_means = ones, ones
        for k in range(dim):
            single[k] = single[k] + (matrices[k] - means[k]).form(of_single[k], rows)
            left, left_means = behind[dim - 1 - k], behind_means[dim - 1 - k]
            others[k] = others[k] + (before * left - before_means * left_means).form(of_others[k], rows)
            before, before_means = before * matrices[k], before_means * means[k]
        for i, (k, other) in enumerate(pairs):
            matrix = matrices[k] * matrices[other] - means[k] * means[other]
            both[i] = both[i] + matrix.form(of_pairs[i], rows)
    pair_matrix = None
    if second_order:
        pair_matrix = zeros.new_zeros(len(zeros), dim, dim)
        for (k, other), value in zip(pairs, both, strict=True):
            pair_matrix[:, k, other] = pair_matrix[:, other, k] = value + linear[k] + linear[other]
    return PartialVariances(
        functions.constant + everything.real.sum(0),
        total + linear.sum(0),
        (torch.stack(single) + linear).mT,
        (torch.stack(others) + linear.sum(0) - linear).mT,
        pair_matrix,
    )


def mean_squared_slopes(functions: WaveFunctions, inputs: Sequence[InputDistribution]) -> Tensor:
    r"""The means :math:`E\, (\partial f / \partial x_k)^2` of F functions, (F, d)."""
    chi, outside = _characteristics(functions.frequency, inputs)
    means = []
    waves = [1j * w.unsqueeze(-1) * functions.coefficient for w in functions.frequency.unbind(-1)]
    for derivative, slope in zip(waves, functions.slope, strict=True):
        mean = ((outside[0] * chi[0]).unsqueeze(-1) * derivative).real.sum(0)
        means.append(slope * (slope + 2.0 * mean))
    for rows, matrices in _matrices(functions.frequency, inputs):
        whole = reduce(operator.mul, matrices)
        means = [known + whole.form(derivative, rows) for known, derivative in zip(means, waves, strict=True)]
    return torch.stack(means, dim=-1)


def conditional_means(functions: WaveFunctions, inputs: Sequence[InputDistribution], grid: Tensor) -> Tensor:
    r"""The means :math:`E[f(X) \mid X_k = x_k]` of F functions along a grid (G, d), (G, d, F)."""
    _, outside = _characteristics(functions.frequency, inputs)
    means = []
    for k, distribution in enumerate(inputs):
        x = grid[:, k].double().cpu() - distribution.mean
        averaged = outside[k].unsqueeze(-1) * functions.coefficient
        part = WaveFunctions(functions.frequency, averaged, functions.slope, functions.constant)
        waves = part.at_phase(x.unsqueeze(-1) * functions.frequency[:, k])
        means.append(functions.constant + x.unsqueeze(-1) * functions.slope[k] + waves)
    return torch.stack(means, dim=1)


def _characteristics(frequency: Tensor, inputs: Sequence[InputDistribution]) -> tuple[list[Tensor], list[Tensor]]:
    """The characteristic function of every input at its frequencies, (m,), and the products of those of all others."""
    chi = [
        distribution.centered_characteristic(w) for distribution, w in zip(inputs, frequency.unbind(-1), strict=True)
    ]
    ones = torch.ones_like(chi[0])
    return chi, [_product([ones, *chi[:k], *chi[k + 1 :]]) for k in range(len(chi))]


def _linear_parts(functions: WaveFunctions, inputs: Sequence[InputDistribution], outside: Sequence[Tensor]) -> Tensor:
    """What the linear part of an input adds to every variance that this input enters, (d, F)."""
    variances = []
    for k, distribution in enumerate(inputs):
        slope, w = functions.slope[k], functions.frequency[:, k]
        covariance = (outside[k] * distribution.centered_moment(w)).unsqueeze(-1) * functions.coefficient
        variances.append(slope * (slope * distribution.variance + 2.0 * covariance.real.sum(0)))
    return torch.stack(variances)


@dataclass(frozen=True)
class _Pair:
    """Two matrices (b, m) of rows of waves: for their differences and for their sums."""

    differences: Tensor
    sums: Tensor

    @classmethod
    def of_product(cls, rows: Tensor, all_: Tensor) -> _Pair:
        return cls(rows.unsqueeze(-1) * all_.conj(), rows.unsqueeze(-1) * all_)

    @classmethod
    def ones_like(cls, other: _Pair) -> _Pair:
        return cls(torch.ones_like(other.differences), torch.ones_like(other.sums))

    def __mul__(self, other: _Pair) -> _Pair:
        return _Pair(self.differences * other.differences, self.sums * other.sums)

    def __sub__(self, other: _Pair) -> _Pair:
        return _Pair(self.differences - other.differences, self.sums - other.sums)

    def form(self, c: Tensor, rows: slice) -> Tensor:
        r"""The terms of these rows in :math:`\frac12 \mathrm{Re} (c^\top A \bar c + c^\top B c)`, (m, F) to (F,)."""
        if self.differences.is_complex() or self.sums.is_complex():
            dtype = c.dtype
            product = self.differences.to(dtype) @ c.conj() + self.sums.to(dtype) @ c
            return 0.5 * (c[rows] * product).real.sum(0)
        real, imaginary = (self.differences + self.sums) @ c.real, (self.differences - self.sums) @ c.imag
        return 0.5 * (c[rows].real * real + c[rows].imag * imaginary).sum(0)


def _matrices(frequency: Tensor, inputs: Sequence[InputDistribution]) -> Iterator[tuple[slice, list[_Pair]]]:
    """For chunks of waves, the matrices of every input."""
    count = len(frequency)
    size = max(1, _CHUNK // (count * len(inputs)))
    for start in range(0, count, size):
        rows = slice(start, start + size)
        columns = zip(inputs, frequency[rows].unbind(-1), frequency.unbind(-1), strict=True)
        yield (
            rows,
            [
                _Pair(distribution.at_differences(v, w), distribution.at_differences(v, -w))
                for distribution, v, w in columns
            ],
        )


def _product(parts: Sequence[Tensor]) -> Tensor:
    return reduce(torch.mul, parts)
