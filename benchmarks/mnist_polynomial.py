"""Polynomial sketches on MNIST: kernel error, KL to the exact posterior, test error and MNLL against their width.

The kernel is (1/2 + 1/2 x.y)^p on unit-normalized rows, with output scale = variance of the transformed labels. The KL
compares latent marginals of posteriors given the first 5,000 training rows; error and MNLL are for all 60,000.
"""

from __future__ import annotations

import json
import time

import torch
from common import add_data_dir, arguments, environment, mnist, write
from gpytorch.kernels import PolynomialKernel, ScaleKernel
from tqdm import tqdm

import rfgp
from rfgp.diagnostics import classification_mnll, error_rate, exact_posterior, kl_divergence, relative_frobenius_error
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

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
    if kernel.base_kernel.feature_map.num_features >= len(x):
        plain = ScaleKernel(kernel.base_kernel)
        plain.outputscale = exact.outputscale.detach()
        return exact_posterior(plain, likelihood, x, labels, points)
    return WeightSpaceGP(kernel, likelihood).fit(x, labels).posterior(points)


def measure(exact, method, width, seed, data, reference, num_exact, num_points):
    x, labels, x_test, labels_test = data
    start = time.perf_counter()
    kernel = rfgp.approximate(exact, width, input_dim=x.shape[-1], method=method, seed=seed)
    likelihood = DirichletClassificationLikelihood(num_classes=10, alpha_epsilon=ALPHA)
    model = WeightSpaceGP(kernel, likelihood).fit(x, labels)
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


def main() -> None:
    parser = arguments(__doc__, "mnist_polynomial")
    add_data_dir(parser)
    options = parser.parse_args()
    num_exact, num_points = (500, 200) if options.quick else (5000, 1000)
    data = mnist(options.data_dir)
    if options.quick:
        data = (data[0][:2000], data[1][:2000], data[2][:1000], data[3][:1000])
    widths = {128: 2, 256: 1} if options.quick else {512: 5, 1024: 5, 2048: 5, 4096: 1, 8192: 1}
    result = json.loads(options.out.read_text()) if options.out.exists() and not options.quick else {"cells": {}}
    result |= {"environment": environment(), "alpha_epsilon": ALPHA, "kl_rows": num_exact, "kl_points": num_points}
    jobs = [(w, p, m, s) for w, seeds in widths.items() for p in (3, 6) for m in METHODS for s in range(seeds)]
    references = {}
    with torch.no_grad():
        for width, power, method, seed in tqdm(jobs):
            key = f"{power}/{method}/{width}/{seed}"
            if key in result["cells"]:
                continue
            exact = exact_kernel(power, data[1])
            if power not in references:
                likelihood = DirichletClassificationLikelihood(num_classes=10, alpha_epsilon=ALPHA)
                small = data[0][:num_exact], data[1][:num_exact]
                references[power] = exact_posterior(exact, likelihood, *small, data[2][:num_points])
            cell = measure(exact, method, width, seed, data, references[power], num_exact, num_points)
            result["cells"][key] = cell
            write(options.out, result)


if __name__ == "__main__":
    main()
