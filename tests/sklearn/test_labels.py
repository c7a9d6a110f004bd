"""The classifier takes the likelihood that predicts held-out rows best."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone

from rfgp.models import LaplaceGP
from rfgp.models.laplace.class_probabilities import class_probabilities
from rfgp.sklearn import RandomFeatureGPClassifier, base, choice
from rfgp.sklearn.classifier import _most_held_out, _split
from rfgp.training.timing import NEVER, Deadline

SMALL = {"num_features": 48, "max_evaluations": 8, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore:.*ends at the.*bound:UserWarning", "ignore:rows that were held out")


def noisy(num_classes, num_rows=400):
    """Classes whose log odds are linear, and hard to tell."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(num_rows, 12))
    scores = 0.4 * x @ generator.normal(size=(12, num_classes)) + np.array([2.0, 0.0, -0.5])[:num_classes]
    return x, (scores + generator.gumbel(size=scores.shape)).argmax(-1), scores


@pytest.mark.parametrize("num_classes", [2, 3])
def test_noisy_labels_take_laplace(num_classes):
    x, labels, scores = noisy(num_classes, 1400)
    model = clone(RandomFeatureGPClassifier(**SMALL)).fit(x[:300], labels[:300])
    assert isinstance(model.model_, LaplaceGP)
    truth = scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    found = np.log(model.predict_proba(x))
    rows = np.arange(400, 1400)
    assert np.mean((truth - found)[rows, labels[rows]]) < 0.12
    assert set(model.comparison_) == {"model", "frequencies", "linear"}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(x[:50]), model.predict_proba(x[:50]))
    with pytest.raises(ValueError, match="LaplaceGP"):
        model.cross_val_predict(x[:300], labels[:300])
    model.partial_fit(x[300:400], labels[300:400])
    mode = model.model_.mode.clone()
    inputs, codes = torch.from_numpy(model.x_scaler_.transform(x)), torch.from_numpy(labels)
    if num_classes > 2:
        assert len(model.rows_[0]) == 400
        model.model_.condition(inputs[:400], codes[:400])
        torch.testing.assert_close(model.model_.mode, mode, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="no sample_weight for a LaplaceGP"):
        model.partial_fit(x[:4], labels[:4], sample_weight=np.ones(4))


def test_weighted_labels_keep_dirichlet_targets():
    x, labels, _ = noisy(2, 100)
    weighted = RandomFeatureGPClassifier(**SMALL | {"kernel": "rbf"}).fit(x, labels, np.ones(100))
    assert not isinstance(weighted.model_, LaplaceGP)


def test_probabilities_of_classes_are_those_of_joint_draws():
    x, labels, _ = noisy(3, 200)
    model = RandomFeatureGPClassifier(**SMALL).fit(x, labels).model_
    assert isinstance(model, LaplaceGP)
    points = torch.from_numpy(x[:5])
    torch.manual_seed(0)
    latent = model.posterior(points)
    root = torch.linalg.cholesky(latent.covariance_matrix + 1e-9 * torch.eye(15, dtype=torch.float64))
    draws = latent.mean + (root @ torch.randn(15, 20_000, dtype=torch.float64)).mT.reshape(-1, 5, 3)
    expected = torch.softmax(draws, dim=-1).mean(0)
    torch.testing.assert_close(class_probabilities(model, points), expected, atol=0.015, rtol=0.0)


@pytest.mark.parametrize("most", [1e6, 1e3])
def test_classes_have_blocks_where_predictions_from_them_are_quick(most, monkeypatch):
    monkeypatch.setattr(choice, "_MOST_OPERATIONS", most)
    generator = np.random.default_rng(0)
    centers = 4.0 * generator.normal(size=(40, 2))
    labels = np.arange(240) % 40
    x = centers[labels] + 0.05 * generator.normal(size=(240, 2))
    model = RandomFeatureGPClassifier("matern32", **SMALL).fit(x[:160], labels[:160])
    assert (model.model_.block_size is not None) == (most > 1e5)
    assert model.score(x[160:], labels[160:]) > 0.9
    assert model.model_.statistics.sums()["target_gram"].shape[-1] <= 5


def test_few_rows_of_many_classes_are_told_apart():
    """Where parameters start, one label among many classes counts; not all classes have a row that is held out."""
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(60, 6))
    labels = np.r_[np.arange(60), generator.integers(0, 60, 80)]
    x = centers[labels] + 0.1 * generator.normal(size=(len(labels), 6))
    model = RandomFeatureGPClassifier("matern32", random_state=0, max_evaluations=1).fit(x, labels)
    new = generator.integers(0, 60, 300)
    found = model.predict_proba(centers[new] + 0.1 * generator.normal(size=(300, 6)))
    assert -np.log(found[np.arange(300), new]).mean() < 0.1
    assert set(model.comparison_) == {"model", "frequencies", "linear"}


def test_held_out_labels_are_of_classes_in_proportion_and_leave_a_row_of_each():
    codes = torch.from_numpy(np.repeat(np.arange(104), [300, 100, *np.ones(100, dtype=int), 2, 20]))
    shuffled = codes[torch.randperm(len(codes), generator=torch.Generator().manual_seed(0))]
    train, held = _split(shuffled, seed=3)
    assert len(held) == 52
    assert len(shuffled[train].unique()) == 104
    counts = torch.bincount(shuffled[held], minlength=104)
    assert abs(int(counts[0]) - 37) <= 1
    assert abs(int(counts[1]) - 12) <= 1
    assert not counts[2:102].any()
    torch.testing.assert_close(torch.cat([train, held]).sort().values, torch.arange(len(codes)))


def test_a_time_limit_takes_fewer_rows_of_pictures(monkeypatch):
    """Each row is compared with all pixels of all others: those that choose, teach and calibrate go by the time."""
    monkeypatch.setattr("rfgp.sklearn.classifier.slowness", lambda: 1.0)
    pictures = torch.empty(60_000, 784, device="meta")
    assert 100 <= _most_held_out(pictures, 10, Deadline.after(5.0)) < 500
    assert 100 <= _most_held_out(pictures[:4000, :6], 2000, Deadline.after(20.0)) < 1000
    assert _most_held_out(pictures[:2000, :8], 10, Deadline.after(60.0)) == _most_held_out(pictures, 10, NEVER) == 1000
    sizes = {}

    def learned(model, x, y, **options):
        sizes["learned"] = len(x)
        raise InterruptedError

    def chosen(make, kernel, x, y, deadline):
        sizes["chosen"] = len(x)
        return choice.chosen_parts(make, "rbf", x, y, deadline)._replace(is_tuned=True)

    monkeypatch.setattr(base, "fit", learned)
    monkeypatch.setattr(base, "chosen_parts", chosen)
    x, labels = np.random.default_rng(0).normal(size=(4000, 500)), np.arange(4000) % 10
    for limit, expected in (1.0, 3000), (None, 3600):
        with pytest.raises(InterruptedError):
            RandomFeatureGPClassifier(random_state=0, time_limit=limit).fit(x, labels)
        assert sizes == {"chosen": expected, "learned": expected}
