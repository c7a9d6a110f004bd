"""Localized Maclaurin features: against dense algebra, and where plain features collapse."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood

import rfgp
from rfgp.diagnostics import kl_to_exact
from rfgp.models import LocalizedMaclaurinGP, WeightSpaceGP
from rfgp.models.localized import farthest_point_centers

pytestmark = pytest.mark.usefixtures("float64_default")


def kernel_and_likelihood(lengthscale=0.7, outputscale=2.0, noise=0.05, **options):
    kernel, likelihood = ScaleKernel(RBFKernel(**options)), GaussianLikelihood()
    kernel.base_kernel.lengthscale, kernel.outputscale, likelihood.noise = lengthscale, outputscale, noise
    return kernel, likelihood


def rows(num_rows=60, dim=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, dim, generator=generator)
    return x, torch.sin(2.0 * x.sum(-1)) + 0.1 * torch.randn(num_rows, generator=generator)


def sinc():
    x = torch.linspace(-4.0, 4.0, 100)[:, None]
    noise = 0.1 * torch.randn(100, generator=torch.Generator().manual_seed(0))
    return x, torch.sin(5.0 * x[:, 0]) / x[:, 0] + noise, torch.linspace(-6.0, 6.0, 200)[:, None]


@pytest.mark.parametrize("threshold", [1.5, 100.0])
def test_marginals_equal_dense_algebra_around_every_center(threshold):
    kernel, likelihood = kernel_and_likelihood()
    x, y = rows()
    points = rows(150, seed=1)[0]
    model = LocalizedMaclaurinGP(kernel, likelihood, 40, threshold=threshold).condition(x, y)
    posterior = model.posterior(points)
    nearest = torch.cdist(points / 0.7, model.centers).argmin(-1)
    assert (len(model.centers) == 1) == (threshold == 100.0)
    covered = torch.cdist(points / 0.7, model.centers).min(-1).values <= threshold
    assert covered.sum() > 50
    for i in covered.nonzero().flatten()[::5]:
        center = model.centers[nearest[i]]
        train, point = (2.0**0.5 * model.feature_map(z / 0.7 - center) for z in (x, points[i : i + 1]))
        covariance, cross = train @ train.mT + 0.05 * torch.eye(len(x)), train @ point.mT
        solved = torch.linalg.solve(covariance, torch.cat([y[:, None], cross], dim=-1))
        prior, missing = point @ point.mT, (2.0 - point @ point.mT).clamp_min(0.0)
        mean, variance = cross.mT @ solved[:, :1], prior - cross.mT @ solved[:, 1:] + missing
        torch.testing.assert_close(posterior.mean[i], mean[0, 0].detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(posterior.variance[i], variance[0, 0].detach(), rtol=1e-9, atol=1e-9)


def test_far_from_zero_the_nearest_center_is_the_same():
    kernel, likelihood = kernel_and_likelihood(lengthscale=1.0)
    x, y = rows()
    x, far = (256.0 * x).round() / 256.0, 2.0**32
    here, there = (
        LocalizedMaclaurinGP(kernel, likelihood, 30, threshold=1.0).condition(x + at, y) for at in (0.0, far)
    )
    torch.testing.assert_close(there.posterior(x + far).mean, here.posterior(x).mean, rtol=1e-5, atol=1e-5)


def test_a_single_center_is_the_plain_method():
    kernel, likelihood = kernel_and_likelihood()
    x, y = rows()
    model = LocalizedMaclaurinGP(
        kernel, likelihood, 40, centers=x.mean(0, keepdim=True), threshold=100.0, seed=3
    ).condition(x, y)
    plain = rfgp.approximate(kernel, 40, method="optimized_maclaurin:ctr", train_inputs=x, seed=3)
    expected = WeightSpaceGP(plain, likelihood).condition(x, y).posterior(x)
    torch.testing.assert_close(model.posterior(x).mean, expected.mean.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(model.posterior(x).variance, expected.variance.detach(), rtol=1e-9, atol=1e-9)


def test_chunks_of_centers_do_not_matter(monkeypatch):
    kernel, likelihood = kernel_and_likelihood()
    x, y = rows()
    whole = LocalizedMaclaurinGP(kernel, likelihood, 30, threshold=1.0).condition(x, y).posterior(x)
    monkeypatch.setattr("rfgp.models.localized._CHUNK_BYTES", 1)
    parts = LocalizedMaclaurinGP(kernel, likelihood, 30, threshold=1.0).condition(x, y).posterior(x)
    torch.testing.assert_close(parts.mean, whole.mean)
    torch.testing.assert_close(parts.variance, whole.variance)


def test_more_centers_than_fit_in_a_group():
    kernel, likelihood = kernel_and_likelihood(lengthscale=0.1)
    x, y = rows(150)
    model = LocalizedMaclaurinGP(kernel, likelihood, 20, threshold=1.0).condition(x, y)
    assert len(model.centers) > 128
    one_by_one = torch.cat([model.posterior(point[None]).variance for point in x[:40]])
    torch.testing.assert_close(model.posterior(x).variance[:40], one_by_one)


def test_the_prior_is_kept_at_a_center_far_from_the_data():
    kernel, likelihood = kernel_and_likelihood()
    x, y = rows()
    far = torch.full((1, 3), 50.0)
    posterior = (
        LocalizedMaclaurinGP(kernel, likelihood, 40, centers=torch.cat([x[:1], far])).condition(x, y).posterior(far)
    )
    assert abs(float(posterior.mean)) < 1e-9
    assert abs(float(posterior.variance) - 2.0) < 1e-9


def test_inputs_far_from_all_centers_get_centers_of_their_own():
    kernel, likelihood = kernel_and_likelihood()
    x, y = rows()
    model = LocalizedMaclaurinGP(kernel, likelihood, 40).condition(x, y)
    far = torch.tensor([[30.0, 0.0, 0.0], [30.5, 0.0, 0.0], [0.0, -40.0, 0.0]])
    posterior = model.posterior(torch.cat([x, far]))
    assert posterior.mean[-3:].abs().max() < 1e-9
    assert (posterior.variance[-3:] - 2.0).abs().max() < 1e-9
    torch.testing.assert_close(posterior.mean[:-3], model.posterior(x).mean)


def test_new_parameters_need_a_new_fit():
    kernel, likelihood = kernel_and_likelihood()
    x, y = rows()
    model = LocalizedMaclaurinGP(kernel, likelihood, 40).condition(x, y)
    for module, name in ((kernel.base_kernel, "lengthscale"), (kernel, "outputscale"), (likelihood, "noise")):
        setattr(module, name, 1.3)
        with pytest.raises(ValueError, match=f"{name}; call condition"):
            model.posterior(x)
        model.condition(x, y).posterior(x)


def test_state_dict_has_the_parameters_alone():
    kernel, likelihood = kernel_and_likelihood()
    x, y = rows()
    model = LocalizedMaclaurinGP(kernel, likelihood, 40).condition(x, y)
    other = LocalizedMaclaurinGP(*kernel_and_likelihood(2.0, 1.0, 1.0), 40)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.condition(x, y).posterior(x).mean, model.posterior(x).mean)


def test_the_collapse_at_short_lengthscales_is_cured():
    x, y, grid = sinc()
    kernel, likelihood = kernel_and_likelihood(0.5, 3.0, 0.01)
    plain = rfgp.approximate(kernel, 10, method="optimized_maclaurin:real", train_inputs=x, seed=0)
    collapsed = kl_to_exact(WeightSpaceGP(plain, likelihood, keep_data=True).condition(x, y), grid, noisy=True)
    for options in ({"threshold": 0.5}, {"centers": grid}):
        cured = kl_to_exact(LocalizedMaclaurinGP(kernel, likelihood, 10, **options).condition(x, y), grid, noisy=True)
        assert cured <= 0.1 * collapsed


@pytest.mark.parametrize("threshold", [0.5, 1.0, 3.0])
def test_farthest_point_centers_cover_the_inputs(threshold):
    x = rows(200)[0]
    centers = farthest_point_centers(x, threshold)
    torch.testing.assert_close(centers[0], x.mean(0))
    assert torch.cdist(x, centers).min(-1).values.max() < threshold
    apart = torch.cdist(centers[1:], centers[1:]) + 1e9 * torch.eye(len(centers) - 1)
    assert len(centers) == 1 or apart.min() >= threshold


def test_lengthscales_and_active_dims_scale_the_inputs():
    x, y = rows(80, dim=4)
    kernel, likelihood = kernel_and_likelihood(ard_num_dims=2, active_dims=[3, 0])
    kernel.base_kernel.lengthscale = torch.tensor([[0.5, 2.0]])
    model = LocalizedMaclaurinGP(kernel, likelihood, 30).condition(x, y)
    plain, _ = kernel_and_likelihood(lengthscale=1.0)
    scaled = x[:, [3, 0]] / torch.tensor([0.5, 2.0])
    expected = LocalizedMaclaurinGP(plain, likelihood, 30).condition(scaled, y)
    torch.testing.assert_close(model.posterior(x).mean, expected.posterior(scaled).mean)


def test_centers_may_be_given_in_full_inputs():
    x, y = rows(80, dim=4)
    kernel, likelihood = kernel_and_likelihood(active_dims=[1, 2])
    model = LocalizedMaclaurinGP(kernel, likelihood, 30, centers=x[:5]).condition(x, y)
    torch.testing.assert_close(model.centers, x[:5, [1, 2]] / 0.7)


def test_a_failed_fit_leaves_the_model_as_it_was():
    kernel, likelihood = kernel_and_likelihood()
    x, y = rows()
    model = LocalizedMaclaurinGP(kernel, likelihood, 30).condition(x, y)
    before = model.posterior(x).mean
    with pytest.raises(ValueError, match="expected finite values"):
        model.condition(torch.full_like(x, torch.nan), y)
    assert torch.equal(model.posterior(x).mean, before)


def test_what_does_not_fit_raises():
    kernel, likelihood = kernel_and_likelihood()
    x, y = rows()
    with pytest.raises(ValueError, match="expected an RBFKernel"):
        LocalizedMaclaurinGP(ScaleKernel(MaternKernel()), likelihood, 10)
    with pytest.raises(ValueError, match="expected a GaussianLikelihood"):
        LocalizedMaclaurinGP(kernel, FixedNoiseGaussianLikelihood(torch.ones(3)), 10)
    with pytest.raises(ValueError, match="expected a positive threshold"):
        LocalizedMaclaurinGP(kernel, likelihood, 10, threshold=0.0)
    with pytest.raises(ValueError, match="expected a positive integer for num_features"):
        LocalizedMaclaurinGP(kernel, likelihood, 0)
    with pytest.raises(ValueError, match="expected a fitted model"):
        LocalizedMaclaurinGP(kernel, likelihood, 10).posterior(x)
    with pytest.raises(ValueError, match="one per row"):
        LocalizedMaclaurinGP(kernel, likelihood, 10).condition(x, y[:5])
    with pytest.raises(ValueError, match="expected centers with 3 columns"):
        LocalizedMaclaurinGP(kernel, likelihood, 10, centers=torch.zeros(2, 2)).condition(x, y)
    with pytest.raises(ValueError, match="flatten the batch"):
        LocalizedMaclaurinGP(kernel, likelihood, 20).condition(x, y).posterior(x[None])
    with pytest.raises(ValueError, match="expected x with 3 columns"):
        LocalizedMaclaurinGP(kernel, likelihood, 20).condition(x, y).posterior(x[:, :2])
