"""What one more observation costs: conditioning a model of BoTorch against the number of features.

Every figure is the median of single conditionings on q new observations in processor time, one after the other, each on
the model that the one before has left; beside it a fit to as many rows, which gives the same posterior.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from common import arguments, environment, write

from rfgp.botorch import WeightSpaceModel

ROWS, INPUTS = 2000, 6


def measured(width: int, count: int, repeats: int) -> dict[str, Any]:
    """Milliseconds of a fit, and of conditioning on ``count`` observations."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS + count * repeats, INPUTS, generator=generator, dtype=torch.float64)
    y = torch.sin(5.0 * x).sum(-1, keepdim=True)
    model = WeightSpaceModel(x[:ROWS], y[:ROWS], num_features=width, seed=0)
    began = time.process_time()
    model.posterior(x[:1])
    fit = time.process_time() - began
    times = []
    for start in range(ROWS, len(x), count):
        began = time.process_time()
        model = model.condition_on_observations(x[start : start + count], y[start : start + count])
        times.append(1000.0 * (time.process_time() - began))
    return {
        "features": width,
        "observations": count,
        "fit_ms": 1000.0 * fit,
        "median_ms": statistics.median(times),
        "largest_ms": max(times),
    }


def main() -> None:
    parser = arguments(__doc__, "conditioning")
    options = parser.parse_args()
    torch.set_num_threads(1)
    widths = (64,) if options.quick else (256, 512, 1024, 2048)
    rows = [measured(width, count, 3 if options.quick else 50) for width in widths for count in (1, 10, 100)]
    for row in rows:
        print(
            f"D = {row['features']:5d}, q = {row['observations']:3d}: {row['median_ms']:7.2f} ms "
            f"(at most {row['largest_ms']:.2f}), a fit {row['fit_ms']:.0f} ms"
        )
    write(options.out, {"environment": environment(), "rows": rows})


if __name__ == "__main__":
    main()
