"""Rows in blocks of near ones, and what terms of any curvature, also a negative one, make of their prior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._support import checks
from ...linalg.cholesky_factor import factor_of, log_determinant_of
from ..local.residual import ResidualProcess
from ..posterior.posterior import WeightPosterior


class Block(NamedTuple):
    r"""The prior of the rows of a block.

    :param rows: their numbers, (n,).
    :param features: :math:`\Phi_b`, (n, D), output scale included.
    :param residual: :math:`R_b`, (n, n), the covariance that the features leave over.
    """

    rows: Tensor
    features: Tensor
    residual: Tensor


class BlockPrior:
    r"""The covariance :math:`K = \Phi \Phi^\top + \mathrm{blockdiag}(R_b)` of N rows."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks, self.num_features = blocks, blocks[0].features.shape[-1]
        self.device = blocks[0].features.device

    @classmethod
    @torch.no_grad()
    def of_rows(cls, kernel: Any, x: Tensor, parts: Sequence[Tensor]) -> BlockPrior:
        """That of rows x (N, d) with these numbers in each block."""
        process = ResidualProcess(kernel)
        width = kernel.num_scalar_features + 2 * max(map(len, parts))
        what = f"features and covariances of {len(x)} x {width} numbers"
        checks.fits_in_memory(8.0 * len(x) * width, what, "use fewer landmarks or a smaller block_size")
        blocks = []
        for rows in (part.to(x.device) for part in parts):
            features = process.features(x[rows])
            blocks.append(Block(rows, features, process.covariance(x[rows], features)))
        return cls(blocks)

    def times(self, values: Tensor) -> tuple[Tensor, Tensor]:
        r"""The products :math:`\Phi^\top a`, (D, 1), and :math:`K a`, (N, 1), with a column a."""
        weights = values.new_zeros(self.num_features, 1)
        for rows, features, _ in self.blocks:
            weights += features.mT @ values[rows]
        result = torch.empty_like(values)
        for rows, features, residual in self.blocks:
            result[rows] = features @ weights + residual @ values[rows]
        return weights, result


class BlockSites:
    r"""The matrix :math:`G = (R + W^{-1})^{-1} = Q_+^\top Q_+ - Q_-^\top Q_-` of a block, for W of any sign.

    .. math:: C C^\top = I + S R S, \quad S = \max(W, 0)^{1/2}, \qquad Q_+ = C^{-1} S, \qquad
        E E^\top = I - T R_{:n} T_n^\top, \quad Q_- = E^{-1} T (I - R Q_+^\top Q_+)

    with the roots T of the negative W, and their columns n.

    :param curvature: W, (n,).
    :raises ValueError: where the posterior of the residual is improper.
    """

    def __init__(self, residual: Tensor, curvature: Tensor) -> None:
        self.residual = residual
        self.root = curvature.clamp_min(0.0).sqrt().unsqueeze(-1)
        matrix = self.root * residual * self.root.mT
        matrix.diagonal().add_(1.0)
        self.factor = factor_of(matrix)
        self.log_determinant = log_determinant_of(self.factor)
        self.concave: Tensor | None = None
        is_negative = curvature < 0
        if bool(is_negative.any()):
            self._add_concave(is_negative.nonzero().squeeze(-1), (-curvature[is_negative]).sqrt().unsqueeze(-1))

    def _add_concave(self, chosen: Tensor, root: Tensor) -> None:
        near = self.residual[chosen]
        left = -self.times(near.mT).mT
        left[torch.arange(len(chosen), device=chosen.device), chosen] += 1.0
        matrix = -root * (left @ near.mT) * root.mT
        matrix.diagonal().add_(1.0)
        factor = factor_of(matrix)
        self.log_determinant = self.log_determinant + log_determinant_of(factor)
        self.concave = torch.linalg.solve_triangular(factor, root * left, upper=False)

    def whitened(self, values: Tensor) -> tuple[Tensor, Tensor | None]:
        r"""The products :math:`Q_+ V` and, if there is a negative W, :math:`Q_- V`, with values (n, K)."""
        positive = torch.linalg.solve_triangular(self.factor, self.root * values, upper=False)
        return positive, None if self.concave is None else self.concave @ values

    def times(self, values: Tensor) -> Tensor:
        """G V, (n, K)."""
        result = self.root * torch.cholesky_solve(self.root * values, self.factor)
        return result if self.concave is None else result - self.concave.mT @ (self.concave @ values)

    def reduction(self, cross: Tensor) -> Tensor:
        """The diagonal (K,) of V^T G V for V (n, K): by how much the rows lower variances."""
        positive, negative = self.whitened(cross)
        result = positive.square().sum(-2)
        return result if negative is None else result - negative.square().sum(-2)

    def inverse(self) -> Tensor:
        """G, (n, n)."""
        result = self.root * torch.cholesky_inverse(self.factor) * self.root.mT
        return result if self.concave is None else result - self.concave.mT @ self.concave


class SitePosterior:
    r"""The posterior of weights and residuals where row i adds :math:`b_i f_i - W_i f_i^2 / 2` to the log prior.

    .. math:: B = I + \sum_b \Phi_b^\top G_b \Phi_b, \qquad
        (K + W^{-1})^{-1} = G - G \Phi B^{-1} \Phi^\top G, \qquad \log|I + K W| = \log|B| + \sum_b \log|I + R_b W_b|

    :param curvature: W, (N,).
    :raises ValueError: where it is improper, which a negative W can bring about.
    """

    def __init__(self, prior: BlockPrior, curvature: Tensor) -> None:
        self.prior = prior
        self.gram = torch.zeros(prior.num_features, prior.num_features, dtype=torch.float64, device=prior.device)
        self.sites = []
        log_determinant = self.gram.new_zeros(())
        for rows, features, residual in prior.blocks:
            sites = BlockSites(residual, curvature[rows])
            positive, negative = sites.whitened(features)
            self.gram.addmm_(positive.mT, positive)
            if negative is not None:
                self.gram.addmm_(negative.mT, negative, alpha=-1.0)
            log_determinant = log_determinant + sites.log_determinant
            self.sites.append(sites)
        self.weights = WeightPosterior(self.gram, self.gram.new_zeros(len(self.gram), 1))
        self.log_determinant = log_determinant + self.weights.log_determinant

    def solve(self, slope: Tensor) -> Tensor:
        r"""The column :math:`(I + W K)^{-1} b` for b, (N, 1): K times it is the mean of the functions."""
        left, cross = torch.empty_like(slope), slope.new_zeros(len(self.gram), 1)
        for (rows, features, residual), sites in zip(self.prior.blocks, self.sites, strict=True):
            left[rows] = slope[rows] - sites.times(residual @ slope[rows])
            cross += features.mT @ left[rows]
        mean = self.weights.solve(cross)
        for (rows, features, _), sites in zip(self.prior.blocks, self.sites, strict=True):
            left[rows] -= sites.times(features @ mean)
        return left

    def variances(self) -> Tensor:
        """The posterior variances of the functions at the rows, (N,)."""
        result = self.gram.new_empty(sum(len(block.rows) for block in self.prior.blocks))
        for (rows, features, residual), sites in zip(self.prior.blocks, self.sites, strict=True):
            root = self.weights.covariance_root(features - residual @ sites.times(features))
            result[rows] = residual.diagonal() - sites.reduction(residual) + root.square().sum(-1)
        return result
