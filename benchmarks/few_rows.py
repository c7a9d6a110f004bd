"""Small tables of one output: one set of parameters, averages over them, forests, boosting, ridge regression, BoTorch.

Targets are standardized by the training rows of each of the field's ten folds, of which the first ones are taken. CRPS
and NLPD of forests, boosting and ridge regression are those of normals with the variance of left-out errors.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
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
from torch.distributions import Categorical, Normal

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


_FAST = gpytorch.settings.fast_computations
_SETTINGS: list[tuple[Any, str]] = [
    *((setting, "_default") for setting in (_FAST.covar_root_decomposition, _FAST.log_prob, _FAST.solves)),
    (gpytorch.settings.cholesky_max_tries, "_global_value"),
    (gpytorch.settings.max_cholesky_size, "_global_value"),
    (gpytorch.settings.max_eager_kernel_size, "_global_value"),
]
"""What the import of BoTorch changes for all models of GPyTorch."""


def _set(values: Sequence[Any]) -> None:
    for place, value in zip(_SETTINGS, values, strict=True):
        setattr(*place, value)


@functools.cache
def _values_of_botorch() -> list[Any]:
    """Import BoTorch, and undo what this changes."""
    own = [getattr(*place) for place in _SETTINGS]
    importlib.import_module("botorch")
    found = [getattr(*place) for place in _SETTINGS]
    _set(own)
    return found


@contextlib.contextmanager
def botorch_settings() -> Iterator[None]:
    """The settings of BoTorch, for its own models alone."""
    values, own = _values_of_botorch(), [getattr(*place) for place in _SETTINGS]
    _set(values)
    try:
        yield
    finally:
        _set(own)


def botorch(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """BoTorch's SingleTaskGP."""
    with botorch_settings():
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        x, new = _in_unit_cube(x, new)
        model = SingleTaskGP(torch.from_numpy(x), torch.from_numpy(y).unsqueeze(-1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        with torch.no_grad():
            found = model.posterior(torch.from_numpy(new), observation_noise=True)
        return Normal(found.mean.squeeze(-1), found.variance.squeeze(-1).sqrt())


def saas(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Predicted:
    """BoTorch's fully Bayesian model with sparse inputs, by a short chain; it needs ``botorch[fully_bayesian]``."""
    with botorch_settings():
        from botorch.fit import fit_fully_bayesian_model_nuts
        from botorch.models.fully_bayesian import SaasFullyBayesianSingleTaskGP

        x, new = _in_unit_cube(x, new)
        torch.manual_seed(0)
        model = SaasFullyBayesianSingleTaskGP(torch.from_numpy(x), torch.from_numpy(y).unsqueeze(-1))
        fit_fully_bayesian_model_nuts(model, warmup_steps=128, num_samples=64, thinning=4, disable_progbar=True)
        with torch.no_grad():
            found = model.posterior(torch.from_numpy(new), observation_noise=True)
        normals = Normal(found.mean.squeeze(-1).mT, found.variance.squeeze(-1).mT.sqrt())
        return rfgp.models.NormalMixture(Categorical(torch.ones_like(normals.mean)), normals)


def _in_unit_cube(x: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, width = x.min(0), np.maximum(np.ptp(x, axis=0), 1e-12)
    return (x - low) / width, (new - low) / width


MODELS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Predicted]] = {
    "one set of parameters": one_model,
    "average": averaged,
    "GPyTorch": plain,
    "GPyTorch, average": partial(plain, strategy="average"),
    "forest": forest,
    "boosting": boosting,
    "ridge": ridge,
    "BoTorch": botorch,
    "SAAS": saas,
}
MOST_VALUES = {"SAAS": 2000}
"""Of more values of inputs a fit takes minutes."""


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
    has_saas = importlib.util.find_spec("numpyro") is not None
    parser.add_argument("--models", default="/".join(name for name in MODELS if has_saas or name != "SAAS"))
    options = parser.parse_args()
    if options.plot:
        plot(json.loads(options.out.read_text()), options.out)
        return
    count = 1 if options.quick else options.folds
    warnings.simplefilter("ignore")
    models, found = options.models.split("/"), dict[str, dict[str, dict[str, Any]]]()
    for name in options.sets.split(",")[: 2 if options.quick else None]:
        found[name] = {}
        for model in models:
            if next(folds(options.data_dir, name, 1))[0].size > MOST_VALUES.get(model, math.inf):
                continue
            parts = []
            for x, y, new, truth in folds(options.data_dir, name, count):
                began = time.process_time()
                predicted = MODELS[model](x, y, new)
                seconds = time.process_time() - began
                parts.append({**scores(predicted, torch.from_numpy(truth)), "seconds": seconds})
            found[name][model] = mean_of(parts)
            print(f"{name:13s} {model:22s} {shown(found[name][model])}", flush=True)
    whole = [model for model in models if all(model in of_set for of_set in found.values())]
    means = {model: mean_of([of_set[model] for of_set in found.values()]) for model in whole}
    for model, of_model in means.items():
        print(f"{'mean':13s} {model:22s} {shown(of_model)}")
    environment = common.environment()
    common.write(options.out, {"environment": environment, "folds": count, "sets": found, "means": means})


if __name__ == "__main__":
    main()
