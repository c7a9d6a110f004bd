"""Gradients of sums over the rows of a source, which is read once more for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..inference.accumulation import SumsAgain
from ..inference.summation import Piece, with_gradients
from ..inference.training_residual import RESIDUALS
from .batches import Batch
from .row_sums import RowSums


class Alone:
    """What makes the sums of all processes of those of one: nothing, where there are no others."""

    def sums(self, model: Any, make: Callable[[], RowSums]) -> RowSums:
        """The sums over the rows of all processes, without gradients.

        :param model: the model.
        :param make: makes those over the rows of this process.
        """
        return make()

    def gradients(self, make: Callable[[], list[Tensor]]) -> list[Tensor]:
        """The gradients in the parameters, in the same order in every process, over the rows of all processes.

        :param make: makes those over the rows of this process.
        """
        return make()


def differentiable(model: Any, source: Iterable[Batch], num_rows: int, sums: RowSums, processes: Alone) -> RowSums:
    """The same sums, with gradients in the parameters, for which the source is read once more.

    :param model: the model, whose feature maps are made.
    :param source: batches that can be gone through again; order and size of the batches do not matter.
    :param num_rows: the number of its rows.
    :param sums: the sums over all rows, of this source and those of other processes.
    :param processes: what makes the gradients of all processes of those of one.
    """
    second = SecondPass(model, source, num_rows, sums)
    flat = [value for total in sums.draws for value in total.differentiable()]
    found = with_gradients(flat, second.pieces, (), second.parameters, processes.gradients)
    own = zip(_by_draw(found), sums.draws, strict=True)
    draws = (total.with_differentiable(values) for values, total in own)
    return sums._replace(draws=tuple(draws))


class SecondPass:
    """A second pass over a source, without the model, whose sums it is the graph of.

    :param model: the model, whose feature maps are made.
    :param source: the batches.
    :param num_rows: the number of their rows.
    :param sums: the sums over all rows.
    """

    def __init__(self, model: Any, source: Iterable[Batch], num_rows: int, sums: RowSums) -> None:
        self.source, self.num_rows = source, num_rows
        self.models = [model._single_draw(model.covar_module), *model.further_draws.begin(model)]
        residual = RESIDUALS[model.residual]
        self.draws = [
            SumsAgain(one._features, one._noise, total, residual)
            for one, total in zip(self.models, sums.draws, strict=True)
        ]
        self.parameters = _distinct(
            [
                *(parameter for draw in self.draws for parameter in draw.parameters),
                *model._noise.parameters().values(),
                *(model.likelihood.parameters() if model._contains_noise else ()),
            ]
        )

    def pieces(self, gradients: Sequence[Tensor], _: object) -> Iterator[Piece]:
        """The rows of every batch for every draw, forgotten one after the other.

        :param gradients: those of the sums.
        :raises ValueError: where the source has other rows than at the first pass.
        """
        pairs = zip(self.draws, _by_draw(gradients), strict=True)
        makers = [draw.pieces(of_sums) for draw, of_sums in pairs]
        count = 0
        for x, y, noise in self.source:
            if any(isinstance(t, Tensor) and t.requires_grad for t in (x, y, noise)):
                raise ValueError(
                    "expected batches without gradients of their own, got some that require them; fit tensors, "
                    "condition(x, y), for gradients in the data"
                )
            for model, piece in zip(self.models, makers, strict=True):
                with torch.enable_grad():
                    _, rows, dtype = model._prepared(x, y, noise, is_all=False)
                yield piece(x, rows, dtype)
            count += len(x)
        if count != self.num_rows:
            raise ValueError(
                f"expected the {self.num_rows} rows of the fit once more for its gradient, got {count}; a generator "
                "can be gone through once: pass a list, a DataLoader or a source of rfgp.data, or fit under "
                "torch.no_grad()"
            )


def _by_draw(values: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    """The sums of every draw: four for each."""
    return [values[first : first + 4] for first in range(0, len(values), 4)]


def _distinct(parameters: Iterable[Tensor]) -> list[Tensor]:
    return list({id(parameter): parameter for parameter in parameters}.values())
