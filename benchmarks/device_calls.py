"""Operators that a device starts, copies and waits of fits and predictions, at two numbers of rows.

A GPU takes about 10 microseconds to start an operator, however few numbers it has. An operation starves a GPU where its
operators are many and small: where their number grows with the rows. The simulated device of the tests counts them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import arguments, run_cells
from gpytorch.kernels import Kernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from torch import Tensor
from torch.utils._pytree import tree_leaves

import rfgp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from pretend_device import DOWN, PRETEND, SYNC, UP, Watch

ROWS = (4_000, 16_000)
WIDTH, BLOCK, NEIGHBORS, CHUNK = 128, 100, 16, 1_000
START_SECONDS = 1e-5
"""What an operator takes to start on a GPU, about."""


class Calls(Watch):
    """A context that also counts the operators that a device starts; those that only look at a tensor are none."""

    def __init__(self) -> None:
        super().__init__(PRETEND)
        self.num_operators = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs or {}))
        is_there = any(isinstance(leaf, Tensor) and leaf.device == PRETEND for leaf in leaves)
        self.num_operators += is_there and not operation.is_view
        return super().__torch_dispatch__(operation, types, args, kwargs)


def exact_kernel(num_tasks: int) -> Kernel:
    """A kernel on the device."""
    base = RBFKernel()
    base.lengthscale = 0.3
    kernel = ScaleKernel(base) if num_tasks == 1 else MultitaskKernel(base, num_tasks)
    return kernel.double().to(PRETEND)


def gaussian(x: Tensor, num_tasks: int = 1, **options: Any) -> rfgp.WeightSpaceGP:
    """A model with Fourier features, or with landmarks where it has blocks."""
    method = {"method": "landmarks", "train_inputs": x} if options else {"input_dim": x.shape[-1]}
    kernel = rfgp.approximate(exact_kernel(num_tasks), WIDTH, seed=0, **method)
    likelihood = GaussianLikelihood() if num_tasks == 1 else MultitaskGaussianLikelihood(num_tasks)
    return rfgp.WeightSpaceGP(kernel, likelihood.double().to(PRETEND), **options)


def moments(model: Any, x: Tensor) -> None:
    """Means and variances."""
    posterior = model.posterior(x)
    assert posterior.mean.shape == posterior.variance.shape


def features(x: Tensor, y: Tensor) -> Callable[[], Any]:
    """Random features of all rows."""
    kernel = gaussian(x).covar_module
    return lambda: kernel.features(x)


def fit(x: Tensor, y: Tensor, **options: Any) -> Callable[[], Any]:
    """A fit with known parameters."""
    model = gaussian(x, **options)
    return lambda: model.condition(x, y)


def evidence(x: Tensor, y: Tensor) -> Callable[[], Any]:
    """The evidence of all rows, and its gradient."""
    model = gaussian(x)
    return lambda: model.condition(x, y).log_marginal_likelihood().backward()


def prediction(x: Tensor, y: Tensor, **options: Any) -> Callable[[], Any]:
    """Means and variances of as many points as rows, after a first prediction."""
    model = gaussian(x, **options).condition(x, y)
    moments(model, x[:2])
    return lambda: moments(model, x + 0.001)


def laplace(x: Tensor, y: Tensor) -> Callable[[], Any]:
    """Laplace's approximation for two classes."""
    kernel = rfgp.approximate(exact_kernel(1), WIDTH, input_dim=x.shape[-1], seed=0)
    model = rfgp.models.LaplaceGP(kernel, BernoulliLikelihood().to(PRETEND))
    return lambda: model.condition(x, (y > 0).double())


def missing(x: Tensor, y: Tensor) -> Callable[[], Any]:
    """A fit to three outputs, of which rows miss one or two."""
    targets = torch.stack([y, y.square(), -y], dim=-1)
    is_missing = torch.arange(targets.numel()).reshape(targets.shape) % 7 == 0
    targets = torch.where(is_missing.to(PRETEND), torch.nan, targets)
    model = gaussian(x, num_tasks=3)
    return lambda: model.condition(x, targets)


def streamed(x: Tensor, y: Tensor) -> Callable[[], Any]:
    """A fit to chunks of 1,000 rows."""
    model = gaussian(x)
    return lambda: model.condition(list(zip(x.split(CHUNK), y.split(CHUNK), strict=True)))


def sampled(x: Tensor, y: Tensor) -> Callable[[], Any]:
    """Ten functions at as many points as rows."""
    model = gaussian(x).condition(x, y)
    return lambda: model.sample_functions(10)(x)


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Callable[[], Any]]] = {
    "random features": features,
    "choice of landmarks": lambda x, y: lambda: gaussian(x, block_size=BLOCK),
    "fit": fit,
    "fit to chunks of 1,000 rows": streamed,
    "fit to three outputs with missing values": missing,
    "evidence with its gradient": evidence,
    "means and variances": prediction,
    "ten functions": sampled,
    "Laplace's approximation, two classes": laplace,
    "fit with blocks": lambda x, y: fit(x, y, block_size=BLOCK),
    "means and variances from blocks": lambda x, y: prediction(x, y, block_size=BLOCK),
    "means and variances from near rows": lambda x, y: prediction(x, y, block_size=BLOCK, num_neighbors=NEIGHBORS),
}


def calls(name: str, num_rows: int) -> dict[str, float]:
    """What an operation asks of a device."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows, 2, generator=generator, dtype=torch.float64)
    y = torch.sin(6.0 * x.sum(-1)) + 0.1 * torch.randn(num_rows, generator=generator, dtype=torch.float64)
    torch.manual_seed(0)
    with Calls() as watch:
        run = OPERATIONS[name](x.to(PRETEND), y.to(PRETEND))
        before, watch.events[:] = watch.num_operators, []
        run()
        operators = watch.num_operators - before
    kinds = [event.kind for event in watch.events]
    found = {"operators": operators, "copies": kinds.count(UP) + kinds.count(DOWN), "waits": kinds.count(SYNC)}
    return found | {"ms of starts": 1e3 * START_SECONDS * operators}


def main() -> None:
    """Count the calls of every operation."""
    options = arguments(__doc__ or "", "device_calls").parse_args()
    sizes = (200, 400) if options.quick else ROWS
    cells = [
        (name, lambda name=name: {f"{num_rows:,} rows": calls(name, num_rows) for num_rows in sizes})
        for name in OPERATIONS
    ]
    run_cells(options, cells)


if __name__ == "__main__":
    main()
