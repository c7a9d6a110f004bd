"""Processor seconds of the steps that every user takes."""

from __future__ import annotations

import time

import gpytorch
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from torch import Tensor

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood

from .exact import ExactModel, training_step

DIMS, ROWS, NEW = 4, 20_000, 1_000
WIDTHS = {1: 512, 3: 256}


def inputs(count: int, seed: int = 0) -> Tensor:
    """Normal inputs."""
    return torch.randn(count, DIMS, generator=torch.Generator().manual_seed(seed))


def model_of(width: int, likelihood: gpytorch.likelihoods.Likelihood, num_outputs: int = 1) -> rfgp.WeightSpaceGP:
    """A model with Fourier features of a Gaussian kernel."""
    exact = ScaleKernel(RBFKernel(ard_num_dims=DIMS))
    if num_outputs > 1:
        exact = MultitaskKernel(RBFKernel(ard_num_dims=DIMS), num_outputs, rank=1)
    return rfgp.WeightSpaceGP(rfgp.approximate(exact, width, input_dim=DIMS, seed=0), likelihood)


@torch.no_grad()
def predicted(model: rfgp.WeightSpaceGP, x: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances."""
    posterior = model.posterior(x)
    return posterior.mean, posterior.variance


class Regression:
    """One output or three: 60 rows with 32 features, and 20,000 rows with 512, or 256 for three outputs."""

    params, param_names = ((60, ROWS), (1, 3)), ("rows", "outputs")
    timer = time.process_time

    def setup(self, rows: int, outputs: int) -> None:
        """A model that has seen its rows."""
        torch.set_default_dtype(torch.float64)
        self.x, self.new = inputs(rows), inputs(1 if rows == 60 else NEW, 1)
        y = torch.sin(self.x).sum(-1)
        likelihood = GaussianLikelihood() if outputs == 1 else MultitaskGaussianLikelihood(outputs)
        self.y = y if outputs == 1 else torch.stack([y, y.square(), y.cos()], -1)
        self.model = model_of(32 if rows == 60 else WIDTHS[outputs], likelihood, outputs)
        self.time_fit()

    @torch.no_grad()
    def time_fit(self, *sizes: int) -> None:
        self.model.condition(self.x, self.y)

    def time_posterior(self, *sizes: int) -> None:
        predicted(self.model, self.new)

    def time_evidence_and_gradient(self, *sizes: int) -> None:
        value = self.model.condition(self.x[:5000], self.y[:5000]).log_marginal_likelihood()
        torch.autograd.grad(value, list(self.model.parameters()), allow_unused=True)


class FitAndPosterior:
    """Three Dirichlet classes of 20,000 rows, and landmarks with blocks of 4,000 rows."""

    params, param_names = ("classes", "blocks"), ("model",)
    timer = time.process_time

    def setup(self, name: str) -> None:
        """A model, and its rows."""
        torch.set_default_dtype(torch.float64)
        x, self.new = inputs(ROWS), inputs(NEW, 1)
        y = torch.sin(x).sum(-1)
        if name == "classes":
            self.rows = x, (y > -1).long() + (y > 1).long()
            self.model = model_of(256, DirichletClassificationLikelihood(num_classes=3))
        else:
            self.rows = x[:4000], y[:4000]
            exact = ScaleKernel(RBFKernel(ard_num_dims=DIMS))
            kernel = rfgp.approximate(exact, 128, method="landmarks", train_inputs=x, seed=0)
            self.model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood(), block_size=64)

    @torch.no_grad()
    def time_fit_and_posterior(self, name: str) -> None:
        predicted(self.model.condition(*self.rows), self.new)


class ExactGP:
    """A kernel with features in GPyTorch's own model of 2,000 rows."""

    timer = time.process_time

    def setup(self) -> None:
        """The model and its evidence."""
        torch.set_default_dtype(torch.float64)
        x = inputs(2000)
        self.step = training_step(ExactModel(x, torch.sin(x).sum(-1), model_of(256, GaussianLikelihood()).covar_module))

    def time_evidence_and_gradient(self) -> None:
        self.step()
