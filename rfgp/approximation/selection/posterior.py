"""What the posterior of features loses to the exact one, before there are targets."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..._support import checks
from ..._support.gpytorch_names import EVALUATED_KERNELS
from ...linalg import cholesky
from ..feature_kernel import FeatureKernel
from ..landmarks import Landmarks
from .errors import num_rows_of, redraw, require_features

_ROWS = 512
_HELD_OUT = 4  # one row in so many
_BEYOND = 2.0  # how far points beyond the data are from their center, relative to held-out rows
_RELATIVE_NOISE = 0.01
_LEAST_NOISE, _LEAST_VARIANCE = 1e-6, 1e-10  # relative to the prior variance, above rounding errors
NUM_DRAWS = 8
_QUANTILE = 0.9  # of the losses of draws, which can have heavy tails
_LEVEL = 0.95


@dataclass(frozen=True)
class PosteriorLoss:
    """What a posterior with features loses to the exact one, on average over targets that the model draws.

    :param kl_per_point: KL(exact, approximate) between marginals of the function, the mean over points.
    :param coverage: the probability that the 95% interval of the approximate posterior contains the function.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 256, input_dim=2, seed=0)
    >>> lost = posterior_loss(kernel, torch.randn(100, 2))
    >>> lost.kl_per_point >= 0.0, 0.0 < lost.coverage < 1.0
    (True, True)
    """

    kl_per_point: float
    coverage: float


def posterior_loss(
    kernel: Kernel, train_inputs: Tensor, *, noise: float | None = None, num_rows: int | None = None, seed: int = 0
) -> PosteriorLoss:
    r"""What the posterior loses by the features of a kernel, as they are drawn, in place of the exact kernel.

    .. math:: \kappa = \frac{1}{2} E\Big[\frac{v + \delta^2}{\hat v} - 1 - \log \frac{v}{\hat v}\Big], \qquad
        E \delta^2 = \|(K + s I)^{1/2} (\hat a - a)\|^2

    for exact variances v, approximate ones :math:`\hat v` and weights :math:`a, \hat a` of the targets in the two
    means, at held-out rows and as many points twice as far from the center of the data. Targets are those that the
    exact model draws. Of N rows a sample of n = 384 is taken, with noise s n / N.

    :param kernel: a kernel made by :func:`rfgp.approximate`, of one or many outputs.
    :param train_inputs: (N, d), at least two rows.
    :param noise: the variance of the noise; default: a hundredth of the mean prior variance.
    :param num_rows: the number of rows N that ``train_inputs`` are a sample of; default: their own.
    :param seed: the seed of the sample.
    :raises ValueError: for a kernel without features, or bad inputs.

    >>> import gpytorch, rfgp
    >>> x, exact = torch.rand(100, 2), gpytorch.kernels.RBFKernel()
    >>> few, many = (rfgp.approximate(exact, d, method="fourier", input_dim=2, seed=0) for d in (16, 1024))
    >>> posterior_loss(few, x).kl_per_point > posterior_loss(many, x).kl_per_point
    True
    """
    train_inputs = checks.columns(train_inputs)
    require_features(kernel)
    rows = None if num_rows is None else checks.positive_integer("num_rows", num_rows)
    return PosteriorTest(train_inputs, checks.seed(seed), noise, rows, kernel).loss(kernel)


class PosteriorTest:
    """The rows of x (N, d) on which posteriors are compared with the exact one, which is computed once.

    Landmarks of ``kernel`` are not held out where there are other rows; ``num_draws`` draws of a kernel are compared.
    """

    def __init__(
        self,
        x: Tensor,
        seed: int,
        noise: float | None = None,
        num_rows: int | None = None,
        kernel: Kernel | None = None,
        num_draws: int = NUM_DRAWS,
    ) -> None:
        self._num_draws = num_draws
        rows = checks.finite(checks.inputs(x, name="train_inputs"), "train_inputs").detach().reshape(-1, x.shape[-1])
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:_ROWS].to(rows.device)
        if kernel is not None:
            order = order[_are_landmarks(kernel, rows[order]).to(torch.uint8).argsort(stable=True)]
        held = max(1, len(order) // _HELD_OUT)
        self._held, self._train = order[:held], order[held:] if len(order) > 1 else order
        self._x, self.num_rows = rows, num_rows_of(x) if num_rows is None else num_rows
        self._noise = None if noise is None else checks.positive("noise", noise, "the variance of the noise")
        self._exact: _ExactPosterior | None = None

    @property
    def held_out(self) -> Tensor:
        """The rows that features may not be taken from, while the others are not exact."""
        return self._x[self._held]

    @property
    def others(self) -> Tensor:
        """All other rows."""
        kept = torch.ones(len(self._x), dtype=torch.bool, device=self._x.device)
        kept[self._held] = False
        return self._x[kept] if len(self._x) > 1 else self._x

    @property
    def all_rows(self) -> Tensor:
        """All rows."""
        return self._x

    def loss(self, kernel: Kernel) -> PosteriorLoss:
        """The loss of a kernel with features, for the weights that it has."""
        made = copy.deepcopy(kernel).double()
        return self._posterior(made).loss(made)

    def upper_loss(self, kernels: Iterable[FeatureKernel], limit: float = math.inf) -> PosteriorLoss:
        """The 90% quantile of the losses of kernels; draws end once two losses are above a limit."""
        losses: list[PosteriorLoss] = []
        for kernel in itertools.islice(kernels, self._num_draws):
            losses.append(self._posterior(kernel).loss(kernel))
            if sum(loss.kl_per_point > limit for loss in losses) == 2:
                break
        values = torch.tensor([(loss.kl_per_point, loss.coverage) for loss in losses], dtype=torch.float64)
        upper, lower = values[:, 0].quantile(_QUANTILE), values[:, 1].quantile(1.0 - _QUANTILE)
        return PosteriorLoss(float(upper), float(lower))

    def _posterior(self, kernel: FeatureKernel) -> _ExactPosterior:
        if self._exact is None:
            self._exact = self._exact_posterior(kernel.exact_kernel)
        return self._exact

    def _exact_posterior(self, exact: Kernel) -> _ExactPosterior:
        x = self._x.double()
        outputs = exact.num_outputs_per_input(x[:1], x[:1])
        held, train = self._held[: max(1, len(self._held) // outputs)], self._train[: max(1, _ROWS // outputs)]
        share = len(train) / self.num_rows
        for points in (torch.cat([x[held], beyond(x[held], x)]), x[held]):  # some kernels end where the data end
            try:
                return _ExactPosterior(exact, x[train], points, self._noise, min(share, 1.0))
            except (ValueError, RuntimeError) as error:  # as of GPyTorch's CylindricalKernel outside of the unit ball
                reason = error
        raise reason


def draws_of(make: Callable[[int], Kernel], seed: int) -> Iterator[Kernel]:
    """Eight draws of the kernel that ``make`` makes of a seed; one where nothing is random."""
    made, generator = copy.deepcopy(make(seed)).double(), torch.Generator().manual_seed(seed)
    has_landmarks = any(isinstance(part, Landmarks) for part in made.modules())
    for index in range(NUM_DRAWS):
        if has_landmarks and index:
            made = copy.deepcopy(make(seed + index)).double()
        if not redraw(made, generator) and not has_landmarks:
            yield made
            return
        yield made


def _are_landmarks(kernel: FeatureKernel, x: Tensor) -> Tensor:
    """Which rows (n, d) are landmarks of a kernel, (n,)."""
    is_landmark = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for leaf, columns in kernel.family.leaves(x):
        if isinstance(leaf.maps, Landmarks) and columns is not None and columns.shape[-1] == leaf.input_dim:
            is_landmark |= (columns[:, None] == leaf.maps.landmarks.detach()).all(-1).any(-1)
    return is_landmark


def beyond(points: Tensor, x: Tensor) -> Tensor:
    """Points twice as far from the center of the data; columns of whole numbers, and norms that are all equal, stay."""
    center = x.mean(0)
    far = torch.where((x == x.round()).all(0), points, center + _BEYOND * (points - center))
    norms = x.norm(dim=-1)
    if float(norms.max() - norms.min()) <= 1e-4 * float(norms.max()):
        far = torch.nn.functional.normalize(far, dim=-1) * norms.mean()
    return far


class _ExactPosterior:
    """The exact posterior of the function at points, from rows whose targets are those that the model draws."""

    def __init__(self, exact: Kernel, train: Tensor, points: Tensor, noise: float | None, share: float) -> None:
        self._inputs, self._points, num_train = torch.cat([train, points]), points, len(train)
        with torch.no_grad(), EVALUATED_KERNELS:
            covariance = exact(self._inputs, self._inputs).to_dense()
        if not bool(torch.isfinite(covariance).all()):
            raise ValueError("expected a finite kernel matrix, got one that is not; scale the inputs down")
        self._count = covariance.shape[-1] * num_train // len(self._inputs)
        prior = covariance.diagonal(dim1=-2, dim2=-1)
        self._scale = max(float(prior[..., : self._count].mean()), torch.finfo(prior.dtype).tiny)
        variance = _RELATIVE_NOISE * self._scale if noise is None else noise
        self._noise = max(share * variance, _LEAST_NOISE * self._scale)
        self._root, white = self._solved(
            covariance[..., : self._count, : self._count], covariance[..., : self._count, self._count :]
        )
        self._variance = self._floored(prior[..., self._count :] - white.square().sum(-2))
        self._white = white

    @torch.no_grad()
    def loss(self, kernel: FeatureKernel) -> PosteriorLoss:
        """The loss of the posterior with the features of a kernel, to which predictions add the residual variance."""
        features = kernel.features(self._inputs)
        if features.is_complex():
            features = torch.cat([features.real, features.imag], dim=-1)
        missing = kernel.residual_variance(self._points)
        variance, white = self._approximate(features[..., : self._count, :], features[..., self._count :, :])
        variance = self._floored(variance if missing is None else variance + missing)
        spread = self._variance + (white - self._white).square().sum(-2)
        divergence = 0.5 * (spread / variance - 1.0 - (self._variance / variance).log())
        deviations = torch.special.ndtri(divergence.new_full((), 0.5 + 0.5 * _LEVEL)) * (variance / spread).sqrt()
        coverage = torch.erf(deviations / math.sqrt(2.0))
        return PosteriorLoss(max(float(divergence.mean()), 0.0), float(coverage.mean()))

    def _approximate(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        r"""The variance by features of rows (n, D) and points (P, D), and :math:`(K + s I)^{1/2} \hat a`, (n, P)."""
        if left.shape[-1] < left.shape[-2]:
            factor, solved = self._solved(left.mT @ left, right.mT)
            coefficients = torch.linalg.solve_triangular(factor.mT, solved, upper=True)
            return self._noise * solved.square().sum(-2), (self._root.mT @ left) @ coefficients
        factor, solved = self._solved(left @ left.mT, left @ right.mT)
        weights = torch.linalg.solve_triangular(factor.mT, solved, upper=True)
        return right.square().sum(-1) - solved.square().sum(-2), self._root.mT @ weights

    def _solved(self, covariance: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
        """The Cholesky factor of a noisy covariance, and what it makes of the covariances with the points."""
        identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
        factor = cholesky(covariance + self._noise * identity)
        return factor, torch.linalg.solve_triangular(factor, cross, upper=False)

    def _floored(self, variance: Tensor) -> Tensor:
        return variance.clamp_min(_LEAST_VARIANCE * self._scale)
