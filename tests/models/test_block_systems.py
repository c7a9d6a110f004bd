"""Classes and several outputs with blocks of near rows equal dense algebra with the covariance that they stand for."""

import copy
import io

import gpytorch
import pytest
import torch
from feature_parts import parts

import rfgp
from rfgp.inference.local import LocalSystems
from rfgp.models import WeightSpaceGP

RELATIVE, ROWS, TASKS, CLASSES = 1e-8, 90, 3, 4
KINDS = ["classes", "learned", "outputs", "correlated"]


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def data(kind, rows=ROWS):
    generator = torch.Generator().manual_seed(1)
    x = 4.0 * torch.rand(rows, 2, generator=generator)
    noise = 0.1 * torch.randn(rows, TASKS, generator=generator)
    waves = torch.stack([torch.sin(3.0 * x[:, 0]), x[:, 1].cos(), x.prod(-1).sin()], dim=-1) + 2.0
    y = waves + noise if kind in ("outputs", "correlated") else (x[:, 0] + 0.5 * noise[:, 0]).long().clamp(0, 3)
    return x, y, 5.0 * torch.rand(12, 2, generator=generator)


def model(kind, x, **settings):
    base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=2))
    base.base_kernel.lengthscale, base.outputscale = torch.tensor([0.6, 0.9]), 1.7
    if kind in ("outputs", "correlated"):
        kernel = gpytorch.kernels.MultitaskKernel(base, num_tasks=TASKS, rank=1)
        kernel.task_covar_module.covar_factor.data = torch.tensor([[1.0], [-0.5], [0.3]])
        likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(TASKS, rank=2 * (kind == "correlated"))
        likelihood.noise = 0.05
        mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), TASKS)
    else:
        kernel, mean = base, gpytorch.means.ConstantMean(batch_shape=torch.Size([CLASSES]))
        likelihood = rfgp.likelihoods.DirichletClassificationLikelihood(
            num_classes=CLASSES, alpha_epsilon=0.05, learn_additional_noise=kind == "learned"
        )
    for parameter in mean.parameters():
        torch.nn.init.uniform_(parameter)
    made = rfgp.approximate(kernel, 12, method="landmarks", train_inputs=x, seed=0)
    return WeightSpaceGP(made, likelihood, mean, **{"block_size": 20, "num_neighbors": None, **settings})


def local_rows(fitted):
    return fitted.conditioned.sums.local


def places(fitted, x, xs):
    local = local_rows(fitted)
    of_rows = torch.empty(len(x), dtype=torch.long)
    for number, rows in enumerate(local.partition.blocks):
        of_rows[rows] = number
    return of_rows, local.partition.place(local.points(xs))


def scalar_matrices(fitted, x, xs):
    """The covariances of rows, of rows and points, and of points, under the scalar kernel with its blocks."""
    kernel = fitted.covar_module
    kernel = parts(kernel)[0] if hasattr(kernel, "data_covar_module") else kernel
    exact, (phi, phis), (a, b) = kernel.exact_kernel, map(kernel.features, (x, xs)), places(fitted, x, xs)
    pairs = ((x, phi, a, x, phi, a), (x, phi, a, xs, phis, b), (xs, phis, b, xs, phis, b))
    return [
        p @ q.mT + (i[:, None] == j) * (exact(first, second).to_dense() - p @ q.mT)
        for first, p, i, second, q, j in pairs
    ]


def joint_problem(kind, fitted, x, y, xs):
    """For every independent problem: covariances of targets and functions, noise covariance, and residual."""
    matrices = scalar_matrices(fitted, x, xs)
    if kind in ("outputs", "correlated"):
        tasks = fitted.covar_module.task_covar_module.covar_matrix.to_dense()
        matrices = [torch.kron(matrix, tasks) for matrix in matrices]
        noise = (
            fitted.likelihood.task_noise_covar if kind == "correlated" else torch.diag(fitted.likelihood.task_noises)
        )
        noise = torch.kron(torch.eye(len(x)), noise + fitted.likelihood.noise * torch.eye(TASKS))
        return [(matrices, noise, (y - fitted.mean_module(x)).flatten())]
    likelihood = fitted.likelihood
    alpha = torch.nn.functional.one_hot(y, CLASSES).double().mT + likelihood.alpha_epsilon
    noise = (1.0 / alpha + 1.0).log()
    targets = alpha.log() - 0.5 * noise
    if likelihood.second_noise_covar is not None:
        noise = noise + likelihood.second_noise_covar.noise
    residuals = targets - fitted.mean_module(x)
    return [(matrices, torch.diag(s), r) for s, r in zip(noise, residuals, strict=True)]


def dense_posterior(kind, fitted, x, y, xs):
    """Means and covariances of the functions at points, by dense algebra."""
    found = []
    for (matrix, cross, prior), noise, residual in joint_problem(kind, fitted, x, y, xs):
        whole = matrix + noise
        found.append(
            (cross.mT @ torch.linalg.solve(whole, residual), prior - cross.mT @ torch.linalg.solve(whole, cross))
        )
    mean, covariance = (torch.stack(values) for values in zip(*found, strict=True))
    of_mean = fitted.mean_module(xs)
    return (mean + of_mean, covariance) if mean.shape[0] > 1 else (mean.reshape(of_mean.shape) + of_mean, covariance[0])


def dense_evidence(kind, fitted, x, y):
    values = []
    for (matrix, *_), noise, residual in joint_problem(kind, fitted, x, y, x[:1]):
        factor = torch.linalg.cholesky(matrix + noise)
        white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False)
        logs = factor.diagonal().log().sum()
        values.append(
            -0.5 * white.square().sum() - logs - 0.5 * len(residual) * torch.log(torch.tensor(2.0 * torch.pi))
        )
    return torch.stack(values).sum()


def close(a, b, relative=RELATIVE):
    return float((a - b).detach().abs().max()) <= relative * max(1.0, float(b.detach().abs().max()))


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_and_posterior_equal_dense_algebra(kind):
    x, y, xs = data(kind)
    fitted = model(kind, x).condition(x, y)
    found, (mean, covariance) = fitted.posterior(xs), dense_posterior(kind, fitted, x, y, xs)
    assert close(fitted.log_marginal_likelihood(), dense_evidence(kind, fitted, x, y))
    assert close(found.mean, mean)
    assert close(found.variance.flatten(), covariance.diagonal(dim1=-2, dim2=-1).flatten())
    assert close(found.covariance_matrix, covariance)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_those_of_dense_algebra(kind):
    x, y, _ = data(kind)
    fitted = model(kind, x)
    fitted.condition(x, y).log_marginal_likelihood().backward()
    found = {name: p.grad.clone() for name, p in fitted.named_parameters() if p.grad is not None}
    fitted.zero_grad()
    dense_evidence(kind, fitted, x, y).backward()
    assert len(found) >= 3
    for name, parameter in fitted.named_parameters():
        if parameter.grad is not None:
            assert close(found[name], parameter.grad, 1e-6), name


@pytest.mark.parametrize("kind", KINDS)
def test_neighbors_of_all_rows_are_the_exact_residual(kind):
    x, y, xs = data(kind, 40)
    by_blocks = model(kind, x, block_size=40).condition(x, y)
    by_rows = model(kind, x, block_size=40, num_neighbors=40).condition(x, y)
    by_rows.load_state_dict(by_blocks.state_dict())
    mean, covariance = dense_posterior(kind, by_blocks, x, y, xs)
    for fitted in (by_blocks, by_rows):
        assert close(fitted.posterior(xs).mean, mean)
        assert close(fitted.posterior(xs).variance.flatten(), covariance.diagonal(dim1=-2, dim2=-1).flatten())
        assert close(fitted.posterior(xs).covariance_matrix, covariance)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_come_and_go_equal_a_refit(kind):
    x, y, xs = data(kind)
    fitted = model(kind, x).condition(x[:-9], y[:-9]).update(x[-9:], y[-9:])
    mean, covariance = dense_posterior(kind, fitted, x, y, xs)
    assert close(fitted.posterior(xs).mean, mean)
    assert close(fitted.posterior(xs).variance.flatten(), covariance.diagonal(dim1=-2, dim2=-1).flatten())
    fitted.downdate(x[:5], y[:5])
    mean, _ = dense_posterior(kind, fitted, x[5:], y[5:], xs)
    assert close(fitted.posterior(xs).mean, mean)


@pytest.mark.parametrize("neighbors", [None, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_leave_out_equals_refits(kind, neighbors):
    x, y, _ = data(kind)
    fitted = model(kind, x, num_neighbors=neighbors).condition(x, y)
    alone, groups = fitted.leave_one_out(x, y), fitted.leave_group_out(x, y, torch.arange(ROWS) // 6)
    for found, removed in ((alone, torch.tensor([7])), (groups, torch.arange(6))):
        other = copy.deepcopy(fitted).downdate(x[removed], y[removed])
        wanted = other.posterior(x[removed])
        is_batch = kind in ("classes", "learned")
        mean = found.mean[:, removed] if is_batch else found.mean[removed]
        variance = found.latent_variance[:, removed] if is_batch else found.latent_variance[removed]
        assert close(mean, wanted.mean, 1e-7)
        assert close(variance, wanted.variance, 1e-7)


@pytest.mark.parametrize("neighbors", [None, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_moments_of_the_posterior(kind, neighbors):
    x, y, xs = data(kind)
    fitted = model(kind, x, num_neighbors=neighbors).condition(x, y)
    count, found = 2000, fitted.posterior(xs[:4])
    draws = fitted.sample_functions(count)(xs[:4])
    assert draws.shape == (count, *found.mean.shape)
    error = found.variance.sqrt() / count**0.5
    assert bool(((draws.mean(0) - found.mean).abs() < 4.5 * error).all())
    ratio = draws.var(0) / found.variance
    assert bool(((ratio - 1.0).abs() < 4.5 * (2.0 / count) ** 0.5).all())
    assert found.rsample(torch.Size([2])).shape == (2, *found.mean.shape)


@pytest.mark.parametrize("kind", KINDS)
def test_states_and_copies_predict_alike(kind):
    x, y, xs = data(kind)
    fitted = model(kind, x, num_neighbors=10).condition(x, y)
    wanted, file = fitted.posterior(xs), io.BytesIO()
    torch.save(fitted.state_dict(), file)
    file.seek(0)
    loaded = model(kind, x + 1.0, num_neighbors=10)
    if kind in ("outputs", "correlated"):
        loaded.covar_module.scalar_features(x[:1])
    loaded.load_state_dict(torch.load(file, weights_only=True))
    for other in (loaded, copy.deepcopy(fitted)):
        assert close(other.posterior(xs).mean, wanted.mean)
        assert close(other.posterior(xs).variance, wanted.variance)


def test_classes_of_one_noise_equal_one_factor_for_every_class():
    x, y, xs = data("classes")
    fitted = model("classes", x).condition(x, y)
    systems, local = fitted.systems(), local_rows(fitted)
    block = local.partition.blocks[0]
    rows, kernel = local.x[block], systems.residual
    features, others = kernel.features(rows), kernel.features(xs)
    parts = (
        kernel.covariance(rows, features),
        kernel.cross_covariance(xs, others, rows, features),
        local.columns[block],
        local.variances[block],
    )
    assert close(systems.weights(*parts), LocalSystems.weights(systems, *parts))
