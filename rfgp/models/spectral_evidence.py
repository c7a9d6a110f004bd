"""The evidence of a conditioned model as a function of noise variance, output scale and mean alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..inference import noise_model
from ..inference.noise.independent import IndependentNoise
from ..inference.sums.grid_statistics import is_wide
from ..inference.sums.mean_basis import coefficients
from .profiled_evidence import FreeLevels, ProfiledEvidence
from .weight_space import WeightSpaceGP

_AGREEMENT = 1e-6
"""How far, per row, the evidence by the spectrum may be from the model's own."""


class SpectralEvidence:
    r"""The evidence of a model of one output as a function of noise variance s, output scale a and mean, at O(D^2).

    .. math:: \log p(y) = -\tfrac12 \Big(\frac1s \Big[r^\top r - \sum_j \frac{a z_j^2}{s + a \lambda_j}\Big]
        + \sum_j \log\Big(1 + \frac{a \lambda_j}{s}\Big) + N \log 2 \pi s\Big), \qquad z = Q^\top \Phi^\top r,
        \qquad \Phi^\top \Phi = Q\, \mathrm{diag}(\lambda)\, Q^\top
    """

    def __init__(self, model: WeightSpaceGP) -> None:
        self.model, self.statistics = model, model.regression().of_features(model.statistics)
        values, vectors = torch.linalg.eigh(self.statistics.gram[0])
        self.eigenvalues = values.clamp_min(0.0)
        crosses, squares = self.statistics.targets.of_targets()
        self._crosses, self._squares = vectors.mT @ crosses[0], squares[0]
        self._measured = noise_model(model.likelihood, 1)
        missing = model.noise.covariance() - self._measured.covariance()
        self._missing = (missing.reshape(()) / self._scale()).detach()

    def _scale(self) -> Tensor:
        return self.model.covar_module.output_factor().double().square().reshape(())

    def profiled(self) -> ProfiledEvidence:
        """The evidence with all but one parameter at their best."""
        count = self.statistics.num_rows
        return ProfiledEvidence(self.eigenvalues, self._crosses, self._squares, count, float(self._missing))

    def value(self) -> Tensor:
        """The log evidence at the present parameters, differentiable in those that are free."""
        mean = coefficients(self.model.mean_module, 1, self.eigenvalues.device)
        residual = torch.nn.functional.pad(-mean.squeeze(-1), (1, 0), value=1.0)
        scale = self._scale()
        noise = self._measured.covariance().reshape(()) + scale * self._missing
        variances = noise + scale * self.eigenvalues
        explained = (scale * (self._crosses @ residual).square() / variances).sum()
        quadratic = (residual @ self._squares @ residual - explained) / noise
        weight = self.statistics.num_rows
        log_det = (variances / noise).log().sum() + weight * noise.log()
        return -0.5 * (quadratic + log_det + weight * math.log(2.0 * math.pi))


@torch.no_grad()
def spectral_evidence(model: WeightSpaceGP) -> SpectralEvidence | None:
    """The spectral evidence of a conditioned model; None where its evidence has another form, or nothing is free."""
    kernel = model.covar_module
    if kernel.has_output_factor or kernel.is_complex or not any(p.requires_grad for p in _free_parameters(model)):
        return None
    noise = noise_model(model.likelihood)
    if is_wide(kernel, noise) or model.contains_noise:
        return None
    if not isinstance(noise, IndependentNoise) or noise.is_complex or len(model.statistics.count) != 1:
        return None
    evidence = SpectralEvidence(model)
    difference = float(evidence.value() - model.log_marginal_likelihood())
    return evidence if abs(difference) <= _AGREEMENT * max(1, int(model.statistics.num_rows)) else None


@contextmanager
def only_free(model: WeightSpaceGP) -> Iterator[None]:
    """Let only the parameters learn that the statistics of a model do not contain."""
    contained = [p for p in model.covar_module.feature_parameters() if p.requires_grad]
    for parameter in contained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in contained:
            parameter.requires_grad_(True)


def learn_from_statistics(model: WeightSpaceGP) -> bool:
    """Maximize the evidence over noise variance, output scale and mean of a conditioned model, without its rows."""
    evidence, free = spectral_evidence(model), FreeLevels.of(model)
    if evidence is None or free is None:
        return False
    free.place(model, evidence.profiled().best(free))
    return True


def _free_parameters(model: WeightSpaceGP) -> list[Tensor]:
    """The parameters that the statistics of a model do not contain."""
    contained = {id(p) for p in model.covar_module.feature_parameters()}
    return [p for p in model.parameters() if id(p) not in contained]
