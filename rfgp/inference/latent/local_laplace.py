"""Laplace's approximation for latent functions with features, and their residual in blocks of near rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..local.residual import ResidualProcess
from ..sums.row_gradients import Pairs
from ..sums.summation import sum_over_rows
from .block_sites import BlockPrior, SitePosterior, columns_of, of_own_function, side_by_side, table_of
from .laplace import LatentFunctions
from .latent_terms import Terms
from .newton_search import NewtonSearch, Point


class LocalLaplace(NewtonSearch):
    r"""The log posterior of Q functions at N rows, :math:`f = m + K \alpha`, as one of :math:`\alpha`, (N, Q).

    .. math:: \Psi(\alpha) = \sum_i \log p(y_i \mid f_i) - \tfrac12 \alpha^\top K \alpha, \qquad
        \alpha \leftarrow \alpha + (I + W K)^{-1} (g - \alpha)

    :param x: the inputs of the rows, (N, d).
    :param y: their targets, (N,).
    :param parts: the numbers of the rows of each block.

    Source: Rasmussen and Williams (2006), Algorithms 3.1 and 3.3; errata, identity 12 of the last section.
    """

    def __init__(self, functions: LatentFunctions, x: Tensor, y: Tensor, parts: list[Tensor]) -> None:
        self.functions, self.x, self.y = functions, x, y
        self.prior = BlockPrior.of_rows(functions.kernel, x, parts, functions.likelihood.num_functions)
        with torch.no_grad():
            self.mean = functions.mean_at(x)

    def zeros(self) -> Tensor:
        return torch.zeros_like(self.mean)

    def terms(self, latent: Tensor) -> Terms:
        """The log densities of the rows and their derivatives at functions less their mean, (N, Q)."""
        return self.functions.likelihood.terms_in_blocks(self.mean + latent, self.y)

    def exact_terms(self, latent: Tensor) -> Terms:
        """The same, with second derivatives as the curvature."""
        return self.functions.exact.likelihood.terms_in_blocks(self.mean + latent, self.y)

    @torch.no_grad()
    def point(self, weights: Tensor) -> Point:
        self.num_passes += 1
        latent = self.prior.times(weights)[1]
        terms = self.exact_terms(latent)
        value = terms.log_density.sum() - 0.5 * (weights * latent).sum()
        return Point(weights, terms, value, self.prior.times(terms.slope - weights)[1])

    def direction(self, point: Point) -> Tensor:
        posterior = self.damped(point.sums.curvature)
        return posterior.solve(point.sums.slope - point.weights)

    @torch.no_grad()
    def start_at(self, latent: Tensor) -> Tensor:
        """The weights after a Newton step from a function less its mean, (N, 1), such as another mode."""
        terms = self.exact_terms(latent)
        posterior = self.damped(terms.curvature)
        return posterior.solve(posterior.curvature * latent + terms.slope)

    def damped(self, curvature: Tensor) -> SitePosterior:
        """The posterior by terms of a curvature (N, Q), without the part of it that makes it improper."""
        try:
            return SitePosterior(self.prior, curvature)
        except ValueError:
            concave = self.functions.exact.likelihood.concave(curvature)
            if concave is None:
                raise
            return SitePosterior(self.prior, curvature + concave)


def log_evidence(at: LaplaceAtMode) -> Tensor:
    """The log evidence, (), differentiable once in parameters and inputs; its graph keeps the mode, and no blocks."""
    problem = at.problem
    functions = problem.functions
    modules = (functions.kernel, functions.mean, functions.likelihood.likelihood)
    parameters = {id(p): p for module in modules for p in module.parameters()}.values()
    parts = [block.rows for block in problem.prior.blocks]
    numbers = torch.empty(len(problem.x), dtype=torch.long, device=problem.x.device)
    for number, rows in enumerate(parts):
        numbers[rows] = number
    summand = _EvidenceOfBlocks(functions, problem.x.detach(), problem.y, parts, at.weights, at.value)
    (value,) = sum_over_rows(summand, None, parts, (problem.x, numbers), (), parameters)
    return value


class LaplaceAtMode:
    r"""Laplace's approximation at the mode, :math:`N(f, (K^{-1} + W)^{-1})`.

    .. math:: \log q(y) = \sum_i \log p(y_i \mid f_i) - \tfrac12 \alpha^\top (f - m) - \tfrac12 \log|I + K W|

    Source: Rasmussen and Williams (2006), Eq. 3.32 and Algorithm 5.1.
    """

    @torch.no_grad()
    def __init__(self, problem: LocalLaplace, weights: Tensor) -> None:
        self.problem, self.weights = problem, weights
        self.cross, self.latent = problem.prior.times(weights)
        self.terms = problem.terms(self.latent)
        try:
            self.posterior = SitePosterior(problem.prior, self.terms.curvature)
        except ValueError:
            if problem.functions.likelihood.concave(self.terms.curvature) is None:
                raise
            raise ValueError(
                "expected a mode at which the log posterior is concave, got another, where Laplace's approximation is "
                "none; give the likelihood more noise or more degrees of freedom"
            ) from None
        quadratic = (weights * self.latent).sum() + self.posterior.log_determinant
        self.value = self.terms.log_density.sum() - 0.5 * quadratic

    @functools.cached_property
    def _by_variances(self) -> tuple[Tensor, Tensor]:
        r"""The derivatives of :math:`-\log|I + K W| / 2` in the curvature of the terms, and s, in f, (N, Q)."""
        with torch.no_grad():
            by_curvature = self.posterior.by_curvature()
        at = (self.problem.mean + self.latent).requires_grad_()
        with torch.enable_grad():
            curvature = self.problem.functions.likelihood.terms_in_blocks(at, self.problem.y).curvature
            if not curvature.requires_grad:
                return by_curvature, torch.zeros_like(by_curvature)
            (slope,) = torch.autograd.grad(curvature, at, by_curvature)
        return by_curvature, slope

    @functools.cached_property
    @torch.no_grad()
    def _by_mode(self) -> tuple[Tensor, Tensor, Tensor]:
        r"""What the mode passes on: :math:`u = (I + W K)^{-1} s`, :math:`\Phi^\top u` and :math:`K u`."""
        problem, posterior = self.problem, self.posterior
        if problem.functions.exact is not problem.functions:
            posterior = problem.damped(problem.exact_terms(self.latent).curvature)
        implicit = posterior.solve(self._by_variances[1])
        return implicit, *self.problem.prior.times(implicit)

    @torch.no_grad()
    def gradients(self, number: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        r"""The gradients of the evidence in what a block is made of, with :math:`u = (I + W K)^{-1} s`.

        .. math:: \frac{\partial \log q}{\partial K} = \tfrac12 \big(\alpha \alpha^\top + \alpha u^\top +
            u \alpha^\top - W (I + K W)^{-1}\big), \qquad \frac{\partial \log q}{\partial m} = \alpha + u

        :returns: those in the covariances (Q, n, n) of the rows, in their features (Q, n, D), which make the covariance
            with other blocks, in their mean (n, Q), and in slope (n, Q) and curvature of their terms.
        """
        (rows, features, _), sites = self.problem.prior.blocks[number], self.posterior.sites[number]
        implicit, implicit_cross, pulled = self._by_mode
        alpha, other = columns_of(self.weights[rows]), columns_of(implicit[rows])
        passed = sites.times(side_by_side(features))
        inner = self.posterior.weights.solve(passed.flatten(0, 1).mT).mT.view_as(passed)
        mixed = alpha @ (0.5 * alpha + other).mT
        by_covariance = 0.5 * (mixed + mixed.mT - sites.inverse() + inner @ passed.mT)
        by_all = alpha @ (self.cross + implicit_cross).mT + other @ self.cross.mT - of_own_function(inner)
        by_features = by_all - 2.0 * by_covariance @ features
        return by_covariance, by_features, table_of(alpha + other), pulled[rows], self._by_variances[0][rows]


class _EvidenceOfBlocks:
    """The evidence as a sum over blocks, for its gradient."""

    def __init__(
        self, functions: LatentFunctions, x: Tensor, y: Tensor, parts: list[Tensor], weights: Tensor, value: Tensor
    ) -> None:
        self.functions, self.rows, self.weights, self.value = functions, (x, y, parts), weights, value

    def add(self, total: Any, *chunk: Any) -> None:
        """Nothing: the value is known."""

    def sums(self, total: Any) -> tuple[Tensor, ...]:
        return (self.value,)

    def pullback(self, *gradients: Tensor) -> Callable[..., Pairs]:
        (outer,) = gradients
        functions = self.functions
        problem = LocalLaplace(functions, *self.rows)
        at, process = LaplaceAtMode(problem, self.weights), ResidualProcess(functions.kernel)

        def pull(x: Tensor, numbers: Tensor) -> Pairs:
            number = int(numbers[0])
            rows = problem.prior.blocks[number].rows
            shape = (problem.prior.num_functions, -1, -1)
            features = process.features(x).expand(shape)
            covariance = process.covariance(x, features[..., :0]).expand(shape)
            terms = functions.likelihood.terms_in_blocks((problem.mean + at.latent)[rows], problem.y[rows])
            made = covariance, features, functions.mean_at(x), terms.slope, terms.curvature
            pairs: Pairs = [(terms.log_density, outer.expand(len(x)))]
            return pairs + [(value, outer * by) for value, by in zip(made, at.gradients(number), strict=True)]

        return pull
