"""B Fig. 11: classification of MNIST by simplex codes, operator-valued features against the exact kernel."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

import rfgp
from rfgp.kernels import ConstantCovariance, DecomposableKernel
from rfgp.models import VectorLeastSquares
from rfgp.models.least_squares.simplex import decode, encode
from rfgp.study import datasets

from .item import Claim, Options

SIGMA, CLASSES = 20.0, 10
GRID = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)


def exact_kernel(sigma: float) -> DecomposableKernel:
    base = RBFKernel().double()
    base.lengthscale = sigma
    return DecomposableKernel(base, ConstantCovariance(torch.eye(CLASSES - 1, dtype=torch.float64)))


def with_features(
    sigma: float, frequencies: int, grid: tuple[float, ...], x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor
) -> tuple[float, float]:
    """Seconds of a fit, and the test error; the penalty is the best of a grid on the other half of the rows."""
    kernel = rfgp.approximate(exact_kernel(sigma), 2 * frequencies, input_dim=x.shape[-1], method="fourier", seed=0)
    half, codes = len(x) // 2, encode(y, CLASSES, torch.float64)

    def error(regularization: float) -> float:
        model = VectorLeastSquares(kernel, regularization=regularization).fit(x[:half], codes[:half])
        return float((decode(model.predict(x[half:])) != y[half:]).double().mean())

    best = min(grid, key=error)
    start = time.process_time()
    model = VectorLeastSquares(kernel, regularization=best).fit(x, codes)
    seconds = time.process_time() - start
    return seconds, float((decode(model.predict(x_test)) != y_test).double().mean())


def with_exact_kernel(
    sigma: float, grid: tuple[float, ...], x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor
) -> tuple[float, float]:
    """The same for the exact kernel, whose matrix is that of one output."""
    base, half, codes = exact_kernel(sigma).data_covar_module, len(x) // 2, encode(y, CLASSES, torch.float64)

    def solved(rows: Tensor, targets: Tensor, regularization: float) -> Tensor:
        matrix = base(rows).to_dense()
        matrix.diagonal().add_(len(rows) * regularization)
        return torch.cholesky_solve(targets, torch.linalg.cholesky(matrix))

    def error(regularization: float) -> float:
        found = base(x[half:], x[:half]).to_dense() @ solved(x[:half], codes[:half], regularization)
        return float((decode(found) != y[half:]).double().mean())

    best = min(grid, key=error)
    start = time.process_time()
    weights = solved(x, codes, best)
    seconds = time.process_time() - start
    found = base(x_test, x).to_dense() @ weights
    return seconds, float((decode(found) != y_test).double().mean())


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    data = datasets.load("digits" if options.quick else "mnist", options.data_dir)
    points = 100 if options.quick else 2000
    top = data.x_train.max()
    x, x_test = (2.0 * part / top - 1.0 for part in (data.x_train, data.x_test[:points]))
    y, y_test = data.y_train, data.y_test[:points]
    sigma, grid = (5.0, GRID[2:4]) if options.quick else (SIGMA, GRID)
    rows, fixed = ((50, 100), 50) if options.quick else ((500, 1000, 2000, 4000), 1000)
    widths, base_rows = ((10, 50), 100) if options.quick else ((50, 100, 200, 500, 1000, 2000), 1000)
    by_rows = {
        str(n): {
            "features": with_features(sigma, fixed, grid, x[:n], y[:n], x_test, y_test),
            "exact": with_exact_kernel(sigma, grid, x[:n], y[:n], x_test, y_test),
        }
        for n in rows
    }
    by_width = {str(d): with_features(sigma, d, grid, x[:base_rows], y[:base_rows], x_test, y_test) for d in widths}
    return {"by rows": by_rows, "by width": by_width, "rows": base_rows, "frequencies": fixed}


def claims(result: dict[str, Any]) -> list[Claim]:
    by_rows, by_width = result["by rows"], result["by width"]
    first, *_, last = by_rows
    slopes = {
        name: math.log(max(by_rows[last][name][0], 1e-4) / max(by_rows[first][name][0], 1e-4))
        / math.log(int(last) / int(first))
        for name in ("features", "exact")
    }
    errors = {int(width): value[1] for width, value in by_width.items()}
    exact = by_rows[str(result["rows"])]["exact"][1]
    shown = ", ".join(f"{100 * error:.1f} % (D = {width})" for width, error in errors.items())
    widths = sorted(errors)
    return [
        Claim(
            "ORFF scales better than OVK with the number of points",
            f"seconds grow as N^{slopes['features']:.1f} against N^{slopes['exact']:.1f}",
            slopes["features"] < slopes["exact"],
        ),
        Claim(
            f"ORFF converges towards OVK with D (N = {result['rows']})",
            f"{shown}; exact {100 * exact:.1f} %",
            abs(errors[widths[-1]] - exact) < 0.015 and errors[widths[0]] > errors[widths[-1]],
        ),
    ]


CLAIMS = {"B Fig. 11": claims}
