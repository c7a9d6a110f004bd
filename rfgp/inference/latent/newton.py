"""Newton's method for the mode of a log posterior, and Laplace's approximation around that of weights."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ...linalg.cholesky_factor import factor_of, log_determinant_of
from ...linalg.conjugate_gradients import ConjugateGradients
from .laplace import Batches, KnownFeatures, LaplaceSums, LatentFunctions

MAX_ITERATIONS = 100
_LAST_DECREMENT = 1e-10
"""Twice what a step gains, in nats, below which it is the last one: the next one would gain about its square."""
_SUFFICIENT = 1e-4
_SMALLEST_STEP = 1e-10
_ROUNDING = 1e-13
_HIDDEN = 1e-4
_KEPT_VALUES = 2**26
"""So many values of features are kept between passes."""


class Point(NamedTuple):
    """Weights, what was summed over the rows there, the log posterior up to a constant, and its gradient."""

    weights: Tensor
    sums: Any
    value: Tensor
    gradient: Tensor


class NewtonSearch(abc.ABC):
    """A log posterior of weights that is maximized."""

    num_passes: int = 0
    """How many points were evaluated."""

    @abc.abstractmethod
    def zeros(self) -> Tensor:
        """Weights of zero."""

    @abc.abstractmethod
    def point(self, weights: Tensor) -> Point:
        """The log posterior at weights."""

    @abc.abstractmethod
    def direction(self, point: Point) -> Tensor:
        """The Newton step, or one of ascent where the Hessian is not negative definite there."""

    @torch.no_grad()
    def mode(self, start: Tensor | None = None) -> Tensor:
        """The weights of the largest log posterior.

        :param start: where to begin, if the log posterior is finite there; default: zeros.
        """
        point = self.point(self.zeros() if start is None else start)
        if start is not None and not math.isfinite(point.value):
            point = self.point(self.zeros())
        if not math.isfinite(point.value):
            raise ValueError(
                "expected a finite log density of the targets at the mean function, got none; rescale the targets, or "
                "give the model a mean near them"
            )
        for _ in range(MAX_ITERATIONS):
            direction = self.direction(point)
            decrement = float((direction * point.gradient).sum())
            if decrement <= _LAST_DECREMENT:
                return point.weights + direction
            after = self._ascent(point, direction, decrement)
            if after is None:
                return point.weights + direction
            point = after
        raise ValueError(
            f"expected Newton's method to converge in {MAX_ITERATIONS} steps, got one that still gains "
            f"{decrement / 2.0:.3g} nats; rescale the data, or change the parameters of the likelihood"
        )

    def _ascent(self, start: Point, direction: Tensor, decrement: float) -> Point | None:
        """The point after a step that gains enough, which is shortened until it does.

        None where there is so little to gain that rounding hides it: terms of the log density of large counts cancel.
        """
        step = 1.0
        while step > _SMALLEST_STEP:
            point = self.point(start.weights + step * direction)
            gain = float(point.value - start.value)
            if gain >= _SUFFICIENT * step * decrement - _ROUNDING * abs(float(start.value)):
                return point
            slope = step * decrement
            best = 0.5 * slope / (slope - gain) if math.isfinite(gain) else 0.1  # of the parabola through both
            step *= min(max(best, 0.1), 0.5)
        if decrement <= _HIDDEN:
            return None
        raise ValueError(
            "expected a log posterior that rises along its gradient, got none; the likelihood is not smooth enough, or "
            "its values overflow: rescale the targets"
        )


_RESIDUAL, _RESIDUAL_OF_STEPS = 1e-11, 1e-6
_SOLVER_ITERATIONS = 1000


Made = TypeVar("Made")


def damped(make: Callable[[Tensor], Made], curvature: Tensor, concave: Callable[[], Tensor | None]) -> Made:
    """What is made of a curvature, or of it without what makes it indefinite; a ValueError where that is nothing.

    :param concave: what the curvature lacks to be positive semidefinite, or None.
    """
    try:
        return make(curvature)
    except ValueError:
        lacking = concave()
        if lacking is None:
            raise
        return make(curvature + lacking)


def not_concave() -> ValueError:
    """The error at a mode that is none of a concave log posterior."""
    return ValueError(
        "expected a mode at which the log posterior is concave, got another, where Laplace's approximation is none; "
        "give the likelihood more noise or more degrees of freedom"
    )


class Precision:
    r"""The Cholesky factor of B, of weights w (D, R) one after the other, or of its diagonal blocks.

    :param gram: G, (P, D, D), for pairs of functions.
    :param mixing: A, (Q, R).
    """

    def __init__(self, gram: Tensor, mixing: Tensor, is_full: bool) -> None:
        self.num_sets = mixing.shape[-1]
        self.matrix = precision_matrix(gram, mixing, is_full)
        self.factor = factor_of(self.matrix)

    @property
    def log_determinant(self) -> Tensor:
        """log|B|, ()."""
        return log_determinant_of(self.factor).sum()

    def solve(self, values: Tensor) -> Tensor:
        """B^-1 times weights (D, R)."""
        columns = values.mT.reshape(*self.factor.shape[:-1], 1)
        return torch.cholesky_solve(columns, self.factor).reshape(self.num_sets, -1).mT


def precision_matrix(gram: Tensor, mixing: Tensor, is_full: bool) -> Tensor:
    r"""The matrix :math:`B = I + \sum_{q q'} a_q a_{q'}^\top \otimes G_{q q'}`, (1, R D, R D), or blocks, (R, D, D).

    :param gram: G, for all pairs of Q functions, or for each with itself, (P, D, D).
    :param mixing: A, (Q, R), with rows :math:`a_q`; diagonal where there are pairs of different functions.
    """
    (count, num_sets), width = mixing.shape, gram.shape[-1]
    if not is_full:
        matrix = gram * mixing.diagonal().square()[:, None, None]
    elif len(gram) == count:
        products = mixing.mT.unsqueeze(-2) * mixing.mT
        blocks = (products.flatten(0, 1) @ gram.flatten(1)).reshape(num_sets, num_sets, width, width)
        matrix = blocks.transpose(1, 2).reshape(1, num_sets * width, num_sets * width)
    else:
        scale = mixing.diagonal()
        table = torch.zeros(count, count, dtype=torch.long, device=gram.device)
        rows, columns = torch.triu_indices(count, count, device=gram.device)
        table[rows, columns] = table[columns, rows] = torch.arange(len(rows), device=gram.device)
        blocks = gram[table] * (scale[:, None] * scale)[:, :, None, None]
        matrix = blocks.transpose(1, 2).reshape(1, count * width, count * width)
    return matrix + torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


class LaplaceProblem(NewtonSearch):
    """The log posterior of the weights of latent functions, given rows.

    :param num_rows: how many rows the batches hold, if they hold tensors: up to half a gigabyte of their features are
        kept, which all passes but those with gradients share.
    """

    def __init__(self, functions: LatentFunctions, batches: Batches, num_rows: int | None = None) -> None:
        self.functions, self.batches = functions, batches
        self.is_full = functions.likelihood.has_full_hessian
        is_kept = num_rows is not None and num_rows * functions.num_features <= _KEPT_VALUES
        self._passes = KnownFeatures.of(functions, batches) if is_kept else (functions, batches)

    def zeros(self) -> Tensor:
        """Weights of zero, (D, R)."""
        mixing = self.functions.mixing.detach()
        return mixing.new_zeros(self.functions.num_features, mixing.shape[-1])

    @torch.no_grad()
    def point(self, weights: Tensor) -> Point:
        """The log posterior at weights, by one pass over the rows."""
        self.num_passes += 1
        functions, batches = self._passes
        sums = functions.exact.sums(batches, functions.of_weights(weights))
        value = sums.log_density - 0.5 * weights.square().sum()
        return Point(weights, sums, value, functions.to_weights(sums.slope) - weights)

    def direction(self, point: Point) -> Tensor:
        """The Newton step, or one of ascent where the Hessian is not negative definite there."""
        precision = self._damped(point.sums)
        if self.is_full:
            return precision.solve(point.gradient)
        size = float((point.gradient * precision.solve(point.gradient)).sum().clamp_min(0.0)) ** 0.5
        return self.solve(precision, point.weights, point.gradient, min(max(size, _RESIDUAL_OF_STEPS), 0.1))

    def _damped(self, sums: LaplaceSums) -> Precision:
        """The precision by sums, without what makes it indefinite."""
        mixing = self.functions.mixing.detach()
        return damped(lambda gram: Precision(gram, mixing, self.is_full), sums.gram, lambda: sums.concave)

    @torch.no_grad()
    def solve(self, precision: Precision, weights: Tensor, values: Tensor, residual: float = _RESIDUAL) -> Tensor:
        """The inverse of the full Hessian at weights times values, (D, Q) each, by conjugate gradients if need be."""
        if self.is_full:
            return precision.solve(values)
        functions, batches = self._passes

        def product(column: Tensor) -> Tensor:
            direction = column.reshape(values.shape)
            mixed = functions.of_weights(weights), functions.of_weights(direction)
            passed = functions.hessian_product(batches, *mixed)
            return (direction + functions.to_weights(passed)).reshape(-1, 1)

        def precondition(column: Tensor) -> Tensor:
            return precision.solve(column.reshape(values.shape)).reshape(-1, 1)

        solver = ConjugateGradients(product, precondition, values.reshape(-1, 1))
        target = residual**2 * solver.energy
        while bool(solver.energy > target) and len(solver.steps) < _SOLVER_ITERATIONS:
            solver.step()
        return solver.solution.reshape(values.shape)

    def log_evidence(self, weights: Tensor) -> tuple[Tensor, LaplaceSums]:
        r"""Laplace's log evidence at the mode (D, Q), and the sums there; with gradients where these are enabled.

        .. math:: \log q(y) = \ell - \tfrac12 \|w\|^2 - \tfrac12 \log|B|

        One Newton step, of derivative :math:`H^{-1} \partial (a h)`, carries the dependence of the mode on the
        parameters.

        Source: Rasmussen and Williams (2006), Eq. 3.32 and 5.23, in the weights of features.
        """
        mixing, (functions, batches) = self.functions.mixing, self._passes
        if torch.is_grad_enabled():
            functions, batches = self.functions, self.batches
        sums = functions.sums(batches, functions.of_weights(weights))
        value = sums.log_density - 0.5 * weights.square().sum()
        try:
            precision = Precision(sums.gram, mixing, self.is_full)
        except ValueError:
            if sums.concave is None:
                raise
            raise not_concave() from None
        value = value - 0.5 * precision.log_determinant
        if value.requires_grad:
            slope = self._implicit(weights, sums.gram.detach(), mixing.detach())
            value = value + (slope * (functions.to_weights(sums.slope) - weights)).sum()
        return value, sums

    def _implicit(self, weights: Tensor, gram: Tensor, mixing: Tensor) -> Tensor:
        """The derivative of the evidence in the mode, divided by the Hessian, (D, Q)."""
        leaf = gram.requires_grad_()
        with torch.enable_grad():
            precision = Precision(leaf, mixing, self.is_full)
            (by_gram,) = torch.autograd.grad(-0.5 * precision.log_determinant, leaf)
        functions, batches = self._passes
        by_weights = functions.pull_back(batches, functions.of_weights(weights), by_gram)
        if functions.exact is functions:
            precision.factor = precision.factor.detach()
        else:
            with torch.no_grad():
                precision = self._damped(functions.exact.sums(batches, functions.of_weights(weights)))
        return self.solve(precision, weights, functions.to_weights(by_weights))
