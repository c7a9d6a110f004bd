"""rfgp.fit from little data: the likelihood of subsets and blocks, what is learned, and what is refused."""

import copy
import itertools

import gpytorch
import pytest
import torch
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import (
    DirichletClassificationLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
)
from problems import CLASSES, ExactModel, model_for, rows_for

import rfgp
from rfgp.data.row_noise import weighted
from rfgp.models import WeightSpaceGP
from rfgp.models.spectral_evidence import spectral_evidence
from rfgp.training import CompositeLikelihood, auto, timing
from rfgp.training.exact_regression import exact_regression
from rfgp.training.near_rows import near_blocks
from rfgp.training.objectives import ExactObjective, WeightSpaceObjective
from rfgp.training.stationary import GaussianLogDensity, covariance

pytestmark = pytest.mark.usefixtures("float64_default")

COLUMNS = 2
KERNELS = {
    "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=4)),
    "matern 1/2": lambda: ScaleKernel(MaternKernel(nu=0.5)),
    "matern 3/2 of some columns": lambda: MaternKernel(nu=1.5, ard_num_dims=2, active_dims=[1, 3]),
    "matern 5/2": lambda: ScaleKernel(ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=4))),
    "rational quadratic": lambda: ScaleKernel(RQKernel()),
    "sum": lambda: ScaleKernel(RBFKernel() + LinearKernel()),
}


def smooth_rows(num_rows, seed=0, noise=0.1):
    """Inputs, and targets drawn from a Gaussian kernel of lengthscale one with noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, COLUMNS, generator=generator)
    with torch.no_grad():
        kernel = RBFKernel()
        kernel.lengthscale = 1.0
        matrix = kernel(x).to_dense() + noise * torch.eye(num_rows)
    return x, torch.linalg.cholesky(matrix) @ torch.randn(num_rows, generator=generator)


def wide_model(width=64, likelihood=None):
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), width, input_dim=COLUMNS, method="fourier", seed=0)
    return WeightSpaceGP(
        kernel, GaussianLikelihood() if likelihood is None else likelihood, gpytorch.means.ConstantMean()
    )


@pytest.mark.parametrize("name", KERNELS)
def test_values_and_gradients_are_those_of_dense_algebra(name):
    torch.manual_seed(0)
    x, residual = torch.randn(3, 12, 4), torch.randn(3, 12)
    kernel, noise = KERNELS[name](), torch.tensor([0.3], requires_grad=True)
    found = GaussianLogDensity.apply(covariance(kernel, x), noise, residual).sum()
    matrix = torch.stack([kernel(part).to_dense() for part in x]) + noise * torch.eye(12)
    wanted = torch.distributions.MultivariateNormal(torch.zeros(12), matrix).log_prob(residual).sum()
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    variables = [noise, *kernel.parameters()]
    slopes = (torch.autograd.grad(value, variables) for value in (found, wanted))
    for own, dense in zip(*slopes, strict=True):
        torch.testing.assert_close(own, dense, rtol=1e-8, atol=1e-8)


def narrow(model, arguments, rows):
    """The narrow objective of a weight-space model, and the exact form that it has."""
    objective = WeightSpaceObjective(model, *arguments)
    form = exact_regression(objective)
    return CompositeLikelihood(form, rows), form


@pytest.mark.parametrize("kind", ["gaussian", "fixed", "fixed+learned", "dirichlet"])
def test_the_likelihood_of_every_kind_is_that_of_gpytorch(kind):
    arguments = rows_for(kind, 24)
    x, y, noise = arguments
    model = model_for(kind)
    rows = torch.arange(24).reshape(3, 8)
    objective, _ = narrow(model, arguments, rows)
    wanted = 0.0
    for part in rows:
        likelihood = model.likelihood
        targets = y[part]
        if kind == "dirichlet":
            likelihood = DirichletClassificationLikelihood(
                targets, alpha_epsilon=model.likelihood.alpha_epsilon, dtype=torch.float64
            )
            targets = likelihood.transformed_targets
        mean = model.mean_module(x[part])
        matrix = model.covar_module.exact_kernel(x[part]).to_dense()
        if kind == "fixed+learned":
            matrix = matrix + likelihood.second_noise * torch.eye(len(part))
        if kind.startswith("fixed"):
            likelihood = FixedNoiseGaussianLikelihood(noise[part])
        if kind == "dirichlet":
            mean, matrix = mean.expand(CLASSES, -1), matrix.expand(CLASSES, -1, -1)
        prior = gpytorch.distributions.MultivariateNormal(mean, matrix)
        wanted = wanted + likelihood(prior).log_prob(targets).sum()
    found = objective.evidence()
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for own, dense in zip(
        torch.autograd.grad(found, parameters),
        torch.autograd.grad(wanted, parameters, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(own, torch.zeros_like(own) if dense is None else dense, rtol=1e-8, atol=1e-8)


def several_outputs(kind, rows):
    """A model of two outputs with the weights of its rows, or one of those of the contract, and its data."""
    if kind != "outputs":
        return model_for(kind), rows_for(kind, rows)
    x, _ = smooth_rows(rows)
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2, rank=1), 16, input_dim=COLUMNS, seed=0)
    mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), 2)
    weights = weighted(None, torch.linspace(0.5, 2.0, rows), x)
    return WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2), mean), (
        x,
        torch.stack([x[:, 0], x.sum(-1)], -1),
        weights,
    )


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("kind", ["gaussian", "fixed", "fixed+learned", "dirichlet", "outputs"])
def test_targets_given_others_have_the_joint_density_over_that_of_the_others(kind, targets):
    model, arguments = several_outputs(kind, 15)
    groups = torch.arange(15).reshape(3, 5)
    objective, form = narrow(model, arguments, groups)
    found = CompositeLikelihood(form, groups, targets).evidence()
    wanted = objective.evidence() - CompositeLikelihood(form, groups[:, :-targets]).evidence()
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    parameters = [p for p in model.parameters() if p.requires_grad]
    slopes = (torch.autograd.grad(value, parameters, allow_unused=True) for value in (found, wanted))
    for own, difference in zip(*slopes, strict=True):
        torch.testing.assert_close(own, difference, rtol=1e-7, atol=1e-7)


def test_the_likelihood_of_several_outputs():
    torch.manual_seed(0)
    x, _ = smooth_rows(20)
    y = torch.stack([x[:, 0], x.sum(-1)], dim=-1)
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2, rank=1), 16, input_dim=COLUMNS, seed=0)
    model = WeightSpaceGP(
        kernel, MultitaskGaussianLikelihood(2), gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), 2)
    )
    objective, _ = narrow(model, (x, y, None), torch.arange(20).reshape(1, 20))
    prior = gpytorch.distributions.MultitaskMultivariateNormal(model.mean_module(x), model.covar_module.exact_kernel(x))
    torch.testing.assert_close(objective.evidence(), model.likelihood(prior).log_prob(y), rtol=1e-8, atol=1e-8)
    summary = rfgp.fit(model, x, y, strategy="subset", max_evaluations=20, progress=False)
    assert summary.stages[0].name == "subset"
    rfgp.fit(WeightSpaceGP(kernel, model.likelihood), x, y, strategy="subset", max_evaluations=1, progress=False)
    with pytest.raises(ValueError, match=r"expected one target per row .* several outputs"):
        rfgp.fit(model, x, y, strategy="blocks", progress=False)


def test_a_subset_of_all_rows_is_the_exact_model():
    x, y = smooth_rows(80)
    wide = wide_model()
    rows = torch.arange(80).unsqueeze(0)
    objective, _ = narrow(wide, (x, y, None), rows)
    exact = ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel()))
    wanted = rfgp.fit(exact, strategy="evidence", progress=False)
    own = ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel()))
    summary = rfgp.fit(own, strategy="subset", progress=False)
    assert summary.log_marginal_likelihood == pytest.approx(wanted.log_marginal_likelihood, abs=1e-4)
    for name, values in wanted.parameters.items():
        assert summary.parameters[name] == pytest.approx(values, rel=1e-2, abs=1e-2)
    for source, target in (
        (exact.covar_module.raw_outputscale, wide.covar_module.raw_outputscale),
        (exact.covar_module.base_kernel.raw_lengthscale, wide.covar_module.exact_kernel.base_kernel.raw_lengthscale),
        (exact.likelihood.noise_covar.raw_noise, wide.likelihood.noise_covar.raw_noise),
        (exact.mean_module.raw_constant, wide.mean_module.raw_constant),
    ):
        target.data.copy_(source.data)
    assert float(objective.evidence()) == pytest.approx(wanted.log_marginal_likelihood, rel=1e-9)


@pytest.mark.parametrize("strategy", ["subset", "blocks"])
def test_the_noise_of_drawn_data(strategy):
    x, y = smooth_rows(1200)
    model = ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel()))
    rfgp.fit(model, strategy=strategy, progress=False)
    assert float(model.likelihood.noise) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("strategy", ["subset", "blocks", "auto"])
def test_stages_are_told(strategy, monkeypatch):
    monkeypatch.setattr(auto, "SMALL", 100)
    x, y = smooth_rows(400)
    model = wide_model()
    summary = rfgp.fit(model, x, y, strategy=strategy, progress=False)
    names = [stage.name for stage in summary.stages]
    assert names[-2:] == ["feature model", "noise, scale and mean"]
    assert {"blocks", "subset", "evidence"} <= set(names) if strategy == "auto" else names[0] == strategy
    assert summary.evaluations == sum(stage.evaluations for stage in summary.stages[:-1])
    for stage in summary.stages:
        assert f"  {stage}" in str(summary).splitlines()
    with torch.no_grad():
        assert float(model.log_marginal_likelihood()) == pytest.approx(summary.log_marginal_likelihood, rel=1e-12)
        assert rfgp.diagnostics.rmse(model.posterior(x).mean, y) < 0.5


def test_few_rows_have_the_evidence():
    x, y = smooth_rows(60)
    own, wanted = wide_model(), wide_model()
    first, second = rfgp.fit(own, x, y, progress=False), rfgp.fit(wanted, x, y, strategy="evidence", progress=False)
    assert first.log_marginal_likelihood == second.log_marginal_likelihood
    assert [stage.name for stage in first.stages] == ["evidence"] and first.converged


def test_the_spectrum_has_the_evidence_of_the_model():
    x, y = smooth_rows(300)
    model = wide_model().condition(x, y)
    evidence = spectral_evidence(model)
    free = [model.likelihood.noise_covar.raw_noise, model.covar_module.raw_outputscale, model.mean_module.raw_constant]
    model.likelihood.noise, model.covar_module.outputscale, model.mean_module.constant = 0.03, 2.0, 0.4
    own, wanted = evidence.value(), model.log_marginal_likelihood()
    torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-9)
    slopes = (torch.autograd.grad(value, free) for value in (own, wanted))
    for first, second in zip(*slopes, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-8, atol=1e-8)


def test_models_whose_statistics_contain_the_noise_are_not_rescaled():
    x, y, noise = rows_for("fixed", 50)
    model = model_for("fixed").condition(x, y, noise)
    assert spectral_evidence(model) is None


def test_blocks_are_near_rows():
    points = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    rows = near_blocks(points, 20, 1000)
    assert rows.shape == (50, 20) and len(rows.unique()) == 1000
    spread = points[rows].var(-2).mean()
    assert spread < 0.5 * points.var(0).mean()
    assert torch.equal(near_blocks(points, 20, 7), near_blocks(points, 20, 7))
    assert near_blocks(points, 20, 7).shape == (7, 20)


REFUSED = {
    "complex targets": lambda: (model_for("complex"), *rows_for("complex", 30)),
    "complex features": lambda: (model_for("gaussian", "complex"), *rows_for("gaussian", 30)),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("strategy", ["subset", "blocks"])
def test_models_without_the_likelihood_are_refused_and_stay(name, strategy):
    model, x, y, noise = REFUSED[name]()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r'expected real .* use strategy="evidence"'):
        rfgp.fit(model, x, y, noise=noise, strategy=strategy, progress=False)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0.0, atol=0.0, equal_nan=True)


def test_classes_have_no_blocks():
    x, y, _ = rows_for("dirichlet", 30)
    with pytest.raises(ValueError, match="expected one target per row for blocks"):
        rfgp.fit(model_for("dirichlet"), x, y, strategy="blocks", progress=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"strategy": "all"},
            "expected one of auto, evidence, subset, blocks, neighbors, leave_one_out, minibatches, average for",
        ),
        ({"strategy": None}, "expected one of"),
        ({"time_limit": 0.0}, "time_limit"),
        ({"time_limit": "long"}, "time_limit"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        rfgp.fit(wide_model(), *smooth_rows(30), progress=False, **options)


@pytest.mark.parametrize("strategy", ["subset", "blocks"])
def test_bad_data_leave_the_model(strategy):
    x, y = smooth_rows(60)
    model = wide_model().condition(x, y)
    statistics, before = model.statistics, [p.detach().clone() for p in model.parameters()]
    y[5] = float("nan")
    with pytest.raises(ValueError, match="expected"):
        rfgp.fit(model, x, y, strategy=strategy, progress=False)
    assert model.statistics is statistics
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("strategy", ["subset", "blocks"])
def test_a_failure_without_any_value_leaves_the_model(strategy, monkeypatch):
    x, y = smooth_rows(60)
    model = wide_model().condition(x, y)
    mean, before = model.posterior(x).mean.detach(), copy.deepcopy(model.state_dict())

    def fail(*_):
        raise ValueError("expected nothing, got an error; go on")

    monkeypatch.setattr(CompositeLikelihood, "evidence", fail)
    with pytest.raises(ValueError, match="expected nothing"):
        rfgp.fit(model, x, y, strategy=strategy, progress=False)
    assert torch.equal(model.posterior(x).mean.detach(), mean)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0.0, atol=0.0, equal_nan=True)


def test_an_interrupt_leaves_the_best_parameters_and_a_fitted_model(monkeypatch):
    x, y = smooth_rows(200)
    model, original, calls = wide_model(), CompositeLikelihood.evidence, itertools.count()

    def interrupted(*arguments):
        if next(calls) == 12:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(CompositeLikelihood, "evidence", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rfgp.fit(model, x, y, strategy="blocks", progress=False)
    assert model.posterior(x).mean.shape == y.shape


@pytest.mark.parametrize("strategy", ["evidence", "subset", "blocks"])
def test_time_limits_number_of_evaluations(strategy, monkeypatch):
    x, y = smooth_rows(300)
    ticks = itertools.count()
    monkeypatch.setattr(timing, "clock", lambda: float(next(ticks)))
    short = rfgp.fit(wide_model(), x, y, strategy=strategy, time_limit=30.0, progress=False)
    long = rfgp.fit(wide_model(), x, y, strategy=strategy, time_limit=1000.0, progress=False)
    assert 1 <= short.evaluations <= 10 < long.evaluations
    assert "time limit" in short.message


@pytest.mark.parametrize("strategy", ["subset", "blocks"])
@pytest.mark.parametrize("units", [{"y": 1e-4}, {"y": 1e6}, {"x": 1e-3}, {"x": 1e4}])
def test_the_same_model_in_any_units(strategy, units):
    x, y = smooth_rows(300)
    found = []
    for own in ({}, units):
        likelihood = GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive())
        model = wide_model(likelihood=likelihood)
        rfgp.fit(model, own.get("x", 1.0) * x, own.get("y", 1.0) * y, strategy=strategy, progress=False)
        found.append(model.posterior(own.get("x", 1.0) * x).mean.detach() / own.get("y", 1.0))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


def test_an_exact_model_with_known_noise_is_refused():
    x, y = smooth_rows(40)
    model = ExactModel(x, y, FixedNoiseGaussianLikelihood(torch.full((40,), 0.1)), ScaleKernel(RBFKernel()))
    with pytest.raises(ValueError, match="expected an ExactGP with a Gaussian likelihood"):
        exact_regression(ExactObjective(model, None, None))


def test_float32():
    x, y = (part.float() for part in smooth_rows(300))
    summary = rfgp.fit(wide_model().float(), x, y, strategy="blocks", progress=False)
    assert summary.parameters["likelihood.noise_covar.noise"][0] == pytest.approx(0.1, rel=0.3)
