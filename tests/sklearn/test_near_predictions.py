"""New rows are predicted from those near them as dense algebra does."""

import pickle

import gpytorch
import numpy as np
import pytest
import torch

import rfgp
from rfgp.inference.local import SharedRows
from rfgp.likelihoods.dirichlet import dirichlet_targets
from rfgp.sklearn import RandomFeatureGPClassifier
from rfgp.sklearn.calibration import log_probabilities
from rfgp.sklearn.folds import fold_labels
from rfgp.sklearn.latent import latent_moments
from rfgp.sklearn.model_size import ModelSize
from rfgp.sklearn.near_predictions import FittedRows, OwnLabels, needs_no_features, own_rows

pytestmark = pytest.mark.usefixtures("float64_default")


def shared(count, noise=0.05, nu=2.5):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 2, generator=generator)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu, ard_num_dims=2))
    kernel.outputscale, kernel.base_kernel.lengthscale = 2.0, torch.tensor([0.5, 1.0])
    y = (5.0 * x[:, 0]).sin() + noise**0.5 * torch.randn(count, generator=generator)
    variances = noise * (0.5 + torch.rand(count, generator=generator))
    return SharedRows(kernel, x, y, variances, 1.0 / kernel.base_kernel.lengthscale.detach().squeeze(0))


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 50, 300])
def test_each_point_is_predicted_from_the_rows_nearest_to_it(count):
    rows, points = shared(count), torch.rand(20, 2, generator=torch.Generator().manual_seed(1))
    means, variances = own_rows(rows)(points)
    for point, mean, variance in zip(points, means, variances, strict=True):
        near = torch.cdist(point[None] * rows.scales, rows.x * rows.scales).squeeze(0).argsort()[:64]
        x, cross = rows.x[near], rows.kernel(point[None], rows.x[near]).to_dense()
        weights = torch.linalg.solve(rows.kernel(x).to_dense() + torch.diag(rows.variances[near]), cross.mT).squeeze(-1)
        torch.testing.assert_close(mean, weights @ rows.targets[near], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(variance, 2.0 - cross.squeeze(0) @ weights, rtol=1e-9, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("size", [1, 60])
def test_rows_are_left_out_of_those_that_predict_them(is_own, size):
    rows = shared(300)
    predictor, folds = own_rows(rows) if is_own else rows, torch.arange(300) // size
    means, variances = predictor.left_out(folds)
    for row in (0, 150, 299):
        others = folds != folds[row]
        without = SharedRows(rows.kernel, rows.x[others], rows.targets[others], rows.variances[others], rows.scales)
        mean, variance = (own_rows(without) if is_own else without)(rows.x[~others])
        torch.testing.assert_close(means[~others], mean, rtol=1e-6, atol=1e-5)
        torch.testing.assert_close(variances[~others], variance, rtol=1e-6, atol=1e-5)


def test_points_too_far_for_distances_are_refused_and_rows_without_a_factor_are_shared(monkeypatch):
    rows = shared(40)
    own, points = own_rows(rows), rows.x[:5] + 0.01
    with pytest.raises(ValueError, match="expected"):
        own(torch.full((3, 2), 1e300))

    def fails(*_):
        raise ValueError

    monkeypatch.setattr("rfgp.sklearn.near_predictions.predictions", fails)
    for found, wanted in zip(own(points), rows(points), strict=True):
        assert torch.equal(found, wanted)
    for found, wanted in zip(own.left_out(torch.arange(40)), rows.left_out(torch.arange(40)), strict=True):
        assert torch.equal(found, wanted)


def test_kernels_that_are_not_stationary_have_no_rows_of_each_point():
    rows = shared(10)
    linear = SharedRows(gpytorch.kernels.LinearKernel(), rows.x, rows.targets, rows.variances, rows.scales)
    assert own_rows(linear) is None


def test_many_rows_need_no_features_for_what_noise_hides(monkeypatch):
    x = torch.rand(600, 2, generator=torch.Generator().manual_seed(0))
    exact = gpytorch.kernels.RBFKernel()
    exact.lengthscale = 1.0
    kernel = rfgp.approximate(exact, 16, method="landmarks", train_inputs=x, seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    model.likelihood.noise = 0.5
    assert not needs_no_features(model, FittedRows(x, x[:, 0]))
    monkeypatch.setattr("rfgp.sklearn.near_predictions._MANY_ROWS", 400)
    assert needs_no_features(model, FittedRows(x, x[:, 0]))


@torch.no_grad()
@pytest.mark.parametrize("profile", [gpytorch.kernels.MaternKernel(1.5), gpytorch.kernels.PolynomialKernel(2)])
def test_each_point_is_predicted_from_the_labels_nearest_to_it(profile):
    profile = profile.double()
    generator = torch.Generator().manual_seed(0)
    x, points = (torch.rand(count, 2, generator=generator) for count in (100, 70))
    labels, exact = torch.randint(3, (100,), generator=generator), gpytorch.kernels.ScaleKernel(profile)
    kernel = rfgp.approximate(exact, 8, method="landmarks", train_inputs=x, seed=0)
    mean = gpytorch.means.ConstantMean(batch_shape=torch.Size([3]))
    mean.initialize(constant=torch.tensor([-2.0, -1.0, 0.5]))
    likelihood = rfgp.likelihoods.DirichletClassificationLikelihood(num_classes=3, alpha_epsilon=0.05)
    rows = OwnLabels(rfgp.WeightSpaceGP(kernel, likelihood, mean), x, labels)
    means, variances = rows(points)
    values = dirichlet_targets(0.05)
    for point, found_means, found_variances in zip(points, means, variances, strict=True):
        order = torch.cdist(point[None] * rows.scales, x * rows.scales).squeeze(0).argsort()[:64]
        cross, matrix = exact(point[None], x[order]).to_dense(), exact(x[order]).to_dense()
        for number in range(3):
            inside = labels[order] == number
            noise = torch.where(inside, values.inside_noise, values.outside_noise)
            target = torch.where(inside, values.inside, values.outside) - mean.constant[number]
            weights = torch.linalg.solve(matrix + torch.diag(noise), cross.mT).squeeze(-1)
            torch.testing.assert_close(found_means[number], weights @ target)
            variance = exact(point[None], diag=True).squeeze() - cross.squeeze(0) @ weights
            torch.testing.assert_close(found_variances[number], variance)


def test_rows_of_labels_that_are_too_far_for_distances_are_refused():
    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 8, method="landmarks", train_inputs=x, seed=0)
    model = rfgp.WeightSpaceGP(kernel, rfgp.likelihoods.DirichletClassificationLikelihood(num_classes=2))
    with pytest.raises(ValueError, match="expected"):
        OwnLabels(model, x, (x[:, 0] > 0.5).long())(torch.full((3, 2), 1e300))


def rough_labels(count):
    x = np.random.default_rng(0).uniform(-3.0, 3.0, size=(count, 2))
    return x, (2.0 * np.sin(3.0 * x[:, 0]) * np.cos(3.0 * x[:, 1])).round().astype(int)


@pytest.fixture(scope="module")
def of_labels():
    """A classifier that near rows predict for, and rows that it has not seen: fitted in less time than it takes."""
    x, y = rough_labels(1500)
    model = RandomFeatureGPClassifier(max_evaluations=20, random_state=0, time_limit=1e-3).fit(x[:1300], y[:1300])
    return model, x[1300:], y[1300:]


def test_near_rows_predict_labels_where_there_is_no_time_for_features(of_labels):
    model, x, y = of_labels
    losses = [-np.log(probabilities[np.arange(len(y)), y - y.min()]).mean() for probabilities in predicted(model, x)]
    assert isinstance(model.near_, OwnLabels)
    assert losses[0] < losses[1] < model.comparison_["frequencies"]


def predicted(model, x):
    """What near rows say, and what features would."""
    by_features = pickle.loads(pickle.dumps(model))
    by_features.model_ = by_features.model_
    return model.predict_proba(x), by_features.predict_proba(x)


@pytest.mark.parametrize("cv", [None, 3])
def test_labels_are_left_out_of_the_rows_that_predict_them(of_labels, cv):
    model = of_labels[0]
    x, y = rough_labels(1500)
    found = model.cross_val_predict(x[:1300], y[:1300], cv, method="predict_proba")
    folds = fold_labels(cv, x[:1300], y[:1300], None, True)
    place = 7
    others = folds != folds[place]
    near = OwnLabels(model._model, model._inputs(x[:1300])[0][others], torch.from_numpy(y[:1300] - y.min())[others])
    moments = (part.mT for part in latent_moments(model._model, model._inputs(x[place : place + 1])[0], rows=near))
    np.testing.assert_allclose(found[place], model._calibrated(log_probabilities(*moments))[0], atol=2e-5)


@pytest.mark.parametrize(
    "change",
    [lambda x, y: (x[:5], y[:5]), lambda x, y: (x[::-1], y[::-1]), lambda x, y: (x, np.roll(y, 1))],
    ids=["few", "reversed", "other labels"],
)
def test_other_labels_than_the_fitted_ones_are_not_left_out(of_labels, change):
    x, y = change(*(part[:1300] for part in rough_labels(1500)))
    with pytest.raises(ValueError, match="expected the rows that were fitted"):
        of_labels[0].cross_val_predict(x, y)
    with pytest.raises(ValueError, match="expected the rows that were fitted"):
        of_labels[0].cross_validate(x, y, cv=2)


@pytest.mark.parametrize("is_asked", [False, True])
def test_more_labels_are_near_rows_too(of_labels, is_asked):
    model, x, y = pickle.loads(pickle.dumps(of_labels[0])), *of_labels[1:]
    before = model.predict_proba(x[100:])
    if is_asked:
        assert len(model.model_.conditioned.sums.local.x) == 1300
    np.testing.assert_array_equal(model.predict_proba(x[100:]), before)
    model.partial_fit(x[:100], y[:100])
    near = OwnLabels(model._model, torch.cat([of_labels[0].near_.x, model._inputs(x[:100])[0]]), model.near_.labels)
    for found, wanted in zip(model.near_(near.x[:5]), near(near.x[:5]), strict=True):
        torch.testing.assert_close(found, wanted)
    assert model.near_.labels.tolist()[1300:] == (y[:100] - y.min()).tolist()
    assert len(model.model_.conditioned.sums.local.x) == 1400
    model.partial_fit(x[:100], y[:100], sample_weight=np.full(100, 2.0))
    assert model.near_ is None and model.predict_proba(x[100:]).shape == before.shape


@pytest.mark.parametrize("gain", [-10.0, 10.0])
def test_held_out_labels_tell_whether_features_predict(gain, monkeypatch):
    monkeypatch.setattr("rfgp.sklearn.labels._GAIN_OF_FEATURES", gain)
    monkeypatch.setattr("rfgp.sklearn.labels._COMPARED_ROWS", 600)
    monkeypatch.setattr("rfgp.sklearn.classifier.MOST_CLASSES", 2)
    monkeypatch.setattr("rfgp.sklearn.base.default_size", lambda *_: ModelSize(64, 128))
    x, y = rough_labels(1300)
    settings = {"max_evaluations": 20, "random_state": 0, "time_limit": 600.0}
    model = RandomFeatureGPClassifier("matern32", **settings).fit(x[:1200], y[:1200])
    assert (model.near_ is None) == (gain < 0)
    assert len(model.model_.conditioned.sums.local.x) == 1200
    assert np.mean(model.predict(x[1200:]) == y[1200:]) > 0.8
