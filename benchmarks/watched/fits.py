"""Fits, evidence, leaving out and predictions beside the Gram product of a fit, in both precisions."""

from __future__ import annotations

import gpytorch
import torch
from torch import Tensor

import rfgp
from rfgp.linalg import add_gram_, row_chunks

from .exact import ExactModel, training_step
from .ratio import ratio

ROWS, DIMS, WIDTH = 30_000, 8, 512


def model_of(num_rows: int, dtype: torch.dtype) -> tuple[rfgp.WeightSpaceGP, Tensor, Tensor]:
    """A model with features, and rows."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, DIMS, generator=generator, dtype=dtype)
    y = torch.sin(x.sum(-1)) + 0.3 * torch.randn(num_rows, generator=generator, dtype=dtype)
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=DIMS)).to(dtype)
    exact.base_kernel.lengthscale = 3.0
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(dtype)
    likelihood.noise = 0.1
    return rfgp.WeightSpaceGP(rfgp.approximate(exact, WIDTH, seed=0, input_dim=DIMS), likelihood), x, y


class Fits:
    """Times the Gram product."""

    params, param_names = ("float32", "float64"), ("dtype",)
    unit, timeout = "ratio", 300

    def setup(self, dtype: str) -> None:
        """A model and its rows, and a chunk of features."""
        self.dtype = getattr(torch, dtype)
        self.model, self.x, self.y = model_of(ROWS, self.dtype)
        self.chunks = row_chunks(ROWS, WIDTH, self.x.element_size())
        self.features = self.model.covar_module.scalar_features(self.x[self.chunks[0]]).detach()
        self.sums = tuple(torch.zeros(WIDTH, columns, dtype=torch.float64) for columns in (WIDTH, 1))
        self.fit()

    def products(self) -> None:
        """The Gram product of all rows, without features and factors."""
        for rows in self.chunks:
            size = min(rows.stop, ROWS) - rows.start
            add_gram_(*self.sums, self.features[:size], self.y[:size, None], None, self.dtype)

    @torch.no_grad()
    def fit(self) -> None:
        """Sums and the posterior of the weights."""
        self.model.condition(self.x, self.y).weight_posterior()

    def evidence_and_gradient(self) -> None:
        """An evaluation of training."""
        self.model.condition(self.x, self.y).log_marginal_likelihood().backward()

    def fit_and_leave_one_out(self) -> None:
        """A fit, and the densities of all rows given the others."""
        self.fit()
        self.model.leave_one_out(self.x, self.y)

    @torch.no_grad()
    def mean_and_variance(self) -> tuple[Tensor, Tensor]:
        """Predictions of all rows."""
        posterior = self.model.posterior(self.x)
        return posterior.mean, posterior.variance

    def track_fit(self, dtype: str) -> float:
        return ratio(self.fit, self.products)

    def track_evidence_and_gradient(self, dtype: str) -> float:
        return ratio(self.evidence_and_gradient, self.products)

    def track_mean_and_variance(self, dtype: str) -> float:
        return ratio(self.mean_and_variance, self.products)

    def track_leave_one_out_to_fit(self, dtype: str) -> float:
        return ratio(self.fit_and_leave_one_out, self.fit)


def track_pseudo_likelihood_to_gpytorch() -> float:
    """The pseudo-likelihood of leaving out one row with its gradient, times GPyTorch's, whose matrix is dense."""
    model, x, y = model_of(2_000, torch.float64)
    exact = ExactModel(x, y, model.covar_module)
    kinds = rfgp.training.LeaveOneOutPseudoLikelihood, gpytorch.mlls.LeaveOneOutPseudoLikelihood
    return ratio(*(training_step(exact, kind) for kind in kinds))


track_pseudo_likelihood_to_gpytorch.unit = "ratio"
