"""Outputs in blocks that are missing, not separable, or of known noise equal dense algebra of what is observed."""

import copy
import math

import gpytorch
import pytest
import torch

import rfgp
from rfgp.models import WeightSpaceGP

RELATIVE, ROWS, TASKS = 1e-8, 36, 3
KINDS = ["missing", "correlated noise", "not separable", "known noise"]


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def data(kind):
    generator = torch.Generator().manual_seed(1)
    x = 4.0 * torch.rand(ROWS, 2, generator=generator)
    y = torch.stack([torch.sin(3.0 * x[:, 0]), x[:, 1].cos(), x.prod(-1).sin()], dim=-1) + 2.0
    y = y + 0.1 * torch.randn(ROWS, TASKS, generator=generator)
    if kind in ("missing", "correlated noise"):
        y[torch.rand(ROWS, TASKS, generator=generator) < 0.3] = math.nan
    noise = 0.05 + 0.2 * torch.rand(ROWS, TASKS, generator=generator) if kind == "known noise" else None
    return x, y, noise, 5.0 * torch.rand(9, 2, generator=generator)


def model(kind, x, noise, **settings):
    parts = [gpytorch.kernels.MaternKernel(nu=1.5), gpytorch.kernels.RBFKernel()]
    for part, length in zip(parts, (0.7, 1.5), strict=True):
        part.lengthscale = length
    if kind == "not separable":
        kernel = gpytorch.kernels.LCMKernel(parts, num_tasks=TASKS, rank=1)
    else:
        kernel = gpytorch.kernels.MultitaskKernel(parts[0], num_tasks=TASKS, rank=1)
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(TASKS, rank=2 * (kind == "correlated noise"))
    if noise is not None:
        likelihood = rfgp.likelihoods.MultitaskFixedNoiseGaussianLikelihood(noise)
    mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), TASKS)
    for parameter in mean.parameters():
        torch.nn.init.uniform_(parameter)
    made = rfgp.approximate(kernel, 12, method="landmarks", train_inputs=x, seed=0)
    return WeightSpaceGP(made, likelihood, mean, **{"block_size": 6, "num_neighbors": None, **settings})


def covariance(fitted, x, xs):
    """The joint covariance of all outputs at rows and points, (n T, n T), with the blocks of the model."""
    local, every = fitted.conditioned.sums.local, torch.cat([x, xs])
    cells = torch.cat([every, torch.zeros(len(every), TASKS)], dim=-1)
    blocks = local.partition.place(local.points(cells)).repeat_interleave(TASKS)
    features, exact = fitted.covar_module.features(every), fitted.covar_module.exact_kernel(every).to_dense()
    low_rank = features @ features.mT
    return low_rank + (blocks[:, None] == blocks) * (exact - low_rank)


def problem(fitted, x, y, noise, xs):
    """Covariances of what is observed, and between this and all outputs at points; the residual."""
    whole, count = covariance(fitted, x, xs), TASKS * len(x)
    seen = ~torch.isnan(y).flatten()
    variances = torch.kron(torch.eye(len(x)), fitted.noise.covariance()) if noise is None else noise.flatten().diag()
    residual = (y - fitted.mean_module(x)).flatten()[seen]
    rows = (whole[:count, :count] + variances)[seen][:, seen]
    return rows, whole[:count, count:][seen], whole[count:, count:], residual


def close(a, b, relative=RELATIVE):
    return float((a - b).detach().abs().max()) <= relative * max(1.0, float(b.detach().abs().max()))


def check(fitted, x, y, noise, xs):
    rows, cross, prior, residual = problem(fitted, x, y, noise, xs)
    found = fitted.posterior(xs)
    mean = (cross.mT @ torch.linalg.solve(rows, residual)).unflatten(0, (-1, TASKS)) + fitted.mean_module(xs)
    left = prior - cross.mT @ torch.linalg.solve(rows, cross)
    assert close(found.mean, mean)
    assert close(found.variance.flatten(), left.diagonal())
    assert close(found.covariance_matrix, left)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_come_and_go_equal_a_refit(kind):
    x, y, noise, xs = data(kind)
    y[:20] = y[:20].nan_to_num(1.0)
    first, rest = (None, None) if noise is None else (noise[:20], noise[20:])
    fitted = model(kind, x, noise).condition(x[:20], y[:20], first).update(x[20:], y[20:], rest)
    check(fitted, x, y, noise, xs)
    fitted.downdate(x[:5], y[:5], None if first is None else first[:5])
    check(fitted, x[5:], y[5:], None if noise is None else noise[5:], xs)


@pytest.mark.parametrize("kind", KINDS)
def test_neighbors_states_and_draws(kind):
    x, y, noise, xs = data(kind)
    exact = model(kind, x, noise, block_size=ROWS * TASKS).condition(x, y, noise)
    near = model(kind, x, noise, block_size=ROWS * TASKS, num_neighbors=ROWS).condition(x, y, noise)
    near.load_state_dict(exact.state_dict())
    assert close(near.posterior(xs).mean, exact.posterior(xs).mean)
    assert close(near.posterior(xs).covariance_matrix, exact.posterior(xs).covariance_matrix)
    predictor = copy.deepcopy(near).point_predictor()
    assert close(predictor.prior_variance(xs).flatten(), near.covar_module.exact_kernel(xs).to_dense().diagonal())
    points = predictor(xs)
    assert close(points.mean, exact.posterior(xs).mean)
    assert close(points.variance, exact.posterior(xs).variance)
    near.num_neighbors = 5
    for fitted in (exact, near):
        found, functions = fitted.posterior(xs[:2]), fitted.sample_functions(4000)
        draws = functions(xs[:2])
        assert draws.shape == (4000, 2, TASKS)
        assert torch.equal(functions(xs[[1, 0]]), draws[:, [1, 0]])
        deviations = found.variance.flatten().sqrt()
        assert bool(((draws.mean(0) - found.mean).abs() < 4.5 * (found.variance / 4000).sqrt()).all())
        errors = (draws.flatten(1).mT.cov() - found.covariance_matrix) / torch.outer(deviations, deviations)
        assert bool((errors.abs() < 4.5 * (2.0 / 4000) ** 0.5).all())


@pytest.mark.parametrize("settings", [{}, {"block_size": ROWS * TASKS, "num_neighbors": ROWS}])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_left_out_equal_dense_algebra(kind, settings):
    x, y, noise, xs = data(kind)
    y[3] = math.nan if kind == "missing" else y[3]
    fitted, groups = model(kind, x, noise, **settings).condition(x, y, noise), torch.arange(ROWS) // 7
    rows, *_, residual = problem(fitted, x, y, noise, xs)
    seen = ~torch.isnan(y)
    precision, of_row = torch.linalg.inv(rows), seen.nonzero()[:, 0]
    alone, joint = fitted.leave_one_out(x, y, noise), fitted.leave_group_out(x, y, groups, noise)
    for found, labels, log_prob in ((alone, torch.arange(ROWS), alone.log_prob), (joint, groups, joint.group_log_prob)):
        for label in (2, 4, 5):
            left, is_in = labels[of_row] == label, (labels == label).unsqueeze(-1) & seen
            inner = torch.linalg.inv(precision[left][:, left])
            error = inner @ (precision @ residual)[left]
            assert close(y[is_in] - found.mean[is_in], error)
            assert close(found.variance[is_in], inner.diagonal())
            density = torch.distributions.MultivariateNormal(torch.zeros(len(inner)), inner)
            assert close(log_prob[label], density.log_prob(error))
        assert bool((torch.isnan(found.mean) == ~seen).all())
        assert bool((torch.isnan(found.latent_variance) == ~seen).all())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_left_out_of_neighbors_equal_refits(kind):
    x, y, noise, _ = data(kind)
    fitted = model(kind, x, noise, num_neighbors=5).condition(x, y, noise)
    found, row, seen = fitted.leave_one_out(x, y, noise), slice(7, 8), ~torch.isnan(y[7])
    joint = fitted.leave_group_out(x, y, torch.arange(ROWS) // 3, noise)
    for rows, log_prob in ((row, found.log_prob[7]), (slice(6, 9), joint.group_log_prob[2])):
        of_rows, is_there = None if noise is None else noise[rows], ~torch.isnan(y[rows]).flatten()
        without = copy.deepcopy(fitted).downdate(x[rows], y[rows], of_rows)
        wanted = without.posterior(x[rows])
        if rows == row:
            assert close(found.mean[7, seen], wanted.mean[0, seen])
            assert close(found.latent_variance[7, seen], wanted.variance[0, seen])
        own = (
            torch.kron(torch.eye(len(x[rows])), fitted.noise.covariance())
            if noise is None
            else of_rows.flatten().diag()
        )
        whole, error = (wanted.covariance_matrix + own)[is_there][:, is_there], (y[rows] - wanted.mean).flatten()
        density = torch.distributions.MultivariateNormal(torch.zeros(len(whole)), whole)
        assert close(log_prob, density.log_prob(error[is_there]), 1e-6)
