"""The mean by conjugate gradients equals that of a direct solution to the residual that it states."""

import copy
import math
import pickle
import warnings

import gpytorch
import pytest
import torch

import rfgp
from rfgp.linalg import row_chunks
from rfgp.models import WeightSpaceGP, WideWeightSpaceGP
from rfgp.models.wide import weight_equations

ROWS, WIDTH, NARROW, INPUTS = 400, 120, 16, 3
pytestmark = pytest.mark.usefixtures("float64_default")


def data(rows=ROWS, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, INPUTS, generator=generator, dtype=torch.float64)
    y = torch.sin(x.sum(-1)) + 0.1 * torch.randn(rows, generator=generator, dtype=torch.float64) + 2.0
    return x.to(dtype), y.to(dtype), 2.0 * torch.randn(50, INPUTS, generator=generator, dtype=torch.float64).to(dtype)


KERNELS = {
    "fourier": (gpytorch.kernels.RBFKernel, "fourier"),
    "matern": (lambda: gpytorch.kernels.MaternKernel(nu=1.5), "fourier_orthogonal"),
    "landmarks": (lambda: gpytorch.kernels.MaternKernel(nu=2.5), "landmarks"),
    "sketch": (lambda: gpytorch.kernels.PolynomialKernel(power=3), "tensor_srht:ctr"),
    "maclaurin": (gpytorch.kernels.RBFKernel, "optimized_maclaurin"),
    "sum": (lambda: gpytorch.kernels.RBFKernel() + gpytorch.kernels.LinearKernel(), "auto"),
}


def kernels(name="fourier", dtype=torch.float64):
    """A wide and a narrow kernel of the same exact one."""
    base, method = KERNELS[name]
    exact = gpytorch.kernels.ScaleKernel(base()).to(dtype)
    exact.outputscale = 1.7
    x, _, _ = data(dtype=dtype)
    needs_inputs = name in ("landmarks", "maclaurin")
    inputs = {"train_inputs": x} if needs_inputs else {"input_dim": INPUTS}
    return [rfgp.approximate(exact, width, method=method, seed=0, **inputs) for width in (WIDTH, NARROW)]


def gaussian(noise=0.01, dtype=torch.float64):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(dtype)
    likelihood.noise = noise
    return likelihood


def models(name="fourier", likelihood=None, mean=None, dtype=torch.float64, **settings):
    """The wide model, and the same one solved directly."""
    wide, narrow = kernels(name, dtype)
    likelihood = gaussian(dtype=dtype) if likelihood is None else likelihood
    made = WideWeightSpaceGP(wide, likelihood, mean, narrow_kernel=narrow, **{"preconditioner_rank": 24, **settings})
    return made, WeightSpaceGP(wide, likelihood, mean, product_dtype=torch.float64)


def true_errors(model, direct, x):
    """Errors of the mean, and the posterior standard deviations of the direct solution without residual variance."""
    kernel, posterior = model.covar_module, direct.weight_posterior()
    features = kernel.output_factor().detach().double() * kernel.scalar_features(x).detach().double()
    errors = features @ (model.weights - posterior.mean.squeeze(-1))
    return errors.abs(), posterior.covariance_root(features).square().sum(-1).sqrt()


@pytest.mark.parametrize("name", KERNELS)
@torch.no_grad()
def test_the_mean_is_the_direct_one_and_the_stated_bounds_hold_at_every_point(name):
    x, y, points = data()
    model, direct = models(name)
    model.condition(x, y)
    direct.condition(x, y)
    rounding = 1e-9
    errors, deviations = true_errors(model, direct, torch.cat([x, points]))
    assert model.convergence.is_converged and model.convergence.num_iterations > 0
    assert (errors <= deviations * model.convergence.residual + rounding).all()
    assert (errors <= model.mean_error_bound(torch.cat([x, points])) + rounding).all()
    assert errors.max() > rounding  # the bound says something
    difference = (model.posterior(points).mean - direct.posterior(points).mean).abs()
    assert (difference <= model.mean_error_bound(points) + rounding).all()


@pytest.mark.smoke
@torch.no_grad()
def test_a_tight_tolerance_gives_the_direct_mean():
    x, y, points = data()
    model, direct = models(tolerance=1e-7)
    expected = direct.condition(x, y).posterior(points).mean
    torch.testing.assert_close(model.condition(x, y).posterior(points).mean, expected, rtol=0.0, atol=1e-8)
    assert model.convergence.residual <= 1e-7
    right = model.convergence.residual / model.convergence.relative_residual
    equations = direct.regression().equations(direct.statistics)
    assert right == pytest.approx(float(torch.linalg.vector_norm(equations.cross)), rel=1e-10)


@torch.no_grad()
def test_the_variance_is_that_of_the_narrow_model():
    x, y, points = data()
    model, _ = models(mean=gpytorch.means.ConstantMean())
    narrow = WeightSpaceGP(model.narrow_kernel, model.likelihood, model.mean_module).condition(x, y)
    found = model.condition(x, y).posterior(points)
    torch.testing.assert_close(found.variance, narrow.posterior(points).variance, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(found.covariance_matrix, narrow.posterior(points).covariance_matrix)
    torch.testing.assert_close(model.narrow.posterior(points).mean, narrow.posterior(points).mean)


@pytest.mark.parametrize("kind", ["zero", "constant", "linear"])
@torch.no_grad()
def test_mean_functions_are_subtracted_and_added(kind):
    mean = {"zero": gpytorch.means.ZeroMean, "constant": gpytorch.means.ConstantMean}.get(kind)
    mean = gpytorch.means.LinearMean(INPUTS) if mean is None else mean()
    for parameter in mean.parameters():
        torch.nn.init.constant_(parameter, 1.5)
    x, y, points = data()
    model, direct = models(mean=mean, tolerance=1e-7)
    expected = direct.condition(x, y).posterior(points).mean
    torch.testing.assert_close(model.condition(x, y).posterior(points).mean, expected, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("learns_more", [False, True])
@torch.no_grad()
def test_the_noise_of_rows(learns_more):
    x, y, points = data()
    noise = torch.rand(len(y)) + 0.01
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise, learn_additional_noise=learns_more)
    model, direct = models(likelihood=likelihood, tolerance=1e-7)
    for known in (None, 0.1 * noise):
        expected = direct.condition(x, y, known).posterior(points).mean
        torch.testing.assert_close(model.condition(x, y, known).posterior(points).mean, expected, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("name", ["fourier", "landmarks"])
@torch.no_grad()
def test_float32_rows_are_summed_in_float64(name):
    x, y, points = data(dtype=torch.float32)
    model, direct = models(name, dtype=torch.float32)
    found = model.condition(x, y).posterior(points)
    errors, deviations = true_errors(model, direct.condition(x, y), points)
    assert model.convergence.is_converged
    assert (errors <= deviations * model.convergence.residual + 1e-9).all()
    assert found.mean.dtype == found.variance.dtype == torch.float32 and model.weights.dtype == torch.float64


@torch.no_grad()
def test_batches_of_inputs():
    x, y, points = data()
    model = models()[0].condition(x, y)
    batched = model.posterior(points.reshape(5, 10, INPUTS))
    torch.testing.assert_close(batched.mean, model.posterior(points).mean.reshape(5, 10))
    torch.testing.assert_close(batched.variance, model.posterior(points).variance.reshape(5, 10))
    assert model.mean_error_bound(points.reshape(5, 10, INPUTS)).shape == (5, 10)


def test_a_residual_above_the_tolerance_is_said_with_its_effect():
    x, y, points = data()
    model, direct = models(max_iterations=2, tolerance=1e-6)
    with pytest.warns(UserWarning, match=r"after 2 iterations .+ off by .+ posterior standard deviations") as caught:
        model.condition(x, y)
    assert caught[0].filename == __file__
    assert not model.convergence.is_converged and model.convergence.num_iterations == 2
    errors, deviations = true_errors(model, direct.condition(x, y), points)
    assert (errors <= deviations * model.convergence.residual).all()


@pytest.mark.parametrize("name", ["fourier", "landmarks", "sum"])
def test_the_preconditioner_saves_iterations(name):
    x, y, _ = data()
    few, many = (models(name, preconditioner_rank=rank)[0].condition(x, y) for rank in (1, WIDTH // 2))
    assert 3 * many.convergence.num_iterations <= 2 * few.convergence.num_iterations


def test_the_preconditioner_is_below_the_matrix():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(60, 40, generator=generator) * torch.logspace(2, -2, 60)[:, None]
    gram, sketch = root @ root.mT, weight_equations.SignSketch.draw(60, 10, torch.device("cpu"))
    omega = sketch.times(torch.eye(60))
    torch.testing.assert_close(sketch.times(gram), gram @ omega)
    assert (omega.abs().sum(-1) <= 2.0).all() and omega.abs().sum() > 60.0
    made = weight_equations.NystromPreconditioner(gram @ omega, sketch, torch.float64)
    inverse = made.solve(torch.eye(60)).mT
    torch.testing.assert_close(inverse, inverse.mT)
    exact = torch.linalg.inv(torch.eye(60) + gram)
    assert torch.linalg.eigvalsh(inverse - exact).min() > -1e-9
    core = omega.mT @ gram @ omega
    core.diagonal().add_(1.0 + torch.finfo(torch.float64).eps * core.trace())
    expected = torch.eye(60) + gram @ omega @ torch.linalg.solve(core, omega.mT @ gram)
    torch.testing.assert_close(torch.linalg.inv(inverse), expected)


def test_nothing_of_size_n_x_d_or_d_x_d_is_made():
    rows, width = 9_000, 400
    sizes = []

    class Sizes(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            sizes.extend([result.numel()] if isinstance(result, torch.Tensor) else [])
            return result

    x, y, _ = data(rows)
    exact = gpytorch.kernels.RBFKernel()
    wide, narrow = (rfgp.approximate(exact, size, input_dim=INPUTS, seed=0) for size in (width, NARROW))
    settings = {"preconditioner_rank": 64, "tolerance": 100.0}
    model = WideWeightSpaceGP(wide, gaussian(1.0), narrow_kernel=narrow, **settings)
    chunk = max(part.stop - part.start for part in row_chunks(rows, width))
    made = []
    features = wide.active_features
    wide.active_features = lambda values: made.append(len(values)) or features(values)
    with Sizes():
        model.condition(x, y, progress=False)
    limit = chunk * width
    assert max(made) <= chunk and chunk < rows
    assert width**2 not in sizes and max(sizes) <= limit < rows * width
    passes = model.convergence.num_iterations + 2  # the right side with the sketch, and the residual
    assert sum(made) == passes * rows + 1  # one row makes the map


def test_a_failed_fit_leaves_the_model_as_it_was():
    x, y, points = data()
    model = models()[0].condition(x, y)
    before = model.posterior(points)
    for bad in ((x, y[:5]), (x * math.nan, y), (x.float(), y.float()), (x[:, :2], y), (x, y, y)):
        with pytest.raises(ValueError, match="expected"):
            model.condition(*bad)
        after = model.posterior(points)
        assert torch.equal(before.mean, after.mean) and torch.equal(before.variance, after.variance)


def test_a_failed_first_fit_makes_no_map():
    exact = gpytorch.kernels.RBFKernel()
    wide, narrow = (rfgp.approximate(exact, width) for width in (WIDTH, NARROW))
    model = WideWeightSpaceGP(wide, gaussian(), narrow_kernel=narrow)
    x, y, points = data()
    with pytest.raises(ValueError, match="finite"):
        model.condition(x, y * math.inf)
    assert wide.feature_map is None and narrow.feature_map is None
    with pytest.raises(ValueError, match=r"call condition\(x, y\) first"):
        model.posterior(points)
    assert model.condition(x, y).posterior(points).mean.shape == (50,)


def test_changed_parameters_ask_for_a_new_fit():
    x, y, points = data()
    model = models(mean=gpytorch.means.ConstantMean())[0].condition(x, y)
    changes = (
        lambda: setattr(model.likelihood, "noise", 0.3),
        lambda: model.covar_module.resample(torch.Generator().manual_seed(5)),
        lambda: torch.nn.init.constant_(model.mean_module.raw_constant, 3.0),
        lambda: torch.nn.init.constant_(next(model.covar_module.parameters()), 0.3),
    )
    for change in changes:
        assert torch.isfinite(model.condition(x, y).posterior(points).mean).all()
        change()
        for stale in (model.posterior, model.mean_error_bound, lambda _: model.convergence, lambda _: model.narrow):
            with pytest.raises(ValueError, match="call condition"):
                stale(points)


def test_copies_and_pickles_predict_the_same():
    x, y, points = data()
    model = models()[0].condition(x, y)
    expected = model.posterior(points)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        found = twin.posterior(points)
        assert torch.equal(found.mean, expected.mean) and torch.equal(found.variance, expected.variance)


def test_more_features_than_rows_is_said():
    x, y, _ = data(50)
    model = models()[0]
    with pytest.warns(UserWarning, match="the exact kernel costs less"):
        model.condition(x, y)


@torch.no_grad()
def test_targets_that_are_their_mean_have_no_residual():
    x, y, points = data()
    model = models()[0].condition(x, torch.zeros_like(y))
    assert model.convergence.residual == model.convergence.relative_residual == 0.0
    assert torch.equal(model.posterior(points).mean, torch.zeros(50))


def test_progress_is_shown_where_it_is_asked_for(capsys):
    x, y, _ = data()
    models()[0].condition(x, y, progress=False)
    assert "conjugate gradients" not in capsys.readouterr().err
    models()[0].condition(x, y, progress=True)
    assert "conjugate gradients" in capsys.readouterr().err


def test_no_warning_without_reason():
    x, y, _ = data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models()[0].condition(x, y)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kernel": gpytorch.kernels.RBFKernel()},
        {"narrow_kernel": gpytorch.kernels.RBFKernel()},
        {"kernel": "complex"},
        {"narrow_kernel": "complex"},
        {"kernel": "tasks"},
        {"likelihood": rfgp.likelihoods.DirichletClassificationLikelihood(num_classes=3)},
        {"likelihood": rfgp.likelihoods.ComplexGaussianLikelihood()},
        {"likelihood": gpytorch.likelihoods.BernoulliLikelihood()},
        {"mean": gpytorch.means.ConstantMeanGrad()},
        {"mean": gpytorch.means.ConstantMean(batch_shape=torch.Size([2]))},
        {"tolerance": 0.0},
        {"tolerance": math.nan},
        {"max_iterations": 0},
        {"preconditioner_rank": 1.5},
    ],
    ids=str,
)
def test_bad_arguments(wrong):
    wide, narrow = kernels()
    tasks = gpytorch.kernels.MultitaskKernel(kernels()[0], num_tasks=2)
    odd = {
        "complex": rfgp.approximate(gpytorch.kernels.RBFKernel(), 8, input_dim=INPUTS, method="fourier:complex"),
        "tasks": tasks,
    }
    good = {"kernel": wide, "likelihood": gaussian(), "narrow_kernel": narrow}
    bad = {name: odd.get(value, value) if isinstance(value, str) else value for name, value in wrong.items()}
    with pytest.raises(ValueError, match="expected"):
        WideWeightSpaceGP(**(good | bad))
