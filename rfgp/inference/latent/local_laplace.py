"""Laplace's approximation for latent functions with features, and their residual in blocks of near rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..._support import checks
from ...linalg.cholesky_factor import factor_of, log_determinant_of
from ..local.residual import ResidualProcess
from ..posterior.posterior import WeightPosterior
from ..sums.recomputation import gradients_of_chunks, recomputed
from .laplace import LatentFunctions
from .latent_terms import Terms, signed_parts
from .newton import NewtonSearch, Point, damped, not_concave

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel


class PriorBlock(NamedTuple):
    r"""The prior of Q functions at the rows of a block.

    :param rows: their numbers, (n,).
    :param features: :math:`\Phi_b`, (Q, n, D), output scales included.
    :param residual: :math:`R_b`, (Q, n, n), the covariances that the features leave over.
    """

    rows: Tensor
    features: Tensor
    residual: Tensor


class BlockPrior:
    r"""The covariances :math:`K = \Phi \Phi^\top + \mathrm{blockdiag}(R_b)` of Q independent functions at N rows."""

    def __init__(self, blocks: Sequence[PriorBlock]) -> None:
        self.blocks = blocks
        self.num_functions, _, self.num_features = blocks[0].features.shape
        self.device = blocks[0].features.device

    @classmethod
    @torch.no_grad()
    def of_rows(cls, kernel: FeatureKernel, x: Tensor, parts: Sequence[Tensor], num_functions: int) -> BlockPrior:
        """That of rows x (N, d) with these numbers in each block."""
        process = ResidualProcess(kernel)
        kept = 2 if num_functions == 1 else 1 + 2 * num_functions
        width = kernel.num_scalar_features + kept * max(map(len, parts))
        what = f"features and covariances of {len(x)} x {width} numbers"
        checks.fits_in_memory(8.0 * len(x) * width, what, "use fewer landmarks or a smaller block_size")
        blocks = []
        for rows in (part.to(x.device) for part in parts):
            features = process.features(x[rows])
            every = features, process.covariance(x[rows], features)
            blocks.append(PriorBlock(rows, *(part.expand(num_functions, -1, -1) for part in every)))
        return cls(blocks)

    def times(self, values: Tensor) -> tuple[Tensor, Tensor]:
        r"""The products :math:`\Phi^\top a`, (Q, D, 1), and :math:`K a`, (N, Q), with a table a, (N, Q)."""
        weights = values.new_zeros(self.num_functions, self.num_features, 1)
        for rows, features, _ in self.blocks:
            weights += features.mT @ columns_of(values[rows])
        result = torch.empty_like(values)
        for rows, features, residual in self.blocks:
            result[rows] = table_of(features @ weights + residual @ columns_of(values[rows]))
        return weights, result


class BlockSites:
    r"""The matrix :math:`G = W (I + R W)^{-1} = Q_+^\top Q_+ - Q_-^\top Q_-` of Q functions at the n rows of a block.

    One function has :math:`W = \mathrm{diag}(d)` of any sign:

    .. math:: C C^\top = I + S R S, \quad S = \max(W, 0)^{1/2}, \qquad Q_+ = C^{-1} S, \qquad
        E E^\top = I - T R_{:n} T_n^\top, \quad Q_- = E^{-1} T (I - R Q_+^\top Q_+)

    with the roots T of the negative W, and their columns n. Several are the classes of a softmax,
    :math:`W_i = \mathrm{diag}(d_i) - d_i d_i^\top` with probabilities d, at O(Q n^3) in place of (Q n)^3:

    .. math:: G_q = Q_{+q}^\top Q_{+q}, \qquad M M^\top = \sum_q G_q, \qquad Q_- = M^{-1} (G_1, \dots, G_Q)

    :param residual: R, (..., Q, n, n), independent between functions.
    :param curvature: d, (..., Q, n).
    :raises ValueError: where the posterior of the residual is improper.

    Source: Rasmussen and Williams (2006), Algorithm 3.3.
    """

    def __init__(self, residual: Tensor, curvature: Tensor) -> None:
        self.residual = residual
        self.root = curvature.clamp_min(0.0).sqrt().unsqueeze(-1)
        matrix = self.root * residual * self.root.mT
        matrix.diagonal(dim1=-2, dim2=-1).add_(1.0)
        self.factor = factor_of(matrix)
        self.log_determinant = log_determinant_of(self.factor).sum(-1)
        self.concave: Tensor | None = None
        if curvature.shape[-2] > 1:
            self._add_coupling()
        elif bool((curvature < 0).any()):
            (chosen,) = (curvature[0] < 0).nonzero(as_tuple=True)
            self._add_concave(chosen, (-curvature[0, chosen]).sqrt().unsqueeze(-1))

    def _add_coupling(self) -> None:
        every = self.inverse()
        factor = factor_of(every.sum(-3))
        self.log_determinant = self.log_determinant + log_determinant_of(factor)
        self.concave = torch.linalg.solve_triangular(factor.unsqueeze(-3), every, upper=False)

    def _add_concave(self, chosen: Tensor, root: Tensor) -> None:
        near = self.residual[0, chosen]
        left = -self.times(near.mT.unsqueeze(0))[0].mT
        left[torch.arange(len(chosen), device=chosen.device), chosen] += 1.0
        matrix = -root * (left @ near.mT) * root.mT
        matrix.diagonal().add_(1.0)
        factor = factor_of(matrix)
        self.log_determinant = self.log_determinant + log_determinant_of(factor)
        self.concave = torch.linalg.solve_triangular(factor, root * left, upper=False).unsqueeze(0)

    def _whitened(self, values: Tensor) -> tuple[Tensor, Tensor | None]:
        r"""The products :math:`Q_{+q} V_q`, (..., Q, n, K), and :math:`Q_{-q} V_q` if there are, with values V."""
        positive = torch.linalg.solve_triangular(self.factor, self.root * values, upper=False)
        return positive, None if self.concave is None else self.concave @ values

    def add_gram_(self, gram: Tensor, features: Tensor) -> None:
        r"""Add :math:`\Phi^\top G \Phi` to a matrix (Q D, Q D), function by function, with features (Q, n, D)."""
        count, _, width = features.shape
        of_function = gram.view(count, width, count, width).diagonal(dim1=0, dim2=2).unbind(-1)
        positive, negative = self._whitened(features)
        for own, white in zip(of_function, positive, strict=True):
            own.addmm_(white.mT, white)
        if negative is not None:
            wide = negative.movedim(0, 1).flatten(1)
            gram.addmm_(wide.mT, wide, alpha=-1.0)

    def times(self, values: Tensor) -> Tensor:
        """G V, (..., Q, n, K)."""
        result = self.root * torch.cholesky_solve(self.root * values, self.factor)
        if self.concave is None:
            return result
        return result - self.concave.mT @ (self.concave @ values).sum(-3, keepdim=True)

    def reduction(self, cross: Tensor) -> Tensor:
        r"""By how much the rows lower covariances of the functions, :math:`v_{kq}^\top G_{qr} v_{kr}`, (K, Q, Q).

        :param cross: V, (Q, n, K).
        """
        positive, negative = self._whitened(cross)
        result = torch.diag_embed(positive.square().sum(-2).mT)
        return result if negative is None else result - torch.einsum("qnk,rnk->kqr", negative, negative)

    def inverse(self) -> Tensor:
        """The blocks of G of every function with itself, (..., Q, n, n)."""
        result = self.root * torch.cholesky_inverse(self.factor) * self.root.mT
        return result if self.concave is None else result - self.concave.mT @ self.concave

    @staticmethod
    def by_curvature(covariance: Tensor, curvature: Tensor) -> Tensor:
        r"""The derivatives of :math:`-\log|I + K W| / 2` in d, (n, Q), by covariances of the functions, (n, Q, Q)."""
        result = -0.5 * covariance.diagonal(dim1=-2, dim2=-1)
        if curvature.shape[-1] > 1:
            result = result + (covariance @ curvature.unsqueeze(-1)).squeeze(-1)
        return result


class CoupledSites:
    r"""The matrix :math:`G = W (I + R W)^{-1}` of Q functions where rows have any symmetric :math:`W_i`, (Q, Q).

    .. math:: W_i = S_i S_i^\top - T_i T_i^\top, \qquad C C^\top = I + S^\top R S, \qquad
        G_+ = S (C C^\top)^{-1} S^\top, \qquad R_+ = R - R G_+ R

    .. math:: E E^\top = I - T^\top R_+ T, \qquad G = G_+ - (I - G_+ R)\, T (E E^\top)^{-1} T^\top (I - R G_+)

    at O((Q n)^3). The methods are those of :class:`BlockSites`.

    :param residual: R, (..., Q, n, n), independent between functions.
    :param curvature: W by the pairs of functions, (..., P, n).
    :raises ValueError: where the posterior of the residual is improper.
    """

    def __init__(self, residual: Tensor, curvature: Tensor, num_functions: int) -> None:
        count, size = num_functions, residual.shape[-1]
        residual = residual.expand(*residual.shape[:-3], count, size, size)
        self.shape = count, size
        values, vectors = signed_parts(curvature.mT, count)
        root = _spread(vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2))
        matrix = root.mT @ (residual @ root.unflatten(-2, self.shape)).flatten(-3, -2)
        matrix.diagonal(dim1=-2, dim2=-1).add_(1.0)
        factor = factor_of(matrix)
        self.log_determinant = log_determinant_of(factor)
        half = torch.linalg.solve_triangular(factor, root.mT, upper=False)
        self.matrix = half.mT @ half
        is_concave = (values < 0).flatten(0, -3).any(0) if values.dim() > 2 else values < 0
        if bool(is_concave.any()):
            root = _spread(vectors * (-values).clamp_min(0.0).sqrt().unsqueeze(-2))
            self._add_concave(residual, root[..., is_concave.mT.flatten()])

    def _add_concave(self, residual: Tensor, root: Tensor) -> None:
        near = residual @ root.unflatten(-2, self.shape)
        left = root - self.times(near).flatten(-3, -2)
        matrix = -(near.flatten(-3, -2).mT @ left)
        matrix.diagonal(dim1=-2, dim2=-1).add_(1.0)
        factor = factor_of(matrix)
        self.log_determinant = self.log_determinant + log_determinant_of(factor)
        half = torch.linalg.solve_triangular(factor, left.mT, upper=False)
        self.matrix = self.matrix - half.mT @ half

    @property
    def _of_pairs(self) -> Tensor:
        """The blocks of G of pairs of functions, (..., Q, n, Q, n)."""
        return self.matrix.unflatten(-1, self.shape).unflatten(-3, self.shape)

    def add_gram_(self, gram: Tensor, features: Tensor) -> None:
        r"""Add :math:`\Phi^\top G \Phi` to a matrix (Q D, Q D), function by function, with features (Q, n, D)."""
        passed = self.times(side_by_side(features))
        gram += (features.mT @ passed).flatten(0, 1)

    def times(self, values: Tensor) -> Tensor:
        """G V, (..., Q, n, K)."""
        return (self.matrix @ values.flatten(-3, -2)).unflatten(-2, self.shape)

    def reduction(self, cross: Tensor) -> Tensor:
        r"""By how much the rows lower covariances of the functions, :math:`v_{kq}^\top G_{qr} v_{kr}`, (K, Q, Q)."""
        passed = self._of_pairs.movedim(-2, -3) @ cross
        return (cross.unsqueeze(-3) * passed).sum(-2).movedim(-1, 0)

    def inverse(self) -> Tensor:
        """The blocks of G of every function with itself, (..., Q, n, n)."""
        return self._of_pairs.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)

    @staticmethod
    def by_curvature(covariance: Tensor, curvature: Tensor) -> Tensor:
        r"""The derivatives of :math:`-\log|I + K W| / 2` in the pairs, (n, P), by covariances of the functions."""
        rows, columns = torch.triu_indices(*covariance.shape[-2:], device=covariance.device)
        result: Tensor = covariance[..., rows, columns] * torch.where(rows == columns, -0.5, -1.0)
        return result


def _spread(roots: Tensor) -> Tensor:
    """Roots (..., n, Q, K) of rows as those of all of them, (..., Q n, K n), function by function."""
    return torch.diag_embed(roots.movedim(-3, -1), dim1=-3, dim2=-1).flatten(-4, -3).flatten(-2)


def sites_of(residual: Tensor, curvature: Tensor, num_functions: int) -> BlockSites | CoupledSites:
    """The sites of rows with a curvature for every function, (..., Q, n), or for every pair of them, (..., P, n)."""
    is_coupled = curvature.shape[-2] > num_functions
    return CoupledSites(residual, curvature, num_functions) if is_coupled else BlockSites(residual, curvature)


class SitePosterior:
    r"""The posterior of weights and residuals where row i adds :math:`b_i^\top f_i - f_i^\top W_i f_i / 2` to the log
    prior, with W as in :class:`BlockSites` or :class:`CoupledSites`.

    .. math:: B = I + \sum_b \Phi_b^\top G_b \Phi_b, \qquad
        G_{all} = W (I + K W)^{-1} = G - G \Phi B^{-1} \Phi^\top G, \qquad
        \log|I + K W| = \log|B| + \sum_b \log|I + R_b W_b|

    :param curvature: d, (N, Q), or W by pairs of functions, (N, P).
    :raises ValueError: where it is improper, which a negative W can bring about.
    """

    def __init__(self, prior: BlockPrior, curvature: Tensor) -> None:
        self.prior, self.curvature = prior, curvature
        count, width = prior.num_functions, prior.num_features
        self.gram = torch.zeros(count * width, count * width, dtype=torch.float64, device=prior.device)
        self.sites = []
        log_determinant = self.gram.new_zeros(())
        for rows, features, residual in prior.blocks:
            sites = sites_of(residual, curvature[rows].mT, count)
            sites.add_gram_(self.gram, features)
            log_determinant = log_determinant + sites.log_determinant
            self.sites.append(sites)
        self.weights = WeightPosterior(self.gram, self.gram.new_zeros(len(self.gram), 1))
        self.log_determinant = log_determinant + self.weights.log_determinant

    def solve(self, slope: Tensor) -> Tensor:
        r"""The table :math:`(I + W K)^{-1} b` for b, (N, Q): K times it is the mean of the functions."""
        left = torch.empty_like(slope)
        cross = slope.new_zeros(self.prior.num_functions, self.prior.num_features, 1)
        for (rows, features, residual), sites in zip(self.prior.blocks, self.sites, strict=True):
            own = columns_of(slope[rows])
            own = own - sites.times(residual @ own)
            cross += features.mT @ own
            left[rows] = table_of(own)
        mean = self.weights.solve(cross.flatten(0, 1)).view_as(cross)
        for (rows, features, _), sites in zip(self.prior.blocks, self.sites, strict=True):
            left[rows] -= table_of(sites.times(features @ mean))
        return left

    def by_curvature(self) -> Tensor:
        r"""The derivatives of :math:`-\log|I + K W| / 2` in the curvature, of its shape."""
        result = torch.empty_like(self.curvature)
        for (rows, features, residual), sites in zip(self.prior.blocks, self.sites, strict=True):
            wide = side_by_side(features)
            root = self.weights.covariance_root(wide - residual @ sites.times(wide)).movedim(0, 1)
            prior = torch.diag_embed(residual.diagonal(dim1=-2, dim2=-1).mT)
            covariance = prior - sites.reduction(residual) + root @ root.mT
            result[rows] = sites.by_curvature(covariance, self.curvature[rows])
        return result


def columns_of(table: Tensor) -> Tensor:
    """A table (..., n, Q) as a column of every function, (..., Q, n, 1)."""
    return table.mT.unsqueeze(-1)


def table_of(columns: Tensor) -> Tensor:
    """Columns (..., Q, n, 1) as a table (..., n, Q)."""
    return columns.squeeze(-1).mT


def side_by_side(values: Tensor) -> Tensor:
    """Values (..., Q, n, K) in columns of their own function, with zeros in those of others, (..., Q, n, Q K)."""
    return torch.diag_embed(values.movedim(-3, -1), dim1=-4, dim2=-2).flatten(-2)


def of_own_function(values: Tensor) -> Tensor:
    """The columns (Q, n, K) that values (Q, n, Q K) have for their own function."""
    return values.unflatten(-1, (len(values), -1)).diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


class LocalLaplace(NewtonSearch):
    r"""The log posterior of Q functions at N rows, :math:`f = m + K \alpha`, as one of :math:`\alpha`, (N, Q).

    .. math:: \Psi(\alpha) = \sum_i \log p(y_i \mid f_i) - \tfrac12 \alpha^\top K \alpha, \qquad
        \alpha \leftarrow \alpha + (I + W K)^{-1} (g - \alpha)

    :param x: the inputs of the rows, (N, d).
    :param y: their targets, (N,).
    :param exposure: their exposures, (N,).
    :param parts: the numbers of the rows of each block.

    Source: Rasmussen and Williams (2006), Algorithms 3.1 and 3.3; errata, identity 12 of the last section.
    """

    def __init__(self, functions: LatentFunctions, x: Tensor, y: Tensor, exposure: Tensor, parts: list[Tensor]) -> None:
        self.functions, self.x, self.y, self.exposure = functions, x, y, exposure
        self.prior = BlockPrior.of_rows(functions.kernel, x, parts, functions.likelihood.num_functions)
        with torch.no_grad():
            self.mean = functions.mean_at(x) + exposure.log().unsqueeze(-1)

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
        exact = self.functions.exact.likelihood
        return damped(functools.partial(SitePosterior, self.prior), curvature, lambda: exact.concave(curvature))


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
    gradients = functools.partial(
        _gradients, functions, (problem.x.detach(), problem.y, problem.exposure, parts), at.weights
    )
    (value,) = recomputed([at.value], gradients, (problem.x, numbers), parameters)
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
            raise not_concave() from None
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


def _gradients(
    functions: LatentFunctions,
    rows: tuple[Tensor, Tensor, Tensor, list[Tensor]],
    weights: Tensor,
    of_value: Sequence[Tensor],
    arguments: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
) -> list[Tensor | None]:
    """The gradients of the evidence at a mode, block by block."""
    problem = LocalLaplace(functions, *rows)
    at, process = LaplaceAtMode(problem, weights), ResidualProcess(functions.kernel)
    shape = (problem.prior.num_functions, -1, -1)

    def graph(x: Tensor, numbers: Tensor) -> tuple[Tensor]:
        """What has the gradients of the evidence in what a block is made of."""
        number = int(numbers[0])
        block = problem.prior.blocks[number].rows
        features = process.features(x).expand(shape)
        covariance = process.covariance(x, features[..., :0]).expand(shape)
        terms = functions.likelihood.terms_in_blocks((problem.mean + at.latent)[block], problem.y[block])
        made = covariance, features, functions.mean_at(x), terms.slope, terms.curvature
        pairs = zip(made, at.gradients(number), strict=True)
        return (sum(((value * by).sum().double() for value, by in pairs), terms.log_density.sum()),)

    return gradients_of_chunks(graph, of_value, rows[-1], arguments, (), inputs)
