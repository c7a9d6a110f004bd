"""Equispaced Fourier grids: features, sums without parameters, and all that follows from these."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import gpytorch
import pytest
import torch
from feature_parts import leaf
from gpytorch.kernels import (
    ConstantKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import (
    DirichletClassificationLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
)
from gpytorch.means import ConstantMean

import rfgp
from rfgp.approximation import FeatureKernel
from rfgp.approximation.families.grid import GridFamily, SpectralGrid
from rfgp.approximation.registry import OF_MAPS
from rfgp.data import ArraySource
from rfgp.inference.sums.grid_statistics import GridStatistics
from rfgp.kernels import AdvectedKernel, LaplaceKernel
from rfgp.likelihoods import ComplexGaussianLikelihood
from rfgp.linalg import exponential_sums as sums_of_exponentials
from rfgp.models import LaplaceGP, WeightSpaceGP
from rfgp.models.streams import Forgetting, LengthscaleBank, SlidingWindow

ROUNDING = 1e-10
DTYPE = torch.float64


def points(rows, columns, seed=0):
    return torch.rand(rows, columns, dtype=DTYPE, generator=torch.Generator().manual_seed(seed))


def with_values(kernel, **values):
    return kernel.double().initialize(**values)


def gaussian(columns=1, length=0.3, **options):
    return with_values(RBFKernel(**options), lengthscale=length)


def on_grid(kernel, x, num_features=41):
    return rfgp.approximate(kernel, num_features, method="fourier_grid", train_inputs=x)


def periodic(length=0.6):
    return with_values(PeriodicKernel(), period_length=0.4, lengthscale=0.8) * gaussian(length=length)


def mixture():
    kernel = SpectralMixtureKernel(num_mixtures=2).double()
    means, scales = torch.tensor([[[1.0]], [[4.0]]]), torch.tensor([[[0.5]], [[0.3]]])
    return kernel.initialize(mixture_weights=torch.tensor([0.3, 0.7]), mixture_means=means, mixture_scales=scales)


def drifting():
    kernel = AdvectedKernel(num_space_dims=1, ard_num_dims=2).double()
    return kernel.initialize(lengthscale=torch.tensor([[0.3, 0.5]]), velocity=torch.tensor([-1.0]), spread=0.3)


KERNELS = {
    "drifting": (drifting, 2, 301, 5e-4),
    "gaussian": (lambda: gaussian(), 1, 41, 1e-6),
    "matern 1/2": (lambda: with_values(MaternKernel(nu=0.5), lengthscale=0.5), 1, 301, 0.07),
    "matern 3/2": (lambda: with_values(MaternKernel(nu=1.5), lengthscale=0.3), 1, 201, 5e-5),
    "matern 5/2 ARD": (
        lambda: with_values(MaternKernel(nu=2.5, ard_num_dims=2), lengthscale=torch.tensor([[0.3, 0.8]])),
        2,
        801,
        3e-3,
    ),
    "rational quadratic": (lambda: with_values(RQKernel(), lengthscale=0.3, alpha=3.0), 1, 101, 1e-3),
    "laplace": (lambda: with_values(LaplaceKernel(), lengthscale=0.5), 1, 301, 0.07),
    "mixture": (mixture, 1, 101, 1e-6),
    "periodic by gaussian": (periodic, 1, 201, 1e-6),
    "gaussian in three dimensions": (lambda: gaussian(length=0.6), 3, 601, 2e-4),
    "product over columns": (
        lambda: gaussian(length=0.4, active_dims=[0]) * gaussian(length=0.6, active_dims=[1]),
        2,
        401,
        1e-5,
    ),
    "sum over columns": (
        lambda: (
            ScaleKernel(gaussian(length=0.4, active_dims=[0])).double()
            + gaussian(length=0.6, active_dims=[1])
            + ConstantKernel().double()
        ),
        2,
        401,
        1e-5,
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_features_are_those_of_the_exact_kernel(name):
    make, columns, width, error = KERNELS[name]
    exact, x = make(), points(40, columns)
    kernel = on_grid(exact, points(500, columns, seed=1), width)
    with torch.no_grad():
        wanted, found = exact(x).to_dense(), kernel(x).to_dense()
        found.diagonal().add_(kernel.residual_variance(x))
        scale = float(wanted.max())
        assert kernel.num_scalar_features <= width
        assert float((found - wanted).abs().max()) < error * scale
        torch.testing.assert_close(found.diagonal(), wanted.diagonal(), rtol=error, atol=0.0)


class Ungridded(SpectralGrid):
    """A grid whose sums over rows are those of any other features."""


class UngriddedFamily(GridFamily):
    active_frequency_grid = None
    summed_amplitudes = None

    def active_features(self, x):
        return GridFamily(self.kernel, self.maps).active_features(x)

    def active_residual(self, x):
        return GridFamily(self.kernel, self.maps).active_residual(x)

    def active_summed_features(self, x):
        return self.active_features(x)

    def summed_parameters(self):
        return self.feature_parameters()


OF_MAPS[Ungridded] = UngriddedFamily


def Dense(kernel):
    return FeatureKernel(kernel.exact_kernel, Ungridded(kernel.maps.grid))


def multitask(x):
    torch.manual_seed(0)
    return MultitaskKernel(on_grid(gaussian(), x), num_tasks=2, rank=1).double()


def missing(y):
    return torch.where(torch.rand(y.shape, generator=torch.Generator().manual_seed(3)) < 0.2, math.nan, y)


def labels(y):
    return (y > -0.5).long() + (y > 0.5).long()


def two(y):
    return torch.stack([y, y.square()], dim=-1)


CASES = {
    "gaussian": (lambda x, y: GaussianLikelihood(), lambda y: y),
    "known noise": (lambda x, y: FixedNoiseGaussianLikelihood(0.1 + points(len(y), 1, 4)[:, 0]), lambda y: y),
    "known and learned noise": (
        lambda x, y: FixedNoiseGaussianLikelihood(0.1 + points(len(y), 1, 4)[:, 0], learn_additional_noise=True),
        lambda y: y,
    ),
    "classes": (lambda x, y: DirichletClassificationLikelihood(labels(y)), labels),
    "two outputs": (lambda x, y: MultitaskGaussianLikelihood(2), two),
    "two outputs with gaps": (lambda x, y: MultitaskGaussianLikelihood(2), lambda y: missing(two(y))),
    "correlated noise and gaps": (lambda x, y: MultitaskGaussianLikelihood(2, rank=1), lambda y: missing(two(y))),
    "proper complex targets": (lambda x, y: ComplexGaussianLikelihood(), lambda y: torch.complex(y, y.square())),
    "complex targets": (
        lambda x, y: ComplexGaussianLikelihood(has_pseudo_noise=True),
        lambda y: torch.complex(y, y.square()),
    ),
}


def problem(rows=90):
    x = points(rows, 1)
    noise = torch.randn(rows, dtype=DTYPE, generator=torch.Generator().manual_seed(1))
    return x, torch.sin(7.0 * x[:, 0]) + 0.3 * noise


@pytest.mark.parametrize("name", CASES)
def test_evidence_gradient_and_posterior_are_those_of_the_features(name):
    make, targets = CASES[name]
    x, y = problem()
    values, found = targets(y), []
    for is_dense in (False, True):
        kernel = on_grid(gaussian(length=0.3), x)
        kernel = Dense(kernel) if is_dense else kernel
        if "outputs" in name or "gaps" in name:
            torch.manual_seed(0)
            kernel = MultitaskKernel(kernel, num_tasks=2, rank=1).double()
        torch.manual_seed(0)
        model = WeightSpaceGP(kernel, make(x, y).double(), weights_of(name))
        model.condition(x, values, weights=0.5 + points(len(x), 1, 5)[:, 0] if name == "gaussian" else None)
        assert isinstance(model.statistics, GridStatistics) != is_dense
        evidence, posterior = model.log_marginal_likelihood(), model.posterior(points(20, 1, 6))
        learned = {n: p for n, p in model.named_parameters() if p.requires_grad and "grid" not in n}
        gradients = torch.autograd.grad(evidence, list(learned.values()), allow_unused=True)
        found.append((evidence, posterior.mean, posterior.variance, *(g for g in gradients if g is not None)))
    for of_grid, wanted in zip(*found, strict=True):
        torch.testing.assert_close(of_grid, wanted, rtol=ROUNDING, atol=ROUNDING)


def weights_of(name):
    return None if "outputs" in name or "gaps" in name or "complex" in name else ConstantMean().double()


def matern_model(x, likelihood=None, width=61):
    kernel = ScaleKernel(with_values(MaternKernel(nu=1.5), lengthscale=0.4)).double()
    return WeightSpaceGP(on_grid(kernel, x, width), likelihood or GaussianLikelihood().double())


def test_evidence_and_gradient_are_those_of_dense_algebra_with_what_is_cut_off_as_noise():
    x = points(60, 2)
    y = torch.sin(6.0 * x[:, 0]) + x[:, 1]
    model = matern_model(x).condition(x, y)
    model.covar_module.base_kernel.lengthscale = 0.25  # the sums hold for all parameters
    features, kernel = model.covar_module.features(x), model.covar_module
    variance = model.likelihood.noise + kernel.residual_variance(x)
    covariance = features @ features.mT + torch.diag(variance)
    wanted = torch.distributions.MultivariateNormal(torch.zeros(60, dtype=DTYPE), covariance).log_prob(y)
    found, learned = model.log_marginal_likelihood(), list(model.parameters())
    torch.testing.assert_close(found, wanted, rtol=ROUNDING, atol=ROUNDING)
    pairs = zip(torch.autograd.grad(found, learned), torch.autograd.grad(wanted, learned), strict=True)
    for pair in pairs:
        torch.testing.assert_close(*pair, rtol=1e-8, atol=1e-8)
    fresh = matern_model(x, model.likelihood)
    fresh.covar_module.base_kernel.lengthscale = 0.25
    again = fresh.condition(x, y).log_marginal_likelihood()
    torch.testing.assert_close(found, again, rtol=ROUNDING, atol=ROUNDING)


def test_predictions_are_exact_up_to_the_box_and_far_away():
    x, y = problem()
    exact, far = gaussian(length=0.2), torch.tensor([[-9.0], [0.0], [1.0], [1.04], [9.0]], dtype=DTYPE)
    posterior = WeightSpaceGP(on_grid(exact, x), GaussianLikelihood().double()).condition(x, y).posterior(far)
    with torch.no_grad():
        noise = torch.eye(len(x), dtype=DTYPE) * GaussianLikelihood().double().noise
        solve = torch.linalg.solve(exact(x).to_dense() + noise, exact(x, far).to_dense())
        torch.testing.assert_close(posterior.mean, solve.mT @ y, rtol=0.0, atol=1e-3)
        variance = 1.0 - (exact(far, x).to_dense() * solve.mT).sum(-1)
        torch.testing.assert_close(posterior.variance, variance, rtol=0.0, atol=1e-3)


def test_exact_gp_and_laplace_take_the_features():
    x, y = problem(40)
    kernel, likelihood = on_grid(gaussian(), x), GaussianLikelihood().double()

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(x, y, likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model().eval()
    with torch.no_grad():
        wanted = WeightSpaceGP(kernel, likelihood).condition(x, y).posterior(x[:7]).mean
        torch.testing.assert_close(model(x[:7]).mean, wanted, rtol=1e-6, atol=1e-6)
        latent = LaplaceGP(kernel, gpytorch.likelihoods.BernoulliLikelihood()).condition(x, (y > 0).double())
        assert torch.isfinite(latent.posterior(x[:7]).mean).all()


def test_rows_are_added_merged_taken_away_and_parted():
    x = points(90, 2)
    y = torch.sin(6.0 * x[:, 0]) + x[:, 1]

    def evidence(model):
        return float(model.log_marginal_likelihood().detach())

    def parts(*ends):
        return [ArraySource(x[i:j], y[i:j]) for i, j in zip((0, *ends), (*ends, 90), strict=True)]

    whole = matern_model(x).condition(x, y)
    first = matern_model(x).condition(x[:30], y[:30]).update(x[30:50], y[30:50])
    first.merge(matern_model(x).condition(x[50:], y[50:]))
    assert evidence(first) == pytest.approx(evidence(whole), abs=1e-9)
    with ThreadPoolExecutor(1) as executor:
        by_parts = matern_model(x).condition(parts(20, 60), executor=executor)
    assert evidence(by_parts) == pytest.approx(evidence(whole), abs=1e-9)
    left, wanted = whole.downdate(x[:40], y[:40]), matern_model(x).condition(x[40:], y[40:])
    assert evidence(left) == pytest.approx(evidence(wanted), abs=1e-9)
    with pytest.raises(ValueError, match=r"expected (rows of the model|statistics of a subset)"):
        left.downdate(x[50:60], 9.0 + y[50:60])
    torch.testing.assert_close(left.posterior(x).mean, wanted.posterior(x).mean, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("is_window", (True, False))
def test_a_bank_has_one_set_of_sums(is_window, monkeypatch):
    x, y = problem()
    added, add = [], GridStatistics.add
    monkeypatch.setattr(GridStatistics, "add", lambda self, *rows: added.append(1) or add(self, *rows))
    model = matern_model(x)
    stream = SlidingWindow(model, 50) if is_window else Forgetting(model, 1.0)
    bank = LengthscaleBank(stream, (0.5, 1.0, 2.0), learn_every=60)
    for rows in torch.arange(90).split(30):
        bank.update(x[rows], y[rows])
    last = slice(40, 90) if is_window else slice(None)
    assert len(added) < 3 * 3
    for member in bank.models:
        twin = matern_model(x)
        twin.load_state_dict(member.state_dict())
        wanted = twin.condition(x[last], y[last]).log_marginal_likelihood()
        torch.testing.assert_close(member.log_marginal_likelihood(), wanted, rtol=0.0, atol=1e-8)
    assert len({float(member.likelihood.noise.detach()) for member in bank.models}) > 1


def test_states_and_files_keep_the_grid(tmp_path):
    x, y = problem()
    model, twin = (matern_model(x, width=None) for _ in range(2))
    model.covar_module.base_kernel.lengthscale = 0.2
    assert leaf(model.covar_module).regrid(1e5)
    model.condition(x, y)
    rfgp.save(model, tmp_path / "model.rfgp")
    twin.load_state_dict(model.state_dict())
    for other in (rfgp.load(tmp_path / "model.rfgp"), twin):
        assert isinstance(other.statistics, GridStatistics)
        torch.testing.assert_close(other.log_marginal_likelihood(), model.log_marginal_likelihood())


def test_training_reads_rows_for_every_grid_and_not_for_parameters(monkeypatch):
    x, y = problem(2000)
    read, condition = [], WeightSpaceGP.condition

    def counted(self, x, *rest, **more):
        read.append(len(x))
        return condition(self, x, *rest, **more)

    monkeypatch.setattr(WeightSpaceGP, "condition", counted)
    kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
    model = WeightSpaceGP(on_grid(kernel, x, 101), GaussianLikelihood().double(), ConstantMean().double())
    summary = rfgp.fit(model, x, y, progress=False)
    assert summary.evaluations > 5 * len(read) and len(read) <= 4
    assert float(model.likelihood.noise.detach()) == pytest.approx(0.09, rel=4.0 * math.sqrt(2.0 / 2000))
    assert float(model.covar_module.residual_variance(x[:1])) < 0.01
    error = model.posterior(x).mean.detach() - torch.sin(7.0 * x[:, 0])
    assert float(error.square().mean()) < 4.0 * 20.0 * 0.09 / 2000  # twenty parameters at this noise


def test_kernels_are_compared_on_the_same_sums(monkeypatch):
    x, y = problem(2000)
    read, add = [], GridStatistics.add
    monkeypatch.setattr(
        GridStatistics, "add", lambda self, features, *rest: read.append(len(features)) or add(self, features, *rest)
    )
    kernels = {"rough": MaternKernel(nu=1.5), "smooth": RBFKernel()}

    def model(kernel):
        features = on_grid(ScaleKernel(kernel).double(), x, None)
        return WeightSpaceGP(features, GaussianLikelihood().double(), ConstantMean().double())

    models = {name: model(kernel) for name, kernel in kernels.items()}
    scores = rfgp.training.compare(models, x, y)
    assert list(scores) == ["smooth", "rough"]
    assert sum(read) == len(x)
    widths = [model.covar_module.num_scalar_features for model in models.values()]
    assert min(widths) == max(widths) > 60  # as many as the rough kernel needs
    for name, model in models.items():
        alone = copy.deepcopy(model).condition(x, y)
        value = float(alone.log_marginal_likelihood())
        assert value == pytest.approx(2000 * scores[name], abs=1e-6)
        if name == "smooth":
            evidence = rfgp.training.Evidence(initialize=False)
            assert rfgp.fit(alone, x, y, strategy=evidence).log_marginal_likelihood == pytest.approx(value, abs=0.1)
    other = WeightSpaceGP(on_grid(gaussian(), x), GaussianLikelihood().double())
    with pytest.raises(ValueError, match="means of one form"):
        rfgp.training.compare({"mean": models["smooth"], "none": other}, x, y)


@pytest.mark.parametrize("name", ("gaussian", "classes", "two outputs"))
@pytest.mark.parametrize("columns", (1, 3))
def test_maps_are_series_and_equal_the_posterior(name, columns):
    rows = points(60, columns)
    y = torch.sin(6.0 * rows[:, 0])
    kernel = on_grid(gaussian(length=0.5), rows, 61)
    if name == "two outputs":
        kernel = MultitaskKernel(kernel, num_tasks=2, rank=1).double()
    make, targets = CASES[name]
    model = WeightSpaceGP(kernel, make(rows, y).double(), weights_of(name)).condition(rows, targets(y))
    axes = [torch.linspace(-0.1, 1.0 + axis, 5 + axis, dtype=DTYPE) for axis in range(columns)]
    axes[-1][-1] = 99.0  # far from the box
    source = rfgp.data.GridSource(axes, batch_size=11)
    for points_of_map, x in ((source, torch.cat([x for (x,) in source])), (points(90, columns, 8),) * 2):
        found = rfgp.predict_map(model, points_of_map)
        with torch.no_grad():
            posterior = model.posterior(x)
        wanted = (v.mT if name == "classes" else v for v in (posterior.mean, posterior.variance))
        for pair in zip((found.mean, found.variance), wanted, strict=True):
            torch.testing.assert_close(*pair, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("name", ("gaussian", "classes", "two outputs"))
@pytest.mark.parametrize("columns", (1, 3))
def test_samples_are_series_and_equal_the_products(name, columns, monkeypatch):
    def products(self, x):
        raise AssertionError("a product for every point")

    rows = points(60, columns)
    kernel = on_grid(gaussian(length=0.5), rows, 61)
    if name == "two outputs":
        kernel = MultitaskKernel(kernel, num_tasks=2, rank=1).double()
    make, targets = CASES[name]
    y = targets(torch.sin(6.0 * rows[:, 0]))
    samples = WeightSpaceGP(kernel, make(rows, y).double(), weights_of(name)).condition(rows, y).sample_functions(18)
    axes = [torch.linspace(-0.1, 1.0 + axis, 5 + axis, dtype=DTYPE) for axis in range(columns)]
    for x in (torch.cartesian_prod(*axes).reshape(-1, columns), points(90, columns, 8)):
        wanted = samples(x)
        with torch.no_grad(), monkeypatch.context() as patch:
            if sums_of_exponentials.has_fft() or len(x) != 90:
                patch.setattr(GridFamily, "active_features", products)
            found = samples(x), samples[4:6](x)
        torch.testing.assert_close(found[0], wanted, rtol=ROUNDING, atol=ROUNDING)
        torch.testing.assert_close(found[1], wanted[4:6], rtol=ROUNDING, atol=ROUNDING)


ROWS = points(20, 2)
ERRORS = {
    "columns": (lambda: on_grid(RBFKernel().double(), points(20, 4)), "up to three input columns"),
    "no inputs": (
        lambda: rfgp.approximate(RBFKernel(), 40, method="fourier_grid", input_dim=2),
        "expected train_inputs",
    ),
    "polynomial": (lambda: on_grid(PolynomialKernel(2).double(), ROWS), "spectral density"),
    "periodic alone": (lambda: on_grid(PeriodicKernel().double(), ROWS[:, :1]), "spectral density"),
    "two of one column": (
        lambda: on_grid(RBFKernel().double() * MaternKernel().double(), ROWS),
        "factors of different columns",
    ),
    "outside": (
        lambda: WeightSpaceGP(on_grid(RBFKernel().double(), ROWS), GaussianLikelihood()).condition(
            ROWS + 1, ROWS[:, 0]
        ),
        "the box of the Fourier grid",
    ),
    "open": (lambda: rfgp.approximate(RBFKernel(), None, method="fourier"), "num_features"),
    "blocks": (
        lambda: WeightSpaceGP(on_grid(RBFKernel().double(), ROWS), GaussianLikelihood(), block_size=5),
        "expected landmarks for block_size",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_a_grid_cannot_do_raises(name):
    call, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("name", "columns"), (("gaussian", 1), ("gaussian", 2), ("matern 3/2", 1), ("matern 3/2", 2)))
def test_an_open_number_of_features_gives_the_exact_posterior(name, columns):
    exact = gaussian(length=0.4) if name == "gaussian" else with_values(MaternKernel(nu=1.5), lengthscale=0.4)
    x, at = points(1000, columns), points(60, columns, 7)
    y, likelihood = torch.sin(7.0 * x).sum(-1), GaussianLikelihood().double().initialize(noise=0.01)
    kernel = on_grid(exact, x, None)
    with torch.no_grad():
        model = WeightSpaceGP(kernel, likelihood).condition(x, y).posterior(at)
        noisy = exact(x).to_dense() + 0.01 * torch.eye(len(x), dtype=DTYPE)
        solved = torch.linalg.solve(noisy, torch.cat([exact(x, at).to_dense(), y.unsqueeze(-1)], dim=-1))
        mean = exact(at, x).to_dense() @ solved[:, -1]
        variance = 1.0 - (exact(at, x).to_dense() * solved[:, :-1].mT).sum(-1)
        ratio = variance / model.variance
        divergence = 0.5 * (ratio - 1.0 - ratio.log() + (mean - model.mean).square() / model.variance)
    assert kernel.num_scalar_features < 1800
    assert float(divergence.mean()) < 0.01


def test_an_open_number_of_features_follows_from_kernel_and_rows():
    many, few = (on_grid(gaussian(length=0.1), points(rows, 1), None).num_scalar_features for rows in (50_000, 2000))
    long = on_grid(gaussian(length=0.5), points(2000, 1), None).num_scalar_features
    assert long < few < many < 60
    kernel = on_grid(gaussian(length=0.1), points(2000, 1), None)
    assert not leaf(kernel).regrid(2e5) and leaf(kernel).regrid(1e9)
    rough = on_grid(MaternKernel(nu=0.5).double(), points(2000, 2), None)
    assert (
        rough.num_scalar_features == 1801
        and leaf(rough).lacks_frequencies(1e9)
        and not leaf(kernel).lacks_frequencies(1e9)
    )
    x, y = problem(2000)
    y = torch.sin(40.0 * x[:, 0]) + 0.1 * (y - torch.sin(7.0 * x[:, 0]))
    model = WeightSpaceGP(on_grid(gaussian(length=0.5), x, None), GaussianLikelihood().double())
    rfgp.fit(model, x, y, progress=False)
    assert model.covar_module.num_scalar_features > few
    assert float(model.likelihood.noise.detach()) == pytest.approx(9e-4, rel=4.0 * math.sqrt(2.0 / 2000))


@pytest.mark.parametrize("alpha", [0.3, 0.69, 1.5])
def test_densities_that_are_infinite_at_zero_have_a_tail(alpha):
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    exact = RQKernel()
    exact.lengthscale, exact.alpha = 0.05, alpha
    kernel = rfgp.approximate(exact, 401, method="fourier_grid", train_inputs=x)
    error = (kernel(x).to_dense() - exact(x).to_dense())[~torch.eye(200, dtype=torch.bool)]
    assert (error - error.mean()).abs().mean() < 0.03
    assert kernel.residual_variance(x[:1]).min() > 0.02


LONG = {
    "rational quadratic": (lambda: RQKernel(), 2, 0.5, None),
    "rational quadratic, one input": (lambda: RQKernel(), 1, 0.5, None),
    "rational quadratic, long": (lambda: RQKernel(), 2, 3.0, 401),
    "exponential": (lambda: MaternKernel(nu=0.5), 2, 2.0, 401),
    "exponential, one input": (lambda: MaternKernel(nu=0.5), 1, 2.0, 101),
    "exponential, three inputs": (lambda: MaternKernel(nu=0.5), 3, 2.0, 401),
    "matern": (lambda: MaternKernel(nu=1.5), 3, 2.0, 401),
    "matern, very long": (lambda: MaternKernel(nu=2.5), 2, 20.0, 101),
    "laplace": (lambda: LaplaceKernel(), 2, 2.0, 401),
    "laplace, three inputs": (lambda: LaplaceKernel(), 3, 5.0, 401),
    "gaussian": (lambda: RBFKernel(), 2, 3.0, 101),
}


@pytest.mark.parametrize("name", LONG)
def test_intervals_hold_for_kernels_longer_than_the_box(name):
    """Exact expectations of the coverage of 95 % intervals, and of their widths, over targets of the exact process."""
    make, dim, length, width = LONG[name]
    exact = make().double()
    exact.lengthscale = length
    x, at = points(150, dim), 0.96 * points(60, dim, seed=1) + 0.02
    kernel = rfgp.approximate(exact, width, method="fourier_grid", train_inputs=x)
    noise = 1e-3
    with torch.no_grad():
        features, missing = kernel.features(torch.cat([x, at])), kernel.residual_variance(x[:1])
        of_model = features @ features.mT + missing * torch.eye(len(features), dtype=DTYPE)
        of_exact = exact(torch.cat([x, at])).to_dense()
    posteriors = []
    for prior in (of_model, of_exact):
        weights = torch.linalg.solve(prior[:150, :150] + noise * torch.eye(150, dtype=DTYPE), prior[:150, 150:])
        posteriors.append((weights, prior[150:, 150:].diagonal() - (weights * prior[:150, 150:]).sum(0)))
    (weights, variance), (_, least) = posteriors
    error = of_exact[150:, 150:].diagonal() - 2.0 * (weights * of_exact[:150, 150:]).sum(0)
    error = error + (weights * ((of_exact[:150, :150] + noise * torch.eye(150, dtype=DTYPE)) @ weights)).sum(0)
    coverage = torch.erf(1.96 * (0.5 * variance / error).sqrt())
    assert float(coverage.mean()) > 0.93 and float(coverage.min()) > 0.75
    assert float((variance / least).sqrt().mean()) < 2.5
    torch.testing.assert_close(of_model.diagonal(), of_exact.diagonal())


def test_amplitudes_are_made_again_only_where_parameters_have_changed(monkeypatch):
    x, made = points(50, 1), []
    kernel = on_grid(gaussian(), x)
    exact = rfgp.approximation.families.grid.spectral_weights
    counted = "rfgp.approximation.families.grid.spectral_weights", lambda *at: made.append(at) or exact(*at)
    monkeypatch.setattr(*counted)
    for length, times in ((0.3, 0), (0.5, 1), (0.3, 2)):
        kernel.lengthscale = length
        with torch.no_grad():
            found = [(kernel.features(x), kernel.residual_variance(x)) for _ in range(3)][-1]
        assert len(made) == times
        monkeypatch.undo()
        fresh = FeatureKernel(gaussian(length=length), SpectralGrid(kernel.maps.grid))
        torch.testing.assert_close(found, (fresh.features(x), fresh.residual_variance(x)), rtol=1e-12, atol=1e-15)
        monkeypatch.setattr(*counted)
    kernel.features(x).sum().backward()
    assert bool(kernel.exact_kernel.raw_lengthscale.grad.abs() > 0)
