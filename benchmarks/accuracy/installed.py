"""Programs that are installed apart (``pip install lightgbm gpboost xrfm pytabkit MuyGPyS``), with their defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from .rows import Method, Predictions, Rows, all_classes, per_output

Points = Iterator[tuple[str, Callable[[], Predictions]]]
LEAF = 10_000
"""Rows of a leaf of xRFM, which solves a dense system: the default of 60,000 takes hours of a processor."""


def halves(rows: Rows, share: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of rows to validate on, one of so many, and of the others."""
    order = np.random.RandomState(0).permutation(len(rows.x))
    return order[: len(order) // share], order[len(order) // share :]


def with_residuals(rows: Rows, model: Any, held: np.ndarray) -> Points:
    """Predictions of a model without error bars: their variance is that of residuals of rows that it has not seen."""
    if rows.num_classes:
        yield "", lambda: all_classes(model.predict_proba(rows.test_x), model.classes_, rows.num_classes)
        return
    variance = np.mean((rows.y[held] - model.predict(rows.x[held]).reshape(-1)) ** 2)
    yield "", lambda: (model.predict(rows.test_x).reshape(-1), np.full(len(rows.test_x), variance))


def lightgbm(rows: Rows) -> Points:
    """Up to 1,000 trees of 31 leaves, ended early by a tenth of the rows."""
    import lightgbm as package

    held, rest = halves(rows, 10)
    kind = package.LGBMClassifier if rows.num_classes else package.LGBMRegressor
    model = kind(n_estimators=1000, n_jobs=1, verbose=-1, random_state=0)
    stop = package.early_stopping(20, verbose=False)
    model.fit(rows.x[rest], rows.y[rest], eval_set=[(rows.x[held], rows.y[held])], callbacks=[stop])
    yield from with_residuals(rows, model, held)


def gpboost(rows: Rows, approximation: str) -> Points:
    """A Vecchia approximation with a lengthscale per input and a constant mean."""
    import gpboost as package

    shape = {"rbf": {"cov_function": "gaussian_ard"}, "matern32": {"cov_function": "matern_ard", "cov_fct_shape": 1.5}}
    model = package.GPModel(
        gp_coords=rows.x, likelihood="gaussian", gp_approx=approximation, num_parallel_threads=1, **shape[rows.kernel]
    )
    model.fit(y=rows.y.astype(float), X=np.ones((len(rows.x), 1)))

    def predict() -> Predictions:
        ones = np.ones((len(rows.test_x), 1))
        found = model.predict(gp_coords_pred=rows.test_x, X_pred=ones, predict_var=True, predict_response=True)
        return found["mu"], found["var"]

    yield "", predict


def xrfm(rows: Rows) -> Points:
    """Kernel regression that learns a metric from gradients, a fifth of the rows for validation."""
    import torch
    from xrfm import xRFM

    held, rest = halves(rows, 5)
    x, y = (torch.from_numpy(part).float() for part in (rows.x, rows.y.reshape(-1, 1)))
    model = xRFM(device="cpu", max_leaf_size=LEAF, random_state=0, verbose=False, tuning_metric="mse")
    model.fit(x[rest], y[rest], x[held], y[held])

    class Single:
        """The same in double precision outside."""

        @staticmethod
        def predict(inputs: np.ndarray) -> np.ndarray:
            return np.asarray(model.predict(torch.from_numpy(inputs).float()))

    yield from with_residuals(rows, Single, held)


def realmlp(rows: Rows) -> Points:
    """A network with tuned defaults, a tenth of the rows for validation."""
    from pytabkit import RealMLP_TD_Classifier, RealMLP_TD_Regressor

    held, rest = halves(rows, 10)
    kind = RealMLP_TD_Classifier if rows.num_classes else RealMLP_TD_Regressor
    model = kind(device="cpu", n_threads=1, random_state=0, verbosity=0)
    model.fit(rows.x[rest], rows.y[rest], rows.x[held], rows.y[held])
    yield from with_residuals(rows, model, held)


def muygps(rows: Rows, neighbors: int = 30) -> Points:
    """Local kriging by 30 neighbors: one lengthscale and the noise by leave-one-out on 500 rows."""
    from MuyGPyS.examples.regress import make_regressor, regress_any
    from MuyGPyS.gp.deformation import Isotropy, l2
    from MuyGPyS.gp.hyperparameter import AnalyticScale, Parameter
    from MuyGPyS.gp.kernels import Matern
    from MuyGPyS.gp.noise import HomoscedasticNoise

    y = rows.y.reshape(-1, 1)
    parts = {
        "kernel": Matern(
            smoothness=Parameter(1.5), deformation=Isotropy(l2, length_scale=Parameter(1.0, (0.05, 50.0)))
        ),
        "noise": HomoscedasticNoise(0.01, (1e-5, 1.0)),
        "scale": AnalyticScale(),
    }
    model, lookup = make_regressor(
        rows.x,
        y,
        nn_count=neighbors,
        batch_count=min(500, len(y)),
        k_kwargs=parts,
        nn_kwargs={"nn_method": "exact", "algorithm": "ball_tree"},
        opt_kwargs={"init_points": 5, "n_iter": 20, "random_state": 1, "allow_duplicate_points": True},
    )

    def predict() -> Predictions:
        mean, variance, _ = regress_any(model, rows.test_x, rows.x, lookup, y)
        scale = float(np.asarray(model.scale()).reshape(-1)[0])
        noise = scale * float(np.asarray(model.noise()).reshape(-1)[0])
        return np.asarray(mean).reshape(-1), np.asarray(variance).reshape(-1) + noise

    yield "", predict


NUMBERS: dict[str, Method] = {
    "LightGBM": per_output(lightgbm),
    "MuyGPs": per_output(muygps),
    "GPBoost, Vecchia": per_output(partial(gpboost, approximation="vecchia")),
    "GPBoost, VIF": per_output(partial(gpboost, approximation="full_scale_vecchia")),
    "xRFM": per_output(xrfm),
    "RealMLP": per_output(realmlp),
}
CLASSES: dict[str, Method] = {"LightGBM": lightgbm, "RealMLP": realmlp}
