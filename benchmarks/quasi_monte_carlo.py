"""The mean squared error of kernels by Sobol frequencies, against orthogonal ones, for 1 to 16 inputs."""

from __future__ import annotations

import itertools
import math
from functools import partial

import torch
from common import arguments, mean_and_error, run_cells

from rfgp.features import Gaussian, Matern, RandomFourier, RationalQuadratic, Spectrum

SPECTRA: dict[str, Spectrum] = {
    "Gaussian": Gaussian(),
    "Matern 1/2": Matern(0.5),
    "Matern 3/2": Matern(1.5),
    "Matern 5/2": Matern(2.5),
    "rational quadratic": RationalQuadratic(),
}
DIMS = (1, 2, 4, 8, 16)
NUM_ROWS = 60


def measure(spectrum: Spectrum, dim: int, width: int, structure: str, num_seeds: int) -> tuple[float, float]:
    """The mean over all pairs of rows and over seeds, with its standard error; the median distance of rows is 1."""
    x = torch.randn(NUM_ROWS, dim, generator=torch.Generator().manual_seed(1))
    x = x / torch.pdist(x).median()
    features = RandomFourier(dim, width, spectrum, structure)
    target, errors = features.target(x, x), []
    for seed in range(num_seeds):
        rows = features.resample(torch.Generator().manual_seed(seed))(x)
        errors.append(float((rows @ rows.mT - target).square().mean()))
    return mean_and_error(errors)


@torch.no_grad()
def compared(spectrum: Spectrum, dim: int, width: int, num_seeds: int) -> dict[str, tuple[float, float]]:
    """Both errors and their ratio, with standard errors."""
    pair = [measure(spectrum, dim, width, structure, num_seeds) for structure in ("orthogonal", "qmc")]
    ratio = pair[0][0] / pair[1][0]
    error = ratio * math.hypot(*(deviation / mean for mean, deviation in pair))
    return {"orthogonal": pair[0], "qmc": pair[1], "ratio": (ratio, error)}


def main() -> None:
    options = arguments(__doc__ or "", "quasi_monte_carlo").parse_args()
    torch.set_default_dtype(torch.float64)
    num_seeds, widths = (10, (64,)) if options.quick else (200, (64, 256, 1024))
    cells = [
        (f"{name}/{dim}/{width}", partial(compared, SPECTRA[name], dim, width, num_seeds))
        for name, dim, width in itertools.product(SPECTRA, DIMS, widths)
    ]
    run_cells(options, cells, rows=NUM_ROWS, seeds=num_seeds)


if __name__ == "__main__":
    main()
