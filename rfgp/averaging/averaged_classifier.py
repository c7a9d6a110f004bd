"""Gaussian process classifiers of few rows, averaged over their parameters and stacked over scales of the inputs."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor
from torch.distributions import Categorical

from .._support import checks
from .class_link import ClassLink
from .fitted_rows import FittedRows
from .input_scale import InputScale, Kind
from .label_member import LabelMember
from .member import equal_rows, groups_by_size, groups_of_fitted
from .stacking import stacking_weights

_KINDS: tuple[Kind, ...] = ("values", "half ranks")
_DRAWS, _PROPOSALS, _FEWEST_DRAWS, _FEWEST_PROPOSALS, _QUICK = 24, 200, 8, 32, 150
"""There are as many draws as up to 150 rows have in no time, and fewer of more rows, or of several functions."""


class AveragedGPClassifier(FittedRows):
    r"""A Gaussian process classifier of few rows, whose probabilities know that its parameters are learned.

    .. math:: p(c | x) = \sum_k w_k \frac1S \sum_s p_k(c | x, \theta_{ks})

    There are two members k, of standardized inputs and of half ranks. Each class is told from all others by a latent
    function with logistic noise, by Laplace's approximation, and odds of classes are those that these functions say.
    Parameters :math:`\theta_{ks}` are draws from their posterior. The left-out rows choose how much variances of latent
    functions count, and the weights; equal inputs are left out together.

    :param x: inputs (N, d), finite, in float64.
    :param y: the numbers (N,) of classes, from 0 to C - 1, each of which occurs, with two classes at least.
    :raises ValueError: for other rows.

    Source: Rasmussen and Williams (2006), chapter 3; Yao, Vehtari, Simpson and Gelman (2018), stacking.

    >>> x = torch.linspace(-1.0, 1.0, 40, dtype=torch.float64).unsqueeze(-1)
    >>> model = AveragedGPClassifier(x, (x[:, 0] > 0.0).long())
    >>> model.predictive(torch.tensor([[-0.8], [0.0], [0.8]], dtype=torch.float64)).probs[:, 1].round(decimals=1)
    tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)
    """

    members: list[LabelMember]
    links: list[ClassLink]
    weights: Tensor

    @torch.no_grad()
    def __init__(self, x: Tensor, y: Tensor) -> None:
        x, y = _checked(x, y)
        self.num_classes = len(y.unique())
        if self.num_classes < 2 or int(y.max()) >= self.num_classes:
            raise ValueError(
                f"expected the numbers 0 to C - 1 of two classes or more, all of them, got {y.unique().tolist()}; "
                "number the classes that there are"
            )
        members = [LabelMember(x, self._signs(y), InputScale(x, kind)) for kind in _KINDS]
        work = min(1.0, (_QUICK / len(x)) ** 2 / self.num_functions)
        draws, proposals = max(_FEWEST_DRAWS, int(_DRAWS * work**0.5)), max(_FEWEST_PROPOSALS, int(_PROPOSALS * work))
        start = members[0].mode
        for member in members:
            member.learn(start, draws, proposals)
            start = member.mode
        self._stack(members, x, y)

    @property
    def num_functions(self) -> int:
        """The number of latent functions: one for each class, or for two."""
        return 1 if self.num_classes == 2 else self.num_classes

    def _signs(self, y: Tensor) -> Tensor:
        """The labels (C, N), 1 for rows of a class and -1 for others; of two classes those of the second."""
        classes = torch.arange(self.num_classes - self.num_functions, self.num_classes).unsqueeze(-1)
        return torch.where(y == classes, 1.0, -1.0).double()

    def _stack(self, members: list[LabelMember], x: Tensor, y: Tensor) -> None:
        """Take members, with links and weights by the probabilities of left-out rows."""
        groups = _groups(equal_rows(x))
        left_out = [member.left_out(groups) for member in members]
        links = [ClassLink.calibrated(moments, y) for moments in left_out]
        pairs = zip(links, left_out, strict=True)
        densities = torch.stack([link.log_density(moments, y) for link, moments in pairs])
        self.weights = stacking_weights(densities.unsqueeze(-1)).squeeze(-1)
        self.x, self.y, self.members, self.links = x, y, members, links

    def _distribution(self, logs: list[Tensor]) -> Categorical:
        """The mixture of what the members say, of log probabilities (M, C)."""
        parts = [found + weight.log() for found, weight in zip(logs, self.weights, strict=True)]
        return Categorical(logits=torch.stack(parts).logsumexp(0))

    @torch.no_grad()
    def predictive(self, x: Tensor) -> Categorical:
        """The distributions of classes at inputs (M, d)."""
        x = checks.finite(checks.inputs(x, self.x.shape[1]), "x").double().cpu()
        pairs = zip(self.members, self.links, strict=True)
        return self._distribution([link.log_probabilities(member.predict(x)) for member, link in pairs])

    @torch.no_grad()
    def update(self, x: Tensor, y: Tensor) -> Self:
        """Add rows of the same classes; scales and parameters stay, and links and weights are learned again."""
        x, y = _checked(x, y, self.x.shape[1], self.num_classes)
        x, y = torch.cat([self.x, x]), torch.cat([self.y, y])
        self._stack([member.with_rows(x, self._signs(y)) for member in self.members], x, y)
        return self

    def leave_one_out(self, x: Tensor, y: Tensor) -> Categorical:
        """The distributions of the classes that were fitted, each by all other rows; a ValueError for other rows."""
        return self.leave_group_out(x, y, torch.arange(len(self.y)))

    @torch.no_grad()
    def leave_group_out(self, x: Tensor, y: Tensor, groups: Tensor) -> Categorical:
        """The distributions of the classes that were fitted, each by the rows of other groups.

        :param groups: the number of the group of each row, (N,).
        :raises ValueError: for other rows, or another number of groups.
        """
        x, y = _checked(x, y, self.x.shape[1], self.num_classes)
        several = _groups(groups_of_fitted(groups, (x, y), (self.x, self.y)))
        pairs = zip(self.members, self.links, strict=True)
        return self._distribution([link.left_out(member.left_out(several), y) for member, link in pairs])

    @torch.no_grad()
    def log_marginal_likelihood(self) -> Tensor:
        """The log probability of the labels by Laplace at the most probable parameters, averaged over the members."""
        logs = torch.tensor([member.log_evidence() for member in self.members], dtype=torch.float64)
        return torch.logsumexp(self.weights.log() + logs, 0)


def _checked(
    x: Tensor, y: Tensor, num_columns: int | None = None, num_classes: int | None = None
) -> tuple[Tensor, Tensor]:
    """Inputs in float64 and numbers of classes; a ValueError for others."""
    x = checks.finite(checks.inputs(x, num_columns), "x")
    if x.dim() > 2:
        raise ValueError(f"expected x of shape (N, d), got {tuple(x.shape)}; pass a row for each label")
    y = checks.labels(y, x, len(x) if num_classes is None else num_classes)
    return x.double().cpu(), y.cpu()


def _groups(numbers: Tensor) -> list[Tensor]:
    """The rows of each group of several, by the numbers (N,) of their groups."""
    return [rows for of_size in groups_by_size(numbers) for rows in of_size]
