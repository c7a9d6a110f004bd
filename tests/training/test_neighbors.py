"""Parameters from rows given those near them: scores equal to dense algebra, and what the strategy finds."""

import math

import gpytorch
import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import LinearKernel, MaternKernel, MultitaskKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean
from torch.distributions import MultivariateNormal, StudentT

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.linalg import last_rows
from rfgp.linalg.prediction_errors import prediction_errors, student_log_density
from rfgp.training.classes import class_moments, transformed
from rfgp.training.composite_likelihood import CompositeLikelihood
from rfgp.training.independent_outputs import covariances_of, joint_factors
from rfgp.training.near_rows import NearRows, near_groups, searches
from rfgp.training.neighbors import NeighborObjective, ParametersAlone
from rfgp.training.output_variances import profiled_variances
from rfgp.training.prediction_errors import robust_mean
from rfgp.training.stationary import covariance

pytestmark = [pytest.mark.usefixtures("float64_default"), pytest.mark.filterwarnings("ignore:KL .* per point")]

BLOCKS, SIZE, CLASSES = 3, 9, 4


def covariances(x, parameters):
    """Gaussian kernels of blocks of inputs (B, n, d), from logarithms of lengthscale and scale."""
    squares = (x.unsqueeze(-2) - x.unsqueeze(-3)).square().sum(-1)
    return parameters[1].exp() * torch.exp(-0.5 * squares / parameters[0].exp() ** 2)


def assert_same(found, wanted, parameters):
    """Equal values, and equal gradients of a random combination of them."""
    pairs = list(zip(found, wanted, strict=True))
    for own, dense in pairs:
        torch.testing.assert_close(own, dense, rtol=1e-10, atol=1e-10)
    weights = [torch.randn_like(dense) for _, dense in pairs]
    totals = [sum((w * part[i]).sum() for w, part in zip(weights, pairs, strict=True)) for i in (0, 1)]
    for own, dense in zip(
        *(torch.autograd.grad(total, parameters, retain_graph=True) for total in totals), strict=True
    ):
        torch.testing.assert_close(own, dense, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("targets", [1, 3, SIZE])
def test_errors_of_the_last_rows_are_those_of_dense_algebra(targets):
    torch.manual_seed(0)
    x, residual = torch.randn(BLOCKS, SIZE, 2), torch.randn(BLOCKS, SIZE, requires_grad=True)
    parameters = torch.tensor([0.3, 0.5], requires_grad=True)
    matrix = covariances(x, parameters) + 0.1 * torch.eye(SIZE)
    errors, variances = [], []
    for row in range(SIZE - targets, SIZE):
        cross = matrix[:, :row, row]
        weights = torch.linalg.solve(matrix[:, :row, :row], cross.unsqueeze(-1)).squeeze(-1)
        errors.append(residual[:, row] - (weights * residual[:, :row]).sum(-1))
        variances.append(matrix[:, row, row] - (weights * cross).sum(-1))
    wanted = torch.stack(errors, dim=-1), torch.stack(variances, dim=-1)
    assert_same(prediction_errors(matrix, residual, targets), wanted, [parameters, residual])


def test_latent_functions_of_classes_are_those_of_one_regression_per_class():
    torch.manual_seed(0)
    x, labels = torch.randn(BLOCKS, SIZE, 2), torch.randint(0, CLASSES - 1, (BLOCKS, SIZE - 1))
    parameters = torch.tensor([0.3, 0.5, -3.0], requires_grad=True)
    means = torch.randn(CLASSES, requires_grad=True)
    inside, matrix = torch.nn.functional.one_hot(labels, CLASSES).double(), covariances(x, parameters)
    alpha = inside + parameters[2].exp()
    noise = (1.0 / alpha + 1.0).log()
    dense = matrix[:, :-1, :-1].unsqueeze(1) + torch.diag_embed(noise.mT)
    cross = matrix[:, :-1, -1].unsqueeze(1).expand(-1, CLASSES, -1)
    weights = torch.linalg.solve(dense, cross)
    mean = means + (weights * (alpha.log() - 0.5 * noise - means).mT).sum(-1)
    wanted = mean, matrix[:, -1, -1:] - (weights * cross).sum(-1)
    found = class_moments(matrix, inside, transformed(parameters[2].exp()), means)
    assert_same(found, wanted, [parameters, means])


@pytest.mark.parametrize("columns", [2, 12])
def test_near_rows_are_the_nearest_others(columns):
    points = torch.randn(60, columns, generator=torch.Generator().manual_seed(0))
    points[:20] = points[0]
    rows = torch.tensor([3, 30, 59])
    groups = near_groups(searches(points), rows, 5)
    assert torch.equal(groups[:, -1], rows)
    assert not (groups[:, :-1] == rows.unsqueeze(-1)).any()
    wanted = torch.cdist(points[rows], points).sort(-1).values[:, 1:6]
    found = (points[groups[:, :-1]] - points[rows].unsqueeze(1)).norm(dim=-1)
    torch.testing.assert_close(found.sort(-1).values, wanted, atol=1e-6, rtol=1e-6)


def test_few_inputs_have_near_rows_on_several_scales():
    x = torch.rand(600, 1, generator=torch.Generator().manual_seed(0))
    kernel, rows = RBFKernel(), torch.arange(40)
    near = NearRows(x)
    groups = near.groups(kernel, rows, 8)
    assert all(len(set(group)) == 9 for group in groups.tolist())
    distances = (x[groups[:, :-1]] - x[rows].unsqueeze(1)).abs().squeeze(-1)
    nearest = (x[rows] - x.mT).abs().sort(-1).values[:, 1:5]
    torch.testing.assert_close(distances.sort(-1).values[:, :4], nearest)
    assert distances.amax(-1).median() > 5.0 * nearest[:, -1].median()
    kernel.lengthscale = 2.0
    assert near.groups(kernel, rows, 8) is groups


def test_student_log_density():
    error, variance = torch.tensor([0.3, -5.0]), torch.tensor([0.5, 2.0])
    wanted = StudentT(4.0, 0.0, variance.sqrt()).log_prob(error)
    torch.testing.assert_close(student_log_density(error, variance), wanted)


def test_factors_of_outputs_make_both_covariances_diagonal():
    torch.manual_seed(0)
    part = torch.cov(torch.randn(3, 20))
    total = part + torch.cov(torch.randn(3, 20))
    factors, values = joint_factors(total, part)
    torch.testing.assert_close(factors @ factors.mT, total)
    torch.testing.assert_close(factors * values @ factors.mT, part)


def wide(kernel, columns, width=16):
    return rfgp.approximate(kernel, width, input_dim=columns, seed=0)


def regression(kernel=None, columns=2):
    kernel = ScaleKernel(RBFKernel(ard_num_dims=columns)) if kernel is None else kernel
    return rfgp.WeightSpaceGP(wide(kernel, columns, 128), GaussianLikelihood(), ConstantMean())


def classification(num_classes=3, mean=None):
    likelihood = DirichletClassificationLikelihood(num_classes=num_classes)
    means = ConstantMean(batch_shape=torch.Size([num_classes])) if mean is None else mean
    return rfgp.WeightSpaceGP(wide(ScaleKernel(RBFKernel(ard_num_dims=2)), 2), likelihood, means)


def multitask(num_outputs=2):
    kernel = MultitaskKernel(RBFKernel(ard_num_dims=2), num_tasks=num_outputs, rank=num_outputs)
    likelihood = MultitaskGaussianLikelihood(num_outputs, rank=num_outputs, noise_constraint=Positive())
    return rfgp.WeightSpaceGP(wide(kernel, 2), likelihood, MultitaskMean(ConstantMean(), num_outputs))


def lengths(model):
    kernel = model.covar_module.exact_kernel
    kernel = kernel.data_covar_module if isinstance(kernel, MultitaskKernel) else kernel.base_kernel
    return kernel.lengthscale.detach().reshape(-1)


def inputs(count):
    return 4.0 * torch.rand(count, 2, generator=torch.Generator().manual_seed(1))


def noise(count, outputs):
    return torch.randn(count, outputs, generator=torch.Generator().manual_seed(2))


def test_one_output_learns_noise_and_what_does_not_matter():
    x = inputs(400)
    model = regression()
    y = (3.0 * x[:, 0]).sin() + 0.1 * noise(400, 1)[:, 0]
    summary = rfgp.fit(model, x, y, strategy="neighbors", max_evaluations=60)
    assert 0.005 < model.likelihood.noise.item() < 0.02
    assert lengths(model)[1] > 5.0 * lengths(model)[0]
    assert [stage.name for stage in summary.stages[:2]] == ["one lengthscale", "neighbors"]
    assert model.posterior(x[:2]).mean.shape == (2,)


def test_classes_learn_their_concentration_and_what_does_not_matter():
    x = inputs(450)
    model = classification()
    summary = rfgp.fit(model, x, (1.5 * x[:, 0]).long() % 3, strategy="neighbors", max_evaluations=60)
    assert model.likelihood.alpha_epsilon < 0.005
    assert lengths(model)[1] > 3.0 * lengths(model)[0]
    assert summary.log_marginal_likelihood > 450 * math.log(0.75)
    assert summary.quantity == "log density of rows given those near them"
    assert torch.isfinite(model.posterior(x[:2]).mean).all()


@pytest.mark.parametrize("share_missing", [0.0, 0.2])
def test_outputs_learn_their_covariances(share_missing):
    x = inputs(400)
    function = torch.stack([(2.0 * x[:, 0]).sin(), (2.0 * x[:, 0]).sin() + (2.0 * x[:, 1]).cos()], dim=-1)
    y = function + torch.tensor([0.05, 0.2]) * noise(400, 2)
    y[torch.rand(400, 2, generator=torch.Generator().manual_seed(3)) < share_missing] = math.nan
    model = multitask()
    rfgp.fit(model, x, y, strategy="neighbors", max_evaluations=60)
    tasks, spread = covariances_of(model, model.covar_module.exact_kernel)
    torch.testing.assert_close(spread.diagonal().sqrt(), torch.tensor([0.05, 0.2]), rtol=0.25, atol=0.0)
    assert spread[0, 1].abs() < 0.3 * spread.diagonal().prod().sqrt()
    correlation = tasks[0, 1] / tasks.diagonal().prod().sqrt()
    assert 0.4 < correlation < 0.95


def test_outputs_of_which_few_cells_are_known_have_their_own_noise():
    """Each is learned from its known cells, given those known near them, not from what is known of the nearest rows."""
    x = inputs(3000)
    y = torch.stack([(2.0 * x[:, 0]).sin(), (2.0 * x[:, 1]).cos(), x.prod(-1).sin()], dim=-1) + 0.3 * noise(3000, 3)
    y[torch.rand(3000, 3, generator=torch.Generator().manual_seed(3)) < 0.95] = math.nan
    kernel = MultitaskKernel(MaternKernel(2.5, ard_num_dims=2), num_tasks=3, rank=3)
    likelihood = MultitaskGaussianLikelihood(3)
    model = rfgp.WeightSpaceGP(wide(kernel, 2), likelihood, MultitaskMean(ConstantMean(), 3))
    rfgp.fit(model, x, y, strategy="neighbors", max_evaluations=32)
    found = model.measured_noise.covariance().diagonal().sqrt()
    assert 0.15 < found.min() < found.max() < 0.45


@pytest.mark.parametrize("outputs", [6, 12])
def test_outputs_with_missing_cells_have_their_own_noise_and_are_not_overconfident(outputs):
    count, seen = 600, 450
    generator = torch.Generator().manual_seed(0)
    first, second = x = 4.0 * torch.rand(count, 2, generator=generator).mT
    waves = [(2.0 * first).sin(), second.cos() * first, (first * second).sin(), (3.0 * second).cos()]
    function = torch.stack(waves, dim=-1) @ torch.randn(4, outputs, generator=generator)
    deviations = torch.logspace(-2.0, -0.5, outputs)
    y = function + deviations * torch.randn(count, outputs, generator=generator)
    y[torch.rand(count, outputs, generator=generator) < 0.3] = math.nan
    x = x.mT
    kernel = MultitaskKernel(MaternKernel(nu=1.5, ard_num_dims=2), num_tasks=outputs, rank=outputs)
    kernel = rfgp.approximate(kernel, 576 // outputs, method="landmarks", train_inputs=x[:seen])
    mean, likelihood = MultitaskMean(ConstantMean(), outputs), MultitaskGaussianLikelihood(outputs)
    model = rfgp.WeightSpaceGP(kernel, likelihood, mean, block_size=64)
    rfgp.fit(model, x[:seen], y[:seen], strategy="neighbors", max_evaluations=15)
    posterior = model.posterior(x[seen:])
    errors = (posterior.mean - function[seen:]) / posterior.variance.sqrt()
    assert (errors.abs() > 1.96).double().mean(0).max() < 0.05 + 4.0 * (0.05 * 0.95 / (count - seen)) ** 0.5
    ratios = model.measured_noise.covariance().diagonal().sqrt() / deviations
    assert 0.5 < ratios.min() < ratios.max() < 2.0


def test_parameters_of_a_model_are_where_training_goes_on():
    x = inputs(200)
    model = multitask()
    objective = NeighborObjective(model, x, x + noise(200, 2), None)
    conditional = objective.observations(initialize=False)
    function, rest = covariances_of(model, model.covar_module.exact_kernel)
    own = conditional.leading.argsort()
    factors, scale = conditional.factors, conditional.variances.scale[own]
    torch.testing.assert_close(factors * scale @ factors.mT, function)
    torch.testing.assert_close(factors * conditional.variances.noise[own] @ factors.mT, rest)


def test_one_lengthscale_is_learned_from_where_it_is():
    x = inputs(200)
    model = regression(ScaleKernel(RBFKernel()))
    summary = rfgp.fit(model, x, x[:, 0].sin(), strategy=rfgp.training.Neighbors(initialize=False), progress=False)
    assert summary.evaluations > 0 and lengths(model).item() > 1.0


def test_densities_of_outputs_are_those_in_their_units():
    x, y = inputs(200), noise(200, 2)
    groups, unit = torch.arange(20).reshape(2, 10), torch.tensor([3.0, 0.2])
    found = [
        NeighborObjective(multitask(), x, part, None).observations().log_densities(groups, 1) for part in (y, unit * y)
    ]
    torch.testing.assert_close(found[1], found[0] - unit.log().sum())


def test_missing_cells_count_as_if_they_were_not_there():
    x, y = inputs(30), noise(30, 2)
    y[::4, 0] = math.nan
    conditional = NeighborObjective(multitask(), x, y, None).observations()
    group = torch.arange(7, 20)
    found = conditional.log_densities(group.unsqueeze(0), 1)
    wanted = 0.0
    for output in range(2):
        residual = conditional.residual[group, output]
        known = group[~residual.isnan()]
        if known[-1] != group[-1]:
            continue
        matrix = conditional.kernel(x[known]).to_dense() * conditional.variances.scale[output]
        matrix = matrix + conditional.variances.noise[output] * torch.eye(len(known))
        errors = prediction_errors(matrix, residual[~residual.isnan()])
        wanted = wanted + student_log_density(*errors)[0] - conditional.units[output].log()
    torch.testing.assert_close(found.squeeze(0), wanted)


def observed(kind):
    """Rows of a model of one output with its own noises, of two with all cells or some, or of classes."""
    x, y = inputs(60), noise(60, 2)
    if kind == "classes":
        return NeighborObjective(classification(), x, y.sum(-1).mul(2.0).long().clamp(-1, 1) + 1, None).observations()
    if kind == "one":
        kernel = ScaleKernel(rfgp.kernels.InputTransformKernel(ScaleKernel(RQKernel()), rfgp.kernels.LinearMap(x)))
        likelihood = FixedNoiseGaussianLikelihood(0.1 + y[:, 1].square(), learn_additional_noise=True)
        model = rfgp.WeightSpaceGP(wide(kernel, 2), likelihood, LinearMean(2))
        return NeighborObjective(model, x, y[:, 0], None).observations()
    if kind == "missing":
        y[::4, 0] = math.nan
    return NeighborObjective(multitask(), x, y, None).observations()


@pytest.mark.parametrize("kind", ["one", "all", "missing", "classes"])
def test_densities_of_groups_are_those_of_their_matrices(kind):
    observations, groups = observed(kind), torch.arange(60).reshape(6, 10)
    wanted = observations.log_densities(groups, 1)
    likelihood = CompositeLikelihood(observations, groups, targets=1)
    parameters = [p for part in observations.parts.values() for p in part.parameters()]
    assert_same([likelihood.evidence()], [wanted.sum()], parameters)
    assert likelihood.score() == pytest.approx(float(robust_mean(wanted.detach())), rel=1e-12)


def test_a_fit_is_the_same_without_the_compiled_library(monkeypatch):
    if last_rows._library is None:
        pytest.skip("the library is not compiled here: pip install -e . with a C++ compiler")
    x, found = inputs(100), []
    y = (4.0 * x[:, 0]).sin() * x[:, 1] + 0.1 * noise(100, 1)[:, 0]
    for library in (last_rows._library, None):
        monkeypatch.setattr(last_rows, "_library", library)
        model = regression()
        rfgp.fit(model, x, y, strategy=ParametersAlone(), progress=False)
        found.append(torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


def test_scaled_kernels_see_their_columns():
    x = inputs(5)
    kernel = ScaleKernel(MaternKernel(0.5), active_dims=(1,))
    torch.testing.assert_close(covariance(kernel, x), kernel(x).to_dense())


def test_variances_in_closed_form_are_those_of_the_data():
    torch.manual_seed(0)
    x = torch.rand(400, 12, 1)
    matrix = covariances(x, torch.tensor([-1.0, 0.0]))
    root = torch.linalg.cholesky(matrix + 0.01 * torch.eye(12))
    draws = math.sqrt(3.0) * root @ torch.randn(400, 12, 1)
    scale, noises = profiled_variances(matrix, draws)
    assert float(scale) == pytest.approx(3.0, rel=0.5)
    assert float(noises) == pytest.approx(0.03, rel=0.5)
    matrix[3, 1, 2] = math.nan
    with pytest.raises(ValueError, match="are not finite"):
        profiled_variances(matrix, draws)


def test_scores_are_those_of_dense_algebra():
    x, y = inputs(40), noise(40, 1)[:, 0]
    model = regression()
    kernel, spread = model.covar_module.exact_kernel, float(model.likelihood.noise)
    matrix = kernel(x).to_dense() + spread * torch.eye(40)
    whole = MultivariateNormal(torch.zeros(40), matrix).log_prob(y)
    densities = []
    for row in range(40):
        rest = torch.arange(40) != row
        densities.append(whole - MultivariateNormal(torch.zeros(39), matrix[rest][:, rest]).log_prob(y[rest]))
    found = rfgp.training.neighbor_score(model, x, y, num_neighbors=39)
    assert found == pytest.approx(float(torch.stack(densities).mean()), abs=1e-10)


def test_one_wild_row_counts_for_little_in_a_score():
    x = inputs(300)
    y = x[:, 0].sin() + 0.1 * noise(300, 1).squeeze(-1)
    score = rfgp.training.neighbor_score(regression(), x, y, num_neighbors=8)
    y[17] += 30.0
    wild = rfgp.training.neighbor_score(regression(), x, y, num_neighbors=8)
    assert score - 0.6 < wild < score


def test_the_better_kernel_comes_first():
    x = inputs(300)
    y = (4.0 * x[:, 0]).sin() * x[:, 1] + 0.01 * noise(300, 1)[:, 0]
    kernels = {"linear": LinearKernel(), "rough": MaternKernel(0.5), "smooth": RBFKernel()}
    models = {name: regression(ScaleKernel(kernel)) for name, kernel in kernels.items()}
    assert list(rfgp.training.compare(models, x, y)) == ["smooth", "rough", "linear"]


def test_models_stay_as_they_were_where_one_cannot_be_compared():
    x, y = inputs(100), noise(100, 1)[:, 0]
    models = {"good": regression(), "bad": multitask()}
    before = lengths(models["good"]).clone()
    with pytest.raises(ValueError, match="expected"):
        rfgp.training.compare(models, x, y)
    assert torch.equal(lengths(models["good"]), before)
    with pytest.raises(ValueError, match="expected models"):
        rfgp.training.compare({}, x, y)


def test_models_that_are_refused():
    x = inputs(50)
    with pytest.raises(ValueError, match="constant means"):
        rfgp.fit(classification(mean=LinearMean(2)), x, torch.arange(50) % 3, strategy="neighbors")
    with pytest.raises(ValueError, match="strategy to be one of"):
        laplace = rfgp.models.LaplaceGP(wide(RBFKernel(), 2), gpytorch.likelihoods.BernoulliLikelihood())
        rfgp.fit(laplace, x, (torch.arange(50) % 2).double(), strategy="neighbors")


def test_the_tails_of_a_wrong_model_count():
    densities = torch.zeros(1000)
    densities[:30] = -100.0
    assert float(robust_mean(densities)) == pytest.approx(-3.0)
    densities[10:] = 0.0
    assert float(robust_mean(densities)) < -0.05
    densities[2:] = 0.0
    assert float(robust_mean(densities)) == pytest.approx(-0.02)


def test_rows_with_a_twin_are_no_targets_unless_all_rows_are_repeated():
    x = inputs(60)
    x[1], x[50] = x[0], x[49] + 1e-9
    near, kernel = NearRows(x), RBFKernel()
    kept = near.without_twins(near.groups(kernel, torch.arange(60), 4))
    assert sorted(kept[:, -1].tolist()) == sorted(set(range(60)) - {0, 1, 49, 50})
    repeated = NearRows(x[:30].repeat(2, 1))
    groups = repeated.groups(kernel, torch.arange(60), 4)
    assert repeated.without_twins(groups) is groups


@pytest.mark.parametrize("has_classes", (False, True))
def test_parameters_have_the_same_bits_for_any_number_of_threads(has_classes):
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    y = (x[:, 0].sin() > 0.0).long() if has_classes else x[:, 0].sin() + 0.1 * torch.randn(400)
    found, threads = [], torch.get_num_threads()
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        likelihood = DirichletClassificationLikelihood(num_classes=2) if has_classes else GaussianLikelihood()
        kernel = rfgp.approximate(ScaleKernel(RBFKernel(ard_num_dims=3)), num_features=16, input_dim=3, seed=0)
        model = rfgp.WeightSpaceGP(kernel, likelihood)
        rfgp.fit(model, x, y, strategy=ParametersAlone(), max_evaluations=8)
        assert torch.get_num_threads() == number
        found.append([parameter.detach().clone() for parameter in model.parameters()])
    torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))
