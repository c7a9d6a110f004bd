"""One fit of a peer to measurements in one input, in a process and an environment of its own: JSON on standard output.

Usage: ``grid_peers.py PEER FILE`` with ``celerite2`` or ``hsgp`` and an archive of x, y, x_test and truth, which
``fourier_grid.py --peers PYTHON`` writes. Both learn lengthscale, scale, noise and mean of a Matern-3/2 kernel; seconds
are those of the processor, with compilation.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["JAX_ENABLE_X64"] = "True"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

NUM_VARIANCES = 100
"""At so many points celerite2 gives variances, each of which takes it a pass over all rows."""
NUM_WAVES, BOX = 128, 1.3
"""Functions of HSGP, and the half length of its box over that of the data."""


def celerite2(x: Any, y: Any, x_test: Any) -> dict[str, Any]:
    """The exact likelihood by celerite2, maximized by L-BFGS with its gradients by JAX."""
    import celerite2
    import celerite2.jax
    import jax
    import jax.numpy as jnp
    import numpy as np
    import scipy.optimize

    order = np.argsort(x)
    x, y = x[order], y[order]

    def value(point: Any) -> Any:
        kernel = celerite2.jax.terms.Matern32Term(sigma=jnp.exp(point[0]), rho=jnp.exp(point[1]))
        process = celerite2.jax.GaussianProcess(kernel, mean=point[3])
        process.compute(x, diag=jnp.exp(point[2]) * jnp.ones(len(x)), check_sorted=False)
        return -process.log_likelihood(y) / len(x)

    both: Callable[[Any], Any] = jax.jit(jax.value_and_grad(value))
    start = time.process_time()
    first = np.array([np.log(y.std()), np.log(0.3), np.log(0.1 * y.var()), y.mean()])
    found = scipy.optimize.minimize(
        lambda point: tuple(np.asarray(part, dtype=float) for part in both(point)), first, jac=True, method="L-BFGS-B"
    )
    scale, length, noise, mean = *np.exp(found.x[:3]), found.x[3]
    process = celerite2.GaussianProcess(celerite2.terms.Matern32Term(sigma=scale, rho=length), mean=mean)
    process.compute(x, diag=np.full(len(x), noise))
    fitted = time.process_time()
    center = process.predict(y, t=np.sort(x_test))[np.argsort(np.argsort(x_test))]
    predicted = time.process_time()
    some = np.concatenate(
        [process.predict(y, t=x_test[i : i + 1], return_var=True)[1] for i in range(min(NUM_VARIANCES, len(x_test)))]
    )
    return {
        "fit_seconds": fitted - start,
        "predict_seconds": predicted - fitted,
        "variance_seconds": time.process_time() - predicted,
        "variances": len(some),
        "evaluations": int(found.nfev),
        "lengthscale": length,
        "noise_deviation": noise**0.5,
        "center": center,
        "deviation": np.sqrt(np.maximum(some, 0.0)),
    }


def hsgp(x: Any, y: Any, x_test: Any) -> dict[str, Any]:
    """NumPyro's Hilbert-space features, whose weights are integrated out; L-BFGS maximizes the likelihood."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import numpyro.distributions as dist
    import scipy.optimize
    from numpyro.contrib.hsgp.laplacian import eigenfunctions
    from numpyro.contrib.hsgp.spectral_densities import diag_spectral_density_matern

    start = time.process_time()
    middle = 0.5 * (x.min() + x.max())
    ell = float(BOX * 0.5 * (x.max() - x.min()))
    waves, at_test = (eigenfunctions(points - middle, ell=ell, m=NUM_WAVES) for points in (x, x_test))

    def roots(point: Any) -> Any:
        density = diag_spectral_density_matern(
            nu=1.5, alpha=jnp.exp(point[0]), length=jnp.exp(point[1]), ell=ell, m=NUM_WAVES, dim=1
        )
        return jnp.sqrt(density)

    def value(point: Any) -> Any:
        noise = jnp.exp(point[2]) * jnp.ones(len(x))
        prior = dist.LowRankMultivariateNormal(point[3] * jnp.ones(len(x)), waves * roots(point), noise)
        return -prior.log_prob(y) / len(x)

    both: Callable[[Any], Any] = jax.jit(jax.value_and_grad(value))
    first = np.array([np.log(y.std()), np.log(0.3), np.log(0.1 * y.var()), y.mean()])
    found = scipy.optimize.minimize(
        lambda point: tuple(np.asarray(part, dtype=float) for part in both(point)), first, jac=True, method="L-BFGS-B"
    )
    fitted = time.process_time()
    noise, scaled = float(np.exp(found.x[2])), waves * roots(found.x)
    factor = jax.scipy.linalg.cho_factor(jnp.eye(NUM_WAVES) + scaled.T @ scaled / noise)
    features = at_test * roots(found.x)
    center = found.x[3] + features @ jax.scipy.linalg.cho_solve(factor, scaled.T @ (y - found.x[3]) / noise)
    variance = (features * jax.scipy.linalg.cho_solve(factor, features.T).T).sum(-1)
    return {
        "fit_seconds": fitted - start,
        "predict_seconds": time.process_time() - fitted,
        "variances": len(x_test),
        "evaluations": int(found.nfev),
        "features": NUM_WAVES,
        "lengthscale": float(np.exp(found.x[1])),
        "noise_deviation": noise**0.5,
        "center": np.asarray(center),
        "deviation": np.sqrt(np.asarray(variance)),
    }


def main() -> None:
    import numpy as np

    peer = {"celerite2": celerite2, "hsgp": hsgp}[sys.argv[1]]
    with np.load(sys.argv[2]) as data:
        x, y, x_test, truth = (data[name] for name in ("x", "y", "x_test", "truth"))
    result = peer(x, y, x_test)
    error, deviation = np.abs(result.pop("center") - truth), result.pop("deviation")
    result["rmse"] = float(np.sqrt((error**2).mean()))
    result["coverage_95"] = float((error[: len(deviation)] < 1.96 * deviation).mean())
    print(json.dumps({name: float(v) if isinstance(v, float) else v for name, v in result.items()}))


if __name__ == "__main__":
    main()
