"""Five messy tables as people have them, by ``TableModel.fit`` with defaults, beside a linear model and boosting.

The tables are simulated, so that all of them can be shipped: sales with text for order numbers, prices with "$",
discounts with "%", 120 shops and gaps; customers who stay, leave or pause; sensors with semicolons, decimal commas and
gaps; houses with 300 postal codes, "1,204 EUR" and "m²"; and two targets of which a fifth is missing each. They are
written to files and read as ``rfgp fit`` reads them. Seconds are those of the clock. Boosting is scikit-learn's with
its defaults, of the same held-out rows; text of many values has the means of the target for it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from common import arguments, environment, show, write
from numpy.random import Generator

from rfgp.study import tables

Frame = pandas.DataFrame


def sales(rng: Generator, num_rows: int = 1500) -> Frame:
    """Turnovers of shops, with effects of shops and seasons, and multiplicative noise."""
    dates = pandas.date_range("2022-01-01", periods=num_rows, freq="12h")
    shop, effects = rng.integers(120, size=num_rows), rng.normal(0.0, 0.4, 120)
    price, discount = np.exp(rng.normal(3.0, 0.5, num_rows)), rng.integers(0, 40, num_rows)
    logs = 3.0 + 0.5 * np.sin(2.0 * np.pi * dates.month / 12.0) + 0.3 * (dates.day_of_week >= 5) + effects[shop]
    logs = logs - 0.3 * np.log(price) + 0.01 * discount + 0.3 * rng.normal(size=num_rows)
    frame = Frame(
        {
            "order": [f"A-{number:09d}" for number in rng.integers(10**9, size=num_rows)],
            "date": dates.strftime("%Y-%m-%d %H:%M"),
            "shop": [f"S{number:03d}" for number in shop],
            "price": [f"${value:,.2f}" for value in price],
            "discount": [f"{value} %" for value in discount],
            "region": rng.choice(list("NESW"), num_rows),
            "turnover": np.exp(logs).round(2),
        }
    )
    frame.loc[rng.random(num_rows) < 0.1, "discount"] = ""
    frame.loc[rng.random(num_rows) < 0.05, "region"] = ""
    return frame


def churn(rng: Generator, num_rows: int = 1200) -> Frame:
    """Customers who stay, leave or pause."""
    contract = rng.choice(["month", "year", "two years"], num_rows)
    usage, age = np.exp(rng.normal(2.0, 0.6, num_rows)), rng.integers(18, 80, num_rows)
    scores = np.stack(
        [
            0.8 * (contract == "month") + 0.3 * np.log(usage),
            0.02 * (age - 40) + 0.5 * (contract == "year"),
            0.1 * rng.normal(size=num_rows),
        ],
        axis=1,
    )
    status = (1.5 * scores + rng.gumbel(size=scores.shape)).argmax(1)
    since = pandas.Timestamp("2018-01-01") + pandas.to_timedelta(rng.integers(0, 1500, num_rows), "D")
    frame = Frame(
        {
            "customer": [f"C{number:06d}" for number in rng.permutation(num_rows)],
            "since": since.strftime("%d.%m.%Y"),
            "contract": contract,
            "usage": [f"{value:.1f} GB" for value in usage],
            "age": age.astype(str),
            "status": np.array(["stays", "leaves", "pauses"])[status],
        }
    )
    frame.loc[rng.random(num_rows) < 0.08, "age"] = "unknown"
    return frame


def sensors(rng: Generator, num_rows: int = 2000) -> Frame:
    """Half-hourly measurements with gaps, by the hour and the day of the week."""
    time_of = pandas.date_range("2024-03-01", periods=num_rows, freq="30min")
    hour = np.asarray(time_of.hour + time_of.minute / 60.0)
    wave = np.sin(2.0 * np.pi * (hour - 9.0) / 24.0)
    frame = Frame(
        {
            "time": time_of,
            "temp": 15.0 + 6.0 * wave + rng.normal(0.0, 0.5, num_rows),
            "humidity": 60.0 - 10.0 * wave + rng.normal(0.0, 3.0, num_rows),
            "station": rng.choice(["north", "south"], num_rows),
        }
    )
    logs = 2.5 + 0.4 * np.cos(4.0 * np.pi * (hour - 8.0) / 24.0) + 0.2 * (time_of.day_of_week < 5)
    frame["no2"] = np.exp(logs - 0.02 * frame["temp"] + 0.25 * rng.normal(size=num_rows)).round(1)
    frame.loc[300:420, "temp"] = np.nan
    frame.loc[rng.random(num_rows) < 0.1, "humidity"] = np.nan
    frame.loc[rng.random(num_rows) < 0.03, "no2"] = np.nan
    return frame


def houses(rng: Generator, num_rows: int = 3000) -> Frame:
    """Prices of houses in 300 postal codes."""
    code, effects = rng.integers(300, size=num_rows), rng.normal(0.0, 0.3, 300)
    area, year = rng.uniform(40.0, 250.0, num_rows), rng.integers(1900, 2020, num_rows)
    logs = 11.0 + effects[code] + 0.8 * np.log(area / 100.0) + 0.002 * (year - 1960)
    price = np.exp(logs + 0.15 * rng.normal(size=num_rows))
    return Frame(
        {
            "id": range(1, num_rows + 1),
            "zip": [f"{10000 + 37 * number}" for number in code],
            "area": [f"{value:.0f} m²" for value in area],
            "year": year,
            "heating": rng.choice(["gas", "oil", "pump", ""], num_rows),
            "price": [f"{value:,.0f} EUR" for value in price],
        }
    )


def two_targets(rng: Generator, num_rows: int = 500) -> Frame:
    """Two properties of samples, of which a fifth is missing each."""
    x = rng.uniform(size=(num_rows, 4))
    frame = Frame(x, columns=list("abcd"))
    frame["strength"] = np.sin(5.0 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=num_rows)
    frame["weight"] = frame["strength"] ** 2 + x[:, 2] + 0.1 * rng.normal(size=num_rows)
    for name in ("strength", "weight"):
        frame.loc[rng.random(num_rows) < 0.2, name] = np.nan
    return frame


TABLES: dict[str, tuple[Callable[..., Frame], str, dict[str, str]]] = {
    "sales": (sales, "turnover", {}),
    "churn": (churn, "status", {}),
    "sensors": (sensors, "no2", {"sep": ";", "decimal": ","}),
    "houses": (houses, "price", {}),
    "two targets": (two_targets, "strength,weight", {}),
}


def case(name: str, folder: Path, seed: int, num_rows: int | None) -> list[dict[str, Any]]:
    """The scores of one table, a row for each target."""
    make, target, options = TABLES[name]
    rng = np.random.default_rng(seed)
    frame = make(rng) if num_rows is None else make(rng, num_rows)
    path = folder / f"{name}.csv"
    frame.to_csv(path, index=False, **options)
    began = time.perf_counter()
    model = tables.TableModel.fit(tables.read(path, target), seed=seed)
    seconds = time.perf_counter() - began
    print(f"{name}, seed {seed}\n{model.report()}\n", flush=True)
    scores = model.scores
    others = {other.name: other for other in scores.others}
    return [
        {
            "table": name,
            "target": of_target,
            "seed": seed,
            "seconds": seconds,
            "error": scores.error[place],
            "linear": others["linear"].error[place],
            "boosting": others["boosting"].error[place],
            "nlpd": scores.nlpd[place],
            "boosting_nlpd": others["boosting"].nlpd[place] if others["boosting"].nlpd else None,
            "coverage": scores.coverage[place] if scores.coverage else None,
            "quarters": list(scores.quarters[place]) if scores.quarters else None,
        }
        for place, of_target in enumerate(model.target_names)
    ]


def claims(result: dict[str, Any]) -> dict[str, float]:
    """The least and the most error in errors of boosting, of all tables, and of those with groups of rows."""
    found = {}
    for name, chosen in (("", TABLES), (" with groups", ("sales", "houses"))):
        ratios = [row["error"] / row["boosting"] for row in result["rows"] if row["table"] in chosen]
        if ratios:
            found |= {f"least error to boosting{name}": min(ratios), f"most error to boosting{name}": max(ratios)}
    return found


def main() -> None:
    parser = arguments(__doc__, "messy_tables")
    parser.add_argument("--seeds", type=int, default=3, help="the number of tables of each kind (default: %(default)s)")
    parser.add_argument("--only", choices=tuple(TABLES), help="one kind of table (default: all)")
    options = parser.parse_args()
    names = [options.only] if options.only else list(TABLES)
    seeds, num_rows = (1, 200) if options.quick else (options.seeds, None)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for name in names for seed in range(seeds) for row in case(name, Path(folder), seed, num_rows)]
    result: dict[str, Any] = {"environment": environment(), "rows": rows}
    result["claims"] = claims(result)
    write(options.out, result)
    show(result)


if __name__ == "__main__":
    main()
