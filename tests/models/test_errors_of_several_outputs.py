"""What models of several outputs refuse: each bad argument says what was expected and leaves the model as it was."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean, ZeroMean
from output_problems import output_kernel, output_likelihood, output_mean, output_model, output_noise, output_rows
from problems import polynomial

import rfgp
from rfgp.diagnostics import exact_posterior, kl_to_exact
from rfgp.functionals import Component, Curl, Divergence, Gradient, Potential, RotatedGradient, Value, Vorticity
from rfgp.kernels import CurlFreeKernel, HelmholtzKernel
from rfgp.likelihoods import (
    ComplexGaussianLikelihood,
    DirichletClassificationLikelihood,
    MultitaskFixedNoiseGaussianLikelihood,
)
from rfgp.models import WeightSpaceGP

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]

SUMS = ("gram", "cross", "target_gram", "count", "log_noise")
NAN, INFINITE = float("nan"), float("inf")
MESSAGE = r"(?s)expected .*got "


def points(num_points=4):
    return torch.randn(num_points, 2, generator=torch.Generator().manual_seed(9))


def rows_for(noise, num_rows=20):
    return *output_rows("curl-free", num_rows, "random"), output_noise(
        "curl-free", num_rows
    ) if noise == "fixed" else None


def spoilt(value, entry):
    """The value with one entry replaced, in a row where both outputs are observed."""
    value = value.clone()
    value[int((~torch.isnan(output_rows("curl-free", len(value), "random")[1])).all(-1).nonzero()[0]), 1] = entry
    return value


LEARNT = ("per task", "full", "fixed")
FIXED = ("fixed",)
NOT_FIXED = ("one", "per task", "full")
BAD = {
    "NaN in x": (LEARNT, lambda x, y, n: (spoilt(x, NAN), y, n)),
    "infinity in x": (LEARNT, lambda x, y, n: (spoilt(x, INFINITE), y, n)),
    "infinity in y": (LEARNT, lambda x, y, n: (x, spoilt(y, INFINITE), n)),
    "minus infinity in y": (LEARNT, lambda x, y, n: (x, spoilt(y, -INFINITE), n)),
    "NaN only": (LEARNT, lambda x, y, n: (x, y * NAN, n)),
    "more outputs": (LEARNT, lambda x, y, n: (x, torch.cat([y, y[:, :1]], dim=-1), n)),
    "fewer outputs": (LEARNT, lambda x, y, n: (x, y[:, :1], n)),
    "one column": (LEARNT, lambda x, y, n: (x, y[:, 0], n)),
    "flat y": (LEARNT, lambda x, y, n: (x, y.flatten(), n)),
    "transposed y": (LEARNT, lambda x, y, n: (x, y.mT, n)),
    "batch of y": (LEARNT, lambda x, y, n: (x, y[None], n)),
    "fewer y": (LEARNT, lambda x, y, n: (x, y[:-1], n)),
    "no rows": (LEARNT, lambda x, y, n: (x[:0], y[:0], n if n is None else n[:0])),
    "too many columns": (LEARNT, lambda x, y, n: (torch.cat([x, x], dim=-1), y, n)),
    "too few columns": (LEARNT, lambda x, y, n: (x[:, :1], y, n)),
    "1-d x": (LEARNT, lambda x, y, n: (x[:, 0], y, n)),
    "3-d x": (LEARNT, lambda x, y, n: (x[None], y[None], n)),
    "integer x": (LEARNT, lambda x, y, n: (x.long(), y, n)),
    "integer y": (LEARNT, lambda x, y, n: (x, torch.ones_like(y).long(), n)),
    "complex y": (LEARNT, lambda x, y, n: (x, torch.complex(y, y), n)),
    "float32 x": (LEARNT, lambda x, y, n: (x.float(), y, n)),
    "float32 y": (LEARNT, lambda x, y, n: (x, y.float(), n)),
    "NumPy y": (LEARNT, lambda x, y, n: (x, y.numpy(), n)),
    "no y": (LEARNT, lambda x, y, n: (x, None, n)),
    "noise that is learned": (NOT_FIXED, lambda x, y, n: (x, y, torch.ones_like(y))),
    "noise per row": (FIXED, lambda x, y, n: (x, y, n[:, 0])),
    "noise of more outputs": (FIXED, lambda x, y, n: (x, y, torch.cat([n, n], dim=-1))),
    "fewer noise": (FIXED, lambda x, y, n: (x, y, n[:-1])),
    "zero noise": (FIXED, lambda x, y, n: (x, y, spoilt(n, 0.0))),
    "negative noise": (FIXED, lambda x, y, n: (x, y, spoilt(n, -0.1))),
    "NaN noise": (FIXED, lambda x, y, n: (x, y, spoilt(n, NAN))),
    "infinite noise": (FIXED, lambda x, y, n: (x, y, spoilt(n, INFINITE))),
    "integer noise": (FIXED, lambda x, y, n: (x, y, torch.ones_like(n).long())),
    "float32 noise": (FIXED, lambda x, y, n: (x, y, n.float())),
    "NumPy noise": (FIXED, lambda x, y, n: (x, y, n.numpy())),
    "unknown noise": (FIXED, lambda x, y, n: (x[:7], y[:7], None)),
}
CASES = [(case, noise) for case, (noises, _) in BAD.items() for noise in noises]


def summary(model):
    with torch.no_grad():
        latent = model.posterior(points())
        return model.log_marginal_likelihood(), latent.mean, latent.covariance_matrix


@pytest.mark.parametrize("method", ["condition", "update"])
@pytest.mark.parametrize(("case", "noise"), CASES)
def test_bad_data_raise_and_leave_the_model(case, noise, method):
    with torch.no_grad():
        model = output_model("curl-free", noise).condition(*rows_for(noise))
    statistics, data, before = model.statistics, model.training_data, summary(model)
    sums = {name: getattr(statistics, name).clone() for name in SUMS}
    patterns = model.patterns
    with pytest.raises(ValueError, match=MESSAGE):
        getattr(model, method)(*BAD[case][1](*rows_for(noise)))
    assert model.statistics is statistics and model.training_data is data and model.patterns == patterns
    assert all(torch.equal(getattr(statistics, name), sums[name]) for name in SUMS)
    assert all(torch.equal(a, b) for a, b in zip(summary(model), before, strict=True))


@pytest.mark.parametrize(("case", "noise"), CASES)
def test_bad_data_of_a_first_fit_leave_the_model_unfitted(case, noise):
    model, other = (output_model("curl-free", noise, input_dim=None) for _ in range(2))
    model.mean_module = other.mean_module = ZeroMean()
    with pytest.raises(ValueError, match=MESSAGE):
        model.condition(*BAD[case][1](*rows_for(noise)))
    with pytest.raises(ValueError, match="call condition"):
        model.posterior(points())
    assert model.covar_module.feature_map is None and model.patterns == ()
    with torch.no_grad():
        model.condition(*rows_for(noise))
        other.condition(*rows_for(noise))
    assert all(torch.equal(a, b) for a, b in zip(summary(model), summary(other), strict=True))


def test_a_broken_loader_leaves_an_unfitted_model_as_it_was():
    model = output_model("curl-free", "full", input_dim=None)
    x, y, _ = rows_for("full")
    with pytest.raises(ValueError, match=MESSAGE):
        model.condition([(x, y), (x, y), (x, y[:, :1])])
    assert model.covar_module.feature_map is None and model.patterns == ()
    with pytest.raises(ValueError, match="expected at least one batch"):
        model.condition([])


@pytest.mark.parametrize("columns", [1, 3])
@torch.no_grad()
def test_other_numbers_of_columns_than_the_lengthscales_raise(columns):
    (x, y), model = output_rows("helmholtz"), output_model("helmholtz")
    other = torch.randn(len(x), columns)
    model.condition(x, y)
    for use in (model.condition, model.update):
        with pytest.raises(ValueError, match=MESSAGE):
            use(other, y)
    with pytest.raises(ValueError, match=MESSAGE):
        model.posterior(other)


TWO, THREE = torch.Size([2]), torch.Size([3])
UNSUPPORTED = {
    "Dirichlet likelihood": lambda k: WeightSpaceGP(k, DirichletClassificationLikelihood(num_classes=2)),
    "Bernoulli likelihood": lambda k: WeightSpaceGP(k, gpytorch.likelihoods.BernoulliLikelihood()),
    "complex likelihood": lambda k: WeightSpaceGP(k, ComplexGaussianLikelihood()),
    "scalar fixed noise": lambda k: WeightSpaceGP(k, FixedNoiseGaussianLikelihood(torch.ones(20))),
    "more tasks": lambda k: WeightSpaceGP(k, MultitaskGaussianLikelihood(3)),
    "fewer tasks": lambda k: WeightSpaceGP(k, MultitaskGaussianLikelihood(1)),
    "more tasks of full noise": lambda k: WeightSpaceGP(k, MultitaskGaussianLikelihood(3, rank=2)),
    "more tasks of fixed noise": lambda k: WeightSpaceGP(k, MultitaskFixedNoiseGaussianLikelihood(torch.ones(20, 3))),
    "batch of noise": lambda k: WeightSpaceGP(k, GaussianLikelihood(batch_shape=TWO)),
    "batch of likelihoods": lambda k: WeightSpaceGP(k, MultitaskGaussianLikelihood(2, batch_shape=THREE)),
    "batch of task noises": lambda k: WeightSpaceGP(
        k, MultitaskGaussianLikelihood(2, batch_shape=THREE, has_global_noise=False)
    ),
    "batch of full noises": lambda k: WeightSpaceGP(
        k, MultitaskGaussianLikelihood(2, rank=1, batch_shape=THREE, has_global_noise=False)
    ),
    "batch of fixed noises": lambda k: WeightSpaceGP(
        k, MultitaskFixedNoiseGaussianLikelihood(torch.ones(3, 20, 2), batch_shape=THREE, learn_additional_noise=True)
    ),
    "batch of means": lambda k: WeightSpaceGP(k, MultitaskGaussianLikelihood(2), ConstantMean(batch_shape=TWO)),
    "batch of means inside": lambda k: WeightSpaceGP(
        k, MultitaskGaussianLikelihood(2), MultitaskMean(ConstantMean(batch_shape=TWO), num_tasks=2)
    ),
    "means of more outputs": lambda k: WeightSpaceGP(
        k, MultitaskGaussianLikelihood(2), MultitaskMean(ConstantMean(), num_tasks=3)
    ),
    "means of means": lambda k: WeightSpaceGP(
        k,
        MultitaskGaussianLikelihood(2),
        MultitaskMean([ConstantMean(), MultitaskMean(ConstantMean(), num_tasks=2)], num_tasks=2),
    ),
    "another mean": lambda k: WeightSpaceGP(k, MultitaskGaussianLikelihood(2), gpytorch.means.ConstantMeanGrad()),
    "another mean inside": lambda k: WeightSpaceGP(
        k, MultitaskGaussianLikelihood(2), MultitaskMean(gpytorch.means.ConstantMeanGrad(), num_tasks=2)
    ),
    "linear means with and without bias": lambda k: WeightSpaceGP(
        k, MultitaskGaussianLikelihood(2), MultitaskMean([LinearMean(2), LinearMean(2, bias=False)], num_tasks=2)
    ),
    "linear mean of more columns": lambda k: WeightSpaceGP(k, MultitaskGaussianLikelihood(2), LinearMean(3)),
    "exact kernel": lambda k: WeightSpaceGP(HelmholtzKernel(RBFKernel()), MultitaskGaussianLikelihood(2)),
    "batch of scales": lambda k: WeightSpaceGP(ScaleKernel(k, batch_shape=TWO), MultitaskGaussianLikelihood(2)),
    "batch of kernels": lambda k: WeightSpaceGP(
        rfgp.approximate(CurlFreeKernel(RBFKernel(batch_shape=TWO)), 8, input_dim=2), MultitaskGaussianLikelihood(2)
    ),
    "scalar kernel and several means": lambda k: WeightSpaceGP(
        polynomial(), GaussianLikelihood(), MultitaskMean(ConstantMean(), num_tasks=2)
    ),
    "scalar kernel and several outputs": lambda k: WeightSpaceGP(polynomial(), MultitaskGaussianLikelihood(2)),
    "scalar kernel and fixed noises": lambda k: WeightSpaceGP(
        polynomial(), MultitaskFixedNoiseGaussianLikelihood(torch.ones(20, 2))
    ),
    "complex features": lambda k: rfgp.approximate(
        CurlFreeKernel(RBFKernel()), 8, input_dim=2, method="fourier:complex"
    ),
    "sum with a scalar kernel": lambda k: WeightSpaceGP(k + polynomial(), MultitaskGaussianLikelihood(2)),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_parts_raise(case):
    with pytest.raises(ValueError, match=MESSAGE):
        UNSUPPORTED[case](output_kernel("curl-free")).condition(*output_rows("curl-free"))


BAD_POINTS = {
    "NaN": lambda x: spoilt(x, NAN),
    "columns": lambda x: x[:, :1],
    "float32": lambda x: x.float(),
    "integers": lambda x: x.long(),
    "1-d": lambda x: x[:, 0],
    "3-d": lambda x: x[None],
    "empty": lambda x: x[:0],
    "NumPy": lambda x: x.numpy(),
}


@pytest.mark.parametrize("case", BAD_POINTS)
@pytest.mark.parametrize("operator", [None, Divergence(), Potential()], ids=str)
def test_bad_points_raise(case, operator):
    with torch.no_grad():
        model = output_model("helmholtz").condition(*output_rows("helmholtz"))
    with pytest.raises(ValueError, match=MESSAGE):
        model.posterior(BAD_POINTS[case](points()), operator)


BAD_OPERATORS = {
    "curl in the plane": ("helmholtz", Curl()),
    "component": ("helmholtz", Component(2)),
    "rotated gradient of a field": ("helmholtz", RotatedGradient()),
    "sum of different sizes": ("helmholtz", Divergence() + Value()),
    "composition that does not fit": ("helmholtz", Divergence() @ Divergence()),
    "divergence of a function": ("laplacian", Divergence()),
    "potential of a function": ("laplacian", Potential()),
    "vorticity of value and gradient": ("value and gradient", Vorticity()),
    "decomposable": ("multitask", Gradient()),
    "decomposable value": ("graph laplacian", Value()),
    "sum with a decomposable part": ("mixed sum", Divergence()),
    "name": ("helmholtz", "divergence"),
    "class": ("helmholtz", Divergence),
}


@pytest.mark.parametrize("case", BAD_OPERATORS)
def test_operators_that_raise_leave_the_model(case):
    name, operator = BAD_OPERATORS[case]
    with torch.no_grad():
        model = WeightSpaceGP(output_kernel(name), output_likelihood(name, "one")).condition(*output_rows(name))
    before = summary(model)
    with pytest.raises(ValueError, match=MESSAGE):
        model.posterior(points(), operator)
    assert all(torch.equal(a, b) for a, b in zip(summary(model), before, strict=True))


@torch.no_grad()
def test_operators_on_a_scalar_kernel_raise():
    x = torch.randn(20, 3)
    model = WeightSpaceGP(polynomial(), GaussianLikelihood()).condition(x, x[:, 0])
    for operator in (Gradient(), Value(), "gradient"):
        with pytest.raises(ValueError, match=MESSAGE):
            model.posterior(x, operator)
    assert model.posterior(x).mean.isfinite().all()


@torch.no_grad()
def test_an_unfitted_model_raises():
    for input_dim in (None, 2):
        model = output_model("curl-free", input_dim=input_dim)
        uses = [
            lambda m: m.posterior(points()),
            lambda m: m.posterior(points(), Divergence()),
            lambda m: m.log_marginal_likelihood(),
            lambda m: m.sample_functions(1),
            lambda m: m.weight_posterior(),
            lambda m: m.statistics,
            lambda m: kl_to_exact(m, points()),
        ]
        for use in uses:
            with pytest.raises(ValueError, match="expected"):
                use(model)
    with pytest.raises(ValueError, match="waits for its first inputs"):
        output_model("curl-free", input_dim=None).resample()


@torch.no_grad()
def test_state_of_another_number_of_outputs_raises():
    state = output_model("curl-free").condition(*output_rows("curl-free")).state_dict()
    other = output_model("multitask")
    with pytest.raises((ValueError, RuntimeError), match=r"expected|Missing"):
        other.load_state_dict(state)


@torch.no_grad()
def test_bad_arguments_of_an_exact_posterior_raise():
    x, y = output_rows("curl-free")
    kernel, likelihood, mean = (
        output_kernel("curl-free"),
        output_likelihood("curl-free", "one"),
        output_mean("curl-free"),
    )
    assert exact_posterior(kernel, likelihood, x, y, points(), mean).mean.shape == (4, 2)
    bad = [
        (x, y[:, :1], points()),
        (x, y[:, 0], points()),
        (x, y[:-1], points()),
        (x, y.flatten(), points()),
        (x[:, :1], y, points()),
        (x, y, spoilt(points(), NAN)),
        (spoilt(x, NAN), y, points()),
    ]
    for arguments in bad:
        with pytest.raises(ValueError, match=MESSAGE):
            exact_posterior(kernel, likelihood, *arguments, mean)
