"""Labels that are wrong in some places: a likelihood that learns where, beside those that do not.

A part of the labels is replaced by random ones, 2 % of them at one end of the first input and 80 % at the other. Drawn:
two classes with a curved border in six inputs, and rings of three classes in two. Real: wines and players of StarCraft
above and below the median of their target. Held-out labels are as noisy as those that are learned from.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import SoftmaxLikelihood
from gpytorch.means import ConstantMean
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

import rfgp
from rfgp.diagnostics import expected_calibration_error
from rfgp.likelihoods import DirichletClassificationLikelihood, HeteroscedasticSoftmaxLikelihood
from rfgp.models import LaplaceGP, WeightSpaceGP
from rfgp.models.laplace.class_probabilities import class_probabilities

WIDTH, EVALUATIONS, BINS, TEST_ROWS = 64, 40, 10, 4000
LEAST, MOST = 0.02, 0.8
TABLES = {"wine": "wines", "skillcraft": "StarCraft"}


class Labels(NamedTuple):
    """Inputs, noisy labels, their true probabilities where these are known, and the rates of random ones."""

    x: Tensor
    y: Tensor
    truth: Tensor | None
    rate: Tensor
    num_train: int

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return int(self.y.max()) + 1


def noisy(x: Tensor, right: Tensor, num_train: int, generator: torch.Generator, is_known: bool) -> Labels:
    """Labels of which a part that grows along the first input is random."""
    count = int(right.max()) + 1
    rate = LEAST + (MOST - LEAST) * torch.sigmoid(4.0 * x[:, 0])
    is_random = torch.rand(len(x), generator=generator, dtype=torch.float64) < rate
    y = torch.where(is_random, torch.randint(0, count, (len(x),), generator=generator), right)
    hot = torch.nn.functional.one_hot(right, count)
    truth = (1.0 - rate).unsqueeze(-1) * hot + rate.unsqueeze(-1) / count if is_known else None
    return Labels(x, y, truth, rate, num_train)


def border(seed: int, count: int) -> Labels:
    """Two classes with a curved border in six inputs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count + TEST_ROWS, 6, generator=generator, dtype=torch.float64)
    right = (x[:, 1] + torch.sin(2.0 * x[:, 2]) + 0.5 * x[:, 3] > 0.0).long()
    return noisy(x, right, count, generator, True)


def rings(seed: int, count: int) -> Labels:
    """Rings of three classes in two inputs, each as wide as a sixth of the square."""
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(count + TEST_ROWS, 2, generator=generator, dtype=torch.float64) - 2.0
    return noisy(x, (1.5 * x.norm(dim=-1)).long() % 3, count, generator, True)


def table(name: str, seed: int, data_dir: Path, count: int | None) -> Labels:
    """The rows of a table in random order, two thirds of them to learn from."""
    generator = torch.Generator().manual_seed(seed)
    with np.load(data_dir / "uci" / f"{name}.npz") as archive:
        x, y = (torch.from_numpy(archive[key]).double() for key in ("x", "y"))
    order = torch.randperm(len(x), generator=generator)[:count]
    x = ((x - x.mean(0)) / x.std(0).clamp_min(1e-9))[order]
    return noisy(x, (y > y.median()).long()[order], len(x) * 2 // 3, generator, False)


def kernel(x: Tensor) -> Any:
    """A Gaussian kernel with a lengthscale per input, by landmarks."""
    exact = ScaleKernel(RBFKernel(ard_num_dims=x.shape[-1])).double()
    return rfgp.approximate(exact, WIDTH, method="landmarks", train_inputs=x, seed=0)


def laplace(likelihood: Any, data: Labels, evaluations: int) -> tuple[LaplaceGP, float]:
    """A model whose parameters are learned from the evidence, and its evidence."""
    x, y = (part[: data.num_train] for part in (data.x, data.y))
    model = LaplaceGP(kernel(x), likelihood.double())
    summary = rfgp.fit(model, x, y, strategy="evidence", max_evaluations=evaluations, progress=False)
    return model, summary.log_marginal_likelihood


def dirichlet(data: Labels, evaluations: int) -> Tensor:
    """The probabilities by a Dirichlet likelihood."""
    x, y = (part[: data.num_train] for part in (data.x, data.y))
    likelihood = DirichletClassificationLikelihood(num_classes=data.num_classes, dtype=torch.float64)
    mean = ConstantMean(batch_shape=torch.Size([data.num_classes])).double()
    model = WeightSpaceGP(kernel(x), likelihood, mean)
    rfgp.fit(model, x, y, strategy="evidence", max_evaluations=evaluations, progress=False)
    with torch.no_grad():
        latent = model.posterior(data.x[data.num_train :])
        return likelihood.class_probabilities(latent, generator=torch.Generator().manual_seed(0))


def boosting(data: Labels) -> Tensor:
    """The probabilities by scikit-learn's boosting, defaults only."""
    x, y = data.x.numpy(), data.y.numpy()
    model = HistGradientBoostingClassifier(random_state=0).fit(x[: data.num_train], y[: data.num_train])
    return torch.from_numpy(model.predict_proba(x[data.num_train :]))


def measured(data: Labels, evaluations: int) -> dict[str, dict[str, float]]:
    """Scores of all methods on the rows that are held out."""
    held, found = slice(data.num_train, None), {}

    def scored(name: str, probabilities: Callable[[], Tensor]) -> dict[str, float]:
        began = time.process_time()
        p, labels = probabilities(), data.y[held]
        found[name] = {
            "log loss": -float(p.gather(-1, labels.unsqueeze(-1)).clamp_min(1e-12).log().mean()),
            "calibration error": float(expected_calibration_error(p, labels, BINS)),
            "accuracy": float((p.argmax(-1) == labels).double().mean()),
            "seconds": time.process_time() - began,
        }
        return found[name]

    if data.truth is not None:
        truth = data.truth[held]
        scored("truth", lambda: truth)
    likelihoods = {
        "heteroscedastic": HeteroscedasticSoftmaxLikelihood(data.num_classes),
        "Softmax": SoftmaxLikelihood(num_classes=data.num_classes, mixing_weights=False),
    }
    for name, likelihood in likelihoods.items():
        fitted: list[tuple[LaplaceGP, float]] = []

        def probabilities(likelihood: Any = likelihood, fitted: list[Any] = fitted) -> Tensor:
            fitted.append(laplace(likelihood, data, evaluations))
            return class_probabilities(fitted[0][0], data.x[held])

        scores = scored(name, probabilities)
        ((model, scores["evidence"]),) = fitted
        if name == "heteroscedastic":
            with torch.no_grad():
                learned = likelihood.label_noise(model.posterior(data.x[held]))
            is_noisy = data.rate[held] > 0.5 * (LEAST + MOST)
            for place, rows in (("quiet", ~is_noisy), ("noisy", is_noisy)):
                scores[f"learned rate, {place}"] = float(learned[rows].mean())
                scores[f"true rate, {place}"] = float(data.rate[held][rows].mean())
    best = max(likelihoods, key=lambda name: found[name]["evidence"])
    found["larger evidence"] = {key: found[best][key] for key in ("log loss", "calibration error", "accuracy")}
    scored("Dirichlet", lambda: dirichlet(data, evaluations))
    scored("boosting", lambda: boosting(data))
    return found


def claims(result: dict[str, Any]) -> dict[str, Any]:
    """Means over the sets of a kind, of every method."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(key.rpartition("|")[0] for key in result["cells"]):
        cells = [cell for key, cell in result["cells"].items() if key.startswith(f"{name}|")]
        found[name] = {
            method: {
                key: statistics.mean(cell[method][key] for cell in cells) for key in ("log loss", "calibration error")
            }
            for method in cells[0]
        }
    return found


def main() -> None:
    parser = common.arguments(__doc__ or "", "label_noise")
    common.add_data_dir(parser)
    options = parser.parse_args()
    count, evaluations, seeds = (150, 4, 1) if options.quick else (None, EVALUATIONS, 3)
    makers: dict[str, Callable[[int], Labels]] = {
        "border in six inputs": lambda seed: border(seed, count or 1000),
        "rings": lambda seed: rings(seed, count or 1000),
        **{
            label: lambda seed, name=name: table(name, seed, options.data_dir, count and 2 * count)
            for name, label in TABLES.items()
        },
    }
    cells = [
        (f"{name}|{seed}", lambda make=make, seed=seed: measured(make(seed), evaluations))
        for name, make in makers.items()
        for seed in range(seeds)
    ]
    common.run_cells(options, cells, claims)


if __name__ == "__main__":
    main()
