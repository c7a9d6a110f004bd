"""Local blocks equal dense algebra with the covariance that they stand for, and the exact model where they should."""

import copy
import io

import gpytorch
import pytest
import torch
from dense import evidence, posterior

import rfgp
from rfgp.inference.local import LocalSystems
from rfgp.models import WeightSpaceGP

RELATIVE = 1e-9
ROWS, LANDMARKS, NOISE = 120, 15, 0.02


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def data(rows=ROWS, offset=3.0):
    generator = torch.Generator().manual_seed(1)
    x = 4.0 * torch.rand(rows, 2, generator=generator)
    y = torch.sin(3.0 * x[:, 0]) * x[:, 1] + 0.1 * torch.randn(rows, generator=generator) + offset
    return x, y, 5.0 * torch.rand(40, 2, generator=generator)


def exact_kernel(name="matern"):
    kernel = gpytorch.kernels
    base = {
        "matern": lambda: kernel.MaternKernel(nu=1.5, ard_num_dims=2),
        "sum": lambda: kernel.RBFKernel(active_dims=[0]) + kernel.MaternKernel(nu=0.5, active_dims=[1]),
    }[name]()
    for part in base.modules():
        if getattr(part, "has_lengthscale", False):
            part.lengthscale = torch.linspace(0.5, 1.0, part.lengthscale.shape[-1])
    scaled = kernel.ScaleKernel(base)
    scaled.outputscale = 2.3
    return scaled


def model(x, kernel="matern", likelihood=None, landmarks=LANDMARKS, mean="constant", **settings):
    made = rfgp.approximate(exact_kernel(kernel), landmarks, method="landmarks", train_inputs=x, seed=0)
    if likelihood is None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        likelihood.noise = NOISE
    means = {"zero": gpytorch.means.ZeroMean, "constant": gpytorch.means.ConstantMean}
    mean = gpytorch.means.LinearMean(2) if mean == "linear" else means[mean]()
    for parameter in mean.parameters():
        torch.nn.init.constant_(parameter, 2.5)
    return WeightSpaceGP(made, likelihood, mean, **settings)


def local_rows(fitted):
    return fitted.conditioned.sums.local


def same_block(fitted, x, xs):
    """Whether rows and rows, test points and rows, and test points and test points lie in the same block."""
    local = local_rows(fitted)
    places = [local.partition.place(local.points(part)) for part in (x, xs)]
    of_rows = torch.empty(len(x), dtype=torch.long)
    for number, rows in enumerate(local.partition.blocks):
        of_rows[rows] = number
    places[0] = of_rows
    return [(a[:, None] == b).double() for a, b in ((places[0], places[0]), (places[0], places[1]), (places[1],) * 2)]


def dense_matrices(fitted, x, xs):
    """K, K(x, x*) and K(x*, x*) of the model with blocks, dense and differentiable."""
    kernel, exact = fitted.covar_module, fitted.covar_module.exact_kernel
    phi, phis = kernel.features(x), kernel.features(xs)
    pairs = ((x, phi, x, phi), (x, phi, xs, phis), (xs, phis, xs, phis))
    matrices = []
    for (a, p, b, q), same in zip(pairs, same_block(fitted, x, xs), strict=True):
        low_rank = p @ q.mT
        matrices.append(low_rank + same * (exact(a, b).to_dense() - low_rank))
    return matrices


def close(a, b):
    return float((a - b).abs().max()) <= RELATIVE * max(1.0, float(b.abs().max()))


def noises(fitted, x, noise=None):
    return torch.full((len(x),), float(fitted.likelihood.noise.detach())) if noise is None else noise


@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
@pytest.mark.parametrize("kernel", ["matern", "sum"])
@pytest.mark.parametrize("block_size", [7, 40, ROWS])
def test_evidence_and_predictions_equal_dense_algebra(block_size, kernel, mean):
    x, y, xs = data()
    fitted = model(x, kernel, mean=mean, block_size=block_size, num_neighbors=None).condition(x, y)
    matrix, cross, prior = dense_matrices(fitted, x, xs)
    residual, noise = y - fitted.mean_module(x), noises(fitted, x)
    wanted, covariance = posterior(matrix, cross, prior, noise, residual)
    found = fitted.posterior(xs)
    assert close(fitted.log_marginal_likelihood(), evidence(matrix, noise, residual))
    assert close(found.mean, wanted + fitted.mean_module(xs))
    assert close(found.variance, covariance.diagonal())
    assert close(found.covariance_matrix, covariance)


@pytest.mark.parametrize("settings", [{"num_neighbors": None}, {"num_neighbors": ROWS}, {"num_neighbors": 10 * ROWS}])
def test_one_block_is_the_exact_model(settings):
    x, y, xs = data()
    fitted = model(x, block_size=ROWS, **settings).condition(x, y)
    exact = exact_kernel()
    with torch.no_grad():
        matrix, cross, prior = (exact(a, b).to_dense() for a, b in ((x, x), (x, xs), (xs, xs)))
        wanted, covariance = posterior(matrix, cross, prior, noises(fitted, x), y - 2.5)
        assert close(fitted.log_marginal_likelihood(), evidence(matrix, noises(fitted, x), y - 2.5))
    assert close(fitted.posterior(xs).mean, wanted + 2.5)
    assert close(fitted.posterior(xs).variance, covariance.diagonal())


def test_neighbors_equal_the_formula():
    x, y, xs = data()
    fitted = model(x, block_size=30, num_neighbors=9).condition(x, y)
    kernel, exact, weights = fitted.covar_module, fitted.covar_module.exact_kernel, fitted.weight_posterior()
    root = exact.outputscale.sqrt()
    with torch.no_grad():
        inverse = torch.cholesky_inverse(weights.factor)
        phi, phis = kernel.features(x), kernel.features(xs)
        units = exact.base_kernel.lengthscale
        near = torch.cdist(xs / units, x / units).topk(9, largest=False).indices
        means, variances = [], []
        for point, rows in enumerate(near):
            p, q = phi[rows], phis[point]
            residual = exact(x[rows]).to_dense() - p @ p.mT + NOISE * torch.eye(9)
            cross = (exact(xs[point : point + 1], x[rows]).to_dense() - q @ p.mT).squeeze(0)
            s = torch.linalg.solve(residual, cross)
            g = q - s @ p
            mean = weights.mean.squeeze(-1)
            means.append(2.5 + g @ mean + s @ (y[rows] - 2.5))
            variances.append(exact.outputscale - q @ q - s @ cross + g @ inverse @ g)
    assert float(root) > 1.0
    found = fitted.posterior(xs)
    assert close(found.mean, torch.stack(means))
    assert close(found.variance, torch.stack(variances))


def neighbors_and_points(count, neighbors):
    """A model with neighbors, its points, and their joint covariance by dense algebra of all rows and points."""
    x, y, xs = data()
    xs = torch.cat([xs[: count - 1], xs[:1] + 1e-3])
    fitted = model(x, block_size=30, num_neighbors=neighbors).condition(x, y)
    kernel, exact, weights = fitted.covar_module, fitted.covar_module.exact_kernel, fitted.weight_posterior()
    every = torch.cat([x, xs])
    with torch.no_grad():
        features = kernel.features(every)
        residual = exact(every).to_dense() - features @ features.mT
        residual[:ROWS, :ROWS] += NOISE * torch.eye(ROWS)
        units = exact.base_kernel.lengthscale
        near = torch.cdist(xs / units, x / units).topk(neighbors, largest=False).indices
        left = torch.zeros(count, ROWS + count)
        for point, rows in enumerate(near):
            left[point, rows] = -torch.linalg.solve(residual[rows][:, rows], residual[rows, ROWS + point])
            left[point, ROWS + point] = 1.0
        explained = left @ features
        inverse, same = torch.cholesky_inverse(weights.factor), same_block(fitted, x, xs)[2]
        return fitted, xs, explained @ inverse @ explained.mT + same * (left @ residual @ left.mT)


@pytest.mark.parametrize("neighbors", [9, ROWS])
def test_neighbors_have_the_joint_covariance_of_what_they_do_not_tell(neighbors):
    fitted, xs, wanted = neighbors_and_points(30, neighbors)
    found = fitted.posterior(xs)
    assert close(found.covariance_matrix, wanted)
    assert close(fitted.posterior(xs.reshape(6, 5, 2)).covariance_matrix[2], wanted[10:15, 10:15])
    vector = torch.randn(30)
    assert close(found.lazy_covariance_matrix @ vector, wanted @ vector)


@pytest.mark.parametrize("is_function", [True, False])
def test_draws_given_neighbors_have_the_moments_of_the_posterior(is_function):
    fitted, xs, covariance = neighbors_and_points(30, 9)
    found, num_draws = fitted.posterior(xs), 20000
    if is_function:
        functions = fitted.sample_functions(num_draws)
        values = torch.cat([functions(xs[:4]), functions(xs[4:])], dim=-1)
        assert torch.equal(functions(xs), values)
    else:
        values = found.sample(torch.Size([num_draws]))
        of_batch = fitted.posterior(xs[:6].reshape(2, 3, 2)).sample(torch.Size([num_draws])).flatten(1)
        assert bool(((of_batch.var(0) / found.variance[:6] - 1.0).abs() < 5.0 * (2.0 / num_draws) ** 0.5).all())
    error = found.stddev / num_draws**0.5
    assert bool(((values.mean(0) - found.mean).abs() < 5.0 * error).all())
    sizes = (found.variance[:, None] * found.variance).sqrt() * (2.0 / num_draws) ** 0.5
    assert bool(((values.mT.cov() - covariance).abs() < 5.0 * sizes).all())


def test_the_prior_comes_back_far_from_the_data():
    x, y, _ = data()
    for neighbors in (None, 16):
        fitted = model(x, block_size=30, num_neighbors=neighbors).condition(x, y)
        far = fitted.posterior(torch.full((1, 2), 1e3))
        assert close(far.mean, torch.tensor([2.5]))
        assert close(far.variance, torch.tensor([2.3]))


def test_neighbors_make_the_mean_continuous_where_blocks_have_edges():
    x, y, _ = data()
    line = torch.stack([torch.linspace(0.5, 3.5, 2001), torch.full((2001,), 2.0)], dim=-1)
    jumps = {}
    for neighbors in (None, 60):
        mean = model(x, block_size=30, num_neighbors=neighbors).condition(x, y).posterior(line).mean
        jumps[neighbors] = float(mean.diff().abs().max())
    assert jumps[60] < 0.2 * jumps[None]


@pytest.mark.parametrize("neighbors", [None, 12])
def test_batches_of_inputs_equal_one_by_one(neighbors):
    x, y, xs = data()
    fitted = model(x, block_size=30, num_neighbors=neighbors).condition(x, y)
    batch = fitted.posterior(xs.reshape(4, 5, 2, 2))
    one = fitted.posterior(xs.reshape(4, 5, 2, 2)[1, 2])
    assert batch.mean.shape == batch.variance.shape == (4, 5, 2)
    assert close(batch.mean[1, 2], one.mean)
    assert close(batch.covariance_matrix[1, 2], one.covariance_matrix)
    first, last = torch.tensor([0, 1]), torch.tensor([1, 1])
    assert close(batch.lazy_covariance_matrix[..., first, last], batch.covariance_matrix[..., first, last])


def test_samples_of_the_posterior_have_its_moments():
    x, y, xs = data()
    found = model(x, block_size=30, num_neighbors=None).condition(x, y).posterior(xs[:6])
    draws = found.sample(torch.Size([20000]))
    error = found.variance.sqrt() / 20000**0.5
    assert bool(((draws.mean(0) - found.mean).abs() < 5.0 * error).all())
    sizes = (found.variance[:, None] * found.variance).sqrt() * (2.0 / 20000) ** 0.5
    assert bool(((draws.mT.cov() - found.covariance_matrix).abs() < 6.0 * sizes).all())


def test_draws_of_functions_have_the_moments_of_blocks_and_agree_with_themselves():
    x, y, xs = data(60)
    fitted = model(x, block_size=20, num_neighbors=None).condition(x, y)
    points = xs[:5]
    draws = fitted.sample_functions(3000)
    first, rest, again = draws(points[:2]), draws(points[2:]), draws[:5](points)
    values, wanted = torch.cat([first, rest], dim=-1), fitted.posterior(points)
    assert torch.equal(again, values[:5])
    error = wanted.variance.sqrt() / len(draws) ** 0.5
    assert bool(((values.mean(0) - wanted.mean).abs() < 5.0 * error).all())
    sizes = (wanted.variance[:, None] * wanted.variance).sqrt() * (2.0 / len(draws)) ** 0.5
    assert bool(((values.mT.cov() - wanted.covariance_matrix).abs() < 6.0 * sizes).all())


def test_batches_of_a_loader_equal_all_rows():
    x, y, xs = data()
    whole = model(x, block_size=30).condition(x, y)
    loaded = model(x, block_size=30).condition(list(zip(x.split(50), y.split(50), strict=True)))
    assert close(loaded.log_marginal_likelihood(), whole.log_marginal_likelihood())
    assert close(loaded.posterior(xs).mean, whole.posterior(xs).mean)


@pytest.mark.parametrize("new", [1, 5, 80])
def test_an_update_equals_dense_algebra_of_all_rows(new):
    x, y, xs = data(200)
    fitted = model(x, block_size=30, num_neighbors=None).condition(x[:-new], y[:-new]).update(x[-new:], y[-new:])
    assert max(map(len, local_rows(fitted).partition.blocks)) <= 30
    matrix, cross, prior = dense_matrices(fitted, x, xs)
    residual, noise = y - fitted.mean_module(x), noises(fitted, x)
    wanted, covariance = posterior(matrix, cross, prior, noise, residual)
    assert close(fitted.log_marginal_likelihood(), evidence(matrix, noise, residual))
    assert close(fitted.posterior(xs).mean, wanted + fitted.mean_module(xs))
    assert close(fitted.posterior(xs).variance, covariance.diagonal())


def test_an_update_computes_only_the_blocks_that_changed(monkeypatch):
    x, y, _ = data(200)
    fitted = model(x, block_size=20).condition(x[:-1], y[:-1])
    calls, whitened = [], LocalSystems.whitened
    monkeypatch.setattr(LocalSystems, "whitened", lambda *args: calls.append(0) or whitened(*args))
    fitted.update(x[-1:], y[-1:])
    assert 0 < len(calls) <= 4 < len(local_rows(fitted).partition.blocks)


@pytest.mark.parametrize("neighbors", [None, 12])
def test_states_and_copies_predict_alike(neighbors):
    x, y, xs = data()
    fitted = model(x, block_size=30, num_neighbors=neighbors).condition(x, y)
    fitted.update(xs[:3], torch.ones(3))
    wanted = fitted.posterior(xs)
    file = io.BytesIO()
    torch.save(fitted.state_dict(), file)
    file.seek(0)
    loaded = model(x + 1.0, block_size=30, num_neighbors=neighbors)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    for other in (loaded, copy.deepcopy(fitted)):
        assert close(other.posterior(xs).mean, wanted.mean)
        assert close(other.posterior(xs).variance, wanted.variance)
        assert close(other.log_marginal_likelihood(), fitted.log_marginal_likelihood())


def test_predictions_stay_when_the_model_changes():
    x, y, xs = data()
    fitted = model(x, block_size=30, num_neighbors=None).condition(x, y)
    found, draw = fitted.posterior(xs), fitted.sample_functions(1)[0]
    covariance, values = found.covariance_matrix.clone(), draw(xs[:3])
    again = fitted.posterior(xs)
    fitted.covar_module.base_kernel.lengthscale = 0.1
    fitted.condition(x[:50], y[:50])
    assert torch.equal(again.covariance_matrix, covariance)
    assert torch.equal(draw(xs[:3]), values)


@pytest.mark.parametrize("name", ["likelihood", "outputscale", "lengthscale", "landmarks"])
def test_statistics_are_stale_after_any_change(name):
    x, y, xs = data()
    fitted = model(x, block_size=30).condition(x, y)
    scaled = fitted.covar_module
    with torch.no_grad():
        if name == "likelihood":
            fitted.likelihood.noise = 0.5
        elif name == "outputscale":
            scaled.outputscale = 1.0
        elif name == "lengthscale":
            scaled.base_kernel.lengthscale = 0.9
        else:
            scaled.maps.landmarks.add_(0.1)
    with pytest.raises(ValueError, match="call condition"):
        fitted.posterior(xs)


@pytest.mark.parametrize("neighbors", [None, 12])
def test_gradients_of_predictions_run_back_to_the_inputs_alone(neighbors):
    x, y, xs = data()
    fitted = model(x, block_size=30, num_neighbors=neighbors).condition(x, y)
    found = fitted.posterior(xs)
    assert not any(getattr(found, name).requires_grad for name in ("mean", "variance", "covariance_matrix"))
    points = xs[:3].clone().requires_grad_(True)
    names = ("mean", "variance", "covariance_matrix")
    torch.autograd.gradcheck(lambda p: tuple(getattr(fitted.posterior(p), n) for n in names), points, atol=1e-4)


def test_single_precision_is_near_double_precision():
    x, y, xs = data()
    wanted = model(x, block_size=30).condition(x, y).posterior(xs)
    torch.set_default_dtype(torch.float32)
    single = model(x.float(), block_size=30).float()
    single.likelihood.noise = NOISE
    found = single.condition(x.float(), y.float()).posterior(xs.float())
    assert found.mean.dtype == found.variance.dtype == torch.float32
    assert float((found.mean - wanted.mean).abs().max()) < 1e-3
    assert float((found.variance - wanted.variance).abs().max()) < 1e-3


@pytest.mark.parametrize("neighbors", [None, 16])
def test_single_precision_keeps_the_digits_of_small_noise(neighbors):
    x, y, xs = (values.float() for values in data())
    found = []
    for dtype in (torch.float32, torch.float64):
        kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).to(dtype)
        kernel.outputscale, kernel.base_kernel.lengthscale = 30.0, 0.7
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(1e-9)
        ).to(dtype)
        likelihood.noise = 1e-6
        made = rfgp.approximate(kernel, LANDMARKS, method="landmarks", train_inputs=x.to(dtype), seed=0)
        fitted = WeightSpaceGP(made, likelihood, block_size=30, num_neighbors=neighbors)
        predicted = fitted.condition(x.to(dtype), y.to(dtype)).posterior(xs.to(dtype))
        points = fitted.point_predictor(torch.float32)(xs.to(dtype))
        found.append((predicted.stddev, points.variance.sqrt().squeeze(-1), fitted.log_marginal_likelihood()))
    for single, double in zip(*found, strict=True):
        assert bool(((single.double() / double.double() - 1.0).abs() < 1e-2).all())


def test_large_offsets_cost_no_digits():
    x, y, xs = data(offset=0.0)
    fitted, shifted = model(x, block_size=30), model(x, block_size=30)
    with torch.no_grad():
        shifted.mean_module.constant.data.fill_(2.5 + 1e6)
        fitted.condition(x, y), shifted.condition(x, y + 1e6)
    assert float((shifted.posterior(xs).mean - 1e6 - fitted.posterior(xs).mean).abs().max()) < 1e-8
    assert abs(float(shifted.log_marginal_likelihood() - fitted.log_marginal_likelihood())) < 1e-6


def test_training_raises_the_evidence():
    x, y, _ = data()
    trained = model(x, block_size=30)
    summary = rfgp.fit(trained, x, y, strategy="evidence", max_evaluations=30)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    trained.posterior(x[:2])


def test_small_tables_are_tuned_by_the_exact_likelihood():
    x, y, _ = data()
    trained, exact = model(x, block_size=30), model(x, landmarks=ROWS, mean="constant")
    summary = rfgp.fit(trained, x, y)
    rfgp.fit(exact, x, y, strategy="evidence")
    assert "subset" in summary.message
    noises = [float(fitted.likelihood.noise.detach()) for fitted in (trained, exact)]
    assert noises[0] == pytest.approx(noises[1], rel=0.05)


BAD = {
    "fourier": (lambda x: WeightSpaceGP(fourier(x), gaussian(), block_size=8), "expected landmarks for block_size"),
    "batch": (
        lambda x: WeightSpaceGP(batch(x), labels(), block_size=8),
        "expected real targets and a kernel without batch dimensions",
    ),
    "no size": (lambda x: model(x, block_size=0), "expected a positive integer for block_size"),
    "half a row": (lambda x: model(x, block_size=2.5), "expected a positive integer for block_size"),
    "no neighbors": (lambda x: model(x, block_size=8, num_neighbors=0), "positive integer for num_neighbors"),
    "missing": (lambda x: model(x, block_size=8).condition(x, x[:, 0] / 0.0), "finite"),
    "no rows": (lambda x: model(x, block_size=8).condition(iter(())), "at least one batch"),
    "some noise": (
        lambda x: model(x, block_size=8).condition([(x, x[:, 0]), (x, x[:, 0], x[:, 0] + 1.0)]),
        "noise beside all batches or none",
    ),
    "statistics": (
        lambda x: model(x, block_size=8).load_statistics(model(x).condition(x, x[:, 0]).statistics),
        "expected a model without blocks",
    ),
}


def fourier(x):
    return rfgp.approximate(exact_kernel(), 16, method="fourier", train_inputs=x)


def batch(x):
    base = rfgp.approximate(gpytorch.kernels.RBFKernel(), 16, method="landmarks", train_inputs=x)
    return gpytorch.kernels.ScaleKernel(base, batch_shape=torch.Size([2]))


def gaussian():
    return gpytorch.likelihoods.GaussianLikelihood()


def labels():
    return rfgp.likelihoods.DirichletClassificationLikelihood(torch.arange(10) % 2, learn_additional_noise=False)


@pytest.mark.parametrize("case", BAD)
def test_bad_calls_are_refused(case):
    x, _, _ = data(50)
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call(x)


def test_failed_calls_leave_the_model_as_it_was():
    x, y, xs = data()
    fitted = model(x, block_size=30).condition(x, y)
    before = fitted.posterior(xs).mean
    for call in (
        lambda: fitted.condition(x, y * float("nan")),
        lambda: fitted.update(x[:2], torch.full((2,), float("nan"))),
        lambda: fitted.update(x[:2, :1], y[:2]),
        lambda: fitted.posterior(x[:2, :1]),
        lambda: fitted.posterior(torch.zeros(2, 3)),
    ):
        with pytest.raises(ValueError):
            call()
        assert torch.equal(fitted.posterior(xs).mean, before)
