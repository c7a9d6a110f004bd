"""A classifier of many classes is that of few, without a D x D matrix for each class."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from tensor_sizes import Largest

import rfgp
from rfgp.inference import ClassPosterior, ClassStatistics, GramStatistics
from rfgp.inference.noise import class_labels
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

CLASSES, ROWS, WIDTH = 40, 300, 24


def data(dtype=torch.float64):
    """Rows of 40 classes: two of them with many, one without any."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, 3, dtype=dtype, generator=generator)
    y = torch.randint(CLASSES, (ROWS,), generator=generator)
    y[:60], y[60:80] = 0, 1
    y[y == 7] = 8
    return x, y, torch.rand(20, 3, dtype=dtype, generator=generator)


def model_of(has_batch=False, dtype=torch.float64, **options):
    """A classifier, with scales, means and additional noise of every class if wanted."""
    batch = torch.Size([CLASSES] if has_batch else [])
    exact = ScaleKernel(RBFKernel(), batch_shape=batch)
    kernel = rfgp.approximate(exact, WIDTH, input_dim=3, seed=0)
    likelihood = DirichletClassificationLikelihood(num_classes=CLASSES, learn_additional_noise=has_batch)
    mean = gpytorch.means.ConstantMean(batch_shape=batch)
    if has_batch:
        kernel.outputscale = torch.linspace(0.5, 2.0, CLASSES)
        mean.initialize(constant=torch.linspace(-1.0, 1.0, CLASSES))
    return WeightSpaceGP(kernel, likelihood, mean, **options).to(dtype)


def dense(monkeypatch, make):
    """What is made where every class has a Gram matrix."""
    with monkeypatch.context() as patch:
        patch.setattr(class_labels, "MANY_CLASSES", CLASSES + 1)
        return make()


def close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("has_batch", "has_weights"), [(False, False), (True, True)])
def test_predictions_and_evidence_are_those_with_gram_matrices(monkeypatch, has_batch, has_weights):
    x, y, new = data()
    weights = torch.linspace(0.5, 2.0, ROWS).double() if has_weights else None

    def make():
        model = model_of(has_batch)
        model.condition(x, y, weights=weights).log_marginal_likelihood().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        with torch.no_grad():
            latent = model.condition(x, y, weights=weights).posterior(new)
            known = model.weight_posterior()
            parts = latent.mean, latent.variance, latent.covariance_matrix, known.mean, known.log_determinant
            left_out = model.leave_one_out(x, y, weights=weights)
            return model, [*gradients, *parts, *left_out, model.log_marginal_likelihood()]

    (model, found), (other, expected) = make(), dense(monkeypatch, make)
    assert isinstance(model.statistics, ClassStatistics) and isinstance(model.weight_posterior(), ClassPosterior)
    assert type(other.statistics) is GramStatistics
    assert model.statistics.dense.tolist() == [0, 1, 8] and len(found) == len(expected)
    for actual, wanted in zip(found, expected, strict=True):
        close(actual, wanted)


def test_gradients_in_inputs(monkeypatch):
    x, y, _ = data()
    x.requires_grad_()

    def make():
        evidence = model_of().condition(x, y).log_marginal_likelihood()
        return torch.autograd.grad(evidence, x)[0]

    close(make(), dense(monkeypatch, make))


def test_linear_means_of_the_classes(monkeypatch):
    x, y, new = data()

    def make():
        model = model_of()
        model = WeightSpaceGP(model.covar_module, model.likelihood, gpytorch.means.LinearMean(3)).double()
        for parameter in model.mean_module.parameters():
            torch.nn.init.constant_(parameter, 0.3)
        return model.condition(x, y).posterior(new).mean

    close(make(), dense(monkeypatch, make))


def test_complex_features(monkeypatch):
    x, y, new = data()

    def make():
        exact = gpytorch.kernels.PolynomialKernel(power=2)
        kernel = rfgp.approximate(exact, WIDTH, input_dim=3, method="tensor_srht:complex", seed=0)
        model = WeightSpaceGP(kernel, DirichletClassificationLikelihood(num_classes=CLASSES)).double()
        with torch.no_grad():
            latent = model.condition(x, y).posterior(new)
            return latent.mean, latent.variance

    for actual, wanted in zip(make(), dense(monkeypatch, make), strict=True):
        close(actual, wanted)


def test_float32(monkeypatch):
    x, y, new = data(torch.float32)

    def make():
        with torch.no_grad():
            latent = model_of(dtype=torch.float32, product_dtype=torch.float64).condition(x, y).posterior(new)
            return latent.mean, latent.variance

    for actual, wanted in zip(make(), dense(monkeypatch, make), strict=True):
        assert actual.dtype == torch.float32
        close(actual, wanted, 1e-6)


def test_updates_batches_merges_and_states_are_one_fit():
    x, y, new = data()
    with torch.no_grad():
        expected = model_of().condition(x, y).posterior(new)
        first, second = model_of().condition(x[:90], y[:90]), model_of().condition(x[90:], y[90:])
        both = first.statistics.merge(second.statistics)
        restored = model_of()
        restored.load_state_dict(model_of().condition(x, y).state_dict())
        batches = [(x[start : start + 7], y[start : start + 7]) for start in range(0, ROWS, 7)]
        models = [
            model_of().condition(x[:50], y[:50]).update(x[50:], y[50:]),
            model_of().condition(batches),
            model_of().load_statistics(both),
            model_of().load_statistics(both.merge(first.statistics).subtract(first.statistics)),
            restored,
        ]
        for model in models:
            assert isinstance(model.statistics, ClassStatistics)
            latent = model.posterior(new)
            close(latent.mean, expected.mean)
            close(latent.variance, expected.variance)


def test_models_with_linear_means_merge_and_slide():
    x, y, new = data()
    parts = [model_of() for _ in range(3)]
    for model in parts:
        model.mean_module = gpytorch.means.LinearMean(3).double()
        model.mean_module.weights.data.fill_(0.5)
        model.mean_module.bias.data.fill_(0.1)
    with torch.no_grad():
        merged = parts[0].condition(x[:90], y[:90]).merge(parts[1].condition(x[90:], y[90:]))
        merged.update(x[:20], y[:20]).downdate(x[:20], y[:20])
        expected = parts[2].condition(x, y).posterior(new)
        close(merged.posterior(new).mean, expected.mean)
        close(merged.log_marginal_likelihood(), parts[2].log_marginal_likelihood())


@pytest.mark.parametrize("factor", [0.5, 0.9])
def test_rows_that_have_faded_leave_all_others(factor):
    x, y, new = data()
    with torch.no_grad():
        model = model_of().condition(x, y).forget(factor).forget(factor)
        model.downdate(x[::3], y[::3], weight=factor**2)
        is_left = torch.arange(ROWS) % 3 > 0
        expected = model_of().condition(x[is_left], y[is_left]).forget(factor).forget(factor)
        assert bool((model.statistics.count >= 0).all())
        close(model.posterior(new).mean, expected.posterior(new).mean)
        close(model.posterior(new).variance, expected.posterior(new).variance)
        close(model.statistics.trace, float(model.statistics.gram.diagonal(dim1=-2, dim2=-1).sum()))


def test_evidence_has_gradients_after_a_downdate(monkeypatch):
    x, y, _ = data()

    def make():
        model = model_of()
        value = model.condition(x, y).downdate(x[:90], y[:90]).log_marginal_likelihood()
        return torch.autograd.grad(value, [model.mean_module.raw_constant])

    for gradient, expected in zip(make(), dense(monkeypatch, make), strict=True):
        close(gradient, expected)


def test_draws_have_the_moments_of_the_posterior():
    x, y, new = data()
    count = 4_000
    with torch.no_grad():
        model = model_of().condition(x, y)
        latent = model.posterior(new[:3])
        torch.manual_seed(0)
        draws = model.sample_functions(count)(new[:3])
        for chosen in (0, 3, 7):
            deviation = draws[:, chosen] - latent.mean[chosen]
            variance = latent.variance[chosen]
            assert bool((deviation.mean(0).abs() < 4.5 * (variance / count).sqrt()).all())
            covariance, wanted = deviation.mT @ deviation / count, latent.covariance_matrix[chosen]
            error = ((variance[:, None] * variance + wanted.square()) / count).sqrt()
            assert bool(((covariance - wanted).abs() < 4.5 * error).all())


def test_training_learns_the_same_parameters(monkeypatch):
    x, y, _ = data()

    def make():
        model = model_of()
        rfgp.fit(model, x, y, max_evaluations=4, progress=False)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    close(make(), dense(monkeypatch, make), 1e-6)


def test_no_tensor_has_a_matrix_for_every_class():
    classes, width, num_rows = 200, 64, 400
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows, 3, dtype=torch.float64, generator=generator)
    y = torch.arange(num_rows) % classes
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), width, input_dim=3, seed=0)
    model = WeightSpaceGP(kernel, DirichletClassificationLikelihood(num_classes=classes)).double()
    with Largest() as seen:
        model.condition(x, y).log_marginal_likelihood().backward()
        with torch.no_grad():
            latent = model.condition(x, y).posterior(x[:100])
            assert torch.isfinite(latent.mean).all() and torch.isfinite(latent.variance).all()
            model.likelihood.class_probabilities(latent, 2)
            model.sample_functions(2)(x[:100])
    assert seen.numbers <= 4 * max(num_rows, classes) * width
    with torch.no_grad(), Largest() as seen:
        model.leave_one_out(x, y)
    assert seen.numbers <= 2 * classes * num_rows


def test_blocks_have_no_array_of_the_cube_of_the_classes():
    classes, num_rows, width = 60, 120, 8
    x = torch.rand(num_rows, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(num_rows) % classes
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), width, method="landmarks", train_inputs=x, seed=0)
    likelihood = DirichletClassificationLikelihood(num_classes=classes)
    model = WeightSpaceGP(kernel, likelihood, block_size=20, num_neighbors=16).double()
    with Largest() as seen:
        model.condition(x, y).log_marginal_likelihood().backward()
        with torch.no_grad():
            latent = model.condition(x, y).posterior(x[:5])
            assert torch.isfinite(latent.mean).all() and torch.isfinite(latent.variance).all()
    assert seen.numbers <= 2 * classes * max(num_rows, width**2)
