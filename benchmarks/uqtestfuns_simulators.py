"""Uncertainty studies of eight simulators of uqtestfuns, whose inputs have the distributions of the literature.

Each has ten runs for each input. Beside it, the Gaussian processes of scikit-learn and of OpenTURNS learn from the same
runs, with a Matern-5/2 kernel that has a lengthscale for each standardized input.
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
RUNS, DESIGNS = 10, 10
"""Runs for each input, and designs of each simulator."""


def simulator(name: str) -> Simulator:
    """A simulator of uqtestfuns with the distributions of its inputs, as that package describes them."""
    import uqtestfuns

    given = getattr(uqtestfuns, NAMES[name])()

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.asarray(given(x.numpy()), dtype=float).reshape(len(x), -1))

    return Simulator(function, {marginal.name: marginal for marginal in given.prob_input.marginals}, [])


Prediction = tuple[np.ndarray, np.ndarray]
"""Means and standard deviations of new runs."""


def scikit_learn(x: np.ndarray, y: np.ndarray, seed: int) -> Callable[[np.ndarray], Prediction]:
    """Predictions of scikit-learn's process, which learns a noise variance."""
    kernel = ConstantKernel() * Matern(np.ones(x.shape[-1]), nu=2.5) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of parameters that are at a bound
        model = process.fit(x, y)
    return partial(model.predict, return_std=True)


def openturns(x: np.ndarray, y: np.ndarray, _: int) -> Callable[[np.ndarray], Prediction]:
    """Predictions of the process of OpenTURNS, with a constant mean.

    By default its lengthscales are at most twice the range of an input, which is too short for inputs that matter
    little. So bounds are .01 and 100 with its TNC optimizer, and its defaults where that fails.
    """
    import openturns as ot

    def fitted(has_wide_bounds: bool) -> Any:
        dim = x.shape[-1]
        kernel, mean = ot.MaternModel(np.ones(dim), 2.5), ot.ConstantBasisFactory(dim).build()
        fitter = ot.GaussianProcessFitter(ot.Sample(x), ot.Sample(y[:, None]), kernel, mean)
        if has_wide_bounds:
            fitter.setOptimizationAlgorithm(ot.TNC())
            fitter.setOptimizationBounds(ot.Interval([1e-2] * dim, [1e2] * dim))
        fitter.run()
        regression = ot.GaussianProcessRegression(fitter.getResult())
        regression.run()
        return regression.getResult()

    try:
        model = fitted(has_wide_bounds=True)
    except RuntimeError:
        model = fitted(has_wide_bounds=False)

    def predict(at: np.ndarray) -> Prediction:
        variance = ot.GaussianProcessConditionalCovariance(model).getConditionalMarginalVariance(ot.Sample(at))
        return np.asarray(model.getMetaModel()(at))[:, 0], np.sqrt(np.maximum(np.asarray(variance)[:, 0], 0.0))

    return predict


PEERS = {"scikit-learn": scikit_learn, "OpenTURNS": openturns}


def peer(name: str, simulator: Simulator, x: np.ndarray, seed: int) -> dict[str, Any]:
    """Seconds, error and coverage of a peer's process of standardized inputs and outputs."""
    y, start = simulator.function(torch.from_numpy(x)).numpy()[:, 0], time.process_time()
    scaler = StandardScaler().fit(x)
    predict = PEERS[name](scaler.transform(x), (y - y.mean()) / y.std(), seed)
    seconds = time.process_time() - start
    at, outputs = (part.numpy() for part in simulator.new_runs(seed))
    mean, std = (y.std() * part for part in predict(scaler.transform(at)))
    error = outputs[:, 0] - y.mean() - mean
    return {
        "seconds": seconds,
        "relative_error": float(np.sqrt((error**2).mean()) / outputs.std()),
        "coverage": float((np.abs(error) <= 1.96 * std).mean()),
    }


def studies(name: str, designs: int, num_points: int) -> list[dict[str, Any]]:
    """Studies of Latin hypercube designs that are spread as the inputs, each beside those of the peers."""
    found = simulator(name)
    known, dim = truth(found, num_points), len(found.described)
    cells = []
    for seed in range(designs):
        levels = torch.from_numpy(qmc.LatinHypercube(dim, seed=seed).random(RUNS * dim))
        x = points(found.inputs, levels).numpy()
        cells.append(studied(found, x, seed, known) | {name: peer(name, found, x, seed) for name in PEERS})
    return cells


def _explained(cell: dict[str, Any]) -> float:
    return 1.0 - float(np.mean(cell["relative_error"])) ** 2


SHOWN: dict[str, Callable[[dict[str, Any]], float]] = {
    "Q2": _explained,
    "coverage": lambda cell: float(np.mean(cell["coverage"])),
    "indices inside": lambda cell: float(cell["indices_inside"]),
    "Q2 of scikit-learn": lambda cell: _explained(cell["scikit-learn"]),
    "coverage of scikit-learn": lambda cell: float(cell["scikit-learn"]["coverage"]),
    "Q2 of OpenTURNS": lambda cell: _explained(cell["OpenTURNS"]),
    "coverage of OpenTURNS": lambda cell: float(cell["OpenTURNS"]["coverage"]),
}
"""What is shown of a design."""


def claims(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Means and standard errors over designs, and median seconds, of every simulator."""
    return {
        name: {
            "designs": len(cells),
            "seconds": statistics.median(cell["seconds"] for cell in cells),
        }
        | {f"seconds of {peer}": statistics.median(cell[peer]["seconds"] for cell in cells) for peer in PEERS}
        | {
            "least coverage": min(map(SHOWN["coverage"], cells)),
        }
        | {key: mean_and_error([of(cell) for cell in cells]) for key, of in SHOWN.items()}
        for name, cells in result["cells"].items()
    }


def main() -> None:
    parser = arguments(__doc__ or "", "uqtestfuns_simulators")
    options = parser.parse_args()
    if missing := [name for name in ("uqtestfuns", "openturns") if importlib.util.find_spec(name) is None]:
        parser.error(f"expected {' and '.join(missing)}, the simulators and a peer; pip install {' '.join(missing)}")
    torch.set_num_threads(1)
    designs, num_points = (1, 2**12) if options.quick else (DESIGNS, 2**20)
    names = ["Ishigami", "flood"] if options.quick else NAMES
    run_cells(options, [(name, partial(studies, name, designs, num_points)) for name in names], claims)


if __name__ == "__main__":
    main()
