"""The parts of a Helmholtz decomposition, and what they derive from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._support import checks
from .base import Operator, check_vector_field, num_components, num_coordinates


class _UpToConstant(Operator):
    """An operator whose result is determined up to a constant, which constant fields have no part in."""

    @property
    def is_differential(self) -> bool:
        return False

    def of_constant(self, constants: Tensor, input_dim: int) -> Tensor:
        components = num_components(constants)
        ones = constants.new_ones(1, checks.positive_integer("input_dim", input_dim))
        return constants.new_zeros(self.symbol(ones, components).shape[-2])


@dataclass(frozen=True)
class Potential(_UpToConstant):
    r"""The function g with :math:`\nabla g` the curl-free part of a field, up to a constant.

    .. math:: S(w) = \overline{(i w)}^\top / \|w\|^2

    >>> Potential().symbol(torch.tensor([[1.0, 0.0]]), components=2)
    tensor([[[0.-1.j, 0.-0.j]]])
    """

    def symbol(self, w: Tensor, components: int) -> Tensor:
        check_vector_field("the potential", num_coordinates(w), components)
        return (-1j * w / w.square().sum(-1, keepdim=True)).unsqueeze(-2)


@dataclass(frozen=True)
class Streamfunction(_UpToConstant):
    r"""The function s, up to a constant, with divergence-free part :math:`(\partial_2 s, -\partial_1 s)` in the plane.

    >>> Streamfunction().symbol(torch.tensor([[0.0, 1.0]]), components=2)
    tensor([[[0.-1.j, 0.+0.j]]])
    """

    def symbol(self, w: Tensor, components: int) -> Tensor:
        check_vector_field("the streamfunction", num_coordinates(w), components, (2,))
        rotated = torch.stack([w[..., 1], -w[..., 0]], dim=-1)
        return (-1j * rotated / w.square().sum(-1, keepdim=True)).unsqueeze(-2)


@dataclass(frozen=True)
class CurlFreePart(_UpToConstant):
    r"""The part of a field that is a gradient: :math:`S(w) = w w^\top / \|w\|^2`.

    >>> CurlFreePart().symbol(torch.tensor([[1.0, 0.0]]), components=2).real.tolist()
    [[[1.0, 0.0], [0.0, 0.0]]]
    """

    def symbol(self, w: Tensor, components: int) -> Tensor:
        check_vector_field("the curl-free part", num_coordinates(w), components)
        unit = torch.nn.functional.normalize(w, dim=-1)
        return (unit.unsqueeze(-1) * unit.unsqueeze(-2)).to(w.dtype.to_complex())


@dataclass(frozen=True)
class DivergenceFreePart(_UpToConstant):
    r"""The part of a field without divergence: :math:`S(w) = I - w w^\top / \|w\|^2`.

    >>> DivergenceFreePart().symbol(torch.tensor([[1.0, 0.0]]), components=2).real.tolist()
    [[[0.0, 0.0], [0.0, 1.0]]]
    """

    def symbol(self, w: Tensor, components: int) -> Tensor:
        check_vector_field("the divergence-free part", num_coordinates(w), components)
        identity = torch.eye(components, dtype=w.dtype, device=w.device)
        return identity - CurlFreePart().symbol(w, components)
