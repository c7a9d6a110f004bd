"""The trees of a forest as tensors, which predict without what learned them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestRegressor

_BLOCK = 4096
"""Predictions are made for so many rows at once."""


class Trees:
    r"""A forest of B regression trees for T targets, as a baseline of :class:`rfgp.averaging.AveragedGP`.

    .. math:: f(x) = \frac1B \sum_b v_{\ell_b(x)}

    Here :math:`\ell_b(x)` is the leaf of an input in a tree, and v are the means (L, T) of the targets in leaves. An
    input goes on to the second child of a node where it is above the threshold, both in float32 as in scikit-learn.
    Nodes are numbered through all trees, leaves first; a leaf is its own child, so that all inputs take as many steps.

    :param forest: a fitted forest of scikit-learn with out-of-bag predictions, of finite inputs.
    :ivar left_out: these predictions, (N, T).
    """

    def __init__(self, forest: RandomForestRegressor) -> None:
        trees = [member.tree_ for member in forest.estimators_]
        starts = np.cumsum([0, *(tree.node_count for tree in trees)])
        is_leaf = np.concatenate([tree.children_left < 0 for tree in trees])
        number = np.argsort(np.argsort(~is_leaf, kind="stable"))
        order, count = np.argsort(number), int(is_leaf.sum())
        children = [
            np.stack([tree.children_left, tree.children_right], axis=-1) + start
            for tree, start in zip(trees, starts, strict=False)
        ]
        of_nodes = np.where(is_leaf[:, None], number[:, None], number[np.concatenate(children).clip(0)])
        values = np.concatenate([tree.value[..., 0] for tree in trees])
        thresholds = np.concatenate([tree.threshold for tree in trees])
        features = np.concatenate([tree.feature for tree in trees])
        self.depth, self.roots = max(tree.max_depth for tree in trees), torch.from_numpy(number[starts[:-1]]).int()
        self.children = torch.from_numpy(of_nodes[order]).int().flatten()
        self.features = torch.from_numpy(features[order]).int().clamp_min(0)
        self.thresholds = _rounded_down(torch.from_numpy(thresholds[order]))
        self.values = torch.from_numpy(values[order[:count]])
        left_out = np.nan_to_num(forest.oob_prediction_)
        self.left_out = torch.from_numpy(left_out.reshape(len(left_out), -1))

    def __call__(self, x: Tensor) -> Tensor:
        """Predictions (M, T) at inputs (M, d)."""
        return torch.cat([self._predicted(rows) for rows in x.float().split(_BLOCK)])

    def _predicted(self, x: Tensor) -> Tensor:
        size, count = len(x), len(self.roots)
        node, columns = self.roots.repeat_interleave(size), x.mT.flatten()
        row = torch.arange(size, dtype=torch.int32).repeat(count)
        for _ in range(self.depth):
            place = self.features.index_select(0, node).mul_(size).add_(row)
            is_above = columns.index_select(0, place) > self.thresholds.index_select(0, node)
            node = self.children.index_select(0, node.mul_(2).add_(is_above))
        leaves = node.reshape(count, size).mT.contiguous()
        return torch.nn.functional.embedding_bag(leaves, self.values, mode="mean")


def _rounded_down(thresholds: Tensor) -> Tensor:
    """The largest numbers of float32 that are not above thresholds, below which the same numbers of float32 lie."""
    near = thresholds.float()
    return torch.where(near.double() > thresholds, torch.nextafter(near, near.new_tensor(-torch.inf)), near)
