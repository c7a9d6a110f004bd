"""Fields, derivatives and sums of several outputs on a Fourier grid, against exact kernels and dense algebra."""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood

import rfgp
from rfgp.functionals import CurlFreePart, Divergence, Gradient, Potential, Value
from rfgp.functionals.observations import boxes, derivatives, segments
from rfgp.functionals.observations import points as rows_at
from rfgp.inference.sums.grid_statistics import GridStatistics
from rfgp.kernels import (
    CurlFreeKernel,
    DivergenceFreeKernel,
    HelmholtzKernel,
    LinearlyObservedKernel,
    ObservationKernel,
)
from rfgp.likelihoods import MultitaskFixedNoiseGaussianLikelihood
from rfgp.models import WeightSpaceGP
from rfgp.training.exact_regression import exact_regression
from rfgp.training.objectives import WeightSpaceObjective

ROUNDING = 1e-10
DTYPE = torch.float64


def points(rows, columns=2, seed=0):
    return torch.rand(rows, columns, dtype=DTYPE, generator=torch.Generator().manual_seed(seed))


def gaussian(length=0.4, **options):
    return RBFKernel(**options).double().initialize(lengthscale=length)


def on_grid(kernel, x, num_features):
    return rfgp.approximate(kernel, num_features, method="fourier_grid", train_inputs=x)


def helmholtz():
    base = gaussian()
    kernel = HelmholtzKernel(base, base).double()
    kernel.curl_free.outputscale = 0.5
    return kernel


def multitask(length):
    torch.manual_seed(0)
    return MultitaskKernel(gaussian(length), num_tasks=2, rank=1).double()


KERNELS = {
    "curl-free": (lambda: CurlFreeKernel(gaussian()), 2, 301, 1e-5),
    "curl-free in three dimensions": (lambda: CurlFreeKernel(gaussian(1.0)), 3, 501, 3e-3),
    "rough curl-free": (
        lambda: CurlFreeKernel(MaternKernel(nu=2.5).double().initialize(lengthscale=0.4)),
        1,
        201,
        2e-2,
    ),
    "divergence-free": (lambda: ScaleKernel(DivergenceFreeKernel(gaussian())).double(), 2, 301, 1e-5),
    "helmholtz": (helmholtz, 2, 301, 1e-5),
    "value and gradient": (lambda: LinearlyObservedKernel(gaussian(), [Value(), Gradient()]), 2, 301, 1e-5),
    "divergence of a sum": (lambda: LinearlyObservedKernel(helmholtz(), [Value(), Divergence()]), 2, 301, 1e-5),
    "sum of tasks and a field": (lambda: multitask(0.3) + CurlFreeKernel(gaussian()), 2, 501, 1e-5),
    "one of two columns": (
        lambda: LinearlyObservedKernel(gaussian(active_dims=[1]), [Value(), Gradient()]) + multitask(0.4),
        2,
        301,
        1e-5,
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_features_are_those_of_the_exact_kernel(name):
    make, columns, width, error = KERNELS[name]
    exact, x = make(), points(30, columns)
    kernel = on_grid(exact, points(300, columns, seed=1), width)
    with torch.no_grad():
        wanted, found = exact(x).to_dense(), kernel(x).to_dense()
        found.diagonal().add_(kernel.residual_variance(x))
        assert float((found - wanted).abs().max()) < error * float(wanted.max())
        assert kernel.num_scalar_features <= width
        waves = kernel.waves(columns)
        phases = torch.exp(1j * ((x[:1] - x[1:2]) @ waves.frequencies.mT))
        products = (0j + waves.factor).unsqueeze(-1) * waves.factor.conj().unsqueeze(-2)
        pair = (phases[0, :, None, None] * products).sum(0).real
        torch.testing.assert_close(pair, kernel(x[:1], x[1:2]).to_dense(), rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("name", ("rough curl-free", "helmholtz", "value and gradient", "sum of tasks and a field"))
@pytest.mark.parametrize("has_gaps", (False, True))
def test_evidence_gradient_and_posterior_are_those_of_dense_algebra(name, has_gaps):
    make, columns, *_ = KERNELS[name]
    x, kernel = points(40, columns), make()
    features = on_grid(kernel, x, 61)
    outputs = features.output_factor().num_outputs
    y = torch.sin(5.0 * x.sum(-1, keepdim=True) + torch.arange(outputs))
    if has_gaps:
        y[torch.rand(y.shape, generator=torch.Generator().manual_seed(3)) < 0.2] = math.nan
    model = WeightSpaceGP(features, MultitaskGaussianLikelihood(outputs).double()).condition(x, y)
    assert isinstance(model.statistics, GridStatistics)
    scaled = [parameter for parameter in kernel.parameters() if parameter.numel() == 1]
    with torch.no_grad():
        scaled[0].add_(0.3)  # the sums hold for all parameters
    noise = (model.likelihood.task_noises + model.likelihood.noise).repeat(len(x))
    phi = features.features(x)
    covariance = phi @ phi.mT + torch.diag(noise) + torch.block_diag(*features.residual_covariance(x).dense())
    seen = ~y.flatten().isnan()
    covariance, target = covariance[seen][:, seen], y.flatten()[seen]
    zero = torch.zeros_like(target)
    wanted = torch.distributions.MultivariateNormal(zero, covariance).log_prob(target)
    found, learned = model.log_marginal_likelihood(), list(model.parameters())
    torch.testing.assert_close(found, wanted, rtol=ROUNDING, atol=ROUNDING)
    pairs = [torch.autograd.grad(value, learned, retain_graph=True) for value in (found, wanted)]
    for pair in zip(*pairs, strict=True):
        torch.testing.assert_close(*pair, rtol=1e-8, atol=1e-8)
    with torch.no_grad():
        at = points(5, columns, 4)
        cross = features.features(at) @ phi[seen].mT
        mean = (cross @ torch.linalg.solve(covariance, target)).reshape(5, outputs)
        lost = (cross * torch.linalg.solve(covariance, cross.mT).mT).sum(-1)
        variance = features.features(at).square().sum(-1) + features.residual_variance(at) - lost
        posterior = model.posterior(at)
        torch.testing.assert_close(posterior.mean, mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(posterior.variance.flatten(), variance, rtol=1e-8, atol=1e-8)
        predicted = rfgp.predict_map(model, at)
        torch.testing.assert_close(predicted.variance.flatten(), variance, rtol=1e-8, atol=1e-8)


def rows_of_a_function():
    x, direction = points(10), torch.tensor([1.0, 2.0], dtype=DTYPE)
    averages, lines = boxes(x, x + 0.1), segments(x[:5], x[5:], integral=True)
    return torch.cat([rows_at(x), averages, derivatives(x, direction), lines])


def rows_of_a_field():
    x = points(10)
    return torch.cat([rows_at(x, torch.tensor([1.0, 0.0], dtype=DTYPE)), segments(x[:5], x[5:], x[5:] - x[:5])])


@pytest.mark.parametrize(
    ("make", "rows"),
    (
        (lambda: ScaleKernel(gaussian()).double() + gaussian(active_dims=[0]), rows_of_a_function),
        (helmholtz, rows_of_a_field),
    ),
)
def test_observations_are_those_of_the_exact_kernel(make, rows):
    exact, x = ObservationKernel(make(), input_dim=2), rows()
    kernel, far = on_grid(exact, x, 301), x.clone()
    far[-1, 0] += 9.0
    with torch.no_grad():
        wanted, found = exact(x).to_dense(), kernel(x).to_dense()
        assert float((found - wanted).abs().max()) < 1e-5 * float(wanted.max())
        assert not kernel.features(far)[-1].any() and kernel.features(far)[0].any()
        torch.testing.assert_close(kernel.residual_variance(far)[-1], wanted[-1, -1])
        model = WeightSpaceGP(kernel, GaussianLikelihood().double()).condition(x, torch.sin(x.sum(-1)))
        covariance = wanted + model.likelihood.noise * torch.eye(len(x), dtype=DTYPE)
        mean = wanted @ torch.linalg.solve(covariance, torch.sin(x.sum(-1)))
        torch.testing.assert_close(model.posterior(x).mean, mean, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("is_scaled", (False, True))
def test_sums_over_observations_hold_for_all_parameters(is_scaled):
    x, base = rows_of_a_function(), ScaleKernel(gaussian()).double()
    exact = ObservationKernel(base, input_dim=2)
    y = torch.sin(x.sum(-1))
    kernel = on_grid(ScaleKernel(exact).double() if is_scaled else exact, x, 61)
    model = WeightSpaceGP(kernel, GaussianLikelihood().double()).condition(x, y)
    with torch.no_grad():
        base.outputscale, base.base_kernel.lengthscale = 2.0, 0.6
    covariance = kernel(x).to_dense() + model.likelihood.noise * torch.eye(len(x), dtype=DTYPE)
    wanted = torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance).log_prob(y)
    found, learned = model.log_marginal_likelihood(), list(model.parameters())
    torch.testing.assert_close(found, wanted, rtol=ROUNDING, atol=ROUNDING)
    pairs = [torch.autograd.grad(value, learned, retain_graph=True) for value in (found, wanted)]
    for pair in zip(*pairs, strict=True):
        torch.testing.assert_close(*pair, rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="in the box of the Fourier grid"):
        model.update(rows_at(torch.full((1, 2), 9.0, dtype=DTYPE)), y[:1])


def test_operators_act_on_the_factors():
    x = points(60)
    y = torch.stack([torch.cos(3.0 * x[:, 0]), x[:, 1]], dim=-1)
    model = WeightSpaceGP(on_grid(helmholtz(), x, 301), MultitaskGaussianLikelihood(2).double()).condition(x, y)
    with torch.no_grad():
        step = 1e-5 * torch.eye(2, dtype=DTYPE)
        slopes = [(model.posterior(x + d).mean - model.posterior(x - d).mean) / 2e-5 for d in step]
        divergence = slopes[0][:, 0] + slopes[1][:, 1]
        torch.testing.assert_close(model.posterior(x, Divergence()).mean, divergence, rtol=0.0, atol=1e-6)
        potential = [model.posterior(x + d, Potential()).mean - model.posterior(x - d, Potential()).mean for d in step]
        part = torch.stack(potential, dim=-1) / 2e-5
        torch.testing.assert_close(model.posterior(x, CurlFreePart()).mean, part, rtol=0.0, atol=1e-6)


def test_the_exact_kernel_learns_from_few_rows_with_known_noise():
    x = points(20)
    y, noise = torch.sin(5.0 * x), 0.1 + points(20, seed=2)
    model = WeightSpaceGP(on_grid(helmholtz(), x, 301), MultitaskFixedNoiseGaussianLikelihood(noise))
    regression = exact_regression(WeightSpaceObjective(model, x, y, noise))
    found = regression.log_densities(torch.arange(20).unsqueeze(0), 20).squeeze(0)
    wanted = model.condition(x, y, noise).log_marginal_likelihood()
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("has_gaps", (False, True))
def test_training_asks_the_likelihood_for_noise_that_it_knows(has_gaps):
    x = points(200)
    y = torch.cos(3.0 * x) + 0.1 * torch.randn(200, 2, dtype=DTYPE, generator=torch.Generator().manual_seed(4))
    if has_gaps:
        y[::7, 0] = math.nan
    likelihood = MultitaskFixedNoiseGaussianLikelihood(torch.full((200, 2), 0.01, dtype=DTYPE))
    model = WeightSpaceGP(on_grid(CurlFreeKernel(gaussian()), x, None), likelihood)
    rfgp.fit(model, x, y, max_evaluations=5, progress=False)
    error = (model.posterior(x).mean.detach() - torch.cos(3.0 * x)).square().mean()
    assert float(error) < 4.0 * 0.01 * model.covar_module.num_scalar_features / 400


def test_states_and_training_take_fields(tmp_path):
    x = points(300)
    flow = torch.stack([torch.cos(5.0 * x[:, 0]), torch.sin(5.0 * x[:, 1])], dim=-1)
    y = flow + 0.1 * torch.randn(300, 2, dtype=DTYPE, generator=torch.Generator().manual_seed(5))
    likelihood = MultitaskGaussianLikelihood(2, has_task_noise=False).double()
    model = WeightSpaceGP(on_grid(ScaleKernel(CurlFreeKernel(RBFKernel())).double(), x, 101), likelihood)
    rfgp.fit(model, x, y, progress=False, max_evaluations=25)
    assert float(likelihood.noise.detach()) == pytest.approx(0.01, rel=4.0 * math.sqrt(2.0 / 600))
    rfgp.save(model, tmp_path / "model.rfgp")
    twin = rfgp.load(tmp_path / "model.rfgp")
    torch.testing.assert_close(twin.log_marginal_likelihood(), model.log_marginal_likelihood())
    with torch.no_grad():
        far = model.posterior(torch.full((1, 2), 9.0, dtype=DTYPE))
        torch.testing.assert_close(far.mean, torch.zeros(1, 2, dtype=DTYPE))
        exact = model.covar_module.exact_kernel(x[:1]).to_dense()
        torch.testing.assert_close(far.variance.flatten(), exact.diagonal())
