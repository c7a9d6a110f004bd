"""Trees as tensors against the forest that they come from."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestRegressor

from rfgp.averaging.trees import Trees


@pytest.mark.parametrize("outputs", [1, 3])
def test_trees_predict_as_their_forest(outputs):
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 4))
    y = x[:, :1] * random.normal(size=outputs) + random.normal(size=(60, outputs))
    forest = RandomForestRegressor(20, oob_score=True, random_state=0).fit(x, y.squeeze())
    trees = Trees(forest)
    thresholds = np.concatenate([tree.tree_.threshold[tree.tree_.feature == 0] for tree in forest.estimators_])
    ties = np.tile(x.mean(0), (3 * len(thresholds), 1))
    near = thresholds.astype(np.float32)
    ties[:, 0] = np.concatenate([near, np.nextafter(near, np.float32(9.0)), np.nextafter(near, np.float32(-9.0))])
    new = np.concatenate([random.normal(size=(100, 4)), 1e40 * x[:2], x, ties])
    wanted = forest.predict(new.clip(-3e38, 3e38)).reshape(len(new), outputs)
    np.testing.assert_allclose(trees(torch.from_numpy(new)), wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(trees.left_out, forest.oob_prediction_.reshape(len(x), outputs))


def test_a_tree_of_one_leaf_predicts_its_mean():
    x = np.zeros((12, 2))
    forest = RandomForestRegressor(3, oob_score=True, bootstrap=True, random_state=0).fit(x, np.ones(12))
    np.testing.assert_array_equal(Trees(forest)(torch.rand(2, 2)), np.ones((2, 1)))
