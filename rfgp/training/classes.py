"""Dirichlet classes, of which rows are predicted from other rows at the price of one regression."""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, ZeroMean
from torch import Tensor
from torch.autograd.function import once_differentiable

from .._support.constrained import constrained, set_within
from ..likelihoods.mean_softmax import normal_points
from ..linalg import cholesky
from ..linalg.class_rows import ClassRows
from ..linalg.last_rows import is_compiled
from .composite_likelihood import Observations
from .objectives import Objective
from .parts import Parts
from .stationary import covariance, stationary_parts
from .timing import NEVER, Deadline

_SMALLEST_CONCENTRATION, _LARGEST_CONCENTRATION = 1e-6, 0.3
_NUM_POINTS = 16


class Classes(Observations):
    r"""Dirichlet classification, judged by the log of the mean softmax, with :math:`\alpha_\epsilon` as a parameter.

    The prior mean of a class is the mean of its transformed labels, weighted by their precision.
    """

    num_factors = 3

    def __init__(self, objective: Objective, kernel: Kernel, labels: Tensor) -> None:
        super().__init__(objective, kernel)
        self.labels, likelihood = labels, self.model.likelihood
        self.concentration = Concentration(likelihood.alpha_epsilon)
        self.num_classes = int(likelihood.num_classes)
        self.frequencies = torch.bincount(labels, minlength=self.num_classes).double() / len(labels)
        self.normals = normal_points(self.num_classes)[:_NUM_POINTS]

    @property
    def parts(self) -> Parts:
        return {"covar_module.": self.kernel, "likelihood.": self.concentration}

    def log_densities(self, groups: Tensor, targets: int) -> Tensor:
        if targets != 1:
            raise ValueError(
                f"expected one target for each group of rows with classes, got {targets}; pass targets=1, or take the "
                "regressions of the classes in their place"
            )
        mean, variance = self.latent_moments(groups)
        values = mean + variance.clamp_min(0.0).sqrt() * self.normals.unsqueeze(1)
        wanted = self.labels[groups[:, -1:]].expand(len(values), -1, -1)
        chosen = values.gather(-1, wanted).squeeze(-1) - torch.logsumexp(values, -1)
        return torch.logsumexp(chosen, 0) - math.log(len(values))

    def stationary_rows(self, rows: Tensor) -> ClassRows | None:
        targets = transformed(self.concentration.alpha_epsilon)
        found = class_rows(self.kernel, self.x[rows], self.labels[rows], targets, self.means(targets))
        return None if found is None else found._replace(normals=self.normals)

    def latent_moments(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (B, C) of the latent functions at the last rows."""
        labels = torch.nn.functional.one_hot(self.labels[groups[:, :-1]], self.num_classes).double()
        targets = transformed(self.concentration.alpha_epsilon)
        return class_moments(covariance(self.kernel, self.x[groups]), labels, targets, self.means(targets))

    def means(self, targets: Tensor) -> Tensor:
        """The prior means of the classes, (C,)."""
        if isinstance(self.model.mean_module, ZeroMean):
            return torch.zeros_like(self.frequencies)
        inside, outside, inside_noise, outside_noise = targets.unbind()
        within, without = self.frequencies / inside_noise, (1.0 - self.frequencies) / outside_noise
        means = (within * inside + without * outside) / (within + without)
        return means if self.model.mean_module.batch_shape else means.mean().expand_as(means)

    @torch.no_grad()
    def write(self, deadline: Deadline = NEVER) -> None:
        self.model.likelihood.set_alpha_epsilon(float(self.concentration.alpha_epsilon))
        mean = self.model.mean_module
        if isinstance(mean, ConstantMean):
            means = self.means(transformed(self.concentration.alpha_epsilon))
            mean.initialize(constant=(means if mean.batch_shape else means[0]).to(mean.raw_constant))


class Concentration(gpytorch.Module):
    """The concentration of labels outside of their class, as a parameter."""

    alpha_epsilon = constrained("alpha_epsilon")

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_parameter("raw_alpha_epsilon", torch.nn.Parameter(torch.zeros((), dtype=torch.float64)))
        constraint = Interval(_SMALLEST_CONCENTRATION, _LARGEST_CONCENTRATION)
        self.register_constraint("raw_alpha_epsilon", constraint)
        set_within(self, "alpha_epsilon", torch.tensor(value))


def class_rows(kernel: Kernel, x: Tensor, labels: Tensor, targets: Tensor, means: Tensor) -> ClassRows | None:
    """Rows (N, d) with labels (N,) for the compiled library; None without it, or where the kernel is not stationary.

    :param targets: those of :func:`transformed`.
    :param means: the prior means of the classes, (C,).
    """
    parts = stationary_parts(kernel, x) if is_compiled(x) else None
    if parts is None:
        return None
    nothing = targets.new_empty(0, len(means))
    return ClassRows(parts.points, labels, parts.scale, parts.alpha, targets, means, parts.profile, nothing)


def class_moments(matrix: Tensor, inside: Tensor, targets: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    r"""Means and variances (B, C) of the latent functions of classes at the last of n inputs, given the labels of m.

    With :math:`A = K + s_0 I`, :math:`z = A^{-1} k` and labels c, for all classes at once

    .. math:: D_c^{-1} k = z + A^{-1} (1_c \circ M^{-1} z), \qquad
        M = \frac{1}{s_0 - s_1} I - A^{-1} \circ [c_i = c_j]

    :param matrix: prior covariances, (B, n, n) with n = m + 1.
    :param inside: which label is which class, (B, m, C), ones and zeros.
    :param targets: the transformed labels inside and outside of a class, and the noise variances there, (4,).
    :param means: the prior means of the classes, (C,).

    Source: errata, identity 10 of the last section.
    """
    mean, variance = _ClassMoments.apply(matrix, inside, targets, means)
    return mean, variance


class _ClassMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, inside: Tensor, targets: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
        t1, t0, s1, s0 = targets.tolist()
        inner, cross = matrix[..., :-1, :-1].clone(), matrix[..., :-1, -1:]
        inner.diagonal(dim1=-2, dim2=-1).add_(s0)
        inverse = torch.cholesky_inverse(cholesky(inner))
        same = (inside @ inside.mT).mul_(inverse).neg_()
        same.diagonal(dim1=-2, dim2=-1).add_(1.0 / (s0 - s1))
        factor = cholesky(same)
        z = inverse @ cross
        weights = torch.baddbmm(z, inverse, inside * torch.cholesky_solve(z, factor))
        labels = (t0 - means) + (t1 - t0) * inside
        ctx.save_for_backward(inverse, factor, cross, inside, weights, labels)
        return means + (weights * labels).sum(-2), matrix[..., -1, -1:] - (weights * cross).sum(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_mean: Tensor, of_variance: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        inverse, factor, cross, inside, weights, labels = ctx.saved_tensors
        solved = inverse @ labels
        own = torch.cholesky_solve((solved * inside).sum(-1, keepdim=True), factor)
        solved = torch.baddbmm(solved, inverse, inside * own)
        g, h = of_mean.unsqueeze(-2), of_variance.unsqueeze(-2)
        by_weight = h * weights - g * solved
        inner = weights @ by_weight.mT
        size = cross.shape[-2]
        slope = cross.new_empty(len(cross), size + 1, size + 1)
        slope[..., :-1, :-1] = 0.5 * (inner + inner.mT)
        column = (0.5 * g * solved - h * weights).sum(-1)
        slope[..., :-1, -1], slope[..., -1, :-1], slope[..., -1, -1] = column, column, of_variance.sum(-1)
        noise, value = weights * by_weight, g * weights
        of_targets = [value, noise]
        totals = torch.stack([(part * which).sum() for part in of_targets for which in (inside, 1.0 - inside)])
        return slope, None, totals, (of_mean - value.sum(-2)).sum(0)


def transformed(alpha_epsilon: Tensor) -> Tensor:
    """The values (4,) of ``dirichlet_targets``, differentiable in alpha_epsilon."""
    inside_noise, outside_noise = (1.0 / (1.0 + alpha_epsilon)).log1p(), (1.0 / alpha_epsilon).log1p()
    inside, outside = alpha_epsilon.log1p() - 0.5 * inside_noise, alpha_epsilon.log() - 0.5 * outside_noise
    return torch.stack([inside, outside, inside_noise, outside_noise])
