"""T Fig. 3.3: variance of complex over that of real TensorSRHT (stacked, D = d), for pairs of unit rows."""

from __future__ import annotations

from typing import Any

from torch.nn.functional import pad

from .data import some, unit_rows
from .item import Claim, Options
from .variance_ratios import summary, variances


def measure(options: Options) -> dict[str, Any]:
    count = 60 if options.quick else 1000
    found = {}
    x = some(unit_rows("mnist", options)[0], count)
    dim = 1 << (x.shape[-1] - 1).bit_length()
    x = pad(x, (0, dim - x.shape[-1]))
    for degree in (2, 3) if options.quick else (2, 3, 5, 7, 10):
        own, real = (variances("tensor_srht_stacked", form, dim, degree, x) for form in ("complex", "real"))
        kept = real > 0.0
        found[str(degree)] = summary(own[kept] / real[kept])
    return {"rows": count, "cells": found}


def claims(result: dict[str, Any]) -> list[Claim]:
    shares = {key: 100.0 * cell["below 1"] for key, cell in result["cells"].items()}
    medians = [cell["median"] for cell in result["cells"].values()]
    return [
        Claim(
            "97.8 % of the ratios of MNIST are below 1",
            ", ".join(f"{share:.1f} % (p = {p})" for p, share in shares.items()),
            any(abs(share - 97.8) < 1.0 for share in shares.values()),
        ),
        Claim(
            "ratios tend to be smaller for larger p",
            f"medians {', '.join(f'{m:.2g}' for m in medians)}",
            medians == sorted(medians, reverse=True),
        ),
    ]


CLAIMS = {"T Fig. 3.3": claims}
