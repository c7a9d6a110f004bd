"""Learned noise that depends on the inputs: the bound against dense algebra, its maximum, training, and failures."""

import copy
import math
import pickle

import gpytorch
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean, ZeroMean
from torch.utils.flop_counter import FlopCounterMode

import rfgp
from rfgp.models import HeteroscedasticGP, WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")
WIDTH, ROWS = 24, 60


def scaled(seed, **kwargs):
    exact = ScaleKernel(RBFKernel())
    exact.base_kernel.lengthscale = 0.4
    return rfgp.approximate(exact, WIDTH, input_dim=1, seed=seed, **kwargs)


def rows(count=ROWS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, generator=generator)
    noise = 0.05 + 0.6 * x[:, 0].square()
    return x, torch.sin(6.0 * x[:, 0]) + noise * torch.randn(count, generator=generator), noise.square()


def single(method="auto", x=None):
    kernel = scaled(0, method=method, train_inputs=x) if x is not None else scaled(0, method=method)
    return HeteroscedasticGP(kernel, scaled(1), ConstantMean())


def tasks(outputs=2):
    exact = MultitaskKernel(RBFKernel(), num_tasks=outputs, rank=0)
    exact.data_covar_module.lengthscale = 0.4
    kernel = rfgp.approximate(exact, WIDTH, input_dim=1, seed=0)
    return HeteroscedasticGP(kernel, scaled(1), MultitaskMean(ConstantMean(), num_tasks=outputs))


@pytest.mark.parametrize("method", ["landmarks", "fourier_grid"])
def test_training_leaves_the_state_and_the_posterior_of_condition(method):
    """Of features that lack variance, which the sums of its bound contain, and those of its posterior do not."""
    x, y, _ = rows()

    def make():
        kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 9, method=method, train_inputs=x, seed=0)
        return HeteroscedasticGP(kernel, scaled(1), ConstantMean())

    model, loaded, again = make(), make(), make()
    rfgp.fit(model, x, y, max_evaluations=2, progress=False)
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(loaded.posterior(x).variance, model.posterior(x).variance)
    again.load_state_dict(model.state_dict())
    again.condition(x, y)
    torch.testing.assert_close(again.posterior(x).mean, model.posterior(x).mean, rtol=0.0, atol=1e-6)
    torch.testing.assert_close(again.posterior(x).variance, model.posterior(x).variance, rtol=0.0, atol=1e-6)


def test_bound_is_no_more_than_the_evidence_and_reaches_it_for_noise_that_is_known():
    x, y, _ = rows()
    exact = WeightSpaceGP(scaled(0), GaussianLikelihood(), ConstantMean())
    exact.likelihood.noise = 0.1
    evidence = float(exact.condition(x, y).log_marginal_likelihood())
    model = single()
    model.log_noise.mean_module.initialize(constant=math.log(0.1))
    for scale, least in ((1e-2, 1.0), (1e-10, 1e-6)):
        model.log_noise.covar_module.outputscale = scale
        assert abs(model.condition(x, y).bound - evidence) < least
    torch.testing.assert_close(model.noise_variance(x), torch.full((ROWS,), 0.1), rtol=1e-6, atol=0.0)
    torch.testing.assert_close(model.posterior(x).mean, exact.posterior(x).mean, rtol=1e-6, atol=1e-8)


def test_independent_outputs_are_models_of_their_own():
    x, y, _ = rows()
    both = torch.stack([y, 2.0 + 0.5 * y.flip(0)], dim=-1)
    both[3, 0] = both[7, 1] = math.nan
    model = tasks()
    with torch.no_grad():
        model.covar_module.exact_kernel.task_covar_module.var = torch.tensor([1.0, 1.0])
    model.condition(x, both)
    assert model.noise_variance(x).shape == model.posterior(x).mean.shape == model.log_prob(x, both).shape == (ROWS, 2)
    total = 0.0
    for output in range(2):
        alone = HeteroscedasticGP(scaled(0), scaled(1), ConstantMean())
        alone.covar_module.outputscale = 1.0
        known = ~torch.isnan(both[:, output])
        alone.condition(x[known], both[known, output])
        total += alone.bound
        torch.testing.assert_close(model.noise_variance(x)[:, output], alone.noise_variance(x), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(model.posterior(x).mean[:, output], alone.posterior(x).mean, rtol=1e-4, atol=1e-5)
    assert abs(model.bound - total) < 1e-6
    assert torch.isnan(model.log_prob(x, both)).sum() == 2


@pytest.mark.parametrize("mean", [None, ConstantMean()])
def test_one_mean_for_several_outputs(mean):
    x, y, _ = rows()
    both = torch.stack([y, 0.5 * y.flip(0)], dim=-1)
    kernels = tasks().covar_module, scaled(1)
    parts = ConstantMean() if mean else ZeroMean()
    wanted = HeteroscedasticGP(*copy.deepcopy(kernels), MultitaskMean(parts, num_tasks=2)).condition(x, both)
    model = HeteroscedasticGP(*kernels, mean).condition(x, both)
    assert model.bound == pytest.approx(wanted.bound, rel=1e-9)
    torch.testing.assert_close(model.predictive(x).mean, wanted.predictive(x).mean)
    assert rfgp.fit(model, x, both, max_evaluations=2, progress=False).log_marginal_likelihood > wanted.bound


def test_data_of_several_outputs_cost_no_more_than_a_gram_matrix_of_their_features():
    x, y, _ = rows()
    both, model = torch.stack([y, y.flip(0)], dim=-1), tasks()
    with FlopCounterMode(display=False) as products:
        model.parts(x, both)
    assert products.get_total_flops() <= 2 * both.numel() * (2 * WIDTH) ** 2


@pytest.mark.long("three whole trainings")
def test_training_learns_the_noise_in_any_units():
    x, y, variances = rows(400)
    model = single()
    summary = rfgp.fit(model, x, y, progress=False)
    assert summary.converged
    learned = model.noise_variance(x)
    assert (learned.log() - variances.log()).abs().mean() < 0.35
    known = WeightSpaceGP(scaled(0), gpytorch.likelihoods.FixedNoiseGaussianLikelihood(variances), ConstantMean())
    common = WeightSpaceGP(scaled(0), GaussianLikelihood(), ConstantMean())
    rfgp.fit(known, x, y, progress=False)
    rfgp.fit(common, x, y, progress=False)
    xs, ys, truth = rows(2000, seed=1)
    density = model.log_prob(xs, ys).mean()
    best = known.likelihood(known.posterior(xs), noise=truth)
    worst = common.likelihood(common.posterior(xs))
    assert density > _density(best, ys) - 0.03
    assert density > _density(worst, ys) + 0.2
    inside = (ys - model.predictive(xs).mean).abs() < 1.96 * model.predictive(xs).stddev
    assert abs(inside.double().mean() - 0.95) < 0.03
    other = single()
    rfgp.fit(other, x, 1e4 * y + 1e6, progress=False)
    torch.testing.assert_close(other.noise_variance(xs) / 1e8, model.noise_variance(xs), rtol=1e-3, atol=0.0)


def _density(distribution, y):
    return torch.distributions.Normal(distribution.mean, distribution.stddev).log_prob(y).mean()


def test_log_prob_integrates_to_one():
    x, y, _ = rows()
    model = single()
    model.log_noise.mean_module.initialize(constant=-2.0)
    model.condition(x, y)
    grid = torch.linspace(-30.0, 30.0, 20001)
    density = model.log_prob(x[:1].expand(len(grid), 1), grid).exp()
    assert abs(torch.trapezoid(density, grid) - 1.0) < 1e-3
    predicted = model.predictive(x[:1])
    variance = torch.trapezoid(density * (grid - predicted.mean).square(), grid)
    torch.testing.assert_close(variance, predicted.variance.squeeze(0), rtol=1e-3, atol=0.0)


def test_log_prob_of_an_outlier_finds_the_log_noise_that_explains_it():
    x, y, _ = rows(300)
    model = single().condition(x, y)
    point, value = x[:1], torch.tensor([30.0])
    function, log_noise = model.posterior(point), model.log_noise.posterior(point)
    g = torch.linspace(-20.0, 20.0, 40_001)
    normal = torch.distributions.Normal
    terms = normal(log_noise.mean, log_noise.stddev).log_prob(g)
    terms = terms + normal(function.mean, (function.variance + g.exp()).sqrt()).log_prob(value)
    torch.testing.assert_close(
        model.log_prob(point, value), terms.logsumexp(0, True) + math.log(1e-3), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("make", [single, tasks])
def test_states_copies_and_pickles_keep_predictions(make):
    x, y, _ = rows()
    targets = y if make is single else torch.stack([y, -y], dim=-1)
    model = make().condition(x, targets)
    wanted = model.log_prob(x, targets)
    fresh = make()
    fresh.load_state_dict(model.state_dict())
    for other in (fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other.log_prob(x, targets), wanted)


def test_rows_without_a_target_are_left_out():
    x, y, _ = rows()
    missing = torch.where(y > 0.8, math.nan, y)
    model, wanted = single(), single()
    model.condition(x, missing)
    wanted.condition(x[y <= 0.8], y[y <= 0.8])
    assert model.bound == wanted.bound
    assert torch.equal(model.log_prob(x, y), wanted.log_prob(x, y))
    assert math.isfinite(rfgp.fit(model, x, missing, max_evaluations=2, progress=False).log_marginal_likelihood)


@pytest.mark.parametrize("y", [torch.ones(1), torch.zeros(60)], ids=["one row", "zeros"])
@pytest.mark.filterwarnings("ignore:24 features exceed")
def test_targets_without_noise_are_fitted(y):
    """Their rounding bounds the noise from below, so that regressions can be computed on any kind of processor."""
    y, (x, _, _) = y.double(), rows(len(y))
    model = HeteroscedasticGP(scaled(0), scaled(1))
    summary = rfgp.fit(model, x, y, max_evaluations=11, progress=False)
    assert summary.log_marginal_likelihood >= summary.initial_log_marginal_likelihood
    assert torch.isfinite(model.log_prob(x, y)).all()
    assert model.noise_variance(x).min() > 1e-14
    torch.testing.assert_close(model.posterior(x).mean, y, rtol=0.0, atol=1e-3)


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_no_noise_is_learned_that_is_too_small_for_the_scale_of_the_kernel(scale):
    """Rounding of a regression grows with the sum of prior variances: fits ended where the posterior had no factor."""
    (x, _, _), model = rows(200), HeteroscedasticGP(scaled(0), scaled(1))
    model.covar_module.outputscale = scale
    posterior = model.condition(x, torch.zeros(200)).posterior(x)
    assert posterior.mean.abs().max() == 0.0 and torch.isfinite(posterior.variance).all()


def test_an_error_at_the_end_of_training_leaves_the_model_as_it_was(monkeypatch):
    def fail(*args):
        raise ValueError("expected a regression, got none")

    x, y, _ = rows()
    model = single()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    monkeypatch.setattr(HeteroscedasticGP, "set", fail)
    with pytest.raises(ValueError, match="expected a regression"):
        rfgp.fit(model, x, y, max_evaluations=3, progress=False)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0.0, atol=0.0, equal_nan=True)


def test_wrong_data_are_refused_and_nothing_is_lost():
    x, y, _ = rows()
    model = single().condition(x, y)
    wanted, bound = model.log_prob(x, y), model.bound
    wrong = [
        (x, y[:-1]),
        (x[0, 0], y),
        (x, torch.full_like(y, math.nan)),
        (x, y.long()),
        (x * math.inf, y),
        (x, torch.where(y > 0, math.inf, y)),
        (torch.cat([x, x], -1), y),
        ([x], y),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match="expected"):
            model.condition(*arguments)
        with pytest.raises(ValueError, match="expected"):
            rfgp.fit(model, *arguments, progress=False)
    for arguments in ({"noise": y.square()}, {"strategy": "blocks"}):
        with pytest.raises(ValueError, match="expected"):
            rfgp.fit(model, x, y, progress=False, **arguments)
    with pytest.raises(ValueError, match="expected y of shape"):
        model.log_prob(x, y[:3])
    for other in (y > 0, y.to(torch.complex128)):
        with pytest.raises(ValueError, match="expected floating-point y"):
            model.log_prob(x, other)
    with pytest.raises(ValueError, match="expected"):
        model.load_state_dict(tasks().state_dict())
    for kernels in ((scaled(0), RBFKernel()), (scaled(0, method="fourier:complex"), scaled(1))):
        with pytest.raises(ValueError, match="expected"):
            HeteroscedasticGP(*kernels)
    assert model.bound == bound and torch.equal(model.log_prob(x, y), wanted)
