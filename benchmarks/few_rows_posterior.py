"""Averages of few rows beside long Hamiltonian Monte Carlo, and their coverage of functions of their own prior.

Of two tables the parameters of one member, of inputs as they are and a transformed target, are drawn by importance
resampling, as averages do, and by Hamiltonian Monte Carlo. Means and standard deviations of predictions are compared
in standard deviations of the posterior; the halves of the chain tell the Monte Carlo error. And 24 problems of 60 to
400 rows are drawn from the prior of the kernel: how many new targets lie in the 95 % intervals of averages?
"""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch
from few_rows import folds

from rfgp.averaging import AveragedGP
from rfgp.averaging.column_scale import ColumnScale
from rfgp.averaging.input_scale import InputScale
from rfgp.averaging.table_kernel import TableKernel, fixed_matrices
from rfgp.averaging.table_member import TableMember, TableRows

SETS, ROWS_OF_SETS = ("servo", "yacht"), 150
ROWS, INPUTS = (60, 120, 240, 400), (2, 4, 8)
DRAWS, PROPOSALS = 24, 200
"""As averages of up to 300 rows have."""
LEAPFROGS = 12


def chain(kernel: TableKernel, start: np.ndarray, root: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    """Draws (count, p) of the parameters by Hamiltonian Monte Carlo in units of a root of their covariance.

    The step is adapted in the first fifth, which is not returned.

    :returns: the draws, and the share of proposals that were accepted.
    """
    random, step, position = np.random.default_rng(0), 0.2, np.zeros(len(start))

    def density(steps: np.ndarray) -> tuple[float, np.ndarray]:
        vector = start + root @ steps
        low, high = np.transpose(kernel.bounds)
        if ((vector < low) | (vector > high)).any():
            return math.inf, np.zeros_like(steps)
        loss, slope = kernel.loss(vector)
        return loss, slope @ root

    loss, slope = density(position)
    found, accepted, burn_in = [], 0, count // 4
    for number in range(count + burn_in):
        momentum, now, by_now = random.normal(size=len(start)), position, slope
        energy = loss + 0.5 * float(momentum @ momentum)
        for _ in range(LEAPFROGS):
            momentum = momentum - 0.5 * step * by_now
            now = now + step * momentum
            proposed, by_now = density(now)
            momentum = momentum - 0.5 * step * by_now
            if math.isinf(proposed):
                break
        is_taken = math.log(random.random()) < energy - proposed - 0.5 * float(momentum @ momentum)
        if is_taken:
            position, loss, slope = now, proposed, by_now
        if number < burn_in:
            step *= math.exp(0.1 * (is_taken - 0.8))
        else:
            accepted += is_taken
            found.append(start + root @ position)
    return np.stack(found), accepted / count


def beside_monte_carlo(x: np.ndarray, y: np.ndarray, new: np.ndarray, count: int) -> dict[str, float]:
    """How far predictions are from those of a long chain, and those of its halves from each other."""
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y).unsqueeze(-1)
    member = TableMember(
        TableRows(InputScale(inputs, "values"), inputs), ColumnScale(targets, is_transformed=True), targets
    )
    began = time.process_time()
    member.learn()
    member.draw(DRAWS, PROPOSALS)
    seconds = time.process_time() - began
    kernel = TableKernel(member.rows.x, member.y[:, 0], member.rows.fixed, member.has_lengthscales)
    began = time.process_time()
    draws, share = chain(kernel, member.modes[0], member.roots[0], count)
    seconds_of_chain = time.process_time() - began

    def moments(vectors: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        member.vectors = [vectors]
        mean, variance = member.predict(torch.from_numpy(new))
        return mean.mean(0), (variance.mean(0) + mean.var(0, correction=0)).sqrt()

    ours, of_mode = moments(member.vectors[0]), moments(member.modes[0][None])
    thinned = draws[:: max(1, count // 400)]
    long, first, second = moments(thinned), moments(draws[: count // 2 : 10]), moments(draws[count // 2 :: 10])

    def distance(some: tuple[torch.Tensor, torch.Tensor], others: tuple[torch.Tensor, torch.Tensor]) -> list[float]:
        apart = ((some[0] - others[0]) / others[1]).square().mean().sqrt()
        return [float(apart), float((some[1] / others[1]).log().mean().exp())]

    names = ("mean", "deviation")
    pairs = {"average": (ours, long), "most probable": (of_mode, long), "half of the chain": (first, second)}
    found = {
        f"{name}, {key}": value
        for name, pair in pairs.items()
        for key, value in zip(names, distance(*pair), strict=True)
    }
    return {**found, "accepted": share, "seconds": seconds, "seconds of the chain": seconds_of_chain}


def covered(rows: int, inputs: int, seed: int) -> float:
    """The share of 200 new targets in 95 % intervals, of a function of the prior, with noise of 5 %."""
    generator, random = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    x = torch.randn(rows + 200, inputs, generator=generator, dtype=torch.float64)
    kernel = TableKernel(x, x[:, 0], fixed_matrices(x, x), has_lengthscales=True)
    others = random.normal(kernel.center[inputs:], kernel.width[inputs:] / 2.0)
    vector = np.r_[0.5 * random.standard_t(3.0, size=inputs), others[:-1], math.log(0.05)]
    total = kernel.of_rows(vector)[0] + 0.05 * torch.eye(len(x), dtype=torch.float64)
    y = torch.linalg.cholesky(total) @ torch.randn(len(x), generator=generator, dtype=torch.float64)
    probability = AveragedGP(x[:rows], y[:rows]).predictive(x[rows:]).cdf(y[rows:])
    return float(((probability > 0.025) & (probability < 0.975)).double().mean())


def monte_carlo(data_dir: Path, count: int) -> dict[str, dict[str, float]]:
    found = {}
    for name in SETS:
        x, y, new, _ = next(folds(data_dir, name, 1))
        found[name] = beside_monte_carlo(x[:ROWS_OF_SETS], y[:ROWS_OF_SETS], new, count)
        print(name, {key: round(value, 4) for key, value in found[name].items()}, flush=True)
    return found


def main() -> None:
    parser = common.arguments(__doc__.splitlines()[0], "few_rows_posterior")
    common.add_data_dir(parser)
    parser.add_argument("--draws", type=int, default=4000, help="the length of the chain")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chains = monte_carlo(options.data_dir, 200 if options.quick else options.draws)
    problems: list[dict[str, Any]] = []
    for seed in range(2 if options.quick else 24):
        rows, inputs = ROWS[seed % len(ROWS)], INPUTS[seed % len(INPUTS)]
        problems.append({"rows": rows, "inputs": inputs, "coverage": covered(rows, inputs, seed)})
        print(problems[-1], flush=True)
    shares = [problem["coverage"] for problem in problems]
    error = float(np.std(shares, ddof=1) / len(shares) ** 0.5)
    summary = {"coverage": float(np.mean(shares)), "standard error": error}
    print(summary)
    environment = common.environment()
    common.write(options.out, {"environment": environment, "chains": chains, "problems": problems, **summary})


if __name__ == "__main__":
    main()
