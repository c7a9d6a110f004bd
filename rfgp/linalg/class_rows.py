"""Dirichlet classes at the last row of each of many groups, given the labels of the rows before it.

``class_rows.cpp`` needs processors, the compiled library and a stationary kernel; PyTorch does the same for all in
:mod:`rfgp.training.classes`.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from . import last_rows
from .cholesky_factor import NoFactorError
from .last_rows import RowGroups, Solved, last_moments
from .stationary import Profile


class ClassRows(NamedTuple):
    r"""Rows with labels, whose classes have independent functions of one covariance :math:`c f(|z_i - z_j|^2)`.

    Their log density is the log of the mean softmax of these functions for the own label of a row.

    :param points: the inputs z, divided by lengthscales, (M, q), as all of the following in float64.
    :param labels: the numbers of the classes, (M,), of torch.long.
    :param scale: the variance c of the functions, ().
    :param alpha: that of a rational quadratic kernel, (); others do not see it.
    :param targets: the transformed labels inside and outside of a class, and the noise variances there, (4,).
    :param means: the prior means of the classes, (C,).
    :param profile: the kernel f.
    :param normals: points that stand for draws of standard normals, (S, C); none of them where no densities are needed.
    """

    points: Tensor
    labels: Tensor
    scale: Tensor
    alpha: Tensor
    targets: Tensor
    means: Tensor
    profile: Profile
    normals: Tensor

    @property
    def of_rows(self) -> tuple[str, ...]:
        """The names of what there is for each row."""
        return "points", "labels"

    @property
    def learned(self) -> tuple[str, ...]:
        """The names of what has gradients."""
        return "points", "scale", "alpha", "targets", "means"

    def solve(self, groups: Tensor, has_gradients: bool) -> Solved:
        """The means and variances of the functions at the last rows, and the log densities of their labels."""
        library = last_rows.library()
        points, labels, means, normals, groups = (
            part.detach().contiguous() for part in (self.points, self.labels, self.means, self.normals, groups)
        )
        mean, variance = points.new_empty(2, len(groups), len(means))
        density = points.new_zeros(len(groups))
        gradients = [torch.zeros_like(getattr(self, name).detach()) for name in self.learned] if has_gradients else []
        numbers = *groups.shape, points.shape[-1], len(means), len(normals), int(self.profile)
        values = float(self.alpha), float(self.scale), *self.targets.tolist()
        arrays = [part.data_ptr() for part in (groups, labels, points, means, normals, mean, variance, density)]
        slopes = [part.data_ptr() for part in gradients]
        if library.class_rows(ctypes.byref(_Groups(*numbers, *values, *arrays, *slopes))):
            raise MemoryError(
                f"no memory for the covariances of groups of {groups.shape[-1]} rows; take smaller groups"
            )
        if not bool(variance.isfinite().all() & density.isfinite().all()):
            raise NoFactorError
        return Solved((mean, variance), density, gradients)


def predictions(rows: ClassRows, queries: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances (Q, C) of the functions of classes at other inputs, from the labels of some rows for each.

    There are no gradients, and variances may be below zero by rounding.

    :param queries: inputs divided by lengthscales, (Q, q).
    :param near: the numbers of rows for each, (Q, n), of torch.long.
    :raises ValueError: for covariances that are not positive definite to working precision.

    >>> one = torch.ones(3, dtype=torch.float64)
    >>> points, labels = one.cumsum(0).unsqueeze(-1), torch.tensor([0, 1, 1])
    >>> targets, nothing = torch.tensor([0.2, -3.0, 0.6, 4.0], dtype=torch.float64), one.new_empty(0, 2)
    >>> rows = ClassRows(points, labels, one[0], one[0], targets, one[:2], Profile.GAUSSIAN, nothing)
    >>> if last_rows.is_compiled(points):
    ...     mean, variance = predictions(rows, points[:1] + 0.5, torch.tensor([[0, 1, 2]]))
    """
    own = torch.arange(len(rows.points), len(rows.points) + len(queries))
    points, labels = torch.cat([rows.points, queries]), torch.cat([rows.labels, torch.zeros_like(own)])
    groups = RowGroups(torch.cat([near, own.unsqueeze(-1)], dim=-1))
    every = rows._replace(points=points[groups.rows], labels=labels[groups.rows], normals=rows.normals[:0])
    return last_moments(every, groups)


class _Groups(ctypes.Structure):
    """``ClassGroups`` of class_rows.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("count", "size", "inputs", "classes", "nodes", "profile")),
        *((name, ctypes.c_double) for name in ("alpha", "scale", "inside", "outside", "inside_noise", "outside_noise")),
        *((name, ctypes.c_void_p) for name in ("rows", "labels", "points", "means", "normals")),
        *((name, ctypes.c_void_p) for name in ("mean", "variance", "density")),
        *((name, ctypes.c_void_p) for name in ("of_points", "of_scale", "of_alpha", "of_targets", "of_means")),
    ]
