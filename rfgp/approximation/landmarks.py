"""Landmarks: rows at which the values of a kernel are its features, and which rows of the training inputs they are."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.kernels import InducingPointKernel, Kernel
from torch import Tensor

from .._support import checks
from ..kernels.checked import CheckedKernel
from .kept_value import KeptValue
from .maps import WholeMaps
from .registry import is_approximated
from .values import accurate_values

_JITTERS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)

_ROWS_PER_LANDMARK = 4
"""How many rows the searches look at for every landmark."""
_NOTHING_LEFT = 1e-8
"""Relative to the prior variance: what the jitter of a factor hides."""


class Landmarks(WholeMaps, gpytorch.Module):
    """The landmarks of a kernel; they are no random weights: ``resample`` leaves them.

    :param landmarks: rows (M, d) of the columns that the kernel sees; batches of kernels share them.
    :param learn: whether the landmarks are a parameter.
    """

    landmarks: Tensor

    def __init__(self, landmarks: Tensor, learn: bool = False) -> None:
        super().__init__()
        rows = checks.finite(checks.inputs(landmarks, name="landmarks").detach(), "landmarks")
        if checks.flag("learn", learn):
            self.register_parameter("landmarks", torch.nn.Parameter(rows.clone()))
        else:
            self.register_buffer("landmarks", rows.clone())
        self._factor = KeptValue()

    @classmethod
    def chosen(cls, kernel: Kernel, x: Tensor, num_landmarks: int, method: str, seed: int) -> Landmarks:
        """Some rows of selected inputs (N, d), see :func:`choose_landmarks`; a ValueError for several outputs."""
        check_scalar(kernel, x)
        return cls(choose_landmarks(kernel, x, num_landmarks, method, seed))

    def factor(self, kernel: Kernel) -> Tensor:
        """The Cholesky factor L of a kernel at the landmarks, (..., M, M), in float64."""
        tensors = [self.landmarks, *kernel.parameters(), *kernel.buffers()]
        return self._factor.of(tensors, lambda: self._compute_factor(kernel))

    def _compute_factor(self, kernel: Kernel) -> Tensor:
        """The Cholesky factor of the kernel at the landmarks, (..., M, M), with the smallest jitter that it needs."""
        matrix = accurate_values(kernel, self.landmarks, self.landmarks)
        scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        for jitter in _JITTERS:
            factor, info = torch.linalg.cholesky_ex(matrix + jitter * scale * identity)
            if not bool(info.any()) and bool(torch.isfinite(factor.detach()).all()):
                return factor
        raise ValueError(
            f"expected a positive definite {type(kernel).__name__}, got one whose matrix of the landmarks is not, or "
            "not finite; correct the kernel, its parameters or the landmarks"
        )


def check_scalar(kernel: Kernel, x: Tensor) -> None:
    """Raise a ValueError for a kernel of several outputs, or one that is not exact or has values not of ``forward``."""
    name = type(kernel).__name__
    if kernel.num_outputs_per_input(x, x) != 1:
        raise ValueError(
            f"expected a kernel of one output for landmarks, got {name}, which has several; use landmarks inside a "
            "MultitaskKernel, or Fourier features"
        )
    if any(isinstance(part, InducingPointKernel) for part in kernel.modules()):
        raise ValueError(
            f"expected an exact kernel, got {name} with an InducingPointKernel, which approximates one already; "
            'approximate its base_kernel by method="landmarks"'
        )
    between = type(kernel).__mro__[: type(kernel).__mro__.index(Kernel)]
    if not is_approximated(kernel) and any("__call__" in vars(cls) for cls in between if cls is not CheckedKernel):
        raise ValueError(
            f"expected a kernel with the values of its forward(x1, x2) for landmarks, got {name}, which overrides "
            "__call__; override forward"
        )


def choose_landmarks(kernel: Kernel, x: Tensor, num_landmarks: int, method: str, seed: int) -> Tensor:
    """At most ``num_landmarks`` distinct rows of selected inputs (N, d).

    They are random, greedy by pivoted Cholesky, or seeds of k-means++, the latter two of a sample of 4 M rows; a
    ValueError for "landmarks_greedy" of a batch of kernels or with negative variances.
    """
    if method == "landmarks":
        return _random_rows(x, num_landmarks, seed)
    sample = _random_rows(x, _ROWS_PER_LANDMARK * num_landmarks, seed)
    if method == "landmarks_greedy":
        return sample[_most_uncertain(kernel, sample, num_landmarks)]
    return sample[_far_apart(sample, num_landmarks, seed)]


def _random_rows(x: Tensor, count: int, seed: int) -> Tensor:
    """At most ``count`` rows without duplicates."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
    drawn = count
    while True:
        rows = _distinct(x[order[:drawn]])
        if len(rows) >= count or drawn >= len(x):
            return rows[:count]
        drawn *= 2


def _distinct(x: Tensor) -> Tensor:
    """The rows without those that an earlier one equals."""
    unique, inverse = torch.unique(x, dim=0, return_inverse=True)
    positions = torch.arange(len(x), device=x.device)
    first = positions.new_full((len(unique),), len(x)).scatter_reduce(0, inverse, positions, "amin")
    return x[first.sort().values]


@torch.no_grad()
def _most_uncertain(kernel: Kernel, x: Tensor, count: int) -> list[int]:
    """The pivots of a Cholesky factorization of the kernel matrix, of whose rows only these are evaluated."""
    if kernel.batch_shape:
        raise ValueError(
            f"expected a kernel without batch dimensions for landmarks_greedy, got {tuple(kernel.batch_shape)}; use "
            "landmarks or landmarks_kmeans"
        )
    prior = accurate_values(kernel, x, x, diag=True)
    if not bool((prior >= 0.0).all()):
        raise ValueError(
            f"expected a positive definite {type(kernel).__name__}, got one with negative or infinite variances; "
            "correct the kernel or its parameters"
        )
    left, chosen = prior.clone(), list[int]()
    factor = prior.new_zeros(min(count, len(x)), len(x))
    for row in factor:
        pivot = int(left.argmax())
        if float(left[pivot]) <= _NOTHING_LEFT * float(prior.mean()):
            break
        rows = factor[: len(chosen)]
        values = accurate_values(kernel, x[pivot : pivot + 1], x).squeeze(0)
        row.copy_((values - rows[:, pivot] @ rows) / left[pivot].sqrt())
        left = (left - row.square()).clamp_min(0.0)
        left[pivot] = 0.0
        chosen.append(pivot)
    return chosen


def _far_apart(x: Tensor, count: int, seed: int) -> list[int]:
    """The seeding of k-means++."""
    from sklearn.cluster import kmeans_plusplus

    rows = x.detach().double().cpu().numpy()
    chosen = kmeans_plusplus(rows, min(count, len(rows)), random_state=seed % 2**32)[1]
    return list(dict.fromkeys(chosen.tolist()))
