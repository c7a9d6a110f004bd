"""Covariances between outputs that are known, or that come from a graph."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import gpytorch
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import IndexKernel
from linear_operator import to_dense
from torch import Tensor

from .._support import checks
from ..linalg import cholesky

_KEPT = range(64, 4097)
"""The numbers of outputs for which a factor is kept: fewer are quick, and more take much memory."""


class ConstantCovariance(gpytorch.Module):
    r"""A known covariance of the outputs.

    :param matrix: (T, T), symmetric positive definite.
    :raises ValueError: for another matrix.

    >>> ConstantCovariance(torch.eye(2)).covar_matrix.shape
    torch.Size([2, 2])
    """

    covar_matrix: Tensor

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        _check_symmetric("matrix", matrix)
        if bool(torch.linalg.cholesky_ex(matrix.double())[1]):
            raise ValueError(
                "expected a positive definite covariance of the outputs, got one that is not; add to its diagonal"
            )
        self.register_buffer("covar_matrix", matrix.detach().clone())


class GraphLaplacianCovariance(gpytorch.Module):
    r"""A learned covariance under which outputs that are neighbors in a graph are similar.

    .. math:: \Gamma = (I + \kappa L)^{-1}, \qquad L = \mathrm{diag}(S 1) - S

    With ``strength`` :math:`\kappa = 0` outputs are independent.

    :param similarity: S, (T, T), symmetric with entries of at least zero; its diagonal does not matter.
    :raises ValueError: for another matrix.

    Source: B 3.2.1 and table 3 (Evgeniou et al., 2005), with the identity for an inverse instead of a pseudo-inverse.

    >>> GraphLaplacianCovariance(torch.ones(3, 3)).covar_matrix.shape
    torch.Size([3, 3])
    """

    laplacian: Tensor

    def __init__(self, similarity: Tensor) -> None:
        super().__init__()
        _check_symmetric("similarity", similarity)
        if bool((similarity < 0).any()):
            raise ValueError(f"expected similarities of at least 0, got {float(similarity.min())}; clamp them")
        weights = similarity - torch.diag(similarity.diagonal())
        self.register_buffer("laplacian", torch.diag(weights.sum(-1)) - weights)
        self.register_parameter("raw_strength", torch.nn.Parameter(torch.zeros(())))
        self.register_constraint("raw_strength", Positive())

    @property
    def strength(self) -> Tensor:
        r"""The weight :math:`\kappa` of the graph, positive and learned."""
        return self.raw_strength_constraint.transform(self.raw_strength)

    @strength.setter
    def strength(self, value: Tensor | float) -> None:
        raw = self.raw_strength_constraint.inverse_transform(torch.as_tensor(value).to(self.raw_strength))
        self.initialize(raw_strength=raw)

    @property
    def covar_matrix(self) -> Tensor:
        """The covariance, (T, T)."""
        identity = torch.eye(len(self.laplacian), dtype=self.laplacian.dtype, device=self.laplacian.device)
        return torch.linalg.inv(identity + self.strength * self.laplacian)


def dense_covariance(module: Any) -> Tensor:
    """The covariance (T, T) of the outputs that a module has, without GPyTorch's cache, which does not compile."""
    if type(module) is IndexKernel:
        covariance: Tensor = module.covar_factor @ module.covar_factor.mT + torch.diag_embed(module.var)
        return covariance
    return to_dense(module.covar_matrix)


class _Root(NamedTuple):
    """A factor, and the parameters and buffers that it is of."""

    source: list[Tensor]
    factor: Tensor


_ROOTS: weakref.WeakKeyDictionary[torch.nn.Module, _Root] = weakref.WeakKeyDictionary()


def covariance_root(module: torch.nn.Module) -> Tensor:
    """The Cholesky factor (T, T), in float64, of :func:`dense_covariance`.

    That of many outputs, which takes T^3 operations, is kept until a value of the module is another; one that gradients
    run through is made anew.
    """
    source = [*module.parameters(), *module.buffers()]
    if torch.is_grad_enabled() and any(part.requires_grad for part in source):
        return cholesky(dense_covariance(module).double())
    kept = _ROOTS.get(module)
    if kept is not None and len(kept.source) == len(source) and all(map(_is_same, kept.source, source)):
        return kept.factor
    with torch.inference_mode(False):
        factor = cholesky(dense_covariance(module).double())
        if factor.shape[-1] in _KEPT and factor.dim() == 2:
            _ROOTS[module] = _Root([part.detach().clone() for part in source], factor)
    return factor


def _is_same(one: Tensor, other: Tensor) -> bool:
    kinds = ((part.shape, part.dtype, part.device) for part in (one, other))
    return len(set(kinds)) == 1 and torch.equal(one, other)


def _check_symmetric(name: str, matrix: Tensor) -> None:
    checks.finite(checks.floating(matrix, name), name)
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1] or not torch.allclose(matrix, matrix.mT):
        raise ValueError(f"expected a symmetric {name} (T, T), got shape {tuple(matrix.shape)}; correct it")
