"""Features of operator-valued kernels: means, laws, factors, functionals, and what they share with exact kernels."""

from __future__ import annotations

import copy
import inspect
import io
import math
import pickle

import pytest
import scipy.stats
import torch
from autodiff import applied, jacobian
from feature_parts import parts
from gpytorch.kernels import (
    AdditiveKernel,
    IndexKernel,
    LCMKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    RBFKernel,
    ScaleKernel,
)
from problems import randomised

import rfgp
from rfgp.approximation.hooks.output_features import OutputFeatures
from rfgp.features import Gaussian, Matern, PowerWeighted, RandomFourier, WidenedGaussian
from rfgp.features.spectra import radial_moment
from rfgp.functionals import (
    Component,
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
    evaluate,
)
from rfgp.inference import OutputFactor
from rfgp.kernels import (
    ConstantCovariance,
    CurlFreeKernel,
    DecomposableKernel,
    DivergenceFreeKernel,
    GraphLaplacianCovariance,
    HelmholtzKernel,
    LinearlyObservedKernel,
    OperatorValuedKernel,
    SpectralDensityKernel,
)
from rfgp.kernels.divergence_free import orthogonal_complement

pytestmark = pytest.mark.usefixtures("float64_default")

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
STANDARD_ERRORS = 5.0
GAMMA = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]], dtype=torch.float64)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def points(num_rows, dim, seed=0):
    return 0.7 * random(num_rows, dim, seed=seed)


def dense(kernel, *x):
    with torch.no_grad():
        return kernel(*x).to_dense()


def matern(nu, **options):
    return MaternKernel(nu=nu, **options)


BASES = {"rbf": RBFKernel, "matern 3/2": lambda **o: matern(1.5, **o), "matern 5/2": lambda **o: matern(2.5, **o)}
SPECTRA = {"rbf": Gaussian(), "matern 3/2": Matern(1.5), "matern 5/2": Matern(2.5)}
LEAVES = {
    "curl-free": (CurlFreeKernel, 1),
    "divergence-free": (DivergenceFreeKernel, 1),
    "value and gradient": (lambda k: LinearlyObservedKernel(k, [Value(), Gradient()]), 1),
    "gradient": (lambda k: LinearlyObservedKernel(k, [Gradient()]), 1),
    "value": (lambda k: LinearlyObservedKernel(k, [Value()]), 0),
    "sums": (lambda k: LinearlyObservedKernel(k, [Value() + 2.0 * Partial(0), Partial(1) - 0.5 * Value()]), 1),
    "field and divergence": (lambda k: LinearlyObservedKernel(CurlFreeKernel(k), [Value(), Divergence()]), 2),
    "vorticity": (lambda k: LinearlyObservedKernel(DivergenceFreeKernel(k), [Component(1), Vorticity()]), 2),
    "laplacian": (lambda k: LinearlyObservedKernel(k, [Laplacian(), Value(), Partial(0, 1)]), 2),
    "nested": (
        lambda k: LinearlyObservedKernel(LinearlyObservedKernel(k, [Gradient()]), [Component(0), Value()]),
        1,
    ),
    "derivatives of tasks": (
        lambda k: LinearlyObservedKernel(
            MultitaskKernel(k, num_tasks=2, rank=2), [Value(), Partial(0) @ Component(0), Partial(0) @ Component(1)]
        ),
        1,
    ),
}
SMOOTHNESS = {"rbf": 9, "matern 3/2": 1, "matern 5/2": 2}
VARIANCE = {"rbf": 9.0, "matern 3/2": 1.5, "matern 5/2": 2.5}


def measures(leaf, name):
    """The measures under which features of derivatives exist, and have a variance."""
    order = LEAVES[leaf][1]
    found = ["trace"] if order <= SMOOTHNESS[name] else []
    found += ["unbounded"] if 2 * order < VARIANCE[name] else []
    return found + (["widened"] if name == "rbf" else [])


COMBINATIONS = [(leaf, name, measure) for leaf in LEAVES for name in BASES for measure in measures(leaf, name)]
every_combination = pytest.mark.parametrize(("leaf", "name", "measure"), COMBINATIONS)
every_leaf = pytest.mark.parametrize("leaf", LEAVES)


def exact_leaf(leaf, name="rbf", seed=0, **options):
    return randomised(LEAVES[leaf][0](BASES[name](**options)), seed)


def mapped(exact, name, measure, num_features, dim, structure="independent", seed=0):
    """An approximated kernel under a measure."""
    spectrum = SPECTRA[name]
    spectrum = {
        "unbounded": spectrum,
        "trace": PowerWeighted(spectrum, exact.powers(dim)),
        "widened": WidenedGaussian(),
    }[measure]
    feature_map = RandomFourier(dim, num_features, spectrum, structure, generator=seeded(seed))
    return rfgp.approximate(exact, num_features, method=feature_map)


# Means


def estimates(kernel, x, y, size):
    """Independent estimates (G, N T, M T) of the kernel, from groups of ``size`` frequencies of one map."""
    frequencies = kernel.feature_map.num_frequencies
    with torch.no_grad():
        left, right = (kernel.features(z).unflatten(-1, (2, frequencies // size, -1)) for z in (x, y))
    return frequencies // size * torch.einsum("acgs,bcgs->gab", left, right)


def is_mean(samples, target):
    """Whether all entries of the mean are within a number of standard errors of a target."""
    standard_error = samples.std(0) / math.sqrt(len(samples))
    return bool(((samples.mean(0) - target).abs() <= STANDARD_ERRORS * standard_error + 1e-10).all())


@every_combination
@pytest.mark.parametrize("structure", ["independent", "orthogonal"])
def test_means_are_the_exact_kernels(leaf, name, measure, structure):
    dim = 2 if leaf in ("vorticity", "laplacian") else 3
    exact = exact_leaf(leaf, name)
    kernel = mapped(exact, name, measure, 6000, dim, structure)
    x, y = points(2, dim), torch.cat([points(1, dim), points(1, dim, seed=1)])
    samples, target = estimates(kernel, x, y, dim if structure == "orthogonal" else 1), dense(exact, x, y)
    assert is_mean(samples, target)
    assert not is_mean(samples, 1.25 * target)


@pytest.mark.parametrize("measure", ["unbounded", "trace", "widened"])
@pytest.mark.parametrize(
    ("leaf", "dim"), [("curl-free", 1), ("curl-free", 2), ("divergence-free", 2), ("divergence-free", 4), ("sums", 2)]
)
def test_means_in_other_dimensions_with_ard(leaf, dim, measure):
    exact = exact_leaf(leaf, ard_num_dims=dim)
    kernel = mapped(exact, "rbf", measure, 8000, dim)
    x = points(2, dim)
    samples, target = estimates(kernel, x, x, 1), dense(exact, x)
    assert is_mean(samples, target)
    assert not is_mean(samples, 1.25 * target)


def shared(combine):
    """A sum of kernels with one scalar kernel for all."""

    def create():
        base = RBFKernel()
        return combine(base)

    return create


def lmc():
    return MultitaskKernel(RBFKernel(), num_tasks=3, rank=1) + MultitaskKernel(matern(1.5), num_tasks=3, rank=2)


def graph():
    return GraphLaplacianCovariance(torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, 0.0], [0.5, 0.0, 0.0]]))


def one_task_per_row():
    return ScaleKernel(RBFKernel(active_dims=[0, 1]) * IndexKernel(3, rank=2, active_dims=[2]))


COMPOSED = {
    "helmholtz": lambda: HelmholtzKernel(RBFKernel()),
    "helmholtz, matern": lambda: HelmholtzKernel(RBFKernel(), matern(2.5)),
    "helmholtz of one measure": shared(lambda k: HelmholtzKernel(k, k)),
    "fields of one measure": shared(lambda k: CurlFreeKernel(k) + ScaleKernel(LinearlyObservedKernel(k, [Gradient()]))),
    "orders of one measure": shared(
        lambda k: LinearlyObservedKernel(k, [Value(), Partial(1)]) + LinearlyObservedKernel(k, [Partial(0), Value()])
    ),
    "scaled field": lambda: ScaleKernel(DivergenceFreeKernel(RBFKernel())),
    "scale inside": lambda: LinearlyObservedKernel(ScaleKernel(RBFKernel()), [Value(), Gradient()]),
    "sum inside": lambda: LinearlyObservedKernel(ScaleKernel(RBFKernel()) + matern(2.5), [Value(), Partial(2)]),
    "divergence of helmholtz": lambda: LinearlyObservedKernel(HelmholtzKernel(RBFKernel()), [Value(), Divergence()]),
    "multitask": lambda: MultitaskKernel(RBFKernel(), num_tasks=3, rank=2),
    "multitask of a scale": lambda: MultitaskKernel(ScaleKernel(RBFKernel()), num_tasks=2),
    "multitask of a sum": lambda: MultitaskKernel(ScaleKernel(RBFKernel()) + LinearKernel(), num_tasks=2),
    "multitask of a product": lambda: MultitaskKernel(RBFKernel() * LinearKernel(), num_tasks=2),
    "scaled multitask": lambda: ScaleKernel(MultitaskKernel(RBFKernel(), num_tasks=2)),
    "multitask on some columns": lambda: MultitaskKernel(RBFKernel(), num_tasks=2, active_dims=[0, 2]),
    "graph": lambda: DecomposableKernel(RBFKernel(), graph()),
    "constant": lambda: DecomposableKernel(matern(1.5), ConstantCovariance(GAMMA)),
    "lmc": lmc,
    "lmc with an exact part": lambda: MultitaskKernel(RBFKernel(), 3) + ScaleKernel(MultitaskKernel(LinearKernel(), 3)),
    "multitask and fields": lambda: MultitaskKernel(RBFKernel(), 3) + HelmholtzKernel(RBFKernel()),
    "one task per row": one_task_per_row,
    "one task per row, two processes": lambda: one_task_per_row() + one_task_per_row(),
    "fields on some columns": lambda: HelmholtzKernel(RBFKernel(active_dims=[2, 0])),
    "fields of one measure on some columns": lambda: (lambda k: HelmholtzKernel(k, k))(RBFKernel(active_dims=[2, 0])),
    "observed tasks": lambda: LinearlyObservedKernel(
        MultitaskKernel(ScaleKernel(RBFKernel()) + matern(2.5), 2, rank=2), [Value(), Partial(1) @ Component(0)]
    ),
    "observed coregionalization": lambda: LinearlyObservedKernel(
        LCMKernel([RBFKernel(), matern(2.5)], num_tasks=2, rank=1), [Component(1), Gradient() @ Component(0)]
    ),
    "observed tasks on some columns": lambda: LinearlyObservedKernel(
        MultitaskKernel(ScaleKernel(RBFKernel()), 2, active_dims=[2, 0]), [Value(), Gradient() @ Component(1)]
    ),
    "observed on some columns": lambda: LinearlyObservedKernel(
        ScaleKernel(RBFKernel()) + matern(2.5), [Value(), Gradient()], active_dims=[2, 0]
    ),
}
every_composition = pytest.mark.parametrize("key", COMPOSED)


def composed(key, num_features=48, seed=0, method="auto", **options):
    """An exact composition, and an approximated one."""
    exact = randomised(COMPOSED[key](), seed=1)
    options = options or {"input_dim": 3}
    return exact, rfgp.approximate(exact, num_features, seed=seed, method=method, **options)


def inputs_of(key, num_rows, seed=0):
    x = points(num_rows, 3, seed)
    if key.startswith("one task"):
        x[:, 2] = torch.arange(num_rows) % 3
    return x


DRAWN = ["helmholtz, matern", "helmholtz of one measure", "fields of one measure", "orders of one measure"]
DRAWN += ["scale inside", "sum inside", "divergence of helmholtz", "multitask of a sum", "multitask of a product"]
DRAWN += ["multitask on some columns", "graph", "lmc", "multitask and fields", "one task per row, two processes"]
DRAWN += ["fields of one measure on some columns", "observed on some columns"]
DRAWN += ["observed tasks", "observed coregionalization", "observed tasks on some columns"]


@pytest.mark.parametrize("key", DRAWN)
def test_means_of_compositions_are_the_exact_kernels(key):
    exact, kernel = composed(key, 512, method="fourier")
    x, y = inputs_of(key, 3), inputs_of(key, 2, seed=1)
    generator = seeded(2)
    samples = torch.stack([dense(kernel.resample(generator), x, y) for _ in range(20)])
    error = samples - dense(exact, x, y)
    squares, total = error.square().flatten(1).sum(-1), error.mean(0).square().sum()
    assert total <= 9.0 * squares.mean() / len(samples)
    assert (error + dense(exact, x, y)).mean(0).square().sum() > 9.0 * squares.mean() / len(samples)


# What features have to do with the kernel


def check_features(exact, kernel, x, y):
    outputs = exact.num_outputs_per_input(x, y)
    left, right = kernel.features(x), kernel.features(y)
    assert len(left) == len(x) * outputs and kernel.num_outputs_per_input(x, y) == outputs
    torch.testing.assert_close(dense(kernel, x, y), (left @ right.mT).detach(), **CLOSE)
    torch.testing.assert_close(dense(kernel, x), (left @ left.mT).detach(), **CLOSE)
    torch.testing.assert_close(kernel(x, diag=True), left.square().sum(-1), **CLOSE)
    torch.testing.assert_close(kernel(x[: len(y)], y, diag=True), (left[: len(right)] * right).sum(-1), **CLOSE)
    torch.testing.assert_close(dense(kernel.exact_kernel, x, y), dense(exact, x, y), **CLOSE)
    if kernel.has_output_factor:
        factor, scalar = kernel.output_factor(), kernel.scalar_features(x)
        assert scalar.shape == (len(x), kernel.num_scalar_features) and factor.num_scalar == scalar.shape[-1]
        torch.testing.assert_close(factor.features(scalar), left, **CLOSE)
        assert left.shape == (len(x) * factor.num_outputs, factor.num_columns)
        torch.testing.assert_close(kernel.feature_operator(x).to_dense(), left, **CLOSE)


@every_composition
def test_compositions_are_the_products_of_their_features(key):
    exact, kernel = composed(key)
    check_features(exact, kernel, inputs_of(key, 5), inputs_of(key, 3, seed=1))


@every_combination
def test_leaves_are_the_products_of_their_features(leaf, name, measure):
    exact = exact_leaf(leaf, name)
    dim = 2 if leaf == "vorticity" else 3
    kernel = mapped(exact, name, measure, 10, dim)
    check_features(exact, kernel, points(5, dim), points(3, dim, seed=1))
    rank = kernel.features(points(1, dim)).shape[-1] // 10
    inner = exact.base_kernel if leaf == "vorticity" else exact
    columns = {DivergenceFreeKernel: dim - 1, MultitaskKernel: 2}
    assert rank == columns.get(type(inner.base_kernel if leaf == "derivatives of tasks" else inner), 1)


@every_combination
def test_columns_are_waves_times_the_factor(leaf, name, measure):
    """Against the dumbest computation, with complex numbers."""
    exact = exact_leaf(leaf, name)
    dim = 2 if leaf == "vorticity" else 3
    kernel = mapped(exact, name, measure, 10, dim)
    x, y = points(3, dim), points(2, dim, seed=1)
    feature_map, lengthscale = kernel.feature_map, exact.scalar_kernel.lengthscale.detach()
    frequencies, amplitude = feature_map.spectrum.frequencies({"weight": feature_map.weight})
    square = torch.ones(5) if amplitude is None else amplitude.square()
    total = 0.0
    for w, weight in zip(frequencies / lengthscale, square, strict=True):
        rows = exact.covariance(dim)
        outer = torch.stack([torch.stack([evaluate(entry, w) for entry in row]) for row in rows])
        wave = torch.exp(1j * ((x[:, None] - y[None]) @ w))
        total = total + weight * torch.kron(wave, outer).real / 5.0
    torch.testing.assert_close(dense(kernel, x, y), total, **CLOSE)


@every_leaf
def test_outer_product_of_the_factor_is_the_covariance_polynomial(leaf):
    exact, dim = exact_leaf(leaf), 2
    w, rows = random(4, dim), exact.covariance(dim)
    b = exact.factor(w)
    values = torch.stack([torch.stack([evaluate(entry, w) for entry in row], -1) for row in rows], -2)
    torch.testing.assert_close((b @ b.mH).to(values.dtype), values, **CLOSE)
    assert b.is_complex() == (
        leaf in ("value and gradient", "sums", "field and divergence", "vorticity", "derivatives of tasks")
    )
    powers = exact.powers(dim)
    growth = exact.factor(1e4 * w).abs().amax() / b.abs().amax()  # to leading order the largest power
    assert math.log(float(growth), 1e4) == pytest.approx(max(powers), abs=0.2)


@pytest.mark.parametrize("dim", [2, 3, 7])
def test_orthogonal_complement(dim):
    first = torch.eye(dim)[0]
    w = torch.cat([random(5, dim), torch.stack([first, -first, 1e-9 * first, -1e9 * first]), torch.eye(dim)])
    basis = orthogonal_complement(w)
    assert basis.shape == (len(w), dim, dim - 1)
    identity = torch.eye(dim - 1).expand(len(w), dim - 1, dim - 1)
    torch.testing.assert_close(basis.mT @ basis, identity, **CLOSE)
    unit = torch.nn.functional.normalize(w, dim=-1)
    torch.testing.assert_close((basis.mT @ unit[..., None]).squeeze(-1), torch.zeros(len(w), dim - 1), **CLOSE)
    if dim == 2:
        rotated = torch.stack([unit[:, 1], -unit[:, 0]], -1)
        torch.testing.assert_close((basis.squeeze(-1) * rotated).sum(-1).abs(), torch.ones(len(w)), **CLOSE)
    assert torch.autograd.gradcheck(orthogonal_complement, (random(3, dim, seed=4).requires_grad_(),))


# Measures


LAWS = [(Gaussian(), q, d) for q in (0, 1, 2) for d in (1, 3)]
LAWS += [(Matern(nu), q, d) for nu, q in ((1.5, 1), (2.5, 1), (2.5, 2), (0.5, 0)) for d in (1, 3)]


@pytest.mark.parametrize(("spectrum", "power", "dim"), LAWS, ids=str)
def test_radii_of_the_trace_measure_have_their_law(spectrum, power, dim):
    radii = PowerWeighted(spectrum, (power,)).radius(20000, dim, seeded(power + dim)).numpy()
    if isinstance(spectrum, Gaussian):
        distribution, values = scipy.stats.chi(dim + 2 * power), radii
    else:  # the errata's distribution
        distribution, values = (
            scipy.stats.betaprime(0.5 * dim + power, spectrum.nu - power),
            radii**2 / (2.0 * spectrum.nu),
        )
    assert scipy.stats.kstest(values, distribution.cdf).pvalue >= 1e-3
    assert scipy.stats.kstest(1.1 * values, distribution.cdf).pvalue < 1e-3


@pytest.mark.parametrize("powers", [(0, 1), (1, 2), (0, 1, 2)], ids=str)
def test_mixtures_of_powers_have_the_mean_of_their_moments(powers):
    dim = 3
    radii = PowerWeighted(Gaussian(), powers).radius(40000, dim, seeded(3))
    for order in (1, 2):
        ratios = [radial_moment(Gaussian(), q + order, dim) / radial_moment(Gaussian(), q, dim) for q in powers]
        samples = radii ** (2 * order)
        error = samples.std() / math.sqrt(len(samples))
        assert (samples.mean() - sum(ratios) / len(ratios)).abs() <= STANDARD_ERRORS * error
        assert (samples.mean() - max(ratios)).abs() > STANDARD_ERRORS * error


@pytest.mark.parametrize("spectrum", [Gaussian(), Matern(1.5), Matern(2.5)], ids=str)
@pytest.mark.parametrize("powers", [(1,), (0, 1)], ids=str)
@pytest.mark.parametrize("dim", [2, 4])
def test_amplitudes_undo_the_measure(spectrum, powers, dim):
    """Weighted means of bounded functions are those under the law of the kernel."""
    measure = PowerWeighted(spectrum, powers)
    w, amplitude = measure.frequencies(measure.draw(40000, dim, seeded(5)))
    plain, none = spectrum.frequencies(spectrum.draw(40000, dim, seeded(6)))
    assert none is None
    for function in (lambda w: 1.0 / (1.0 + w.square().sum(-1)), lambda w: torch.exp(-w[:, 0].square())):
        samples, wanted = amplitude.square() * function(w), function(plain)
        error = math.sqrt(float(samples.var() + wanted.var()) / 40000)
        assert abs(float(samples.mean() - wanted.mean())) <= STANDARD_ERRORS * error
        assert abs(float(function(w).mean() - wanted.mean())) > STANDARD_ERRORS * error


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_radial_moments(dim):
    assert radial_moment(Gaussian(), 0, dim) == pytest.approx(1.0)
    assert radial_moment(Gaussian(), 1, dim) == pytest.approx(dim)
    assert radial_moment(Gaussian(), 2, dim) == pytest.approx(dim * (dim + 2))
    for nu in (1.5, 2.5):
        assert radial_moment(Matern(nu), 1, dim) == pytest.approx(dim * nu / (nu - 1.0))
    assert radial_moment(Matern(2.5), 2, dim) == pytest.approx(dim * (dim + 2) * 2.5**2 / (1.5 * 0.5))
    assert radial_moment(Matern(1.5), 2, dim) == radial_moment(Matern(0.5), 1, dim) == math.inf
    with pytest.raises(ValueError, match="expected a Gaussian or Matern spectrum"):
        radial_moment(WidenedGaussian(), 1, dim)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize(("kind", "dim"), [(CurlFreeKernel, 1), (CurlFreeKernel, 4), (DivergenceFreeKernel, 3)])
def test_the_trace_measure_makes_the_trace_exact(kind, dim, name):
    """Every feature of an isotropic kernel has the same norm, that is the trace of the kernel: none is larger."""
    exact = randomised(kind(BASES[name]()))
    kernel, x = mapped(exact, name, "trace", 64, dim), points(3, dim)
    columns = kernel.features(x[:1]).detach().unflatten(-1, (2, 32, -1))
    norms = 32.0 * columns.square().sum((0, 1, 3))
    torch.testing.assert_close(norms, dense(exact, x[:1]).trace().expand(32), **CLOSE)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_widened_features_are_bounded_and_unbounded_ones_are_not(dim):
    exact = CurlFreeKernel(RBFKernel())
    exact.base_kernel.lengthscale = 1.0
    largest = {}
    for measure in ("widened", "unbounded", "trace"):
        kernel = mapped(exact, "rbf", measure, 100000, dim)
        columns = kernel.features(torch.zeros(1, dim)).detach().unflatten(-1, (2, 50000))
        largest[measure] = float(50000 * columns.square().sum((0, 1)).max())
    bound = 2.0 ** (0.5 * dim) * 4.0 / math.e
    assert 0.9 * bound <= largest["widened"] <= bound * (1.0 + 1e-9)
    assert largest["trace"] == pytest.approx(dim)
    assert largest["unbounded"] > 3.0 * max(bound, dim)


def test_the_default_is_the_trace_measure_with_orthogonal_frequencies():
    for exact, spectrum, powers in [
        (CurlFreeKernel(RBFKernel()), Gaussian(), (1,)),
        (DivergenceFreeKernel(matern(1.5)), Matern(1.5), (1,)),
        (LinearlyObservedKernel(matern(2.5), [Value(), Gradient()]), Matern(2.5), (0, 1)),
        (LinearlyObservedKernel(CurlFreeKernel(RBFKernel()), [Value(), Divergence()]), Gaussian(), (1, 2)),
        (LinearlyObservedKernel(RBFKernel(), [Laplacian()]), Gaussian(), (2,)),
    ]:
        structures = {"auto": "orthogonal", "fourier_orthogonal": "orthogonal", "fourier": "independent"}
        for method, structure in structures.items():
            kernel = rfgp.approximate(exact, 16, input_dim=3, method=method, seed=0)
            assert kernel.feature_map.spectrum == PowerWeighted(spectrum, powers)
            assert kernel.feature_map.structure == structure and kernel.feature_map.num_features == 16


# Sums


def test_sums_of_one_scalar_kernel_share_one_measure():
    base = RBFKernel()
    exact = ScaleKernel(CurlFreeKernel(base)) + LinearlyObservedKernel(base, [Gradient()])
    kernel = rfgp.approximate(exact, 32, input_dim=3, seed=0)
    first, second = parts(kernel)
    assert first.feature_map is second.feature_map and kernel.num_scalar_features == 32
    x = points(4, 3)
    assert torch.equal(kernel.scalar_features(x), first.scalar_features(x))
    assert kernel.features(x).shape == (12, 64)
    expected = torch.cat([first.features(x), second.features(x)], -1)
    torch.testing.assert_close(kernel.features(x), expected, **CLOSE)
    mixed = LinearlyObservedKernel(base, [Value(), Gradient()]) + LinearlyObservedKernel(
        base, [Laplacian(), Partial(0), Partial(1), Partial(2)]
    )
    kernel = rfgp.approximate(mixed, 32, input_dim=3, seed=0)
    assert {part.feature_map.spectrum for part in parts(kernel)} == {PowerWeighted(Gaussian(), (0, 1, 2))}
    for twin in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
        assert twin.num_scalar_features == 32
        torch.testing.assert_close(twin.features(x), kernel.features(x), **CLOSE)


def test_sums_of_several_scalar_kernels_are_concatenated():
    kernel = rfgp.approximate(HelmholtzKernel(RBFKernel(), matern(1.5)), 32, input_dim=2, seed=0)
    first, second = (part.feature_map for part in parts(kernel))
    assert (first.num_features, second.num_features) == (16, 16) and kernel.num_scalar_features == 32
    assert first.spectrum == PowerWeighted(Gaussian()) and second.spectrum == PowerWeighted(Matern(1.5))
    x = points(4, 2)
    expected = torch.cat([part.features(x) for part in parts(kernel)], -1)
    torch.testing.assert_close(kernel.features(x), expected, **CLOSE)
    assert kernel.features(x).shape == (8, 32)


def test_sums_of_tasks_and_fields_have_terms_and_columns_of_their_own():
    exact = MultitaskKernel(RBFKernel(), 4) + LinearlyObservedKernel(matern(2.5), [Value(), Gradient()])
    kernel, x = rfgp.approximate(randomised(exact), 32, input_dim=3, seed=0), points(4, 3)
    factor = kernel.output_factor()
    assert factor.num_terms == 2 and factor.num_outputs == 4 and factor.covariance_root is None
    assert factor.num_columns == 16 * 4 + 16 == kernel.features(x).shape[-1]
    expected = torch.cat([part.features(x) for part in parts(kernel)], -1)
    torch.testing.assert_close(kernel.features(x), expected, **CLOSE)


# The algebra of output factors


def random_factor(terms, columns, outputs, width, batch=()):
    index = torch.randint(width, (terms, columns), generator=seeded(terms))
    return OutputFactor(index, random(*batch, terms, columns, outputs), width)


def dumb_features(factor, scalar):
    """(..., N T, K) by loops."""
    terms, columns = factor.index.shape
    batch = torch.broadcast_shapes(scalar.shape[:-2], factor.batch_shape)
    result = torch.zeros(*batch, scalar.shape[-2], factor.num_outputs, columns)
    for term in range(terms):
        for k in range(columns):
            column = scalar[..., :, factor.index[term, k], None]
            result[..., k] += column * factor.coefficient[..., None, term, k, :]
    return result.flatten(-3, -2)


FACTORS = {
    f"{terms} terms{', batch' if batch else ''}": (terms, 7, 3, 5, batch) for terms in (1, 2, 3) for batch in ((), (2,))
}
every_factor = pytest.mark.parametrize("key", FACTORS)


@every_factor
def test_output_factors_equal_the_dense_computation(key):
    factor, scalar = random_factor(*FACTORS[key]), random(6, 5, seed=1)
    terms, columns, outputs, width, batch = FACTORS[key]
    assert (factor.num_terms, factor.num_columns, factor.num_outputs) == (terms, columns, outputs)
    assert factor.batch_shape == batch and factor.num_scalar == width
    features = dumb_features(factor, scalar)
    torch.testing.assert_close(factor.features(scalar), features, **CLOSE)
    root = random(outputs, outputs, seed=2)
    precision, targets = root @ root.mT, random(6, outputs, seed=3)
    noise = torch.kron(torch.eye(6), precision)
    gram = factor.gram(scalar.mT @ scalar, precision)
    torch.testing.assert_close(gram, features.mT @ noise @ features, **CLOSE)
    cross = factor.adjoint((scalar.mT @ targets @ precision).unsqueeze(-1))
    torch.testing.assert_close(cross, features.mT @ noise @ targets.flatten()[:, None], **CLOSE)
    weights = random(columns, 4, seed=4)
    by_output = factor.scalar_weights(weights)
    assert by_output.shape == (*batch, width, outputs, 4)
    predicted = torch.einsum("ij,...jts->...its", scalar, by_output).flatten(-3, -2)
    torch.testing.assert_close(predicted, features @ weights, **CLOSE)
    scales = random(*batch, seed=5).abs() if batch else torch.tensor(1.7)
    scaled = factor.scaled(scales).features(scalar)
    torch.testing.assert_close(scaled, scales[..., None, None] * features, **CLOSE)
    single = OutputFactor(factor.index, factor.coefficient.float(), width)
    assert single.double().coefficient.dtype == torch.float64 and single.features(scalar).dtype == torch.float64
    assert factor.features(scalar.float()).dtype == torch.float32


@pytest.mark.parametrize("on_same_columns", [False, True])
def test_concatenated_factors(on_same_columns):
    parts = [random_factor(1, 4, 3, 5), random_factor(3, 6, 3, 5), random_factor(2, 2, 3, 5, (2,))]
    whole = OutputFactor.concatenate(parts, on_same_columns)
    assert (whole.num_terms, whole.num_columns, whole.num_scalar) == (3, 12, 5 if on_same_columns else 15)
    scalar = random(6, 15, seed=1)
    pieces = [scalar[:, :5]] * 3 if on_same_columns else scalar.split(5, -1)
    features = [dumb_features(part, piece).expand(2, 18, -1) for part, piece in zip(parts, pieces, strict=True)]
    torch.testing.assert_close(whole.features(scalar[:, : whole.num_scalar]), torch.cat(features, -1), **CLOSE)
    assert OutputFactor.concatenate(parts[:1]) is parts[0]
    with pytest.raises(ValueError, match=r"expected parts with one number of outputs in a sum, got \[3, 2\]"):
        OutputFactor.concatenate([parts[0], random_factor(1, 4, 2, 5)])


@pytest.mark.parametrize("batch", [(), (2,)])
def test_kronecker_factors(batch):
    root, scalar = random(*batch, 3, 2), random(6, 5, seed=1)
    factor = OutputFactor.kronecker(root, 5)
    expected = torch.stack([torch.kron(scalar, part) for part in root.reshape(-1, 3, 2)]).reshape(*batch, 18, 10)
    torch.testing.assert_close(factor.features(scalar), expected, **CLOSE)
    torch.testing.assert_close(dumb_features(factor, scalar), expected, **CLOSE)
    assert torch.equal(factor.covariance_root, root)
    scaled = factor.scaled(torch.full(batch, 3.0))
    assert torch.equal(scaled.covariance_root, 3.0 * root) and torch.equal(scaled.coefficient, 3.0 * factor.coefficient)
    assert factor.double().covariance_root.dtype == torch.float64


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_spectral_factors(is_complex, batch):
    w, x, b = random(4, 2), random(3, 2, seed=1), random(*batch, 4, 3, 2, seed=2)
    b = torch.complex(b, random(*batch, 4, 3, 2, seed=3)) if is_complex else b
    factor = OutputFactor.spectral(b)
    assert factor.num_terms == (2 if is_complex else 1) and factor.num_columns == 16 and factor.num_scalar == 8
    phases = x @ w.mT
    waves = torch.einsum("im,...mtr->...itmr", torch.exp(1j * phases), b.to(torch.complex128)).flatten(-2)
    expected = torch.cat([waves.real, waves.imag], -1).flatten(-3, -2)
    torch.testing.assert_close(factor.features(torch.cat([phases.cos(), phases.sin()], -1)), expected, **CLOSE)


@every_factor
@pytest.mark.parametrize("rows", [(), (2,), (3, 1)])
def test_operators_of_features(key, rows):
    factor, scalar = random_factor(*FACTORS[key]), random(*rows, 6, 5, seed=1)
    operator, dense_features = OutputFeatures.of(scalar, factor), dumb_features(factor, scalar)
    batch = torch.broadcast_shapes(rows, factor.batch_shape)
    assert operator.shape == dense_features.shape == (*batch, 18, 7) and operator.dtype == torch.float64
    torch.testing.assert_close(operator.to_dense(), dense_features, **CLOSE)
    torch.testing.assert_close(operator.mT.to_dense(), dense_features.mT, **CLOSE)
    v, u = random(7, seed=2), random(18, seed=3)
    torch.testing.assert_close(operator.matvec(v), dense_features @ v, **CLOSE)
    torch.testing.assert_close(operator.rmatvec(u), dense_features.mT @ u, **CLOSE)
    torch.testing.assert_close(operator @ v, dense_features @ v, **CLOSE)
    torch.testing.assert_close(operator.mT @ u, dense_features.mT @ u, **CLOSE)
    for columns in (1, 3):
        right, left = random(7, columns, seed=4), random(18, columns, seed=5)
        torch.testing.assert_close(operator @ right, dense_features @ right, **CLOSE)
        torch.testing.assert_close(operator.mT @ left, dense_features.mT @ left, **CLOSE)
        many = random(*batch, 7, columns, seed=6)
        torch.testing.assert_close(operator @ many, dense_features @ many, **CLOSE)
        many = random(*batch, 18, columns, seed=7)
        torch.testing.assert_close(operator.mT @ many, dense_features.mT @ many, **CLOSE)
    again = operator.mT.mT
    torch.testing.assert_close(again.to_dense(), dense_features, **CLOSE)
    torch.testing.assert_close(operator.squared_norms(), dense_features.square().sum(-1), **CLOSE)
    i, k = torch.tensor([17, 0, 4]), torch.tensor([6, 6, 1])
    torch.testing.assert_close(operator[..., i, k], dense_features[..., i, k], **CLOSE)
    torch.testing.assert_close(operator.mT[..., k, i], dense_features[..., i, k], **CLOSE)
    torch.testing.assert_close((2.0 * operator).to_dense(), 2.0 * dense_features, **CLOSE)
    expanded = operator.expand(4, *dense_features.shape) if batch == rows else operator
    torch.testing.assert_close(expanded.to_dense(), dense_features.expand(expanded.shape), **CLOSE)


def test_operators_of_features_are_adjoint_and_differentiable():
    factor, scalar = random_factor(2, 7, 3, 5), random(6, 5, seed=1).requires_grad_()
    operator = OutputFeatures.of(scalar, factor)
    v, u = random(7, seed=2), random(18, seed=3)
    torch.testing.assert_close((operator.matvec(v) * u).sum(), (operator.rmatvec(u) * v).sum(), **CLOSE)
    assert torch.autograd.gradcheck(lambda s: OutputFeatures.of(s, factor).matvec(v), (scalar,))
    assert torch.autograd.gradcheck(lambda s: OutputFeatures.of(s, factor).rmatvec(u), (scalar,))
    torch.testing.assert_close(operator.factor.features(scalar), operator.to_dense(), **CLOSE)
    kronecker = OutputFeatures.of(scalar, OutputFactor.kronecker(GAMMA[:, :2], 5))
    torch.testing.assert_close(kronecker.factor.covariance_root, GAMMA[:, :2], **CLOSE)


# What is shared, saved and drawn


@every_composition
def test_parameters_are_those_of_the_exact_kernel(key):
    exact, kernel = composed(key)
    own = {id(parameter) for parameter in kernel.parameters()}
    assert own == {id(parameter) for parameter in exact.parameters()}
    assert own == {id(parameter) for parameter in kernel.exact_kernel.parameters()}
    assert {id(parameter) for parameter in kernel.feature_parameters()} <= own
    x = inputs_of(key, 3)
    before = dense(kernel, x)
    for parameter in exact.parameters():
        parameter.data += 0.1
    assert not torch.allclose(dense(kernel, x), before)
    torch.testing.assert_close(dense(kernel.exact_kernel, x), dense(exact, x), **CLOSE)


@pytest.mark.parametrize("key", [key for key in COMPOSED if not key.startswith("one task")])
def test_feature_parameters_are_those_of_the_scalar_features(key):
    _, kernel = composed(key)
    x = inputs_of(key, 3)
    parameters = list(kernel.parameters())
    gradients = torch.autograd.grad(kernel.scalar_features(x).square().cos().sum(), parameters, allow_unused=True)
    needed = {id(p) for p, g in zip(parameters, gradients, strict=True) if g is not None and g.abs().max() > 0}
    assert needed and needed <= {id(p) for p in kernel.feature_parameters()}


@every_composition
def test_all_parameters_have_the_gradients_of_finite_differences(key):
    _, kernel = composed(key, 24)
    x = inputs_of(key, 2)
    parameters = [p for p in kernel.parameters() if p.requires_grad]
    torch.manual_seed(0)
    direction = [torch.randn_like(p) for p in parameters]
    weights = random(*dense(kernel, x).shape, seed=3)
    value = (kernel(x).to_dense() * weights).sum()
    slope = sum((g * v).sum() for g, v in zip(torch.autograd.grad(value, parameters), direction, strict=True))
    ends = []
    for sign in (1.0, -1.0):
        moved = copy.deepcopy(kernel)
        for p, v in zip([p for p in moved.parameters() if p.requires_grad], direction, strict=True):
            p.data += sign * 1e-5 * v
        ends.append((dense(moved, x) * weights).sum())
    torch.testing.assert_close((ends[0] - ends[1]) / 2e-5, slope.detach(), rtol=1e-5, atol=1e-5)


@every_composition
def test_state_dicts_pickles_and_copies(key):
    _, kernel = composed(key)
    other, x = composed(key, seed=100)[1], inputs_of(key, 3)
    for parameter in other.parameters():
        parameter.data += 0.3
    assert not torch.allclose(dense(kernel, x), dense(other, x))
    buffer = io.BytesIO()
    torch.save(kernel.state_dict(), buffer)
    buffer.seek(0)
    draws = other.version
    other.load_state_dict(torch.load(buffer))
    assert other.version > draws
    for twin in (other, pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
        torch.testing.assert_close(dense(twin, x), dense(kernel, x), **CLOSE)
        torch.testing.assert_close(twin.features(x), kernel.features(x), **CLOSE)


@every_composition
def test_resampling(key):
    _, kernel = composed(key)
    x, draws = inputs_of(key, 3), kernel.version
    before = dense(kernel, x)
    assert kernel.resample(seeded(7)) is kernel and kernel.version > draws
    after = dense(kernel, x)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(dense(kernel.resample(seeded(7)), x), after, **CLOSE)
    again = composed(key)[1]
    torch.testing.assert_close(dense(again, x), before, **CLOSE)


LAZY = ["helmholtz", "scaled field", "scale inside", "multitask", "graph", "constant", "lmc"]


@pytest.mark.parametrize("key", LAZY)
def test_kernels_without_dimensions_wait_for_their_first_inputs(key):
    exact = randomised(COMPOSED[key](), seed=1)
    kernel, x = rfgp.approximate(exact, 48, seed=0), inputs_of(key, 3)
    with pytest.raises(ValueError, match="expected a kernel whose map is made"):
        kernel.output_factor()
    waiting = copy.deepcopy(kernel)
    torch.testing.assert_close(dense(kernel, x), dense(composed(key)[1], x), **CLOSE)
    assert kernel.output_factor().num_outputs == exact.num_outputs_per_input(x, x)
    waiting.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(dense(waiting, x), dense(kernel, x), **CLOSE)


def test_a_failed_first_call_leaves_the_kernel_waiting():
    kernel = rfgp.approximate(DivergenceFreeKernel(RBFKernel()), 16, seed=0)
    with pytest.raises(ValueError, match="expected inputs of at least two columns"):
        kernel(torch.zeros(3, 1)).to_dense()
    assert kernel(points(3, 2)).shape == (6, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("key", ["helmholtz", "scale inside", "multitask", "graph", "lmc", "one task per row"])
def test_dtypes(key, dtype):
    exact = COMPOSED[key]().to(dtype)
    kernel, x = rfgp.approximate(exact, 48, input_dim=3, seed=0), inputs_of(key, 4).to(dtype)
    assert kernel.features(x).dtype == dense(kernel, x).dtype == kernel(x, diag=True).dtype == dtype
    double = copy.deepcopy(kernel).double()
    torch.testing.assert_close(double.features(x.double()).to(dtype), kernel.features(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("key", ["helmholtz", "scaled field", "scale inside", "helmholtz of one measure"])
def test_batches_of_inputs(key):
    _, kernel = composed(key)
    x = torch.stack([points(4, 3), points(4, 3, seed=1)])
    matrix, features = dense(kernel, x), kernel.features(x)
    for i in range(2):
        torch.testing.assert_close(matrix[i], dense(kernel, x[i]), **CLOSE)
        torch.testing.assert_close(features[i], kernel.features(x[i]), **CLOSE)
    torch.testing.assert_close(kernel(x, diag=True), matrix.diagonal(dim1=-2, dim2=-1), **CLOSE)


@every_leaf
def test_batches_of_lengthscales(leaf):
    exact = exact_leaf(leaf, batch_shape=torch.Size([2]))
    kernel, x = rfgp.approximate(exact, 12, input_dim=2, seed=0), points(4, 2)
    matrix, features = dense(kernel, x), kernel.features(x)
    assert matrix.shape[0] == 2 and not torch.allclose(matrix[0], matrix[1])
    torch.testing.assert_close(matrix, (features @ features.mT).detach(), **CLOSE)
    for i in range(2):
        torch.testing.assert_close(dense(kernel[i], x), matrix[i], **CLOSE)


def test_training_inputs_give_the_columns_and_rank_no_methods():
    x = points(40, 3)
    kernel = rfgp.approximate(CurlFreeKernel(RBFKernel()), 16, train_inputs=x, seed=0)
    assert kernel.feature_map.input_dim == 3 and kernel.feature_map.structure == "orthogonal"
    assert rfgp.approximate(HelmholtzKernel(RBFKernel()), 16, train_inputs=x, seed=0).features(x).shape == (120, 24)


# Functionals

FUNCTIONALS = [
    ("curl-free", 2, [Value(), Divergence(), Vorticity(), Gradient(), Partial(0), Component(1), Laplacian()]),
    ("curl-free", 3, [Divergence(), Stacked(Value(), Divergence()), Value() - 0.3 * Partial(2)]),
    ("divergence-free", 2, [Value(), Vorticity(), Divergence(), Gradient() @ Vorticity()]),
    ("value", 2, [Gradient(), Laplacian(), Partial(0, 1), RotatedGradient(), Value() + 2.0 * Laplacian()]),
    ("value and gradient", 2, [Component(0), Partial(1), Laplacian() @ Component(0)]),
    ("sums", 2, [Value(), Divergence(), Vorticity(), Gradient()]),
]


def field(kernel, weights, operator=None):
    """The function F(x) w of one point."""

    def result(x):
        scalar = kernel.scalar_features(x[None])
        return kernel.output_factor(operator).features(scalar) @ weights

    return result


@pytest.mark.parametrize(
    ("leaf", "dim", "operator"),
    [(leaf, dim, operator) for leaf, dim, operators in FUNCTIONALS for operator in operators],
    ids=str,
)
@pytest.mark.parametrize("is_scaled", [False, True])
def test_functionals_are_what_automatic_differentiation_says(leaf, dim, operator, is_scaled):
    exact = exact_leaf(leaf)
    kernel = rfgp.approximate(randomised(ScaleKernel(exact)) if is_scaled else exact, 16, input_dim=dim, seed=0)
    weights, x = random(kernel.output_factor().num_columns, seed=1), points(1, dim)[0]
    expected = applied(operator, field(kernel, weights))(x)
    result = field(kernel, weights, operator)(x)
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)
    assert kernel.output_factor(operator).num_outputs == len(result)


@pytest.mark.parametrize("key", ["helmholtz", "helmholtz of one measure", "fields of one measure"])
@pytest.mark.parametrize("operator", [Divergence(), Gradient(), Value() + 0.5 * Laplacian()], ids=str)
def test_functionals_of_sums(key, operator):
    _, kernel = composed(key)
    weights, x = random(kernel.output_factor().num_columns, seed=1), points(1, 3)[0]
    expected = applied(operator, field(kernel, weights))(x)
    torch.testing.assert_close(field(kernel, weights, operator)(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("key", ["helmholtz", "helmholtz of one measure"])
def test_potentials_and_streamfunctions_have_the_parts_as_gradients(key):
    exact = randomised(COMPOSED[key]())
    kernel = rfgp.approximate(exact, 32, input_dim=2, seed=0)
    weights, x = random(kernel.output_factor().num_columns, seed=1), points(1, 2)[0]
    curl_free, rest = (field(kernel, weights, part())(x) for part in (CurlFreePart, DivergenceFreePart))
    potential, stream = (field(kernel, weights, part()) for part in (Potential, Streamfunction))
    torch.testing.assert_close(jacobian(potential)(x)[0], curl_free, **CLOSE)
    torch.testing.assert_close(applied(RotatedGradient(), stream)(x), rest, **CLOSE)
    torch.testing.assert_close(curl_free + rest, field(kernel, weights)(x), **CLOSE)
    width = kernel.output_factor().num_columns // 2  # the parts of the field are those of the kernel
    first, second = parts(kernel)
    torch.testing.assert_close(curl_free, field(first, weights[:width])(x), **CLOSE)
    torch.testing.assert_close(rest, field(second, weights[width:])(x), **CLOSE)


def test_predictions_of_operators_leave_the_weights_alone():
    """The factor of an operator has the columns of the kernel's own, whatever phases observed kernels leave out."""
    base = RBFKernel()
    kernels = [LinearlyObservedKernel(base, operators) for operators in ([Value()], [Gradient()])]
    value, gradient = (rfgp.approximate(k, 8, method=RandomFourier(2, 8, generator=seeded(1))) for k in kernels)
    x = points(3, 2)
    features = value.output_factor(Gradient()).features(value.scalar_features(x))
    torch.testing.assert_close(features @ features.mT, dense(gradient, x), **CLOSE)
    cross = features @ value.features(x).mT
    both = LinearlyObservedKernel(base, [Value(), Gradient()])
    both = rfgp.approximate(both, 8, method=RandomFourier(2, 8, generator=seeded(1)))
    blocks = dense(both, x).reshape(3, 3, 3, 3)
    torch.testing.assert_close(cross.reshape(3, 2, 3), blocks[:, 1:, :, 0], **CLOSE)


# Samples


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize(("kind", "dim"), [(CurlFreeKernel, 2), (CurlFreeKernel, 3), (DivergenceFreeKernel, 2)])
@pytest.mark.parametrize("is_ard", [False, True])
def test_samples_have_no_divergence_or_no_curl(kind, dim, name, is_ard):
    exact = randomised(ScaleKernel(kind(BASES[name](ard_num_dims=dim if is_ard else None))))
    kernel = rfgp.approximate(exact, 64, input_dim=dim, seed=0)
    sample = field(kernel, random(kernel.output_factor().num_columns, seed=1))
    for x in points(4, dim):
        derivatives = jacobian(sample)(x)
        size = derivatives.norm()
        other = derivatives - derivatives.mT if kind is CurlFreeKernel else derivatives.trace()
        assert other.abs().max() < 1e-12 * size and size > 1e-3
        assert (
            derivatives.trace() if kind is CurlFreeKernel else derivatives - derivatives.mT
        ).abs().max() > 1e-6 * size


def test_samples_without_divergence_in_three_dimensions_and_single_precision():
    kernel = rfgp.approximate(DivergenceFreeKernel(RBFKernel().float()), 64, input_dim=3, seed=0)
    sample = field(kernel, random(kernel.output_factor().num_columns, seed=1).float())
    for x in points(4, 3).float():
        derivatives = jacobian(sample)(x)
        assert derivatives.dtype == torch.float32
        assert derivatives.trace().abs() < 1e-6 * derivatives.norm()


# One task per row


def test_features_of_tasks_are_exact():
    tasks = randomised(IndexKernel(3, rank=2))
    kernel, x = rfgp.approximate(tasks, 8, input_dim=1), torch.tensor([[2.0], [0.0], [1.0], [2.0]])
    torch.testing.assert_close(dense(kernel, x), dense(tasks, x.long()), rtol=1e-6, atol=1e-6)
    assert kernel.num_scalar_features == 3 and not kernel.has_output_factor and kernel.version == 0


def test_products_with_tasks_are_products_of_features():
    exact = randomised(one_task_per_row())
    kernel, x = rfgp.approximate(exact, 16, input_dim=3, seed=0), inputs_of("one task per row", 5)
    assert kernel.features(x).shape == (5, 48)
    data, tasks = parts(parts(kernel)[0])
    expected = exact.outputscale.detach() * dense(data, x) * dense(tasks, x)
    torch.testing.assert_close(dense(kernel, x), expected, **CLOSE)
    multitask = MultitaskKernel(RBFKernel(), num_tasks=3, rank=2)  # the same with all tasks at every input
    multitask.task_covar_module = exact.base_kernel.kernels[1]
    multitask.data_covar_module.raw_lengthscale = exact.base_kernel.kernels[0].raw_lengthscale
    full = torch.cat([x[:2, :2].repeat_interleave(3, 0), torch.arange(3.0).repeat(2)[:, None]], -1)
    expected = exact.outputscale.detach() * dense(multitask, x[:2, :2])
    torch.testing.assert_close(dense(kernel.exact_kernel, full), expected, **CLOSE)


@pytest.mark.parametrize("column", [[0.0, 3.0], [0.5, 1.0], [-1.0, 0.0]])
def test_task_numbers_that_do_not_exist_raise(column):
    kernel = rfgp.approximate(one_task_per_row(), 16, input_dim=3, seed=0)
    x = torch.cat([points(2, 2), torch.tensor(column)[:, None]], -1)
    with pytest.raises(ValueError, match="expected one column of task numbers from 0 to 2; select it by active_dims"):
        kernel.features(x)


def test_types():
    assert isinstance(composed("multitask")[1].exact_kernel, MultitaskKernel)
    assert isinstance(composed("lmc")[1].exact_kernel, AdditiveKernel)
    assert isinstance(composed("graph")[1].exact_kernel, DecomposableKernel)


def test_every_family_of_operator_valued_kernels_is_tested():
    own = {type(exact_leaf(leaf)) for leaf in LEAVES}
    classes = {known for known in vars(rfgp.kernels).values() if inspect.isclass(known)}
    fields = {known for known in classes if issubclass(known, OperatorValuedKernel) and not inspect.isabstract(known)}
    assert fields - own == {SpectralDensityKernel}  # whose spectrum is a user's


# Errors

EVEN = "expected an even num_features for fourier"
ERRORS = [
    (lambda: CurlFreeKernel(RBFKernel()), {"method": "fourier:complex"}, "expected real features for many outputs"),
    (lambda: HelmholtzKernel(RBFKernel()), {"method": "fourier:complex"}, "expected real features for many outputs"),
    (lambda: MultitaskKernel(RBFKernel(), 2), {"method": "fourier:complex"}, "expected a scalar kernel with real feat"),
    (lambda: CurlFreeKernel(RBFKernel()), {"method": "fourier_hadamard"}, "expected one of the methods fourier, four"),
    (lambda: CurlFreeKernel(RBFKernel()), {"method": "optimized_maclaurin"}, "expected one of the methods fourier"),
    (lambda: CurlFreeKernel(RBFKernel()), {"num_features": 15}, EVEN),
    (lambda: CurlFreeKernel(RBFKernel(ard_num_dims=2)), {}, "expected 2 columns as ard_num_dims says, got 3"),
    (lambda: DivergenceFreeKernel(RBFKernel()), {"input_dim": 1}, "expected inputs of at least two columns"),
    (lambda: LinearlyObservedKernel(matern(1.5), [Laplacian()]), {}, "expected a kernel with 2 derivatives"),
    (lambda: LinearlyObservedKernel(RBFKernel(), [Potential()]), {}, "expected a differential operator"),
    (
        lambda: CurlFreeKernel(RBFKernel()) + RBFKernel(),
        {},
        "expected a sum of scalar kernels or one of kernels of sev",
    ),
    (lambda: CurlFreeKernel(RBFKernel()) * RBFKernel(), {}, "expected scalar kernels in a product, got one of several"),
    (lambda: MultitaskKernel(RBFKernel(), 2) * RBFKernel(), {}, "expected scalar kernels in a product, got one of sev"),
    (lambda: MultitaskKernel(CurlFreeKernel(RBFKernel()), 2), {}, "expected a scalar kernel with real features"),
    (lambda: MultitaskKernel(RBFKernel(active_dims=[0]), 2), {}, "expected active_dims on the MultitaskKernel"),
    (lambda: (lambda k: HelmholtzKernel(k, k))(RBFKernel()), {"input_dim": None}, "expected input_dim for a sum"),
]


@pytest.mark.parametrize(("create", "options", "message"), ERRORS)
def test_errors(create, options, message):
    options = {"num_features": 16, "input_dim": 3, "seed": 0} | options
    with pytest.raises(ValueError, match=message):
        rfgp.approximate(create(), **options)


WRONG_MAPS = [
    (RBFKernel(), RandomFourier(3, 16, Matern(1.5))),
    (RBFKernel(), RandomFourier(3, 16, is_complex=True)),
    (RBFKernel(), RandomFourier(3, 16, PowerWeighted(Matern(2.5)))),
    (matern(1.5), RandomFourier(3, 16, WidenedGaussian())),
    (matern(1.5), RandomFourier(3, 16, Matern(2.5))),
    (RBFKernel(), rfgp.features.TensorSRHT(3, 16, degree=2)),
]


@pytest.mark.parametrize(("base", "feature_map"), WRONG_MAPS)
def test_maps_of_other_kernels_are_refused(base, feature_map):
    with pytest.raises(
        ValueError, match=r"expected a real RandomFourier with spectrum=.*, or PowerWeighted or WidenedGaussian ones"
    ):
        rfgp.approximate(CurlFreeKernel(base), 16, method=feature_map)


def test_sums_with_different_numbers_of_outputs_are_refused():
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), 2) + CurlFreeKernel(RBFKernel()), 16, input_dim=3, seed=0)
    with pytest.raises(ValueError, match=r"expected parts with one number of outputs in a sum, got \[2, 3\]"):
        kernel.features(points(2, 3))


def test_operators_need_operator_valued_kernels():
    for exact in (ScaleKernel(RBFKernel()), MultitaskKernel(RBFKernel(), 2), RBFKernel() + LinearKernel()):
        kernel = rfgp.approximate(exact, 16, input_dim=3, seed=0)
        with pytest.raises(ValueError, match=r"expected an operator-valued kernel for the prediction of Gradient\(\)"):
            kernel.output_factor(Gradient())
    kernel = rfgp.approximate(CurlFreeKernel(RBFKernel()), 16, input_dim=3, seed=0)
    with pytest.raises(ValueError, match=r"expected a vector field on R\^2 for the vorticity"):
        kernel.output_factor(Vorticity())


def test_feature_operators_need_several_outputs():
    kernel = rfgp.approximate(RBFKernel(), 16, input_dim=3, seed=0)
    with pytest.raises(ValueError, match="expected a kernel of several outputs, got a scalar one"):
        kernel.feature_operator(points(2, 3))


def test_weighted_measures_need_finite_moments():
    for spectrum, powers in [(Matern(1.5), (2,)), (Matern(0.5), (1,)), (Matern(2.5), (0, 3)), (Gaussian(), ())]:
        with pytest.raises(ValueError, match="whole powers with a finite moment"):
            PowerWeighted(spectrum, powers)
    with pytest.raises(ValueError, match="expected a Gaussian or Matern spectrum"):
        PowerWeighted(rfgp.features.Laplace(), (1,))
