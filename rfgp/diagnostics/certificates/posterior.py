"""The exact posterior mean at any number of rows, with a bound on how far it is from exact."""

from __future__ import annotations

import copy
import time
import warnings
from typing import Any, NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from torch import Tensor
from tqdm.auto import tqdm

from ..._support import checks
from ...kernels.observation import check_observed_mean
from ...linalg.conjugate_gradients import ConjugateGradients
from .kernel_matrix import EPS, KernelMatrix
from .preconditioner import LandmarkPreconditioner
from .problem import exact_matrix, landmark_preconditioner, targets_and_noise

_SHARE = 0.9
"""Of the tolerance, for what the iterations believe, so that the residual that is computed anew is below it."""
_SHARE_OF_ROUNDING = 0.1
_POINTS = 256


class Bounds(NamedTuple):
    """Bounds on variances, (M,): none is smaller than ``lower``, and none larger than ``upper``."""

    lower: Tensor
    upper: Tensor


class _CertifiedSolver(ConjugateGradients):
    r"""Solutions of :math:`(K + S) \alpha = b`, (N, R), with bounds on rounding and on the effect of a residual."""

    def __init__(
        self,
        matrix: KernelMatrix,
        noise: Tensor,
        preconditioner: LandmarkPreconditioner,
        right: Tensor,
        right_error: Tensor | float = 0.0,
    ) -> None:
        super().__init__(matrix.plus_diagonal(noise), preconditioner.solve, right)
        self._matrix, self._noise, self._preconditioner, self._right_error = matrix, noise, preconditioner, right_error

    def rounding(self) -> Tensor:
        """A bound on what rounding may have done to residuals that were computed anew, (N, R)."""
        sizes = self.right.abs() + self._noise.unsqueeze(-1) * self.solution.abs()
        return self._matrix.rounding(self.solution) + 4.0 * EPS * sizes + self._right_error

    def white_rounding(self) -> Tensor:
        r"""The same as :math:`\|S^{-1/2} r\|`, (R,)."""
        return self._preconditioner.white_norm(self.rounding())

    def residual_norm(self) -> Tensor:
        r"""A bound on :math:`\sqrt{r^\top (K + S)^{-1} r}` (R,) of residuals that were computed anew."""
        return self._preconditioner.norm_bound(self.residual) + self.white_rounding()


class CertifiedPosterior:
    r"""The posterior of an exact Gaussian process, with certified errors; made by :func:`certified_posterior`.

    .. math:: \Big|\mu(x) + k_x^\top \alpha - E[f(x) | y]\Big| = |k_x^\top (K + S)^{-1} r|
        \le \sqrt{k(x, x)} \sqrt{r^\top (K + S)^{-1} r}, \qquad r = y - \mu - (K + S) \alpha
    """

    def __init__(
        self,
        matrix: KernelMatrix,
        noise: Tensor,
        preconditioner: LandmarkPreconditioner,
        mean: Mean | None,
        targets: Tensor,
        residuals: Tensor,
        num_columns: int,
    ) -> None:
        self._matrix, self._noise, self._preconditioner, self._mean = matrix, noise, preconditioner, mean
        self._solver = _CertifiedSolver(matrix, noise, preconditioner, residuals.unsqueeze(-1))
        spread = float(targets.std(correction=0))
        self._unit = float(matrix.deviations.max()) / (spread if spread > 0.0 else 1.0)
        self._num_columns = num_columns
        self._seconds, self._history = 0.0, [self._unit * float(self._solver.energy.sqrt())]
        self._residual_norm = float(self._solver.residual_norm())

    @property
    def iterations(self) -> int:
        """The iterations so far, each a product with the kernel matrix."""
        return len(self._solver.steps)

    @property
    def seconds(self) -> float:
        """The seconds that they took, by the clock."""
        return self._seconds

    @property
    def residual_norm(self) -> float:
        r"""A bound on :math:`\sqrt{r^\top (K + S)^{-1} r}`: the error of the mean in prior standard deviations."""
        return self._residual_norm

    @property
    def relative_bound(self) -> float:
        """The largest error bound at the training inputs, in standard deviations of the targets."""
        return self._unit * self._residual_norm

    @property
    def history(self) -> list[float]:
        """What the iterations believed of ``relative_bound``, before the first and after each; not certified."""
        return list(self._history)

    @torch.no_grad()
    def mean(self, x: Tensor) -> Tensor:
        """The posterior mean of the function at inputs (M, d): (M,), in float64."""
        points = self._points(x)
        values = self._matrix.cross_times(self._matrix.select(points), self._solver.solution).squeeze(-1)
        return values if self._mean is None else values + self._mean(points)

    @torch.no_grad()
    def error_bound(self, x: Tensor) -> Tensor:
        """A bound on the distance of :meth:`mean` at inputs (M, d) from the exact mean: (M,), in float64."""
        points = self._points(x)
        selected = self._matrix.select(points)
        rounding = self._matrix.rounding(self._solver.solution, selected).squeeze(-1)
        if self._mean is not None:
            rounding = rounding + 4.0 * EPS * self._mean(points).abs()
        return self._matrix.deviations_at(selected) * self._residual_norm + rounding

    @torch.no_grad()
    def tighten(
        self,
        tolerance: float,
        *,
        max_iterations: int = 1000,
        max_seconds: float | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Go on until ``relative_bound`` is below a tolerance; a warning says where limits or rounding end it before.

        :param max_seconds: how long it may take, at least one iteration; default: without limit.
        """
        checks.positive("tolerance", tolerance, "0.001 is a thousandth of the standard deviation of the targets")
        max_iterations = checks.positive_integer("max_iterations", max_iterations)
        limit = float("inf") if max_seconds is None else checks.positive("max_seconds", max_seconds)
        disable = checks.no_bar(progress)
        start, before = time.monotonic(), self.iterations

        def is_over(passes: int) -> bool:
            """Whether there is no room for so many further passes over the kernel matrix."""
            done, elapsed = self.iterations - before, time.monotonic() - start
            return done >= max_iterations or (done > 0 and elapsed * (1.0 + passes / done) > limit)

        with tqdm(desc="certificate", unit="pass", disable=disable, leave=False) as bar:
            while self.relative_bound > tolerance and not is_over(passes=2):
                before_round, done = (self._solver.solution.clone(), self._residual_norm), self.iterations
                while self._history[-1] > self._aim(tolerance) and not is_over(passes=2):
                    self._solver.step()
                    self._history.append(self._believed())
                    bar.set_postfix(bound=f"{self._history[-1]:.2g}", refresh=False)
                    bar.update()
                if self.iterations == done:
                    break
                self._solver.replace_residual()
                self._residual_norm = float(self._solver.residual_norm())
                self._history[-1] = self._believed()
                if not self._residual_norm < before_round[1]:
                    self._solver.solution, self._residual_norm = before_round
                    break
        self._seconds += time.monotonic() - start
        if self.relative_bound > tolerance:
            warnings.warn(
                f"the certificate is {self.relative_bound:.2g} standard deviations of the targets after "
                f"{self.iterations} iterations, above the tolerance of {tolerance:.2g}; it holds, and tighten() goes "
                "on, but not below rounding",
                stacklevel=2,
            )
        return self

    @torch.no_grad()
    def variance_bounds(
        self, x: Tensor, *, tolerance: float = 0.01, max_iterations: int = 1000, progress: bool | None = None
    ) -> Bounds:
        r"""Bounds on the exact variance of the function at inputs (M, d): ``(lower, upper)``, (M,) each, in float64.

        .. math:: \mathrm{Var} f(x) = k(x, x) - k_x^\top \beta - \beta^\top \rho - \rho^\top (K + S)^{-1} \rho,
            \qquad \rho = k_x - (K + S) \beta

        :param tolerance: the distance of the bounds in prior variances.
        :param max_iterations: the largest number of iterations for 256 of the inputs.
        """
        checks.positive("tolerance", tolerance, "0.01 is a hundredth of the prior variance")
        max_iterations = checks.positive_integer("max_iterations", max_iterations)
        disable = checks.no_bar(progress)
        with tqdm(desc="variances", unit="pass", disable=disable, leave=False) as bar:
            chunks = self._points(x).split(_POINTS)
            parts = [self._variance_bounds(points, tolerance, max_iterations, bar) for points in chunks]
        return Bounds(*(torch.cat(values) for values in zip(*parts, strict=True)))

    def _variance_bounds(self, x: Tensor, tolerance: float, max_iterations: int, bar: Any) -> Bounds:
        points = self._matrix.select(x)
        columns, errors = self._matrix.columns(points), self._matrix.column_rounding(points)
        prior = self._matrix.deviations_at(points).square()
        solver = _CertifiedSolver(self._matrix, self._noise, self._preconditioner, columns, errors)
        for _ in range(max_iterations):
            if bool((solver.energy <= _SHARE * tolerance * prior).all()):
                break
            solver.step()
            bar.update()
        solver.replace_residual()
        gap = solver.residual_norm().square()
        sums = len(columns) * EPS * (columns.abs() + solver.residual.abs())
        allowance = (solver.solution.abs() * (errors + solver.rounding() + sums)).sum(0) + 8.0 * EPS * prior
        explained = (solver.solution * (columns + solver.residual)).sum(0)
        upper = prior - explained + allowance
        return Bounds((upper - gap - 2.0 * allowance).clamp_min(0.0), upper)

    def _points(self, x: Tensor) -> Tensor:
        if checks.inputs(x, self._num_columns).dim() != 2:
            raise ValueError(f"expected points of shape (M, d), got {tuple(x.shape)}; flatten their batches")
        return checks.finite(x).detach().double()

    def _aim(self, tolerance: float) -> float:
        """What the iterations have to believe, so that there is room for rounding, and not far below rounding."""
        floor = self._unit * float(self._solver.white_rounding())
        return max(_SHARE * (tolerance - floor), _SHARE_OF_ROUNDING * floor)

    def _believed(self) -> float:
        """The relative bound that the iterations believe in."""
        return self._unit * float(self._solver.energy.sqrt())


@torch.no_grad()
def certified_posterior(
    kernel: Kernel,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    mean: Mean | None = None,
    noise: Tensor | None = None,
    *,
    tolerance: float = 1e-3,
    num_landmarks: int = 1024,
    max_iterations: int = 1000,
    max_seconds: float | None = None,
    progress: bool | None = None,
) -> CertifiedPosterior:
    r"""The exact posterior mean without an N x N matrix, with a bound on its error that always holds.

    .. math:: (K + S) \alpha \approx y - \mu, \qquad E f(x) \approx \mu(x) + k_x^\top \alpha

    by conjugate gradients in float64, preconditioned by D landmarks: N D numbers of memory, N^2 d operations for an
    iteration and N D^2 before. The bound is

    .. math:: r^\top (K + S)^{-1} r \le r^\top (\Phi \Phi^\top + S)^{-1} r \le r^\top S^{-1} r

    :param kernel: an exact kernel of one output, or an approximated one, for its exact kernel and its landmarks.
    :param likelihood: a Gaussian or fixed-noise likelihood.
    :param x: training inputs (N, d).
    :param y: targets (N,).
    :param mean: any mean function; default: zero.
    :param noise: noise variances (N,), for a fixed-noise likelihood without them.
    :param tolerance: the largest error at the training inputs, in standard deviations of the targets.
    :param num_landmarks: the number D of landmarks where the kernel has none, random rows of x.
    :param max_iterations: the largest number of iterations.
    :param max_seconds: how long the iterations may take, at least one; default: without limit.
    :param progress: whether a bar counts the iterations; default: on a terminal.
    :returns: the posterior; a warning says where its certificate is above the tolerance.
    :raises ValueError: for bad data, kernels of several outputs, other likelihoods, or bad settings.

    Source: errata, identity 8 of the last section; K. Wang et al., Exact Gaussian processes on a million data points,
    2019, without a bound.

    >>> import gpytorch
    >>> x, likelihood = torch.rand(200, 2), gpytorch.likelihoods.GaussianLikelihood()
    >>> found = certified_posterior(gpytorch.kernels.RBFKernel(), likelihood, x, x.sum(-1), num_landmarks=50)
    >>> found.mean(x[:3]).shape, bool(found.relative_bound <= 1e-3)
    (torch.Size([3]), True)
    """
    checks.finite(checks.inputs(x))
    if mean is not None:
        checks.instance("mean", mean, Mean, "a GPyTorch mean", "such as ConstantMean()")
        check_observed_mean(kernel, mean)
    checks.positive("tolerance", tolerance, "0.001 is a thousandth of the standard deviation of the targets")
    matrix = exact_matrix(kernel, x)
    targets, variances = targets_and_noise(likelihood, x, y, noise)
    preconditioner = landmark_preconditioner(matrix, kernel, x, variances, num_landmarks)
    offset = None if mean is None else copy.deepcopy(mean).double()
    residuals = targets if offset is None else targets - offset(x.double())
    posterior = CertifiedPosterior(matrix, variances, preconditioner, offset, targets, residuals, x.shape[-1])
    limits: dict[str, Any] = {"max_iterations": max_iterations, "max_seconds": max_seconds, "progress": progress}
    return posterior.tighten(tolerance, **limits)
