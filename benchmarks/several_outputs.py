"""Small tables of several outputs: one set of parameters, averages over kernels, forests and ridge regression.

aRRMSE is the mean over outputs of the root of the squared errors over those of the training mean. Missing inputs have
the mean of the training rows, and an indicator. Targets are standardized by the training rows of each of five folds.
NLPD and CRPS of forests and ridge regression are those of normals with the variance of left-out errors.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import common
import numpy as np
import torch
from few_rows import LEVELS
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.distributions import Normal

from rfgp.averaging import Mixture
from rfgp.sklearn import RandomFeatureGPRegressor

SETS = ("edm", "jura", "atp7d", "oes97", "wq", "scpf")
OF_CURVES = "curves"
"""Eighty runs of a simulator with one input, whose output is a curve at 72 points."""

Predicted = Normal | Mixture


def averaged(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """The estimator by its defaults."""
    estimator = RandomFeatureGPRegressor(random_state=0).fit(x, y)
    predicted: Mixture = estimator.model_.predictive(torch.from_numpy(estimator.x_scaler_.transform(new)))
    return predicted


def one_model(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """The estimator with one set of parameters."""
    mean, std = RandomFeatureGPRegressor(average=False, random_state=0).fit(x, y).predict(new, return_std=True)
    return Normal(torch.from_numpy(mean), torch.from_numpy(std))


def forest(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """A forest of 300 trees, with the variance of out-of-bag errors."""
    model = RandomForestRegressor(300, max_features=1 / 3, oob_score=True, random_state=0).fit(x, y)
    return _normal(model.predict(new), (model.oob_prediction_ - y).std(0))


def ridge(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """Ridge regression with a penalty for each output, with the variance of left-out errors."""
    penalties = np.logspace(-2, 6, 17)
    model = make_pipeline(StandardScaler(), RidgeCV(penalties, alpha_per_target=True)).fit(x, y)
    return _normal(model.predict(new), np.sqrt(-model[-1].best_score_))


MODELS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Predicted]] = {
    "one set of parameters": one_model,
    "average": averaged,
    "forest": forest,
    "ridge": ridge,
}


def _normal(mean: np.ndarray, std: np.ndarray) -> Normal:
    return Normal(torch.from_numpy(mean), torch.from_numpy(np.broadcast_to(std, mean.shape).copy()))


def scores(predicted: Predicted, y: torch.Tensor) -> dict[str, float]:
    """aRRMSE, NLPD, CRPS by quantiles, and the coverage of 95 % intervals."""
    probability, losses = predicted.cdf(y), []
    for level in LEVELS[2::5].tolist():
        quantile = predicted.icdf(torch.tensor(level) if isinstance(predicted, Normal) else level)
        losses.append(2.0 * torch.maximum(level * (y - quantile), (level - 1.0) * (y - quantile)).mean())
    return {
        "aRRMSE": float(((predicted.mean - y).square().sum(0) / y.square().sum(0)).sqrt().mean()),
        "NLPD": -float(predicted.log_prob(y).mean()),
        "CRPS": float(torch.stack(losses).mean()),
        "coverage": float(((probability > 0.025) & (probability < 0.975)).double().mean()),
    }


def curves() -> tuple[np.ndarray, np.ndarray]:
    """Runs with inputs (N, 1) and curves (N, 72)."""
    generator, points = np.random.default_rng(0), np.linspace(0.0, 1.0, 72)
    x = generator.uniform(size=(100, 1))
    y = np.exp(-3.0 * x * points) * np.sin(6.0 * points + 4.0 * x)
    return x, y + 0.005 * generator.normal(size=y.shape)


def folds(data_dir: Path, name: str, count: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Training inputs and targets, test inputs and targets of the first folds."""
    if name == OF_CURVES:
        x, y = curves()
    else:
        with np.load(data_dir / "mtr" / f"{name}.npz") as archive:
            x, y = archive["x"].astype(float), archive["y"].astype(float)
    for train, test in list(KFold(5, shuffle=True, random_state=0).split(x))[:count]:
        missing = np.isnan(x)
        known = x[:, ~missing[train].all(0)]
        has_gaps = missing[train].any(0) & ~missing[train].all(0)
        inputs = np.c_[np.where(np.isnan(known), np.nanmean(known[train], 0), known), missing[:, has_gaps]]
        mean, std = y[train].mean(0), y[train].std(0)
        yield inputs[train], (y[train] - mean) / std, inputs[test], (y[test] - mean) / std


def main() -> None:
    parser = common.arguments(__doc__.splitlines()[0], "several_outputs")
    common.add_data_dir(parser)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--sets", default=",".join((*SETS, OF_CURVES)))
    parser.add_argument("--models", default=",".join(MODELS))
    options = parser.parse_args()
    count = 1 if options.quick else options.folds
    warnings.simplefilter("ignore")
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in options.sets.split(",")[: 2 if options.quick else None]:
        found[name] = {}
        for model in options.models.split(","):
            parts = []
            for x, y, new, truth in folds(options.data_dir, name, count):
                began = time.process_time()
                predicted = MODELS[model](x, y, new)
                seconds = time.process_time() - began
                parts.append({**scores(predicted, torch.from_numpy(truth)), "seconds": seconds})
            found[name][model] = {key: float(np.mean([part[key] for part in parts])) for key in parts[0]}
            values = "  ".join(f"{key} {value:7.3f}" for key, value in found[name][model].items())
            print(f"{name:8s} {model:22s} {values}", flush=True)
    common.write(options.out, {"environment": common.environment(), "folds": count, "sets": found})


if __name__ == "__main__":
    main()
