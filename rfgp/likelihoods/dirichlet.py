"""Classification as regression on transformed labels, with class probabilities and a choice of alpha_epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from torch import Generator, Tensor
from torch.distributions import Distribution

from .._support import checks
from .._support.gpytorch_names import class_regressions
from .normal import unclamped

ALPHA_GRID = (1e-4, 1e-3, 1e-2, 1e-1)

_BYTES = 40.0  # of a label and a class, while targets and noise are computed


class DirichletTargets(NamedTuple):
    """Transformed label and noise variance inside a class and outside of it; floats."""

    inside: float
    outside: float
    inside_noise: float
    outside_noise: float


class DirichletClassificationLikelihood(gpytorch.likelihoods.DirichletClassificationLikelihood):
    r"""GPyTorch's Dirichlet likelihood, with class probabilities and a choice of :math:`\alpha_\epsilon`.

    .. math:: s = \log(1/\alpha + 1), \qquad t = \log \alpha - s/2, \qquad
        \alpha = \alpha_\epsilon + [\text{label is the class}]

    Every class is a regression on targets t with noise s.

    :param targets: the integer labels (N,) of the training data; None where a WeightSpaceGP is given them in batches.
    :param alpha_epsilon: the concentration outside the class, positive.
    :param learn_additional_noise: whether to learn a further noise variance per class.
    :param num_classes: the number of classes C; default: the largest label plus one.
    :param dtype: the dtype of the transformed targets; default: PyTorch's default dtype.
    :raises ValueError: for labels that are not integers from 0 to C - 1, a concentration that is not positive, or too
        many classes for the memory.

    Source: T B.3.4 (Milios et al., 2018).

    >>> likelihood = DirichletClassificationLikelihood(torch.tensor([0, 1, 1]))
    >>> likelihood.num_classes, likelihood.transformed_targets.shape
    (2, torch.Size([2, 3]))
    """

    def __init__(
        self,
        targets: Tensor | None = None,
        alpha_epsilon: float = 0.01,
        learn_additional_noise: bool = False,
        num_classes: int | None = None,
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        if targets is None:
            if num_classes is None:
                raise ValueError("expected targets or num_classes, got neither; pass the training labels")
            targets = torch.zeros(0, dtype=torch.long)
        if checks.integers(targets, "targets", "class labels").dim() != 1:
            raise ValueError(f"expected targets of shape (N,), got {tuple(targets.shape)}; flatten them")
        if num_classes is None:
            known = checks.labels(targets, targets.unsqueeze(-1), torch.iinfo(torch.int64).max, "targets")
            num_classes = int(known.max()) + 1 if known.numel() else 0
        num_classes = checks.positive_integer("num_classes", num_classes)
        checks.labels(targets, targets.unsqueeze(-1), num_classes, "targets")
        what = f"the targets of {len(targets)} labels and {num_classes} classes"
        checks.fits_in_memory(_BYTES * num_classes * (len(targets) + 1), what, "renumber the labels from 0")
        self._fixed_num_classes = num_classes
        super().__init__(
            targets,
            alpha_epsilon=_positive(alpha_epsilon),
            learn_additional_noise=checks.flag("learn_additional_noise", learn_additional_noise),
            dtype=torch.get_default_dtype() if dtype is None else checks.floating_dtype("dtype", dtype),
            **kwargs,
        )

    transformed_targets: Tensor

    def _prepare_targets(
        self, targets: Tensor, alpha_epsilon: float = 0.01, dtype: torch.dtype = torch.float
    ) -> tuple[Tensor, Tensor, int]:
        inside = torch.nn.functional.one_hot(targets.long(), self._fixed_num_classes).bool()
        values = dirichlet_targets(alpha_epsilon)
        exact = inside.to(torch.float64)
        noise = values.outside_noise + (values.inside_noise - values.outside_noise) * exact
        transformed = values.outside + (values.inside - values.outside) * exact
        return noise.mT.to(dtype), transformed.to(dtype), self._fixed_num_classes

    def set_alpha_epsilon(self, alpha_epsilon: float) -> None:
        r"""Change :math:`\alpha_\epsilon`, a positive number, and with it targets and noise."""
        alpha, dtype = _positive(alpha_epsilon), self.transformed_targets.dtype
        noise, transformed = class_regressions(self, self.targets, alpha, dtype)
        self.alpha_epsilon, self.noise_covar.noise, self.transformed_targets = alpha, noise, transformed.mT

    def class_probabilities(
        self, latent: MultivariateNormal, num_samples: int = 512, generator: Generator | None = None
    ) -> Tensor:
        r"""Class probabilities :math:`E\, \mathrm{softmax}(f)`, (N, C), under the marginals of the latent functions.

        :param latent: the posterior of the latent functions, batch shape (C,), event shape (N,).
        :param num_samples: the number of draws of the Monte Carlo average.
        :param generator: a CPU generator for the draws; default: PyTorch's, on the device of ``latent``.
        """
        draws, generator = checks.positive_integer("num_samples", num_samples), checks.generator(generator)
        checks.instance(
            "latent", latent, Distribution, "the posterior of the latent functions", "pass model.posterior(x)"
        )
        if latent.mean.dim() != 2 or len(latent.mean) != self.num_classes:
            raise ValueError(
                f"expected latent functions of shape ({self.num_classes}, N), one per class, got "
                f"{tuple(latent.mean.shape)}; pass the posterior of a model with this likelihood"
            )
        mean, std = latent.mean.mT, unclamped(latent).stddev.mT
        total = torch.zeros_like(mean)
        device = mean.device if generator is None else generator.device
        for _ in range(draws):
            draw = torch.randn(mean.shape, generator=generator, dtype=torch.float32, device=device).to(mean)
            total += torch.softmax(mean + std * draw, dim=-1)
        return total / draws

    def select_alpha_epsilon(
        self,
        model: Any,
        x: Tensor,
        labels: Tensor,
        grid: Sequence[float] = ALPHA_GRID,
        num_samples: int = 512,
        seed: int = 0,
    ) -> dict[float, float]:
        r"""Set :math:`\alpha_\epsilon` to the value of a grid with the smallest validation MNLL.

        :param model: a fitted :class:`rfgp.models.WeightSpaceGP` with this likelihood.
        :param x: validation inputs, (N, d), with labels (N,).
        :param num_samples: the number of draws behind the class probabilities.
        :param seed: the seed of these draws, the same for every value.
        :returns: the mean negative log likelihood for each value of the grid.
        """
        if not isinstance(grid, list | tuple) or not grid:
            raise ValueError(f"expected values of alpha_epsilon for grid, got {grid!r}; such as (0.01, 0.1)")
        seed = checks.seed(seed)
        values = [_positive(alpha) for alpha in grid]
        checks.finite(checks.inputs(x))
        if getattr(model, "likelihood", None) is not self:
            raise ValueError("expected a model with this very likelihood, got another; call model.likelihood")
        known = checks.labels(labels, x, self.num_classes, "labels")
        scores: dict[float, float] = {}
        best = self.alpha_epsilon
        try:
            with torch.no_grad():
                for alpha in values:
                    self.set_alpha_epsilon(alpha)
                    generator = torch.Generator().manual_seed(seed)
                    probabilities = self.class_probabilities(model.posterior(x), num_samples, generator)
                    chosen = probabilities.gather(-1, known.unsqueeze(-1))
                    scores[float(alpha)] = float(-chosen.clamp_min(torch.finfo(chosen.dtype).tiny).log().mean())
            best = min(scores, key=scores.__getitem__)
        finally:
            self.set_alpha_epsilon(best)
        return scores


def dirichlet_targets(alpha_epsilon: float) -> DirichletTargets:
    """The two transformed labels and the two noise variances for a value of alpha_epsilon."""
    inside_noise = math.log1p(1.0 / (1.0 + alpha_epsilon))
    outside_noise = math.log1p(1.0 / alpha_epsilon)
    return DirichletTargets(
        math.log1p(alpha_epsilon) - 0.5 * inside_noise,
        math.log(alpha_epsilon) - 0.5 * outside_noise,
        inside_noise,
        outside_noise,
    )


def _positive(alpha_epsilon: float) -> float:
    return checks.positive("alpha_epsilon", alpha_epsilon, "values around 0.01 are usual")
