"""Gaussian kernel on Fashion-MNIST: optimized Maclaurin features with TensorSRHT against Fourier features.

Inputs are centered, the lengthscale is the median distance of 5,000 training rows (T 5.4.3).
KL(approximate, exact) is of the latent marginals of Dirichlet classification, summed over test points and averaged over
classes; test error is that of the posterior mean.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from functools import partial
from typing import Any

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

import rfgp
from rfgp.diagnostics import error_rate, exact_posterior, kl_divergence, relative_frobenius_error
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.study import datasets, plots

from ..common import mean_and_error, run_cells, save_figure
from .item import Claim, Options

MACLAURIN = tuple(f"optimized_maclaurin:{form}" for form in ("real", "ctr", "complex"))
METHODS = ("fourier", "fourier_orthogonal", "fourier_hadamard", *MACLAURIN)
MEASURES = {
    "frobenius": "relative Frobenius error",
    "kl": "KL to the exact posterior",
    "error": "test error",
}
ALPHA = 1e-3
WIDEST = 5120
FULL_SEEDS = 2

Data = tuple[Tensor, Tensor, Tensor, Tensor]


def load(options: Options) -> Data:
    """Centered float32 inputs with pixels from 0 to 1, and labels: the first 10,000 training rows, and test rows."""
    data = datasets.load("digits" if options.quick else "fashion_mnist", options.data_dir)
    rows = 300 if options.quick else 10_000
    mean = data.x_train.mean(0)
    x, x_test = ((part - mean)[:rows].float() / 255.0 for part in (data.x_train, data.x_test))
    return x, data.y_train[:rows], x_test, data.y_test[:rows]


def exact_kernel(x: Tensor, labels: Tensor) -> ScaleKernel:
    """The median of pairwise distances as lengthscale, and the variance of the transformed labels as output scale."""
    kernel = ScaleKernel(RBFKernel())
    kernel.base_kernel.lengthscale = torch.pdist(x[:5000]).median()
    likelihood = DirichletClassificationLikelihood(labels, ALPHA, dtype=torch.float64)
    kernel.outputscale = float(likelihood.transformed_targets.var())
    return kernel


class Comparison:
    """The exact posterior given few rows, and how far an approximated kernel is from it.

    Posteriors are computed with N x N matrices, since N is below the number of features; a complex map stands for the
    real part of its kernel.
    """

    def __init__(self, exact: ScaleKernel, data: Data, rows: int, points: int) -> None:
        self.exact, self.likelihood = exact, DirichletClassificationLikelihood(num_classes=10, alpha_epsilon=ALPHA)
        self.x, self.labels, self.x_test, self.labels_test = data
        self.rows, self.points = slice(rows), slice(points)
        self.reference = self._posterior(exact)

    def _posterior(self, kernel: ScaleKernel) -> torch.distributions.Normal:
        training = self.x[self.rows], self.labels[self.rows]
        return exact_posterior(kernel, self.likelihood, *training, self.x_test[self.points])

    def _error(self, posterior: torch.distributions.Normal) -> float:
        return float(error_rate(posterior.mean.mT, self.labels_test[self.points]))

    @property
    def exact_error(self) -> float:
        return self._error(self.reference)

    def measure(self, method: str, width: int, seed: int) -> dict[str, float]:
        """All measures for the first seeds, and the error of the kernel alone for the others."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # more features than rows
            kernel = rfgp.approximate(self.exact, width, method=method, train_inputs=self.x, seed=seed)
        record = {"frobenius": float(relative_frobenius_error(kernel, self.x_test[:2000]))}
        if seed >= FULL_SEEDS:
            return record
        plain = ScaleKernel(kernel)  # hides the exact kernel from exact_posterior
        plain.outputscale = 1.0
        posterior = self._posterior(plain)
        record["kl"] = float(kl_divergence(posterior, self.reference).mean())
        return record | {"error": self._error(posterior)}


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    rows, points = (100, 50) if options.quick else (2000, 500)
    seeds = {64: 1} if options.quick else {784: 3, 2352: 3, WIDEST: 3}
    data = load(options)
    exact = exact_kernel(data[0], data[1])
    comparison = Comparison(exact, data, rows, points)
    cells = [
        (f"{method}/{width}/{seed}", partial(comparison.measure, method, width, seed))
        for width, count in seeds.items()
        for method in METHODS
        for seed in range(count)
    ]
    return run_cells(
        options,
        cells,
        lengthscale=exact.base_kernel.lengthscale.item(),
        frobenius_rows=min(2000, len(data[2])),
        kl_rows=rows,
        kl_points=points,
        seeds=seeds,
        seeds_of_posteriors=FULL_SEEDS,
        exact_error=comparison.exact_error,
    )


Cells = dict[tuple[str, int], dict[str, list[float]]]


def cells(result: dict[str, Any]) -> Cells:
    """The values of all seeds by method and width, then by measure."""
    found: Cells = defaultdict(lambda: defaultdict(list))
    for key, record in result["cells"].items():
        method, width, _ = key.split("/")
        for measure, value in record.items():
            found[method, int(width)][measure].append(value)
    return found


def draw(result: dict[str, Any], out: Any) -> None:
    measured = cells(result)
    widths = sorted({width for _, width in measured})
    figure, axes = plots.figure(1, len(MEASURES), height=3.4)
    for ax, (measure, label) in zip(axes[0], MEASURES.items(), strict=True):
        curves = {}
        for method in METHODS:
            points = [mean_and_error(measured[method, width][measure]) for width in widths]
            curves[method] = plots.Curve(widths, *zip(*points, strict=True))
        is_error = measure == "error"
        exact = result["exact_error"] if is_error else None
        plots.comparison(curves, exact=exact, xlabel="features D", ylabel=label, log_x=2, log_y=not is_error, ax=ax)
    plots.legend(figure, list(axes.flat), columns=4)
    save_figure(figure, out)


def claims(result: dict[str, Any]) -> list[Claim]:
    """Lower kernel errors, KL and test errors, real against real and complex against complex forms."""
    measured, found = cells(result), []
    widths = sorted({width for _, width in measured})
    for own, other in (
        (MACLAURIN[0], "fourier"),
        (MACLAURIN[0], "fourier_hadamard"),
        (MACLAURIN[1], "fourier_hadamard"),
    ):
        for measure_name, label in list(MEASURES.items())[:2]:
            pairs = [[mean_and_error(measured[m, w][measure_name])[0] for m in (own, other)] for w in widths]
            shown = ", ".join(f"{a:.3g} against {b:.3g}" for a, b in pairs)
            wins = sum(a < b for a, b in pairs)
            found.append(Claim(f"{own} below {other}: {label}", f"{shown} at D = {widths}", 2 * wins > len(pairs)))
    own, other = (mean_and_error(measured[m, widths[-1]]["error"])[0] for m in (MACLAURIN[0], "fourier"))
    return [
        *found,
        Claim("equal or lower test error than Fourier features", f"{own:.3f} against {other:.3f}", own <= other + 0.01),
    ]


CLAIMS = {"T Fig. 5.5": claims}
