"""The maximum of an evidence over noise variance, output scale and mean, from the spectrum of its Gram matrix."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np
import scipy
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean
from torch import Tensor

from .._support.constrained import set_within
from ..inference.sums.mean_basis import coefficients, num_fixed
from .weight_space.model import WeightSpaceGP

_STEPS = np.linspace(-3.0, 3.0, 25)
"""Where the maximum is looked for: logarithms of factors of the parameter that is not profiled out."""

_LARGEST_CONDITION = 1e10
"""How large a condition number levels may lead to, so that sums with rounding errors have Cholesky factors."""


class Levels(NamedTuple):
    """Noise variance, output scale, and the coefficients of the mean, (k,)."""

    noise: float
    scale: float
    mean: np.ndarray


class ProfiledEvidence:
    r"""Minus twice the log evidence of one output as a function of :math:`\gamma = a / \nu` alone, but for a constant.

    .. math:: n \log \nu + \sum_j \log(1 + \gamma \lambda_j) + \frac{q(\gamma)}{\nu}, \qquad
        \nu = s + a r = \frac{q(\gamma)}{n}, \qquad
        q(\gamma) = \min_b \rho^\top \Big(S - \sum_j \frac{\gamma z_j z_j^\top}{1 + \gamma \lambda_j}\Big) \rho,
        \qquad \rho = (1, -b)

    for noise variance s, output scale a and the residual variance a r of the features.

    :param eigenvalues: :math:`\lambda`, (D,), of the Gram matrix of features of unit scale.
    :param crosses: z, products of its eigenvectors with the target and the basis of the mean, (D, 1 + k).
    :param squares: S, products of these columns, (1 + k, 1 + k).
    """

    def __init__(self, eigenvalues: Tensor, crosses: Tensor, squares: Tensor, count: float, missing: float) -> None:
        parts = (part.numpy(force=True) for part in (eigenvalues, crosses, squares))
        self.eigenvalues, self.crosses, self.squares = parts
        self.count, self.missing = count, missing

    def best(self, free: FreeLevels) -> Levels:
        """The levels of the largest evidence near those of a model, of which some may be fixed."""
        if not free.noise and free.scale is None:
            return self._at(0.0, free)[1]
        values = [self._at(step, free)[0] for step in _STEPS]
        place = int(np.argmin(values))
        ends = _STEPS[max(place - 1, 0)], _STEPS[min(place + 1, len(_STEPS) - 1)]
        found = scipy.optimize.minimize_scalar(
            lambda step: self._at(step, free)[0], bounds=ends, method="bounded", options={"xatol": 1e-5}
        )
        return self._at(found.x, free)[1]

    def _at(self, step: float, free: FreeLevels) -> tuple[float, Levels]:
        """The value, and the levels, where what is not profiled out is multiplied by the exponential of a step."""
        (noise, scale, mean), has_both = free.levels, free.noise and free.scale is not None
        factor = math.exp(step)
        if has_both:
            factor = min(factor, 0.999 * (1.0 + noise / (scale * self.missing)) if self.missing > 0.0 else math.inf)
            ratio = factor * scale / (noise + scale * self.missing)
            ratio = min(ratio, _LARGEST_CONDITION / max(float(self.eigenvalues[-1]), 1e-300))
        else:
            noise = max(free.least_noise, noise * factor) if free.noise else noise
            scale = scale if free.scale is None else scale * factor
            ratio = scale / (noise + scale * self.missing)
        shrinkage = ratio / (1.0 + ratio * self.eigenvalues)
        matrix = self.squares - (self.crosses * shrinkage[:, None]).T @ self.crosses
        if free.mean:
            end, fixed = 1 + free.mean, mean[free.mean :]
            target = matrix[1:end, 0] - matrix[1:end, end:] @ fixed
            mean = np.concatenate([np.linalg.lstsq(matrix[1:end, 1:end], target)[0], fixed])
        residual = np.concatenate([[1.0], -mean])
        quadratic = max(residual @ matrix @ residual, 1e-300)
        total = noise + scale * self.missing
        if has_both:
            total = max(quadratic / self.count, free.least_noise / (1.0 - ratio * self.missing))
            scale, noise = ratio * total, total * (1.0 - ratio * self.missing)
        value = quadratic / total + np.log1p(ratio * self.eigenvalues).sum() + self.count * math.log(total)
        return value, Levels(noise, scale, mean)


class FreeLevels(NamedTuple):
    """The levels of a model, and what of them is free to be learned."""

    levels: Levels
    noise: bool
    scale: Any
    """The kernel with the output scale; None where that is fixed."""
    mean: int
    """How many of the first coefficients of the mean are free."""
    least_noise: float

    @classmethod
    def of(cls, model: WeightSpaceGP) -> Self | None:
        """Those of a model; None where nothing is free, or the noise is not one variance."""
        likelihood, kernel, mean = model.likelihood, model.covar_module, model.mean_module
        if not isinstance(likelihood, GaussianLikelihood):
            return None
        contained = {id(p) for p in kernel.feature_parameters()}
        scales = [k for k in kernel.modules() if isinstance(getattr(k, "raw_outputscale", None), torch.nn.Parameter)]
        free = [k for k in scales if k.raw_outputscale.requires_grad and id(k.raw_outputscale) not in contained]
        has_noise, has_mean = (_is_free(part) for part in (likelihood, mean))
        if not (has_noise or free or has_mean):
            return None
        with torch.no_grad():
            weights = coefficients(mean, 1, torch.device("cpu")).squeeze(-1).numpy(force=True)
            levels = Levels(float(likelihood.noise), float(kernel.output_factor()) ** 2, weights)
        bound = 1.01 * float(likelihood.noise_covar.raw_noise_constraint.lower_bound)
        count = len(weights) - num_fixed(mean) if has_mean else 0
        return cls(levels, has_noise, free[0] if free else None, count, max(bound, 1e-12))

    def place(self, model: WeightSpaceGP, best: Levels) -> None:
        """Give a model the levels that are best."""
        if self.noise:
            set_within(model.likelihood.noise_covar, "noise", torch.tensor(best.noise))
        if self.scale is not None:
            set_within(self.scale, "outputscale", self.scale.outputscale.detach() * (best.scale / self.levels.scale))
        mean, values = model.mean_module, torch.as_tensor(best.mean)
        if self.mean and isinstance(mean, ConstantMean):
            mean.initialize(constant=values[0].to(mean.raw_constant))
        if self.mean and isinstance(mean, LinearMean):
            count = mean.weights.numel()
            mean.initialize(weights=values[:count].reshape(mean.weights.shape).to(mean.weights))
            if mean.bias is not None:
                mean.initialize(bias=values[count:].reshape(mean.bias.shape).to(mean.bias))


def _is_free(part: torch.nn.Module) -> bool:
    """Whether a module has parameters, and all are free."""
    free = [p.requires_grad for p in part.parameters()]
    return bool(free) and all(free)
