"""Complex likelihoods with a pseudo-variance, and with known variances.

GPyTorch's ``BaseLikelihoodTestCase`` cannot take them: it makes real functions and real targets.
"""

import copy
import math

import gpytorch
import pytest
import torch
from embedding import embedded_covariance, parts
from torch.distributions import MultivariateNormal

from rfgp.likelihoods import ComplexGaussianLikelihood, ComplexNormal, FixedNoiseComplexGaussianLikelihood

pytestmark = pytest.mark.usefixtures("float64_default")

SIZE = 4
KNOWN = torch.tensor([0.4, 0.7, 1.3, 2.0], dtype=torch.float64)


def random_complex(*shape):
    return torch.randn(*shape, dtype=torch.complex128)


def function_distribution(is_proper, batch=()):
    root = random_complex(*batch, SIZE, 3)
    return ComplexNormal(random_complex(*batch, SIZE), covariance_root=root, has_real_weights=not is_proper)


def improper():
    likelihood = ComplexGaussianLikelihood(has_pseudo_noise=True)
    likelihood.noise, likelihood.circularity = 0.7, 0.4 - 0.5j
    return likelihood


def fixed(**options):
    likelihood = FixedNoiseComplexGaussianLikelihood(KNOWN, **options)
    if likelihood.has_pseudo_noise:
        likelihood.circularity = 0.4 - 0.5j
    return likelihood


LIKELIHOODS = {
    "improper": improper,
    "fixed": fixed,
    "fixed improper": lambda: fixed(has_pseudo_noise=True),
    "fixed improper + learned": lambda: fixed(has_pseudo_noise=True, learn_additional_noise=True),
}
likelihoods = pytest.mark.parametrize("kind", LIKELIHOODS)
functions = pytest.mark.parametrize("is_proper", [True, False])


def matrices(variance, pseudo):
    """The covariances (..., 2, 2) of real and imaginary part."""
    return embedded_covariance(variance[..., None, None] + 0j, pseudo[..., None, None] + 0j)


def pairs(values):
    return parts(values.unsqueeze(-1))


@functions
@likelihoods
@pytest.mark.parametrize("batch", [(), (3,)])
def test_log_marginals_are_those_of_two_real_variables(kind, is_proper, batch):
    likelihood, function, y = LIKELIHOODS[kind](), function_distribution(is_proper, batch), random_complex(*batch, SIZE)
    total = matrices(function.variance, function.pseudo_variance) + matrices(likelihood.noise, likelihood.pseudo_noise)
    expected = MultivariateNormal(pairs(function.mean), total).log_prob(pairs(y))
    values = likelihood.log_marginal(y, function)
    assert values.shape == (*batch, SIZE)
    torch.testing.assert_close(values, expected)
    noisy = likelihood(function)
    torch.testing.assert_close(noisy.pseudo_variance, function.pseudo_variance + likelihood.pseudo_noise)
    torch.testing.assert_close(noisy.variance, function.variance + likelihood.noise)


@functions
@likelihoods
def test_expected_log_densities_are_those_of_two_real_variables(kind, is_proper):
    likelihood, function, y = LIKELIHOODS[kind](), function_distribution(is_proper), random_complex(SIZE)
    noise = matrices(likelihood.noise, likelihood.pseudo_noise).expand(SIZE, 2, 2)
    spread = matrices(function.variance, function.pseudo_variance)
    densities = MultivariateNormal(pairs(function.mean), noise).log_prob(pairs(y))
    trace = torch.linalg.solve(noise, spread).diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(likelihood.expected_log_prob(y, function), densities - 0.5 * trace)


def test_the_expected_log_density_is_an_average():
    likelihood, function, y = improper(), function_distribution(False), random_complex(SIZE)
    with torch.no_grad():
        draws = function.rsample((20_000,))
        noise = matrices(likelihood.noise, likelihood.pseudo_noise)
        densities = MultivariateNormal(pairs(draws), noise).log_prob(pairs(y))
        error = densities.std(0) / len(draws) ** 0.5
        assert ((densities.mean(0) - likelihood.expected_log_prob(y, function)).abs() <= 5.0 * error).all()


@likelihoods
def test_values_of_a_function_have_noise_of_the_pseudo_variance(kind):
    likelihood, values = LIKELIHOODS[kind](), random_complex(SIZE)
    observed = likelihood(values)
    torch.testing.assert_close(observed.variance, likelihood.noise.expand(SIZE))
    torch.testing.assert_close(observed.pseudo_variance, likelihood.pseudo_noise.expand(SIZE).to(torch.complex128))


@pytest.mark.parametrize("name", ["expected_log_prob", "log_marginal"])
@likelihoods
def test_missing_observations(kind, name):
    likelihood, function, y = LIKELIHOODS[kind](), function_distribution(False), random_complex(SIZE)
    expected = getattr(likelihood, name)(y, function)
    y[1] = complex(0.0, math.nan)
    with gpytorch.settings.observation_nan_policy("mask"):
        torch.testing.assert_close(getattr(likelihood, name)(y, function), expected[[0, 2, 3]])
    with gpytorch.settings.observation_nan_policy("fill"):
        filled = getattr(likelihood, name)(y, function)
    assert filled[1] == 0.0
    torch.testing.assert_close(filled[[0, 2, 3]], expected[[0, 2, 3]])


class Densities(torch.nn.Module):
    """A method of a likelihood as a module, whose parameters can be replaced."""

    def __init__(self, likelihood, name):
        super().__init__()
        self.likelihood, self.name = likelihood, name

    def forward(self, *arguments):
        return getattr(self.likelihood, self.name)(*arguments)


@pytest.mark.parametrize("name", ["expected_log_prob", "log_marginal"])
@pytest.mark.parametrize("kind", [kind for kind in LIKELIHOODS if kind != "fixed"])
def test_gradients(kind, name):
    module = Densities(LIKELIHOODS[kind](), name)
    arguments = random_complex(SIZE), function_distribution(False)
    names, values = zip(*module.named_parameters(), strict=True)
    assert any("circularity" in name for name in names)

    def evaluate(*given):
        return torch.func.functional_call(module, dict(zip(names, given, strict=True)), arguments)

    assert torch.autograd.gradcheck(evaluate, [value.detach().clone().requires_grad_() for value in values])


@pytest.mark.parametrize("value", [0.0, 0.5, -0.9j, 0.6 + 0.7j, 0.999999])
def test_the_circularity_is_what_was_set(value):
    likelihood = improper()
    likelihood.circularity = value
    expected = torch.tensor([complex(value)])
    torch.testing.assert_close(likelihood.circularity.detach(), expected)
    torch.testing.assert_close(likelihood.pseudo_noise.detach(), expected * likelihood.noise.detach())
    likelihood.pseudo_noise = 0.1j
    torch.testing.assert_close(likelihood.pseudo_noise.detach(), torch.tensor([0.1j]))
    loaded = ComplexGaussianLikelihood(has_pseudo_noise=True)
    loaded.load_state_dict(likelihood.state_dict())
    assert torch.equal(loaded.pseudo_noise, likelihood.pseudo_noise)


def test_any_raw_parameter_is_in_the_disc():
    likelihood = improper()
    for raw in ([1e6, -1e6], [0.0, 0.0], [-50.0, 3.0]):
        likelihood.initialize(raw_circularity=torch.tensor([raw]))
        assert likelihood.circularity.abs() < 1.0


def test_batches():
    likelihood = ComplexGaussianLikelihood(batch_shape=(2,), has_pseudo_noise=True)
    likelihood.noise, likelihood.circularity = torch.tensor([[0.5], [2.0]]), torch.tensor([[0.5j], [-0.2]])
    function, y = function_distribution(False, (2,)), random_complex(2, SIZE)
    for index, (noise, circularity) in enumerate(((0.5, 0.5j), (2.0, -0.2))):
        one = improper()
        one.noise, one.circularity = noise, circularity
        root = function.covariance_root[index]
        part = ComplexNormal(function.loc[index], covariance_root=root, has_real_weights=True)
        for name in ("expected_log_prob", "log_marginal"):
            expected = getattr(one, name)(y[index], part)
            torch.testing.assert_close(getattr(likelihood, name)(y, function)[index], expected)


def test_known_noise_of_other_points():
    likelihood, function = fixed(has_pseudo_noise=True), function_distribution(True)
    noise = torch.arange(1.0, 1.0 + SIZE)
    noisy = likelihood(function, noise=noise)
    torch.testing.assert_close(noisy.variance, function.variance + noise)
    torch.testing.assert_close(noisy.pseudo_variance, likelihood.circularity * noise)
    other = ComplexNormal(random_complex(2), covariance_root=random_complex(2, 3))
    with pytest.warns(gpytorch.utils.warnings.GPInputWarning):
        torch.testing.assert_close(likelihood(other).variance, other.variance)
    fantasy = likelihood.get_fantasy_likelihood(noise=torch.ones(2))
    torch.testing.assert_close(fantasy.noise, torch.cat([KNOWN, torch.ones(2)]))
    assert torch.equal(fantasy.circularity, likelihood.circularity)


def test_errors():
    likelihood = improper()
    before = copy.deepcopy(likelihood.state_dict())
    for value in (1.0, 1j, 2.0 + 1j, math.nan):
        with pytest.raises(ValueError, match="expected a circularity of a modulus below 1"):
            likelihood.circularity = value
    with pytest.raises(ValueError, match="expected a circularity"):
        likelihood.pseudo_noise = 0.8
    assert all(torch.equal(value, before[name]) for name, value in likelihood.state_dict().items())
    with pytest.raises(ValueError, match="expected a likelihood that learns its circularity"):
        ComplexGaussianLikelihood().circularity = 0.5
    with pytest.raises(ValueError, match="expected True or False for has_pseudo_noise"):
        ComplexGaussianLikelihood(has_pseudo_noise=1)
    for noise in (torch.tensor([0.0]), torch.tensor([-1.0]), torch.tensor([math.inf])):
        with pytest.raises(ValueError, match="expected positive, finite noise"):
            FixedNoiseComplexGaussianLikelihood(noise)
    for noise in (torch.tensor(1.0), 1.0, torch.tensor([1])):
        with pytest.raises(ValueError, match="expected"):
            FixedNoiseComplexGaussianLikelihood(noise)
