"""Log determinants and divergences of covariances that are never stored, by stochastic Lanczos quadrature."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from torch import Tensor
from tqdm.auto import tqdm

from ..._support import checks
from ...approximation import with_features
from ...linalg.conjugate_gradients import ConjugateGradients
from .kernel_matrix import KernelMatrix
from .preconditioner import FeaturePreconditioner
from .problem import exact_matrix, feature_preconditioner, landmark_preconditioner, targets_and_noise

Direction = Literal["approximate_from_exact", "exact_from_approximate"]
_SHARE = 0.1
"""Of the standard error: how far the last iterations may be apart, for every random vector, at the end."""
_FEWEST = 5
"""Iterations that are compared at the end, or a third of all where that is more: few iterations may stand still."""
_NOTHING_LEFT = 1e-20
_DIVERGENCES: dict[str, Callable[[Tensor], Tensor]] = {
    "exact_from_approximate": lambda v: v - 1.0 - v.log(),
    "approximate_from_exact": lambda v: 1.0 / v - 1.0 + v.log(),
}


class StochasticEstimate(NamedTuple):
    """A number that was estimated from random vectors.

    :param value: the estimate.
    :param standard_error: over the random vectors; errors of the quadrature are not in it.
    :param num_probes: the number of random vectors.
    :param iterations: the products with the kernel matrix.
    :param is_converged: whether the last third of the iterations changed the value by less than standard_error / 10.
    """

    value: float
    standard_error: float
    num_probes: int
    iterations: int
    is_converged: bool


@torch.no_grad()
def log_determinant(
    kernel: Kernel,
    likelihood: Likelihood,
    x: Tensor,
    noise: Tensor | None = None,
    *,
    num_landmarks: int = 1024,
    num_probes: int = 16,
    max_iterations: int = 100,
    seed: int = 0,
    progress: bool | None = None,
) -> StochasticEstimate:
    r"""The log determinant of the exact covariance K + S of N observations, without an N x N matrix.

    .. math:: \log|K + S| = \log|M| + N E\, v^\top \log(M^{-1/2} (K + S) M^{-1/2}) v, \qquad
        M = \Phi \Phi^\top + S

    :param kernel: an exact kernel of one output, or an approximated one, as for :func:`certified_posterior`.
    :param likelihood: a Gaussian or fixed-noise likelihood.
    :param x: inputs (N, d).
    :param noise: noise variances (N,), for a fixed-noise likelihood without them.
    :param num_landmarks: the number of landmarks where the kernel has none.
    :param num_probes: the number of random vectors, at least 2.
    :param max_iterations: the largest number of iterations; a warning says where the quadrature has not converged.
    :param seed: the seed of the random vectors.
    :param progress: whether a bar counts the iterations; default: on a terminal.
    :raises ValueError: for bad inputs or settings.

    Source: S. Ubaru, J. Chen and Y. Saad, Fast estimation of tr(f(A)) via stochastic Lanczos quadrature, 2017; J.
    Wenger et al., Preconditioning for scalable Gaussian process hyperparameter optimization, 2022.

    >>> import gpytorch
    >>> x, likelihood = torch.rand(100, 2), gpytorch.likelihoods.GaussianLikelihood()
    >>> log_determinant(gpytorch.kernels.RBFKernel(), likelihood, x, num_landmarks=20).num_probes
    16
    """
    variances, matrix = _noise(likelihood, x, noise), exact_matrix(kernel, x)
    preconditioner = landmark_preconditioner(matrix, kernel, x, variances, num_landmarks)
    trace = _trace(matrix, variances, preconditioner, torch.log, num_probes, max_iterations, seed, progress)
    return trace._replace(value=trace.value + float(preconditioner.log_determinant))


@torch.no_grad()
def stochastic_kl(
    kernel: Kernel,
    likelihood: Likelihood,
    x: Tensor,
    noise: Tensor | None = None,
    *,
    direction: Direction = "approximate_from_exact",
    num_probes: int = 16,
    max_iterations: int = 100,
    seed: int = 0,
    progress: bool | None = None,
) -> StochasticEstimate:
    r"""The divergence between the prior predictive distributions of N observations by features and by the exact kernel.

    .. math:: KL(N(\mu, K + S), N(\mu, M)) = \tfrac12 \mathrm{tr}\, (A - I - \log A), \qquad
        A = M^{-1/2} (K + S) M^{-1/2}, \quad M = \Phi \Phi^\top + S

    for "exact_from_approximate", and with the inverse of A for "approximate_from_exact". Other parameters
    are those of :func:`log_determinant`.

    :param kernel: an approximated kernel of one output.
    :param direction: which of the two divergences.
    :raises ValueError: for a kernel without features, bad inputs or settings.

    >>> import gpytorch, rfgp
    >>> x, likelihood = torch.rand(100, 2), gpytorch.likelihoods.GaussianLikelihood()
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=32, input_dim=2, seed=0)
    >>> stochastic_kl(kernel, likelihood, x).value > 0
    True
    """
    checks.choice("direction", direction, tuple(_DIVERGENCES))
    approximate = with_features(kernel)
    variances, matrix = _noise(likelihood, x, noise), exact_matrix(approximate, x)
    preconditioner, function = feature_preconditioner(approximate, x, variances), _DIVERGENCES[direction]
    trace = _trace(matrix, variances, preconditioner, function, num_probes, max_iterations, seed, progress)
    return trace._replace(value=0.5 * trace.value, standard_error=0.5 * trace.standard_error)


def _noise(likelihood: Likelihood, x: Tensor, noise: Tensor | None) -> Tensor:
    checks.finite(checks.inputs(x))
    return targets_and_noise(likelihood, x, x.new_zeros(len(x)), noise)[1]


def _trace(
    matrix: KernelMatrix,
    noise: Tensor,
    preconditioner: FeaturePreconditioner,
    function: Callable[[Tensor], Tensor],
    num_probes: int,
    max_iterations: int,
    seed: int,
    progress: bool | None,
) -> StochasticEstimate:
    """The trace of a function of :math:`M^{-1/2} (K + S) M^{-1/2}`, by Lanczos iterations from draws of N(0, M)."""
    if checks.positive_integer("num_probes", num_probes) < 2:
        raise ValueError("expected at least 2 for num_probes, got 1, which has no standard error; choose more")
    max_iterations = checks.positive_integer("max_iterations", max_iterations)
    generator = torch.Generator().manual_seed(checks.seed(seed))
    draws = preconditioner.draw(num_probes, generator)
    solver = ConjugateGradients(matrix.plus_diagonal(noise), preconditioner.solve, draws)
    start = solver.energy
    history: list[Tensor] = []
    is_converged = False
    with tqdm(desc="quadrature", unit="pass", disable=checks.no_bar(progress), leave=False) as bar:
        while not is_converged and len(history) < max_iterations:
            solver.step()
            bar.update()
            values = len(noise) * _quadratures(solver, function)
            history.append(values)
            error = float(values.std()) / math.sqrt(num_probes)
            is_solved = bool((solver.energy <= _NOTHING_LEFT * start).all())
            is_converged = is_solved or _last_changes(history) <= _SHARE * error
    if not is_converged:
        warnings.warn(
            f"the quadrature has not converged after {len(history)} iterations: its last ones differ by "
            f"{_last_changes(history):.2g}, beside a standard error of {error:.2g}; raise max_iterations, or use more "
            "features or landmarks",
            stacklevel=4,
        )
    return StochasticEstimate(float(values.mean()), error, num_probes, len(history), is_converged)


def _last_changes(history: list[Tensor]) -> float:
    """The largest range of values (R,) in the last third of a history; infinite where it is short."""
    count = max(_FEWEST, math.ceil(len(history) / 3))
    if len(history) <= count:
        return math.inf
    last = torch.stack(history[-count - 1 :])
    return float((last.amax(0) - last.amin(0)).max())


def _quadratures(solver: ConjugateGradients, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The quadratic form of a function of the matrix in every first direction of unit norm, (R,)."""
    lengths, turns = (torch.stack(parts, dim=-1) for parts in zip(*solver.steps, strict=True))
    values = []
    for length, turn in zip(lengths, turns, strict=True):
        count = max(int((length > 0.0).long().cumprod(0).sum()), 1)
        inverse = 1.0 / length[:count]
        diagonal = inverse.clone()
        diagonal[1:] += turn[: count - 1] * inverse[:-1]
        beside = turn[: count - 1].sqrt() * inverse[:-1]
        nodes, vectors = torch.linalg.eigh(torch.diag(diagonal) + torch.diag(beside, 1) + torch.diag(beside, -1))
        values.append((vectors[0].square() * function(nodes.clamp_min(torch.finfo(nodes.dtype).tiny))).sum())
    return torch.stack(values)
