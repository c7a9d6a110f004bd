"""Periods and frequencies that are learned from starts in the data, and fits that find nothing."""

from __future__ import annotations

import warnings

import gpytorch
import pytest
import torch
from gpytorch.kernels import CosineKernel, PeriodicKernel, RBFKernel, ScaleKernel, SpectralMixtureKernel

import rfgp
from rfgp.training.coordinates import Coordinates
from rfgp.training.moments import data_moments
from rfgp.training.periods import resolutions, start_periods

pytestmark = pytest.mark.usefixtures("float64_default")


def series(num_rows=300, unit=1.0):
    """A wave of period 40 with noise of standard deviation .3, at random times."""
    generator = torch.Generator().manual_seed(0)
    t = unit * (num_rows * torch.rand(num_rows, generator=generator)).sort().values.unsqueeze(-1)
    wave = 2.0 * torch.sin(2.0 * torch.pi * t[:, 0] / (40.0 * unit))
    return t, wave + 0.3 * torch.randn(num_rows, generator=generator)


def periodic(period=None):
    kernel = PeriodicKernel()
    if period is not None:
        kernel.period_length = period
    return ScaleKernel(kernel)


@pytest.mark.parametrize("unit", [1.0, 1e-4])
@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda unit: periodic(35.0 * unit), lambda kernel: kernel.base_kernel.period_length),
        (lambda unit: periodic(), lambda kernel: kernel.base_kernel.period_length),
        (lambda unit: ScaleKernel(CosineKernel()), lambda kernel: 2.0 * kernel.base_kernel.period_length),
        (lambda unit: SpectralMixtureKernel(num_mixtures=1), lambda kernel: 1.0 / kernel.mixture_means),
    ],
    ids=["periodic given", "periodic", "cosine", "mixture"],
)
def test_the_period_of_a_series_is_found(make, found, unit):
    t, y = series(unit=unit)
    kernel = make(unit)
    features = rfgp.approximate(kernel, 48, input_dim=1, seed=0)
    model = rfgp.WeightSpaceGP(features, gpytorch.likelihoods.GaussianLikelihood(), gpytorch.means.ConstantMean())
    rfgp.fit(model, t, y, max_evaluations=60, progress=False)
    periods = found(kernel).detach().flatten() / unit
    ratio = periods / 40.0
    assert ((ratio - ratio.round()).abs() < 0.02).all() and (ratio.round() >= 1.0).all()
    assert model.likelihood.noise.detach().sqrt().item() == pytest.approx(0.3, abs=0.03)


def test_periods_of_columns_are_their_own_and_missing_targets_do_not_count():
    generator = torch.Generator().manual_seed(0)
    x = torch.stack([100.0 * torch.rand(400, generator=generator), 7.0 * torch.rand(400, generator=generator)], -1)
    y = torch.sin(2.0 * torch.pi * x[:, 0] / 13.0) + torch.sin(2.0 * torch.pi * x[:, 1] / 0.9)
    y[::3] = torch.nan
    kernel = PeriodicKernel(ard_num_dims=2)
    assert start_periods(kernel, x, y.unsqueeze(-1))
    torch.testing.assert_close(kernel.period_length.detach().flatten(), torch.tensor([13.0, 0.9]), rtol=0.02, atol=0.0)
    assert not start_periods(RBFKernel(), x, y.unsqueeze(-1))
    assert not start_periods(PeriodicKernel(), torch.ones(9, 1), torch.ones(9, 1))


def test_steps_of_a_period_are_in_units_of_what_the_inputs_resolve():
    t, y = series()
    kernel = periodic(40.0)
    model = rfgp.WeightSpaceGP(rfgp.approximate(kernel, 8, input_dim=1), gpytorch.likelihoods.GaussianLikelihood())
    moments = data_moments(t, y.unsqueeze(-1))
    coordinates = Coordinates({"": model}, moments, ranges=resolutions(kernel, t))
    names = [member.name.rpartition(".")[2] for member in coordinates.members]
    place, values = names.index("period_length"), coordinates.values()
    values[place] += 1.0
    coordinates.assign(values)
    span = float(t.max() - t.min())
    assert kernel.base_kernel.period_length.item() == pytest.approx(40.0 * torch.tensor(40.0 / span).exp().item())
    assert coordinates.values() == pytest.approx(values)


@pytest.mark.parametrize("exact", [False, True])
def test_a_fit_that_finds_nothing_warns(exact):
    x = torch.rand(100, 1, generator=torch.Generator().manual_seed(0))
    y = torch.randn(100, generator=torch.Generator().manual_seed(1))
    likelihood, mean = gpytorch.likelihoods.GaussianLikelihood(), gpytorch.means.ConstantMean()

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, targets):
            super().__init__(x, targets, likelihood)
            self.mean_module, self.covar_module = mean, ScaleKernel(RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def model(targets):
        kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=1, seed=0)
        return Exact(targets) if exact else rfgp.WeightSpaceGP(kernel, likelihood, mean)

    with pytest.warns(UserWarning, match="no better than a constant with noise: its log marginal likelihood is -1"):
        rfgp.fit(model(y), x, y, max_evaluations=40, progress=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rfgp.fit(model(y + 3.0 * x[:, 0]), x, y + 3.0 * x[:, 0], max_evaluations=40, progress=False)
    assert not [one for one in caught if "no better than" in str(one.message)]
