"""T Fig. 5.6: distances of centered unit rows, and the errors of optimized Maclaurin features and SRF, D = 5d."""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch.nn.functional import normalize, pad

from rfgp.study import datasets

from .item import Claim, Options
from .thesis_5_04 import errors


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    rows, seeds = (100, 2) if options.quick else (1000, 6)
    found = {}
    for name in ("diabetes",) if options.quick else ("kin8nm", "protein"):
        data = datasets.load(name, options.data_dir)
        mean = data.x_train.mean(0)
        dim = 1 << (mean.numel() - 1).bit_length()
        order = torch.randperm(len(data.x_train), generator=torch.Generator().manual_seed(0))[:rows]
        parts = data.x_train[order], data.x_test[:rows]
        train, test = (pad(normalize(part - mean, dim=-1), (0, dim - mean.numel())).float() for part in parts)
        distance = torch.pdist(test)
        cell: dict[str, Any] = {"below 0.5": float((distance < 0.5).float().mean()), "median": float(distance.median())}
        for method in ("optimized_maclaurin:real", "spherical_hadamard"):
            cell[method] = errors(method, 20, 5 * dim, (train, test), seeds)
        found[name] = cell
    return {"cells": found}


def claims(result: dict[str, Any]) -> list[Claim]:
    found = []
    for name, cell in result["cells"].items():
        own, other = (statistics.fmean(cell[m]) for m in ("optimized_maclaurin:real", "spherical_hadamard"))
        is_close = name == "protein"
        shown = f"{own:.3f} against {other:.3f}; {100 * cell['below 0.5']:.0f} % of the distances below 0.5"
        printed = (
            "SRF Orth. is more accurate, distances concentrate around 0" if is_close else "Opt. Macl. is more accurate"
        )
        found.append(Claim(f"{name}: {printed}", shown, other < own if is_close else own < other))
    return found


CLAIMS = {"T Fig. 5.6": claims}
