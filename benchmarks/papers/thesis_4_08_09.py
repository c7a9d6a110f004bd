"""Polynomial sketches on MNIST: kernel error, KL to the exact posterior, test error and MNLL against their width.

The kernel is (1/2 + 1/2 x.y)^p on unit-normalized rows, with output scale = variance of the transformed labels. The KL
compares latent marginals of posteriors given the first 5,000 training rows; error and MNLL are for all 60,000.
"""

from __future__ import annotations

import time
from collections import defaultdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import PolynomialKernel, ScaleKernel

import rfgp
from rfgp.diagnostics import classification_mnll, error_rate, exact_posterior, kl_divergence, relative_frobenius_error
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP
from rfgp.study import plots

from ..common import mean_and_error, run_cells, save_figure
from .data import unit_rows
from .item import Claim, Options

METHODS = ("rademacher:real", "rademacher:ctr", "tensor_srht:real", "tensor_srht:ctr", "tensor_sketch:real")
ALPHA = 1e-3


def exact_kernel(power: int, labels: torch.Tensor) -> ScaleKernel:
    """v (1/2 + 1/2 x.y)^p as v 2^-p (1 + x.y)^p."""
    kernel = ScaleKernel(PolynomialKernel(power=power))
    kernel.base_kernel.offset = 1.0
    likelihood = DirichletClassificationLikelihood(labels, ALPHA, dtype=torch.float64)
    kernel.outputscale = float(likelihood.transformed_targets.var()) * 0.5**power
    return kernel


def small_posterior(exact, kernel, likelihood, x, labels, points):
    """Latent marginals given few rows: in weight space, or by the N x N matrix where that is the smaller one."""
    if kernel.num_scalar_features >= len(x):
        plain = ScaleKernel(kernel)  # hides the exact kernel from exact_posterior
        plain.outputscale = 1.0
        return exact_posterior(plain, likelihood, x, labels, points)
    return WeightSpaceGP(kernel, likelihood).condition(x, labels).posterior(points)


def scores(exact, method, width, seed, data, reference, num_exact, num_points):
    """Kernel error, KL, test error and MNLL of a method, and the seconds of features and fit."""
    x, labels, x_test, labels_test = data
    start = time.perf_counter()
    kernel = rfgp.approximate(exact, width, input_dim=x.shape[-1], method=method, seed=seed)
    likelihood = DirichletClassificationLikelihood(num_classes=int(labels.max()) + 1, alpha_epsilon=ALPHA)
    model = WeightSpaceGP(kernel, likelihood).condition(x, labels)
    model.weight_posterior()
    fit_seconds = time.perf_counter() - start
    latent = model.posterior(x_test)
    mnll_rows = slice(0, 2 * num_points)
    probabilities = likelihood.class_probabilities(
        model.posterior(x_test[mnll_rows]), 256, torch.Generator().manual_seed(0)
    )
    record = {
        "frobenius": float(relative_frobenius_error(kernel, x_test[:num_points])),
        "error": float(error_rate(latent.mean.mT, labels_test)),
        "mnll": float(classification_mnll(probabilities, labels_test[mnll_rows])),
        "fit_seconds": fit_seconds,
    }
    del model, latent
    small = small_posterior(exact, kernel, likelihood, x[:num_exact], labels[:num_exact], x_test[:num_points])
    record["kl"] = float(kl_divergence(small, reference).mean())
    return record


def reference_posterior(exact, data, num_exact, num_points):
    """The exact latent marginals given few rows."""
    likelihood = DirichletClassificationLikelihood(num_classes=int(data[1].max()) + 1, alpha_epsilon=ALPHA)
    return exact_posterior(exact, likelihood, data[0][:num_exact], data[1][:num_exact], data[2][:num_points])


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    num_exact, num_points = (100, 50) if options.quick else (5000, 1000)
    data = unit_rows("mnist", options)
    widths = {64: 1} if options.quick else {512: 2, 1024: 2, 2048: 2} | ({4096: 2} if options.full else {})
    reference = cache(lambda power: reference_posterior(exact_kernel(power, data[1]), data, num_exact, num_points))

    def cell(power: int, method: str, width: int, seed: int) -> dict[str, float]:
        exact = exact_kernel(power, data[1])
        return scores(exact, method, width, seed, data, reference(power), num_exact, num_points)

    cells = [
        (f"{power}/{method}/{width}/{seed}", partial(cell, power, method, width, seed))
        for width, seeds in widths.items()
        for power in (3, 6)
        for method in METHODS
        for seed in range(seeds)
    ]
    return run_cells(options, cells, alpha_epsilon=ALPHA, kl_rows=num_exact, kl_points=num_points)


MEASURES = {
    "frobenius": "relative Frobenius error",
    "kl": "KL to the exact posterior",
    "error": "test error",
    "mnll": "test MNLL",
}

Cells = dict[tuple[int, str, int], list[dict[str, float]]]
"""The records of all seeds by degree, method and width."""


def records(result: dict[str, Any]) -> Cells:
    """The records of all seeds of a result."""
    found: Cells = defaultdict(list)
    for key, record in result["cells"].items():
        power, method, width, _ = key.split("/")
        found[int(power), method, int(width)].append(record)
    return found


def along_seeds(found: list[dict[str, float]], measure_name: str) -> tuple[float, float]:
    """The mean over seeds and its standard error."""
    return mean_and_error([record[measure_name] for record in found])


def draw(result: dict[str, Any], out: Path) -> None:
    measured = records(result)
    powers = sorted({key[0] for key in measured})
    methods = list(dict.fromkeys(key[1] for key in measured))
    figure, axes = plots.figure(len(powers), len(MEASURES))
    for row, power in zip(axes, powers, strict=True):
        for ax, (measure, label) in zip(row, MEASURES.items(), strict=True):
            curves = {}
            for method in methods:
                widths = sorted(key[2] for key in measured if key[:2] == (power, method))
                points = [along_seeds(measured[power, method, width], measure) for width in widths]
                means, errors = zip(*points, strict=True) if points else ((), ())
                curves[method] = plots.Curve(widths, means, errors)
            plots.comparison(curves, xlabel="features D", ylabel=label, log_x=2, ax=ax)
            ax.set_title(f"degree {power}", fontsize="medium")
    plots.legend(figure, list(axes.flat), columns=len(methods))
    save_figure(figure, out)


def means(result: dict[str, Any], power: int, measure_name: str) -> dict[tuple[str, int], float]:
    """Means over seeds by method and width, at 2d and 4d, or at all widths of a quick run."""
    found = {key[1:]: along_seeds(value, measure_name)[0] for key, value in records(result).items() if key[0] == power}
    widths = {width for _, width in found}
    kept = widths & {2048, 4096} or widths
    return {key: value for key, value in found.items() if key[1] in kept}


def compared(result: dict[str, Any], power: int, measure_name: str, own: str, other: str) -> tuple[bool, str]:
    """Whether a method has the smaller mean at every width, and the ratios of the means."""
    found = means(result, power, measure_name)
    ratios = {width: found[own, width] / found[other, width] for name, width in found if name == own}
    shown = ", ".join(f"{ratio:.2f} at D = {width:,}" for width, ratio in sorted(ratios.items()))
    return all(ratio < 1.0 for ratio in ratios.values()), shown


def cubic_claims(result: dict[str, Any]) -> list[Claim]:
    """T Fig. 4.8."""
    found = means(result, 3, "frobenius")
    lowest = {width: min((value, name) for (name, w), value in found.items() if w == width)[1] for _, width in found}
    shown = ", ".join(f"{name} at D = {width:,}" for width, name in sorted(lowest.items()))
    claims = [
        Claim(
            "kernel errors are the lowest for CtR-TensorSRHT",
            f"lowest: {shown}",
            set(lowest.values()) == {"tensor_srht:ctr"},
        )
    ]
    for name, measure_name in (("KL", "kl"), ("test error", "error")):
        _, ratios = compared(result, 3, measure_name, "tensor_srht:ctr", "tensor_sketch:real")
        values = [float(part.split()[0]) for part in ratios.split(", ") if part[0].isdigit() and "at" in part]
        claims.append(
            Claim(
                f"{name} of CtR-TensorSRHT similar to that of TensorSketch",
                f"ratio {ratios}",
                all(0.8 < v < 1.25 for v in values),
            )
        )
    worse, ratios = compared(result, 3, "kl", "tensor_srht:ctr", "tensor_srht:real")
    return [*claims, Claim("KL is worse without the CtR extension", f"CtR / real {ratios}", worse)]


def sextic_claims(result: dict[str, Any]) -> list[Claim]:
    """T Fig. 4.9."""
    _, similar = compared(result, 6, "frobenius", "tensor_srht:ctr", "tensor_sketch:real")
    gains = {p: compared(result, p, "frobenius", "tensor_srht:ctr", "tensor_srht:real") for p in (3, 6)}
    gain = {p: float(shown.split()[0]) for p, (_, shown) in gains.items()}
    value = float(similar.split()[0])
    return [
        Claim(
            "CtR-TensorSRHT and TensorSketch perform similarly well",
            f"ratio of kernel errors {similar}",
            0.8 < value < 1.25,
        ),
        Claim(
            "the relative advantage over TensorSRHT increases",
            f"CtR / real {gain[3]:.2f} (p = 3), {gain[6]:.2f} (p = 6)",
            gain[6] < gain[3] < 1.0,
        ),
    ]


CLAIMS = {"T Fig. 4.8": cubic_claims, "T Fig. 4.9": sextic_claims}
