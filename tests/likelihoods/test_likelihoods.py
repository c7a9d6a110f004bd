"""Dirichlet and complex Gaussian likelihoods, and GPyTorch's own suite for likelihoods."""

import unittest

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import PolynomialKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.priors import GammaPrior
from gpytorch.test.base_likelihood_test_case import BaseLikelihoodTestCase
from problems import CLASSES, INPUTS, polynomial, rows_for

import rfgp
from rfgp.inference import GramStatistics
from rfgp.likelihoods import (
    ComplexGaussianLikelihood,
    ComplexNormal,
    DirichletClassificationLikelihood,
    MultitaskFixedNoiseGaussianLikelihood,
)
from rfgp.likelihoods.dirichlet import ALPHA_GRID, dirichlet_targets
from rfgp.likelihoods.noise import noise_covariance
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

LABELS = torch.tensor([0, 2, 1, 1, 0, 2, 2])


@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "fixed+learned"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1e-4, 0.01, 0.5])
def test_targets_and_noise_are_those_of_gpytorch(alpha, dtype, learned):
    ours = DirichletClassificationLikelihood(LABELS, alpha, learn_additional_noise=learned, dtype=dtype)
    theirs = gpytorch.likelihoods.DirichletClassificationLikelihood(
        LABELS, alpha, learn_additional_noise=learned, dtype=dtype
    )
    assert ours.num_classes == theirs.num_classes == 3
    assert ours.transformed_targets.dtype == ours.noise_covar.noise.dtype == dtype
    torch.testing.assert_close(ours.transformed_targets, theirs.transformed_targets)
    torch.testing.assert_close(ours.noise_covar.noise, theirs.noise_covar.noise)
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in ours.named_parameters()] == names and len(names) == learned
    latent = MultivariateNormal(torch.zeros(3, 7, dtype=dtype), torch.eye(7, dtype=dtype).expand(3, 7, 7))
    torch.testing.assert_close(ours(latent).covariance_matrix, theirs(latent).covariance_matrix)


def test_the_default_dtype_is_that_of_torch():
    assert DirichletClassificationLikelihood(LABELS).transformed_targets.dtype == torch.float64
    torch.set_default_dtype(torch.float32)
    assert DirichletClassificationLikelihood(LABELS).transformed_targets.dtype == torch.float32


def test_classes_without_labels():
    likelihood = DirichletClassificationLikelihood(LABELS, num_classes=5)
    assert likelihood.num_classes == 5
    assert likelihood.transformed_targets.shape == likelihood.noise_covar.noise.shape == (5, 7)
    present = DirichletClassificationLikelihood(LABELS)
    assert torch.equal(likelihood.transformed_targets[:3], present.transformed_targets)
    values = dirichlet_targets(0.01)
    torch.testing.assert_close(likelihood.transformed_targets[3:], torch.full((2, 7), values.outside))
    torch.testing.assert_close(likelihood.noise_covar.noise[3:], torch.full((2, 7), values.outside_noise))


def test_no_labels_yet():
    likelihood = DirichletClassificationLikelihood(num_classes=4)
    assert likelihood.num_classes == 4 and likelihood.transformed_targets.shape == (4, 0)


@pytest.mark.parametrize("alpha", [1e-4, 0.3])
def test_another_alpha_epsilon_is_as_good_as_a_new_likelihood(alpha):
    likelihood, fresh = (
        DirichletClassificationLikelihood(LABELS, 0.01),
        DirichletClassificationLikelihood(LABELS, alpha),
    )
    likelihood.set_alpha_epsilon(alpha)
    assert likelihood.alpha_epsilon == alpha
    assert torch.equal(likelihood.transformed_targets, fresh.transformed_targets)
    assert torch.equal(likelihood.noise_covar.noise, fresh.noise_covar.noise)


BAD = {
    "nothing": lambda: DirichletClassificationLikelihood(),
    "float labels": lambda: DirichletClassificationLikelihood(LABELS.double()),
    "boolean labels": lambda: DirichletClassificationLikelihood(LABELS > 0),
    "negative labels": lambda: DirichletClassificationLikelihood(LABELS - 1),
    "labels beyond the classes": lambda: DirichletClassificationLikelihood(LABELS, num_classes=2),
    "empty labels": lambda: DirichletClassificationLikelihood(LABELS[:0]),
    "no classes": lambda: DirichletClassificationLikelihood(num_classes=0),
    "half a class": lambda: DirichletClassificationLikelihood(num_classes=2.5),
    "zero alpha": lambda: DirichletClassificationLikelihood(LABELS, 0.0),
    "negative alpha": lambda: DirichletClassificationLikelihood(LABELS, -0.1),
    "NaN alpha": lambda: DirichletClassificationLikelihood(LABELS, float("nan")),
    "infinite alpha": lambda: DirichletClassificationLikelihood(LABELS, float("inf")),
    "new alpha": lambda: DirichletClassificationLikelihood(LABELS).set_alpha_epsilon(0.0),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_raise(case):
    with pytest.raises(ValueError, match=r"expected .*, got "):
        BAD[case]()


def latent(classes=2, num_points=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mean = 2.0 * torch.randn(classes, num_points, generator=generator)
    root = torch.randn(classes, num_points, num_points, generator=generator)
    return MultivariateNormal(mean, root @ root.mT + torch.eye(num_points))


def test_class_probabilities():
    likelihood = DirichletClassificationLikelihood(num_classes=4)
    probabilities = likelihood.class_probabilities(latent(4), generator=torch.Generator().manual_seed(1))
    assert probabilities.shape == (6, 4) and (probabilities >= 0).all()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(6))
    again = likelihood.class_probabilities(latent(4), generator=torch.Generator().manual_seed(1))
    other = likelihood.class_probabilities(latent(4), generator=torch.Generator().manual_seed(2))
    assert torch.equal(probabilities, again) and not torch.equal(probabilities, other)
    torch.manual_seed(1)
    assert torch.equal(likelihood.class_probabilities(latent(4)), probabilities)


def test_class_probabilities_of_certain_functions_are_a_softmax():
    likelihood = DirichletClassificationLikelihood(num_classes=3)
    mean = torch.randn(3, 5)
    certain = MultivariateNormal(mean, 1e-9 * torch.eye(5).expand(3, 5, 5))
    torch.testing.assert_close(likelihood.class_probabilities(certain, 4), mean.softmax(0).mT, rtol=1e-3, atol=1e-4)


def test_two_class_probabilities_are_within_five_standard_errors_of_quadrature():
    functions, count = latent(2), 20_000
    likelihood = DirichletClassificationLikelihood(num_classes=2)
    probabilities = likelihood.class_probabilities(functions, count, torch.Generator().manual_seed(3))
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(80))
    weights = weights / weights.sum()
    mean, std = functions.mean[1] - functions.mean[0], functions.variance.sum(0).sqrt()
    values = torch.sigmoid(mean[:, None] + std[:, None] * nodes)
    exact = (weights * values).sum(-1)
    error = ((weights * values.square()).sum(-1) - exact.square()).sqrt() / count**0.5
    assert ((probabilities[:, 1] - exact).abs() <= 5.0 * error).all()


def classification_model(alpha=0.05):
    x, labels, _ = rows_for("dirichlet", 60)
    labels = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    model = WeightSpaceGP(polynomial(), DirichletClassificationLikelihood(alpha_epsilon=alpha, num_classes=CLASSES))
    with torch.no_grad():
        return model.condition(x, labels), x, labels


def validation_data():
    x = torch.randn(30, INPUTS)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()


def test_the_best_alpha_epsilon_is_that_of_separate_fits():
    model, _, _ = classification_model()
    points, known = validation_data()
    grid = (1e-3, 0.03, 0.5, 2.0)
    scores = model.likelihood.select_alpha_epsilon(model, points, known, grid, num_samples=64, seed=4)
    assert list(scores) == list(grid)
    for alpha in grid:
        with torch.no_grad():
            separate = classification_model(alpha)[0]
            generator = torch.Generator().manual_seed(4)
            probabilities = separate.likelihood.class_probabilities(separate.posterior(points), 64, generator)
            assert scores[alpha] == pytest.approx(float(rfgp.diagnostics.classification_mnll(probabilities, known)))
    best = min(scores, key=scores.get)
    assert model.likelihood.alpha_epsilon == best
    with torch.no_grad():
        torch.testing.assert_close(model.posterior(points).mean, classification_model(best)[0].posterior(points).mean)


def test_choosing_alpha_epsilon_does_not_touch_the_training_data(monkeypatch):
    model, _, _ = classification_model()
    points, known = validation_data()
    expected = model.likelihood.select_alpha_epsilon(model, points, known)

    def forbidden(*arguments, **options):
        raise AssertionError("the statistics were updated")

    seen, features = [], type(model.covar_module).scalar_features

    def recording(self, inputs):
        seen.append(len(inputs))
        return features(self, inputs)

    monkeypatch.setattr(GramStatistics, "add", forbidden)
    monkeypatch.setattr(type(model.covar_module), "scalar_features", recording)
    assert model.likelihood.select_alpha_epsilon(model, points, known) == expected
    assert tuple(expected) == ALPHA_GRID and set(seen) == {len(points)}


BAD_CHOICES = {
    "empty grid": {"grid": ()},
    "bad alpha": {"grid": (0.1, -1.0)},
    "unknown labels": {"labels": torch.full((30,), CLASSES)},
    "float labels": {"labels": torch.zeros(30)},
    "NaN inputs": {"x": torch.full((30, INPUTS), float("nan"), dtype=torch.float64)},
}


@pytest.mark.parametrize("case", BAD_CHOICES)
def test_bad_choices_raise_and_leave_alpha_epsilon(case):
    model, _, _ = classification_model()
    x, labels = validation_data()
    with pytest.raises(ValueError, match="expected"):
        model.likelihood.select_alpha_epsilon(model, **{"x": x, "labels": labels, **BAD_CHOICES[case]})
    assert model.likelihood.alpha_epsilon == 0.05


def test_models_of_other_likelihoods_raise():
    model, _, _ = classification_model()
    with pytest.raises(ValueError, match="expected a model with this very likelihood"):
        DirichletClassificationLikelihood(num_classes=CLASSES).select_alpha_epsilon(model, *validation_data())


def test_complex_noise():
    likelihood = ComplexGaussianLikelihood(noise_prior=GammaPrior(2.0, 1.0))
    likelihood.noise = 0.7
    root = torch.randn(4, 6, dtype=torch.complex128)
    function = ComplexNormal(torch.randn(4, dtype=torch.complex128), root @ root.mH)
    noisy = likelihood(function)
    expected = function.covariance_matrix + 0.7 * torch.eye(4)
    torch.testing.assert_close(noisy.covariance_matrix, expected)
    torch.testing.assert_close(noisy.mean, function.mean)
    value = torch.randn(4, dtype=torch.complex128)
    (gradient,) = torch.autograd.grad(noisy.log_prob(value), likelihood.noise_covar.raw_noise)
    assert gradient.isfinite().all() and gradient.abs() > 0


@pytest.mark.parametrize("batch", [(), (3,)])
def test_complex_observations_of_known_functions(batch):
    likelihood = ComplexGaussianLikelihood()
    likelihood.noise = 0.7
    values = torch.randn(*batch, 4, dtype=torch.complex128)
    observed = likelihood(values)
    torch.testing.assert_close(observed.mean, values)
    torch.testing.assert_close(observed.variance, torch.full((*batch, 4), 0.7))
    draws = observed.sample(torch.Size([50_000])) - values
    second = draws.abs().square().mean(0)
    assert ((second - 0.7).abs() <= 5.0 * 0.7 / 50_000**0.5).all()
    assert ((draws.square().mean(0)).abs() <= 5.0 * 0.7 * (2.0 / 50_000) ** 0.5).all()


def test_complex_likelihoods_have_the_parameters_of_gaussian_ones():
    ours, theirs = ComplexGaussianLikelihood(), gpytorch.likelihoods.GaussianLikelihood()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    assert isinstance(ours, gpytorch.likelihoods.GaussianLikelihood)


def test_predictions_of_noisy_classes():
    _, x, labels = classification_model()
    likelihood = DirichletClassificationLikelihood(labels, learn_additional_noise=True)
    likelihood.second_noise = torch.tensor([[0.1], [0.2], [0.3]])
    kernel = rfgp.approximate(PolynomialKernel(power=2), 12, input_dim=INPUTS, seed=0)
    with torch.no_grad():
        function = WeightSpaceGP(kernel, likelihood).condition(x, labels).posterior(x)
        added = likelihood.noise_covar.noise + likelihood.second_noise
        torch.testing.assert_close(likelihood(function).variance, function.variance + added)


class TestDirichletWithGPyTorch(BaseLikelihoodTestCase, unittest.TestCase):
    """The batches of the suite end in three classes; one class alone is no case of this likelihood."""

    seed = 0

    def create_likelihood(self, **options):
        return DirichletClassificationLikelihood(torch.tensor([0, 1, 2, 0, 1]), **options)

    def test_nonbatch(self):
        functions = torch.randn(3, 5)
        self.assertEqual(self.create_likelihood()(functions).sample().shape, functions.shape)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("is_fixed", [False, True])
def test_dense_noise_is_that_of_the_likelihood_in_double_precision_and_without_history(outputs, is_fixed):
    given = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])[:, :outputs].float()
    if outputs == 1:
        likelihood = FixedNoiseGaussianLikelihood(given[:, 0]) if is_fixed else GaussianLikelihood().float()
    else:
        likelihood = (
            MultitaskFixedNoiseGaussianLikelihood(given) if is_fixed else MultitaskGaussianLikelihood(2).float()
        )
    found = noise_covariance(likelihood, 3, outputs, given if is_fixed else None)
    assert found.dtype == torch.float64 and not found.requires_grad
    if not is_fixed:
        given = (likelihood.noise + (likelihood.task_noises if outputs > 1 else 0.0)).detach().expand(3, outputs)
    torch.testing.assert_close(found, torch.diag(given.flatten().double()), rtol=1e-6, atol=0.0)
