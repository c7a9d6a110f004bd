"""The last row of each of many groups, predicted from the rows before it with a stationary kernel.

Processors do it with ``last_rows.cpp``, where the compiled library is there; its results have the same bits for any
number of threads. Devices, and installations without a compiler, do it with PyTorch.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .._support.threads import num_workers, one_thread
from .cholesky_factor import NoFactorError
from .prediction_errors import normal_log_density, prediction_errors, student_log_density
from .stationary import Profile, stationary_matrix

_NUM_PARTS, _LEAST = 8, 64
"""Parts of groups with gradients of their own, whatever the number of threads is, and groups of each but the last."""
_CHUNK = 2**17
"""Entries of the matrices that PyTorch holds at a time: they stay in the cache of a processor."""
_FREEDOM = 4.0


class Solved(NamedTuple):
    """What is found for groups of B rows.

    :param moments: two numbers of each function at the last rows, such as errors and variances, (B, T) each.
    :param densities: the log densities of the last rows, (B,) or (B, T).
    :param gradients: those of their sum in the learned parts of the rows; none where they are not asked for.
    """

    moments: tuple[Tensor, Tensor]
    densities: Tensor
    gradients: list[Tensor]


class Rows(Protocol):
    """Rows of which groups are solved: of outputs, or of classes."""

    @property
    def points(self) -> Tensor:
        """Their inputs, divided by lengthscales, (M, q)."""

    @property
    def of_rows(self) -> tuple[str, ...]:
        """The names of what there is for each row."""

    @property
    def learned(self) -> tuple[str, ...]:
        """The names of what has gradients."""

    def solve(self, groups: Tensor, has_gradients: bool) -> Solved:
        """The last rows of groups (B, n), with a ValueError for covariances that are not positive definite."""


_SomeRows = TypeVar("_SomeRows", bound=Rows)


class StationaryRows(NamedTuple):
    r"""Rows of outputs with covariances :math:`c_t f(|z_i - z_j|^2) + \delta_{ij} s_{it}`, in one real dtype.

    :param points: the inputs z, divided by lengthscales, (M, q).
    :param residual: outputs without their means, (M, T).
    :param noise: the noise variances s, (M, T); infinite where a cell is not known.
    :param scale: the variances c of the functions, (T,).
    :param alpha: that of a rational quadratic kernel, (), in float64; others do not see it.
    :param profile: the kernel f.
    :param is_student: whether errors have the density of Student's t with four degrees of freedom, not the normal one.
    :param log_units: logarithms of the units of the outputs, (T,), of which log densities are less; None for zeros.
    """

    points: Tensor
    residual: Tensor
    noise: Tensor
    scale: Tensor
    alpha: Tensor
    profile: Profile
    is_student: bool = False
    log_units: Tensor | None = None

    def densities(self, error: Tensor, variance: Tensor) -> Tensor:
        """The log densities (B, T) of errors, zero for cells that are not known."""
        densities = (student_log_density if self.is_student else normal_log_density)(error, variance)
        if self.log_units is not None:
            densities = densities - self.log_units
        return densities.masked_fill(variance.isinf(), 0.0)

    @property
    def of_rows(self) -> tuple[str, ...]:
        """The names of what there is for each row."""
        return "points", "residual", "noise"

    @property
    def learned(self) -> tuple[str, ...]:
        """The names of what has gradients."""
        return *self.of_rows, "scale", "alpha"

    def solve(self, groups: Tensor, has_gradients: bool) -> Solved:
        """The errors of the last rows and their variances, with a ValueError where covariances have no factor."""
        if is_compiled(self.points):
            error, variance, gradients = _compiled(self, groups, has_gradients)
        else:
            error, variance, gradients = _in_chunks(self, groups, has_gradients)
        if not bool((variance > 0).all()):
            raise NoFactorError
        return Solved((error, variance), self.densities(error, variance), gradients)


class RowGroups:
    """Groups of rows, and which rows are in them.

    :param groups: the numbers of the rows of each group, (B, n), of torch.long; the last one is predicted.

    >>> groups = RowGroups(torch.tensor([[5, 2], [2, 9]]))
    >>> groups.rows, groups.numbers
    (tensor([2, 5, 9]), tensor([[1, 0],
            [0, 2]]))
    """

    def __init__(self, groups: Tensor) -> None:
        self.rows, self.numbers = _numbered(groups)

    @functools.cached_property
    def parts(self) -> list[tuple[Tensor, Tensor]]:
        """Some of the rows, and groups of these, whatever the number of threads is."""
        size = max(_LEAST, math.ceil(len(self.numbers) / _NUM_PARTS))
        return [_numbered(part) for part in self.numbers.split(size)]


def _numbered(groups: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of groups in ascending order, and the groups by their numbers among these."""
    size = int(groups.max()) + 1 if groups.numel() else 0
    is_used = torch.zeros(size, dtype=torch.bool, device=groups.device)
    is_used[groups.reshape(-1)] = True
    return is_used.nonzero().squeeze(-1), (is_used.cumsum(0) - 1)[groups]


def log_densities(rows: Rows, groups: RowGroups) -> Tensor:
    """The log densities (B,) of the last rows of groups given those before, without gradients.

    :param rows: those that are in groups, in the same order.
    :raises ValueError: for covariances that are not positive definite to working precision.

    >>> one = torch.ones(3, 1, dtype=torch.float64)
    >>> points = torch.arange(3.0, dtype=torch.float64).unsqueeze(-1)
    >>> rows = StationaryRows(points, one, one, one[0], one[0, 0], Profile.GAUSSIAN)
    >>> log_densities(rows, RowGroups(torch.tensor([[0, 1], [0, 2], [1, 2]])))
    tensor([-1.3509, -1.4815, -1.3509], dtype=torch.float64)
    """
    with torch.no_grad():
        found = torch.cat([part.densities for _, part in _each(rows, groups, has_gradients=False)])
        return found.sum(-1) if found.dim() == 2 else found


def log_density(rows: Rows, groups: RowGroups) -> Tensor:
    """The sum of :func:`log_densities`, differentiable once in all parts of rows.

    >>> one = torch.ones(3, 1, dtype=torch.float64)
    >>> scale = one[0].clone().requires_grad_()
    >>> rows = StationaryRows(one, one, one, scale, one[0, 0], Profile.GAUSSIAN)
    >>> log_density(rows, RowGroups(torch.tensor([[0, 1, 2]]))).backward()
    >>> scale.grad
    tensor([0.0174], dtype=torch.float64)
    """
    total: Tensor = _LogDensity.apply(rows, groups, *(getattr(rows, name) for name in rows.learned))
    return total


def predictions(rows: StationaryRows, queries: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances (Q, T) of the functions at other inputs, from some rows for each, without gradients.

    :param queries: inputs divided by lengthscales, (Q, q).
    :param near: the numbers of rows for each, (Q, n), of torch.long.

    >>> one = torch.ones(3, 1, dtype=torch.float64)
    >>> rows = StationaryRows(torch.arange(3.0).double().unsqueeze(-1), one, one, one[0], one[0, 0], Profile.GAUSSIAN)
    >>> predictions(rows, torch.tensor([[0.5]], dtype=torch.float64), torch.tensor([[0, 1]]))
    (tensor([[0.6771]], dtype=torch.float64), tensor([[0.4024]], dtype=torch.float64))
    """
    own = torch.arange(len(rows.points), len(rows.points) + len(queries), device=near.device)
    nothing = rows.residual.new_zeros(len(queries), rows.residual.shape[-1])
    new = queries, nothing, nothing
    points, residual, noise = (torch.cat(parts) for parts in zip(rows[:3], new, strict=True))
    groups = RowGroups(torch.cat([near, own.unsqueeze(-1)], dim=-1))
    every = rows._replace(points=points, residual=residual, noise=noise)
    error, variance = last_moments(_taken(every, groups.rows), groups)
    return -error, variance


class _LogDensity(torch.autograd.Function):
    """Gradients are found with the value."""

    @staticmethod
    def forward(ctx: Any, rows: Rows, groups: RowGroups, *parts: Tensor) -> Tensor:
        totals, value = [torch.zeros_like(part) for part in parts], parts[0].new_zeros(())
        for some, found in _each(rows, groups, has_gradients=True):
            value = value + found.densities.sum()
            for name, total, gradient in zip(rows.learned, totals, found.gradients, strict=True):
                if name in rows.of_rows:
                    total.index_add_(0, some, gradient)
                else:
                    total.add_(gradient)
        ctx.save_for_backward(*totals)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_value: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *(of_value * gradient for gradient in ctx.saved_tensors)


def last_moments(rows: Rows, groups: RowGroups) -> tuple[Tensor, Tensor]:
    """Errors and variances (B, T) of the last rows of groups, or what else their moments are, without gradients.

    Errors are zero and their variances infinite for cells that are not known.

    >>> one = torch.ones(2, 1, dtype=torch.float64)
    >>> rows = StationaryRows(one, one, one, one[0], one[0, 0], Profile.GAUSSIAN)
    >>> last_moments(rows, RowGroups(torch.tensor([[0, 1]])))
    (tensor([[0.5000]], dtype=torch.float64), tensor([[1.5000]], dtype=torch.float64))
    """
    means, variances = zip(*(part.moments for _, part in _each(rows, groups, has_gradients=False)), strict=True)
    return torch.cat(means), torch.cat(variances)


def _each(rows: _SomeRows, groups: RowGroups, has_gradients: bool) -> list[tuple[Tensor, Solved]]:
    """Some rows, and what is found for the groups of these: by several threads where they are compiled."""
    if not is_compiled(rows.points):
        everything = torch.arange(len(rows.points), device=rows.points.device)
        return [(everything, rows.solve(groups.numbers, has_gradients))]

    @torch.no_grad()
    def solve(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Solved]:
        return part[0], _taken(rows, part[0]).solve(part[1], has_gradients)

    # One thread of PyTorch in each worker: else each has as many, which wait and take cores.
    with one_thread(), ThreadPoolExecutor(num_workers()) as pool:
        return list(pool.map(solve, groups.parts))


def _taken(rows: _SomeRows, some: Tensor) -> _SomeRows:
    """Some of the rows."""
    parts: Any = rows
    taken: _SomeRows = parts._replace(**{name: getattr(rows, name).index_select(0, some) for name in rows.of_rows})
    return taken


def is_compiled(points: Tensor) -> bool:
    """Whether the compiled library solves groups of these rows."""
    return _library is not None and points.device.type == "cpu"


def library() -> ctypes.CDLL:
    """The compiled library, where it is there."""
    if _library is None:
        raise RuntimeError("expected the compiled library, got an installation without it; install with a C++ compiler")
    return _library


_Found = tuple[Tensor, Tensor, list[Tensor]]


def _in_chunks(rows: StationaryRows, groups: Tensor, has_gradients: bool) -> _Found:
    """Solve groups by PyTorch."""
    if has_gradients:
        rows = rows._replace(**{name: getattr(rows, name).detach().requires_grad_() for name in rows.learned})
    found, gradients = [], [torch.zeros_like(part) for part in rows[:5]]
    with torch.set_grad_enabled(has_gradients):
        for chunk in groups.split(max(1, _CHUNK // (len(rows.scale) * groups.shape[-1] ** 2))):
            error, variance = _chunk_errors(rows, chunk)
            found.append((error.detach(), variance.detach()))
            if has_gradients:
                value = rows.densities(error, variance).sum()
                slopes = torch.autograd.grad(value, rows[:5], allow_unused=True, materialize_grads=True)
                gradients = [total + slope for total, slope in zip(gradients, slopes, strict=True)]
    error, variance = (torch.cat(parts) for parts in zip(*found, strict=True))
    return error, variance, gradients


def _chunk_errors(rows: StationaryRows, groups: Tensor) -> tuple[Tensor, Tensor]:
    flat = groups.reshape(-1)  # gradients of index_select are faster
    points, residual, noise = (part.index_select(0, flat).unflatten(0, groups.shape) for part in rows[:3])
    residual, noise = residual.mT, noise.mT
    matrix = stationary_matrix(points - points[:, -1:], rows.profile, rows.alpha).unsqueeze(1)
    matrix = rows.scale[:, None, None] * matrix
    is_known = noise.isfinite()
    if bool(is_known.all()):
        error, variance = prediction_errors(matrix + torch.diag_embed(noise), residual)
    else:
        inside = is_known.unsqueeze(-1) & is_known.unsqueeze(-2)
        own = torch.diag_embed(torch.where(is_known, noise, 1.0))
        error, variance = prediction_errors(
            torch.where(inside, matrix, 0.0) + own, torch.where(is_known, residual, 0.0)
        )
        is_known = is_known[..., -1:]
        error, variance = torch.where(is_known, error, 0.0), torch.where(is_known, variance, math.inf)
    return error.squeeze(-1), variance.squeeze(-1)


class _Groups(ctypes.Structure):
    """``Groups`` of last_rows.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("count", "size", "inputs", "outputs", "profile")),
        *((name, ctypes.c_double) for name in ("alpha", "tails")),
        *((name, ctypes.c_void_p) for name in ("rows", "points", "residual", "noise", "scale", "error", "variance")),
        *((name, ctypes.c_void_p) for name in ("of_points", "of_residual", "of_noise", "of_scale", "of_alpha")),
    ]


def _compiled(rows: StationaryRows, groups: Tensor, has_gradients: bool) -> _Found:
    """Solve groups by the compiled library."""
    inputs = [part.detach().to(rows.points.dtype).contiguous() for part in rows[:4]]
    error, variance = (inputs[0].new_empty(len(groups), len(rows.scale)) for _ in range(2))
    gradients = [torch.zeros_like(part) for part in (*inputs, inputs[0].new_zeros(1))] if has_gradients else []
    groups = groups.contiguous()
    numbers = len(groups), groups.shape[-1], rows.points.shape[-1], len(rows.scale), int(rows.profile)
    tails = 1.0 / _FREEDOM if rows.is_student else 0.0
    arrays = [tensor.data_ptr() for tensor in (groups, *inputs, error, variance, *gradients)]
    function = getattr(library(), f"last_rows_{str(rows.points.dtype).removeprefix('torch.')}")
    if function(ctypes.byref(_Groups(*numbers, float(rows.alpha.detach()), tails, *arrays))):
        raise MemoryError(f"no memory for the covariances of groups of {groups.shape[-1]} rows; take smaller groups")
    return error, variance, [*gradients[:4], *(gradient.reshape(()) for gradient in gradients[4:])]


try:
    _library: ctypes.CDLL | None = ctypes.CDLL(importlib.import_module("rfgp.linalg._last_rows").__file__)
except ImportError:
    _library = None
