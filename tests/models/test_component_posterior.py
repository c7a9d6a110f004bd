"""The posterior of the terms of a sum: equal to dense algebra with the kernels of the features, term by term."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

import rfgp

NOISE = 0.05


def rows(count=60):
    x = torch.rand(count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x, 2.0 + x[:, 0] + torch.sin(12.0 * x[:, 1])


def terms():
    """A trend, a season, and a rough function of all inputs."""
    season = PeriodicKernel(active_dims=[1])
    season.period_length = 0.5
    return ScaleKernel(RBFKernel(active_dims=[0])), ScaleKernel(season), LinearKernel(), MaternKernel(nu=1.5)


def model_of(exact, method="fourier", mean=None, **options):
    x, y = rows()
    kernel = rfgp.approximate(exact.double(), 56, method=method, input_dim=2, train_inputs=x, seed=0)
    likelihood = GaussianLikelihood().double()
    likelihood.noise = NOISE
    mean = None if mean is None else mean.double()
    return rfgp.WeightSpaceGP(kernel, likelihood, mean, **options).condition(x, y)


def a_sum():
    first, second, third, fourth = terms()
    return first + second + third + fourth


def dense(model, new, mean=0.0):
    """Means (N, K), and covariances (N, K, N, K), from the kernels of the features of every term."""
    x, y = rows()
    parts = model.covar_module.summands()
    system = sum(part.features(x) @ part.features(x).mT for part in parts) + NOISE * torch.eye(len(x))
    cross = [part.features(new) @ part.features(x).mT for part in parts]
    means = [left @ torch.linalg.solve(system, y - mean) for left in cross]
    blocks = [[-left @ torch.linalg.solve(system, right.mT) for right in cross] for left in cross]
    for place, part in enumerate(parts):
        blocks[place][place] = blocks[place][place] + part.features(new) @ part.features(new).mT
        if (residual := part.residual_variance(new)) is not None:
            blocks[place][place] = blocks[place][place] + torch.diag(residual)
    covariance = torch.stack([torch.stack(row, dim=-1) for row in blocks], dim=-1).permute(0, 3, 1, 2)
    return torch.stack(means, dim=-1), covariance


@pytest.mark.smoke
@pytest.mark.parametrize("mean", [0.0, 1.5])
def test_moments_are_those_of_dense_algebra_and_add_up(mean):
    function = gpytorch.means.ConstantMean()
    function.constant.data.fill_(mean)
    model, new = model_of(a_sum(), mean=function), rows(80)[0][60:]
    with torch.no_grad():
        found, whole = model.component_posterior(new), model.posterior(new)
        means, covariance = dense(model, new, mean)
        torch.testing.assert_close(found.mean, means, rtol=0.0, atol=1e-8)
        matrix = found.covariance_matrix.reshape(covariance.shape)
        torch.testing.assert_close(matrix, covariance, rtol=0.0, atol=1e-8)
        variances = covariance.diagonal(dim1=0, dim2=2).diagonal(dim1=0, dim2=1)
        torch.testing.assert_close(found.variance, variances, rtol=0.0, atol=1e-8)
        torch.testing.assert_close(found.mean.sum(-1) + mean, whole.mean, rtol=0.0, atol=1e-8)
        torch.testing.assert_close(matrix.sum((1, 3)), whole.covariance_matrix, rtol=0.0, atol=1e-8)


def test_draws_have_the_moments():
    model, new = model_of(a_sum()), rows(64)[0][60:]
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        found = model.component_posterior(new)
        draws = found.rsample(torch.Size([4000]))
    errors = (draws.mean(0) - found.mean).abs() / (found.variance / 4000).sqrt()
    assert float(errors.max()) < 4.5
    ratios = (draws.var(0) / found.variance - 1.0).abs() / (2.0 / 4000) ** 0.5
    assert float(ratios.max()) < 4.5


def test_trend_and_season_are_told_apart():
    x, _ = rows()
    trend, season, _, _ = terms()
    found = model_of(trend + season).component_posterior(x)
    truth = torch.sin(12.0 * x[:, 1])
    centered = found.mean[:, 1].detach() - found.mean[:, 1].detach().mean()
    assert float(torch.corrcoef(torch.stack([centered, truth]))[0, 1]) > 0.9


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: model_of(RBFKernel()), "a sum of kernels, each with features of its own, got RBFKernel"),
        (lambda: model_of(ScaleKernel(a_sum())), "got ScaleKernel"),
        (lambda: model_of(a_sum(), "landmarks"), "got AdditiveKernel"),
        (lambda: model_of(a_sum(), "landmarks", block_size=16), "got blocks"),
        (lambda: model_of(RBFKernel() + MaternKernel(), num_draws=2), "got several draws"),
        (lambda: model_of(RBFKernel() + MaternKernel(), "fourier:complex"), "real features"),
    ],
    ids=["no sum", "a scale", "landmarks", "blocks", "draws", "complex"],
)
def test_what_has_no_components_is_refused(make, told):
    model = make()
    with pytest.raises(ValueError, match=told):
        model.component_posterior(rows()[0])


def test_what_landmarks_of_a_term_lack_is_added_to_that_term():
    x, y = rows()
    smooth, rough = ScaleKernel(RBFKernel()).double(), ScaleKernel(MaternKernel(nu=0.5)).double()
    parts = [rfgp.approximate(part, 12, method="landmarks", train_inputs=x, seed=0) for part in (smooth, rough)]
    likelihood = GaussianLikelihood().double()
    likelihood.noise = NOISE
    model, new = rfgp.WeightSpaceGP(parts[0] + parts[1], likelihood).condition(x, y), rows(80)[0][60:]
    with torch.no_grad():
        found = model.component_posterior(new)
        means, covariance = dense(model, new)
        torch.testing.assert_close(found.mean, means, rtol=0.0, atol=1e-8)
        torch.testing.assert_close(found.covariance_matrix.reshape(covariance.shape), covariance, rtol=0.0, atol=1e-8)
        assert float(model.covar_module.residual_variance(new).max()) > 0.1
