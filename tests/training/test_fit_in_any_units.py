"""rfgp.fit finds the same model in any units, ends where the gradient is zero, and keeps the best on any end."""

import copy
import math
import warnings

import gpytorch
import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean
from problems import ExactModel, polynomial, regression_rows
from sklearn.datasets import load_diabetes

import rfgp
from rfgp.approximation.maps import drawn_maps
from rfgp.models import WeightSpaceGP
from rfgp.training.ascent import Maximizer, NoValueError, projected

ROWS, COLUMNS = 120, 2
KERNELS = {
    "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=COLUMNS)),
    "matern": lambda: ScaleKernel(MaternKernel(nu=1.5)),
    "rq": lambda: ScaleKernel(RQKernel()),
    "polynomial": lambda: ScaleKernel(PolynomialKernel(power=3)),
    "sum": lambda: ScaleKernel(RBFKernel(active_dims=[0])) + ScaleKernel(LinearKernel(active_dims=[1])),
}
SHIFT_INVARIANT = ("rbf", "matern", "rq")
UNITS = {
    **{f"y x {scale:g}": {"y_scale": scale} for scale in (1e-8, 1e-4, 1e4, 1e8)},
    **{f"y + {offset:g} sd": {"y_offset": offset} for offset in (1e4, 1e8)},
    **{f"x x {scale:g}": {"x_scale": scale} for scale in (1e-6, 1e3)},
    **{f"x + {offset:g}": {"x_offset": offset} for offset in (1e3, 1e6)},
}


def rows(dtype=torch.float64, x_scale=1.0, x_offset=0.0, y_scale=1.0, y_offset=0.0):
    """Inputs and targets in some units, and the standard deviation of the targets."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, COLUMNS, generator=generator, dtype=torch.float64)
    y = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * torch.randn(ROWS, generator=generator, dtype=torch.float64)
    sd = float(y.std())
    return (x_scale * (x + x_offset)).to(dtype), (y_scale * (y + y_offset * sd)).to(dtype), y_scale * sd


def trained(kernel, kind, dtype=torch.float64, mean=None, **units):
    """A trained model, its standardized evidence and its error in standard deviations of the targets."""
    x, y, sd = rows(dtype, **units)
    likelihood = GaussianLikelihood(noise_constraint=Positive())
    approximated = rfgp.approximate(KERNELS[kernel](), 32, input_dim=COLUMNS, seed=0)
    mean = ConstantMean() if mean is None else mean
    if kind == "weight space":
        model = WeightSpaceGP(approximated, likelihood, mean).to(dtype)
        summary = rfgp.fit(model, x, y)
        prediction = model.posterior(x)
    else:
        model = ExactModel(x, y, likelihood, approximated if kind == "features" else KERNELS[kernel](), mean).to(dtype)
        summary = rfgp.fit(model)
        prediction = model(x)
    error = float((prediction.mean.detach().double() - y.double()).square().mean().sqrt()) / sd
    return model, summary, summary.log_marginal_likelihood + ROWS * math.log(sd), error


@pytest.fixture(scope="module")
def references():
    """The models in plain units, made once."""
    known = {}

    def reference(kernel, kind):
        if (kernel, kind) not in known:
            known[kernel, kind] = trained(kernel, kind)
        return known[kernel, kind]

    return reference


CELLS = [(k, u) for k in KERNELS for u in UNITS if k in SHIFT_INVARIANT or not u.startswith("x +")]


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize(("kernel", "units"), CELLS, ids=[f"{k}, {u}" for k, u in CELLS])
def test_the_same_model_in_any_units(kernel, units, references):
    _, _, evidence, error = references(kernel, "weight space")
    _, summary, other, other_error = trained(kernel, "weight space", **UNITS[units])
    assert summary.converged and error < 0.6
    assert other == pytest.approx(evidence, abs=5e-6)
    assert other_error == pytest.approx(error, rel=1e-5)


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("units", ["y x 1e-08", "y + 1e+08 sd", "x x 1e-06", "x + 1e+06"])
@pytest.mark.parametrize("kind", ["features", "exact"])
def test_the_same_exact_model_in_any_units(kind, units, references):
    _, _, evidence, _ = references("rbf", kind)
    assert trained("rbf", kind, **UNITS[units])[2] == pytest.approx(evidence, abs=5e-6)


@pytest.mark.parametrize("kind", ["weight space", "features"])
@pytest.mark.parametrize("units", ["y x 1e-08", "y x 1e+08", "y + 10000 sd", "x x 1e-06", "x x 1000", "x + 1000"])
@pytest.mark.long("whole trainings; units of one output are in make test")
def test_a_usable_model_in_float32(units, kind):
    error = trained("rbf", kind, torch.float64)[3]
    assert trained("rbf", kind, torch.float32, **UNITS[units])[3] <= 1.1 * error


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize(
    "kernel", [lambda: PeriodicKernel(), lambda: SpectralMixtureKernel(num_mixtures=2)], ids=["periodic", "mixture"]
)
def test_periods_and_frequencies_start_from_the_data(kernel):
    x = torch.linspace(0.0, 3.0, 60).unsqueeze(-1)
    y = torch.sin(8.0 * x.squeeze(-1))
    values = []
    for scale in (1.0, 1e3):
        exact = kernel() if isinstance(kernel(), SpectralMixtureKernel) else ScaleKernel(kernel())
        model = WeightSpaceGP(rfgp.approximate(exact, 32, input_dim=1, seed=0), GaussianLikelihood(), ConstantMean())
        values.append(rfgp.fit(model, scale * x, y + 0.1 * torch.cos(50.0 * x.squeeze(-1)), max_evaluations=1))
    assert values[0].initial_log_marginal_likelihood == pytest.approx(values[1].initial_log_marginal_likelihood)


@pytest.mark.usefixtures("float64_default")
@pytest.mark.long("whole trainings; units of one output are in make test")
def test_tasks_in_units_of_their_own():
    x, y, _ = rows()
    both = torch.stack([y, y + x[:, 0]], dim=-1)
    evidence = []
    for units in (torch.tensor([1.0, 1.0]), torch.tensor([1e-4, 1e4])):
        torch.manual_seed(0)
        kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2, rank=1), 32, input_dim=COLUMNS, seed=0)
        likelihood = MultitaskGaussianLikelihood(2, noise_constraint=Positive(), has_global_noise=False)
        mean = gpytorch.means.MultitaskMean(ConstantMean(), 2)
        summary = rfgp.fit(WeightSpaceGP(kernel, likelihood, mean), x, units * (both + 5.0))
        evidence.append(summary.log_marginal_likelihood + ROWS * float(units.log().sum()))
    assert evidence[0] == pytest.approx(evidence[1], abs=1e-4)


@pytest.mark.usefixtures("float64_default")
@pytest.mark.long("whole trainings; units of one output are in make test")
def test_a_linear_mean_of_inputs_far_from_zero():
    evidence = []
    for x_offset, y_offset in ((0.0, 0.0), (1e5, 1e5)):
        mean = LinearMean(COLUMNS)
        evidence.append(trained("rbf", "weight space", mean=mean, x_offset=x_offset, y_offset=y_offset)[2])
    assert evidence[0] == pytest.approx(evidence[1], abs=1e-4)


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("noise", ["homoscedastic", "fixed", "several outputs"])
def test_sums_of_targets_far_from_zero_lose_no_digits(noise):
    x, y, _ = rows()
    values = []
    for offset in (0.0, 1e6):
        mean = ConstantMean()
        mean.constant = offset
        kernel, likelihood, data = KERNELS["rbf"](), GaussianLikelihood(), (x, y + offset)
        if noise == "fixed":
            likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.full((ROWS,), 1e-3))
        if noise == "several outputs":
            torch.manual_seed(0)
            kernel, likelihood = MultitaskKernel(kernel, num_tasks=2, rank=1), MultitaskGaussianLikelihood(2)
            missing = torch.arange(2 * ROWS).reshape(ROWS, 2) % 3 == 0
            data = (x, torch.where(missing, torch.nan, torch.stack([y, y.square()], -1) + offset))
        likelihood.initialize(noise=1e-3)
        model = WeightSpaceGP(rfgp.approximate(kernel, 32, input_dim=COLUMNS, seed=0), likelihood, mean)
        half = [part[: ROWS // 2] for part in data], [part[ROWS // 2 :] for part in data]
        fixed = [torch.full((ROWS // 2,), 1e-3)] * (noise == "fixed")
        model.condition(*half[0], *fixed).update(*half[1], *fixed)
        values.append(float(model.log_marginal_likelihood().detach()))
    assert values[1] == pytest.approx(values[0], abs=1e-5)


def test_a_bound_that_forbids_the_units_is_told():
    x, y, _ = rows(y_scale=1e-4)
    kernel = rfgp.approximate(KERNELS["rbf"](), 32, input_dim=COLUMNS, seed=0)
    model = WeightSpaceGP(kernel, GaussianLikelihood(), ConstantMean()).double()
    with pytest.warns(UserWarning, match=r"noise ends at the lower bound 0.0001 .*Positive\(\)"):
        rfgp.fit(model, x, y)


@pytest.mark.usefixtures("float64_default")
def test_no_bound_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained("rbf", "weight space")


@pytest.mark.usefixtures("float64_default")
def test_lengthscales_that_the_user_has_set_stay():
    x, y, _ = rows()
    model = WeightSpaceGP(rfgp.approximate(KERNELS["rbf"](), 32, input_dim=COLUMNS), GaussianLikelihood())
    model.covar_module.base_kernel.lengthscale = torch.tensor([[0.4, 7.0]])
    rfgp.fit(model, x, y, max_evaluations=1)
    torch.testing.assert_close(model.covar_module.base_kernel.lengthscale, torch.tensor([[0.4, 7.0]]))


@pytest.mark.usefixtures("float64_default")
def test_diabetes_from_defaults():
    x, y = (torch.as_tensor(part, dtype=torch.float64) for part in load_diabetes(return_X_y=True))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    test, train = order[::3], torch.cat([order[1::3], order[2::3]])
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 64, input_dim=10, seed=0)
    model = WeightSpaceGP(kernel, GaussianLikelihood(), ConstantMean())
    rfgp.fit(model, x[train], y[train])
    residual = model.posterior(x[test]).mean.detach() - y[test]
    assert 1.0 - float(residual.square().mean() / y[test].var(correction=0)) > 0.35


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("kernel", ["matern", "rbf", "polynomial"])
def test_a_second_call_gains_nothing(kernel):
    model, summary, _, _ = trained(kernel, "weight space", y_scale=100.0)
    x, y, _ = rows(y_scale=100.0)
    assert summary.converged
    again = rfgp.fit(model, x, y, strategy=rfgp.training.Auto(initialize=False))
    assert abs(again.log_marginal_likelihood - summary.log_marginal_likelihood) <= 1e-6


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_the_limit_is_exact(limit):
    model = WeightSpaceGP(polynomial(), GaussianLikelihood())
    summary = rfgp.fit(model, *[part.float() for part in regression_rows(40)], max_evaluations=limit)
    assert summary.evaluations == limit and not summary.converged
    assert "limit of evaluations" in summary.message


@pytest.mark.usefixtures("float64_default")
def test_long_parameters_are_listed_whole():
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    kernel = rfgp.approximate(ScaleKernel(RBFKernel(ard_num_dims=6)), 16, input_dim=6)
    summary = rfgp.fit(WeightSpaceGP(kernel, GaussianLikelihood()), x, x.sum(-1), max_evaluations=2)
    name = "covar_module.exact_kernel.base_kernel.lengthscale"
    assert len(summary.parameters[name]) == 6
    assert any(line.count(",") == 5 for line in str(summary).splitlines())


class Stopped(Exception):
    """Something that is no ValueError."""


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt])
@pytest.mark.parametrize("kind", ["weight space", "exact"])
def test_the_best_point_is_kept_on_any_end(kind, error, monkeypatch):
    x, y = regression_rows(40)
    model = WeightSpaceGP(polynomial(), GaussianLikelihood()) if kind == "weight space" else None
    model = ExactModel(x, y, GaussianLikelihood(), polynomial()) if model is None else model
    seen = []
    original = rfgp.training.run.Maximization.evaluate

    def evaluate(run, point, rows):
        if len(seen) == 5:
            raise error
        result = original(run, point, rows)
        seen.append((result[0], [p.detach().clone() for p in model.parameters()]))
        return result

    monkeypatch.setattr(rfgp.training.run.Maximization, "evaluate", evaluate)
    with pytest.raises(error):
        rfgp.fit(model, *((x, y) if kind == "weight space" else ()))
    best = max(seen, key=lambda pair: pair[0])[1]
    for parameter, value in zip(model.parameters(), best, strict=True):
        torch.testing.assert_close(parameter.detach(), value)
    assert model.posterior(x).mean.shape == y.shape if kind == "weight space" else not model.training


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt, ValueError])
def test_a_model_without_any_value_stays_as_it_was(error, monkeypatch):
    x, y = regression_rows(40)
    models = [
        WeightSpaceGP(polynomial(input_dim=None), GaussianLikelihood()),
        WeightSpaceGP(polynomial(), GaussianLikelihood()).condition(x[:30], y[:30]),
        ExactModel(x, y, GaussianLikelihood(), polynomial()).eval(),
    ]
    for model in models:
        before = copy.deepcopy(model.state_dict())
        mean = None if model is models[0] else prediction(model, x)
        lazy = [drawn.feature_map for drawn in drawn_maps(model)]

        def fail(*_):
            raise error("expected nothing, got an error; go on")

        with monkeypatch.context() as patch:
            patch.setattr(rfgp.training.objectives.ExactObjective, "evidence", fail)
            patch.setattr(rfgp.training.objectives.WeightSpaceObjective, "evidence", fail)
            with pytest.raises(error):
                rfgp.fit(model, x + 1.0, 2.0 * y)
        after = model.state_dict()
        assert before.keys() == after.keys()
        for name, value in before.items():
            torch.testing.assert_close(after[name], value, rtol=0.0, atol=0.0, equal_nan=True)
        assert lazy == [drawn.feature_map for drawn in drawn_maps(model)]
        assert mean is None or torch.equal(prediction(model, x), mean)
        assert model.training == (model is not models[2])


def prediction(model, x):
    """The posterior mean."""
    distribution = model.posterior(x) if isinstance(model, WeightSpaceGP) else model(x)
    return distribution.mean.detach()


@pytest.mark.usefixtures("float64_default")
def test_an_exact_model_is_checked_before_its_data_change():
    x, y = regression_rows(40)
    model = ExactModel(x, y, GaussianLikelihood(), polynomial())
    bad = y.clone()
    bad[3] = torch.nan
    for arguments, options in [((x[:30], bad[:30]), {}), ((x[:30],), {}), ((x, y), {"noise": y.abs()})]:
        with pytest.raises(ValueError, match="expected"):
            rfgp.fit(model, *arguments, **options)
        assert model.train_inputs[0] is x or torch.equal(model.train_inputs[0], x)
        assert torch.equal(model.train_targets, y)


def quadratic(point):
    """A concave function with its maximum at (1, -2)."""
    offset = point - [1.0, -2.0]
    return -float(offset @ offset), -2.0 * offset


def maximizer(evaluate, lower=(-10.0, -10.0), upper=(10.0, 10.0), limit=50, tolerance=1e-8):
    bounds = [torch.tensor(side, dtype=torch.float64).numpy() for side in (lower, upper)]
    return Maximizer(evaluate, *bounds, limit, tolerance, 1e-14)


START = torch.zeros(2, dtype=torch.float64).numpy()


def test_the_maximum_of_a_function():
    found = maximizer(quadratic).run(START)
    assert found.converged and found.point == pytest.approx([1.0, -2.0])


def test_the_maximum_at_a_bound():
    found = maximizer(quadratic, lower=(-10.0, -1.0)).run(START)
    assert found.converged and found.point == pytest.approx([1.0, -1.0])
    assert projected(found.gradient, found.point, START - [10.0, 1.0], START + 10.0) == pytest.approx([0.0, 0.0])


def test_points_without_a_value_are_left():
    def evaluate(point):
        if point[0] > 1.2 or point[1] < -2.1:
            raise NoValueError
        return quadratic(point)

    found = maximizer(evaluate).run(START)
    assert found.converged and found.point == pytest.approx([1.0, -2.0])


def test_rounding_is_told_in_plain_words():
    def evaluate(point):
        return 0.0, START + 0.1

    found = maximizer(evaluate).run(START)
    assert not found.converged
    assert "no step raises the evidence at working precision" in found.message
    assert found.message == found.message.lower()


def test_a_start_without_a_value():
    def evaluate(point):
        raise NoValueError

    with pytest.raises(NoValueError):
        maximizer(evaluate).run(START)


@pytest.mark.usefixtures("float64_default")
def test_data_of_an_exact_model_that_do_not_fit_are_refused():
    x, y = regression_rows(40)
    tasks = MultitaskGaussianLikelihood(2)
    fixed = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.ones(40), learn_additional_noise=True)
    for likelihood, new_x, new_y in [
        (GaussianLikelihood(), x, y[:, None]),
        (tasks, x, torch.stack([y, y])),
        (GaussianLikelihood(), x[:, :1], y),
        (fixed, x[:30], y[:30]),
    ]:
        model = ExactModel(x, y, likelihood, ScaleKernel(RBFKernel()))
        with pytest.raises(ValueError, match=r"expected .* got .*;"):
            rfgp.fit(model, new_x, new_y)
        assert torch.equal(model.train_targets, y)


@pytest.mark.usefixtures("float64_default")
def test_one_column_may_come_without_its_dimension():
    x, y, _ = rows()
    model = ExactModel(x[:, 0], y, GaussianLikelihood(), ScaleKernel(RBFKernel()))
    assert rfgp.fit(model, x[:, 0], y, max_evaluations=2).evaluations == 2


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("limit", [2, 200])
def test_training_again_never_loses(limit):
    model, summary, _, _ = trained("rbf", "weight space")
    x, y, _ = rows()
    again = rfgp.fit(model, x, y, max_evaluations=limit)
    assert again.log_marginal_likelihood >= summary.log_marginal_likelihood - 1e-6


@pytest.mark.usefixtures("float64_default")
def test_an_interrupt_while_starts_are_compared_keeps_the_best(monkeypatch):
    x, y, _ = rows()
    model = WeightSpaceGP(rfgp.approximate(KERNELS["rbf"](), 32, input_dim=COLUMNS, seed=0), GaussianLikelihood())
    original, values = rfgp.training.run.Maximization.evaluate, []

    def evaluate(run, point, rows):
        if len(values) == 20:
            raise KeyboardInterrupt
        values.append(original(run, point, rows))
        return values[-1]

    monkeypatch.setattr(rfgp.training.run.Maximization, "evaluate", evaluate)
    with pytest.raises(KeyboardInterrupt):
        rfgp.fit(model, x, y)
    with torch.no_grad():
        kept = float(model.condition(x, y).log_marginal_likelihood())
    best_of_a_trial = {round(max(v[2] for v in part), 6) for part in (values[:16], values[16:], values)}
    assert round(kept, 6) in best_of_a_trial


@pytest.mark.usefixtures("float64_default")
def test_inputs_that_have_moved_are_centered_again():
    model, _, evidence, _ = trained("rbf", "weight space")
    x, y, sd = rows(x_offset=1e6)
    summary = rfgp.fit(model, x, y)
    torch.testing.assert_close(model.covar_module.maps.center, x.mean(0))
    assert summary.log_marginal_likelihood + ROWS * math.log(sd) == pytest.approx(evidence, abs=1e-5)


@pytest.mark.usefixtures("float64_default")
def test_known_noise_that_gpytorch_has_raised_is_told():
    x, y, _ = rows(y_scale=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.full((ROWS,), 1e-9))
    model = ExactModel(x, y, likelihood, ScaleKernel(RBFKernel()))
    with pytest.warns(UserWarning, match="to which GPyTorch raises smaller ones"):
        rfgp.fit(model, max_evaluations=1)
