"""The report of how far a model is from the exact one, against the posteriors that it is made of."""

from __future__ import annotations

import math

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood, FixedNoiseGaussianLikelihood, GaussianLikelihood

import rfgp
from rfgp.diagnostics import compare_to_exact, exact_posterior, kl_to_exact
from rfgp.models import WeightSpaceGP


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def rows(count=60):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    return x, torch.sin(4.0 * x[:, 0]) + 0.1 * torch.randn(count, generator=generator, dtype=torch.float64)


def kernel(num_features=40):
    return rfgp.approximate(ScaleKernel(RBFKernel()).double(), num_features, input_dim=2, method="fourier", seed=0)


def weight_space(x, y, likelihood=None, num_features=40, **options):
    likelihood = GaussianLikelihood().double() if likelihood is None else likelihood
    return WeightSpaceGP(kernel(num_features), likelihood, keep_data=True, **options).condition(x, y)


def test_numbers_of_all_rows():
    x, y = rows()
    model, points = weight_space(x, y), rows(7)[0] + 0.1
    found = compare_to_exact(model, points)
    assert (found.num_rows, found.num_training_rows, found.num_subsets, found.num_points) == (60, 60, 1, 7)
    direction = {"direction": "exact_from_approximate"}
    assert found.kl_per_point.mean == pytest.approx(float(kl_to_exact(model, points, **direction)) / 7, rel=1e-9)
    assert found.reverse_kl_per_point.mean == pytest.approx(float(kl_to_exact(model, points)) / 7, rel=1e-9)
    assert math.isnan(found.kl_per_point.error)
    exact, own = exact_posterior(model.covar_module, model.likelihood, x, y, points), model.posterior(points)
    shift = ((own.mean - exact.mean) / exact.stddev).square().mean().sqrt()
    assert found.mean_shift.mean == pytest.approx(float(shift.detach()), rel=1e-8)
    assert found.std_ratio.mean == pytest.approx(
        float((own.stddev / exact.stddev).log().mean().exp().detach()), rel=1e-8
    )
    draws = exact.sample((4000,))
    inside = ((draws - own.mean).abs() <= 1.959963985 * own.stddev).double()
    assert abs(float(inside.mean()) - found.coverage.mean) < 4.0 * math.sqrt(0.25 / 4000)


@pytest.mark.parametrize("noise", [False, True])
def test_subsets(noise):
    x, y = rows(200)
    fixed = torch.full_like(y, 0.02).addcmul_(x[:, 0], x[:, 0])
    likelihood = FixedNoiseGaussianLikelihood(fixed) if noise else GaussianLikelihood().double()
    model = weight_space(x, y, likelihood)
    before = model.posterior(x[:5]).mean
    found = compare_to_exact(model, x[:20], max_rows=50, num_subsets=3)
    assert (found.num_rows, found.num_training_rows, found.num_subsets) == (50, 200, 3)
    assert found.kl_per_point.error > 0 and "3 subsets of 50 of 200 training rows" in str(found)
    assert torch.equal(before, model.posterior(x[:5]).mean) and len(model.training_data) == 1
    exact_gp = Exact(x, y, likelihood, kernel()).double()
    other = compare_to_exact(exact_gp, x[:20], max_rows=50, num_subsets=3)
    for name in ("kl_per_point", "mean_shift", "coverage"):
        assert getattr(other, name).mean == pytest.approx(getattr(found, name).mean, rel=1e-5)
    assert len(exact_gp.train_inputs[0]) == 200


@pytest.mark.filterwarnings("ignore:2000 features")
@pytest.mark.parametrize("num_features, words", [(2000, "as good as exact"), (4, "error bars")])
def test_words(num_features, words):
    x, y = rows(150)
    found = compare_to_exact(weight_space(x, y, num_features=num_features), x[:30])
    assert words in str(found) and "all 150 training rows" in str(found)
    assert (found.coverage.mean > 0.9) == (num_features == 2000)


def test_classes():
    x, _ = rows(90)
    labels = (3 * x[:, 0]).long()
    likelihood = DirichletClassificationLikelihood(labels, dtype=torch.float64)
    model = weight_space(x, labels, likelihood)
    assert 0.0 < compare_to_exact(model, x[:10]).coverage.mean < 1.0
    assert compare_to_exact(model, x[:10], max_rows=40, num_subsets=2).num_rows == 40
    found = compare_to_exact(model, x[:10], train_inputs=x, train_targets=labels)
    assert found.kl_per_point.mean == compare_to_exact(model, x[:10]).kl_per_point.mean


def test_bad_calls():
    x, y = rows()
    model = weight_space(x, y)
    for arguments, message in (
        ({"max_rows": 0}, "max_rows"),
        ({"num_subsets": 1}, "num_subsets"),
        ({"train_inputs": x}, "train_targets"),
        ({"seed": -1, "max_rows": 30}, "seed"),
    ):
        with pytest.raises(ValueError, match=message):
            compare_to_exact(model, x, **arguments)
    with pytest.raises(ValueError, match="model"):
        compare_to_exact(object(), x)
