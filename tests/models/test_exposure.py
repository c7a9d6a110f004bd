"""Counts that rows have collected over different exposures: sums of rows, dense algebra, a linear model, coverage."""

import dense_laplace as dense
import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean

import rfgp
from rfgp.data import ArraySource
from rfgp.likelihoods import NegativeBinomialLikelihood, PoissonLikelihood
from rfgp.models import LaplaceGP
from rfgp.training.laplace import LaplaceObjective
from rfgp.training.latent_rows import LatentRows

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS = 40
TEST = torch.linspace(0.1, 3.9, 9, dtype=torch.float64).unsqueeze(-1)
KINDS = pytest.mark.parametrize("make", [PoissonLikelihood, NegativeBinomialLikelihood])


def rows(seed=0, num_rows=ROWS):
    """Inputs, counts and exposures from a tenth to ten."""
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(num_rows, 1, generator=generator)
    exposure = 10.0 ** (2.0 * torch.rand(num_rows, generator=generator) - 1.0)
    rate = torch.exp(1.0 + torch.sin(2.0 * x.squeeze(-1)))
    return x, torch.poisson(exposure * rate, generator=generator), exposure


def model_of(x, likelihood=None, constant=0.3, **settings):
    exact = ScaleKernel(MaternKernel(nu=1.5))
    exact.outputscale, exact.base_kernel.lengthscale = 0.8, 0.9
    kernel = rfgp.approximate(exact, 12, method="landmarks", train_inputs=x, seed=0)
    mean = ConstantMean()
    mean.constant.data.fill_(constant)
    return LaplaceGP(kernel, likelihood or PoissonLikelihood(), mean, **settings)


def parts_of_rows(x, y, exposure):
    """Every row as three, among which its exposure and its count are divided."""
    generator = torch.Generator().manual_seed(7)
    shares = torch.rand(len(x), 3, generator=generator) + 0.1
    shares = shares / shares.sum(-1, keepdim=True)
    first = torch.floor(y * shares[:, 0])
    second = torch.floor((y - first) * shares[:, 1])
    counts = torch.stack([first, second, y - first - second], dim=-1)
    return x.repeat_interleave(3, 0), counts.flatten(), (exposure.unsqueeze(-1) * shares).flatten()


def gradients(model):
    model.zero_grad()
    model.log_marginal_likelihood().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("settings", [{}, {"block_size": 1000, "num_neighbors": None}])
def test_counts_of_single_rows_say_the_same_as_their_sums(settings):
    x, y, exposure = rows()
    whole = model_of(x, **settings).condition(x, y, exposure=exposure)
    *single_rows, own = parts_of_rows(x, y, exposure)
    single = model_of(x, **settings).condition(*single_rows, exposure=own)
    found, expected = whole.posterior(TEST), single.posterior(TEST)
    torch.testing.assert_close(found.mean, expected.mean, rtol=0.0, atol=1e-7)
    torch.testing.assert_close(found.variance, expected.variance, rtol=0.0, atol=1e-7)
    torch.testing.assert_close(gradients(whole), gradients(single), rtol=0.0, atol=1e-6)


def test_training_by_sums_finds_what_training_by_single_rows_finds():
    x, y, exposure = rows()
    whole, single, gains = model_of(x), model_of(x), []
    for model, data in ((whole, (x, y, exposure)), (single, parts_of_rows(x, y, exposure))):
        before = float(model_of(x).condition(*data[:2], exposure=data[2]).log_marginal_likelihood())
        summary = rfgp.fit(model, *data[:2], exposure=data[2], progress=False)
        assert summary.converged
        gains.append(summary.log_marginal_likelihood - before)
    assert gains[0] > 0.5 and abs(gains[0] - gains[1]) < 1e-6
    found, expected = whole.posterior(TEST), single.posterior(TEST)
    torch.testing.assert_close(found.mean, expected.mean, rtol=0.0, atol=1e-5)  # at a maximum known to 1e-6 nats
    error = (found.mean - 1.0 - torch.sin(2.0 * TEST.squeeze(-1))) / found.stddev
    assert float(error.square().mean().sqrt()) < 2.0


@KINDS
@pytest.mark.parametrize("settings", [{}, {"block_size": 16}, {"block_size": 16, "num_neighbors": None}])
def test_an_exposure_of_all_rows_is_a_part_of_the_mean(make, settings):
    x, y, _ = rows()
    plain = model_of(x, make(), 0.3 + np.log(2.5), **settings).condition(x, y)
    found = model_of(x, make(), 0.3, **settings).condition(x, y, exposure=torch.full((ROWS,), 2.5))
    torch.testing.assert_close(found.posterior(TEST).mean + np.log(2.5), plain.posterior(TEST).mean)
    torch.testing.assert_close(found.posterior(TEST).variance, plain.posterior(TEST).variance)
    torch.testing.assert_close(gradients(found), gradients(plain))
    counts = found.likelihood(found.posterior(TEST), exposure=torch.full((9,), 2.5))
    torch.testing.assert_close(counts.mean, plain.likelihood(plain.posterior(TEST)).mean)


@pytest.mark.parametrize("block_size", [None, 12])
def test_tables_of_counts_have_a_table_of_exposures(block_size):
    x, y, _ = rows()
    table, exposure = torch.stack([y, y + 1.0], dim=-1), torch.full((ROWS, 2), 2.5)
    table[:5, 1] = torch.nan
    exact = MultitaskKernel(ScaleKernel(RBFKernel()), num_tasks=2, rank=1)

    def model(constant):
        kernel = rfgp.approximate(exact, 12, method="landmarks", train_inputs=x, seed=0)
        mean = ConstantMean()
        mean.constant.data.fill_(constant)
        return LaplaceGP(kernel, PoissonLikelihood(), mean, block_size=block_size)

    plain = model(0.3 + np.log(2.5)).condition(x, table)
    found = model(0.3).condition(x, table, exposure=exposure)
    torch.testing.assert_close(found.posterior(TEST).mean + np.log(2.5), plain.posterior(TEST).mean)
    torch.testing.assert_close(gradients(found), gradients(plain))


@KINDS
def test_exposures_are_those_of_dense_algebra(make):
    x, y, exposure = rows()
    model = model_of(x, make()).condition(x, y, exposure=exposure)
    points = torch.cat([x, TEST])
    with torch.no_grad():
        features = model.covar_module.features(points)
        prior = (features @ features.mT).numpy()
    shift, new = exposure.log().numpy(), np.full(len(TEST), 0.3)

    def derivatives(f):
        if make is PoissonLikelihood:
            return dense.poisson(f, y.numpy())
        return dense.negative_binomial(f, y.numpy(), float(model.likelihood.dispersion))

    old = slice(ROWS)
    parts = prior[old, old], 0.3 + shift, prior[ROWS:, old], prior[ROWS:, ROWS:], new
    expected = dense.laplace(derivatives, *parts)
    found = model.posterior(TEST)
    np.testing.assert_allclose(float(model.log_marginal_likelihood()), expected.evidence, rtol=1e-9)
    np.testing.assert_allclose(found.mean.detach(), expected.mean, rtol=1e-7)


def test_rows_that_come_later_and_loaders_have_exposures_too(tmp_path):
    x, y, exposure = rows()
    at_once = model_of(x, block_size=1000).condition(x, y, exposure=exposure)
    later = model_of(x, block_size=1000).condition(x[:30], y[:30], exposure=exposure[:30])
    rfgp.save(later, tmp_path / "model.pt", with_rows=True)
    for model in (later, rfgp.load(tmp_path / "model.pt")):
        model.update(x[30:], y[30:], exposure=exposure[30:])
        torch.testing.assert_close(model.posterior(TEST).mean, at_once.posterior(TEST).mean)
    batches = [(x[part], y[part], exposure[part]) for part in (slice(0, 25), slice(25, None))]
    whole = model_of(x).condition(x, y, exposure=exposure)
    torch.testing.assert_close(model_of(x).condition(batches).posterior(TEST).mean, whole.posterior(TEST).mean)


def test_strategies_of_few_rows_see_exposures():
    x, y, exposure = rows(num_rows=60)
    model = model_of(x)
    observations = LatentRows(LaplaceObjective(model, x, y, exposure))
    given = torch.arange(40).unsqueeze(0)
    exact = LaplaceGP(
        rfgp.approximate(model.covar_module.exact_kernel, 40, method="landmarks", train_inputs=x[:40], seed=0),
        model.likelihood,
        model.mean_module,
    ).condition(x[:40], y[:40], exposure=exposure[:40])
    with torch.no_grad():
        found = observations.log_densities(given, 40)
        torch.testing.assert_close(found.squeeze(), exact.log_marginal_likelihood(), rtol=1e-6, atol=0.0)
        predicted = observations.log_densities(torch.arange(60).unsqueeze(0), 20)
        expected = exact.likelihood.log_marginal(y[40:], exact.posterior(x[40:]), exposure=exposure[40:])
    torch.testing.assert_close(predicted.squeeze(), expected.sum(), rtol=1e-3, atol=0.0)


def test_a_linear_kernel_is_penalized_poisson_regression():
    sklearn = pytest.importorskip("sklearn.linear_model")
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(200, 3, generator=generator)
    exposure = 10.0 ** (2.0 * torch.rand(200, generator=generator) - 1.0)
    y = torch.poisson(exposure * torch.exp(x @ torch.tensor([0.5, -0.3, 0.2]) + 0.4), generator=generator)
    alpha = 0.05
    reference = sklearn.PoissonRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    reference.fit(x.numpy(), (y / exposure).numpy(), sample_weight=exposure.numpy())
    exact, mean = LinearKernel(), ConstantMean()
    exact.variance = 1.0 / (alpha * float(exposure.sum()))
    mean.constant.data.fill_(float(reference.intercept_))
    model = LaplaceGP(rfgp.approximate(exact, 3, method="linear", input_dim=3), PoissonLikelihood(), mean)
    model.condition(x, y, exposure=exposure)
    np.testing.assert_allclose(model.posterior(x).mean.detach().exp(), reference.predict(x.numpy()), rtol=1e-6)


def test_intervals_of_rates_cover_them():
    generator, shares, level = torch.Generator().manual_seed(5), [], 0.9
    exact = ScaleKernel(RBFKernel())
    exact.outputscale, exact.base_kernel.lengthscale = 0.5, 1.0
    quantile = float(torch.special.ndtri(torch.tensor(0.5 + 0.5 * level)))
    for _ in range(60):
        x = 4.0 * torch.rand(50, 1, generator=generator)
        kernel = rfgp.approximate(exact, 50, method="landmarks", train_inputs=x, seed=0)
        mean = ConstantMean()
        mean.constant.data.fill_(1.0)
        points = torch.cat([x, TEST])
        covariance = exact(points).to_dense().detach() + 1e-8 * torch.eye(59)
        f = 1.0 + torch.linalg.cholesky(covariance) @ torch.randn(59, generator=generator)
        exposure = 10.0 ** (3.0 * torch.rand(50, generator=generator) - 1.0)
        y = torch.poisson(exposure * f[:50].exp(), generator=generator)
        latent = LaplaceGP(kernel, PoissonLikelihood(), mean).condition(x, y, exposure=exposure).posterior(TEST)
        shares.append((latent.mean - f[50:]).abs() <= quantile * latent.stddev)
    by_set = torch.stack(shares).double().mean(-1)
    error = float(by_set.std()) / len(by_set) ** 0.5
    assert abs(float(by_set.mean()) - level) < 3.0 * error


def test_exposures_that_cannot_be_are_refused():
    x, y, exposure = rows()
    model = model_of(x).condition(x, y)
    before = model.posterior(TEST).mean
    for bad in (
        torch.zeros(ROWS),
        -exposure,
        exposure[:5],
        exposure.unsqueeze(-1),
        exposure > 0.0,
        2.0,
        exposure / 0.0,
    ):
        with pytest.raises(ValueError, match=r"^expected .*exposure"):
            model.condition(x, y, exposure=bad)
    with pytest.raises(ValueError, match=r"^expected .*noise"):
        model.condition(ArraySource(x, y, noise=exposure))
    with pytest.raises(ValueError, match="has no exposure"):
        LaplaceGP(model.covar_module, gpytorch.likelihoods.BernoulliLikelihood()).condition(x, y > 3, exposure=exposure)
    torch.testing.assert_close(model.posterior(TEST).mean, before, rtol=0.0, atol=0.0)


def test_variational_bounds_take_exposures_as_gpytorch_passes_them():
    x, y, exposure = rows()
    kernel = model_of(x).covar_module

    def bound(likelihood, offset, **given):
        mean = ConstantMean()
        mean.constant.data.fill_(offset)
        model = rfgp.models.WeightSpaceVariationalGP(kernel, likelihood, mean)
        return gpytorch.mlls.VariationalELBO(likelihood, model, num_data=ROWS)(model(x), y, **given)

    for make in (PoissonLikelihood, NegativeBinomialLikelihood):
        expected = bound(make(), 0.3 + np.log(2.5))
        torch.testing.assert_close(bound(make(), 0.3, exposure=torch.full((ROWS,), 2.5)), expected)
        assert float(bound(make(), 0.3, exposure=exposure)) != float(expected)
