"""ComplexGaussianLikelihood as a GPyTorch likelihood, improper residuals, and divergences of complex from real."""

import math
import warnings

import gpytorch
import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from problems import ExactModel, model_for, rows_for

import rfgp
from rfgp.diagnostics import kl_divergence
from rfgp.likelihoods import ComplexGaussianLikelihood, ComplexNormal
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

SIZE = 4


def random_complex(*shape):
    return torch.randn(*shape, dtype=torch.complex128)


def function_distribution(batch=()):
    return ComplexNormal(random_complex(*batch, SIZE), covariance_root=random_complex(*batch, SIZE, 3))


def likelihood_of(noise, **options):
    likelihood = ComplexGaussianLikelihood(**options)
    likelihood.noise = noise
    return likelihood


def by_parts(name, noise, y, function):
    """What GPyTorch's likelihood gives for real and imaginary part, each of half the variance, together."""
    real = GaussianLikelihood()
    real.noise = noise / 2.0
    covariance = torch.diag_embed(function.variance / 2.0)
    parts = [
        getattr(real, name)(of(y), MultivariateNormal(of(function.mean), covariance)) for of in (torch.real, torch.imag)
    ]
    return parts[0] + parts[1]


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("name", ["expected_log_prob", "log_marginal"])
def test_log_densities_are_those_of_real_and_imaginary_part(name, batch):
    likelihood, function, y = likelihood_of(0.7), function_distribution(batch), random_complex(*batch, SIZE)
    values = getattr(likelihood, name)(y, function)
    assert values.shape == (*batch, SIZE) and values.dtype == torch.float64
    torch.testing.assert_close(values, by_parts(name, 0.7, y, function))
    (gradient,) = torch.autograd.grad(values.sum(), likelihood.noise_covar.raw_noise)
    assert gradient.isfinite().all() and gradient.abs() > 0


def test_the_expected_log_density_is_an_average():
    likelihood, function, y = likelihood_of(0.7), function_distribution(), random_complex(SIZE)
    with torch.no_grad():
        draws = function.rsample((20_000,))
        densities = -math.log(math.pi * 0.7) - (y - draws).abs().square() / 0.7
        error = densities.std(0) / len(draws) ** 0.5
        assert ((densities.mean(0) - likelihood.expected_log_prob(y, function)).abs() <= 5.0 * error).all()


def test_the_log_marginal_of_one_point_is_its_log_density():
    likelihood, y = likelihood_of(0.7), random_complex(1)
    function = ComplexNormal(random_complex(1), covariance_root=random_complex(1, 3))
    torch.testing.assert_close(likelihood.log_marginal(y, function).sum(), likelihood(function).log_prob(y))


@pytest.mark.parametrize("name", ["expected_log_prob", "log_marginal"])
def test_missing_observations(name):
    likelihood, function, y = likelihood_of(0.7), function_distribution((3,)), random_complex(3, SIZE)
    expected = getattr(likelihood, name)(y, function)
    y[:, 1] = math.nan
    with gpytorch.settings.observation_nan_policy("fill"):
        filled = getattr(likelihood, name)(y, function)
    with gpytorch.settings.observation_nan_policy("mask"):
        masked = getattr(likelihood, name)(y, function)
    assert (filled[:, 1] == 0.0).all()
    torch.testing.assert_close(filled[:, [0, 2, 3]], expected[:, [0, 2, 3]])
    torch.testing.assert_close(masked, expected[:, [0, 2, 3]])
    assert getattr(likelihood, name)(y, function)[:, 1].isnan().all()


def test_batches_of_noises():
    likelihood = ComplexGaussianLikelihood(batch_shape=torch.Size([2]))
    likelihood.noise = torch.tensor([[0.5], [2.0]])
    function, y = function_distribution((2,)), random_complex(2, SIZE)
    for index, noise in enumerate((0.5, 2.0)):
        one = ComplexNormal(function.loc[index], covariance_root=function.covariance_root[index])
        for name in ("expected_log_prob", "log_marginal"):
            expected = getattr(likelihood_of(noise), name)(y[index], one)
            torch.testing.assert_close(getattr(likelihood, name)(y, function)[index], expected)
        torch.testing.assert_close(likelihood(function).variance[index], one.variance + noise)
        torch.testing.assert_close(likelihood(y).variance[index], torch.full((SIZE,), noise))


def test_noise_that_is_given_is_used():
    likelihood, function, noise = likelihood_of(0.7), function_distribution(), torch.arange(1.0, 1.0 + SIZE)
    for other in (likelihood(function, noise=noise), likelihood.marginal(function, torch.zeros(SIZE, 2), noise=noise)):
        torch.testing.assert_close(other.variance, function.variance + noise)
    torch.testing.assert_close(likelihood(function.mean, noise=noise).variance, noise)
    y = random_complex(SIZE)
    for name in ("expected_log_prob", "log_marginal"):
        parts = [getattr(likelihood_of(float(n)), name)(y, function)[i] for i, n in enumerate(noise)]
        torch.testing.assert_close(getattr(likelihood, name)(y, function, noise=noise), torch.stack(parts))


def test_inputs_beside_the_function_are_allowed():
    likelihood, function, x = likelihood_of(0.7), function_distribution(), torch.zeros(SIZE, 2)
    for argument in (x, [x]):
        torch.testing.assert_close(likelihood(function, argument).variance, function.variance + 0.7)
        torch.testing.assert_close(likelihood(function.mean, argument).variance, torch.full((SIZE,), 0.7))
    assert likelihood._shaped_noise_covar(torch.Size([SIZE])).diagonal().tolist() == pytest.approx([0.7] * SIZE)
    fantasy = likelihood.get_fantasy_likelihood()
    assert type(fantasy) is ComplexGaussianLikelihood and torch.equal(fantasy.noise, likelihood.noise)


def test_predictions_keep_their_noise():
    likelihood = likelihood_of(0.7, noise_constraint=GreaterThan(1e-4, transform=None))
    function = function_distribution()
    noisy, known = likelihood(function), likelihood(function.mean)
    expected = noisy.variance.clone(), known.variance.clone()
    with torch.no_grad():
        likelihood.raw_noise.add_(1.0)
    assert torch.equal(noisy.variance, expected[0]) and torch.equal(known.variance, expected[1])


REAL = MultivariateNormal(torch.zeros(SIZE), torch.eye(SIZE))
BAD = {
    "real distribution": lambda likelihood: likelihood(REAL),
    "marginal": lambda likelihood: likelihood.marginal(REAL),
    "real values": lambda likelihood: likelihood(torch.zeros(SIZE)),
    "number": lambda likelihood: likelihood(3.0),
    "expected_log_prob": lambda likelihood: likelihood.expected_log_prob(torch.zeros(SIZE), REAL),
    "log_marginal": lambda likelihood: likelihood.log_marginal(torch.zeros(SIZE), REAL),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_complex_raises(case):
    with pytest.raises(ValueError, match=r"expected (a ComplexNormal|complex function values).*got"):
        BAD[case](ComplexGaussianLikelihood())


def exact_model(is_approximate):
    x, y, _ = rows_for("complex", 20)
    kernel = RBFKernel()
    kernel = rfgp.approximate(kernel, 8, input_dim=3, seed=0) if is_approximate else kernel
    return ExactModel(x, y, ComplexGaussianLikelihood(), kernel), x, y


@pytest.mark.parametrize("is_approximate", [False, True])
def test_exact_models_name_the_one_for_complex_targets(is_approximate):
    model, x, y = exact_model(is_approximate)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    with pytest.raises(ValueError, match=r"expected a ComplexNormal.*WeightSpaceGP"):
        objective(model(x), y)
    with pytest.raises(ValueError, match=r"expected a ComplexNormal.*WeightSpaceGP"):
        model.eval()(x)


def complex_rows(num_rows=400, imaginary=1.0, is_signal_proper=True, seed=0):
    """A smooth function with noise of variance 0.1, whose imaginary part has a deviation of so much of the real one."""
    generator = torch.Generator().manual_seed(seed)
    x = 2.0 * torch.rand(num_rows, 2, generator=generator)
    noise = torch.randn(2, num_rows, generator=generator)
    noise = torch.complex(noise[0], imaginary * noise[1]) * (0.1 / (1.0 + imaginary**2)) ** 0.5
    phase = x.sum(-1)
    return x, torch.polar(torch.ones_like(phase) if is_signal_proper else phase, phase * is_signal_proper) + noise


def complex_model(method="fourier", noise=0.1):
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 32, input_dim=2, method=method, seed=0)
    return WeightSpaceGP(kernel, likelihood_of(noise))


FITS = {
    "rows": lambda model, x, y: model.condition(x, y),
    "batches": lambda model, x, y: model.condition([(x[:50], y[:50]), (x[50:], y[50:])]),
    "updates": lambda model, x, y: model.update(x[:50], y[:50]).update(x[50:], y[50:]),
}
methods = pytest.mark.parametrize("method", ["fourier", "fourier:complex"])


@pytest.mark.parametrize("way", FITS)
@methods
@torch.no_grad()
def test_improper_noise_warns(method, way):
    x, y = complex_rows(imaginary=0.2)
    model = FITS[way](complex_model(method), x, y)
    with pytest.warns(UserWarning, match=r"improper.*0\.9.* over 400 rows.*has_pseudo_noise=True") as caught:
        model.posterior(x[:3])
    assert [warning.filename for warning in caught] == [__file__]


@methods
@torch.no_grad()
def test_correlated_noise_warns(method):
    x, y = complex_rows(imaginary=0.2)
    with pytest.warns(UserWarning, match="improper"):
        complex_model(method).condition(x, y * torch.polar(torch.ones(1), torch.tensor([math.pi / 4]))).posterior(x[:3])


@pytest.mark.parametrize("is_signal_proper", [True, False])
@pytest.mark.parametrize("num_rows", [5, 40, 400, 3000])
@methods
@torch.no_grad()
def test_proper_noise_does_not_warn(method, num_rows, is_signal_proper):
    for seed in range(5):
        x, y = complex_rows(num_rows, is_signal_proper=is_signal_proper, seed=seed)
        model = complex_model(method)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message=".*training rows")
            model.condition(x, y).posterior(x[:3])


@pytest.mark.parametrize("noise", [0.003, 3.0])
@torch.no_grad()
def test_residuals_that_are_not_noise_are_not_judged(noise):
    x, y = complex_rows(imaginary=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        complex_model(noise=noise).condition(x, y).posterior(x[:3])


@torch.no_grad()
def test_the_level_of_the_warning(monkeypatch):
    monkeypatch.setattr("rfgp.models.impropriety.LEVEL", 0.05)
    model, count, runs = complex_model(), 0, 100
    for seed in range(runs):
        x, y = complex_rows(100, is_signal_proper=False, seed=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.condition(x, y).posterior(x[:1])
        count += sum("improper" in str(warning.message) for warning in caught)
    assert 0 < count <= 0.05 * runs + 5.0 * (0.05 * 0.95 * runs) ** 0.5


@torch.no_grad()
def test_forgotten_rows_are_not_judged():
    x, y = complex_rows(imaginary=0.2)
    model = complex_model().condition(x, y)
    proper = complex_rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.condition(*proper).posterior(x[:3])
        other = complex_model()
        other.load_state_dict(complex_model().condition(x, y).state_dict())
        other.posterior(x[:3])


def test_a_call_that_fails_forgets_its_rows():
    model = model_for("complex").condition(*rows_for("complex", 40))
    before = model.conditioned.sums.some_rows
    x, y, _ = rows_for("complex", 10)
    with pytest.raises(ValueError, match="expected"):
        model.update(x, y[:5])
    with pytest.raises(ValueError, match="expected"):
        model.condition([(x, y), (x, y[:5])])
    assert model.conditioned.sums.some_rows is before


REALS = {
    "GPyTorch": lambda: REAL,
    "torch": lambda: torch.distributions.MultivariateNormal(torch.zeros(SIZE), torch.eye(SIZE)),
    "marginals": lambda: torch.distributions.Normal(torch.zeros(SIZE), torch.ones(SIZE)),
}


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("kind", REALS)
def test_complex_and_real_distributions_have_no_divergence(kind, joint):
    unit = ComplexNormal(torch.zeros(SIZE, dtype=torch.complex128), torch.eye(SIZE, dtype=torch.complex128))
    for pair in ((unit, REALS[kind]()), (REALS[kind](), unit)):
        with pytest.raises(ValueError, match=r"expected two real or two complex distributions, got a (complex|real) p"):
            kl_divergence(*pair, joint=joint)
        with pytest.raises(NotImplementedError):
            torch.distributions.kl_divergence(*pair)
