"""Small tables of one output: one set of parameters, averages over them, forests, boosting, ridge regression, BoTorch.

Targets are standardized by the training rows of each of the field's ten folds, of which the first ones are taken. CRPS
and NLPD of forests, boosting and ridge regression are those of normals with the variance of left-out errors.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import common
import gpytorch
import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.distributions import Normal

import rfgp
from rfgp.averaging import Mixture
from rfgp.sklearn import RandomFeatureGPRegressor
from rfgp.study import plots

SETS = ("fertility", "servo", "breastcancer", "machine", "yacht", "autompg", "energy", "concrete", "airfoil", "wine")
LEVELS, SHARES = np.arange(0.005, 1.0, 0.01), np.arange(0.05, 1.0, 0.05)

Predicted = Normal | Mixture | rfgp.models.NormalMixture


def one_model(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """The estimator with one set of parameters."""
    mean, std = RandomFeatureGPRegressor(average=False, random_state=0).fit(x, y).predict(new, return_std=True)
    return Normal(torch.from_numpy(mean), torch.from_numpy(std))


def averaged(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """The estimator by its defaults: an average over parameters."""
    estimator = RandomFeatureGPRegressor(random_state=0).fit(x, y)
    predicted: Mixture = estimator.model_.predictive(torch.from_numpy(estimator.x_scaler_.transform(new)))
    return predicted


class Matern(gpytorch.models.ExactGP):
    """A plain model of GPyTorch."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(ard_num_dims=x.shape[1]))

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def plain(x: np.ndarray, y: np.ndarray, new: np.ndarray, strategy: str = "evidence") -> Predicted:
    """Its most probable parameters, or an average."""
    model = Matern(torch.from_numpy(x), torch.from_numpy(y)).double()
    average = rfgp.fit(model, strategy=strategy, progress=False).average
    if average is not None:
        return average.predictive(torch.from_numpy(new))
    with torch.no_grad():
        found = model.likelihood(model(torch.from_numpy(new)))
    return Normal(found.mean, found.stddev)


def forest(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """A forest of 300 trees, with the variance of out-of-bag errors."""
    model = RandomForestRegressor(300, oob_score=True, random_state=0).fit(x, y)
    return _normal(model.predict(new), model.oob_prediction_ - y)


def boosting(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """Boosting by scikit-learn's defaults, with the variance of errors of five folds."""
    model = HistGradientBoostingRegressor(random_state=0)
    errors = cross_val_predict(model, x, y, cv=5) - y
    return _normal(model.fit(x, y).predict(new), errors)


def ridge(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """Ridge regression, whose penalty and variance are those of rows left out."""
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 5, 9))).fit(x, y)
    return _normal(model.predict(new), [(-model[-1].best_score_) ** 0.5])


def botorch(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """BoTorch's SingleTaskGP."""
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    low, width = x.min(0), np.maximum(np.ptp(x, axis=0), 1e-12)
    model = SingleTaskGP(torch.from_numpy((x - low) / width), torch.from_numpy(y).unsqueeze(-1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    with torch.no_grad():
        found = model.posterior(torch.from_numpy((new - low) / width), observation_noise=True)
    return Normal(found.mean.squeeze(-1), found.variance.squeeze(-1).sqrt())


MODELS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Predicted]] = {
    "one set of parameters": one_model,
    "average": averaged,
    "GPyTorch": plain,
    "GPyTorch, average": partial(plain, strategy="average"),
    "forest": forest,
    "boosting": boosting,
    "ridge": ridge,
    "BoTorch": botorch,
}


PLOTTED = ("one set of parameters", "average", "forest", "BoTorch")


def _normal(mean: np.ndarray, errors: Any) -> Normal:
    std = float(np.sqrt(np.mean(np.square(errors))))
    return Normal(torch.from_numpy(mean), torch.full((len(mean),), std, dtype=torch.float64))


def scores(predicted: Predicted, y: torch.Tensor) -> dict[str, Any]:
    """RMSE, NLPD, CRPS by quantiles at a hundred levels, the coverage of 95 % intervals, and of those of all shares."""
    probability = predicted.cdf(y)
    losses = []
    for level in LEVELS.tolist():
        quantile = predicted.icdf(torch.tensor(level) if isinstance(predicted, Normal) else level)
        losses.append(2.0 * torch.maximum(level * (y - quantile), (level - 1.0) * (y - quantile)).mean())
    return {
        "RMSE": float((predicted.mean - y).square().mean().sqrt()),
        "NLPD": -float(predicted.log_prob(y).mean()),
        "CRPS": float(torch.stack(losses).mean()),
        "coverage": float(((probability > 0.025) & (probability < 0.975)).double().mean()),
        "coverages": [float(((probability - 0.5).abs() < 0.5 * share).double().mean()) for share in SHARES.tolist()],
    }


def folds(data_dir: Path, name: str, count: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Training inputs and targets, test inputs and targets of the first folds."""
    path = data_dir / f"{name}.npz"
    with np.load(path if path.exists() else data_dir / "uci" / f"{name}.npz") as archive:
        x, y = archive["x"].astype(float), archive["y"].astype(float).reshape(len(archive["x"]), -1)[:, 0]
        numbers = archive["fold"] if "fold" in archive.files else np.random.default_rng(0).permutation(len(x)) % 10
    for fold in range(count):
        train = numbers != fold
        mean, std = y[train].mean(), y[train].std()
        yield x[train], (y[train] - mean) / std, x[~train], (y[~train] - mean) / std


def mean_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The means of scores."""
    return {key: np.mean([part[key] for part in parts], axis=0).tolist() for key in parts[0]}


def shown(of_model: dict[str, Any]) -> str:
    """The scores that are single numbers."""
    return "  ".join(f"{key} {value:7.3f}" for key, value in of_model.items() if isinstance(value, float))


def plot(result: dict[str, Any], path: Path) -> None:
    """The coverage of central intervals, of every set in gray and of their mean."""
    figure, panels = plots.figure(1, len(PLOTTED), width=2.3, height=2.4)
    for ax, name in zip(panels.flat, PLOTTED, strict=True):
        for of_set in result["sets"].values():
            ax.plot(SHARES, of_set[name]["coverages"], color="0.75", linewidth=0.8)
        ax.plot([0.0, 1.0], [0.0, 1.0], color=plots.EXACT, linestyle="--", linewidth=1.0)
        ax.plot(SHARES, result["means"][name]["coverages"], color=plots.COLORS[0], linewidth=1.8)
        ax.set(title=name, xlabel="share asked for", xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    panels.flat[0].set_ylabel("share of test rows")
    common.save_figure(figure, path)


def main() -> None:
    parser = common.arguments(__doc__.splitlines()[0], "few_rows")
    common.add_data_dir(parser, required=False)
    common.add_plot(parser)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--sets", default=",".join(SETS))
    options = parser.parse_args()
    if options.plot:
        plot(json.loads(options.out.read_text()), options.out)
        return
    count = 1 if options.quick else options.folds
    warnings.simplefilter("ignore")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in options.sets.split(",")[: 2 if options.quick else None]:
        found[name] = {}
        for model, fit in MODELS.items():
            parts = []
            for x, y, new, truth in folds(options.data_dir, name, count):
                began = time.process_time()
                predicted = fit(x, y, new)
                seconds = time.process_time() - began
                parts.append({**scores(predicted, torch.from_numpy(truth)), "seconds": seconds})
            found[name][model] = mean_of(parts)
            print(f"{name:13s} {model:22s} {shown(found[name][model])}", flush=True)
    means = {model: mean_of([of[model] for of in found.values()]) for model in MODELS}
    for model, of_model in means.items():
        print(f"{'mean':13s} {model:22s} {shown(of_model)}")
    environment = common.environment()
    common.write(options.out, {"environment": environment, "folds": count, "sets": found, "means": means})


if __name__ == "__main__":
    main()
