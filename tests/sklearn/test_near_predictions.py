"""New rows are predicted from those near them as dense algebra does."""

import gpytorch
import pytest
import torch

import rfgp
from rfgp.inference.local import SharedRows
from rfgp.sklearn.near_predictions import needs_no_features, own_rows

pytestmark = pytest.mark.usefixtures("float64_default")


def shared(count, noise=0.05, nu=2.5):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 2, generator=generator)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu, ard_num_dims=2))
    kernel.outputscale, kernel.base_kernel.lengthscale = 2.0, torch.tensor([0.5, 1.0])
    y = (5.0 * x[:, 0]).sin() + noise**0.5 * torch.randn(count, generator=generator)
    variances = noise * (0.5 + torch.rand(count, generator=generator))
    return SharedRows(kernel, x, y, variances, 1.0 / kernel.base_kernel.lengthscale.detach().squeeze(0))


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 50, 300])
def test_each_point_is_predicted_from_the_rows_nearest_to_it(count):
    rows, points = shared(count), torch.rand(20, 2, generator=torch.Generator().manual_seed(1))
    means, variances = own_rows(rows)(points)
    for point, mean, variance in zip(points, means, variances, strict=True):
        near = torch.cdist(point[None] * rows.scales, rows.x * rows.scales).squeeze(0).argsort()[:64]
        x, cross = rows.x[near], rows.kernel(point[None], rows.x[near]).to_dense()
        weights = torch.linalg.solve(rows.kernel(x).to_dense() + torch.diag(rows.variances[near]), cross.mT).squeeze(-1)
        torch.testing.assert_close(mean, weights @ rows.targets[near], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(variance, 2.0 - cross.squeeze(0) @ weights, rtol=1e-9, atol=1e-9)


def test_points_too_far_for_distances_are_refused_and_rows_without_a_factor_are_shared(monkeypatch):
    rows = shared(40)
    own, points = own_rows(rows), rows.x[:5] + 0.01
    with pytest.raises(ValueError, match="expected"):
        own(torch.full((3, 2), 1e300))

    def fails(*_):
        raise ValueError

    monkeypatch.setattr("rfgp.sklearn.near_predictions.predictions", fails)
    for found, wanted in zip(own(points), rows(points), strict=True):
        assert torch.equal(found, wanted)


def test_kernels_that_are_not_stationary_have_no_rows_of_each_point():
    rows = shared(10)
    linear = SharedRows(gpytorch.kernels.LinearKernel(), rows.x, rows.targets, rows.variances, rows.scales)
    assert own_rows(linear) is None


def test_many_rows_need_no_features_for_what_noise_hides(monkeypatch):
    x = torch.rand(600, 2, generator=torch.Generator().manual_seed(0))
    exact = gpytorch.kernels.RBFKernel()
    exact.lengthscale = 1.0
    kernel = rfgp.approximate(exact, 16, method="landmarks", train_inputs=x, seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    model.likelihood.noise = 0.5
    assert not needs_no_features(model, x, x[:, 0], None)
    monkeypatch.setattr("rfgp.sklearn.near_predictions._MANY_ROWS", 400)
    assert needs_no_features(model, x, x[:, 0], None)
