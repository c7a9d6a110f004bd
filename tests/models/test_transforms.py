"""Posteriors, drawn functions and kernels under torch.func, the tracer and the compiler of PyTorch."""

import copy

import gpytorch
import pytest
import torch
from gpytorch.kernels import (
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from problems import ExactModel, regression_rows

import rfgp

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
KERNELS = {
    "gaussian": lambda: ScaleKernel(RBFKernel()),
    "polynomial": lambda: ScaleKernel(PolynomialKernel(power=3)),
    "periodic": PeriodicKernel,
    "rational quadratic": RQKernel,
    "sum": lambda: ScaleKernel(RBFKernel()) + MaternKernel(nu=1.5),
    "product": lambda: RBFKernel(active_dims=[0]) * MaternKernel(nu=1.5, active_dims=[1, 2]),
}


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def kernel(name="gaussian"):
    return rfgp.approximate(KERNELS[name](), 24, input_dim=3, seed=0)


def predicted(model, x):
    """The model after a prediction, which fills its caches, without gradients in parameters."""
    assert model.requires_grad_(False)(x[:2]).variance.shape[0] == 2
    return model


def fitted():
    x, y = regression_rows(60)
    model = rfgp.WeightSpaceGP(kernel(), GaussianLikelihood(), gpytorch.means.ConstantMean())
    return predicted(model.condition(x, y), x)


def several():
    x, y = regression_rows(60)
    features = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2), 24, input_dim=3, seed=0)
    model = rfgp.WeightSpaceGP(features, MultitaskGaussianLikelihood(2))
    return predicted(model.condition(x, torch.stack([y, -y.square()], -1)), x)


def exact():
    x, y = regression_rows(60)
    return predicted(ExactModel(x, y, GaussianLikelihood(), kernel()).eval(), x)


def moments(model, name):
    return lambda x: getattr(model(x), name)


FUNCTIONS = {f"features, {name}": lambda name=name: kernel(name).requires_grad_(False).features for name in KERNELS}
FUNCTIONS |= {
    f"{kind}, {name}": lambda make=make, name=name: moments(make(), name)
    for kind, make in (("posterior", fitted), ("several outputs", several), ("exact", exact))
    for name in ("mean", "variance")
}
every_function = pytest.mark.parametrize("make", FUNCTIONS.values(), ids=FUNCTIONS)


@every_function
def test_derivatives_at_a_point(make):
    function, x = make(), regression_rows(1, seed=3)[0][0]

    def at(point):
        return function(point.unsqueeze(0))

    expected = torch.autograd.functional.jacobian(at, x)
    close(torch.func.jacrev(at)(x), expected)
    close(torch.func.jacfwd(at)(x), expected)

    def total(point):
        return (at(point) ** 2).sum()

    close(torch.func.hessian(total)(x), torch.autograd.functional.hessian(total, x))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if not name.startswith("exact")])
def test_vmap_over_points(name):
    function, x = FUNCTIONS[name](), regression_rows(6, seed=3)[0]
    alone = torch.func.vmap(lambda point: function(point.unsqueeze(0)))(x).squeeze(1)
    close(alone, function(x))


def test_a_model_that_predicts_first_inside_a_transform_can_be_copied():
    x, y = regression_rows(60)
    model = rfgp.WeightSpaceGP(kernel(), GaussianLikelihood()).condition(x, y).requires_grad_(False)
    slopes = torch.func.vmap(torch.func.jacrev(lambda point: model.posterior(point.unsqueeze(0)).mean.squeeze(0)))
    found, copied = slopes(x[:4]), copy.deepcopy(model)
    assert bool(found.isfinite().all())
    close(copied.posterior(x[:4]).variance, model.posterior(x[:4]).variance)
    close(model.point_predictor()(x[:4]).mean.squeeze(-1), copied.posterior(x[:4]).mean)


class TrueModel(ExactModel):
    """An exact model whose predictions have true variances."""

    def forward(self, x):
        prior = super().forward(x)
        return rfgp.likelihoods.MultivariateNormal(prior.mean, prior.lazy_covariance_matrix)


@pytest.mark.parametrize("name", ["mean", "variance"])
def test_vmap_over_predictions_of_an_exact_gp_that_is_not_checked(name):
    x, y = regression_rows(60)
    function = moments(predicted(TrueModel(x, y, GaussianLikelihood(), kernel()).eval(), x), name)
    with gpytorch.settings.debug(False):
        alone = torch.func.vmap(lambda point: function(point.unsqueeze(0)))(x[:6]).squeeze(1)
        close(alone, function(x[:6]))


def test_a_trace_of_drawn_functions_takes_another_number_of_rows():
    samples, x = fitted().sample_functions(3), regression_rows(9, seed=3)[0]
    for function in (samples.__call__, lambda x: samples[0](x)):
        close(torch.jit.trace(function, x[:5], check_trace=False)(x), function(x))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if not name.startswith("features")])
def test_a_trace_takes_another_number_of_rows(name):
    function, x = FUNCTIONS[name](), regression_rows(9, seed=3)[0]
    traced = torch.jit.trace(function, x[:5], check_trace=False)
    close(traced(x), function(x))


class Exported(torch.nn.Module):
    """A function as the module that torch.export takes."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


EXPORTED = {name: make for name, make in FUNCTIONS.items() if name.startswith(("features", "posterior"))}
EXPORTED |= {
    "drawn functions": lambda: fitted().sample_functions(3).__call__,
    "points": lambda: fitted().point_predictor(),
    "points of several outputs": lambda: several().point_predictor(),
}


@pytest.mark.parametrize("make", EXPORTED.values(), ids=EXPORTED)
@torch.no_grad()
def test_an_exported_program_takes_another_number_of_rows(make):
    function = make()
    rows = {0: torch.export.Dim("rows")}
    x, many = (regression_rows(count, seed=3)[0] for count in (5, 9000))
    program = torch.export.export(Exported(function), (x,), dynamic_shapes=(rows,), strict=False).module()
    for inputs in (x[:1], many):
        close(tuple(program(inputs)), tuple(function(inputs)))


def compiled(function):
    """A function as one graph for any number of rows, without what was compiled before."""
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=True, backend="eager")


@pytest.mark.parametrize("name", ["features", "function"])
@pytest.mark.long("compiles for seconds")
def test_one_graph_holds_features_and_drawn_functions(name):
    function = kernel("sum").features if name == "features" else fitted().sample_functions(1)[0]
    x = regression_rows(9, seed=3)[0]
    close(compiled(function)(x), function(x))


def complex_features():
    x, y = regression_rows(60)
    features = rfgp.approximate(PolynomialKernel(power=3), 24, input_dim=3, method="gaussian:complex", seed=0)
    return predicted(rfgp.WeightSpaceGP(features, GaussianLikelihood()).condition(x, y), x)


def complex_targets():
    x, y = regression_rows(60)
    model = rfgp.WeightSpaceGP(kernel(), rfgp.likelihoods.ComplexGaussianLikelihood())
    return predicted(model.condition(x, torch.complex(y, y.square())), x)


MODELS = {
    "one output": fitted,
    "several outputs": several,
    "complex features": complex_features,
    "complex targets": complex_targets,
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.long("compiles for seconds")
def test_one_graph_holds_a_posterior_at_any_number_of_rows(make):
    model, x = make(), regression_rows(9, seed=3)[0]

    def mean_and_variance(x):
        posterior = model.posterior(x)
        return posterior.mean, posterior.variance

    function = compiled(mean_and_variance)
    for rows in (x[:5], x, x[:7]):
        close(function(rows), mean_and_variance(rows))


@pytest.mark.long("compiles for seconds")
def test_a_compiled_posterior_follows_a_new_fit_and_refuses_a_changed_model():
    x, y = regression_rows(60)
    model = fitted()
    function = compiled(lambda x: model.posterior(x).mean)
    close(function(x), model(x).mean)
    model.condition(x, 1.0 - 2.0 * y)
    with pytest.raises(RuntimeError, match="expected a prediction since the fit"):
        function(x)
    close(predicted(model, x)(x).mean, function(x))
    for part, name in ((model.likelihood, "noise"), (model.covar_module.base_kernel, "lengthscale")):
        part.initialize(**{name: 0.7})
        with pytest.raises(RuntimeError, match="expected the parameters of the last prediction"):
            function(x)
        model.condition(x, y)
        close(predicted(model, x)(x).mean, function(x))


def test_values_are_still_checked_outside_of_transforms():
    model, x = fitted(), regression_rows(4)[0]
    x[0, 0] = torch.nan
    with pytest.raises(ValueError, match="finite"):
        model(x)
    torch.func.vmap(lambda point: model(point.unsqueeze(0)).mean)(x)
