"""Sufficient statistics of a feature model: sums over rows that can be added, subtracted, saved and all-reduced."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
import torch.distributed
from torch import Tensor

from . import _checks, _files, linalg

_FIELDS = ("_gram", "cross", "outer", "count", "log_noise")


class GramStatistics:
    r"""Weighted sums over rows, one set per group (class, task or fold), in float64.

    .. math:: G_g = \sum_{i \in g} w_i \overline{\phi_i} \phi_i^\top, \quad
        H_g = \sum_{i \in g} w_i \overline{\phi_i} t_i^\top, \quad O_g = \sum_{i \in g} w_i \overline{t_i} t_i^\top

    with the count and the sum of log noise variances of the rows of each group. The posterior, the evidence and their
    gradients need nothing else from the data.

    :param num_features: the number of columns D of the features.
    :param num_targets: the number of columns K of the targets.
    :param num_groups: the number of groups.
    :param is_complex: whether the features are complex.
    :param has_complex_targets: whether the targets are complex.
    :param device: where the sums live.

    >>> statistics = GramStatistics(2, 1).update(torch.eye(2), torch.ones(2, 1))
    >>> statistics.gram
    tensor([[[1., 0.],
             [0., 1.]]], dtype=torch.float64)
    """

    def __init__(
        self,
        num_features: int,
        num_targets: int,
        num_groups: int = 1,
        is_complex: bool = False,
        has_complex_targets: bool = False,
        device: torch.device | None = None,
    ) -> None:
        num_features = _checks.positive_integer("num_features", num_features)
        num_targets = _checks.positive_integer("num_targets", num_targets)
        num_groups = _checks.positive_integer("num_groups", num_groups)
        _checks.flag("is_complex", is_complex)
        _checks.flag("has_complex_targets", has_complex_targets)
        feature_dtype = torch.complex128 if is_complex else torch.float64
        target_dtype = torch.complex128 if has_complex_targets else torch.float64
        cross_dtype = torch.promote_types(feature_dtype, target_dtype)
        self._gram = torch.zeros(num_groups, num_features, num_features, dtype=feature_dtype, device=device)
        self.cross = torch.zeros(num_groups, num_features, num_targets, dtype=cross_dtype, device=device)
        self.outer = torch.zeros(num_groups, num_targets, num_targets, dtype=target_dtype, device=device)
        self.count = torch.zeros(num_groups, dtype=torch.float64, device=device)
        self.log_noise = torch.zeros(num_groups, dtype=torch.float64, device=device)
        self._is_mirrored = True

    @property
    def gram(self) -> Tensor:
        """The Gram matrices, (G, D, D)."""
        if not self._is_mirrored:
            for gram in self._gram:
                linalg.mirror_(gram)
            self._is_mirrored = True
        return self._gram

    @property
    def num_rows(self) -> float:
        """The number of rows in all groups."""
        return float(self.count.sum())

    def update(
        self,
        features: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        log_noise: Tensor | None = None,
        groups: Tensor | None = None,
        product_dtype: torch.dtype = torch.float64,
    ) -> Self:
        """Add rows, and return the statistics. Where an argument carries gradients the sums carry them too.

        :param features: (N, D), real or complex.
        :param targets: (N, K), real or complex.
        :param weights: (N,), the precisions of the rows; ones where it is None.
        :param log_noise: (N,), the log noise variances of the rows; zeros where it is None.
        :param groups: (N,), integers that name the group of each row; group 0 where it is None.
        :param product_dtype: the dtype of the products inside a chunk of rows; sums are in float64.
        """
        inputs = (features, targets, weights, self._gram)
        tracks = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
        names = [0] if groups is None else groups.unique().tolist()
        fresh = {}
        for group in names:
            rows = slice(None) if len(names) == 1 else groups == group
            f, t = features[rows], targets[rows]
            w, n = (None if part is None else part[rows] for part in (weights, log_noise))
            if tracks:
                fresh[group] = self.of_rows(f, t, w, n, product_dtype)
                continue
            linalg.add_gram_(self._gram[group], self.cross[group], f, t, w, product_dtype)
            self.outer[group] += _outer(t, w)
            self.count[group] += f.shape[0]
            self.log_noise[group] += 0.0 if n is None else n.double().sum()
            self._is_mirrored = False
        if tracks:
            nothing = self.from_sums({name: torch.zeros_like(value[:1]) for name, value in self.sums().items()})
            added = self.concatenate([fresh.get(group, nothing) for group in range(len(self.count))])
            for name, value in zip(_FIELDS, self.merge(added).sums().values(), strict=True):
                setattr(self, name, value)
        return self

    @classmethod
    def of_rows(
        cls,
        features: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        log_noise: Tensor | None = None,
        product_dtype: torch.dtype = torch.float64,
    ) -> GramStatistics:
        """Statistics of one group of rows, with gradients; arguments are those of :meth:`update`."""
        gram, cross = linalg.gram(features, targets, weights, product_dtype)
        count = torch.full((1,), features.shape[0], dtype=torch.float64, device=features.device)
        noise = torch.zeros_like(count) if log_noise is None else log_noise.double().sum().reshape(1)
        sums = gram.unsqueeze(0), cross.unsqueeze(0), _outer(targets, weights).unsqueeze(0), count, noise
        return cls.from_sums(dict(zip((name.strip("_") for name in _FIELDS), sums, strict=True)))

    @classmethod
    def concatenate(cls, parts: Sequence[GramStatistics]) -> GramStatistics:
        """The groups of several statistics, one after the other.

        :param parts: statistics of the same model.
        """
        if not isinstance(parts, Sequence) or not len(parts):
            raise ValueError(f"expected a list of GramStatistics, got {parts!r}; such as [first, second]")
        for part in parts:
            _checks.instance("every part", part, GramStatistics, "a GramStatistics", "fill it with update(...)")
        every = [part.sums() for part in parts]
        return cls.from_sums({name: torch.cat([sums[name] for sums in every]) for name in every[0]})

    def merge(self, other: GramStatistics) -> GramStatistics:
        """The statistics of both sets of rows together, a new object."""
        return self._combine(other, torch.add)

    def subtract(self, other: GramStatistics) -> GramStatistics:
        """The statistics of these rows without those of ``other``, a new object.

        :param other: the statistics of a subset of the rows.
        :raises ValueError: where the shapes differ, or ``other`` has more rows in a group.
        """
        if other.count.shape == self.count.shape and bool((other.count > self.count).any()):
            raise ValueError("expected statistics of a subset of the rows to subtract, got more rows than there are")
        return self._combine(other, torch.sub)

    def _combine(self, other: GramStatistics, operation: Callable[[Tensor, Tensor], Tensor]) -> GramStatistics:
        _checks.instance("other", other, GramStatistics, "a GramStatistics", "fill it with update(...)")
        for name, mine in self.sums().items():
            its = other.sums()[name]
            if mine.shape != its.shape or mine.dtype != its.dtype or mine.device != its.device:
                raise ValueError(
                    f"expected statistics of the same model, with {name} {tuple(mine.shape)} {mine.dtype} on "
                    f"{mine.device}, got {tuple(its.shape)} {its.dtype} on {its.device}; combine like with like"
                )
        theirs = other.sums()
        return self.from_sums({name: operation(mine, theirs[name]) for name, mine in self.sums().items()})

    def all_reduce(self) -> Self:
        """Sum the statistics over all processes of the default ``torch.distributed`` group, in place."""
        with torch.no_grad():
            for value in self.sums().values():
                torch.distributed.all_reduce(torch.view_as_real(value) if value.is_complex() else value)
        return self

    def to(self, device: torch.device) -> Self:
        """Move the sums to a device, in place; their dtype stays."""
        for name in _FIELDS:
            setattr(self, name, getattr(self, name).to(device))
        return self

    def sums(self) -> dict[str, Tensor]:
        """The sums by name, with their gradients."""
        return {name.strip("_"): self.gram if name == "_gram" else getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_sums(cls, sums: dict[str, Tensor]) -> GramStatistics:
        """Statistics that hold the tensors which :meth:`sums` gives."""
        result = object.__new__(cls)
        result._is_mirrored = True
        for name in _FIELDS:
            setattr(result, name, sums[name.strip("_")])
        return result

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the sums by name, detached."""
        return {name: value.detach().clone() for name, value in self.sums().items()}

    @classmethod
    def from_state_dict(cls, state: dict[str, Tensor]) -> GramStatistics:
        """Statistics from :meth:`state_dict`."""
        return cls.from_sums({name: value.clone() for name, value in state.items()})

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: the sums without their autograd graph."""
        return {name: v.detach() if isinstance(v, Tensor) else v for name, v in self.__dict__.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sums to a file, under a temporary name first.

        :param path: the file to write.
        """
        _files.write_whole(path, lambda temporary: torch.save(self.state_dict(), temporary))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GramStatistics:
        """Read what :meth:`save` wrote.

        :param path: the file to read.
        """
        return cls.from_state_dict(torch.load(path, weights_only=True))


def _outer(targets: Tensor, weights: Tensor | None) -> Tensor:
    exact = targets.to(linalg.accurate_dtype(targets.dtype))
    return (exact if weights is None else exact * weights.double().unsqueeze(-1)).mH @ exact
