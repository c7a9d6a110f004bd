"""Points that share the rows near them are predicted as dense algebra does, in float32 only where that is safe."""

import gpytorch
import pytest
import torch

from rfgp.inference.local import SharedRows

pytestmark = pytest.mark.usefixtures("float64_default")


def rows(count, noise, lengthscale=0.5):
    generator = torch.Generator().manual_seed(0)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5, ard_num_dims=2))
    kernel.outputscale, kernel.base_kernel.lengthscale = 2.0, torch.tensor([lengthscale, 2.0 * lengthscale])
    x = torch.rand(count, 2, generator=generator)
    y = (5.0 * x[:, 0]).sin() + noise**0.5 * torch.randn(count, generator=generator)
    variances = noise * (0.5 + torch.rand(count, generator=generator))
    return kernel, x, y, variances, 1.0 / kernel.base_kernel.lengthscale.detach().squeeze(0)


@torch.no_grad()
def dense(kernel, x, y, variances, points):
    cross = kernel(points, x).to_dense()
    solved = torch.linalg.solve(kernel(x).to_dense() + torch.diag(variances), torch.cat([cross.mT, y[:, None]], dim=-1))
    return cross @ solved[:, -1], kernel(points, diag=True) - (cross * solved[:, :-1].mT).sum(-1)


@pytest.mark.parametrize("noise", [1e-8, 0.05])
@pytest.mark.parametrize("count", [1, 7, 100])
def test_few_rows_are_shared_by_all_points(count, noise):
    kernel, x, y, variances, scales = rows(count, noise)
    points = torch.rand(70, 2, generator=torch.Generator().manual_seed(1))
    mean, variance = SharedRows(kernel, x, y, variances, scales)(points)
    wanted = dense(kernel, x, y, variances, points)
    # of the first cluster float32 is wrong by less than a hundredth of a standard deviation
    spread = (wanted[1] + variances.min()).sqrt()
    assert ((mean - wanted[0]).abs() < 0.03 * spread).all()
    assert ((variance - wanted[1]).abs() < 0.06 * spread.square()).all()
    if noise < 1e-6 and count == 100:
        torch.testing.assert_close(mean, wanted[0], rtol=1e-6, atol=1e-6)


def test_more_rows_than_are_shared_tell_nearly_all():
    kernel, x, y, variances, scales = rows(3000, 0.01, lengthscale=0.1)
    points = torch.rand(100, 2, generator=torch.Generator().manual_seed(1))
    mean, variance = SharedRows(kernel, x, y, variances, scales)(points)
    wanted = dense(kernel, x, y, variances, points)
    assert ((mean - wanted[0]).abs() < 0.1 * (wanted[1] + 0.01).sqrt()).all()
    torch.testing.assert_close(variance, wanted[1], rtol=0.1, atol=1e-4)


def test_points_too_far_for_distances_are_refused():
    near = SharedRows(*rows(10, 0.1))
    with pytest.raises(ValueError, match="expected"):
        near(torch.full((3, 2), 1e300))


def test_clusters_without_a_factor_in_float32_are_predicted_in_float64(monkeypatch):
    kernel, x, y, variances, scales = rows(300, 1e-9, lengthscale=3.0)
    near, points = SharedRows(kernel, x, y, variances, scales), x[:40] + 1e-3
    monkeypatch.setattr(SharedRows, "_is_safe", lambda *_: True)
    mean, variance = near(points)
    torch.testing.assert_close(mean, dense(kernel, x, y, variances, points)[0], rtol=1e-5, atol=1e-5)
    assert bool((variance >= 0).all())
