"""Predictions of an ExactGP with features: which features they make, batches of points, and base samples."""

import gpytorch
import pytest
import torch
from dense_features import DenseFeatureKernel
from gpytorch.kernels import MaternKernel, MultitaskKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator.utils.warnings import NumericalWarning
from output_problems import ExactOutputModel, output_kernel, output_likelihood, output_mean, output_model, output_rows
from problems import INPUTS, WIDTH, ExactModel, polynomial, regression_rows

import rfgp
from rfgp.approximation.families import MapFamily
from rfgp.approximation.hooks.feature_operator import LazyFeatureCrossLinearOperator
from rfgp.approximation.maps import drawn_maps
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS = 40
KERNELS = {
    "scaled": lambda: ScaleKernel(RBFKernel()),
    "sum": lambda: ScaleKernel(RBFKernel()) + PolynomialKernel(2),
    "product": lambda: ScaleKernel(RBFKernel() * PolynomialKernel(2)),
}


def points(*shape):
    return torch.randn(*shape, INPUTS, generator=torch.Generator().manual_seed(9))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def scalar_model(kernel=None, num_rows=ROWS):
    x, y = regression_rows(num_rows)
    return ExactModel(x, y, GaussianLikelihood(), polynomial() if kernel is None else kernel).eval()


@pytest.fixture
def rows_seen(monkeypatch):
    """The numbers of rows that features are made of."""
    seen = []
    make = MapFamily._map_and_rows

    def counted(self, x):
        seen.append(x.shape[:-1].numel())
        return make(self, x)

    monkeypatch.setattr(MapFamily, "_map_and_rows", counted)
    return seen


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@pytest.mark.parametrize("shape", [(5,), (7, 2)])
@pytest.mark.parametrize("name", KERNELS)
def test_training_features_are_made_once_and_a_second_prediction_makes_none(name, shape, rows_seen):
    model = scalar_model(rfgp.approximate(KERNELS[name](), 48, input_dim=INPUTS, seed=0))
    maps = len(drawn_maps(model.covar_module))
    with torch.no_grad():
        assert (model(points(*shape)).variance > 0.0).all()
        assert 0 < rows_seen.count(ROWS) <= maps
        rows_seen.clear()
        assert (model(points(*shape)).variance > 0.0).all()
    assert rows_seen and set(rows_seen) == {points(*shape)[..., 0].numel()}


def test_a_second_prediction_of_several_outputs_makes_no_training_features(rows_seen):
    x, y = output_rows("multitask", ROWS)
    likelihood = output_likelihood("multitask", "one", ROWS)
    model = ExactOutputModel(x, y, likelihood, output_kernel("multitask"), output_mean("multitask")).eval()
    at = torch.randn(3, 2, 2)
    with torch.no_grad():
        first = model(at)
        rows_seen.clear()
        second = model(at)
        assert set(rows_seen) == {6}
        close(second.mean, first.mean)


def test_a_cross_covariance_is_evaluated_where_it_is_used(rows_seen):
    kernel, x, y = polynomial(), points(6), points(4).requires_grad_()
    cross = kernel(x, y).evaluate_kernel()
    assert isinstance(cross, LazyFeatureCrossLinearOperator) and cross.shape == (6, 4) and not rows_seen
    expected = kernel.features(x) @ kernel.features(y).mT
    close(cross.to_dense(), expected)
    close(cross @ torch.ones(4), expected.sum(-1))
    close(cross.mT.to_dense(), expected.mT)
    close(cross[1:3, :2].to_dense(), expected[1:3, :2])
    close(cross[2, 3], expected[2, 3])
    close(cross.expand(2, 6, 4).to_dense(), expected.expand(2, 6, 4))
    close((cross * 2.0).to_dense(), 2.0 * expected)
    close(cross.mul(torch.tensor([1.0, 2.0])[:, None, None]).to_dense(), torch.stack([expected, 2.0 * expected]))
    leaves = [y, *kernel.parameters()]
    for found, reference in ((cross @ torch.ones(4), expected.sum(-1)), (cross.to_dense(), expected)):
        gradients = [torch.autograd.grad(v.square().sum(), leaves, retain_graph=True) for v in (found, reference)]
        for a, b in zip(*gradients, strict=True):
            close(a, b)


def test_a_lazy_cross_covariance_keeps_the_grad_mode_that_it_was_made_in():
    kernel, x, y = polynomial(), points(6), points(4)
    cross = kernel(x, y).evaluate_kernel()
    with torch.no_grad():
        assert not kernel(x, y).to_dense().requires_grad
        assert cross.evaluate_kernel().to_dense().requires_grad is False
    with torch.no_grad():
        without = kernel.forward(x, y)
    assert not without.to_dense().requires_grad and kernel.forward(x, y).to_dense().requires_grad


@pytest.mark.parametrize("shape", [(7, 1), (7, 4), (2, 3, 2)])
def test_batches_of_points_are_predicted_as_one_by_one(shape):
    model, at = scalar_model(), points(*shape)
    with torch.no_grad():
        together = model(at)
        for index in ((0,) * (len(shape) - 1), tuple(s - 1 for s in shape[:-1])):
            alone = model(at[index])
            close(together.mean[index], alone.mean)
            close(together.covariance_matrix[index], alone.covariance_matrix)


def weight_space_model():
    x, y = regression_rows(ROWS)
    return WeightSpaceGP(polynomial(), GaussianLikelihood()).condition(x, y).posterior


def weight_space_model_of_landmarks():
    x, y = regression_rows(ROWS)
    kernel = rfgp.approximate(ScaleKernel(MaternKernel(nu=1.5)), 8, train_inputs=x, method="landmarks", seed=0)
    return WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, y).posterior


def multitask_weight_space_model():
    x, y = output_rows("multitask", ROWS)
    model = output_model("multitask").condition(x, y)
    return lambda at: model.posterior(at[..., :2])


def multitask_exact_model():
    x, y = output_rows("multitask", ROWS)
    likelihood = output_likelihood("multitask", "one", ROWS)
    model = ExactOutputModel(x, y, likelihood, output_kernel("multitask"), output_mean("multitask")).eval()
    return lambda at: model(at[..., :2])


PREDICTIONS = {
    "exact": scalar_model,
    "exact, with noise": lambda: (lambda model: lambda at: model.likelihood(model(at)))(scalar_model()),
    "exact, several outputs": multitask_exact_model,
    "weight space": weight_space_model,
    "weight space, landmarks": weight_space_model_of_landmarks,
    "weight space, several outputs": multitask_weight_space_model,
}
each_prediction = pytest.mark.parametrize("name", PREDICTIONS)


@each_prediction
@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3)])
def test_base_samples_give_the_draws_and_gradients_of_a_dense_covariance(name, shape):
    shape = shape if name != "weight space, several outputs" else shape[-1:]
    predict, at = PREDICTIONS[name](), points(*shape).requires_grad_()
    latent = predict(at)
    base = latent.get_base_samples(torch.Size([5]))
    assert base.shape == (5, *latent.batch_shape, *latent.event_shape)
    dense = type(latent)(latent.mean, latent.covariance_matrix)
    draws = [one.rsample(torch.Size([5]), base_samples=base) for one in (latent, dense)]
    close(*draws)
    close(*[torch.autograd.grad(d.square().sum(), at, retain_graph=True)[0] for d in draws])
    root = latent.lazy_covariance_matrix.root_decomposition().root.to_dense()
    assert root.shape[-2:] == latent.lazy_covariance_matrix.shape[-2:]
    close(root @ root.mT, latent.covariance_matrix)
    close(root, root.tril())


@each_prediction
def test_the_settings_of_gpytorch_change_no_base_sample(name):
    predict, at, draws = PREDICTIONS[name](), points(6), []
    base = predict(at).get_base_samples(torch.Size([5]))
    for is_fast, size in ((True, 800), (False, 800), (True, 2), (False, 2)):
        with gpytorch.settings.fast_computations(*[is_fast] * 3), gpytorch.settings.max_cholesky_size(size):
            draws.append(predict(at).rsample(torch.Size([5]), base_samples=base))
    for other in draws[1:]:
        close(draws[0], other)


def test_the_root_decomposition_is_kept():
    covariance = scalar_model()(points(4)).lazy_covariance_matrix
    assert covariance.root_decomposition() is covariance.root_decomposition()


@pytest.mark.parametrize("num_points", [4, WIDTH + 30])
def test_a_posterior_covariance_is_indexed_expanded_and_scaled_as_a_dense_one(num_points):
    with torch.no_grad():
        known = scalar_model()(points(2, num_points)).lazy_covariance_matrix
        dense = known.to_dense()
        close(known.diagonal(dim1=-2, dim2=-1), dense.diagonal(dim1=-2, dim2=-1))
        close(known[1].to_dense(), dense[1])
        close(known[..., -2:, :].to_dense(), dense[..., -2:, :])
        close(known[..., 1:3, 1:3].to_dense(), dense[..., 1:3, 1:3])
        close(known[0, 1, 2], dense[0, 1, 2])
        close(known.expand(3, 2, num_points, num_points).to_dense(), dense.expand(3, 2, num_points, num_points))
        close(known.unsqueeze(0).to_dense(), dense.unsqueeze(0))
        close(known.repeat(2, 1, 1).to_dense(), dense.repeat(2, 1, 1))
        close((known * 3.0).to_dense(), 3.0 * dense)
        close((known * -3.0).to_dense(), -3.0 * dense)
        close((known + known).to_dense(), 2.0 * dense)
        close(known @ torch.ones(num_points), dense.sum(-1))
        close(known.add_jitter(0.1).to_dense(), dense + 0.1 * torch.eye(num_points))


def test_more_points_than_features_have_as_many_base_samples_as_points():
    latent = scalar_model()(points(WIDTH + 30))
    base = latent.get_base_samples(torch.Size([3]))
    assert base.shape == (3, WIDTH + 30)
    with pytest.warns(NumericalWarning, match="added jitter"), torch.no_grad():
        root = latent.lazy_covariance_matrix.root_decomposition().root.to_dense()
    torch.testing.assert_close(root @ root.mT, latent.covariance_matrix, rtol=1e-6, atol=1e-6)
    assert latent.rsample(torch.Size([3])).shape == (3, WIDTH + 30)


def test_predictions_are_those_of_a_dense_kernel_of_the_same_features():
    model, dense = scalar_model(), scalar_model(DenseFeatureKernel(polynomial()))
    close(model(points(2, 3)).mean, dense(points(2, 3)).mean)
    close(model(points(2, 3)).covariance_matrix, dense(points(2, 3)).covariance_matrix)


def test_multitask_kernels_of_gpytorch_are_as_they_were():
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2), 16, input_dim=INPUTS, seed=0)
    cross = kernel(points(3), points(4))
    assert cross.shape == (6, 8) and cross.to_dense().shape == (6, 8)
