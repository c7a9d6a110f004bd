"""rfgp.fit: the optimum it reaches, priors, frozen parameters, what it returns and what it refuses."""

import copy
import math

import gpytorch
import pytest
import torch
from gpytorch.kernels import PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.priors import GammaPrior, NormalPrior
from problems import (
    CLASSES,
    INPUTS,
    KINDS,
    ExactModel,
    likelihood_for,
    model_for,
    no_graph,
    polynomial,
    regression_rows,
    rows_for,
)

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP
from rfgp.training.objectives import ExactObjective

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS = 60


def evidence(model, *arguments):
    """The evidence of a weight-space model of these data."""
    with torch.no_grad():
        return float(copy.deepcopy(model).condition(*arguments).log_marginal_likelihood())


def exact_evidence(model):
    """The evidence of an ExactGP by a dense Cholesky factor."""
    x, y = model.train_inputs[0], model.train_targets
    with torch.no_grad():
        matrix = copy.deepcopy(model.covar_module)(x).to_dense()
        offset, noise = model.mean_module(x), model.likelihood.noise.expand(len(y))
        return float(torch.distributions.MultivariateNormal(offset, matrix + torch.diag(noise)).log_prob(y))


@pytest.mark.smoke
def test_weight_space_and_exact_models_reach_the_same_evidence():
    x, y = regression_rows(ROWS)
    kernel = polynomial()
    weight_space = WeightSpaceGP(kernel, GaussianLikelihood(), gpytorch.means.ConstantMean())
    exact = ExactModel(x, y, GaussianLikelihood(), copy.deepcopy(kernel))
    first, second = rfgp.fit(weight_space, x, y), rfgp.fit(exact)
    assert first.converged and second.converged
    assert first.initial_log_marginal_likelihood == pytest.approx(second.initial_log_marginal_likelihood, rel=1e-9)
    assert first.log_marginal_likelihood == pytest.approx(second.log_marginal_likelihood, rel=1e-3)
    assert first.log_marginal_likelihood == pytest.approx(evidence(weight_space, x, y), rel=1e-9)
    assert second.log_marginal_likelihood == pytest.approx(exact_evidence(exact), rel=1e-9)
    assert first.log_marginal_likelihood > first.initial_log_marginal_likelihood + 1.0


@pytest.mark.parametrize("method", ["fourier", "landmarks"])
def test_a_scale_around_features_learns_what_features_of_a_scale_learn(method):
    x, y = regression_rows(ROWS)
    options = {"method": method, "train_inputs": x, "seed": 0}
    outside = ScaleKernel(rfgp.approximate(RBFKernel(), 16, **options))
    inside = rfgp.approximate(ScaleKernel(RBFKernel()), 16, **options)
    found = [
        rfgp.fit(WeightSpaceGP(kernel, GaussianLikelihood()), x, y, strategy="evidence") for kernel in (outside, inside)
    ]
    assert found[0].log_marginal_likelihood == pytest.approx(found[1].log_marginal_likelihood, rel=1e-6)
    learned = [sorted(value for values in summary.parameters.values() for value in values) for summary in found]
    assert len(learned[0]) == 3 and learned[0] == pytest.approx(learned[1], rel=1e-3)


def test_the_gradient_vanishes_at_the_optimum():
    x, y = regression_rows(ROWS)
    model = WeightSpaceGP(polynomial(), GaussianLikelihood(), gpytorch.means.ConstantMean())
    start = torch.autograd.grad(model.condition(x, y).log_marginal_likelihood(), list(model.parameters()))
    rfgp.fit(model, x, y)
    end = torch.autograd.grad(model.condition(x, y).log_marginal_likelihood(), list(model.parameters()))
    assert max(g.abs().max() for g in end) <= 1e-2 * max(g.abs().max() for g in start)


def test_the_noise_of_simulated_data_is_recovered():
    num_rows, std = 600, 0.3
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, INPUTS, generator=generator)
    kernel = polynomial(width=16)
    with torch.no_grad():
        weights = torch.randn(16, generator=generator)
        y = kernel.features(x) @ weights + std * torch.randn(num_rows, generator=generator)
    model = WeightSpaceGP(kernel, GaussianLikelihood())
    rfgp.fit(model, x, y)
    standard_error = std**2 * math.sqrt(2.0 / (num_rows - 16))
    assert abs(model.likelihood.noise.item() - std**2) <= 5.0 * standard_error


@pytest.mark.parametrize("kind", KINDS)
def test_training_raises_the_evidence_and_leaves_a_fitted_model(kind):
    arguments = rows_for(kind, ROWS)
    if kind == "dirichlet":
        x = arguments[0]
        arguments = (x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long(), None)
    model = model_for(kind)
    x, y, noise = arguments
    before = evidence(model, *arguments)
    summary = rfgp.fit(model, x, y, noise=noise, strategy=rfgp.training.Auto(initialize=False))
    assert summary.initial_log_marginal_likelihood == pytest.approx(before, rel=1e-9)
    assert summary.log_marginal_likelihood > before + 1.0
    with torch.no_grad():
        assert float(model.log_marginal_likelihood()) == pytest.approx(summary.log_marginal_likelihood, rel=1e-12)
        trained = no_graph(model.posterior(x[:5]))
        fresh = no_graph(copy.deepcopy(model).condition(*arguments).posterior(x[:5]))
    torch.testing.assert_close(trained, fresh)
    assert not model.statistics.gram.requires_grad
    assert len(model.training_data) == 1
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    with torch.no_grad():
        model.update(*[a if a is None else a[:3] for a in arguments])


@pytest.mark.parametrize("kind", ["gaussian", "complex", "dirichlet"])
def test_the_start_does_not_depend_on_the_present_parameters(kind):
    x, y, _ = rows_for(kind, ROWS)
    models = [model_for(kind), model_for(kind)]
    models[0].covar_module.outputscale, models[0].mean_module.constant = 50.0, 7.0
    starts = [rfgp.fit(model, x, y, max_evaluations=1).initial_log_marginal_likelihood for model in models]
    assert starts[0] == pytest.approx(starts[1], rel=1e-12)


def all_priors(model):
    """The priors of the parts of a model that are GPyTorch modules."""
    return [prior for part in model.children() if hasattr(part, "named_priors") for prior in part.named_priors()]


def log_prior(model):
    priors = all_priors(model)
    return sum(prior.log_prob(closure(module)).sum().item() for _, module, prior, closure, _ in priors), len(priors)


@pytest.mark.parametrize("make", ["weight space", "exact"])
def test_priors_move_the_optimum_and_count_once(make):
    x, y = regression_rows(ROWS)
    priors = {"outputscale_prior": GammaPrior(50.0, 10.0)}
    noise_prior = NormalPrior(1.5, 0.01)

    def build(with_priors):
        kernel = polynomial(**(priors if with_priors else {}))
        likelihood = GaussianLikelihood(noise_prior=noise_prior if with_priors else None)
        if make == "exact":
            return ExactModel(x, y, likelihood, kernel)
        return WeightSpaceGP(kernel, likelihood, gpytorch.means.ConstantMean())

    free, informed = build(False), build(True)
    data = () if make == "exact" else (x, y)
    at_free, at_informed = rfgp.fit(free, *data), rfgp.fit(informed, *data)
    assert abs(informed.likelihood.noise.item() - 1.5) <= 0.05 < abs(free.likelihood.noise.item() - 1.5)
    assert at_informed.log_marginal_likelihood < at_free.log_marginal_likelihood - 0.1
    value, count = log_prior(informed)
    assert count == 2
    moved = build(True)
    moved.load_state_dict(free.state_dict(), strict=False)
    assert at_informed.log_marginal_likelihood + value > at_free.log_marginal_likelihood + log_prior(moved)[0]
    gradient = torch.autograd.grad(objective(informed, x, y), list(informed.parameters()))
    assert max(float(g.abs().max()) for g in gradient) <= 0.05


def objective(model, x, y):
    priors = sum(prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in all_priors(model))
    if isinstance(model, WeightSpaceGP):
        return model.condition(x, y).log_marginal_likelihood() + priors
    return model.likelihood(model.train()(x)).log_prob(y) + priors


@pytest.mark.parametrize("name", ["noise", "outputscale", "offset", "constant"])
def test_frozen_parameters_stay(name):
    x, y = regression_rows(ROWS)
    model = WeightSpaceGP(polynomial(), GaussianLikelihood(), gpytorch.means.ConstantMean())
    frozen = {n: p for n, p in model.named_parameters() if name in n}
    assert len(frozen) == 1
    (parameter,) = frozen.values()
    parameter.requires_grad_(False)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    summary = rfgp.fit(model, x, y)
    for n, p in model.named_parameters():
        assert torch.equal(p, before[n]) == (p is parameter), n
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood


def test_summary():
    x, y = regression_rows(ROWS)
    model = WeightSpaceGP(polynomial(), GaussianLikelihood(), gpytorch.means.ConstantMean())
    summary = rfgp.fit(model, x, y)
    assert isinstance(summary, rfgp.training.FitSummary)
    assert 1 < summary.evaluations <= 200 and summary.seconds > 0.0 and isinstance(summary.message, str)
    values = {
        "covar_module.exact_kernel.outputscale": model.covar_module.outputscale,
        "covar_module.exact_kernel.base_kernel.offset": model.covar_module.base_kernel.offset,
        "likelihood.noise_covar.noise": model.likelihood.noise,
        "mean_module.constant": model.mean_module.constant,
    }
    assert summary.parameters.keys() == values.keys()
    lines = str(summary).splitlines()
    assert f"{summary.log_marginal_likelihood:.6g}" in lines[0] and f"{summary.evaluations} evaluations" in lines[0]
    for name, value in values.items():
        assert summary.parameters[name] == pytest.approx(value.detach().reshape(-1).tolist())
        assert any(line.strip() == f"{name} = {value.item():.4g}" for line in lines[1:])


def test_a_limit_on_evaluations():
    x, y = regression_rows(ROWS)
    few = rfgp.fit(WeightSpaceGP(polynomial(), GaussianLikelihood()), x, y, max_evaluations=2)
    many = rfgp.fit(WeightSpaceGP(polynomial(), GaussianLikelihood()), x, y)
    assert not few.converged and few.evaluations < many.evaluations
    assert few.log_marginal_likelihood < many.log_marginal_likelihood


@pytest.mark.parametrize("shown", [False, True])
def test_progress(shown, capsys):
    rfgp.fit(WeightSpaceGP(polynomial(), GaussianLikelihood()), *regression_rows(20), progress=shown)
    assert ("fit" in capsys.readouterr().err) == shown


def test_an_exact_model_with_an_exact_kernel():
    x, y = regression_rows(ROWS)
    model = ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel()))
    summary = rfgp.fit(model)
    assert summary.log_marginal_likelihood == pytest.approx(exact_evidence(model), rel=1e-9)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    assert not model.training and not model.likelihood.training
    with torch.no_grad():
        assert rfgp.diagnostics.rmse(model(x + 1e-6).mean, y) < y.std()


def test_an_exact_model_of_many_rows_uses_cholesky_factors(monkeypatch):
    def forbidden(*arguments, **options):
        raise AssertionError("conjugate gradients were called")

    monkeypatch.setattr("linear_operator.utils.linear_cg", forbidden)
    x, y = regression_rows(850)
    model = ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel()))
    summary = rfgp.fit(model, max_evaluations=3)
    assert summary.log_marginal_likelihood == pytest.approx(exact_evidence(model), rel=1e-9)


@pytest.mark.parametrize("is_singular", [False, True])
def test_the_likelihood_of_an_exact_model_and_its_gradient_are_those_of_gpytorch(is_singular):
    x, y = regression_rows(ROWS)
    if is_singular:  # to which GPyTorch adds a jitter
        x, y = x[[0]].expand(ROWS, -1), y[0].expand(ROWS)
    likelihood = GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive())
    likelihood.noise = 1e-18 if is_singular else 0.1
    model = ExactModel(x, y, likelihood, ScaleKernel(RBFKernel()))
    values = [ExactObjective(model, x, y).evidence(), likelihood(model(x)).log_prob(y)]
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-10)
    slopes = [torch.autograd.grad(value, list(model.parameters()), retain_graph=True) for value in values]
    for found, expected in zip(*slopes, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_an_exact_model_takes_new_data():
    x, y = regression_rows(ROWS)
    new_x, new_y = regression_rows(30, seed=5)
    model = ExactModel(x, y, GaussianLikelihood(), polynomial())
    summary = rfgp.fit(model, new_x, new_y)
    assert model.train_inputs[0].shape == new_x.shape
    assert summary.log_marginal_likelihood == pytest.approx(exact_evidence(model), rel=1e-9)
    with torch.no_grad():
        assert model(x[:4]).mean.shape == (4,)


def test_an_exact_model_of_classes():
    x, labels, _ = rows_for("dirichlet", ROWS)
    shape = torch.Size([CLASSES])
    likelihood = DirichletClassificationLikelihood(labels)
    kernel, mean = polynomial(batch_shape=shape), gpytorch.means.ConstantMean(batch_shape=shape)
    exact = ExactModel(x, likelihood.transformed_targets, likelihood, kernel, mean)
    weight_space = WeightSpaceGP(
        polynomial(batch_shape=shape), likelihood_for("dirichlet"), gpytorch.means.ConstantMean(batch_shape=shape)
    )
    first, second = rfgp.fit(exact), rfgp.fit(weight_space, x, labels)
    assert first.initial_log_marginal_likelihood == pytest.approx(second.initial_log_marginal_likelihood, rel=1e-9)
    assert first.log_marginal_likelihood == pytest.approx(second.log_marginal_likelihood, rel=1e-3)


def weight_space():
    return WeightSpaceGP(polynomial(), GaussianLikelihood())


def exact(x, y):
    return ExactModel(x, y, GaussianLikelihood(), polynomial())


def spoil(value):
    value = value.clone()
    value.view(-1)[4] = float("nan")
    return value


BAD = {
    "no data": lambda x, y: rfgp.fit(weight_space()),
    "no targets": lambda x, y: rfgp.fit(weight_space(), x),
    "NaN in x": lambda x, y: rfgp.fit(weight_space(), spoil(x), y),
    "NaN in y": lambda x, y: rfgp.fit(weight_space(), x, spoil(y)),
    "fewer y": lambda x, y: rfgp.fit(weight_space(), x, y[:-1]),
    "integer x": lambda x, y: rfgp.fit(weight_space(), x.long(), y),
    "noise": lambda x, y: rfgp.fit(weight_space(), x, y, noise=torch.ones_like(y)),
    "no noise": lambda x, y: rfgp.fit(WeightSpaceGP(polynomial(), likelihood_for("fixed")), x, y),
    "float labels": lambda x, y: rfgp.fit(WeightSpaceGP(polynomial(), likelihood_for("dirichlet")), x, y),
    "complex features": lambda x, y: rfgp.fit(model_for("gaussian", "complex"), x, y),
    "limit": lambda x, y: rfgp.fit(weight_space(), x, y, max_evaluations=0),
    "half a limit": lambda x, y: rfgp.fit(weight_space(), x, y, max_evaluations=1.5),
    "another model": lambda x, y: rfgp.fit(torch.nn.Linear(3, 1), x, y),
    "nothing to train": lambda x, y: rfgp.fit(weight_space().requires_grad_(False), x, y),
    "exact model without data": lambda x, y: rfgp.fit(exact(None, None)),
    "exact model, NaN in x": lambda x, y: rfgp.fit(exact(spoil(x), y)),
    "exact model, NaN in y": lambda x, y: rfgp.fit(exact(x, spoil(y))),
    "exact model, new NaN in y": lambda x, y: rfgp.fit(exact(x, y), x, spoil(y)),
    "exact model, fewer y": lambda x, y: rfgp.fit(exact(x, y[:-1])),
    "exact model, integer x": lambda x, y: rfgp.fit(exact(x.long(), y)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_raise(case):
    with pytest.raises(ValueError, match="expected"):
        BAD[case](*regression_rows(20))


def test_bad_data_leave_a_fitted_model():
    x, y = regression_rows(ROWS)
    model = model_for("gaussian").condition(x, y)
    statistics, before = model.statistics, [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ValueError, match="expected"):
        rfgp.fit(model, x, spoil(y))
    assert model.statistics is statistics
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_float32():
    x, y = (value.float() for value in regression_rows(400))
    torch.set_default_dtype(torch.float32)
    model = WeightSpaceGP(polynomial(), GaussianLikelihood(), gpytorch.means.ConstantMean())
    summary = rfgp.fit(model, x, y)
    torch.set_default_dtype(torch.float64)
    reference = WeightSpaceGP(polynomial(), GaussianLikelihood(), gpytorch.means.ConstantMean())
    assert summary.log_marginal_likelihood == pytest.approx(
        rfgp.fit(reference, x.double(), y.double()).log_marginal_likelihood, rel=1e-2
    )


def test_fixed_noise_of_an_exact_model():
    x, y, noise = rows_for("fixed", ROWS)
    kernel = rfgp.approximate(ScaleKernel(PolynomialKernel(power=2)), 12, input_dim=INPUTS, seed=0)
    exact = ExactModel(x, y, FixedNoiseGaussianLikelihood(noise), kernel)
    weight_space = WeightSpaceGP(polynomial(), likelihood_for("fixed"), gpytorch.means.ConstantMean())
    first, second = rfgp.fit(exact), rfgp.fit(weight_space, x, y, noise=noise)
    assert first.log_marginal_likelihood == pytest.approx(second.log_marginal_likelihood, rel=1e-3)
