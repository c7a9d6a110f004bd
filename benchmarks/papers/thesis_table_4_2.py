"""T Table 4.2 and Fig. 4.11: spread of the kernel inception distance over draws of its features, and its seconds.

The thesis has the training and test images of CIFAR-10 as 2,048 outputs of an Inception network. Neither the images nor
the network are here: the 784 pixels of MNIST take their place for the spread, and normal numbers of the size of the
thesis for the seconds, which do not depend on values.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import torch
from torch import Tensor

from rfgp import approximate
from rfgp.diagnostics.two_sample import block_mmd, kernel_inception_distance
from rfgp.diagnostics.two_sample.discrepancy import scaled_inputs_and_kernel, squared
from rfgp.diagnostics.two_sample.sums import pair_sums
from rfgp.study import plots

from .. import common
from .data import unit_rows
from .item import Claim, Options

METHODS = {"TensorSketch": "tensor_sketch", "TensorSRHT": "tensor_srht:real", "CtR TensorSRHT": "tensor_srht:ctr"}
MULTIPLES = (1, 2, 3, 4)
PRINTED = {
    (3, "TensorSketch"): (1.363e-6, 9.639e-7, 7.837e-7, 6.841e-7),
    (3, "TensorSRHT"): (1.435e-6, 1.047e-6, 7.869e-7, 6.946e-7),
    (3, "CtR TensorSRHT"): (1.312e-6, 8.747e-7, 7.420e-7, 5.941e-7),
    (6, "TensorSketch"): (6.974e-6, 4.909e-6, 4.015e-6, 3.436e-6),
    (6, "TensorSRHT"): (9.476e-6, 6.897e-6, 5.331e-6, 4.871e-6),
    (6, "CtR TensorSRHT"): (6.697e-6, 4.856e-6, 3.762e-6, 3.260e-6),
}
"""Standard deviations of the table at D = d, 2d, 3d and 4d."""


def measure(options: Options) -> dict[str, Any]:
    """Spreads by degree, method and width; of subsets; seconds in linear and in quadratic time."""
    rows, draws, size = (150, 8, 200) if options.quick else (2000, 40, 20_000)
    x, _, y, _ = unit_rows("mnist", options)
    root = math.sqrt(x.shape[-1])
    x, y = root * x[:rows], root * y[:rows]  # entries of the order of one, as the outputs of a network
    result: dict[str, Any] = {"rows": rows, "draws": draws, "size": size, "spread": [], "blocks": []}
    for degree in (3, 6):
        a, b, kernel = scaled_inputs_and_kernel(x, y, degree, 1.0)
        for name, method in METHODS.items():
            for multiple in MULTIPLES:
                start, width = time.process_time(), multiple * x.shape[-1]
                values = [
                    squared(pair_sums(approximate(kernel, width, input_dim=x.shape[-1], method=method, seed=s), a, b))
                    for s in range(draws)
                ]
                seconds = (time.process_time() - start) / draws
                cell = {"degree": degree, "method": name, "multiple": multiple, "seconds": seconds}
                result["spread"].append(cell | {"std": statistics.stdev(values), "mean": statistics.mean(values)})
        for block in (20, 40) if options.quick else (100, 1000):
            start, count = time.process_time(), 20
            found = block_mmd(a, b, kernel, block_size=block, num_blocks=count)
            seconds = (time.process_time() - start) / count
            std = found.standard_error * math.sqrt(count)
            result["blocks"].append({"degree": degree, "block": block, "std": std, "seconds": seconds})
    result["speed"] = _speed(size, 64 if options.quick else 2048)
    return result


def _speed(size: int, dim: int) -> dict[str, float]:
    """Processor seconds of the distance with as many features as columns, with a quarter of it, and exact."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(size, dim, generator=generator) for _ in range(2))
    kernel_inception_distance(x[:50], y[:50], num_features=dim, seed=0)
    found = {}
    for name, width in (("D = d", dim), ("D = d/4", dim // 4), ("exact", None)):
        found[name] = _seconds(x, y, width)
    return found


def _seconds(x: Tensor, y: Tensor, width: int | None) -> float:
    start = time.process_time()
    kernel_inception_distance(x, y, num_features=width, seed=0)
    return time.process_time() - start


def _stds(result: dict[str, Any], degree: int, method: str) -> list[float]:
    return [c["std"] for c in result["spread"] if (c["degree"], c["method"]) == (degree, method)]


def table_claims(result: dict[str, Any]) -> list[Claim]:
    """The order of the methods, the fall with D, and the ratios of the table; 40 draws know a spread to 11 %."""
    error = 1.0 / math.sqrt(2.0 * (result["draws"] - 1))
    found = []
    for degree in (3, 6):
        ctr, others = _stds(result, degree, "CtR TensorSRHT"), ("TensorSketch", "TensorSRHT")
        ratios = {name: [s / c for s, c in zip(_stds(result, degree, name), ctr, strict=True)] for name in others}
        printed = {
            name: [s / c for s, c in zip(PRINTED[degree, name], PRINTED[degree, "CtR TensorSRHT"], strict=True)]
            for name in others
        }
        for name in others:
            ours, theirs = (statistics.geometric_mean(r[name]) for r in (ratios, printed))
            apart = abs(math.log(ours / theirs)) / (error * math.sqrt(2.0 / len(MULTIPLES)))
            text = f"p = {degree}: {name} over CtR TensorSRHT, in the mean of four widths: {theirs:.2f}"
            found.append(Claim(text, f"{ours:.2f}, {apart:.1f} standard errors apart", apart < 3.0))
        fall = ctr[0] / ctr[-1]
        theirs = PRINTED[degree, "CtR TensorSRHT"][0] / PRINTED[degree, "CtR TensorSRHT"][-1]
        holds = abs(math.log(fall / theirs)) < 3.0 * error * math.sqrt(2.0)
        text = f"p = {degree}: from D = d to 4d the spread of CtR falls {theirs:.2f} times"
        found.append(Claim(text, f"{fall:.2f}", holds))
    return found


def figure_claims(result: dict[str, Any]) -> list[Claim]:
    """Sketches against averages over blocks, in the same seconds, and linear against quadratic time."""
    found = []
    for degree in (3, 6):
        block = max((b for b in result["blocks"] if b["degree"] == degree), key=lambda b: b["block"])
        near = min(
            (c for c in result["spread"] if c["degree"] == degree and c["method"] == "CtR TensorSRHT"),
            key=lambda c: abs(math.log(c["seconds"] / block["seconds"])),
        )
        ratio = block["std"] / near["std"] * math.sqrt(block["seconds"] / near["seconds"])
        text = f"p = {degree}: about ten times lower spread than Block-MMD in the same seconds"
        found.append(Claim(text, f"{ratio:.1f} times", ratio > 3.0))
    speed = result["speed"]
    text = f"linear instead of quadratic time (n = {result['size']:,})"
    ours = ", ".join(f"{name}: {speed['exact'] / speed[name]:.1f} times faster" for name in ("D = d", "D = d/4"))
    found.append(Claim(text, ours, speed["exact"] > speed["D = d"]))
    return found


def draw(result: dict[str, Any], path: Any) -> None:
    """Spread against seconds, for both degrees."""
    figure, axes = plots.figure(1, 2)
    for ax, degree in zip(axes[0], (3, 6), strict=True):
        cells = {n: [c for c in result["spread"] if (c["degree"], c["method"]) == (degree, n)] for n in METHODS}
        cells["subsets"] = [c for c in result["blocks"] if c["degree"] == degree]
        curves = {n: plots.Curve([c["seconds"] for c in k], [c["std"] for c in k]) for n, k in cells.items()}
        plots.comparison(curves, xlabel="processor seconds", ylabel="standard deviation of the KID", ax=ax)
        ax.set_title(f"degree {degree}", fontsize="medium")
    plots.legend(figure, list(axes[0]))
    common.save_figure(figure, path)


CLAIMS = {"T Table 4.2": table_claims, "T Fig. 4.11": figure_claims}
