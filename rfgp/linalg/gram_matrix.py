"""Weighted Gram matrices and cross products of tall matrices, summed in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .._support import checks
from .chunks import row_chunks
from .complex_numbers import accurate_dtype, check_numbers, real_part

_GRAM_COLUMNS = 512


def add_gram_(
    gram: Tensor,
    cross: Tensor,
    features: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    product_dtype: torch.dtype = torch.float64,
) -> None:
    """Add the upper block triangle of the weighted Gram matrix, and the cross products, in place and without gradients.

    :param gram: (D, D), float64 or complex128; complete it with :func:`mirror_` after the last addition.
    :param cross: (D, K), float64 or complex128.

    The other arguments are those of :func:`gram`.

    >>> total, cross = torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, 1, dtype=torch.float64)
    >>> features = torch.randn(10, 2, dtype=torch.float64)
    >>> add_gram_(total, cross, features, torch.ones(10, 1))
    >>> torch.allclose(mirror_(total), features.mT @ features)
    True
    """
    width = gram.shape[-1]
    product = torch.promote_types(product_dtype, features.dtype) if features.is_complex() else product_dtype
    for rows in row_chunks(features.shape[0], width, product.itemsize):
        chunk = features[rows].to(product)
        weighted = chunk if weights is None else chunk * weights[rows, None].to(product.to_real())
        for start in range(0, width, _GRAM_COLUMNS):
            stop = min(start + _GRAM_COLUMNS, width)
            block, left, right = gram[start:stop, start:], chunk[:, start:stop].mH, weighted[:, start:]
            if block.dtype == product:
                block.addmm_(left, right)
            else:
                block += left @ right
        cross += weighted.mH.to(cross.dtype) @ targets[rows].to(cross.dtype)


def mirror_(gram: Tensor) -> Tensor:
    """Copy the upper triangle of (D, D) Hermitian matrix onto the lower one, in place and block by block.

    >>> mirror_(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    width = gram.shape[-1]
    for start in range(0, width, _GRAM_COLUMNS):
        stop = min(start + _GRAM_COLUMNS, width)
        gram[stop:, start:stop] = gram[start:stop, stop:].mH
        diagonal = gram[start:stop, start:stop]
        diagonal.copy_(torch.triu(diagonal) + torch.triu(diagonal, 1).mH)
    return gram


class Products(NamedTuple):
    """Weighted products of the rows of each of G groups, in double precision.

    :param gram: those of features with themselves, (G, D, D).
    :param cross: those of features with columns, (G, D, K).
    :param column_gram: those of columns with themselves, (G, K, K).
    """

    gram: Tensor
    cross: Tensor
    column_gram: Tensor


Members = tuple[int, "slice | Tensor", "Tensor | None"]
"""The number of a group, which rows it has, and their weights."""


def members_of_groups(weights: Tensor | None, groups: Tensor | None) -> Iterator[Members]:
    """Every group that has rows.

    :param weights: those of rows, (N,), or of rows in every group, (N, G), where zeros are no members.
    :param groups: the number of the group of every row, (N,); default: 0.

    >>> [(group, rows.tolist()) for group, rows, _ in members_of_groups(None, torch.tensor([2, 0, 2]))]
    [(0, [False, True, False]), (2, [True, False, True])]
    """
    if weights is not None and weights.dim() == 2:
        for group, own in enumerate(weights.unbind(-1)):
            is_in = own.detach() != 0
            if bool(is_in.all()):
                yield group, slice(None), own
            elif bool(is_in.any()):
                yield group, is_in, own[is_in]
    elif groups is None:
        yield 0, slice(None), weights
    else:
        names = groups.unique().tolist()
        for group in names:
            members = slice(None) if len(names) == 1 else groups == group
            yield group, members, None if weights is None else weights[members]


class _Products(torch.autograd.Function):
    """Weighted products by group, whose gradients in the rows need no product of features with themselves."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        columns: Tensor,
        weights: Tensor | None,
        groups: Tensor | None,
        num_groups: int,
        product_dtype: torch.dtype,
        has_values: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(features, columns, weights, groups)
        ctx.product_dtype = product_dtype
        exact, of_columns = accurate_dtype(features.dtype), accurate_dtype(columns.dtype)
        mixed = torch.promote_types(exact, of_columns)
        width, count = features.shape[-1], columns.shape[-1]
        sizes = (width, width, exact), (width, count, mixed), (count, count, of_columns)
        if not has_values:
            gram, cross, squares = (
                features.new_zeros((), dtype=dtype).expand(num_groups, rows, columns) for rows, columns, dtype in sizes
            )
            return gram, cross, squares
        gram, cross, squares = (
            features.new_zeros(num_groups, rows, columns, dtype=dtype) for rows, columns, dtype in sizes
        )
        for group, members, own in members_of_groups(weights, groups):
            own_columns = columns[members]
            add_gram_(gram[group], cross[group], features[members], own_columns, own, product_dtype)
            mirror_(gram[group])
            squares[group] = column_gram(own_columns, own)
        return gram, cross, squares

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_gram: Tensor, of_cross: Tensor, of_squares: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None, None]:
        features, columns, weights, groups = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        found: list[Tensor | None] = [None, None, None]
        is_wanted_at_zero = wanted[2] and weights.dim() == 2  # a weight of zero has a gradient, and gives none
        every = ((g, slice(None), own) for g, own in enumerate(weights.unbind(-1))) if is_wanted_at_zero else None
        for group, members, own in every or members_of_groups(weights, groups):
            gradients = _RowGradients(of_gram[group], of_cross[group], of_squares[group], ctx.product_dtype)
            numbers = members.nonzero().squeeze(-1) if isinstance(members, Tensor) else None
            count = len(features) if numbers is None else len(numbers)
            for part in row_chunks(count, features.shape[1], gradients.gram.dtype.itemsize):
                chosen = part if numbers is None else numbers[part]
                added = gradients.of_rows(features[chosen], columns[chosen], None if own is None else own[part], wanted)
                places = chosen, chosen, (chosen, group) if weights is not None and weights.dim() == 2 else chosen
                found = [*map(_added_at, found, places, added, ctx.saved_tensors[:3])]
        return *found, None, None, None, None  # type: ignore[return-value]


def _added_at(total: Tensor | None, place: Any, added: Tensor | None, like: Tensor | None) -> Tensor | None:
    """A gradient of the shape of a tensor, with that of some of its entries added."""
    if added is None or like is None:
        return total
    if total is None and added.shape == like.shape and not isinstance(place, Tensor):
        return added
    result = torch.zeros_like(like) if total is None else total
    result[place] += added
    return result


class _RowGradients:
    """Gradients in rows, from those of the products of one group with gradients G, H and T."""

    def __init__(self, gram: Tensor, cross: Tensor, column_gram: Tensor, product_dtype: torch.dtype) -> None:
        def rounded(matrix: Tensor) -> Tensor:
            return matrix.to(product_dtype.to_complex() if matrix.is_complex() else product_dtype)

        self.gram, self.cross = rounded(gram + gram.mH), rounded(cross)
        self.column_gram = rounded(column_gram + column_gram.mH)

    def of_rows(
        self, features: Tensor, columns: Tensor, weights: Tensor | None, wanted: Sequence[bool]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The wanted gradients in features (n, D), columns (n, K) and weights (n,)."""
        rows, mixed = features.to(self.gram.dtype), self.cross.dtype
        exact = columns.to(mixed if columns.is_complex() else mixed.to_real())
        from_rows = from_columns = by_weights = None
        if wanted[0] or wanted[2]:
            back = exact.to(mixed) @ self.cross.mH
            from_rows = (back if rows.is_complex() else real_part(back)).addmm_(rows, self.gram)
        if wanted[1] or wanted[2]:
            ahead = rows.to(mixed) @ self.cross
            squares = exact @ self.column_gram.to(exact.dtype)
            from_columns = (ahead if exact.is_complex() else real_part(ahead)) + squares
        if wanted[2] and weights is not None and from_rows is not None and from_columns is not None:
            twice = real_part(rows.conj() * from_rows).sum(-1) + real_part(exact.conj() * from_columns).sum(-1)
            by_weights = (0.5 * twice).to(weights.dtype)
        return (
            _weighted(from_rows, weights, features.dtype) if wanted[0] else None,
            _weighted(from_columns, weights, columns.dtype) if wanted[1] else None,
            by_weights,
        )


def _weighted(rows: Tensor | None, weights: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if rows is None or weights is None:
        return None if rows is None else rows.to(dtype)
    return (rows * weights.to(rows.dtype.to_real()).unsqueeze(-1)).to(dtype)


def column_gram(columns: Tensor, weights: Tensor | None = None) -> Tensor:
    """The weighted Gram matrix (K, K) of columns (N, K), in double precision.

    >>> column_gram(torch.ones(3, 1), torch.tensor([1.0, 1.0, 2.0]))
    tensor([[4.]], dtype=torch.float64)
    """
    exact = columns.to(accurate_dtype(columns.dtype))
    return (exact if weights is None else exact * weights.double().unsqueeze(-1)).mH @ exact


def products_by_group(
    features: Tensor,
    columns: Tensor,
    weights: Tensor | None = None,
    groups: Tensor | None = None,
    num_groups: int = 1,
    product_dtype: torch.dtype = torch.float64,
    has_values: bool = True,
) -> Products:
    r"""Products of the rows of every group, differentiable once in features, columns and weights.

    .. math:: G_g = \sum_{i \in g} w_i \overline{\phi_i} \phi_i^\top, \quad
        H_g = \sum_{i \in g} w_i \overline{\phi_i} c_i^\top, \quad
        T_g = \sum_{i \in g} w_i \overline{c_i} c_i^\top

    :param features: (N, D), real or complex.
    :param columns: (N, K), real or complex.
    :param weights: those of rows, (N,), or of rows in every group, (N, G); default: ones.
    :param groups: the number of the group of every row, (N,); default: 0.
    :param product_dtype: the dtype of the products with features, float32 or float64.
    :param has_values: whether the products are computed; otherwise they are zeros, and only their gradients are right.

    >>> products_by_group(torch.eye(2), torch.ones(2, 1), groups=torch.tensor([0, 1]), num_groups=2).cross.squeeze(-1)
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    return Products(*_Products.apply(features, columns, weights, groups, num_groups, product_dtype, has_values))


def gram(
    features: Tensor, targets: Tensor, weights: Tensor | None = None, product_dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    r"""Gram matrix :math:`\Phi^H W \Phi`, (D, D), and cross products :math:`\Phi^H W Y`, (D, K), in double precision.

    Rows are taken in chunks, to save memory. Differentiable once in all three tensors.

    :param features: (N, D), real or complex.
    :param targets: (N, K), real or complex.
    :param weights: (N,), real; default: ones.
    :param product_dtype: the dtype of the products inside a chunk of rows, float32 or float64.
    :raises ValueError: for other tensors.

    >>> gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([[1.0], [1.0]]))[0]
    tensor([[1., 2.],
            [2., 5.]], dtype=torch.float64)
    """
    for name, value in (("features", features), ("targets", targets)):
        if check_numbers(value, name).dim() != 2 or len(value) != len(features):
            raise ValueError(
                f"expected features (N, D) and targets (N, K), got {name} of shape {tuple(value.shape)}; "
                "pass a row of each per row of the data"
            )
    if weights is not None:
        checks.one_per_row(checks.floating(weights, "weights"), features, "weights")
    product_dtype = checks.floating_dtype("product_dtype", product_dtype)
    products = products_by_group(features, targets, weights, product_dtype=product_dtype)
    return products.gram[0], products.cross[0]
