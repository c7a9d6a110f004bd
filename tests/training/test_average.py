"""Averages over the parameters of exact models: densities, draws, predictions, and what is refused."""

import math

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import AdditiveKernel, LinearKernel, MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
    StudentTLikelihood,
)
from gpytorch.means import LinearMean
from gpytorch.priors import GammaPrior, LogNormalPrior, UniformPrior
from problems import ExactModel
from torch.distributions import Categorical, Gamma, Normal

import rfgp
from rfgp.models import LaplaceGP, NormalMixture, ParameterAverage, WeightSpaceGP
from rfgp.training import Average
from rfgp.training.average import _CoordinatePosterior
from rfgp.training.coordinate_prior import CoordinatePrior
from rfgp.training.objectives import ExactObjective
from rfgp.training.run import Maximization
from rfgp.training.starts import median_distances

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("error:The input matches the stored training data"),
    pytest.mark.filterwarnings("ignore:the fit is no better than a constant"),
]


@pytest.fixture
def few_proposals(monkeypatch):
    """Draws of fewer proposals, for tests that ask of any draws and not how well they stand for the posterior."""
    monkeypatch.setattr("rfgp.training.average._PROPOSALS", (64, 64, 0))


NEW = torch.tensor([[0.1], [0.5], [0.9], [2.0]], dtype=torch.float64)


def rows(count, dim=1, noise=0.3):
    x = torch.rand(count, dim)
    return x, torch.sin(6.0 * x[:, 0]) + noise * torch.randn(count)


def zero_mean_model(x, y):
    """Two parameters with weak priors and one with a registered prior."""
    kernel = ScaleKernel(RBFKernel(), outputscale_prior=GammaPrior(2.0, 1.5))
    return ExactModel(x, y, GaussianLikelihood(), kernel, gpytorch.means.ZeroMean())


def landmark_model(x):
    kernel = rfgp.approximate(ScaleKernel(MaternKernel(nu=2.5)), len(x), method="landmarks", train_inputs=x, seed=0)
    return WeightSpaceGP(kernel, GaussianLikelihood(), gpytorch.means.ConstantMean())


def averaged(model, x, y, **options):
    return rfgp.fit(model, x, y, strategy="average", progress=False, **options).average


def dense_moments(kernel, mean, noise, x, y, new):
    """Means and variances of the function, by an inverse."""
    inverse = torch.linalg.inv(kernel(x).to_dense() + noise * torch.eye(len(x)))
    cross = kernel(new, x).to_dense()
    variance = kernel(new, new).to_dense().diagonal() - (cross @ inverse * cross).sum(-1)
    return mean(new) + cross @ inverse @ (y - mean(x)), variance


@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["exact", "own forward", "landmarks"])
def test_each_draw_predicts_as_dense_algebra_does_and_the_mixture_is_their_mean(kind, few_proposals):
    x, y = rows(20, 2)

    class Sum(ExactModel):
        def forward(self, x):
            covariance = self.covar_module(x) + self.other(x)
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), covariance)

    if kind == "landmarks":
        model = landmark_model(x)
    else:
        model = (ExactModel if kind == "exact" else Sum)(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel()))
    if kind == "own forward":
        model.other = ScaleKernel(LinearKernel(variance_prior=LogNormalPrior(0.0, 1.0)))
        for part in (model.covar_module, model.other):
            part.register_prior("outputscale_prior", LogNormalPrior(0.0, 1.0), "outputscale")
        model.covar_module.base_kernel.register_prior("lengthscale_prior", LogNormalPrior(0.0, 1.0), "lengthscale")
        model.likelihood.register_prior("noise_prior", LogNormalPrior(-2.0, 1.0), "noise")
    average, new = averaged(model, x, y), torch.rand(5, 2)
    latent, noisy, parts = average.posterior(new), average.predictive(new), []
    with torch.no_grad():
        for member in average.members:
            kernel = member.covar_module
            kernel = kernel + member.other if kind == "own forward" else getattr(kernel, "exact_kernel", kernel)
            parts.append(dense_moments(kernel, member.mean_module, member.likelihood.noise, x, y, new))
        noises = torch.cat([member.likelihood.noise for member in average.members])
    means, variances = (torch.stack(part, -1) for part in zip(*parts, strict=True))
    assert len(average.members) == 24 and float(noises.std()) > 0.0
    tolerance = 1e-6 if kind == "landmarks" else 1e-8  # landmarks have a jitter of 1e-8 of the variance
    for found, extra in ((latent, torch.zeros(24)), (noisy, noises)):
        torch.testing.assert_close(found.component_distribution.mean, means, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(found.component_distribution.variance, variances + extra, rtol=1e-8, atol=tolerance)
        spread = (variances + extra).mean(-1) + means.var(-1, correction=0)
        torch.testing.assert_close(found.variance, spread, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(average(new).mean, latent.mean)


def test_landmarks_at_all_rows_end_where_the_exact_model_does(few_proposals):
    x, y = rows(25, 2)
    exact = ExactModel(x, y, GaussianLikelihood(), ScaleKernel(MaternKernel(nu=2.5)))
    found = [rfgp.fit(model, x, y, strategy="average", progress=False) for model in (landmark_model(x), exact)]
    values = [sorted(value for part in summary.parameters.values() for value in part) for summary in found]
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    assert found[0].log_marginal_likelihood == pytest.approx(found[1].log_marginal_likelihood, abs=1e-4)


def log_density(x, y, logs):
    """The log posterior density (...) of log lengthscale, output scale and noise (..., 3) of zero_mean_model."""
    length, scale, noise = logs.exp().unbind(-1)
    squares = (x - x.mT).square()
    matrix = scale[..., None, None] * torch.exp(-0.5 * squares / length[..., None, None] ** 2)
    matrix = matrix + noise[..., None, None] * torch.eye(len(x))
    normal = torch.distributions.MultivariateNormal(torch.zeros(len(x)), matrix)
    centers = torch.stack([median_distances(x).log().squeeze(), (0.1 * y.var(correction=0)).log()])
    weak = Normal(centers, 1.5).log_prob(logs[..., [0, 2]]).sum(-1)
    return normal.log_prob(y) + weak + Gamma(2.0, 1.5).log_prob(scale) + logs[..., 1]


def test_the_density_is_that_of_logarithms_with_registered_and_weak_priors():
    x, y = rows(12)
    model = zero_mean_model(x, y)
    objective = ExactObjective(model, x, y)
    model.covar_module.base_kernel.lengthscale = 0.01  # which the weak priors do not look at
    objective.prior = CoordinatePrior(objective)
    assert model.covar_module.base_kernel.lengthscale.item() == pytest.approx(0.01)
    run = Maximization(objective, False, 1)
    run.ascend()
    posterior = _CoordinatePosterior(run)
    names = [member.name.rpartition(".")[2] for member in run.coordinates.members]
    order = [names.index(name) for name in ("lengthscale", "outputscale", "noise")]
    points = [np.array([-1.0, 0.3, -2.0]), np.array([0.5, -1.0, -4.0])]
    losses, expected = [], []
    for point in points:
        vector = np.empty(3)
        vector[order] = point
        value, gradient = posterior.loss(vector)
        assert posterior.loss(vector, has_gradient=False)[0] == pytest.approx(value, rel=1e-12)
        steps = 1e-5 * np.eye(3)
        slopes = [(posterior.loss(vector + s)[0] - posterior.loss(vector - s)[0]) / 2e-5 for s in steps]
        np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-6)
        losses.append(value)
        expected.append(-float(log_density(x, y, torch.from_numpy(point))))
    assert losses[0] - losses[1] == pytest.approx(expected[0] - expected[1], abs=1e-8)
    assert posterior.loss(np.full(3, -99.0))[0] == math.inf


def test_moments_of_predictions_are_those_of_an_integral_over_a_grid(monkeypatch):
    monkeypatch.setattr("rfgp.training.average._DRAWS", (200, 200, 0))
    monkeypatch.setattr("rfgp.training.average._PROPOSALS", (2048, 2048, 0))  # whose own error is small beside
    x, y = rows(15)
    model = zero_mean_model(x, y)
    average = averaged(model, x, y)
    axes = (torch.linspace(-4.5, 3.0, 31), torch.linspace(-4.0, 3.0, 29), torch.linspace(-7.0, 2.0, 37))
    logs = torch.cartesian_prod(*axes)
    weights = torch.softmax(log_density(x, y, logs), 0)
    table = weights.reshape(31, 29, 37)
    assert all(float(table.movedim(axis, 0)[[0, -1]].sum()) < 1e-3 for axis in range(3))
    means, seconds = [], []
    for length, scale, noise in logs[weights > 1e-9].exp():
        covariance = scale * torch.exp(-0.5 * (x - x.mT).square() / length**2) + noise * torch.eye(15)
        cross = scale * torch.exp(-0.5 * (NEW - x.mT).square() / length**2)
        solved = torch.linalg.solve(covariance, torch.cat([y.unsqueeze(-1), cross.mT], -1))
        means.append(cross @ solved[:, 0])
        seconds.append(means[-1].square() + scale + noise - (cross * solved[:, 1:].mT).sum(-1))
    kept = weights[weights > 1e-9]
    exact, square = kept @ torch.stack(means), kept @ torch.stack(seconds)
    found, count = average.predictive(NEW), len(average.members)
    normals = found.component_distribution
    for values, expected in ((normals.mean, exact), (normals.mean**2 + normals.variance, square)):
        error = (values.mean(-1) - expected).abs() / (values.std(-1) / count**0.5)
        assert bool((error < 3.0).all()), error
    with torch.no_grad():
        point = (
            model(NEW).variance + model.likelihood.noise
        ).sqrt()  # at the most probable parameters, whose intervals are narrower
    assert float(found.stddev.log().mean()) > float(point.log().mean())


def test_intervals_cover_on_problems_drawn_from_the_priors(monkeypatch):
    monkeypatch.setattr("rfgp.training.average._PROPOSALS", (160, 160, 0))  # for 24 draws of three parameters
    shares, levels = [], []
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        length, scale, noise = torch.exp(
            torch.tensor([-1.0, 0.0, -2.0]) + torch.tensor([0.7, 0.7, 0.7]) * torch.randn(3, generator=generator)
        )
        x = torch.rand(60, 1, generator=generator)
        kernel = ScaleKernel(RBFKernel(lengthscale_prior=LogNormalPrior(-1.0, 0.7)), LogNormalPrior(0.0, 0.7))
        likelihood = GaussianLikelihood(noise_prior=LogNormalPrior(-2.0, 0.7))
        covariance = scale * torch.exp(-0.5 * (x - x.mT).square() / length**2) + noise * torch.eye(60)
        y = torch.linalg.cholesky(covariance) @ torch.randn(60, generator=generator)
        average = averaged(ExactModel(x[:12], y[:12], likelihood, kernel, gpytorch.means.ZeroMean()), None, None)
        found = average.predictive(x[12:])
        level = found.cdf(y[12:])
        levels.append(float(level.mean()))
        shares.append(float(((level > 0.1) & (level < 0.9)).double().mean()))
        inside = (y[12:] > found.icdf(0.1)) & (y[12:] < found.icdf(0.9))
        assert float(inside.double().mean()) == shares[-1]
    for values, expected in ((levels, 0.5), (shares, 0.8)):
        assert abs(np.mean(values) - expected) < 3.0 * np.std(values, ddof=1) / 6**0.5


def test_quantiles_invert_the_distribution_function():
    found = NormalMixture(
        Categorical(torch.tensor([[0.3, 0.7], [0.5, 0.5]])), Normal(torch.randn(2, 2), torch.ones(2, 2))
    )
    levels = torch.tensor([[1e-6], [0.3], [0.999]])
    assert found.icdf(levels).shape == (3, 2)
    torch.testing.assert_close(found.cdf(found.icdf(levels)), levels.expand(3, 2), rtol=1e-9, atol=1e-12)
    for bad in (0.0, 1.0, -1.0, math.nan, torch.tensor([0.5, 2.0])):
        with pytest.raises(ValueError, match="expected levels between 0 and 1"):
            found.icdf(bad)


def test_the_model_ends_at_the_most_probable_parameters_and_training_again_gives_the_same(few_proposals):
    x, y = rows(20, 2)
    model = ExactModel(x, y, GaussianLikelihood(), ScaleKernel(MaternKernel(ard_num_dims=2)), LinearMean(2))
    first = rfgp.fit(model, strategy="average", progress=False)
    names = [stage.name for stage in first.stages]
    assert names == ["mode", "average"] and "24 draws" in str(first) and not model.training
    covariance = model.covar_module(x).to_dense() + model.likelihood.noise * torch.eye(20)
    evidence = torch.distributions.MultivariateNormal(model.mean_module(x), covariance).log_prob(y)
    assert first.log_marginal_likelihood == pytest.approx(evidence.item(), abs=1e-8)
    objective = ExactObjective(model, x, y)
    objective.prior = CoordinatePrior(objective)
    run = Maximization(objective, False, 1)
    gradient = run.evaluate(run.coordinates.values(), None)[1]
    assert float(np.abs(gradient).max()) < 2e-6
    again = rfgp.fit(model, x, y, strategy=Average(initialize=False), progress=False)
    for name, values in first.parameters.items():
        assert values == pytest.approx(again.parameters[name], rel=1e-8), name
    new = torch.rand(3, 2)
    stds = [part.average.predictive(new).stddev for part in (first, again)]
    torch.testing.assert_close(*stds, rtol=1e-8, atol=0.0)
    assert rfgp.fit(model, x, y, strategy="evidence", progress=False).average is None
    assert all(p.grad is None for p in model.parameters())


def test_units_of_inputs_and_targets_change_nothing(few_proposals):
    x, y = rows(20)
    found = []
    for unit in (1.0, 1e3):
        likelihood = GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive())
        model = ExactModel(x, y, likelihood, ScaleKernel(RBFKernel()))
        mixture = averaged(model, unit * x, y / unit).predictive(unit * NEW)
        found.append(unit * torch.stack([mixture.mean, mixture.stddev, mixture.icdf(0.1)]))
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


def test_a_prior_with_an_end_keeps_draws_inside(few_proposals):
    x, y = rows(20)
    kernel = ScaleKernel(RBFKernel(lengthscale_prior=UniformPrior(0.4, 0.6)))
    kernel.base_kernel.lengthscale = 0.5
    model = ExactModel(x, y, GaussianLikelihood(), kernel)
    lengths = torch.cat([m.covar_module.base_kernel.lengthscale for m in averaged(model, x, y).members])
    assert float(lengths.min()) >= 0.4 and float(lengths.max()) <= 0.6 and float(lengths.std()) > 0.0


def test_many_rows_begin_with_few_and_a_time_limit_is_kept():
    x, y = rows(620)
    model = ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel()))
    summary = rfgp.fit(model, strategy="average", progress=False)
    assert [stage.name for stage in summary.stages] == ["subset", "mode", "average"] and summary.converged
    assert len(summary.average.members) == 11
    late = rfgp.fit(model, strategy="average", time_limit=1e-6, progress=False)
    assert late.average is not None and late.stages[-1].rows != "all rows" and late.stages[-1].evaluations == 11


class Interrupted(Exception):
    pass


def test_an_interrupt_leaves_the_most_probable_parameters(monkeypatch, few_proposals):
    x, y = rows(20)
    models = [ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel())) for _ in range(2)]
    rfgp.fit(models[0], strategy="average", progress=False)

    def stop(*args):
        raise Interrupted

    monkeypatch.setattr(_CoordinatePosterior, "model_at", stop)
    with pytest.raises(Interrupted):
        rfgp.fit(models[1], strategy="average", progress=False)
    for (name, value), other in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(value, other, msg=name)
    torch.testing.assert_close(models[0](NEW).mean, models[1](NEW).mean)


def few_landmarks(x):
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 8, method="landmarks", train_inputs=x, seed=0)
    return WeightSpaceGP(kernel, GaussianLikelihood())


def random_features(x):
    return WeightSpaceGP(rfgp.approximate(RBFKernel(), 64, input_dim=1, seed=0), GaussianLikelihood())


def several_outputs(x, y):
    likelihood, kernel = MultitaskGaussianLikelihood(2), MultitaskKernel(RBFKernel(), 2)
    return ExactModel(x, y, likelihood, kernel, gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), 2))


def exact(kernel=None, mean=None, likelihood=None):
    def make(x, y):
        likely = GaussianLikelihood() if likelihood is None else likelihood(x)
        return ExactModel(x, y, likely, ScaleKernel(RBFKernel()) if kernel is None else kernel(), mean and mean())

    return make


class OwnMean(gpytorch.means.Mean):
    def __init__(self):
        super().__init__()
        self.register_parameter("slope", torch.nn.Parameter(torch.ones(())))

    def forward(self, x):
        return self.slope * x.squeeze(-1)


def prior_of_two():
    kernel = ScaleKernel(RBFKernel())
    closure = lambda module: module.outputscale / module.base_kernel.lengthscale.squeeze()  # noqa: E731
    kernel.register_prior("ratio", LogNormalPrior(0.0, 1.0), closure, lambda module, value: None)
    return kernel


def approximated():
    return rfgp.approximate(RBFKernel(), 16, input_dim=1, seed=0)


def student(x):
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=1, seed=0)
    return LaplaceGP(kernel, StudentTLikelihood())


def two(x, y):
    return x, torch.stack([y, -y], -1)


def narrow(x, y):
    return x.float(), y.float()


@pytest.mark.parametrize(
    ("make", "data", "options", "message"),
    [
        (lambda x, y: few_landmarks(x), None, {}, "one for each row"),
        (lambda x, y: random_features(x), None, {}, 'method="landmarks"'),
        (
            lambda x, y: student(x),
            None,
            {},
            'expected strategy to be one of "auto", "evidence", "subset" for a Laplace',
        ),
        (several_outputs, two, {}, "expected a GaussianLikelihood"),
        (exact(likelihood=lambda x: FixedNoiseGaussianLikelihood(torch.ones(20))), None, {}, "a GaussianLikelihood"),
        (exact(kernel=approximated), None, {}, "an exact kernel"),
        (exact(kernel=lambda: RBFKernel(batch_shape=torch.Size([2]))), None, {}, "without batch shape"),
        (exact(mean=OwnMean), None, {}, "expected a prior for each parameter .* mean_module.slope"),
        (exact(kernel=prior_of_two), None, {}, "expected priors of one parameter each"),
        (exact(), lambda x, y: (x.repeat(76, 1), y.repeat(76)), {}, "at most 1500 rows"),
        (lambda x, y: exact()(x, y).float(), narrow, {}, "float64"),
        (lambda x, y: landmark_model(x), None, {"weights": torch.ones(20)}, "no noise and weights"),
        (lambda x, y: landmark_model(x), lambda x, y: ([(x, y)], None), {}, "batches from a loader"),
        (exact(), lambda x, y: (x, y.where(y > y.min(), torch.nan)), {}, "without NaN"),
    ],
)
def test_what_has_no_average_is_refused_and_stays_as_it_was(make, data, options, message):
    x, y = rows(20)
    given = (x, y) if data is None else data(x, y)
    model = make(*given) if given[1] is not None and len(given[0]) == 20 else make(x, y)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs = getattr(model, "train_inputs", None)
    with pytest.raises(ValueError, match=message):
        rfgp.fit(model, *given, strategy="average", progress=False, **options)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0.0, atol=0.0, equal_nan=True, msg=name)
    assert getattr(model, "train_inputs", None) is inputs


def test_bad_inputs_of_an_average_are_refused(few_proposals):
    x, y = rows(12, 2)
    average = averaged(ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel())), x, y)
    with pytest.raises(ValueError, match="expected"):
        average.predictive(torch.rand(3, 1))
    with pytest.raises(ValueError, match="expected"):
        average.posterior([[0.0, 1.0]])


def test_averages_of_landmarks_are_saved_and_those_of_exact_models_are_refused(tmp_path, few_proposals):
    x, y = rows(15)
    average = averaged(landmark_model(x), x, y)
    rfgp.save(average, tmp_path / "average.pt")
    loaded = rfgp.load(tmp_path / "average.pt")
    assert isinstance(loaded, ParameterAverage)
    torch.testing.assert_close(loaded.predictive(NEW).variance, average.predictive(NEW).variance)
    exact_one = averaged(ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel())), x, y)
    with pytest.raises(ValueError, match="an ExactGP, at members"):
        rfgp.save(exact_one, tmp_path / "exact.pt")


def test_gradients_in_the_inputs(few_proposals):
    x, y = rows(12)
    average = averaged(ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel())), x, y)
    new = NEW.clone().requires_grad_()
    average.posterior(new).mean.sum().backward()
    step = 1e-6
    with torch.no_grad():
        slope = (average.posterior(NEW + step).mean - average.posterior(NEW - step).mean) / (2.0 * step)
    torch.testing.assert_close(new.grad.squeeze(-1), slope, rtol=1e-5, atol=1e-6)


def test_a_sum_of_kernels_finds_the_input_that_says_something():
    x, y = rows(25, 2)
    kernel = AdditiveKernel(*(ScaleKernel(RBFKernel(active_dims=[column])) for column in range(2)))
    average = averaged(ExactModel(x, y, GaussianLikelihood(), kernel), x, y)
    logs = torch.stack([torch.stack([part.outputscale for part in m.covar_module.kernels]) for m in average.members])
    assert float(logs[:, 0].log().mean()) > float(logs[:, 1].log().mean())  # the second input says nothing
