"""Functions drawn on a Fourier grid are the same series wherever they are evaluated: on regular points and others."""

import pytest
import torch
from gpytorch.kernels import MaternKernel
from gpytorch.likelihoods import GaussianLikelihood

import rfgp
from rfgp.inference.posterior import grid_draws

AXIS = torch.linspace(0.05, 0.95, 20, dtype=torch.float64)
REGULAR = torch.cartesian_prod(AXIS, AXIS)


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("others", [0, 7], ids=["regular points", "regular points, then others"])
def test_regular_points_and_others_have_the_values_of_the_features(others, monkeypatch):
    monkeypatch.setattr(grid_draws, "_POINTS", len(REGULAR) // 2)
    x = torch.rand(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = rfgp.approximate(MaternKernel(nu=2.5), 121, method="fourier_grid", train_inputs=x)
    model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, x[:, 0].sin())
    functions = model.sample_functions(3)
    points = torch.cat([REGULAR, torch.rand(others, 2, dtype=torch.float64)])
    with torch.no_grad():
        found = functions(points)
    torch.testing.assert_close(found, functions(points).detach(), rtol=0.0, atol=1e-9)  # with gradients: by features
