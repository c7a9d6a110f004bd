"""What models of standardized targets say of new observations, in the units of the targets."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal

from ...averaging import AveragedGP, Mixture
from ...averaging.member import Moments
from ...sklearn.frames.donors import Imputations

if TYPE_CHECKING:
    from ...sklearn.latent import PointPredictor
    from ...sklearn.near_predictions import OwnLabels

_CHUNK = 4096


@functools.singledispatch
def predictive(
    model: Any, x: Tensor, center: Tensor, scale: Tensor, of_noise: Tensor, near: PointPredictor | None = None
) -> Normal | Mixture:
    """The distributions of center + scale z, each alone, where a model is one of standardized targets z.

    :param x: standardized inputs (N, d).
    :param center: the means of the targets, (T,).
    :param scale: their standard deviations.
    :param of_noise: by what the noise of the rows is multiplied, (N, 1).
    :param near: training rows near new ones that predict in place of the features of the model.
    """
    from ...sklearn.latent import latent_moments, observed_variances

    parts = []
    for rows, factors in zip(x.split(_CHUNK), of_noise.split(_CHUNK), strict=True):
        mean, latent = latent_moments(model, rows, rows=near)
        parts.append((mean, observed_variances(model, rows, latent, factors)))
    mean, variance = (torch.cat(part) for part in zip(*parts, strict=True))
    mean, stddev = mean * scale + center, variance.sqrt() * scale
    if len(center) == 1:
        mean, stddev = mean.squeeze(-1), stddev.squeeze(-1)
    return Normal(mean, stddev, validate_args=False)


def class_probabilities(model: Any, x: Tensor, temperature: float, near: OwnLabels | None = None) -> Tensor:
    """The probabilities (N, C) of classes at standardized inputs (N, d).

    :param near: what predicts in place of the features of the model.
    """
    from ...sklearn.calibration import tempered
    from ...sklearn.labels import log_class_probabilities

    logs = [tempered(log_class_probabilities(model, rows, near), 1.0 / temperature) for rows in x.split(_CHUNK)]
    return torch.from_numpy(np.concatenate(logs)).exp()


@functools.singledispatch
def widened(found: Any, factor: Tensor) -> Normal | Mixture:
    """Distributions with standard deviations times a factor, of their shape."""
    return Normal(found.mean, found.stddev * factor, validate_args=False)


@widened.register
def _mixture(found: Mixture, factor: Tensor) -> Mixture:
    return found.widened(factor)


@functools.singledispatch
def imputed(found: Any, missing: Imputations, parts: Sequence[Any]) -> Normal | Mixture:
    """Distributions where rows with missing cells have those of imputations, (G,) or (G, T) each."""
    every = [Moments(*(part.reshape(len(part), -1) for part in (each.mean, each.variance))) for each in (found, *parts)]
    mean, variance = every[0].imputed(missing.rows, missing.is_marked, every[1:], torch.ones(1))
    return Normal(mean.reshape(found.mean.shape), variance.sqrt().reshape(found.mean.shape), validate_args=False)


@imputed.register
def _imputed_mixture(found: Mixture, missing: Imputations, parts: Sequence[Mixture]) -> Mixture:
    return found.imputed(missing.rows, missing.is_marked, parts)


@predictive.register
def _of_average(
    model: AveragedGP, x: Tensor, center: Tensor, scale: Tensor, of_noise: Tensor, near: None = None
) -> Mixture:
    return model.predictive(x).rescaled(center, scale)
