"""T Fig. 5.9: a map of a function with a short lengthscale, by 100 features; drawn data in place of apartment prices.

Rows lie in towns of several sizes between 50° and 55° north and 6° west and 2° east, the largest in the south-east. The
function is drawn from the model, with the lengthscale of T, 0.25, and a noise variance of 0.1.
"""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from rfgp.diagnostics import exact_posterior, kl_divergence

from .item import Claim, Options
from .thesis_5_02_08_10 import approximation, noisy

LENGTHSCALE, NOISE, WIDTH = 0.25, 0.1, 100


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    rows, side = (150, 8) if options.quick else (1000, 25)
    generator = torch.Generator().manual_seed(0)
    towns = torch.tensor([6.0, 9.0], dtype=torch.float64) * torch.rand(20, 2, generator=generator, dtype=torch.float64)
    towns = torch.cat([torch.tensor([[51.5, 0.0]], dtype=torch.float64), towns + torch.tensor([49.5, -6.5])])
    size = torch.cat([torch.tensor([10.0]), torch.rand(20, generator=generator)])
    which = torch.multinomial(size, rows, replacement=True, generator=generator)
    x = towns[which] + 0.3 * torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    kernel, likelihood = ScaleKernel(RBFKernel()).double(), GaussianLikelihood().double()
    kernel.base_kernel.lengthscale, kernel.outputscale, likelihood.noise = LENGTHSCALE, 1.0, NOISE
    covariance = kernel(x).to_dense() + NOISE * torch.eye(rows, dtype=torch.float64)
    y = torch.linalg.cholesky(covariance) @ torch.randn(rows, generator=generator, dtype=torch.float64)
    axes = (torch.linspace(low, high, side, dtype=torch.float64) for low, high in ((50.0, 55.0), (-6.0, 2.0)))
    grid = torch.cartesian_prod(*axes)
    mean = x.mean(0)
    x, grid = x - mean, grid - mean  # Maclaurin features around the mean of the rows
    reference = noisy(exact_posterior(kernel, likelihood, x, y, grid), NOISE)
    found = {}
    for name, method, options_of in (
        ("Fourier", "fourier", {}),
        ("Maclaurin", "optimized_maclaurin", {}),
        ("localized Maclaurin", "localized", {"centers": grid}),
    ):
        latent = approximation(method, kernel, likelihood, x, y, WIDTH, 0, **options_of).posterior(grid)
        found[name] = float(kl_divergence(noisy(latent, NOISE), reference))
    return {"rows": rows, "kl": found}


def claims(result: dict[str, Any]) -> list[Claim]:
    kl = result["kl"]
    shown = ", ".join(f"{name} {value:.3g}" for name, value in kl.items())
    return [
        Claim("localized Maclaurin features have the lowest KL", shown, min(kl, key=kl.get) == "localized Maclaurin"),
        Claim(
            "Maclaurin features around the mean suffer from vanishing kernels",
            shown,
            kl["Maclaurin"] > kl["localized Maclaurin"],
        ),
    ]


CLAIMS = {"T Fig. 5.9": claims}
