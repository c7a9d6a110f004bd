"""Dependent inputs: distributions of single inputs, joined by a Gaussian copula."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from ..._support import checks
from .given import Inputs, checked_inputs
from .inputs import points


class GaussianCopula:
    r"""Dependent inputs with given distributions :math:`F_k` and the correlations of a normal vector.

    .. math:: X_k = F_k^{-1}(\Phi(Z_k)), \qquad Z \sim N(0, C)

    For normal inputs, C is the correlation of the inputs themselves; a rank correlation :math:`\rho` of Spearman is
    :math:`C_{kl} = 2 \sin(\pi \rho / 6)`.

    :param inputs: a distribution for every input, as for :func:`sobol_indices`.
    :param correlation: C, (d, d), in the order of the inputs; or a data frame with their names.
    :raises ValueError: for a matrix that is not symmetric, not positive definite, without ones on its diagonal, or of
        other names.

    >>> from rfgp.diagnostics.sensitivity import Uniform
    >>> copula = GaussianCopula({"width": Uniform(0, 1), "height": Uniform(0, 2)}, [[1.0, 0.8], [0.8, 1.0]])
    >>> copula.sample(100).shape
    torch.Size([100, 2])
    """

    def __init__(self, inputs: Inputs, correlation: Any) -> None:
        self.inputs = checked_inputs(inputs)
        self.correlation = _checked(correlation, list(self.inputs))
        self._root = torch.linalg.cholesky(self.correlation)

    def sample(self, num_points: int, generator: Generator | None = None) -> Tensor:
        """Independent draws, (num_points, d), by a CPU generator; default: PyTorch's own."""
        count = checks.positive_integer("num_points", num_points)
        shape = count, len(self.inputs)
        normal = torch.randn(shape, dtype=torch.float64, generator=checks.generator(generator))
        return self.at(self.correlated(normal))

    def at(self, z: Tensor) -> Tensor:
        """The inputs (..., d) at values z of the normal vector."""
        eps = torch.finfo(torch.float64).eps
        return points(list(self.inputs.values()), torch.special.ndtr(z).clamp(eps, 1.0 - eps))

    def correlated(self, normal: Tensor) -> Tensor:
        """Values (N, d) of the normal vector from independent standard normal ones."""
        return normal @ self._root.mT

    def given(self, z: Tensor, known: list[int], normal: Tensor) -> Tensor:
        """Other values (N, d) of the normal vector with some components of z, from independent standard normal ones.

        :param known: the components that stay.
        """
        if not known:
            return self.correlated(normal)
        rest = [k for k in range(len(self.inputs)) if k not in known]
        cross = self.correlation[rest][:, known]
        weights = torch.linalg.solve(self.correlation[known][:, known], cross.mT).mT
        root = torch.linalg.cholesky(self.correlation[rest][:, rest] - weights @ cross.mT)
        result = z.clone()
        result[:, rest] = z[:, known] @ weights.mT + normal[:, rest] @ root.mT
        return result

    def __repr__(self) -> str:
        return f"GaussianCopula({', '.join(self.inputs)})"


def _checked(correlation: Any, names: list[str]) -> Tensor:
    """A correlation matrix (d, d) in float64."""
    if hasattr(correlation, "columns"):
        given = [list(map(str, labels)) for labels in (correlation.index, correlation.columns)]
        if any(sorted(labels) != sorted(names) for labels in given):
            raise ValueError(
                f"expected rows and columns {names} of the correlation, got {given[0]} and {given[1]}; name each input"
            )
        rows, columns = ([labels.index(name) for name in names] for labels in given)
        correlation = correlation.to_numpy(dtype=float)[rows][:, columns]
    matrix = checks.finite(checks.real_tensor(correlation, "correlation"), "correlation").detach().double().cpu()
    shape = len(names), len(names)
    if matrix.shape != shape:
        raise ValueError(
            f"expected a correlation of shape {shape}, got {tuple(matrix.shape)}; name {len(names)} inputs"
        )
    if not torch.allclose(matrix, matrix.mT) or not torch.allclose(matrix.diagonal(), matrix.new_ones(len(names))):
        raise ValueError(
            "expected a symmetric correlation with ones on its diagonal, got another; divide a covariance by the "
            "standard deviations"
        )
    if bool(torch.linalg.cholesky_ex(matrix)[1]):
        raise ValueError(
            "expected a positive definite correlation, got a singular or indefinite one; leave out inputs that others "
            "determine, or make correlations smaller"
        )
    return matrix
