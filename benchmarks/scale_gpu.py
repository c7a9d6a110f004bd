"""A GPU against its own floors: bandwidth and products, then features, fit and prediction in rows per second.

Without a GPU nothing is measured or written; ``--device cpu`` measures the same on the processor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import common
import gpytorch
import torch

import rfgp

DIMS, REPEATS = 8, 5
SIZES = {"numbers": 2**28, "matrix": 8192, "rows": 10**6, "features": 1024}
QUICK = {"numbers": 2**22, "matrix": 512, "rows": 10**4, "features": 128}
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def seconds(function: Callable[[], Any], device: torch.device) -> float:
    """The least of several runs after a first one, each until the device has finished."""
    found = []
    for _ in range(1 + REPEATS):
        finish(device)
        start = time.perf_counter()
        function()
        finish(device)
        found.append(time.perf_counter() - start)
    return min(found[1:])


def finish(device: torch.device) -> None:
    """Wait for what the device still does."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def floors(sizes: dict[str, int], dtype: torch.dtype, device: torch.device) -> dict[str, float]:
    """Bandwidth of a copy, in GB read and written per second, and products of square matrices, in GFLOP per second."""
    source = torch.ones(sizes["numbers"] * 4 // dtype.itemsize, dtype=dtype, device=device)
    target = torch.empty_like(source)
    copied = 2e-9 * source.nbytes / seconds(lambda: target.copy_(source), device)
    left, right = (torch.randn(sizes["matrix"], sizes["matrix"], dtype=dtype, device=device) for _ in range(2))
    product = 2e-9 * sizes["matrix"] ** 3 / seconds(lambda: left @ right, device)
    return {"copy GB/s": copied, "product GFLOP/s": product}


@torch.no_grad()
def model_rates(sizes: dict[str, int], dtype: torch.dtype, device: torch.device) -> dict[str, float]:
    """Rows per second of features, of a fit and of predictions, and the share of the fit that its Gram product takes.

    Gram products of float32 features are in float32 here, as the noise allows it, and their sums in float64.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(sizes["rows"], DIMS, generator=generator, dtype=torch.float64)
    y = torch.sin(x.sum(-1)) + 0.3 * torch.randn(len(x), generator=generator, dtype=torch.float64)
    x, y = x.to(device, dtype), y.to(device, dtype)
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).to(device, dtype)
    exact.base_kernel.lengthscale = 3.0
    kernel = rfgp.approximate(exact, sizes["features"], input_dim=DIMS, seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().to(device, dtype))
    chunk = x[: min(len(x), 8192)]
    features = kernel.features(chunk)
    rates = {
        "features": len(chunk) / seconds(lambda: kernel.features(chunk), device),
        "Gram product": len(chunk) / seconds(lambda: features.mT @ features, device),
        "fit": len(x) / seconds(lambda: model.condition(x, y), device),
        "mean": len(x) / seconds(lambda: model.posterior(x).mean, device),
        "mean and variance": len(x) / seconds(lambda: _moments(model, x), device),
    }
    found = {f"{name}, rows/s": rate for name, rate in rates.items()}
    return found | {"fit / (features + Gram product)": _share(rates)}


def _moments(model: rfgp.WeightSpaceGP, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    posterior = model.posterior(x)
    return posterior.mean, posterior.variance


def _share(rates: dict[str, float]) -> float:
    """How many times as long as its features and its Gram product a fit takes."""
    return (1.0 / rates["fit"]) / (1.0 / rates["features"] + 1.0 / rates["Gram product"])


def main() -> None:
    parser = common.arguments(__doc__ or "", "scale_gpu")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("this machine has no GPU that PyTorch can use: nothing measured, nothing written; or use --device cpu")
    sizes = QUICK if options.quick else SIZES
    result: dict[str, Any] = {"environment": common.environment(), "device": str(device), "sizes": sizes, "cells": {}}
    if device.type == "cuda":
        result["gpu"] = torch.cuda.get_device_name(device)
    for name, dtype in DTYPES.items():
        result["cells"][name] = floors(sizes, dtype, device) | model_rates(sizes, dtype, device)
        print(name, {key: float(f"{value:.4g}") for key, value in result["cells"][name].items()}, flush=True)
    common.write(options.out, result)


if __name__ == "__main__":
    main()
