"""The bound is below the evidence; VFE and FITC stay themselves. tests/contract compares them with dense algebra."""

import gpytorch
import pytest
import torch
from dense import evidence

import rfgp
from rfgp.approximation import FeatureKernel
from rfgp.approximation.landmarks import Landmarks
from rfgp.models import WeightSpaceGP

RELATIVE = 1e-9
NOISE = 0.05


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def data(rows=50):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(rows, 2, generator=generator)
    y = torch.sin(8.0 * x[:, 0]) + x[:, 1] + 0.2 * torch.randn(rows, generator=generator)
    return x, y, 2.0 * torch.rand(20, 2, generator=generator)


def kernel(x, width=10, method="landmarks"):
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))
    exact.outputscale, exact.base_kernel.lengthscale = 1.7, torch.tensor([0.3, 0.6])
    return rfgp.approximate(exact, width, method=method, train_inputs=x, seed=0)


def gaussian():
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = NOISE
    return likelihood


def fixed(rows=50):
    noise = torch.linspace(0.02, 0.2, rows)
    return gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True)


LIKELIHOODS = {"gaussian": gaussian, "fixed": fixed}


def model(x, residual, likelihood="gaussian", method="landmarks", width=10):
    mean = gpytorch.means.ConstantMean()
    mean.constant = 0.4
    return WeightSpaceGP(kernel(x, width, method), LIKELIHOODS[likelihood](), mean, residual=residual)


def noises(fitted, x, y):
    return fitted.noise.variances(fitted.noise.rows(x, y, None, x[:, :0], True))


def dense_evidence(fitted, x, y):
    """The evidence as the issue of training defines it, dense and differentiable."""
    noise, phi = noises(fitted, x, y), fitted.covar_module.features(x)
    missing = fitted.covar_module.residual_variance(x)
    if fitted.residual == "fitc":
        return evidence(phi @ phi.mT, noise + missing, y - fitted.mean_module(x))
    value = evidence(phi @ phi.mT, noise, y - fitted.mean_module(x))
    return value - 0.5 * (missing / noise).sum() if fitted.residual == "vfe" else value


def close(a, b):
    return float((a - b).abs().max()) <= RELATIVE * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize("width", [3, 10, 30, 50, 80])
def test_the_bound_is_below_the_evidence_and_reaches_it_with_all_rows_as_landmarks(width):
    x, y, _ = data()
    with torch.no_grad():
        fitted = WeightSpaceGP(
            FeatureKernel(kernel(x).exact_kernel, Landmarks(x[:width])),
            gaussian(),
            residual="vfe",
        ).condition(x, y)
        exact = evidence(fitted.covar_module.exact_kernel(x).to_dense(), noises(fitted, x, y), y)
        bound = fitted.log_marginal_likelihood()
        assert float(bound) <= float(exact) + 1e-6
        assert (float(exact - bound) < 1e-4) == (width >= len(x))


@pytest.mark.parametrize("residual", ["vfe", "fitc"])
def test_batches_updates_and_states_equal_one_fit(residual):
    x, y, xs = data()
    whole = model(x, residual).condition(x, y)
    parts = model(x, residual).condition(x[:20], y[:20]).update(x[20:], y[20:])
    loaded = model(x, residual).condition(list(zip(x.split(15), y.split(15), strict=True)))
    restored = model(x + 1.0, residual)
    restored.load_state_dict(whole.state_dict())
    merged = model(x, residual)
    merged.load_state_dict({k: v for k, v in merged.state_dict().items()})
    halves = [model(x, residual).condition(x[rows], y[rows]).statistics for rows in (slice(0, 25), slice(25, None))]
    merged.load_statistics(halves[0].merge(halves[1]))
    for other in (parts, loaded, restored, merged):
        assert close(other.log_marginal_likelihood(), whole.log_marginal_likelihood())
        assert close(other.posterior(xs).mean, whole.posterior(xs).mean)
        assert close(other.posterior(xs).variance, whole.posterior(xs).variance)


@pytest.mark.parametrize(("residual", "is_stale"), [("none", False), ("vfe", False), ("fitc", True)])
def test_only_statistics_that_contain_the_noise_are_stale_when_it_changes(residual, is_stale):
    x, y, xs = data()
    fitted = model(x, residual).condition(x, y)
    fitted.likelihood.noise = 0.2
    if is_stale:
        with pytest.raises(ValueError, match="call condition"):
            fitted.posterior(xs)
    else:
        assert close(fitted.log_marginal_likelihood(), dense_evidence(fitted, x, y))


BAD = {
    "unknown": (lambda x, y: model(x, "titsias"), "residual"),
    "fourier": (
        lambda x, y: model(x, "vfe", method="fourier").condition(x, y),
        "expected features that leave variance over",
    ),
    "blocks": (
        lambda x, y: WeightSpaceGP(kernel(x), gaussian(), block_size=9, residual="fitc"),
        'expected residual="none" beside block_size',
    ),
    "labels": (
        lambda x, y: WeightSpaceGP(
            kernel(x), rfgp.likelihoods.DirichletClassificationLikelihood(torch.arange(50) % 2), residual="vfe"
        ),
        "expected one output with Gaussian or fixed noise for residual",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls_are_refused(case):
    x, y, _ = data()
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call(x, y)
