"""Small tables of classes: one set of parameters, averages over them, logistic regression, forests, scikit-learn's GP.

Each split trains on a random part with the shares of the classes and is tested on the other rows. Forests count their
votes with one more for each class, since a class without votes has an infinite log loss.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import common
import numpy as np
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rfgp.sklearn import RandomFeatureGPClassifier
from rfgp.sklearn.classifier import MOST_LABELS

AVERAGED = (
    *("iris, 100", "wine, 118", "breast cancer, 100", "breast cancer, 379", "five letters, 300"),
    *("letter halves, 150", "letter halves, 300", "letter halves, 400"),
)
"""Sets, with their training rows, that are averaged over parameters by default."""
SETS = (
    *AVERAGED,
    *("letter halves, 500", "letter halves, 1000", "odd digits, 300", "digits, 300", "digits, 1000", "letter, 300"),
)
_MOST_TEST_ROWS, _TREES, _SMALLEST = 2000, 300, 1e-12


def one_model(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The estimator with one set of parameters."""
    return RandomFeatureGPClassifier(average=False, random_state=0).fit(x, y).predict_proba(new)


def averaged(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """An average over parameters."""
    return RandomFeatureGPClassifier(average=True).fit(x, y).predict_proba(new)


def logistic(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Logistic regression, whose penalty has the smallest log loss in five folds."""
    search = LogisticRegressionCV(Cs=np.logspace(-3, 3, 13), cv=5, scoring="neg_log_loss", max_iter=2000)
    return make_pipeline(StandardScaler(), search).fit(x, y).predict_proba(new)


def forest(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """A forest of 300 trees."""
    votes = _TREES * RandomForestClassifier(_TREES, random_state=0).fit(x, y).predict_proba(new) + 1.0
    return votes / votes.sum(1, keepdims=True)


def scikit_learn(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The GaussianProcessClassifier of scikit-learn with a Gaussian kernel."""
    kernel = ConstantKernel(1.0, (1e-3, 1e5)) * RBF(x.shape[1] ** 0.5)
    model = GaussianProcessClassifier(kernel, random_state=0)
    return make_pipeline(StandardScaler(), model).fit(x, y).predict_proba(new)


MODELS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "one set of parameters": one_model,
    "average": averaged,
    "logistic": logistic,
    "forest": forest,
    "scikit-learn": scikit_learn,
}


def load(name: str, data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, d), and labels (N,) from zero on."""
    kind, _, _ = name.partition(",")
    if "letter" in kind:
        with np.load(data_dir / "letter.npz") as archive:
            x, y = archive["x"].astype(float), np.unique(archive["y"], return_inverse=True)[1]
    else:
        loaders = {"iris": datasets.load_iris, "wine": datasets.load_wine, "breast cancer": datasets.load_breast_cancer}
        x, y = loaders.get(kind, datasets.load_digits)(return_X_y=True)
    if kind == "five letters":
        return x[y < 5], y[y < 5]
    return x, {"odd digits": y % 2, "letter halves": y // 13}.get(kind, y)


def scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The share of errors, the mean log loss, and by how much the most probable class is thought more probable."""
    chosen = probabilities.argmax(1)
    of_truth = probabilities[np.arange(len(labels)), labels]
    error = float((chosen != labels).mean())
    return {
        "error": error,
        "log loss": float(-np.log(np.maximum(of_truth, _SMALLEST)).mean()),
        "overconfidence": float(probabilities.max(1).mean()) - (1.0 - error),
    }


def main() -> None:
    parser = common.arguments(__doc__.splitlines()[0], "few_rows_classes")
    common.add_data_dir(parser)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--sets", default="/".join(SETS))
    parser.add_argument("--models", default="/".join(MODELS))
    options = parser.parse_args()
    count = 1 if options.quick else options.splits
    warnings.simplefilter("ignore")
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in options.sets.split("/")[: 2 if options.quick else None]:
        x, y = load(name, options.data_dir)
        size = int(name.partition(",")[2])
        splits = StratifiedShuffleSplit(count, train_size=size, random_state=0)
        found[name] = {}
        for model in options.models.split("/"):
            if model == "average" and size * max(len(np.unique(y)), 3) > MOST_LABELS:
                continue
            parts = []
            for train, test in splits.split(x, y):
                test = test[:_MOST_TEST_ROWS]
                began = time.process_time()
                probabilities = MODELS[model](x[train], y[train], x[test])
                parts.append({**scores(probabilities, y[test]), "seconds": time.process_time() - began})
            found[name][model] = {key: float(np.mean([part[key] for part in parts])) for key in parts[0]}
            values = "  ".join(f"{key} {value:6.3f}" for key, value in found[name][model].items())
            print(f"{name:20s} {model:22s} {values}", flush=True)
    usual = [of for name, of in found.items() if name in AVERAGED]
    means = {m: {k: float(np.mean([of[m][k] for of in usual])) for k in usual[0][m]} for m in usual[0]}
    for model, of_model in means.items():
        print(f"{'mean':20s} {model:22s} " + "  ".join(f"{key} {value:6.3f}" for key, value in of_model.items()))
    environment = common.environment()
    common.write(options.out, {"environment": environment, "splits": count, "sets": found, "means": means})


if __name__ == "__main__":
    main()
