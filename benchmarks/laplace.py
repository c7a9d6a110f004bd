"""Laplace's approximation in weight space: labels against scikit-learn and GPyTorch's SVGP, and counts of many rows.

Labels: banknotes (``banknote.npz`` with x (1372, 4) and y, where the data directory has it), or draws of a Gaussian
process of the same size. All models learn a Gaussian kernel with a lengthscale per column: log loss and expected
calibration error of held-out rows, over splits, in processor seconds. Counts: the seconds of the mode at 10^5 rows and
512 features, beside one Gram product.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import common
import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood
from gpytorch.means import ConstantMean
from gpytorch_models import SVGP
from torch import Tensor

import rfgp
from rfgp.likelihoods import PoissonLikelihood
from rfgp.linalg import gram
from rfgp.models import LaplaceGP

ROWS, COLUMNS, TEST = 1372, 4, 0.2
WIDTHS, INDUCING, STEPS = (64, 256), 128, 500


def labels(data_dir: Any, num_rows: int) -> tuple[Tensor, Tensor, str]:
    """Standardized inputs, labels of zero and one, and where they come from."""
    path = None if data_dir is None else data_dir / "banknote.npz"
    if path is not None and path.exists():
        with np.load(path) as archive:
            x, y = (torch.from_numpy(archive[key]).double() for key in ("x", "y"))
        return ((x - x.mean(0)) / x.std(0))[:num_rows], (y > y.min()).double()[:num_rows], "banknote"
    torch.manual_seed(0)
    x = torch.randn(num_rows, COLUMNS, dtype=torch.float64)
    exact = ScaleKernel(RBFKernel()).double()
    exact.outputscale, exact.base_kernel.lengthscale = 4.0, 2.0
    features = rfgp.approximate(exact, 4096, input_dim=COLUMNS, method="fourier:real", seed=0)
    with torch.no_grad():
        f = features.features(x) @ torch.randn(4096, dtype=torch.float64)
    return x, (f + torch.randn_like(f) > 0).double(), "draws of a Gaussian process"


def gaussian_kernel(num_columns: int) -> ScaleKernel:
    """A Gaussian kernel with a lengthscale per column."""
    return ScaleKernel(RBFKernel(ard_num_dims=num_columns)).double()


def laplace(width: int, x: Tensor, y: Tensor, x_test: Tensor) -> Tensor:
    """Probabilities by random features."""
    kernel = rfgp.approximate(gaussian_kernel(x.shape[-1]), width, input_dim=x.shape[-1], method="fourier:real", seed=0)
    model = LaplaceGP(kernel, BernoulliLikelihood(), ConstantMean().double())
    rfgp.fit(model, x, y, progress=False)
    with torch.no_grad():
        return model.likelihood(model.posterior(x_test)).probs


def scikit_learn(x: Tensor, y: Tensor, x_test: Tensor) -> Tensor:
    """Probabilities by the exact Laplace approximation, with the logistic link."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel(1.0, (1e-3, 1e6)) * RBF(np.full(x.shape[-1], 2.0), (1e-2, 1e4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GaussianProcessClassifier(kernel, random_state=0).fit(x.numpy(), y.numpy())
    return torch.from_numpy(model.predict_proba(x_test.numpy())[:, 1])


def variational(num_inducing: int, steps: int, x: Tensor, y: Tensor, x_test: Tensor) -> Tensor:
    """Probabilities by SVGP, with Adam on all rows."""
    torch.manual_seed(0)
    likelihood = BernoulliLikelihood().double()
    model = SVGP(x[torch.randperm(len(x))[:num_inducing]], gaussian_kernel(x.shape[-1])).double()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(steps):
        optimizer.zero_grad()
        (-bound(model(x), y)).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return likelihood(model(x_test)).probs


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 10) -> float:
    """The expected calibration error: mean distance of predicted and observed frequency, over bins of equal width."""
    index = (probabilities * bins).long().clamp_max(bins - 1)
    total = 0.0
    for part in range(bins):
        inside = index == part
        if bool(inside.any()):
            gap = probabilities[inside].mean() - y[inside].mean()
            total += float(inside.double().mean() * gap.abs())
    return total


def log_loss(probabilities: Tensor, y: Tensor) -> float:
    """The mean negative log probability of the labels."""
    return -float(torch.where(y > 0.5, probabilities, 1.0 - probabilities).clamp_min(1e-15).log().mean())


def compare(options: Any, num_rows: int, splits: int, steps: int) -> dict[str, Any]:
    """Every method on every split."""
    x, y, source = labels(options.data_dir, num_rows)
    methods: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        **{f"LaplaceGP, D = {width}": lambda *data, width=width: laplace(width, *data) for width in WIDTHS},
        "scikit-learn": scikit_learn,
        f"SVGP, {INDUCING} inducing points": lambda *data: variational(INDUCING, steps, *data),
    }
    found: dict[str, dict[str, list[float]]] = {
        name: {key: [] for key in ("log loss", "calibration error", "seconds")} for name in methods
    }
    for split in range(splits):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(split))
        test, train = order[: int(TEST * len(x))], order[int(TEST * len(x)) :]
        for name, method in methods.items():
            start = time.process_time()
            probabilities = method(x[train], y[train], x[test])
            found[name]["seconds"].append(time.process_time() - start)
            found[name]["log loss"].append(log_loss(probabilities, y[test]))
            found[name]["calibration error"].append(calibration_error(probabilities, y[test]))
    return {"source": source, "rows": len(x), "splits": splits, "methods": found}


@torch.no_grad()
def count(num_rows: int, width: int, repeats: int) -> dict[str, Any]:
    """The processor seconds of the mode of Poisson counts, and of a Gram product, interleaved."""
    torch.manual_seed(0)
    x = torch.rand(num_rows, 4, dtype=torch.float64)
    y = torch.poisson(torch.exp(1.0 + torch.sin(4.0 * x).sum(-1)))
    exact = gaussian_kernel(4)
    exact.base_kernel.lengthscale = 0.3
    kernel = rfgp.approximate(exact, width, input_dim=4, method="fourier:real", seed=0)
    features = kernel.features(x)
    seconds: dict[str, list[float]] = {"mode": [], "Gram product": []}
    model = LaplaceGP(kernel, PoissonLikelihood(), ConstantMean().double())
    for _ in range(repeats):
        start = time.process_time()
        model.condition(x, y)
        seconds["mode"].append(time.process_time() - start)
        start = time.process_time()
        gram(features, y.unsqueeze(-1), y)
        seconds["Gram product"].append(time.process_time() - start)
    return {"rows": num_rows, "width": width, "passes": model.num_passes + 1, "seconds": seconds}


def main() -> None:
    parser = common.arguments(__doc__ or "", "laplace")
    common.add_data_dir(parser, required=False)
    parser.add_argument("--splits", type=int, default=3, help="of the labels, and repetitions of the counts")
    options = parser.parse_args()
    sizes = (200, 1, 20) if options.quick else (ROWS, options.splits, STEPS)
    result: dict[str, Any] = {"environment": common.environment(), "labels": compare(options, *sizes)}
    common.write(options.out, result)
    result["counts"] = count(*((3000, 64, 1) if options.quick else (100_000, 512, options.splits)))
    common.write(options.out, result)
    common.show(result)


if __name__ == "__main__":
    main()
