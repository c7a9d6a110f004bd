"""Averages, integrals, derivatives and values in one kernel: features and exact kernel against quadrature."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch
from feature_parts import parts
from gpytorch.kernels import (
    ConstantKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import BernoulliLikelihood, FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean
from problems import ExactModel, randomised

import rfgp
from rfgp.approximation.input_scales import input_scales
from rfgp.approximation.maps import MapRecipe
from rfgp.diagnostics import exact_posterior
from rfgp.diagnostics.certificates import certified_posterior
from rfgp.functionals import Gradient, Laplacian, Partial, Value
from rfgp.functionals.observations import boxes, derivatives, points, segments, split
from rfgp.functionals.observations.quadrature import nodes
from rfgp.kernels import (
    AdvectedKernel,
    CurlFreeKernel,
    DivergenceFreeKernel,
    HelmholtzKernel,
    LinearlyObservedKernel,
    ObservationKernel,
    SkewedChiSquaredKernel,
)
from rfgp.models import LaplaceGP, WeightSpaceGP, WeightSpaceVariationalGP

pytestmark = pytest.mark.usefixtures("float64_default")

DIM, WIDTH, ROUNDING = 2, 24, 1e-10


def random(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def rows_of_a_function(seed=0, count=2):
    """Values, normal derivatives, box averages, integrals over a face, and integrals along lines."""
    a, b = random(count, DIM, seed=seed), random(count, DIM, seed=seed + 100)
    normals = torch.nn.functional.normalize(b - 0.5, dim=-1)
    face = a + torch.tensor([0.0, 0.4])
    robin = torch.cat([torch.full((count, 1), 0.7), normals], dim=-1)
    kinds = [points(a), derivatives(b, normals), points(b, weights=robin), boxes(a, a + 0.3)]
    kinds += [boxes(a, face, weights=robin, integral=True), segments(a, b), segments(b, a, integral=True)]
    return torch.cat(kinds)


def rows_of_a_field(outputs, seed=0, count=2):
    a, b = random(count, DIM, seed=seed), random(count, DIM, seed=seed + 100)
    weights = random(count, outputs, seed=seed + 200) - 0.5
    return torch.cat([points(a, weights), boxes(a, a + 0.4, weights, integral=True), segments(a, b, weights)])


def shared_helmholtz():
    base = RBFKernel()
    return HelmholtzKernel(base, base)


SCALAR = {
    "rbf, ARD": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)),
    "matern": lambda: MaternKernel(nu=1.5),
    "rational quadratic": RQKernel,
    "spectral mixture": lambda: SpectralMixtureKernel(2, ard_num_dims=2),
    "periodic": PeriodicKernel,
    "series": lambda: PeriodicKernel(active_dims=[1]),
    "sum": lambda: ScaleKernel(RBFKernel()) + ScaleKernel(MaternKernel(active_dims=[1])) + ConstantKernel(),
    "product": lambda: ScaleKernel(RBFKernel(active_dims=[0]) * MaternKernel(nu=1.5, active_dims=[1])),
    "product of real parts": lambda: ScaleKernel(RBFKernel()) * RBFKernel(active_dims=[0]) * ConstantKernel(),
    "advected": lambda: AdvectedKernel(1, ard_num_dims=2),
}
FIELDS = {
    "curl-free": (lambda: ScaleKernel(CurlFreeKernel(RBFKernel())), 2),
    "divergence-free": (lambda: DivergenceFreeKernel(RBFKernel(ard_num_dims=2)), 2),
    "helmholtz": (lambda: HelmholtzKernel(RBFKernel()), 2),
    "one measure": (shared_helmholtz, 2),
    "operators": (lambda: LinearlyObservedKernel(RBFKernel(), [Value(), Laplacian(), Partial(0)]), 3),
    "one operator": (lambda: ScaleKernel(LinearlyObservedKernel(RBFKernel(), [Laplacian()])), 1),
}
METHODS = {"product of real parts": "fourier_hadamard"}
SMOOTH = ("rbf, ARD", "rational quadratic", "product of real parts", *FIELDS)
DENSE_DERIVATIVES = ("rbf, ARD", "matern", "sum", "product", "product of real parts")


def case(name, seed=0):
    """An exact kernel of observations with parameters away from their first values, and rows for it."""
    make, outputs = FIELDS[name] if name in FIELDS else (SCALAR[name], None)
    rows = rows_of_a_function(seed) if outputs is None else rows_of_a_field(outputs, seed)
    return ObservationKernel(randomised(make()), DIM), rows


def approximated(name, width=WIDTH, seed=0):
    exact, rows = case(name)
    return rfgp.approximate(exact, width, method=METHODS.get(name, "auto"), seed=seed), rows


def real(features):
    return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features


def features_by_quadrature(kernel, rows, order=16):
    """What the features have to be, up to a rotation: those of the base kernel at nodes, and their derivatives."""
    (base,), found = parts(kernel), []
    for row in rows:
        one = split(row[None], DIM)
        x, mass = nodes(one, order)
        values, weights = real(base.features(x[0])), one.weights[0]
        if base.has_output_factor:
            found.append(torch.einsum("q,qtk,t->k", mass, values.unflatten(0, (len(mass), -1)), weights))
            continue
        values = weights[0] * values
        if bool(weights[1:].any()):
            gradients = torch.func.vmap(torch.func.jacfwd(lambda z: real(base.features(z[None]))[0]))(x[0])
            values = values + gradients @ weights[1:]
        found.append(mass @ values)
    return torch.stack(found)


def close(actual, expected, rounding=ROUNDING):
    size = max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=rounding * size)


@pytest.mark.smoke
@pytest.mark.parametrize("name", [*SCALAR, *FIELDS])
@torch.no_grad()
def test_features_are_those_of_quadrature(name):
    kernel, rows = approximated(name)
    features, expected = kernel.features(rows), features_by_quadrature(kernel, rows, 60 if name == "series" else 16)
    assert features.shape == (len(rows), kernel.num_scalar_features)
    close(features @ features.mT, expected @ expected.mT)
    close(kernel(rows).to_dense(), features @ features.mT)
    close(kernel(rows, diag=True), features.square().sum(-1))


@pytest.mark.parametrize("name", [*SCALAR, *FIELDS])
@torch.no_grad()
def test_exact_kernels_are_those_of_finer_quadrature(name):
    exact, rows = case(name)
    if name in SCALAR and name not in DENSE_DERIVATIVES:
        with pytest.raises(ValueError, match="expected an RBFKernel or a MaternKernel, whose derivatives are known"):
            exact(rows).to_dense()
        rows = rows[(split(rows, DIM).weights[:, 1:] == 0).all(-1)]
    matrix = exact(rows).to_dense()
    if name in SMOOTH:
        close(matrix, ObservationKernel(exact.base_kernel, DIM, num_nodes=11)(rows).to_dense(), 1e-7)
    close(matrix, matrix.mT)
    close(exact(rows, diag=True), matrix.diagonal())
    close(exact(rows[:3], rows).to_dense(), matrix[:3])
    assert float(torch.linalg.eigvalsh(matrix).min()) > -1e-8


def test_averages_of_the_gaussian_kernel_in_closed_form():
    exact = ObservationKernel(RBFKernel(), 1)
    exact.base_kernel.lengthscale = 0.7
    low, high, place = torch.tensor([[0.1]]), torch.tensor([[0.9]]), torch.tensor([[0.4]])
    erf = torch.special.erf((torch.cat([high, low]) - place) / (0.7 * math.sqrt(2.0)))
    expected = 0.7 * math.sqrt(0.5 * math.pi) * (erf[0] - erf[1])
    for rows in (boxes(low, high, integral=True), segments(low, high, integral=True)):
        close(exact(rows, points(place)).to_dense()[0], expected)


@pytest.mark.parametrize("name", ["rbf, ARD", "matern", "product", "divergence-free"])
@torch.no_grad()
def test_features_converge_to_the_exact_kernel(name):
    exact, rows = case(name)
    rows = rows[(split(rows, DIM).weights[:, 1:] == 0).all(-1)] if name in SCALAR else rows  # a bounded symbol
    draws = torch.stack([rfgp.approximate(exact, 256, seed=seed)(rows).to_dense() for seed in range(16)])
    error = (draws.mean(0) - exact(rows).to_dense()).abs()
    assert (error <= 5.0 * draws.std(0) / math.sqrt(len(draws)) + 1e-4).all()


def test_values_and_gradients_are_those_of_the_kernel_of_operators():
    base = randomised(RBFKernel(ard_num_dims=2))
    rows = rows_of_a_function()
    observed = ObservationKernel(LinearlyObservedKernel(base, [Value(), Gradient()]), DIM)
    close(ObservationKernel(base, DIM)(rows).to_dense(), observed(rows).to_dense())


def problem(name="rbf, ARD", method="auto"):
    """Rows of all kinds with noise of their own, of which a boundary value has next to none."""
    exact, rows = case(name)
    kernel = rfgp.approximate(exact, WIDTH, method=method, seed=1)
    noise = torch.linspace(0.01, 0.2, len(rows))
    noise[0] = 1e-6
    y = torch.sin(torch.arange(len(rows)) * 1.3)
    return WeightSpaceGP(kernel, FixedNoiseGaussianLikelihood(noise)), rows, y, noise


def dense_posterior(kernel, rows, y, noise, new):
    """By the matrices of the quadrature, N x N."""
    left, right = features_by_quadrature(kernel, rows), features_by_quadrature(kernel, new)
    factor = torch.linalg.cholesky(left @ left.mT + torch.diag(noise))
    half = torch.linalg.solve_triangular(factor, left @ right.mT, upper=False)
    mean = half.mT @ torch.linalg.solve_triangular(factor, y[:, None], upper=False)
    return mean.squeeze(-1), right @ right.mT - half.mT @ half


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["rbf, ARD", "sum", "product", "helmholtz"])
@torch.no_grad()
def test_posteriors_of_all_kinds_of_rows_are_those_of_a_dense_process(name):
    model, rows, y, noise = problem(name)
    new = rows_of_a_function(7) if name in SCALAR else rows_of_a_field(2, 7)
    posterior = model.condition(rows, y, noise).posterior(new)
    mean, covariance = dense_posterior(model.covar_module, rows, y, noise, new)
    close(posterior.mean, mean, 1e-8)
    close(posterior.covariance_matrix, covariance, 1e-8)


@torch.no_grad()
def test_the_posterior_of_an_integral_is_the_integral_of_the_posterior():
    model, rows, y, noise = problem()
    model.condition(rows, y, noise)
    low, high = torch.tensor([[0.2, 0.1]]), torch.tensor([[0.8, 0.6]])
    x, mass = nodes(split(boxes(low, high), DIM), 12)
    inside, whole = model.posterior(points(x[0])), model.posterior(boxes(low, high, integral=True))
    close(whole.mean, 0.3 * (mass @ inside.mean)[None], 1e-8)
    close(whole.covariance_matrix, (0.09 * mass @ inside.covariance_matrix @ mass)[None, None], 1e-8)


def test_gradients_of_the_evidence_are_those_of_a_dense_process():
    model, rows, y, noise = problem()
    dense = copy.deepcopy(model.covar_module)
    evidence = model.condition(rows, y, noise).log_marginal_likelihood()
    wanted = torch.autograd.grad(evidence, list(model.covar_module.parameters()))
    left = features_by_quadrature(dense, rows)
    covariance = left @ left.mT + torch.diag(noise)
    expected = torch.distributions.MultivariateNormal(torch.zeros(len(y)), covariance).log_prob(y)
    close(evidence, expected, 1e-8)
    for found, gradient in zip(wanted, torch.autograd.grad(expected, list(dense.parameters())), strict=True):
        close(found, gradient, 1e-7)


@torch.no_grad()
def test_rows_come_and_go_and_are_left_out():
    model, rows, y, noise = problem()
    new = rows_of_a_function(7)
    wanted = model.condition(rows, y, noise).posterior(new)
    left_out = model.leave_one_out(rows, y, noise)
    model.condition(rows[:9], y[:9], noise[:9]).update(rows[9:], y[9:], noise[9:])
    close(model.posterior(new).mean, wanted.mean, 1e-8)
    model.downdate(rows[-1:], y[-1:], noise[-1:])
    assert float((model.posterior(rows[-1:]).mean - left_out.mean[-1]).abs()) < 1e-8
    summary = rfgp.predict_map(model, new, progress=False)
    close(torch.as_tensor(summary.mean).squeeze(-1), model.posterior(new).mean, 1e-8)


@pytest.mark.parametrize("name", ["rbf, ARD", "product", "helmholtz"])
@torch.no_grad()
def test_saved_models_predict_the_same(name, tmp_path):
    model, rows, y, noise = problem(name)
    wanted = model.condition(rows, y, noise).posterior(rows).mean
    rfgp.save(model, tmp_path / "model.pt")
    assert torch.equal(rfgp.load(tmp_path / "model.pt").posterior(rows).mean, wanted)
    buffer = io.BytesIO()
    torch.save(model.covar_module.state_dict(), buffer)
    buffer.seek(0)
    other = rfgp.approximate(case(name)[0], WIDTH, seed=9)
    other.load_state_dict(torch.load(buffer))
    assert torch.equal(other.features(rows), model.covar_module.features(rows))


def test_states_of_other_settings_are_refused():
    one, two = (rfgp.approximate(ObservationKernel(RBFKernel(), d), WIDTH, seed=0) for d in (1, 2))
    with pytest.raises(ValueError, match="expected"):
        two.load_state_dict(one.state_dict())


def test_training_starts_from_coordinates_and_learns():
    exact = ObservationKernel(ScaleKernel(RBFKernel(ard_num_dims=2)), DIM)
    model = WeightSpaceGP(rfgp.approximate(exact, WIDTH, seed=0), GaussianLikelihood())
    rows = rows_of_a_function(count=8)
    truth = split(rows, DIM).weights[:, 0] * torch.sin(3.0 * rows[:, 0])
    summary = rfgp.fit(model, rows, truth, max_evaluations=5, progress=False)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    lengths = exact.base_kernel.base_kernel.lengthscale[0].detach()
    assert torch.equal(input_scales(exact, rows)[:2], 1.0 / lengths)
    assert not input_scales(exact, rows)[2:].any()


@torch.no_grad()
def test_an_exact_gp_has_the_same_predictions():
    model, rows, y, noise = problem()
    exact = ExactModel(rows, y, FixedNoiseGaussianLikelihood(noise), model.covar_module, mean=None).eval()
    exact.mean_module.constant = 0.0
    new = rows_of_a_function(7)
    close(exact(new).mean, model.condition(rows, y, noise).posterior(new).mean, 1e-6)
    reference = exact_posterior(model.covar_module.exact_kernel, exact.likelihood, rows, y, new, noise=noise)
    assert reference.mean.shape == (len(new),) and (reference.stddev >= 0.0).all()


@torch.no_grad()
def test_landmarks_are_rows_of_any_kind():
    exact, rows = case("rbf, ARD")
    kernel = rfgp.approximate(exact, len(rows), method="landmarks", train_inputs=rows, seed=0)
    close(kernel(rows).to_dense(), exact(rows).to_dense(), 1e-6)


@torch.no_grad()
def test_the_best_method_is_a_fourier_method_or_landmarks():
    exact, _ = case("rbf, ARD")
    names = [str(method) for method in rfgp.approximation.family(exact).applicable(9)]
    assert names == ["fourier", "fourier_orthogonal", "fourier_hadamard", "fourier_qmc"]
    rows = points(random(40, DIM))
    assert rfgp.approximate(exact, 16, train_inputs=rows, seed=0)(rows).shape == (40, 40)


@torch.no_grad()
def test_a_field_without_curl_has_no_circulation_and_one_without_divergence_no_flux():
    corners = torch.tensor([[0.1, 0.2], [0.9, 0.2], [0.9, 0.8], [0.1, 0.8]])
    along = corners.roll(-1, 0) - corners
    across = torch.stack([along[:, 1], -along[:, 0]], dim=-1)
    for field, weights in ((CurlFreeKernel, along), (DivergenceFreeKernel, across)):
        kernel = rfgp.approximate(ObservationKernel(field(RBFKernel()), DIM), WIDTH, seed=0)
        loop = segments(corners, corners.roll(-1, 0), weights)
        assert float(kernel.features(loop).sum(0).abs().max()) < 1e-14
        assert float(kernel.exact_kernel(loop).to_dense().sum().abs()) < 1e-10


@torch.no_grad()
def test_batches_of_kernels():
    exact = ObservationKernel(RBFKernel(batch_shape=torch.Size([3])), DIM)
    exact.base_kernel.lengthscale = torch.tensor([0.4, 0.7, 1.0])[:, None, None]
    rows, kernel = rows_of_a_function(), rfgp.approximate(exact, WIDTH, seed=0)
    assert kernel.features(rows).shape == (3, len(rows), WIDTH)
    close(exact(rows, diag=True), exact(rows).to_dense().diagonal(dim1=-2, dim2=-1))
    for i in range(3):
        close(kernel[i].features(rows), kernel.features(rows)[i])
        one = ObservationKernel(RBFKernel(), DIM)
        one.base_kernel.lengthscale = exact.base_kernel.lengthscale[i]
        close(exact(rows).to_dense()[i], one(rows).to_dense())
    batch = torch.stack([rows, rows_of_a_function(3)])
    close(one(batch).to_dense()[1], one(batch[1]).to_dense())
    close(one(batch, diag=True)[1], one(batch[1], diag=True))


@torch.no_grad()
def test_active_dims_select_the_columns_of_rows():
    rows = rows_of_a_function()
    wide = torch.cat([rows, torch.full((len(rows), 1), math.nan)], dim=-1)
    exact = ObservationKernel(RBFKernel(), DIM, active_dims=list(range(rows.shape[-1])))
    narrow = ObservationKernel(RBFKernel(), DIM)
    close(exact(wide).to_dense(), narrow(rows).to_dense())
    close(*[rfgp.approximate(k, WIDTH, seed=0).features(x) for k, x in ((exact, wide), (narrow, rows))])
    assert rfgp.approximate(exact, WIDTH, seed=0).exact_kernel.active_dims is exact.active_dims


def test_scales_and_sums_may_be_outside():
    rows = rows_of_a_function()
    exact = ScaleKernel(ObservationKernel(RBFKernel(), DIM)) + ObservationKernel(MaternKernel(), DIM)
    kernel = rfgp.approximate(exact, 2 * WIDTH, seed=0)
    assert kernel.features(rows).shape == (len(rows), 2 * WIDTH)
    assert any(isinstance(part, ObservationKernel) for part in kernel.modules())


def test_kernels_that_are_approximated_inside():
    rows, inner = rows_of_a_function(), rfgp.approximate(RBFKernel(), WIDTH, input_dim=DIM, seed=0)
    kernel = rfgp.approximation.with_features(ObservationKernel(inner, DIM))
    close(kernel.features(rows), rfgp.approximate(ObservationKernel(RBFKernel(), DIM), WIDTH, seed=0).features(rows))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ObservationKernel("rbf", DIM), "expected a GPyTorch kernel for base_kernel"),
        (lambda: ObservationKernel(RBFKernel(), 0), "expected a positive integer for input_dim"),
        (lambda: ObservationKernel(RBFKernel(), DIM, num_nodes=0), "expected a positive integer for num_nodes"),
        (lambda: ObservationKernel(RBFKernel(ard_num_dims=3), DIM), "expected input_dim=3 as ard_num_dims says, got 2"),
        (lambda: ObservationKernel(RBFKernel(active_dims=[2]), DIM), "expected active_dims below input_dim=2, got 2"),
        (lambda: approximate(LinearKernel()), "expected Fourier features of a shift-invariant kernel, got others of"),
        (lambda: approximate(PolynomialKernel(power=2)), "got others of PolynomialKernel"),
        (lambda: approximate(SkewedChiSquaredKernel()), "got others of SkewedChiSquaredKernel"),
        (lambda: approximate(RBFKernel(), "fourier:complex"), "expected real features for observations"),
        (
            lambda: approximate(RBFKernel())(random(3, DIM)).to_dense(),
            "expected rows of rfgp.functionals.observations with 9 col",
        ),
        (lambda: approximate(MaternKernel(nu=0.5))(rows_of_a_function()).to_dense(), "expected values of a process wi"),
        (lambda: ObservationKernel(MaternKernel(nu=0.5), DIM)(rows_of_a_function()).to_dense(), "expected values of a"),
        (lambda: rfgp.approximate(RBFKernel(), WIDTH, method="random_maclaurin").waves(DIM), "expected Fourier featu"),
    ],
)
def test_what_does_not_fit_raises(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def means_of_rows():
    exact = ObservationKernel(RBFKernel(), DIM)
    features = rfgp.approximate(exact, WIDTH)
    constant, x, y = ConstantMean(), rows_of_a_function(), torch.zeros(len(rows_of_a_function()))
    return [
        lambda: WeightSpaceGP(features, GaussianLikelihood(), constant),
        lambda: WeightSpaceGP(rfgp.approximate(ScaleKernel(exact), WIDTH), GaussianLikelihood(), LinearMean(9)),
        lambda: LaplaceGP(features, BernoulliLikelihood(), constant),
        lambda: WeightSpaceVariationalGP(features, BernoulliLikelihood(), constant),
        lambda: certified_posterior(exact, GaussianLikelihood(), x, y, constant),
        lambda: rfgp.fit(ExactModel(x, y, GaussianLikelihood(), exact)),
    ]


@pytest.mark.parametrize("number", range(6))
def test_means_that_know_nothing_of_derivatives_and_integrals_are_refused(number):
    with pytest.raises(ValueError, match="expected a ZeroMean for rows"):
        means_of_rows()[number]()


def approximate(base, method="auto"):
    return rfgp.approximate(ObservationKernel(base, DIM), WIDTH, method=method, seed=0)


def test_maps_that_wait_are_made():
    inner = rfgp.approximation.FeatureKernel(RBFKernel(), MapRecipe("fourier", WIDTH, 0))
    assert inner.waves(DIM).frequencies.shape == (WIDTH // 2, DIM)


@torch.no_grad()
def test_an_advected_field_without_velocity_is_separable_and_follows_the_flow_with_one():
    x = random(5, 3)
    kernel, rbf = AdvectedKernel(2, ard_num_dims=3), RBFKernel(ard_num_dims=3)
    kernel.lengthscale = rbf.lengthscale = torch.tensor([0.5, 0.8, 1.5])
    kernel.spread = 1e-9
    close(kernel(x).to_dense(), rbf(x).to_dense())
    kernel.velocity = torch.tensor([2.0, -1.0])
    moved = torch.tensor([[0.0, 0.0, 0.0], [0.2, -0.1, 0.1]])
    close(kernel(moved).to_dense()[0, 1], torch.tensor(math.exp(-0.5 * (0.1 / 1.5) ** 2)))
    with pytest.raises(ValueError, match="expected 2 columns of space and one of time, got 2"):
        AdvectedKernel(2)(x[:, :2]).to_dense()


def test_features_can_be_transformed():
    kernel, rows = approximated("rbf, ARD")
    with torch.no_grad():
        expected = kernel.features(rows)
        close(torch.func.vmap(lambda row: kernel.features(row[None])[0])(rows), expected)
        slopes = torch.func.vmap(torch.func.jacfwd(lambda row: kernel.features(row[None])[0]))(rows)
    x = rows.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(kernel.features(x).sum(), x)
    close(gradient[:, :DIM], slopes.sum(1)[:, :DIM])


@torch.no_grad()
def test_windows_of_time():
    """Averages over a window of time at a place, of a field that drifts: a box that extends in time alone."""
    exact = ObservationKernel(randomised(AdvectedKernel(1, ard_num_dims=2)), DIM)
    place, window = torch.tensor([[0.3, 0.2]]), torch.tensor([[0.3, 0.9]])
    kernel = rfgp.approximate(exact, WIDTH, seed=0)
    rows = torch.cat([boxes(place, window), points(place)])
    expected = features_by_quadrature(kernel, rows)
    close(kernel.features(rows) @ kernel.features(rows).mT, expected @ expected.mT)
