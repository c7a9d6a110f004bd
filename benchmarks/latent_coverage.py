"""Coverage of latent functions by their 95 % intervals: five outputs, three classes and counts, drawn from the model.

There are 24 problems: each kind of targets with the Gaussian and the Matern-3/2 kernel, 2 and 5 inputs, and 500 and
2,000 rows. Inputs are standard normal, and functions are drawn jointly at training and at test inputs. Models know the
parameters and have 256 landmarks; those of outputs and counts have blocks of 128 rows. Standard errors are over
functions.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable
from typing import Any

import common
import torch
from gpytorch.kernels import MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import MultitaskGaussianLikelihood, SoftmaxLikelihood
from torch import Tensor

import rfgp
from rfgp.likelihoods import PoissonLikelihood
from rfgp.models import LaplaceGP, WeightSpaceGP

KERNELS: dict[str, Callable[[], Any]] = {"Gaussian": RBFKernel, "Matern-3/2": lambda: MaternKernel(nu=1.5)}
LENGTHSCALES = {2: 0.7, 5: 1.8}
ROWS, TESTS, WIDTH, BLOCK = (500, 2000), 500, 256, 128
OUTPUTS, CLASSES, NOISE = 5, 3, 0.1
KINDS = ("five outputs", "three classes", "counts")


def base(name: str, dim: int) -> Any:
    """A kernel of scale one."""
    kernel = KERNELS[name]().double()
    kernel.lengthscale = LENGTHSCALES[dim]
    return kernel


def drawn(name: str, dim: int, rows: int, count: int) -> tuple[Tensor, Tensor]:
    """Inputs, and independent functions at them, (N, K)."""
    x = torch.randn(rows + TESTS, dim, dtype=torch.float64)
    with torch.no_grad():
        matrix = base(name, dim)(x).to_dense()
    matrix.diagonal().add_(1e-8)
    return x, torch.linalg.cholesky(matrix) @ torch.randn(len(x), count, dtype=torch.float64)


def scaled(name: str, dim: int, variance: float, x: Tensor) -> Any:
    """The kernel of a variance with landmarks."""
    kernel = ScaleKernel(base(name, dim)).double()
    kernel.outputscale = variance
    return rfgp.approximate(kernel, WIDTH, method="landmarks", train_inputs=x, seed=0)


def outputs(name: str, dim: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Functions at test inputs, with their posterior means and standard deviations, of five correlated outputs."""
    x, f = drawn(name, dim, rows, OUTPUTS)
    exact = MultitaskKernel(base(name, dim), num_tasks=OUTPUTS, rank=2).double()
    exact.task_covar_module.var = torch.full((OUTPUTS,), 0.3, dtype=torch.float64)
    with torch.no_grad():
        exact.task_covar_module.covar_factor.copy_(torch.randn(OUTPUTS, 2, dtype=torch.float64))
        f = f @ torch.linalg.cholesky(exact.task_covar_module.covar_matrix.to_dense()).mT
    likelihood = MultitaskGaussianLikelihood(OUTPUTS, has_global_noise=False).double()
    likelihood.task_noises = torch.full((OUTPUTS,), NOISE, dtype=torch.float64)
    kernel = rfgp.approximate(exact, WIDTH, method="landmarks", train_inputs=x[:rows], seed=0)
    model = WeightSpaceGP(kernel, likelihood, block_size=BLOCK)
    with torch.no_grad():
        found = model.condition(x[:rows], f[:rows] + NOISE**0.5 * torch.randn_like(f[:rows])).posterior(x[rows:])
    return f[rows:], found.mean, found.variance.sqrt()


def classes(name: str, dim: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same of three classes, by Laplace's approximation."""
    x, f = drawn(name, dim, rows, CLASSES)
    f = 2.0 * f
    labels = torch.distributions.Categorical(logits=f[:rows]).sample()
    likelihood = SoftmaxLikelihood(num_classes=CLASSES, mixing_weights=False)
    model = LaplaceGP(scaled(name, dim, 4.0, x[:rows]), likelihood)
    with torch.no_grad():
        found = model.condition(x[:rows], labels).posterior(x[rows:])
    return f[rows:], found.mean, found.variance.sqrt()


def counts(name: str, dim: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same of counts, by Laplace's approximation with blocks."""
    x, f = drawn(name, dim, rows, 1)
    targets = torch.poisson(f[:rows, 0].exp())
    model = LaplaceGP(scaled(name, dim, 1.0, x[:rows]), PoissonLikelihood(), block_size=BLOCK)
    with torch.no_grad():
        found = model.condition(x[:rows], targets).posterior(x[rows:])
    return f[rows:, 0], found.mean, found.variance.sqrt()


MEASURED = dict(zip(KINDS, (outputs, classes, counts), strict=True))


def covered(kind: str, name: str, dim: int, rows: int, seed: int) -> float:
    """The part of function values inside their 95 % intervals."""
    torch.manual_seed(seed)
    truth, mean, deviation = MEASURED[kind](name, dim, rows)
    mean, deviation = (part.mT if part.shape != truth.shape else part for part in (mean, deviation))
    return float(((truth - mean).abs() < 1.959964 * deviation).double().mean())


def run(options: argparse.Namespace) -> None:
    """Measure what an earlier run has not."""
    seeds = range(1 if options.quick else options.functions)
    cells = [
        ("|".join(map(str, problem)), lambda problem=problem: [covered(*problem, seed) for seed in seeds])
        for problem in itertools.product(KINDS, KERNELS, LENGTHSCALES, ROWS[:1] if options.quick else ROWS)
    ]
    common.run_cells(options, cells, claims)


def claims(result: dict[str, Any]) -> dict[str, float]:
    """The least and the most coverage of the problems."""
    shares = [statistics.mean(values) for values in result["cells"].values()]
    return {"least": min(shares), "most": max(shares)}


def main() -> None:
    """Measure."""
    parser = common.arguments(__doc__ or "", "latent_coverage")
    parser.add_argument("--functions", type=int, default=6, help="draws for every problem (default: 6)")
    options = parser.parse_args()
    run(options)


if __name__ == "__main__":
    main()
