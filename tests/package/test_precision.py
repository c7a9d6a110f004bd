"""Digits: products in float32, evidence at tiny noise, weights and inputs in the dtype of the kernel."""

import copy
import math
import operator

import gpytorch
import mpmath
import pytest
import torch
from gpytorch.kernels import LinearKernel, MultitaskKernel, PolynomialKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from problems import ExactModel

import rfgp
from rfgp import linalg
from rfgp.features import (
    FourierSeries,
    Maclaurin,
    OpticalFeatures,
    ProductSketch,
    RandomFourier,
    SphericalFourier,
    TensorSketch,
    TensorSRHT,
)
from rfgp.features.spectra import (
    Gaussian,
    Matern,
    PowerWeighted,
    RationalQuadratic,
    SpectralMixture,
    Spherical,
    TraceMeasure,
)
from rfgp.inference import GramStatistics
from rfgp.inference.posterior import kronecker, normal_equations, posterior
from rfgp.inference.sums.rows import Rows
from rfgp.kernels import CurlFreeKernel, OpticalKernel
from rfgp.likelihoods import ComplexGaussianLikelihood, DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")

SINGLE, DOUBLE = torch.float32, torch.float64


# --- products in float32, by the noise relative to the variance of the function ---


def least(noise=1e-2, likelihood=GaussianLikelihood, **options):
    """A likelihood whose noise may be anything."""
    made = likelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-16), **options).double()
    made.noise = noise
    return made


def rows(num_rows, dims, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(num_rows, dims, generator=generator, dtype=DOUBLE)
    return x, torch.sin(3.0 * x.sum(-1)) + 0.1 * x[:, 0]


def evidence_in(dtype, kernel, noise, x, y):
    model = WeightSpaceGP(copy.deepcopy(kernel), least(noise)).to(dtype)
    with torch.no_grad():
        return float(model.condition(x.to(dtype), y.to(dtype)).log_marginal_likelihood())


def products(monkeypatch, function):
    """The dtypes of the Gram products of a call."""
    used, add = set(), linalg.add_gram_

    def recording(gram, cross, features, targets, weights=None, product_dtype=DOUBLE):
        used.add(product_dtype)
        return add(gram, cross, features, targets, weights, product_dtype)

    with monkeypatch.context() as patch:
        for module in (linalg, linalg.gram_matrix):
            patch.setattr(module, "add_gram_", recording)
        function()
    return used


@pytest.mark.parametrize("unit", [1.0, 1e4])
def test_float32_evidence_is_the_same_in_all_units(unit):
    x, y = rows(400, 2)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()).double(), 64, input_dim=2, seed=0)
    kernel.outputscale = unit**2
    noise, digits = 1e-6 * unit**2, []
    for dtype in (SINGLE, DOUBLE):
        digits.append(evidence_in(dtype, kernel, noise, x.float(), unit * y.float()))
    assert abs(digits[0] - digits[1]) <= 1e-3 * abs(digits[1])


def test_float32_polynomial_of_large_variance_is_solved():
    x, y = rows(1000, 6)
    x = 6.0 * x
    kernel = rfgp.approximate(ScaleKernel(PolynomialKernel(power=3)).double(), 128, input_dim=6, seed=0)
    variance = float(kernel(x[:100], diag=True).detach().max())
    y = variance**0.5 * y
    for relative in (1e-4, 1e-6):
        single, double = (evidence_in(dtype, kernel, relative * variance, x.float(), y) for dtype in (SINGLE, DOUBLE))
        assert abs(single - double) <= 0.02 * abs(double)


def scaled(unit, kernel="rbf"):
    base = RBFKernel() if kernel == "rbf" else PolynomialKernel(power=2)
    exact = ScaleKernel(base)
    exact.outputscale = unit
    return rfgp.approximate(exact, 16, input_dim=2, seed=0)


def fixed(noise):
    return lambda: FixedNoiseGaussianLikelihood(torch.tensor([20.0 * noise] * 39 + [noise]))


def gaussian(noise, likelihood=GaussianLikelihood, **options):
    made = likelihood(**options)
    made.noise = noise
    return lambda: made


def tasks(unit):
    exact = MultitaskKernel(RBFKernel(), num_tasks=2)
    exact.task_covar_module.covar_factor.data.fill_(0.0)
    exact.task_covar_module.var = torch.tensor([unit, 1e-3 * unit])
    return rfgp.approximate(exact, 16, input_dim=2, seed=0)


def curl_free(unit):
    exact = ScaleKernel(CurlFreeKernel(RBFKernel()))
    exact.outputscale = unit
    return rfgp.approximate(exact, 16, input_dim=2, seed=0)


MODELS = {
    "gaussian": (scaled, lambda unit: gaussian(0.05 * unit), lambda unit: gaussian(0.005 * unit)),
    "fixed": (scaled, lambda unit: fixed(0.05 * unit), lambda unit: fixed(0.005 * unit)),
    "multitask": (
        tasks,
        lambda unit: gaussian(0.05 * unit, MultitaskGaussianLikelihood, num_tasks=2),
        lambda unit: gaussian(0.005 * unit, MultitaskGaussianLikelihood, num_tasks=2, has_task_noise=False),
    ),
    "curl-free": (
        curl_free,
        lambda unit: gaussian(0.2 * unit, MultitaskGaussianLikelihood, num_tasks=2),
        lambda unit: gaussian(0.002 * unit, MultitaskGaussianLikelihood, num_tasks=2, has_task_noise=False),
    ),
}


@pytest.mark.parametrize("unit", [1.0, 100.0])
@pytest.mark.parametrize("name", MODELS)
def test_products_follow_the_relative_noise(name, unit, monkeypatch):
    kernel, large, small = MODELS[name]
    x, y = rows(40, 2)
    x, y = x.float(), y.float()
    for likelihood, expected in ((large(unit)(), SINGLE), (small(unit)(), DOUBLE)):
        outputs = 2 if name in ("multitask", "curl-free") else 1
        targets = y if outputs == 1 else torch.stack([y, -y], -1)
        noise = (likelihood.noise,) if name == "fixed" else ()
        with torch.no_grad():
            model = WeightSpaceGP(kernel(unit), likelihood)
            assert products(monkeypatch, lambda: model.condition(x, targets, *noise)) == {expected}  # noqa: B023
            if outputs == 1:
                exact = ExactModel(x, y, likelihood, kernel(unit), gpytorch.means.ZeroMean())
            else:
                exact = _Multitask(x, targets, likelihood, kernel(unit))
            assert products(monkeypatch, lambda: likelihood(exact(x), x).log_prob(targets)) == {expected}  # noqa: B023


class _Multitask(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), num_tasks=2)
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize(("unit", "expected"), [(1.0, SINGLE), (1e3, DOUBLE)])
def test_products_for_class_labels_follow_the_largest_output_scale(unit, expected, monkeypatch):
    x, labels = rows(40, 2)[0].float(), torch.arange(40) % 3
    exact = ScaleKernel(RBFKernel(), batch_shape=torch.Size([3]))
    exact.outputscale = torch.tensor([1.0, unit, 1.0])
    model = WeightSpaceGP(
        rfgp.approximate(exact, 16, input_dim=2, seed=0), DirichletClassificationLikelihood(labels, num_classes=3)
    )
    with torch.no_grad():
        assert products(monkeypatch, lambda: model.condition(x, labels)) == {expected}


def test_one_far_row_counts(monkeypatch):
    x, y = rows(5000, 2)
    x[777] = 30.0
    model = WeightSpaceGP(scaled(1.0, "polynomial"), gaussian(1.0)())
    with torch.no_grad():
        assert products(monkeypatch, lambda: model.condition(x.float(), y.float())) == {DOUBLE}


# --- evidence and gradients at tiny noise ---


def reference(kernel, likelihood, x, y):
    """Evidence and gradients in forty digits, from the features and their first derivatives in float64."""
    parameters = [*kernel.parameters(), *likelihood.parameters()]
    with mpmath.workdps(40):
        features = kernel.features(x)
        noise = likelihood.noise.expand(len(x))
        phi = mpmath.matrix(features.detach().tolist())
        total = phi * phi.T + mpmath.diag([mpmath.mpf(float(s)) for s in noise])
        inverse = total**-1
        target = mpmath.matrix(y.tolist())
        solved = inverse * target
        value = -(target.T * solved)[0] / 2 - mpmath.log(mpmath.det(total)) / 2 - len(y) * mpmath.log(2 * mpmath.pi) / 2
        slope = (solved * solved.T - inverse) / 2
        by_features = 2 * slope * phi
        gradients = []
        for parameter in parameters:
            probe, per_row = torch.zeros_like(features, requires_grad=True), torch.zeros_like(noise, requires_grad=True)
            (along,) = torch.autograd.grad(
                (features * probe).sum() + (noise * per_row).sum(), parameter, create_graph=True, allow_unused=True
            )
            pair = torch.autograd.grad(along.sum(), (probe, per_row), allow_unused=True)
            derivative, of_noise = (
                torch.zeros_like(v) if g is None else g for g, v in zip(pair, (probe, per_row), strict=True)
            )
            dense = mpmath.matrix(derivative.tolist())
            by_feature = mpmath.fsum(by_features[i, j] * dense[i, j] for i in range(phi.rows) for j in range(phi.cols))
            by_noise = mpmath.fsum(slope[i, i] * float(of_noise[i]) for i in range(phi.rows))
            gradients.append(float(by_feature + by_noise))
    return float(value), gradients


def problem(num_rows, width, dims, relative, lengthscale=1.0):
    """A kernel and a likelihood in float64, with data drawn from them."""
    generator = torch.Generator().manual_seed(0)
    exact = ScaleKernel(RBFKernel()).double()
    exact.base_kernel.lengthscale = lengthscale
    kernel = rfgp.approximate(exact, width, input_dim=dims, seed=0)
    x = 2.0 * torch.rand(num_rows, dims, generator=generator, dtype=DOUBLE) - 1.0
    with torch.no_grad():
        weights, noise = (torch.randn(n, generator=generator, dtype=DOUBLE) for n in (width, num_rows))
        y = kernel.features(x) @ weights + relative**0.5 * noise
    return kernel, least(relative), x, y


def by_model(name, kernel, likelihood, x, y):
    if name == "weight space":
        return WeightSpaceGP(kernel, likelihood).condition(x, y).log_marginal_likelihood()
    model = ExactModel(x, y, likelihood, kernel, gpytorch.means.ZeroMean())
    return likelihood(model(x), x).log_prob(y)


@pytest.mark.parametrize(
    ("num_rows", "width", "dims", "relative"),
    [(18, 12, 2, 1e-10), (20, 64, 8, 1e-10), (20, 64, 8, 1e-8)],
)
@pytest.mark.parametrize("name", ["weight space", "exact GP"])
def test_evidence_at_tiny_noise(name, num_rows, width, dims, relative):
    kernel, likelihood, x, y = problem(num_rows, width, dims, relative)
    value, gradients = reference(kernel, likelihood, x, y)
    fast = by_model(name, kernel, likelihood, x, y)
    parameters = [*kernel.parameters(), *likelihood.parameters()]
    assert abs(float(fast.detach()) - value) <= 1e-5
    for found, expected in zip(torch.autograd.grad(fast, parameters), gradients, strict=True):
        assert abs(float(found) - expected) <= 3e-6 * abs(expected)


@pytest.mark.parametrize("name", ["weight space", "exact GP"])
def test_more_features_than_rows_of_low_rank(name):
    x, y = rows(30, 2)
    exact = ScaleKernel(PolynomialKernel(power=2)).double()
    kernel, likelihood = rfgp.approximate(exact, 64, input_dim=2, seed=0), least(1e-8)
    value, gradients = reference(kernel, likelihood, x, y)
    fast = by_model(name, kernel, likelihood, x, y)
    assert abs(float(fast.detach()) - value) <= 1e-9 * abs(value)
    parameters = [*kernel.parameters(), *likelihood.parameters()]
    for found, expected in zip(torch.autograd.grad(fast, parameters), gradients, strict=True):
        assert abs(float(found) - expected) <= 1e-5 * abs(expected)


def polynomial(method="auto", width=12):
    return rfgp.approximate(ScaleKernel(PolynomialKernel(power=2)).double(), width, input_dim=3, seed=0, method=method)


def several(kernel):
    return rfgp.approximate(kernel.double(), 12, input_dim=3, seed=0)


def multitask(rank=1):
    return several(MultitaskKernel(RBFKernel(), num_tasks=2, rank=rank))


FORMS = {
    "gaussian": (polynomial, GaussianLikelihood, "real"),
    "fixed": (polynomial, lambda: FixedNoiseGaussianLikelihood(0.1 + torch.rand(40, dtype=DOUBLE)), "real"),
    "fixed and learned": (
        polynomial,
        lambda: FixedNoiseGaussianLikelihood(0.1 + torch.rand(40, dtype=DOUBLE), learn_additional_noise=True),
        "real",
    ),
    "complex targets": (polynomial, ComplexGaussianLikelihood, "complex"),
    "complex": (lambda: polynomial("rademacher:complex"), ComplexGaussianLikelihood, "complex"),
    "tasks": (multitask, lambda: MultitaskGaussianLikelihood(num_tasks=2), "tasks"),
    "missing": (multitask, lambda: MultitaskGaussianLikelihood(num_tasks=2), "missing"),
    "correlated": (multitask, lambda: MultitaskGaussianLikelihood(num_tasks=2, rank=1), "missing"),
    "curl-free": (
        lambda: several(CurlFreeKernel(RBFKernel())),
        lambda: MultitaskGaussianLikelihood(num_tasks=3),
        "fields",
    ),
}


@pytest.mark.parametrize("has_mean", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_the_evidence_from_residuals_is_the_one_from_sums(name, has_mean, monkeypatch):
    torch.manual_seed(0)
    make, likelihood, kind = FORMS[name]
    x = torch.randn(40, 3, dtype=DOUBLE)
    y = torch.randn(40, {"tasks": 2, "missing": 2, "fields": 3}.get(kind, 1), dtype=DOUBLE)
    if kind == "missing":
        y[::3, 0] = torch.nan
    y = y.squeeze(-1) if kind in ("real", "complex") else y
    y = torch.complex(y, x[:, 0]) if kind == "complex" else y
    mean = gpytorch.means.LinearMean(3) if has_mean else gpytorch.means.ZeroMean()
    model = WeightSpaceGP(make(), likelihood(), mean).double()

    def value_and_gradients():
        value = model.condition(x, y).log_marginal_likelihood()
        return value, torch.autograd.grad(value, list(model.parameters()))

    expected = value_and_gradients()
    with monkeypatch.context() as patch:
        for module in (normal_equations, posterior, kronecker):
            patch.setattr(module, "is_ill_conditioned", lambda diagonal: True)
        chunks = []
        patch.setattr(
            "rfgp.inference.sums.residual_pass.row_chunks",
            lambda count, *_: chunks.append(count) or [slice(i, i + 7) for i in range(0, count, 7)],
        )
        found = value_and_gradients()
    assert chunks
    torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=0.0)
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_ordinary_noise_needs_no_further_pass(monkeypatch):
    kernel, likelihood, x, y = problem(200, 20, 2, 1e-4)
    monkeypatch.setattr("rfgp.inference.sums.residual_pass.ResidualPass.quadratic", operator.not_)
    WeightSpaceGP(kernel, likelihood).condition(x, y).log_marginal_likelihood().backward()


def test_rows_are_held_for_gradients_alone():
    kernel, likelihood, x, y = problem(60, 20, 2, 1e-4)
    model = WeightSpaceGP(kernel, likelihood)
    with torch.no_grad():
        assert model.condition(x, y).sums.training_rows is None
    assert model.condition(x, y).sums.training_rows.x is x
    assert copy.deepcopy(model).sums.training_rows is None
    assert model.update(x, y).sums.training_rows is None
    assert model.condition([(x, y)]).sums.training_rows is None


def test_several_outputs_at_tiny_noise():
    torch.manual_seed(0)
    exact = MultitaskKernel(RBFKernel(), num_tasks=2).double()
    kernel = rfgp.approximate(exact, 8, input_dim=2, seed=0)
    x = torch.rand(20, 2, dtype=DOUBLE)
    likelihood = least(1e-10, MultitaskGaussianLikelihood, num_tasks=2, has_task_noise=False)
    y = torch.stack([torch.sin(3.0 * x[:, 0]), x[:, 1]], -1)
    fast = WeightSpaceGP(kernel, likelihood).condition(x, y).log_marginal_likelihood()
    with mpmath.workdps(40):
        phi = mpmath.matrix(kernel.features(x).detach().tolist())
        total = phi * phi.T + mpmath.mpf(float(likelihood.noise.detach())) * mpmath.eye(40)
        factor, target = mpmath.cholesky(total), mpmath.matrix(y.flatten().tolist())
        half = mpmath.lu_solve(total, target)
        log_det = 2 * mpmath.fsum(mpmath.log(factor[i, i]) for i in range(40))
        value = float(-((target.T * half)[0] + log_det + 40 * mpmath.log(2 * mpmath.pi)) / 2)
    assert abs(float(fast.detach()) - value) <= 1e-11 * abs(value)


# --- weights and inputs in the dtype of the kernel ---

KERNELS = {
    "orthogonal Fourier": (lambda: ScaleKernel(RBFKernel()), {}),
    "Fourier": (lambda: RQKernel(), {"method": "fourier"}),
    "Gaussian sketch": (lambda: PolynomialKernel(power=3), {"method": "gaussian"}),
    "Maclaurin": (lambda: RBFKernel(), {"method": "random_maclaurin"}),
    "optical": (lambda: ScaleKernel(OpticalKernel()), {}),
    "sum": (lambda: RBFKernel(active_dims=[0]) + PolynomialKernel(power=2, active_dims=[1, 2]), {"method": "auto"}),
    "curl-free": (lambda: CurlFreeKernel(RBFKernel()), {}),
}


@pytest.mark.parametrize("source", ["input_dim", "train_inputs", "first call"])
@pytest.mark.parametrize("name", KERNELS)
def test_weights_of_a_float64_kernel_are_not_rounded(name, source):
    make, options = KERNELS[name]
    x = torch.rand(6, 3, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    known = {"input_dim": {"input_dim": 3}, "train_inputs": {"train_inputs": x}, "first call": {}}[source]
    if source == "train_inputs" and "method" not in options:
        options = {"method": "optical" if name == "optical" else "fourier"}
    if source == "train_inputs" and name == "sum":
        options = {"method": "random_maclaurin"}
    features = {}
    for default in (SINGLE, DOUBLE):
        torch.set_default_dtype(default)
        try:
            features[default] = rfgp.approximate(make().double(), 12, seed=3, **known, **options).features(x)
        finally:
            torch.set_default_dtype(SINGLE)
    single = rfgp.approximate(
        make(), 12, seed=3, **{k: v.float() if k == "train_inputs" else v for k, v in known.items()}, **options
    )
    assert torch.equal(features[SINGLE], features[DOUBLE])
    torch.testing.assert_close(single.features(x.float()), features[DOUBLE].float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: RandomFourier(3, 8, **o),
        lambda **o: RandomFourier(3, 8, RationalQuadratic(), **o),
        lambda **o: SphericalFourier(3, 8, 3, 2.0, **o),
        lambda **o: ProductSketch(3, 8, 2, "gaussian", **o),
        lambda **o: TensorSRHT(3, 8, 2, **o),
        lambda **o: TensorSketch(3, 8, 2, **o),
        lambda **o: OpticalFeatures(3, 8, **o),
    ],
)
def test_maps_are_made_in_a_dtype(make):
    made = make(generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    weights = {name: buffer for name, buffer in made.named_buffers() if buffer.is_floating_point()}
    drawn = made._draw(torch.Generator().manual_seed(1))
    assert weights and all(
        buffer.dtype == DOUBLE and torch.equal(buffer, drawn[name]) for name, buffer in weights.items()
    )


CASES = [(DOUBLE, SINGLE), (SINGLE, DOUBLE), (SINGLE, torch.float16), (DOUBLE, torch.float16)]


@pytest.mark.parametrize("source", ["input_dim", "first call"])
@pytest.mark.parametrize(("kernel_dtype", "dtype"), CASES)
@pytest.mark.parametrize("name", KERNELS)
def test_inputs_of_another_dtype_are_refused(name, kernel_dtype, dtype, source):
    make, options = KERNELS[name]
    kernel = rfgp.approximate(
        make().to(kernel_dtype), 12, seed=0, **({"input_dim": 3} if source == "input_dim" else {}), **options
    )
    x, right = torch.rand(6, 3).to(dtype), torch.rand(6, 3).to(kernel_dtype)
    calls = [
        kernel,
        kernel.features,
        kernel.scalar_features,
        lambda x: kernel(right, x),
        lambda x: kernel(x, diag=True),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"expected .* {kernel_dtype} .*, got {dtype}; convert"):
            call(x)


def test_models_refuse_inputs_of_another_dtype():
    x, y = rows(20, 2)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()).double(), 12, seed=0)
    model = WeightSpaceGP(kernel, least())
    exact = ExactModel(x.float(), y.float(), least(), kernel)
    fitted = WeightSpaceGP(copy.deepcopy(kernel), least()).condition(x, y)
    calls = [
        lambda: model.condition(x.float(), y.float()),
        lambda: fitted.update(x.float(), y.float()),
        lambda: fitted.posterior(x.float()),
        lambda: exact(x.float()),
        lambda: exact.eval()(x.float()),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"torch.float64 .*got torch.float32; convert"):
            call()


def test_a_kernel_without_parameters_follows_its_inputs():
    for dtype in (SINGLE, DOUBLE):
        x, y = rows(20, 2)
        kernel = rfgp.approximate(OpticalKernel(), 12, seed=0)
        model = WeightSpaceGP(kernel, least(0.1).to(dtype)).condition(x.to(dtype), y.to(dtype))
        assert kernel.features(x.to(dtype)).dtype == model.posterior(x.to(dtype)).mean.dtype == dtype


LARGE = {
    "fourier": lambda: rfgp.approximate(RBFKernel(), 12, input_dim=2, seed=0),
    "short lengthscale": lambda: rfgp.approximate(_short(), 12, input_dim=2, seed=0),
    "polynomial": lambda: rfgp.approximate(PolynomialKernel(power=3), 12, input_dim=2, seed=0),
    "sum": lambda: rfgp.approximate(RBFKernel() + LinearKernel(), 12, input_dim=2, seed=0),
    "curl-free": lambda: rfgp.approximate(CurlFreeKernel(RBFKernel()), 12, input_dim=2, seed=0),
}


def _short():
    kernel = RBFKernel()
    kernel.lengthscale = 0.5
    return kernel


@pytest.mark.parametrize("name", LARGE)
def test_finite_inputs_that_overflow_are_refused(name):
    kernel, x = LARGE[name](), torch.rand(6, 2)
    x[3] = 3e38
    y, likelihood = torch.rand(6), GaussianLikelihood()
    if name == "curl-free":
        y, likelihood = torch.rand(6, 2), MultitaskGaussianLikelihood(num_tasks=2)
    fitted = WeightSpaceGP(copy.deepcopy(kernel), copy.deepcopy(likelihood)).condition(x[:3], y[:3])
    before = fitted.statistics.gram.clone()
    calls = [
        lambda: kernel.features(x),
        lambda: kernel(x).to_dense(),
        lambda: kernel(x[:2], x).to_dense(),
        lambda: WeightSpaceGP(kernel, likelihood).condition(x, y),
        lambda: WeightSpaceGP(kernel, likelihood).condition([(x, y)]),
        lambda: fitted.update(x, y),
        lambda: fitted.posterior(x).mean,
        lambda: fitted.sample_functions(1)[0](x),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(ValueError, match="overflow"):
            call()
            pytest.fail(f"call {number} was not refused")
    assert torch.equal(fitted.statistics.gram, before)


@pytest.mark.parametrize(
    "call",
    [
        lambda: RationalQuadratic(-1.0),
        lambda: RationalQuadratic(0.0),
        lambda: RationalQuadratic(math.nan),
        lambda: RationalQuadratic(math.inf),
        lambda: RationalQuadratic("a"),
        lambda: Matern(-1),
        lambda: Matern("a"),
        lambda: Matern(torch.ones(2)),
        lambda: SpectralMixture(0),
        lambda: SpectralMixture(1.5),
        lambda: Spherical(3, math.inf, 3),
        lambda: Spherical(3, "a", 3),
        lambda: Spherical(3, 2.0, 0),
        lambda: PowerWeighted(Gaussian(), (-1,)),
        lambda: PowerWeighted(Gaussian(), (0.5,)),
        lambda: PowerWeighted(Gaussian(), 1),
        lambda: PowerWeighted(Gaussian(), ()),
        lambda: PowerWeighted(RationalQuadratic(), (1,)),
        lambda: TraceMeasure(lambda w: w.new_ones(len(w), 1, 1), 0),
        lambda: TraceMeasure(lambda w: w.new_ones(len(w), 1, 1), 1, -1.0),
        lambda: TraceMeasure(lambda w: None, 1),
        lambda: RandomFourier(3, 8, structure=0),
        lambda: RandomFourier(3, 8, is_complex="no"),
        lambda: RandomFourier(3, 8, generator=0),
        lambda: RandomFourier(3, 8, dtype=torch.int64),
        lambda: RandomFourier(3, 8, dtype=torch.complex64),
        lambda: RandomFourier(3, 8).resample(0),
        lambda: FourierSeries(torch.ones(1, 1), -torch.ones(1)),
        lambda: FourierSeries(torch.ones(1, 1), torch.full((1,), math.nan)),
        lambda: FourierSeries([[1]], [1.0]),
        lambda: FourierSeries(torch.ones(0, 1), torch.ones(0)),
        lambda: Maclaurin({1: ProductSketch(3, 4, 1)}, "ab"),
        lambda: Maclaurin({1: "sketch"}, torch.ones(2)),
        lambda: Maclaurin([ProductSketch(3, 4, 1)], torch.ones(2)),
        lambda: Maclaurin({1: ProductSketch(3, 4, 1)}, torch.ones(2), importance=-torch.ones(2)),
        lambda: Maclaurin({1: ProductSketch(3, 4, 1)}, torch.ones(2), importance=torch.ones(3)),
        lambda: Maclaurin({1: ProductSketch(3, 4, 1)}, torch.ones(2), is_gaussian="no"),
        lambda: WeightSpaceGP(polynomial(), GaussianLikelihood(), product_dtype=torch.int64),
        lambda: WeightSpaceGP(polynomial(), GaussianLikelihood(), product_dtype=torch.float16),
        lambda: WeightSpaceGP(polynomial(), GaussianLikelihood(), product_dtype="float64"),
        lambda: GramStatistics(2, 1).update(torch.eye(2), torch.ones(2, 1), product_dtype=torch.int64),
        lambda: GramStatistics.of_rows(torch.eye(2), Rows(torch.ones(2, 1)), torch.int64),
    ],
)
def test_arguments_that_mean_nothing_are_refused(call):
    with pytest.raises(ValueError, match=r"expected .*, got .*"):
        call()
