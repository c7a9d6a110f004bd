"""Rows that predictions need: told, kept, or left out where there are predictions without them."""

import json
import warnings

import pytest
import torch
from problems import INPUTS, rows_for
from saved_models import MANY, MODELS, ROWS, WITH_ROWS, assert_same, in_blocks, predictions, through_a_file

import rfgp
from rfgp.inference.local import WhitenedNoise
from rfgp.inference.posterior.regression import Regression

pytestmark = pytest.mark.usefixtures("float64_default")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.pt"


def header(path):
    return json.loads(torch.load(path, weights_only=True)["header"])


@pytest.mark.parametrize("name", WITH_ROWS)
def test_rows_that_are_kept_are_told(name, path):
    model, count = MODELS[name](), 2 * ROWS if name == "many classes" else ROWS
    with pytest.warns(UserWarning, match=f"holds {count} training rows"):
        rfgp.save(model, path)
    assert header(path)["rows_kept"] == count
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rfgp.save(model, path, with_rows=True)
    assert_same(predictions(rfgp.load(path)), predictions(model))


@pytest.mark.parametrize("neighbors", [None, 5])
def test_without_rows_predictions_are_those_of_a_block_without_rows(neighbors, path):
    model = in_blocks(num_neighbors=neighbors)
    x, y, _ = rows_for("gaussian", ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rfgp.save(model, path, with_rows=False)
    assert header(path)["rows_kept"] == 0 and header(path)["rows_seen"] == ROWS
    for name, tensor in torch.load(path, weights_only=True)["tensors"].items():
        assert not torch.isin(tensor.detach().double(), torch.cat([x.flatten(), y])).any(), name
    found = rfgp.load(path)
    new = torch.randn(6, INPUTS)
    posterior, kernel = found.posterior(new), model.covar_module
    weights = model.weight_posterior()
    features = kernel.features(new)
    mean = features @ weights.mean.squeeze(-1) / 1.0 + model.mean_module(new)
    torch.testing.assert_close(posterior.mean, mean, rtol=1e-10, atol=1e-10)
    residual = kernel.exact_kernel(new, diag=True) - features.square().sum(-1)
    wanted = weights.covariance_root(features).square().sum(-1) + residual
    torch.testing.assert_close(posterior.variance, wanted, rtol=1e-8, atol=1e-10)
    far = 1e4 * torch.ones(1, INPUTS)
    torch.testing.assert_close(found.posterior(far).variance, model.posterior(far).variance)
    torch.testing.assert_close(found.posterior(far).mean, model.posterior(far).mean)
    plain = Regression(kernel, model.mean_module, WhitenedNoise(model.noise))
    assert torch.equal(plain.distribution(new, weights).mean, posterior.mean)
    assert torch.equal(found.log_marginal_likelihood(), model.log_marginal_likelihood())
    assert found.sample_functions(3)(new).shape == (3, 6)


def test_without_rows_there_are_no_updates_but_fits(path):
    model = in_blocks()
    rfgp.save(model, path, with_rows=False)
    found = rfgp.load(path)
    x, y, _ = rows_for("gaussian", ROWS)
    before = predictions(found)
    with pytest.raises(ValueError, match="saved without them"):
        found.update(x, y)
    assert_same(predictions(found), before)
    assert_same(predictions(found.condition(x, y)), predictions(model))


def test_saving_without_rows_leaves_them_in_the_model(path):
    model = in_blocks()
    before = predictions(model)
    rfgp.save(model, path, with_rows=False)
    assert_same(predictions(model), before)


def test_updates_of_blocks_after_loading(path):
    model = in_blocks()
    found = through_a_file(model, path, with_rows=True)
    more = rows_for("gaussian", 9, seed=3)[:2]
    assert_same(predictions(found.update(*more)), predictions(model.update(*more)))


def test_a_local_model_has_no_predictions_without_rows(path):
    with pytest.raises(ValueError, match="with_rows=True for a LocalizedMaclaurinGP"):
        rfgp.save(MODELS["localized"](), path, with_rows=False)
    assert not path.exists()


@pytest.mark.parametrize("name", ["few rows", "few labels"])
def test_averages_of_few_rows_have_no_predictions_without_them(name, path):
    with pytest.raises(ValueError, match="with_rows=True for an AveragedGP"):
        rfgp.save(MODELS[name](), path, with_rows=False)
    assert not path.exists()


def assert_close_but_for_draws(found, wanted):
    """Equal to rounding: draws of functions, the fourth of the predictions, are made by another root."""
    for index, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if index != 3:
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_many_classes_without_the_features_of_their_rows(path):
    model = MODELS["many classes"]()
    held = model.statistics.rows
    assert len(held) == 2 * ROWS
    found = through_a_file(model, path, with_rows=False)
    for name, tensor in torch.load(path, weights_only=True)["tensors"].items():
        assert not torch.isin(tensor.detach().double(), held).any(), name
    assert_close_but_for_draws(predictions(found), predictions(model))
    x, _, _ = rows_for("gaussian", 9, seed=3)
    for each in (model, found):
        each.update(x, torch.arange(9) % MANY)
    assert_close_but_for_draws(predictions(found), predictions(model))


@pytest.mark.parametrize("name", ["gaussian", "mixture", "counts"])
def test_other_models_have_no_rows_to_leave_out(name, path):
    model = MODELS[name]()
    assert_same(predictions(through_a_file(model, path, with_rows=False)), predictions(model))
