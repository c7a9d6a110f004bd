"""The Gaussian posterior of the weights of a feature model, real or complex, from its sufficient statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from .linalg import cholesky, gram, log_determinant


class WeightPosterior:
    r"""Posterior :math:`N(m, B^{-1})` of weights w with prior N(0, I), observed through features with Gaussian noise.

    .. math:: B = I + \Phi^H S^{-1} \Phi = L L^H, \qquad m = B^{-1} \Phi^H S^{-1} y

    The function :math:`f(x) = \phi(x) w` then has mean :math:`\Phi_* m` and covariance
    :math:`\Phi_* B^{-1} \Phi_*^H = (\Phi_* L^{-H}) (\Phi_* L^{-H})^H`. Complex features give a proper complex posterior.

    :param precision_gram: :math:`\Phi^H S^{-1} \Phi`, (..., D, D), float64 or complex128.
    :param cross: :math:`\Phi^H S^{-1} y`, (..., D, K).
    :raises ValueError: where B is not positive definite to working precision.

    Source: T Eq. B.18 to B.20.

    >>> posterior = WeightPosterior(torch.eye(2, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))
    >>> posterior.mean
    tensor([[0.5000],
            [0.5000]], dtype=torch.float64)
    """

    def __init__(self, precision_gram: Tensor, cross: Tensor) -> None:
        precision = precision_gram.clone()
        precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
        self.factor = cholesky(precision)
        dtype = torch.promote_types(self.factor.dtype, cross.dtype)
        self.mean = torch.cholesky_solve(cross.to(dtype), self.factor.to(dtype))

    @property
    def log_determinant(self) -> Tensor:
        """log|B|, shape (...)."""
        return log_determinant(self.factor)

    def covariance_root(self, features: Tensor) -> Tensor:
        r"""The root :math:`\Phi_* L^{-H}` of the posterior covariance of the function, (..., N, D).

        :param features: (..., N, D).
        """
        features = features.to(self.factor.dtype)
        return torch.linalg.solve_triangular(self.factor, features.mH, upper=False).mH

    def detach(self) -> WeightPosterior:
        """The same posterior without its autograd graph."""
        detached = object.__new__(type(self))
        detached.factor, detached.mean = self.factor.detach(), self.mean.detach()
        return detached

    def sample(self, num_samples: int) -> Tensor:
        """Draws of the weights, (..., D, num_samples), of the dtype of the mean.

        :param num_samples: the number of draws.
        """
        shape = (*self.factor.shape[:-1], num_samples)
        noise = torch.randn(shape, dtype=self.factor.dtype, device=self.factor.device)
        draws = torch.linalg.solve_triangular(self.factor.mH, noise, upper=True)
        return self.mean[..., :1] + draws


def batched_gram(
    features: Tensor, targets: Tensor, weights: Tensor | None = None, product_dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """:func:`rfgp.linalg.gram` with leading batch dimensions that broadcast.

    :param features: (..., N, D).
    :param targets: (..., N, K).
    :param weights: (..., N); ones where it is None.
    :param product_dtype: the dtype of the products inside a chunk of rows.
    :returns: the (..., D, D) Gram matrices and (..., D, K) cross products; a batch of targets alone shares one Gram
        matrix, without batch dimensions.
    """
    weights_batch = torch.Size() if weights is None else weights.shape[:-1]
    shared = torch.broadcast_shapes(features.shape[:-2], weights_batch)
    if not shared:
        batch, (num_rows, columns) = targets.shape[:-2], targets.shape[-2:]
        flat = targets.reshape(-1, num_rows, columns).permute(1, 0, 2).reshape(num_rows, -1)
        product, cross = gram(features.reshape(features.shape[-2:]), flat, weights, product_dtype)
        return product, cross.reshape(len(cross), *batch, columns).movedim(0, -2)
    batch = torch.broadcast_shapes(shared, targets.shape[:-2])
    all_features = features.expand(*batch, *features.shape[-2:]).reshape(-1, *features.shape[-2:])
    all_targets = targets.expand(*batch, *targets.shape[-2:]).reshape(-1, *targets.shape[-2:])
    all_weights = (
        [None] * len(all_features)
        if weights is None
        else weights.expand(*batch, weights.shape[-1]).reshape(-1, weights.shape[-1])
    )
    pairs = [gram(f, t, w, product_dtype) for f, t, w in zip(all_features, all_targets, all_weights, strict=True)]
    grams, crosses = (torch.stack(parts) for parts in zip(*pairs, strict=True))
    return grams.reshape(*batch, *grams.shape[1:]), crosses.reshape(*batch, *crosses.shape[1:])
