"""Probabilities of classes from latent functions, which left-out rows calibrate."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import torch
from torch import Tensor

SHARES = (1.0, 0.3, 0.1, 0.03)
"""How much of the variances of latent functions can count."""
POWERS = (1.0, 0.7, 0.5)
"""Powers of the odds of classes."""


class LatentMoments(NamedTuple):
    """Means and variances (S, C, M) of C latent functions at M rows, for each of S draws of the parameters."""

    mean: Tensor
    variance: Tensor


class ClassLink(NamedTuple):
    r"""How latent functions become probabilities of classes, each of which is told from the others by one of them.

    .. math:: p_c = \frac1S \sum_s q_{sc}, \qquad
        q_{sc} \propto \exp \frac{\gamma m_{sc}}{\sqrt{1 + \frac{\pi}{8} \rho v_{sc}}}

    These odds are nearly those of a logistic function averaged over a normal distribution. Laplace's approximation has
    modes for means, which are too near zero, so that less of its variances counts. Where two classes of more are alike,
    the functions of both say the same, and the root of the product of their odds is right. Two classes have one latent
    function, that of the second.

    :param share: :math:`\rho`.
    :param power: :math:`\gamma`.

    Source: MacKay (1992), the evidence framework applied to classification networks; Kuss and Rasmussen (2005).
    """

    share: float
    power: float

    @classmethod
    def calibrated(cls, moments: LatentMoments, codes: Tensor) -> Self:
        """The link of the largest density of the classes (M,) of rows that latent functions have not seen."""
        powers = POWERS if moments.mean.shape[1] > 1 else POWERS[:1]
        links = [cls(share, power) for share in SHARES for power in powers]
        return max(links, key=lambda link: float(link.log_density(moments, codes).sum()))

    def _of_draws(self, moments: LatentMoments) -> Tensor:
        """The log probabilities (S, M, C) of each draw."""
        odds = self.power * moments.mean / (1.0 + 0.125 * math.pi * self.share * moments.variance).sqrt()
        if odds.shape[1] == 1:
            odds = torch.cat([torch.zeros_like(odds), odds], dim=1)
        return torch.log_softmax(odds, dim=1).mT

    def log_probabilities(self, moments: LatentMoments) -> Tensor:
        """The log probabilities (M, C) of classes."""
        return self._of_draws(moments).logsumexp(0) - math.log(len(moments.mean))

    def left_out(self, moments: LatentMoments, codes: Tensor) -> Tensor:
        r"""The log probabilities (M, C) of rows whose classes (M,) latent functions have not seen, but parameters have.

        .. math:: p(c | y_{-i}) \propto \sum_s \frac{q_{sc}}{q_{s y_i}}

        Draws given all labels become such given the others.

        Source: Gelfand, Dey and Chang (1992), conditional predictive ordinates.
        """
        logs = self._of_draws(moments)
        weights = -logs.gather(-1, codes.reshape(1, -1, 1).expand(len(logs), -1, -1))
        return (logs + weights).logsumexp(0) - weights.logsumexp(0)

    def log_density(self, moments: LatentMoments, codes: Tensor) -> Tensor:
        """The log probabilities (M,) of classes that are left out."""
        return self.left_out(moments, codes).gather(-1, codes.unsqueeze(-1)).squeeze(-1)
