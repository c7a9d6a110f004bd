"""Predictions of a model of several functions, averaged over their posterior: class probabilities and densities."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from ...inference.latent.class_prediction import ClassCovariance
from ...likelihoods.mean_softmax import normal_points
from .model import LaplaceGP

_ROWS = 64


@torch.no_grad()
def class_probabilities(model: LaplaceGP, x: Tensor) -> Tensor:
    """The probabilities (N, C) of classes at inputs (N, d), with the covariance of the functions at every point."""
    parts = [model.likelihood(values).probs.mean(0) for values in _functions(model, x)]
    return torch.cat(parts) if parts else x.new_zeros(0, model.likelihood.num_classes)


@torch.no_grad()
def log_predictive(model: LaplaceGP, x: Tensor, y: Tensor) -> Tensor:
    """The log densities (N,) of targets, or log probabilities of labels, with that covariance."""
    targets = model.latent.targets(y, x).split(_ROWS)
    parts = zip(_functions(model, x), targets, strict=True)
    return torch.cat(
        [model.likelihood(values).log_prob(known).logsumexp(0) - math.log(len(values)) for values, known in parts]
    )


def _functions(model: LaplaceGP, x: Tensor) -> Iterator[Tensor]:
    """Values (S, n, Q) of the functions at some inputs after others, which stand for draws."""
    for rows in x.split(_ROWS) if len(x) else ():
        latent, shape = model.posterior(rows), (len(rows), model.latent.num_functions)
        covariance = latent.lazy_covariance_matrix
        if isinstance(covariance, ClassCovariance):
            of_points = covariance.prediction.of_points().to(latent.mean)
        else:
            of_points = covariance.to_dense().reshape(*shape, *shape).diagonal(dim1=0, dim2=2).movedim(-1, 0)
        roots = psd_safe_cholesky(of_points)
        yield latent.mean + (roots @ normal_points(shape[1]).to(roots).mT).movedim(-1, 0)
