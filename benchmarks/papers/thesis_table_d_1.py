"""T Table D.1: MNLL and kernel error of SRF and optimized Maclaurin features, centered and not, p = 20, D = 5d.

Rows are raw, centered or not, and then of unit norm, and targets have their mean taken off. The noise variance is that
of the largest validation likelihood of SRF, from 2^-15 to 2^15, and serves both, as in T 5.4.1.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rfgp.features import SphericalFourier
from rfgp.features.allocation import optimized_maclaurin
from rfgp.study import datasets

from .item import Claim, Options

DEGREE, A = 20, 4.0
SETS = ("concrete", "energy", "kin8nm", "powerplant", "protein", "yacht")
METHODS = ("SRF", "Opt. Macl.")


class Printed(NamedTuple):
    """MNLL of SRF and of Opt. Macl., then their kernel errors, with deviations over ten splits."""

    mnll: tuple[tuple[float, float], tuple[float, float]]
    error: tuple[tuple[float, float], tuple[float, float]]


PRINTED = {
    "concrete/as it is": Printed(((3.779, 0.07), (3.811, 0.04)), ((0.019, 0.01), (0.276, 0.17))),
    "concrete/centered": Printed(((3.660, 0.12), (3.542, 0.07)), ((0.610, 0.07), (0.482, 0.03))),
    "energy/as it is": Printed(((6.090, 0.12), (6.090, 0.12)), ((0.003, 0.00), (0.222, 0.14))),
    "energy/centered": Printed(((5.116, 0.20), (5.012, 0.13)), ((0.507, 0.08), (0.484, 0.05))),
    "kin8nm/as it is": Printed(((-0.203, 0.07), (-0.310, 0.03)), ((0.946, 0.04), (0.525, 0.04))),
    "kin8nm/centered": Printed(((-0.203, 0.07), (-0.323, 0.03)), ((0.947, 0.03), (0.521, 0.03))),
    "powerplant/as it is": Printed(((3.064, 0.03), (3.061, 0.06)), ((0.001, 0.00), (0.062, 0.04))),
    "powerplant/centered": Printed(((3.282, 0.14), (3.400, 0.73)), ((0.609, 0.09), (0.527, 0.10))),
    "protein/as it is": Printed(((3.233, 0.01), (3.233, 0.01)), ((0.000, 0.00), (0.002, 0.00))),
    "protein/centered": Printed(((3.072, 0.02), (3.060, 0.02)), ((0.277, 0.05), (0.429, 0.14))),
    "yacht/as it is": Printed(((4.317, 0.45), (4.478, 0.45)), ((0.028, 0.01), (0.276, 0.11))),
    "yacht/centered": Printed(((3.773, 0.21), (3.844, 0.28)), ((0.512, 0.04), (0.484, 0.03))),
}


def feature_map(method: str, x: Tensor, width: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    if method == "SRF":
        return SphericalFourier(x.shape[-1], width, DEGREE, A, generator=generator, dtype=torch.float64)
    binomial = [math.comb(DEGREE, n) * 0.125**n * 0.875 ** (DEGREE - n) for n in range(11)]
    options: dict[str, Any] = {"form": "real", "sketch": "rademacher", "min_degree": 2, "generator": generator}
    kernel = lambda inner: (0.875 + 0.125 * inner) ** DEGREE  # noqa: E731
    return optimized_maclaurin(x, width, torch.tensor(binomial), function=kernel, dtype=torch.float64, **options)


def mnll(phi: Tensor, y: Tensor, phi_test: Tensor, y_test: Tensor, noises: Tensor) -> list[float]:
    """The mean negative log likelihood for every noise variance, from one eigendecomposition."""
    values, vectors = torch.linalg.eigh(phi.mT @ phi)
    right, rows = vectors.mT @ (phi.mT @ y), phi_test @ vectors
    found = []
    for noise in noises:
        share = 1.0 / (values.clamp_min(0.0) + noise)
        mean, variance = rows @ (share * right), noise * (rows.square() @ share) + noise
        found.append(float(0.5 * (torch.log(2.0 * math.pi * variance) + (y_test - mean).square() / variance).mean()))
    return found


def scores(name: str, center: bool, seed: int, options: Options) -> dict[str, float]:
    data = datasets.load("diabetes" if options.quick else name, options.data_dir)
    x, y = torch.cat([data.x_train, data.x_test]), torch.cat([data.y_train, data.y_test])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    cut = int(0.9 * len(x))
    train, test = order[:cut], order[cut:]
    mean = x[train].mean(0) if center else torch.zeros(())
    unit = normalize(x - mean, dim=-1)
    y, scale = y - y[train].mean(), float(y[train].std())
    width = 5 * (1 << (x.shape[-1] - 1).bit_length())
    noises = 2.0 ** torch.arange(-15, 16, dtype=torch.float64)
    inner = int(0.9 * cut)
    sample = unit[test][:500]
    exact = (0.875 + 0.125 * sample @ sample.mT) ** DEGREE
    found: dict[str, float] = {}
    chosen = None
    for method in METHODS:
        features = feature_map(method, unit[train][:2000], width, seed)
        phi = scale * features(unit)
        if chosen is None:
            part, held = train[:inner], train[inner:]
            likelihoods = mnll(phi[part], y[part], phi[held], y[held], noises)
            chosen = noises[likelihoods.index(min(likelihoods))].reshape(1)
        found[f"{method}/mnll"] = mnll(phi[train], y[train], phi[test], y[test], chosen)[0]
        rows = features(sample)
        found[f"{method}/error"] = float(torch.linalg.norm(rows @ rows.mT - exact) / torch.linalg.norm(exact))
    return found


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    seeds = 1 if options.quick else 5
    cells = {
        f"{name}/{label}": [scores(name, label == "centered", seed, options) for seed in range(seeds)]
        for name in (SETS[:1] if options.quick else SETS)
        for label in ("as it is", "centered")
    }
    return {"cells": cells}


def claims(result: dict[str, Any]) -> list[Claim]:
    """Values within three standard errors of the difference, and the effect of centering."""
    found, lower = [], []
    for key, records in result["cells"].items():
        for kind in ("mnll", "error"):
            printed = getattr(PRINTED[key], kind)
            means, is_close = [], True
            for method, (mean, deviation) in zip(METHODS, printed, strict=True):
                values = [record[f"{method}/{kind}"] for record in records]
                own = statistics.stdev(values) if len(values) > 1 else math.inf
                means.append(statistics.fmean(values))
                error = math.hypot(own / math.sqrt(len(values)), max(deviation, 0.005) / math.sqrt(10.0))
                is_close &= abs(means[-1] - mean) <= 3.0 * error
            label = "MNLL" if kind == "mnll" else "kernel error"
            shown = ", ".join(f"{mean} ± {deviation}" for mean, deviation in printed)
            found.append(
                Claim(f"{key}, {label} of SRF, Opt. Macl.: {shown}", ", ".join(f"{m:.3f}" for m in means), is_close)
            )
    for name in dict.fromkeys(key.split("/")[0] for key in result["cells"]):
        before, after = (
            statistics.fmean(min(r[f"{m}/mnll"] for m in METHODS) for r in result["cells"][f"{name}/{label}"])
            for label in ("as it is", "centered")
        )
        lower.append(after < before)
    shown = f"for {sum(lower)} of {len(lower)} sets"
    return [*found, Claim("centering improves the MNLL on most data sets", shown, 2 * sum(lower) > len(lower))]


CLAIMS = {"T Table D.1": claims}
