"""How rows of a model are predicted from other rows with the exact kernel: one output, and classes."""

from __future__ import annotations

import abc
import math
from typing import Any

import gpytorch
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, ZeroMean
from torch import Tensor

from .._support.constrained import set_within
from ..likelihoods.mean_softmax import normal_points
from .exact_regression import ExactRegression
from .neighbor_scores import class_moments, last_errors, transformed
from .stationary import covariance

_SMALLEST_CONCENTRATION, _LARGEST_CONCENTRATION = 1e-6, 0.3
_NUM_POINTS = 16


class Conditional(abc.ABC):
    """Log densities of rows given others, as a function of the parameters of ``parts``."""

    parts: dict[str, gpytorch.Module]
    kernel: Kernel
    """The exact kernel of inputs."""
    x: Tensor
    num_factors: int = 1
    """Covariances a row whose factors are held at the same time."""

    @abc.abstractmethod
    def log_densities(self, groups: Tensor) -> Tensor:
        """Those of the last row of each group (B, n) given the others, (B,); differentiable."""

    def profile(self, groups: Tensor) -> None:  # noqa: B027
        """Set what has a closed form given the kernel, from groups of rows (B, n)."""

    def write(self) -> None:  # noqa: B027
        """Give the model what was learned, where its own parameters are others."""


class OneOutput(Conditional):
    """A regression of one output with noise that is learned or known."""

    def __init__(self, regression: ExactRegression) -> None:
        self.regression, self.kernel, self.x = regression, regression.kernel, regression.x
        self.parts = {"": regression.model}

    def log_densities(self, groups: Tensor) -> Tensor:
        x = self.x[groups]
        matrix = covariance(self.kernel, x)
        noise = self.regression.noise_variances(groups).expand(groups.shape)
        residual = self.regression.targets[groups] - self.regression.model.mean_module(x).double()
        error, variance = last_errors(matrix + torch.diag_embed(noise), residual)
        return -0.5 * (error.square() / variance + variance.log() + math.log(2.0 * math.pi))


class Concentration(gpytorch.Module):
    """The concentration of labels outside of their class, as a parameter."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_parameter("raw_alpha_epsilon", torch.nn.Parameter(torch.zeros((), dtype=torch.float64)))
        constraint = Interval(_SMALLEST_CONCENTRATION, _LARGEST_CONCENTRATION)
        self.register_constraint("raw_alpha_epsilon", constraint)
        set_within(self, "alpha_epsilon", torch.tensor(value))

    @property
    def alpha_epsilon(self) -> Tensor:
        """The value."""
        value: Tensor = self.raw_alpha_epsilon_constraint.transform(self.raw_alpha_epsilon)
        return value

    @alpha_epsilon.setter
    def alpha_epsilon(self, value: Tensor) -> None:
        self.initialize(raw_alpha_epsilon=self.raw_alpha_epsilon_constraint.inverse_transform(value))


class Classes(Conditional):
    r"""Dirichlet classification, judged by the log of the mean softmax, with :math:`\alpha_\epsilon` as a parameter.

    The prior mean of a class is the mean of its transformed labels, weighted by their precision.
    """

    num_factors = 3

    def __init__(self, model: Any, kernel: Kernel, x: Tensor, labels: Tensor) -> None:
        self.model, self.kernel, self.x, self.labels = model, kernel, x, labels
        self.concentration = Concentration(model.likelihood.alpha_epsilon)
        self.parts = {"covar_module.": kernel, "likelihood.": self.concentration}
        self.num_classes = int(model.likelihood.num_classes)
        self.frequencies = torch.bincount(labels, minlength=self.num_classes).double() / len(labels)
        self.points = normal_points(self.num_classes)[:_NUM_POINTS].unsqueeze(1)

    def log_densities(self, groups: Tensor) -> Tensor:
        mean, variance = self.moments(groups)
        values = mean + variance.clamp_min(0.0).sqrt() * self.points
        wanted = self.labels[groups[:, -1:]].expand(len(values), -1, -1)
        chosen = values.gather(-1, wanted).squeeze(-1) - torch.logsumexp(values, -1)
        return torch.logsumexp(chosen, 0) - math.log(len(values))

    def moments(self, groups: Tensor) -> tuple[Tensor, Tensor]:
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
    def write(self) -> None:
        self.model.likelihood.set_alpha_epsilon(float(self.concentration.alpha_epsilon))
        mean = self.model.mean_module
        if isinstance(mean, ConstantMean):
            means = self.means(transformed(self.concentration.alpha_epsilon))
            mean.initialize(constant=(means if mean.batch_shape else means[0]).to(mean.raw_constant))
