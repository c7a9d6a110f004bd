"""Class probabilities by the posterior of a softmax model."""

from __future__ import annotations

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from ...likelihoods.mean_softmax import normal_points
from .model import LaplaceGP

_ROWS = 64


@torch.no_grad()
def class_probabilities(model: LaplaceGP, x: Tensor) -> Tensor:
    """The probabilities (N, C) of classes at inputs (N, d), with the covariance of the functions at every point."""
    parts = [_of_rows(model, rows) for rows in x.split(_ROWS)]
    return torch.cat(parts) if parts else x.new_zeros(0, model.latent.num_functions)


def _of_rows(model: LaplaceGP, x: Tensor) -> Tensor:
    latent, shape = model.posterior(x), (len(x), model.latent.num_functions)
    joint = latent.covariance_matrix.reshape(*shape, *shape)
    roots = psd_safe_cholesky(joint.diagonal(dim1=0, dim2=2).movedim(-1, 0))
    values = latent.mean + (roots @ normal_points(shape[1]).to(roots).mT).movedim(-1, 0)
    probabilities: Tensor = model.likelihood(values).probs.mean(0)
    return probabilities
