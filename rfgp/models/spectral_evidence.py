"""The evidence of a conditioned model as a function of noise variance, output scale and mean alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import scipy
import torch
from torch import Tensor

from ..inference import noise_model
from ..inference.noise.base import residual_columns
from ..inference.noise.independent import IndependentNoise
from ..inference.sums.mean_basis import coefficients
from .weight_space import WeightSpaceGP

_AGREEMENT = 1e-6
"""How far, per row, the evidence by the spectrum may be from the model's own."""
_RADIUS = 3.0
"""How far parameters may go in one go, in their raw coordinates."""


class SpectralEvidence:
    r"""The evidence of a model of one output as a function of noise variance s, output scale a and mean, at O(D^2).

    .. math:: \log p(y) = -\tfrac12 \Big(\frac1s \Big[r^\top r - \sum_j \frac{a z_j^2}{s + a \lambda_j}\Big]
        + \sum_j \log\Big(1 + \frac{a \lambda_j}{s}\Big) + N \log 2 \pi s\Big), \qquad z = Q^\top \Phi^\top r,
        \qquad \Phi^\top \Phi = Q\, \mathrm{diag}(\lambda)\, Q^\top
    """

    def __init__(self, model: WeightSpaceGP) -> None:
        self.model, self.statistics = model, model.regression().of_features(model.statistics)
        values, self.vectors = torch.linalg.eigh(self.statistics.gram[0])
        self.eigenvalues = values.clamp_min(0.0)

    def value(self) -> Tensor:
        """The log evidence at the present parameters, differentiable in those that are free."""
        mean = coefficients(self.model.mean_module, 1, self.eigenvalues.device)
        crosses, squares = self.statistics.targets.of_combination(residual_columns(mean))
        projected = self.vectors.mT @ crosses[0].reshape(-1)
        noise = self.model.noise.covariance().reshape(())
        scale = self.model.covar_module.output_factor().double().square().reshape(())
        explained = (scale * projected.square() / (noise + scale * self.eigenvalues)).sum()
        quadratic = (squares[0].reshape(()) - explained) / noise
        weight = self.statistics.num_rows
        log_det = torch.log1p(scale * self.eigenvalues / noise).sum() + weight * noise.log()
        return -0.5 * (quadratic + log_det + weight * math.log(2.0 * math.pi))


@torch.no_grad()
def spectral_evidence(model: WeightSpaceGP) -> SpectralEvidence | None:
    """The spectral evidence of a conditioned model; None where its evidence has another form, or nothing is free."""
    kernel = model.covar_module
    if kernel.has_output_factor or kernel.is_complex or not any(p.requires_grad for p in _free_parameters(model)):
        return None
    noise = noise_model(model.likelihood)
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


def learn_from_statistics(model: WeightSpaceGP, max_evaluations: int = 50) -> bool:
    """Maximize the evidence over noise variance, output scale and mean of a conditioned model, without its rows."""
    evidence = spectral_evidence(model)
    if evidence is None:
        return False
    learned = [p for p in _free_parameters(model) if p.requires_grad]
    sizes = [p.numel() for p in learned]

    def place(values: np.ndarray) -> None:
        with torch.no_grad():
            for parameter, part in zip(learned, torch.as_tensor(values).split(sizes), strict=True):
                parameter.copy_(part.reshape(parameter.shape))

    def evaluate(values: np.ndarray) -> tuple[float, np.ndarray]:
        place(values)
        with torch.enable_grad():
            value = -evidence.value()
            gradients = torch.autograd.grad(value, learned, allow_unused=True)
        parts = [torch.zeros_like(p) if g is None else g for p, g in zip(learned, gradients, strict=True)]
        return float(value), torch.cat([part.reshape(-1) for part in parts]).double().cpu().numpy()

    start = torch.cat([p.detach().reshape(-1) for p in learned]).double().cpu().numpy()
    box = scipy.optimize.Bounds(start - _RADIUS, start + _RADIUS)
    options = {"maxfun": max_evaluations}
    result = scipy.optimize.minimize(evaluate, start, jac=True, method="L-BFGS-B", bounds=box, options=options)
    place(result.x if np.isfinite(result.fun) else start)
    return True


def _free_parameters(model: WeightSpaceGP) -> list[Tensor]:
    """The parameters that the statistics of a model do not contain."""
    contained = {id(p) for p in model.covar_module.feature_parameters()}
    return [p for p in model.parameters() if id(p) not in contained]
