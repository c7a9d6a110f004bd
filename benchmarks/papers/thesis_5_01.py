"""T Fig. 5.1: variance and bias of Maclaurin features against the degree, real Gaussian sketch of one column."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from rfgp.features import polynomial_sketch
from rfgp.study import datasets

from .item import Claim, Options

DEGREE = 20


def terms(x: Tensor, coefficients: list[float], exact: Tensor, envelope: Tensor) -> tuple[list[float], list[float]]:
    """Variance of the term of every degree from 1 on, and the squared bias of the series up to it."""
    off = ~torch.eye(len(x), dtype=torch.bool)
    inner = x @ x.mT
    variances, biases, series = [], [], coefficients[0] * envelope
    for n, a in enumerate(coefficients[1:], 1):
        sketch = polynomial_sketch(
            "gaussian", "real", x.shape[-1], 1, n, torch.Generator().manual_seed(0), torch.float64
        )
        moments = sketch.moments(x, x)
        assert moments is not None
        variances.append(float((a**2 * envelope.square() * moments.variance)[off].mean()))
        series = series + a * envelope * inner**n
        biases.append(float((exact - series)[off].square().mean()))
    return variances, biases


def measure(options: Options) -> dict[str, Any]:
    rows, repeats = (60, 2) if options.quick else (500, 100)
    data = datasets.load("digits" if options.quick else "fashion_mnist", options.data_dir).x_train
    data = data / data.max()
    data = data - data.mean(0)
    found: dict[str, Any] = {"rows": rows, "polynomial": [], "gaussian": []}
    binomial = [math.comb(DEGREE, n) * 0.125**n * 0.875 ** (DEGREE - n) for n in range(DEGREE + 1)]
    for seed in range(repeats):
        x = data[torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:rows]]
        unit = torch.nn.functional.normalize(x, dim=-1)
        kernel = (0.875 + 0.125 * unit @ unit.mT) ** DEGREE
        found["polynomial"].append(terms(unit, binomial, kernel, torch.ones_like(kernel)))
        scaled = x / torch.pdist(x).median()
        half = torch.exp(-0.5 * scaled.square().sum(-1))
        envelope = half[:, None] * half
        kernel = torch.exp(-0.5 * torch.cdist(scaled, scaled).square())
        found["gaussian"].append(terms(scaled, [1.0 / math.factorial(n) for n in range(11)], kernel, envelope))
    for name in ("polynomial", "gaussian"):
        values = torch.tensor(found[name], dtype=torch.float64)
        found[name] = {"mean": values.mean(0).tolist(), "std": values.std(0).tolist()}
    return found


def claims(result: dict[str, Any]) -> list[Claim]:
    variance, bias, spreads = {}, {}, []
    for name in ("polynomial", "gaussian"):
        variance[name], bias[name] = result[name]["mean"]
        spreads.extend(a / b for a, b in zip(result[name]["std"][0], variance[name], strict=True))
    first, later = variance["polynomial"][:3], variance["polynomial"][3:]
    similar = max(first) / min(first)
    falls = [a / b for a, b in pairwise(later)]
    decay = {name: [a / b for a, b in pairwise(v)] for name, v in bias.items()}
    gaussian = [a / b for a, b in pairwise(variance["gaussian"])]
    return [
        Claim(
            "polynomial: variances up to n = 3 of similar magnitude",
            f"largest / smallest {similar:.1f}",
            similar < 10.0,
        ),
        Claim("polynomial: exponential decay beyond", f"by {min(falls):.1f} or more per degree", min(falls) > 1.0),
        Claim(
            "Gaussian: variance and bias decay exponentially",
            f"variance by {min(gaussian):.1f}, bias by {min(decay['gaussian']):.1f} or more per degree",
            min(gaussian) > 1.0 and min(decay["gaussian"]) > 1.0,
        ),
        Claim(
            "polynomial: bias decays exponentially",
            f"by {min(decay['polynomial'][:10]):.1f} or more per degree up to 10",
            min(decay["polynomial"][:10]) > 1.0,
        ),
        Claim(
            "standard deviations over subsamples are relatively small",
            f"at most {100 * max(spreads):.0f} % of the variances",
            max(spreads) < 0.5,
        ),
    ]


CLAIMS = {"T Fig. 5.1": claims}
