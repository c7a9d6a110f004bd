"""The bound of a model that learns its noise as a function of the inputs, as training needs it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..inference.latent.variational import GaussianWeights
from ..models import HeteroscedasticGP
from ..models.heteroscedastic.noise_fit import NoiseFit, TrainingParts
from .objectives import Objective


class NoiseObjective(Objective):
    """The bound of a :class:`rfgp.models.HeteroscedasticGP` at the distribution of log noise that maximizes it."""

    def __init__(self, model: HeteroscedasticGP, x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            model.parts(x, y)
        self.model, self.x, self.y = model, x, y
        self._known: tuple[Tensor, NoiseFit] | None = None
        self._highest: NoiseFit | None = None

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        x, y = (self.x, self.y) if rows is None else (self.x[rows], self.y[rows])
        at = self.model.parts(x, y)
        best = self._best(at, is_all=rows is None)
        if rows is None and (self._highest is None or best.bound > self._highest.bound):
            self._highest = best
        collapsed = self.model.collapsed(at, best.noise)
        rest = best.bound - collapsed.detach()
        return collapsed + rest + at.noise.first_order(best.weights, best.d_mean, best.d_variance)

    def finish(self) -> Tensor:
        at = self.model.parts(self.x, self.y)
        try:
            best = self._best(at, is_all=True)
        except ValueError:  # at the least noise with which there is a regression, not every start has one
            if self._highest is None:
                raise
            best = self.model.best(at, self._highest.weights)
        self.model.set(at, best)
        return torch.tensor(best.bound, dtype=torch.float64)

    def _best(self, at: TrainingParts, is_all: bool) -> NoiseFit:
        """The best distribution of the weights of log noise."""
        width = at.noise.features.shape[-1]
        batch = (at.y.shape[-1],) if at.y.dim() > 1 else ()
        exact: dict[str, Any] = {"dtype": torch.float64, "device": at.x.device}
        identity = torch.eye(width, **exact).expand(*batch, width, width).contiguous()
        prior = GaussianWeights(torch.zeros(*batch, width, **exact), identity)
        best = self._from_last(at, prior) if is_all else None
        best = self.model.best(at, prior) if best is None else best
        if is_all:
            mean, _ = at.noise.moments(best.weights)
            self._known = mean - at.noise.offset.detach(), best
        return best

    def _from_last(self, at: TrainingParts, prior: GaussianWeights) -> NoiseFit | None:
        """What is found from the contributions of the rows at the last parameters; None where these lead nowhere."""
        if self._known is None:
            return None
        mean, last = self._known
        try:
            start = prior.stepped(prior.target(at.noise.features, last.d_mean, last.d_variance, mean), 1.0)
            return self.model.best(at, start)
        except ValueError:
            return None
