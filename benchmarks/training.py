"""rfgp.fit from defaults: the same model in any units, and an optimum that ten restarts hardly better.

Units: 300 rows of two inputs, three kernels, targets and inputs scaled and shifted; the evidence of the standardized
targets and the error in standard deviations, in float64 and float32. Restarts: eight real sets in their raw units, one
training from the defaults against ten from random lengthscales and noise; the evidence of standardized targets.
"""

from __future__ import annotations

import math
import time
import warnings

import numpy as np
import torch
from common import add_data_dir, arguments, environment, markdown, resumed, write
from gpytorch.constraints import Positive
from gpytorch.kernels import MaternKernel, MultitaskKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean
from sklearn.datasets import load_diabetes
from tqdm import tqdm

import rfgp

KERNELS = {
    "Gaussian": lambda: RBFKernel(ard_num_dims=2),
    "Matern 3/2": lambda: MaternKernel(nu=1.5),
    "polynomial 3": lambda: PolynomialKernel(power=3),
}
UNITS = {
    "plain": {},
    **{f"y x {scale:g}": {"y_scale": scale} for scale in (1e-8, 1e-4, 1e4, 1e8)},
    **{f"y + {offset:g} sd": {"y_offset": offset} for offset in (1e4, 1e8)},
    **{f"x x {scale:g}": {"x_scale": scale} for scale in (1e-6, 1e3)},
    **{f"x + {offset:g}": {"x_offset": offset} for offset in (1e3, 1e6)},
}
SETS = ("protein", "powerplant", "concrete", "energy", "yacht", "kin8nm", "diabetes", "rf1")
NUM_FEATURES, RESTARTS = 128, 10


def toy(dtype, x_scale=1.0, x_offset=0.0, y_scale=1.0, y_offset=0.0):
    """Rows in some units, and the standard deviation of the targets before they are rounded."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(300, generator=generator, dtype=torch.float64)
    y = torch.sin(2 * x[:, 0]) + 0.3 * x[:, 1].square() + noise
    sd = float(y.std(correction=0))
    return (x_scale * (x + x_offset)).to(dtype), (y_scale * (y + y_offset * sd)).to(dtype), y_scale * sd


def units_cell(kernel, dtype, units):
    """Evidence, error and evaluations of one training."""
    x, y, sd = toy(dtype, **UNITS[units])
    approximated = rfgp.approximate(ScaleKernel(KERNELS[kernel]()).to(dtype), 64, input_dim=2, seed=0)
    likelihood = GaussianLikelihood(noise_constraint=Positive()).to(dtype)
    model = rfgp.models.WeightSpaceGP(approximated, likelihood, ConstantMean().to(dtype))
    summary = rfgp.fit(model, x, y)
    error = (model.posterior(x).mean.detach().double() - y.double()).square().mean().sqrt()
    return {
        "evidence": summary.log_marginal_likelihood + len(y) * math.log(sd),
        "error": float(error) / sd,
        "evaluations": summary.evaluations,
        "converged": summary.converged,
    }


def rows(name, data_dir):
    """A data set in its raw units."""
    if name == "diabetes":
        return tuple(torch.as_tensor(part, dtype=torch.float64) for part in load_diabetes(return_X_y=True))
    with np.load(data_dir / f"{name}.npz") as archive:
        return tuple(torch.as_tensor(archive[key], dtype=torch.float64) for key in ("x", "y"))


def model_for(x, y):
    """A Gaussian kernel with a lengthscale per input, and tasks where there are several outputs."""
    base = RBFKernel(ard_num_dims=x.shape[-1])
    if y.dim() == 1:
        kernel, likelihood, mean = ScaleKernel(base), GaussianLikelihood(), ConstantMean()
    else:
        outputs = y.shape[-1]
        kernel = MultitaskKernel(base, num_tasks=outputs, rank=1)
        likelihood, mean = MultitaskGaussianLikelihood(outputs), MultitaskMean(ConstantMean(), outputs)
    approximated = rfgp.approximate(kernel.double(), NUM_FEATURES, input_dim=x.shape[-1], seed=0)
    return rfgp.models.WeightSpaceGP(approximated, likelihood.double(), mean.double())


def trained(x, y, seed):
    """Standardized evidence of a training from the defaults (seed 0) or from a random start."""
    torch.manual_seed(0)
    model = model_for(x, y)
    start = time.perf_counter()
    if seed:
        generator = torch.Generator().manual_seed(seed)
        rfgp.fit(model, x, y, max_evaluations=1)
        lengths = next(part for part in model.covar_module.modules() if isinstance(part, RBFKernel))
        spread = 3.0 * torch.rand(x.shape[-1], generator=generator) - 1.5 + 2.0 * torch.rand(1, generator=generator) - 1
        lengths.lengthscale = lengths.lengthscale.detach() * spread.exp()
        level = float(torch.exp(6.0 * torch.rand(1, generator=generator) - 5.0))
        model.likelihood.noise = (model.likelihood.noise.detach() * level).clamp_min(1.1e-4)
    summary = rfgp.fit(model, x, y, strategy=rfgp.training.Auto(initialize=not seed), max_evaluations=300)
    columns = y if y.dim() > 1 else y.unsqueeze(-1)
    return {
        "evidence": summary.log_marginal_likelihood + len(y) * float(columns.std(0, correction=0).log().sum()),
        "evaluations": summary.evaluations,
        "converged": summary.converged,
        "message": summary.message,
        "seconds": time.perf_counter() - start,
    }


def units_table(cells):
    """The grid of units: difference of the evidence from plain units, and error."""
    lines = []
    for kernel in KERNELS:
        for dtype in ("float64", "float32"):
            own = {u: cells.get(f"units {kernel} {dtype} {u}") for u in UNITS}
            for units, cell in own.items():
                if cell is not None:
                    difference = cell["evidence"] - own["plain"]["evidence"]
                    lines.append([kernel, dtype, units, f"{cell['evidence']:.4f}", f"{difference:.1e}"])
                    lines[-1] += [f"{cell['error']:.4f}", str(cell["evaluations"])]
    return markdown(["kernel", "dtype", "units", "evidence", "difference", "RMSE / sd", "evaluations"], lines)


def restarts_table(cells):
    """The eight sets: evidence from defaults and the best of the restarts."""
    lines = []
    for name in SETS:
        runs = [cells[key] for key in (f"set {name} {seed}" for seed in range(RESTARTS + 1)) if key in cells]
        if len(runs) < 2:
            continue
        best = max(run["evidence"] for run in runs[1:])
        count = cells[f"set {name} 0"]["rows"]
        lines.append([name, str(count), f"{runs[0]['evidence']:.1f}", f"{best:.1f}"])
        lines[-1] += [f"{100 * (best - runs[0]['evidence']) / count:.3f}", str(len(runs) - 1), runs[0]["message"][:40]]
    return markdown(["set", "rows", "from defaults", "best restart", "nats per 100 rows", "restarts", "end"], lines)


def main():
    parser = arguments(__doc__.splitlines()[0], "training")
    add_data_dir(parser, required=False)
    parser.add_argument("--max-rows", type=int, default=2000, help="rows of a set, drawn at random (default: 2000)")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, help="data sets (default: all)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    result = resumed(options)
    result["environment"] = environment()
    cells = result["cells"]
    grid = [(kernel, dtype, units) for kernel in KERNELS for dtype in ("float64", "float32") for units in UNITS]
    grid = [cell for cell in grid if not (cell[0].startswith("polynomial") and cell[2].startswith("x +"))]
    for kernel, dtype, units in tqdm(grid[:3] if options.quick else grid, desc="units"):
        key = f"units {kernel} {dtype} {units}"
        if key not in cells:
            cells[key] = units_cell(kernel, getattr(torch, dtype), units)
    write(options.out, result)
    print(units_table(cells))
    sets = ["diabetes"] if options.data_dir is None or options.quick else options.sets
    for name in sets:
        x, y = rows(name, options.data_dir)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        chosen = order[: 100 if options.quick else options.max_rows]
        for seed in tqdm(range(2 if options.quick else RESTARTS + 1), desc=name):
            key = f"set {name} {seed}"
            if key not in cells:
                cells[key] = trained(x[chosen], y[chosen], seed) | {"rows": len(chosen)}
                write(options.out, result)
    print(restarts_table(cells))


if __name__ == "__main__":
    main()
