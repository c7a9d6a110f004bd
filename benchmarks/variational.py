"""Variational models on weights against GPyTorch's SVGP with as many inducing points as features.

Bound and scores of held-out rows after training, and processor seconds, on one thread in float64: two classes of a
drawn function on 1,372 rows of 4 columns (as many as the bank notes of UCI have), and the 26 classes of the letters.
Landmarks are inducing points, and learned ones the family of SVGP itself: both bound the evidence of the exact kernel.
Random features have another prior, whose bound says nothing about that of the exact kernel.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gpytorch
import numpy as np
import torch
from common import add_data_dir, arguments, run_cells
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, Likelihood, SoftmaxLikelihood
from gpytorch.mlls import VariationalELBO
from gpytorch.variational import (
    IndependentMultitaskVariationalStrategy,
    NaturalVariationalDistribution,
    VariationalStrategy,
)
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

import rfgp
from rfgp.approximation import LandmarkKernel
from rfgp.models import WeightSpaceVariationalGP
from rfgp.training import Minibatches
from rfgp.training.minibatches import RowBatches

BATCH, BINS, DRAWS, WARM_UP = 500, 15, 200, 5


class Problem(NamedTuple):
    """Training rows, test rows, and the number of classes."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    num_classes: int

    @property
    def likelihood(self) -> Likelihood:
        """That of the labels."""
        if self.num_classes == 2:
            return BernoulliLikelihood()
        return SoftmaxLikelihood(num_classes=self.num_classes, mixing_weights=False)


def drawn_classes(num_rows: int = 1372, columns: int = 4) -> Problem:
    """Labels of a function that is drawn from the prior of a Gaussian kernel."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2 * num_rows, columns, generator=generator)
    kernel = ScaleKernel(RBFKernel())
    kernel.outputscale, kernel.base_kernel.lengthscale = 9.0, 1.5
    with torch.no_grad():
        root = torch.linalg.cholesky(kernel(x).to_dense() + 1e-8 * torch.eye(len(x)))
        function = root @ torch.randn(len(x), generator=generator)
    y = (torch.rand(len(x), generator=generator) < torch.special.ndtr(function)).to(x.dtype)
    return Problem(x[:num_rows], y[:num_rows], x[num_rows:], y[num_rows:], 2)


def letters(data_dir: Path, num_rows: int) -> Problem:
    """The letters, a tenth of them to test on."""
    with np.load(data_dir / "letter.npz") as archive:
        x, y = torch.from_numpy(archive["x"].astype(float)), torch.from_numpy(archive["y"].astype(int))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[: int(0.9 * len(x))][:num_rows], order[int(0.9 * len(x)) :]
    x = (x - x[train].mean(0)) / x[train].std(0)
    return Problem(x[train], y[train] - y.min(), x[test], y[test] - y.min(), 26)


class SVGP(gpytorch.models.ApproximateGP):
    """GPyTorch's sparse variational model, whose inducing points are learned; classes share points and kernel."""

    def __init__(self, points: Tensor, num_classes: int) -> None:
        shape = torch.Size([num_classes]) if num_classes > 2 else torch.Size()
        own = VariationalStrategy(self, points, NaturalVariationalDistribution(len(points), shape))
        super().__init__(IndependentMultitaskVariationalStrategy(own, num_classes) if shape else own)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = ScaleKernel(RBFKernel())
        with torch.no_grad():
            self.covar_module.base_kernel.lengthscale = 2.0

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def chosen_rows(problem: Problem, width: int) -> Tensor:
    """Random training rows: the inducing points of SVGP, and the landmarks that are learned, at their start."""
    return problem.x[torch.randperm(len(problem.x), generator=torch.Generator().manual_seed(0))[:width]]


def ours(problem: Problem, width: int, epochs: int, method: str) -> dict[str, Any]:
    """Our model from minibatches, by ``rfgp.fit``."""
    model = weight_space(problem, width, method)
    loader, rows = RowBatches(problem.x, problem.y, BATCH), len(problem.x)
    began = time.process_time()
    rfgp.fit(model, loader, strategy=Minibatches(epochs=epochs, num_data=rows), progress=False)
    seconds = time.process_time() - began
    found = scores(problem, model, model.likelihood) | {"seconds": seconds}
    began = time.process_time()
    rfgp.fit(model, loader, strategy=Minibatches(epochs=2, num_data=rows, initialize=False), progress=False)
    return found | {"seconds_per_epoch": (time.process_time() - began) / 2}


def ours_by_lbfgs(problem: Problem, width: int, evaluations: int, method: str) -> dict[str, Any]:
    """Our model from all rows at once, by ``rfgp.fit``: an epoch is an evaluation of the bound."""
    model = weight_space(problem, width, method)
    began = time.process_time()
    summary = rfgp.fit(model, problem.x, problem.y, max_evaluations=evaluations, progress=False)
    seconds = time.process_time() - began
    found = scores(problem, model, model.likelihood) | {"seconds": seconds, "seconds_per_epoch": seconds / evaluations}
    return found | {"ended": summary.message}


def weight_space(problem: Problem, width: int, method: str) -> WeightSpaceVariationalGP:
    """Our model, before training."""
    if method == "learned":
        landmarks = LandmarkKernel(RBFKernel(), chosen_rows(problem, width), learn=True)
        return WeightSpaceVariationalGP(ScaleKernel(landmarks), problem.likelihood)
    is_landmarks = method.startswith("landmarks")
    known = {"train_inputs": problem.x} if is_landmarks else {"input_dim": problem.x.shape[-1]}
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), width, method=method, seed=0, **known)
    return WeightSpaceVariationalGP(kernel, problem.likelihood)


def theirs(problem: Problem, width: int, epochs: int, rate: float) -> dict[str, Any]:
    """GPyTorch's model by natural gradients of a rate for the distribution, and by Adam at a rate of 0.01 for all else.

    The rate of the natural gradients rises to its value over the first epochs.
    """
    model, likelihood = SVGP(chosen_rows(problem, width), problem.num_classes), problem.likelihood
    rows = len(problem.x)
    objective = VariationalELBO(likelihood, model, num_data=rows)
    natural = gpytorch.optim.NGD(model.variational_parameters(), num_data=rows, lr=rate)
    optimizers = [torch.optim.Adam([*model.hyperparameters(), *likelihood.parameters()], lr=0.01), natural]
    loader = RowBatches(problem.x, problem.y, BATCH)
    model.train()
    likelihood.train()
    began = time.process_time()
    for epoch in range(epochs):
        natural.param_groups[0]["lr"] = rate * min(1.0, (epoch + 1) / WARM_UP)
        for x, y in loader:
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = -objective(model(x), y)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
    seconds = time.process_time() - began
    return scores(problem, model, likelihood) | {"seconds": seconds, "seconds_per_epoch": seconds / epochs}


@torch.no_grad()
def scores(problem: Problem, model: Any, likelihood: Likelihood) -> dict[str, float]:
    """The bound per training row, and error, negative log likelihood and calibration of test rows."""
    torch.manual_seed(0)
    rows = len(problem.x)
    with gpytorch.settings.num_likelihood_samples(DRAWS):
        model.train()
        likelihood.train()
        parts = zip(problem.x.split(BATCH), problem.y.split(BATCH), strict=True)
        expected = sum(float(likelihood.expected_log_prob(y, model(x)).sum()) for x, y in parts)
        bound = expected - float(model.variational_strategy.kl_divergence())
        model.eval()
        found = torch.cat([probabilities(likelihood, model(x)) for x in problem.test_x.split(BATCH)])
    labels = problem.test_y.long()
    confidence, guess = found.max(-1)
    density = found.gather(-1, labels.unsqueeze(-1)).clamp_min(1e-12).log()
    right = (guess == labels).double()
    cells = (confidence * BINS).long().clamp_max(BINS - 1)
    gaps = [(right - confidence)[cells == cell].sum().abs() for cell in range(BINS)]
    return {
        "bound": bound / rows,
        "error": 1.0 - float(right.mean()),
        "mnll": -float(density.mean()),
        "calibration": float(sum(gaps)) / len(labels),
    }


def probabilities(likelihood: Likelihood, function: Any) -> Tensor:
    """Class probabilities (N, C) from the marginals of the functions."""
    if isinstance(likelihood, BernoulliLikelihood):
        positive = likelihood(function).probs
        return torch.stack([1.0 - positive, positive], dim=-1)
    noise = torch.randn(DRAWS, *function.mean.shape)
    return likelihood(function.mean + function.variance.sqrt() * noise).probs.mean(0)


Method = tuple[Callable[..., dict[str, Any]], Any, int]
SHARED: dict[str, Method] = {
    "weights, landmarks": (ours, "landmarks", 6),
    "weights, landmarks_kmeans": (ours, "landmarks_kmeans", 6),
    "weights, learned landmarks": (ours, "learned", 6),
    "weights, orthogonal Fourier": (ours, "fourier_orthogonal", 6),
}
TWO_CLASSES: dict[str, Method] = {
    **{name: (run, option, 15) for name, (run, option, _) in SHARED.items()},
    "weights, learned landmarks, all rows": (ours_by_lbfgs, "learned", 50),
    "SVGP, natural gradients and Adam": (theirs, 0.1, 250),
    "weights, learned landmarks, all rows, for longer": (ours_by_lbfgs, "learned", 200),
    "SVGP, natural gradients and Adam, for longer": (theirs, 0.1, 1000),
}
LETTERS: dict[str, Method] = {
    **SHARED,
    "SVGP, natural gradients and Adam": (theirs, 0.01, 24),
}
"""How a method is run, its option, and its epochs, for each problem."""


SHOWN = {
    "learned landmarks": ("weights, learned landmarks, all rows", "weights, learned landmarks"),
    "landmarks_kmeans": ("weights, landmarks_kmeans",) * 2,
    "landmarks": ("weights, landmarks",) * 2,
    "fourier_orthogonal": ("weights, orthogonal Fourier",) * 2,
    "SVGP, natural gradients": ("SVGP, natural gradients and Adam",) * 2,
}
"""Rows of the table of the documentation, and methods of the two problems, of 128 features."""


def claims(result: dict[str, Any]) -> dict[str, Any]:
    """Bounds and seconds of both problems, and bounds on two classes of what was trained for longer."""
    cells, found = result["cells"], {"methods": {}, "for longer": {}}
    for label, methods in SHOWN.items():
        names = dict(zip(("two classes", "letters"), methods, strict=True))
        keys = {"two classes": "drawn, 1,372 x 4; 128; ", "letters": "letters; 128; "}
        own = {name: cells.get(keys[name] + method, {}) for name, method in names.items()}
        if all("bound" in cell for cell in own.values()):
            found["methods"][label] = {n: {key: c[key] for key in ("bound", "seconds")} for n, c in own.items()}
        if longer := cells.get(f"{keys['two classes']}{methods[0]}, for longer"):
            found["for longer"][label] = longer["bound"]
    return found


def trained(method: Method, problem: Any, width: int, epochs: int) -> dict[str, Any]:
    """The scores of a method, or why there are none."""
    run, option, _ = method
    torch.manual_seed(0)
    try:
        found = run(problem, width, epochs, option)
    except NotPSDError:
        found = {"status": "a covariance is not positive definite"}
    return found | {"epochs": epochs}


def main() -> None:
    """Measure what is not there yet."""
    parser = arguments(__doc__ or "", "variational")
    add_data_dir(parser)
    parser.add_argument("--widths", type=int, nargs="+", default=[128], help="features, or inducing points")
    parser.add_argument("--rows", type=int, default=18_000, help="letters to train on")
    options: argparse.Namespace = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    problems = {
        "drawn, 1,372 x 4": (drawn_classes(), TWO_CLASSES),
        "letters": (letters(options.data_dir, 1000 if options.quick else options.rows), LETTERS),
    }
    cells = [
        (f"{data}; {width}; {name}", partial(trained, method, problem, width, 1 if options.quick else method[2]))
        for data, (problem, methods) in problems.items()
        for width in ([16] if options.quick else options.widths)
        for name, method in methods.items()
    ]
    run_cells(options, cells, claims)


if __name__ == "__main__":
    main()
