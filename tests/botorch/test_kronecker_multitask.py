"""BoTorch's KroneckerMultiTaskGP with an approximated data kernel, against a plain kernel on the same features."""

from __future__ import annotations

import pytest
import torch
from botorch.models import KroneckerMultiTaskGP
from gpytorch.kernels import Kernel, RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

import rfgp

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

ROWS = 20


class SameFeatures(Kernel):
    """A plain GPyTorch kernel with a lengthscale, made of the features of an approximated Gaussian one."""

    has_lengthscale = True

    def __init__(self, feature_map):
        super().__init__()
        self.map = [feature_map]

    def forward(self, x1, x2, diag=False, **params):
        left, right = (self.map[0](x / self.lengthscale) for x in (x1, x2))
        return (left * right).sum(-1) if diag else left @ right.mT


def points(num_rows, seed):
    return torch.rand(num_rows, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def models(width):
    x = points(ROWS, 0)
    y = torch.stack([torch.sin(3.0 * x[:, 0]), x.sum(-1)], dim=-1)
    approximated = rfgp.approximate(RBFKernel(), width, input_dim=2, seed=0)
    for kernel in (approximated, SameFeatures(approximated.feature_map)):
        torch.manual_seed(0)
        yield KroneckerMultiTaskGP(x, y, data_covar_module=kernel, outcome_transform=None), x, y


@pytest.mark.parametrize("width", [8, 48], ids=["fewer features than rows", "more"])
def test_evidence_gradients_and_posterior_are_those_of_a_plain_kernel(width):
    found = []
    for model, x, y in models(width):
        evidence = ExactMarginalLogLikelihood(model.likelihood, model.train())(model(x), y)
        gradients = torch.autograd.grad(evidence, list(model.parameters()))
        posterior = model.posterior(points(4, 1))
        noisy = model.posterior(points(4, 1), observation_noise=True)
        found.append([evidence, *gradients, posterior.mean, posterior.variance, noisy.variance])
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("width", [8, 48], ids=["fewer features than rows", "more"])
def test_samples_have_the_moments_of_the_posterior(width):
    (model, *_), _ = models(width)
    with torch.no_grad():
        posterior = model.posterior(points(3, 1))
        torch.manual_seed(0)
        draws = posterior.rsample(torch.Size([4000]))
    assert draws.shape == (4000, 3, 2)
    variance, error = draws.var(0), (2.0 / 4000) ** 0.5
    assert ((draws.mean(0) - posterior.mean).abs() <= 5.0 * (variance / 4000).sqrt() + 1e-6).all()
    assert ((variance - posterior.variance).abs() <= 5.0 * error * posterior.variance + 1e-6).all()
