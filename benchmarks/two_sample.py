"""Discrepancies of two samples in linear time: spread over draws of the features, and seconds against quadratic time.

T Table 4.2 has the standard deviation of the kernel inception distance between the training and test images of
CIFAR-10, from 2,048 outputs of an Inception network, over 1,000 draws of features of the kernel (x.y/d + 1)^p. Neither
the images nor the network are here: MNIST takes their place, whose 784 pixels are the features (70,000 rows in all).

    OMP_NUM_THREADS=1 python benchmarks/two_sample.py --data-dir DIR
    python benchmarks/two_sample.py --plot
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from typing import Any

import common
import numpy as np
import torch

from rfgp import plots
from rfgp.two_sample import block_mmd, kernel_inception_distance
from rfgp.two_sample.inception import scaled_inputs_and_kernel

METHODS = {"TensorSketch": "tensor_sketch", "TensorSRHT": "tensor_srht:real", "CtR TensorSRHT": "tensor_srht:ctr"}
PRINTED = {
    3: {
        "TensorSketch": [1.363e-6, 9.639e-7, 7.837e-7, 6.841e-7],
        "TensorSRHT": [1.435e-6, 1.047e-6, 7.869e-7, 6.946e-7],
        "CtR TensorSRHT": [1.312e-6, 8.747e-7, 7.420e-7, 5.941e-7],
    },
    6: {
        "TensorSketch": [6.974e-6, 4.909e-6, 4.015e-6, 3.436e-6],
        "TensorSRHT": [9.476e-6, 6.897e-6, 5.331e-6, 4.871e-6],
        "CtR TensorSRHT": [6.697e-6, 4.856e-6, 3.762e-6, 3.260e-6],
    },
}
"""Standard deviations of T Table 4.2 by degree and method, at D = d, 2d, 3d and 4d for d = 2,048."""


def images(options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """The training and test images, (n, 784) in [0, 1], float32; noise for a quick run."""
    if options.quick:
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.rand(size, 64, generator=generator) for size in (400, 200))
        return x, y + 0.05
    with np.load(options.data_dir / "mnist.npz") as archive:
        arrays = [archive[key] for key in ("x_train", "x_test")]
    x, y = (torch.from_numpy(np.ascontiguousarray(a)).reshape(len(a), -1).float() / 255.0 for a in arrays)
    return x, y


def spread(x: torch.Tensor, y: torch.Tensor, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The standard deviation over draws of the features, with processor seconds of a draw."""
    cells = []
    for degree in (3, 6):
        for name, method in METHODS.items():
            for multiple in (1, 2, 3, 4):
                start, values = time.process_time(), []
                for seed in range(options.draws):
                    found = kernel_inception_distance(
                        x, y, degree=degree, num_features=multiple * x.shape[1], method=method, seed=seed
                    )
                    values.append(found.squared)
                cells.append(
                    {
                        "degree": degree,
                        "method": name,
                        "multiple": multiple,
                        "std": statistics.stdev(values),
                        "mean": statistics.mean(values),
                        "sampling_error": found.standard_error,
                        "seconds": (time.process_time() - start) / options.draws,
                    }
                )
                print(cells[-1], flush=True)
    return cells


def blocks(x: torch.Tensor, y: torch.Tensor, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The baseline of T: the spread of the distance of a subset of either sample."""
    cells = []
    for degree in (3, 6):
        for size in (50, 100) if options.quick else (100, 1000, 5000):
            scaled = scaled_inputs_and_kernel(x, y, degree, 1.0)
            count = 4 if options.quick else {100: 100, 1000: 50, 5000: 10}[size]
            start = time.process_time()
            found = block_mmd(*scaled, block_size=size, num_blocks=count)
            seconds = (time.process_time() - start) / count
            std = found.standard_error * math.sqrt(count)
            cells.append({"degree": degree, "size": size, "std": std, "mean": found.squared, "seconds": seconds})
            print(cells[-1], flush=True)
    return cells


def against_quadratic(x: torch.Tensor, y: torch.Tensor, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Processor seconds of the exact distance of n rows each, and of the linear one with D = d features."""
    cells = []
    for size in (100, 200) if options.quick else (5000, 10000, 20000):
        some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        a, b = x[some[:size]], x[some[size : 2 * size]]
        kernel_inception_distance(a[:100], b[:100], num_features=x.shape[1], seed=0)
        seconds = {}
        for name, count in (("linear", x.shape[1]), ("quadratic", None)):
            start = time.process_time()
            kernel_inception_distance(a, b, num_features=count, seed=0)
            seconds[name] = time.process_time() - start
        cells.append({"rows": size, **seconds, "ratio": seconds["quadratic"] / seconds["linear"]})
        print(cells[-1], flush=True)
    return cells


def plot(result: dict[str, Any]) -> Any:
    """Spread against seconds, for both degrees."""
    figure, axes = plots.figure(1, 2)
    for ax, degree in zip(axes[0], (3, 6), strict=True):
        curves = {
            name: [c for c in result["spread"] if (c["degree"], c["method"]) == (degree, name)] for name in METHODS
        }
        curves["blocks of 100 to 5,000 rows"] = [c for c in result["blocks"] if c["degree"] == degree]
        drawn = {n: plots.Curve([c["seconds"] for c in k], [c["std"] for c in k]) for n, k in curves.items()}
        plots.comparison(drawn, xlabel="processor seconds", ylabel="standard deviation of the KID", ax=ax)
        ax.set_title(f"degree {degree}", fontsize="medium")
    plots.legend(figure, list(axes[0]))
    return figure


def main() -> None:
    parser = common.arguments(__doc__.splitlines()[0], "two_sample")
    common.add_data_dir(parser, required=False)
    common.add_plot(parser)
    parser.add_argument("--draws", type=int, default=1000, help="draws of the features (default: %(default)s)")
    options = parser.parse_args()
    if options.plot:
        common.save_figure(plot(json.loads(options.out.read_text())), options.out)
        return
    if options.quick:
        options.draws = 5
    elif options.data_dir is None:
        parser.error("the following arguments are required: --data-dir")
    torch.set_grad_enabled(False)
    x, y = images(options)
    result: dict[str, Any] = {"environment": common.environment(), "draws": options.draws, "printed": PRINTED}
    result["speed"] = against_quadratic(x, y, options)
    result["blocks"] = blocks(x, y, options)
    result["spread"] = spread(x, y, options)
    common.write(options.out, result)


if __name__ == "__main__":
    main()
