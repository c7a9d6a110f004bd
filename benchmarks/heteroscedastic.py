"""Noise that depends on the inputs: learned, known, and one variance for all; and learned for the targets of labels.

Rows are drawn from f(x) = sin(5 x_1) + x_2^2 with a standard deviation that grows twentyfold along x_1; two
outputs have different noise. A model that knows the variances is the best that can be hoped for. For labels, the
regressions on Dirichlet targets are given the noise that their construction has, or learn it.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import common
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean
from torch import Tensor

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood, MultitaskFixedNoiseGaussianLikelihood
from rfgp.models import HeteroscedasticGP, WeightSpaceGP

WIDTH, NOISE_WIDTH, TEST_ROWS = 128, 64, 4000


def rows(count: int, outputs: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and noise variances, (N, T) each, or (N,) for one output."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    function = torch.stack([torch.sin(5.0 * x[:, 0]) + x[:, 1] ** 2, torch.cos(4.0 * x[:, 1]) + x[:, 0]], -1)
    spread = torch.stack([0.05 * torch.exp(3.0 * x[:, 0]), 0.05 * torch.exp(3.0 * (1.0 - x[:, 1]))], -1)
    y = function + spread * torch.randn(count, 2, generator=generator, dtype=torch.float64)
    return (x, y[:, 0], spread[:, 0] ** 2) if outputs == 1 else (x, y, spread**2)


def kernel(width: int, seed: int, outputs: int = 1) -> Any:
    """A Gaussian kernel with a lengthscale per input, by random features."""
    base = RBFKernel(ard_num_dims=2)
    exact = ScaleKernel(base) if outputs == 1 else MultitaskKernel(base, num_tasks=outputs, rank=outputs)
    return rfgp.approximate(exact.double(), width, input_dim=2, seed=seed)


def mean(outputs: int = 1) -> Any:
    """A constant for every output."""
    return (ConstantMean() if outputs == 1 else MultitaskMean(ConstantMean(), num_tasks=outputs)).double()


def regression(count: int, outputs: int, seed: int) -> list[dict[str, Any]]:
    """Density and coverage of the models of one drawn data set."""
    x, y, noise = rows(count, outputs, seed)
    xs, ys, truth = rows(TEST_ROWS, outputs, seed + 1000)
    if outputs == 1:
        fixed, common_noise = FixedNoiseGaussianLikelihood(noise), GaussianLikelihood().double()
    else:
        fixed = MultitaskFixedNoiseGaussianLikelihood(noise)
        common_noise = MultitaskGaussianLikelihood(num_tasks=outputs).double()
    found = []
    for name in ("learned", "known", "one for all rows"):
        began = time.process_time()
        if name == "learned":
            model: Any = HeteroscedasticGP(kernel(WIDTH, seed, outputs), kernel(NOISE_WIDTH, seed + 1), mean(outputs))
            rfgp.fit(model, x, y, progress=False)
            with torch.no_grad():
                predicted, density = model.predictive(xs), model.log_prob(xs, ys)
        else:
            likelihood = fixed if name == "known" else common_noise
            model = WeightSpaceGP(kernel(WIDTH, seed, outputs), likelihood, mean(outputs))
            rfgp.fit(model, x, y, noise=noise if name == "known" else None, strategy="evidence", progress=False)
            with torch.no_grad():
                latent = model.posterior(xs)
                predicted = likelihood(latent, noise=truth) if name == "known" else likelihood(latent)
                density = torch.distributions.Normal(predicted.mean, predicted.stddev).log_prob(ys)
        is_inside = ((ys - predicted.mean).abs() < 1.96 * predicted.stddev).double()
        is_quiet = truth < truth.median()
        found.append(
            {
                "rows": count,
                "outputs": outputs,
                "noise": name,
                "nlpd": -float(density.mean()),
                "covered where quiet": float(is_inside[is_quiet].mean()),
                "covered where noisy": float(is_inside[~is_quiet].mean()),
                "seconds": time.process_time() - began,
            }
        )
    return found


def classification(count: int, seed: int) -> list[dict[str, Any]]:
    """Error and log loss of two regressions on the Dirichlet targets of labels of three classes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count + TEST_ROWS, 2, generator=generator, dtype=torch.float64)
    logits = 4.0 * torch.stack([torch.sin(5.0 * x[:, 0]), torch.cos(5.0 * x[:, 1]), x.sum(-1) - 1.0], -1)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)
    train, test = slice(0, count), slice(count, None)
    found = []
    for name in ("Dirichlet", "learned"):
        began = time.process_time()
        likelihood = DirichletClassificationLikelihood(labels[train], learn_additional_noise=False, dtype=torch.float64)
        if name == "Dirichlet":
            model: Any = WeightSpaceGP(
                kernel(WIDTH, seed), likelihood, ConstantMean(batch_shape=torch.Size([3])).double()
            )
            rfgp.fit(model, x[train], labels[train], progress=False)
            with torch.no_grad():
                latent = model.posterior(x[test])
                centers, spreads = latent.mean.mT, latent.stddev.mT
        else:
            model = HeteroscedasticGP(kernel(WIDTH, seed, 3), kernel(NOISE_WIDTH, seed + 1), mean(3))
            rfgp.fit(model, x[train], likelihood.transformed_targets.mT.contiguous(), progress=False)
            with torch.no_grad():
                latent = model.posterior(x[test])
                centers, spreads = latent.mean, latent.stddev
        noise = torch.randn(256, *centers.shape, generator=generator, dtype=torch.float64)
        probabilities = (centers + spreads * noise).softmax(-1).mean(0)
        own = probabilities.gather(-1, labels[test].unsqueeze(-1))
        found.append(
            {
                "rows": count,
                "noise": name,
                "error": float((probabilities.argmax(-1) != labels[test]).double().mean()),
                "log loss": -float(own.log().mean()),
                "seconds": time.process_time() - began,
            }
        )
    return found


def averaged(cells: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Means over data sets of the numbers of cells that agree in these keys."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[key] for key in keys), []).append(cell)
    found = []
    for same in groups.values():
        means = {key: statistics.mean(cell[key] for cell in same) for key in same[0] if key not in keys}
        found.append(dict(zip(keys, (same[0][key] for key in keys), strict=True)) | means)
    return found


def main() -> None:
    options = common.arguments(__doc__ or "", "heteroscedastic").parse_args()
    counts, seeds = ((100,), range(1)) if options.quick else ((300, 2000), range(3))
    cells = [c for seed in seeds for count in counts for t in (1, 2) for c in regression(count, t, 10 * seed)]
    labels = [c for seed in seeds for c in classification(counts[-1], 10 * seed)]
    regressions = averaged(cells, ("rows", "outputs", "noise"))
    classes = averaged(labels, ("rows", "noise"))
    common.write(
        options.out,
        {
            "environment": common.environment(),
            "data sets": len(seeds),
            "regression": regressions,
            "classification": classes,
        },
    )
    for table in (regressions, classes):
        lines = [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()] for row in table]
        print(common.markdown(list(table[0]), lines), end="\n\n")


if __name__ == "__main__":
    main()
