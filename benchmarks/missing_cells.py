"""Rows with missing cells, imputed from rows that are like them, beside medians, scikit-learn's imputers and boosting.

Of five data sets 300 rows are learned from. Cells are missing in new rows alone, in a twentieth or a fifth of three
columns, or in a fifth of one column where the target is a standard deviation larger for it. Targets have the scale of
the training rows. Boosting takes missing cells as they are; its interval is that of two quantiles.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import common
import numpy as np
import pandas
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import KNNImputer, SimpleImputer

from rfgp.sklearn import RandomFeatureGPRegressor

SETS = ("concrete", "energy", "airfoil", "powerplant", "uci/autompg")
CASES = ("new rows alone", "a twentieth of three columns", "a fifth of three columns", "a fifth, which tell of targets")
_ROWS, _TEST_ROWS, _SPLITS = 300, 1000, 2
_LEVEL = 0.95


class Table(NamedTuple):
    """Training and test inputs with missing cells, and their targets."""

    x: pandas.DataFrame
    y: np.ndarray
    new: pandas.DataFrame
    truth: np.ndarray


Predicted = tuple[np.ndarray, np.ndarray]
"""Means (N,), and lower and upper ends of intervals (N, 2)."""


def imputed(table: Table) -> Predicted:
    """The estimator of data frames."""
    model = RandomFeatureGPRegressor(random_state=0).fit(table.x, table.y)
    return model.predict(table.new), model.predict_interval(table.new, _LEVEL)


def filled(imputer: SimpleImputer | KNNImputer) -> Callable[[Table], Predicted]:
    """The estimator of numbers, which an imputer of scikit-learn fills in and marks."""

    def predict(table: Table) -> Predicted:
        x, new = imputer.fit_transform(table.x), imputer.transform(table.new)
        model = RandomFeatureGPRegressor(random_state=0).fit(x, table.y)
        return model.predict(new), model.predict_interval(new, _LEVEL)

    return predict


def boosting(table: Table) -> Predicted:
    """Gradient boosting of the mean and of two quantiles."""
    quantiles = (0.5 - 0.5 * _LEVEL, 0.5 + 0.5 * _LEVEL)
    models = [HistGradientBoostingRegressor(random_state=0)]
    models += [HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0) for q in quantiles]
    mean, low, high = (model.fit(table.x, table.y).predict(table.new) for model in models)
    return mean, np.column_stack([low, np.maximum(low, high)])


MODELS: dict[str, Callable[[Table], Predicted]] = {
    "nearest rows": imputed,
    "median": filled(SimpleImputer(strategy="median", add_indicator=True)),
    "KNNImputer": filled(KNNImputer(n_neighbors=10, add_indicator=True)),
    "boosting": boosting,
}


def table_of(name: str, case: str, seed: int, data_dir: Path) -> Table:
    """A split of a data set, with missing cells."""
    with np.load(data_dir / f"{name}.npz") as archive:
        x, y = archive["x"].astype(float), archive["y"].astype(float).reshape(len(archive["x"]), -1)[:, 0]
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(x))
    train, test = order[: min(_ROWS, len(x) * 2 // 3)], order[min(_ROWS, len(x) * 2 // 3) :][:_TEST_ROWS]
    columns, share = (1, 0.2) if "tell" in case else (3, 0.05 if "twentieth" in case else 0.2)
    is_missing = np.zeros(x.shape, dtype=bool)
    is_missing[:, :columns] = generator.uniform(size=(len(x), columns)) < share
    y = (y - y[train].mean()) / y[train].std()
    if "tell" in case:
        y = y + is_missing[:, 0]
    if case == "new rows alone":
        is_missing[train] = False
    frame = pandas.DataFrame(np.where(is_missing, np.nan, x)).rename(columns="x{}".format)
    return Table(frame.iloc[train], y[train], frame.iloc[test], y[test])


def scores(table: Table, predicted: Predicted, rows: np.ndarray) -> dict[str, float]:
    """Errors, coverage, and the mean interval score, which is smaller for better intervals."""
    mean, (low, high), y = predicted[0][rows], predicted[1][rows].T, table.truth[rows]
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return {
        "RMSE": float(np.sqrt(np.mean((y - mean) ** 2))),
        "coverage": float(np.mean(outside == 0.0)),
        "interval score": float(np.mean(high - low + 2.0 / (1.0 - _LEVEL) * outside)),
    }


def main() -> None:
    parser = common.arguments(__doc__ or "", "missing_cells")
    common.add_data_dir(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sets, splits = (SETS[:1], 1) if options.quick else (SETS, _SPLITS)
    records = []
    for case, name, seed in itertools.product(CASES, sets, range(splits)):
        table = table_of(name, case, seed, options.data_dir)
        is_gap = table.new.isna().any(axis=1).to_numpy()
        for model, predict in MODELS.items():
            began = time.process_time()
            predicted = predict(table)
            seconds = time.process_time() - began
            for kind, rows in (("rows with missing cells", is_gap), ("complete rows", ~is_gap)):
                found = scores(table, predicted, rows) | {"seconds": seconds}
                records.append({"case": case, "of": kind, "model": model} | found)
    means = pandas.DataFrame(records).groupby(["case", "of", "model"], sort=False).mean()
    cases: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for (case, kind, model), found in means.to_dict("index").items():
        cases.setdefault(case, {}).setdefault(kind, {})[model] = found
    result = {"environment": common.environment(), "rows": _ROWS, "splits": splits, "means": cases}
    common.write(options.out, result)
    common.show(result)


if __name__ == "__main__":
    main()
