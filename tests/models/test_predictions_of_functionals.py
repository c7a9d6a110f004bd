"""Predictions of linear functionals of a field: dense algebra on stacked observations, automatic differentiation."""

import autodiff
import pytest
import torch
from gpytorch.kernels import MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean, ZeroMean
from output_problems import dense_noise, one_measure
from problems import randomised

import rfgp
from rfgp.approximation import FeatureKernel
from rfgp.features import Gaussian, Matern, PowerWeighted, RandomFourier
from rfgp.functionals import (
    Component,
    Curl,
    CurlFreePart,
    Divergence,
    DivergenceFreePart,
    Gradient,
    Laplacian,
    Partial,
    Potential,
    RotatedGradient,
    Stacked,
    Streamfunction,
    Value,
    Vorticity,
)
from rfgp.kernels import CurlFreeKernel, DivergenceFreeKernel, HelmholtzKernel, LinearlyObservedKernel
from rfgp.likelihoods import MultitaskMultivariateNormal, MultivariateNormal
from rfgp.models import WeightSpaceGP

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]

ROWS, WIDTH = 30, 12
KERNELS = {
    "curl-free": lambda: ScaleKernel(CurlFreeKernel(RBFKernel())),
    "matern": lambda: ScaleKernel(CurlFreeKernel(MaternKernel(nu=2.5))),
    "divergence-free": lambda: DivergenceFreeKernel(RBFKernel(ard_num_dims=2)),
    "helmholtz": lambda: HelmholtzKernel(RBFKernel()),
    "one measure": one_measure,
    "values": lambda: LinearlyObservedKernel(ScaleKernel(RBFKernel()), [Value()]),
    "gradients": lambda: LinearlyObservedKernel(RBFKernel(), [Gradient()]),
}
FIELDS = ("curl-free", "matern", "divergence-free", "helmholtz", "one measure", "gradients")
DIFFERENTIAL = {
    "value": Value(),
    "component": Component(1),
    "partial": Partial(0),
    "second partial": Partial(0, 1),
    "gradient": Gradient(),
    "laplacian": Laplacian(),
    "divergence": Divergence(),
    "vorticity": Vorticity(),
    "stacked": Stacked(Divergence(), Value(), Vorticity()),
    "sum": 2.0 * Value() - 0.3 * Partial(1),
    "composition": RotatedGradient() @ Divergence(),
}
OF_FUNCTIONS = ("value", "partial", "second partial", "gradient", "laplacian", "sum")
OTHERS = {
    "potential": Potential(),
    "streamfunction": Streamfunction(),
    "curl-free part": CurlFreePart(),
    "divergence-free part": DivergenceFreePart(),
    "stacked parts": Stacked(CurlFreePart(), Potential(), Value()),
    "divergence of a part": Divergence() @ CurlFreePart(),
}


def close(actual, expected, scale=None):
    bound = expected.abs().max() if scale is None else scale
    assert (actual.reshape(expected.shape) - expected).abs().max() <= 1e-9 * bound


def points(num_points=5):
    return torch.randn(num_points, 2, generator=torch.Generator().manual_seed(9))


def field_rows(outputs, pattern="none", num_rows=ROWS):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num_rows, 2, generator=generator)
    y = torch.randn(num_rows, outputs, generator=generator)
    if pattern == "random":
        y[torch.rand(y.shape, generator=generator) < 0.3] = float("nan")
    return x, y


def field_model(name, pattern="none", mean=None, is_full=False):
    """A fitted model of a field, or of a single function."""
    kernel = rfgp.approximate(randomised(KERNELS[name]()), WIDTH, input_dim=2, seed=0)
    outputs = 1 if name == "values" else 2
    likelihood = GaussianLikelihood() if outputs == 1 else MultitaskGaussianLikelihood(2, rank=int(is_full))
    with torch.no_grad():
        return WeightSpaceGP(kernel, randomised(likelihood), mean, keep_data=True).condition(
            *field_rows(outputs, pattern)
        )


def dense_functional(model, features, at_points):
    """Mean and covariance of what has features at points, given the rows of the fit that are observed."""
    (x, y, _) = model.training_data[0]
    values = y.flatten()
    observed = ~torch.isnan(values)
    noise = dense_noise(model.likelihood, len(x), y.shape[-1])
    total = (features @ features.mT + noise)[observed][:, observed]
    cross = (features @ at_points.mT)[observed]
    solved = torch.linalg.solve(total, torch.cat([values[observed, None], cross], dim=-1))
    return cross.mT @ solved[:, 0], at_points @ at_points.mT - cross.mT @ solved[:, 1:]


def stacked_features(kernel, operator, x):
    """Features (N, T + m, K) of the field and of what an operator makes of it, from the kernel of observing both."""
    parts = []
    for part in kernel.family.summands():
        leaf, scale = part.unscaled, part.total_outputscale
        observed = LinearlyObservedKernel(leaf.kernel, [Value(), operator])
        parts.append(scale**0.5 * FeatureKernel(observed, leaf.maps).features(x).unflatten(0, (len(x), -1)))
    return torch.cat(parts, dim=-1)


SECOND = ("second partial", "laplacian", "composition")
PAIRS = [(name, operator) for name in FIELDS for operator in DIFFERENTIAL if name != "matern" or operator not in SECOND]
EVERY = PAIRS + [(name, operator) for name in FIELDS for operator in OTHERS]
PAIRS += [("values", operator) for operator in OF_FUNCTIONS]


@pytest.mark.parametrize(("name", "operator"), PAIRS)
@torch.no_grad()
def test_differential_operators_are_predicted_as_by_stacked_observations(name, operator):
    model, test, known = field_model(name), points(), DIFFERENTIAL[operator]
    outputs = model.num_outputs
    train = stacked_features(model.covar_module, known, model.training_data[0][0])[:, :outputs].flatten(0, 1)
    at_points = stacked_features(model.covar_module, known, test)[:, outputs:]
    mean, covariance = dense_functional(model, train, at_points.flatten(0, 1))
    latent, count = model.posterior(test, known), at_points.shape[1]
    assert type(latent) is (MultivariateNormal if count == 1 else MultitaskMultivariateNormal)
    assert latent.mean.shape == ((5,) if count == 1 else (5, count))
    prior = at_points.square().sum(-1).max()
    size = (prior * model.training_data[0][1].square().max()).sqrt()
    close(latent.mean, mean, size)
    close(latent.covariance_matrix, covariance, prior)
    close(latent.lazy_covariance_matrix.diagonal(), covariance.diagonal(), prior)


@pytest.mark.parametrize(("pattern", "is_full"), [("none", False), ("random", True)], ids=["complete", "missing, full"])
@pytest.mark.parametrize(("name", "operator"), EVERY)
@torch.no_grad()
def test_every_operator_is_predicted_as_its_features_say(name, operator, pattern, is_full):
    known = {**DIFFERENTIAL, **OTHERS}[operator]
    model, test = field_model(name, pattern, is_full=is_full), points()
    kernel, x = model.covar_module, model.training_data[0][0]
    at_points = kernel.output_factor(known).features(kernel.scalar_features(test))
    train = kernel.output_factor(None).features(kernel.scalar_features(x))
    mean, covariance = dense_functional(model, train, at_points)
    latent, prior = model.posterior(test, known), at_points.square().sum(-1).max()
    close(latent.mean, mean, prior.sqrt() * 10.0)
    close(latent.covariance_matrix, covariance, prior)
    close(latent.lazy_covariance_matrix.diagonal(), covariance.diagonal(), prior)


def jacobian(field, x):
    """The derivatives (N, T, d) of a field at points."""
    x = x.clone().requires_grad_()
    values = field(x).reshape(len(x), -1)
    return torch.stack([torch.autograd.grad(column.sum(), x, retain_graph=True)[0] for column in values.mT], dim=1)


MEANS = {
    "none": lambda outputs: None,
    "constant": lambda outputs: ConstantMean(),
    "constants": lambda outputs: MultitaskMean(ConstantMean(), num_tasks=outputs),
    "some": lambda outputs: MultitaskMean([ConstantMean(), ZeroMean()][:outputs], num_tasks=outputs),
}


def mean_of(name, outputs):
    made = MEANS[name](outputs)
    return None if made is None else randomised(made)


@pytest.mark.parametrize(("name", "operator"), [pair for pair in PAIRS if pair[0] in ("helmholtz", "values")])
def test_predictions_are_derivatives_of_the_predicted_field(name, operator):
    outputs, test, known = 1 if name == "values" else 2, points(2), DIFFERENTIAL[operator]
    model = field_model(name, mean=mean_of("some", outputs)).requires_grad_(False)
    latent = model.posterior(test, known).mean
    derivative = autodiff.applied(known, lambda x: model.posterior(x[None]).mean.reshape(-1))
    expected = torch.stack([derivative(x) for x in test]).reshape(latent.shape)
    torch.testing.assert_close(latent, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("name", FIELDS)
def test_parts_of_a_helmholtz_decomposition(name, mean):
    model, test = field_model(name, mean=mean_of(mean, 2)).requires_grad_(False), points()

    def predicted(operator, x=test):
        return model.posterior(x, operator).mean

    gradient = jacobian(lambda x: predicted(Potential(), x), test).squeeze(1)
    stream = jacobian(lambda x: predicted(Streamfunction(), x), test).squeeze(1)
    rotated = torch.stack([stream[:, 1], -stream[:, 0]], dim=-1)
    tolerance = {"rtol": 1e-6, "atol": 1e-10}
    torch.testing.assert_close(gradient, predicted(CurlFreePart()), **tolerance)
    torch.testing.assert_close(rotated, predicted(DivergenceFreePart()), **tolerance)
    field = model.posterior(test).mean - model.mean_module(test).reshape(5, -1)
    torch.testing.assert_close(predicted(CurlFreePart()) + predicted(DivergenceFreePart()), field, **tolerance)
    size = field.abs().max()
    is_gradient, is_rotated = name in ("curl-free", "matern", "gradients"), name == "divergence-free"
    assert (predicted(DivergenceFreePart()).abs().max() < 1e-9 * size) == is_gradient
    assert (predicted(CurlFreePart()).abs().max() < 1e-9 * size) == is_rotated
    both = model.posterior(test, Stacked(CurlFreePart(), DivergenceFreePart())).covariance_matrix
    total = both.reshape(5, 2, 2, 5, 2, 2).sum((1, 4)).reshape(10, 10)
    close(total, model.posterior(test).covariance_matrix, both.abs().max())


@torch.no_grad()
def test_a_composition_is_what_its_parts_make_one_after_the_other():
    model, test = field_model("helmholtz"), points()
    pairs = [
        (Divergence() @ CurlFreePart(), Divergence()),
        (Vorticity() @ DivergenceFreePart(), Vorticity()),
        (Divergence() @ DivergenceFreePart(), 0.0 * Divergence()),
        (Gradient() @ Potential(), CurlFreePart()),
        (RotatedGradient() @ Streamfunction(), DivergenceFreePart()),
        (Laplacian() @ Potential(), Divergence()),
        (-1.0 * Laplacian() @ Streamfunction(), Vorticity()),
        (Value() - CurlFreePart(), DivergenceFreePart()),
    ]
    for left, right in pairs:
        one, other = model.posterior(test, left), model.posterior(test, right)
        torch.testing.assert_close(one.mean, other.mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(one.covariance_matrix, other.covariance_matrix, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mean", MEANS)
@torch.no_grad()
def test_constant_means_go_through_the_operator(mean):
    model, test = field_model("helmholtz", mean=mean_of(mean, 2)), points()
    plain = field_model("helmholtz")
    offsets = torch.zeros(2) if model.mean_module(test).dim() == 1 else model.mean_module(test)[0]
    offsets = offsets + (model.mean_module(test)[0] if model.mean_module(test).dim() == 1 else 0.0)
    torch.testing.assert_close(model.posterior(test, Value()).mean, model.posterior(test).mean)
    for operator in (Gradient(), Divergence(), Potential(), CurlFreePart(), DivergenceFreePart(), Streamfunction()):
        assert not operator.of_constant(offsets, 2).any()
    both = model.posterior(test, Stacked(3.0 * Component(1), Divergence())).mean[:, 0]
    torch.testing.assert_close(both, 3.0 * model.posterior(test).mean[:, 1])
    if mean != "none":
        assert offsets.any() and not torch.allclose(both, plain.posterior(test, 3.0 * Component(1)).mean)


def test_linear_means_raise_and_leave_the_model():
    for mean in (LinearMean(2), MultitaskMean([ConstantMean(), LinearMean(2)], num_tasks=2)):
        model = field_model("helmholtz", mean=mean)
        before = model.posterior(points()).mean
        with pytest.raises(ValueError, match=r"expected a zero or constant mean for operators, got a LinearMean"):
            model.posterior(points(), Divergence())
        assert torch.equal(model.posterior(points()).mean, before)


@pytest.mark.parametrize("spectrum", [Gaussian(), Matern(2.5)], ids=["rbf", "matern 5/2"])
@torch.no_grad()
def test_ready_maps_with_power_zero_predict_potentials(spectrum):
    """Unweighted frequencies keep the variance of the potential near that of the base kernel."""
    base = RBFKernel() if spectrum == Gaussian() else MaternKernel(nu=2.5)
    generator = torch.Generator().manual_seed(0)
    ready = RandomFourier(2, 512, spectrum=PowerWeighted(spectrum, (0, 1)), generator=generator)
    kernel = rfgp.approximate(CurlFreeKernel(base), 512, method=ready)
    x, y = field_rows(2)
    model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2)).condition(x, 1e-6 * y)
    far = 50.0 + 10.0 * torch.arange(4.0)[:, None].expand(4, 2)
    variance = model.posterior(far, Potential()).variance
    assert ((variance - 1.0).abs() < 0.25).all()


@torch.no_grad()
def test_three_dimensions():
    generator = torch.Generator().manual_seed(1)
    x, y, test = (torch.randn(n, 3, generator=generator) for n in (ROWS, ROWS, 4))
    kernel = rfgp.approximate(randomised(HelmholtzKernel(RBFKernel())), WIDTH, input_dim=3, seed=0)
    model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(3)).condition(x, y)
    curl, gradient = model.posterior(test, Curl()), model.posterior(test, Gradient()).mean.unflatten(-1, (3, 3))
    expected = torch.stack([gradient[:, j, i] - gradient[:, i, j] for i, j in ((1, 2), (2, 0), (0, 1))], dim=-1)
    torch.testing.assert_close(curl.mean, expected)
    torch.testing.assert_close(model.posterior(test, Curl() @ DivergenceFreePart()).mean, expected)
    with pytest.raises(ValueError, match=r"expected a vector field on R\^2 for the vorticity, got 3 components"):
        model.posterior(test, Vorticity())


@torch.no_grad()
def test_draws_have_the_covariance_of_the_prediction():
    latent = field_model("helmholtz").posterior(points(3), Stacked(Divergence(), Vorticity()))
    torch.manual_seed(0)
    centered = latent.rsample(torch.Size([20_000])).flatten(1) - latent.mean.flatten()
    covariance = latent.covariance_matrix
    scales = covariance.diagonal()
    spread = scales[:, None] * scales + covariance.square()
    assert (centered.mean(0).abs() <= 5.0 * (scales / len(centered)).sqrt()).all()
    assert ((centered.mT @ centered / len(centered) - covariance).abs() <= 5.0 * (spread / len(centered)).sqrt()).all()


def slopes_of_tasks(correlation):
    """The model of (a, b, a', b') by features, for a known covariance of the tasks."""
    tasks = MultitaskKernel(RBFKernel(), num_tasks=2, rank=1)
    tasks.task_covar_module.initialize(covar_factor=torch.full((2, 1), correlation**0.5))
    tasks.task_covar_module.var = torch.full((2,), 1.0 - correlation)
    operators = [Component(0), Component(1), Partial(0) @ Component(0), Partial(0) @ Component(1)]
    exact = LinearlyObservedKernel(tasks, operators)
    likelihood = MultitaskGaussianLikelihood(4, has_task_noise=False)
    likelihood.noise = 1e-3
    return exact, WeightSpaceGP(rfgp.approximate(exact, 200, input_dim=1, seed=0), likelihood)


def test_tasks_and_their_derivatives_tell_of_each_other():
    x = torch.linspace(0.0, 6.0, 30)[:, None]
    a, b = x.sin(), 0.9 * x.sin() + 0.1 * x.cos()
    truth = torch.cat([a, b, x.cos(), 0.9 * x.cos() - 0.1 * x.sin()], dim=-1)
    y = truth.clone()
    y[10:, [1, 3]] = torch.nan  # b and its slope are not observed where x is large
    errors = []
    for correlation in (0.9, 1e-6):
        exact, model = slopes_of_tasks(correlation)
        posterior = model.condition(x, y).posterior(x)
        with torch.no_grad():
            observed = ~y.flatten().isnan()
            covariance = exact(x).to_dense()[:, observed]
            total = covariance[observed] + 1e-3 * torch.eye(len(covariance[observed]))
            expected = (covariance @ torch.linalg.solve(total, y.flatten()[observed])).reshape(30, 4)
        assert (posterior.mean - expected).abs().max() < 0.1 * posterior.variance.max().sqrt()
        again = model.posterior(x, Component(3)).mean
        torch.testing.assert_close(again, posterior.mean[:, 3], rtol=1e-8, atol=1e-8)
        errors.append(float((posterior.mean - truth)[10:, [1, 3]].square().mean().sqrt().detach()))
    assert errors[0] < 0.3 * errors[1]
