"""Error bars hold what they promise on functions drawn from the model, and where they do not."""

import gpytorch
import pytest
import torch

import rfgp

ROWS, TESTS, FUNCTIONS, NOISE = 500, 200, 6, 0.01


def kernel():
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5)).double()
    exact.outputscale, exact.base_kernel.lengthscale = 1.0, 0.5
    return exact


@pytest.fixture(scope="module")
def data():
    """Normal inputs, those stretched to twice their size among the test inputs, and functions at both."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS + TESTS, 2, generator=generator, dtype=torch.float64)
    x[-TESTS // 2 :] *= 2.0
    covariance = kernel()(x).to_dense().detach() + 1e-9 * torch.eye(len(x), dtype=torch.float64)
    normal = torch.randn(len(x), FUNCTIONS, generator=generator, dtype=torch.float64)
    functions = torch.linalg.cholesky(covariance) @ normal
    noise = torch.randn(ROWS, FUNCTIONS, generator=generator, dtype=torch.float64)
    return x[:ROWS], functions[:ROWS] + NOISE**0.5 * noise, x[ROWS:], functions[ROWS:]


def coverage(data, method, width, **settings):
    """The mean over functions, and its standard error, of the coverage by 95 % intervals with the true parameters."""
    x, y, tests, functions = data
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    shares = []
    for number in range(FUNCTIONS):
        features = rfgp.approximate(kernel(), width, method=method, train_inputs=x, seed=number)
        with torch.no_grad():
            found = rfgp.WeightSpaceGP(features, likelihood, **settings).condition(x, y[:, number]).posterior(tests)
        lower, upper = found.mean - 1.96 * found.stddev, found.mean + 1.96 * found.stddev
        inside = (functions[:, number] >= lower) & (functions[:, number] <= upper)
        shares.append(inside.double().mean())
    values = torch.stack(shares)
    return float(values.mean()), float(values.std()) / FUNCTIONS**0.5


@pytest.mark.parametrize("num_neighbors", [64, None])
def test_landmarks_with_blocks_cover_what_they_promise(data, num_neighbors):
    mean, error = coverage(data, "landmarks", 64, block_size=64, num_neighbors=num_neighbors)
    assert abs(mean - 0.95) <= 3.0 * error + 0.03


def test_one_draw_of_few_fourier_features_covers_far_less(data):
    mean, error = coverage(data, "fourier", 64)
    assert mean + 3.0 * error <= 0.7
