"""Uncertainty studies of eight simulators of uqtestfuns, whose inputs have the distributions of the literature.

Each has ten runs for each input. Beside it, scikit-learn's Gaussian process learns from the same runs.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from common import arguments, mean_and_error, run_cells
from scipy.stats import qmc
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from uncertainty_study import Simulator, studied, truth

from rfgp.diagnostics.sensitivity.inputs import points

NAMES = {
    "Ishigami": "Ishigami",
    "speed reducer shaft": "RSSpeedReducerShaft",
    "OTL circuit": "OTLCircuit",
    "piston": "Piston",
    "borehole": "Borehole",
    "flood": "Flood",
    "sulfur": "Sulfur",
    "wing weight": "WingWeight",
}
"""What simulators are called here, and in uqtestfuns."""
RUNS, DESIGNS = 10, 3
"""Runs for each input, and designs of each simulator."""


def simulator(name: str) -> Simulator:
    """A simulator of uqtestfuns with the distributions of its inputs, as that package describes them."""
    import uqtestfuns

    given = getattr(uqtestfuns, NAMES[name])()

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.asarray(given(x.numpy()), dtype=float).reshape(len(x), -1))

    return Simulator(function, {marginal.name: marginal for marginal in given.prob_input.marginals}, [])


def peer(simulator: Simulator, x: np.ndarray, seed: int) -> dict[str, Any]:
    """Scikit-learn's process with a Matern-5/2 kernel that has a lengthscale for each standardized input."""
    kernel = ConstantKernel() * Matern(np.ones(x.shape[-1]), nu=2.5) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed)
    y, start = simulator.function(torch.from_numpy(x)).numpy()[:, 0], time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of parameters that are at a bound
        model = make_pipeline(StandardScaler(), process).fit(x, y)
    seconds = time.process_time() - start
    at, outputs = (part.numpy() for part in simulator.new_runs(seed))
    mean, std = model.predict(at, return_std=True)
    error = outputs[:, 0] - mean
    return {
        "seconds": seconds,
        "relative_error": float(np.sqrt((error**2).mean()) / outputs.std()),
        "coverage": float((np.abs(error) <= 1.96 * std).mean()),
    }


def studies(name: str, designs: int, num_points: int) -> list[dict[str, Any]]:
    """Studies of Latin hypercube designs that are spread as the inputs, each beside scikit-learn's process."""
    found = simulator(name)
    known, dim = truth(found, num_points), len(found.described)
    cells = []
    for seed in range(designs):
        levels = torch.from_numpy(qmc.LatinHypercube(dim, seed=seed).random(RUNS * dim))
        x = points(found.inputs, levels).numpy()
        cells.append(studied(found, x, seed, known) | {"scikit-learn": peer(found, x, seed)})
    return cells


def _explained(cell: dict[str, Any]) -> float:
    return 1.0 - float(np.mean(cell["relative_error"])) ** 2


SHOWN: dict[str, Callable[[dict[str, Any]], float]] = {
    "Q2": _explained,
    "coverage": lambda cell: float(np.mean(cell["coverage"])),
    "indices inside": lambda cell: float(cell["indices_inside"]),
    "Q2 of scikit-learn": lambda cell: _explained(cell["scikit-learn"]),
    "coverage of scikit-learn": lambda cell: float(cell["scikit-learn"]["coverage"]),
}
"""What is shown of a design."""


def claims(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Means and standard errors over designs, and median seconds, of every simulator."""
    return {
        name: {
            "designs": len(cells),
            "seconds": statistics.median(cell["seconds"] for cell in cells),
            "seconds of scikit-learn": statistics.median(cell["scikit-learn"]["seconds"] for cell in cells),
            "least coverage": min(map(SHOWN["coverage"], cells)),
        }
        | {key: mean_and_error([of(cell) for cell in cells]) for key, of in SHOWN.items()}
        for name, cells in result["cells"].items()
    }


def main() -> None:
    parser = arguments(__doc__ or "", "uqtestfuns_simulators")
    options = parser.parse_args()
    if importlib.util.find_spec("uqtestfuns") is None:
        parser.error("expected the package uqtestfuns, which has the simulators; pip install uqtestfuns")
    torch.set_num_threads(1)
    designs, num_points = (1, 2**12) if options.quick else (DESIGNS, 2**20)
    names = ["Ishigami", "flood"] if options.quick else NAMES
    run_cells(options, [(name, partial(studies, name, designs, num_points)) for name in names], claims)


if __name__ == "__main__":
    main()
