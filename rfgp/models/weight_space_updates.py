"""Rows that come and go: updates, downdates, forgetting and merging of the sums of a weight-space model."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from .. import _checks
from ..inference import GramStatistics
from ..inference.local import LocalRows
from ..kernels.width_warning import quiet
from ..linalg import sample_rows
from .batches import Batch, batches, joined
from .model_lock import alone, together
from .row_search import row_numbers
from .row_sums import RowSums, difference
from .weight_space_data import TakesData
from .weight_space_rows import finite

_WEIGHT = 1e-9
"""Noise variances of rows that are to be found may differ by so much, relatively: weights are products of factors."""


class RefitError(NamedTuple):
    """How far a model is from a refit to its rows.

    :param statistics: the largest difference of the Gram matrices and cross products, relative to their largest
        entry.
    :param mean: the largest difference of posterior means at some of the rows, relative to the largest mean.
    :param variance: that of posterior variances, relative to the largest variance.

    >>> RefitError(statistics=1e-15, mean=2e-13, variance=5e-14).largest
    2e-13
    """

    statistics: float
    mean: float
    variance: float

    @property
    def largest(self) -> float:
        """The largest of the three."""
        return max(self)


class Updates(TakesData):
    """A weight-space model whose rows come and go."""

    def update(self, x: Tensor, y: Tensor, noise: Tensor | None = None) -> Self:
        """Add rows to the statistics; the result equals a fit to all rows.

        What the model keeps does not grow with the number of calls: sums that change, here and below, have no
        gradients. :meth:`log_marginal_likelihood` refuses those that it would need.

        :param x: inputs (N, d).
        :param y: targets (N,), integer labels, or (N, T) with NaN for missing outputs.
        :param noise: noise variances of the shape of y, for a fixed-noise likelihood.
        :returns: the model.
        :raises ValueError: for bad data, or stale statistics; the model stays as it was.
        """
        self.slide((x, y, noise))
        return self

    @alone
    @torch.no_grad()
    def downdate(self, x: Tensor, y: Tensor, noise: Tensor | None = None, *, weight: float = 1.0) -> Self:
        r"""Take rows away again; the result equals a fit to the others.

        .. math:: G \leftarrow G - \sum_i w_i \overline{\phi_i} \phi_i^\top

        and so on for all sums, at O(N D^2 + D^3) for N rows: the matrix that is left is checked to be positive. Nothing
        of the rows stays but a rounding error of the sums: these are centered anew, patterns of missing outputs that no
        row has any more go, and so do rows that ``keep_data``, complex targets or blocks keep. What was learned from
        the rows before stays learned: parameters, landmarks, the center of the inputs, and powers of two that bound
        them. :meth:`refit_error` compares the result with a fit.

        With ``block_size`` the rows are found among those that are kept, and only the blocks that they were in are
        computed again; the other blocks stay as they are.

        :param x: inputs (N, d) of rows that were fitted.
        :param y: their targets, as in :meth:`condition`.
        :param noise: their noise variances, for a fixed-noise likelihood.
        :param weight: the weight that :meth:`forget` has left them; default: 1.
        :returns: the model.
        :raises ValueError: for bad data or stale statistics; for rows that were never there: those that are not among
            the rows which are kept, and where no rows are kept as far as sums show, by their number, or by sums of
            squares that would be negative; where no row would be left. The model stays as it was.

        >>> import gpytorch, rfgp
        >>> x, y = torch.rand(100, 2), torch.rand(100)
        >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
        >>> model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
        >>> model.downdate(x[:1], y[:1]).statistics.num_rows
        99.0
        >>> model.refit_error(x[1:], y[1:]).largest < 1e-5  # in float32
        True
        """
        weight = _checks.positive("weight", weight)
        known = self._known_sums()
        if self.block_size is not None:
            return self._downdate_blocks(x, y, noise, weight)
        with self._nothing_lost_on_error():
            removed = self._sums_of([(x, y, noise)])
            left = known.without(removed if weight == 1.0 else removed.scaled(weight), self._noise)
            _check_left(left.draws[0].num_rows)
            if not left.is_part_of(known, self._noise):
                raise ValueError(
                    "expected rows of the fit to take away, got others, without which the sums of squares would not be "
                    "positive; pass what was fitted, with the same noise, and the weight that forgetting has left it"
                )
            some = None if known.some is None else known.some.without(x, y)
            self._take(left._replace(some=some), self._data_without(x, y, noise))
        return self

    @alone
    @torch.no_grad()
    def forget(self, factor: float) -> Self:
        r"""Multiply the weights of all rows by a factor: exponential forgetting.

        .. math:: B = I + \sum_i \gamma^{a_i} \overline{\phi_i} \phi_i^\top / s_i

        where :math:`a_i` is how often this was called since row i came. The posterior is that of a fit with the noise
        variances :math:`s_i / \gamma^{a_i}`; the prior is not forgotten, and comes back where no new rows come. The
        evidence is that of weighted densities, :math:`\log \int p(w) \prod_i p(y_i | w)^{\gamma^{a_i}} dw`, whose
        maximum over the noise is a variance of residuals with these weights; the number of rows is the sum of weights.
        With ``residual="fitc"`` the noise of a row contains the residual.

        With ``block_size`` the noise of the rows is raised and all blocks are computed again, at the cost of a fit;
        rows whose precision is below rounding are dropped, and the evidence is that of a fit with the raised noise.
        Rows that ``keep_data`` keeps are dropped, as they have no weights.

        :param factor: the factor, above 0 and at most 1.
        :returns: the model.
        :raises ValueError: for another factor, or stale statistics; the model stays as it was.

        >>> import gpytorch, rfgp
        >>> x, y = torch.rand(100, 2), torch.rand(100)
        >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
        >>> model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
        >>> model.forget(0.5).update(x[:10], y[:10]).statistics.num_rows
        60.0
        """
        factor = _checks.positive("factor", factor)
        if factor > 1.0:
            raise ValueError(f"expected a factor of at most 1, got {factor:g}; weights of rows fade")
        known = self._known_sums()
        if self.block_size is None:
            with quiet():
                self._take(known.scaled(factor), [])
            return self
        self._set_blocks(self._known_rows().forgotten(factor), [])
        return self

    @torch.no_grad()
    def merge(self, *others: Any) -> Self:
        """Add the rows of models that were trained apart; the result equals a fit to the rows of all.

        Noise, output scale and mean, which the statistics do not contain, are those of this model. With ``block_size``
        the rows of the others go where an update with them would put them. The others stay as they are.

        :param others: fitted models with the same features: parameters, random weights, landmarks and center. Loading
            the ``state_dict`` of one model into the others before they are fitted makes these equal.
        :returns: the model.
        :raises ValueError: for models that are not fitted, or of another kind, with what differs; this one stays as it
            was.

        >>> import copy, gpytorch, rfgp
        >>> x, y = torch.rand(100, 2), torch.rand(100)
        >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
        >>> model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
        >>> other = copy.deepcopy(model).condition(x[50:], y[50:])
        >>> model.condition(x[:50], y[:50]).merge(other).statistics.num_rows
        100.0
        """
        for other in others:
            if not isinstance(other, Updates):
                raise ValueError(f"expected a fitted WeightSpaceGP to merge, got {type(other).__name__}; pass models")
        with together((self, *others)):
            return self._merge(others)

    def _merge(self, others: Sequence[Updates]) -> Self:
        """:meth:`merge`, while no other thread is in one of the models."""
        known = self._known_sums()
        for other in others:
            self._check_alike(other)
        if self.block_size is not None:
            return self._merge_blocks(others)
        with self._nothing_lost_on_error():
            parts, device = [self.training_data], known.draws[0].count.device
            for other in others:
                sums = other._known_sums()
                draws = (GramStatistics.from_state_dict(part.state_dict()).to(device) for part in sums.draws)
                known = known.merged(sums._replace(draws=tuple(draws)), self._noise)
                parts.append(other.training_data)
            self._take(known, [batch for part in parts for batch in part] if all(parts) else [])
        return self

    @alone
    @torch.no_grad()
    def refit_error(
        self, x: Tensor | Iterable[tuple[Tensor, ...]], y: Tensor | None = None, noise: Tensor | None = None
    ) -> RefitError:
        """How far the model is from a refit of a copy to the rows that it should have, after updates and downdates.

        With ``block_size`` the rows have to be those that it keeps, and the sums over the same blocks are computed
        again.

        :param x: inputs of the rows, or batches, as in :meth:`condition`.
        :param y: targets.
        :param noise: noise variances, for a fixed-noise likelihood.
        :returns: ``(statistics, mean, variance)``, relative differences.
        :raises ValueError: for bad data, or stale statistics; with blocks for rows other than those of the model.
        """
        known, refit = self._known_sums(), copy.deepcopy(self)
        if self.block_size is None:
            with quiet():
                refit.condition(x, y, noise)
            points = x if isinstance(x, Tensor) else next(iter(x))[0]
        else:
            points, targets, variances = joined(list(batches(x, y, noise)))
            local, rows = self._known_rows(), self._checked_rows(points, targets, variances, is_all=False)
            self._numbers_of(points, *self._columns_and_variances(rows))
            if len(points) != len(local.x):
                raise ValueError(f"expected the {len(local.x)} rows of the model, got {len(points)}; pass all of them")
            refit._set_blocks(local, [])
        points = sample_rows(points)
        ours, theirs = self.posterior(points), refit.posterior(points)
        sums = known.difference(refit._known_sums(), refit._noise)
        return RefitError(sums, difference(ours.mean, theirs.mean), difference(ours.variance, theirs.variance))

    @alone
    @torch.no_grad()
    def slide(self, added: Batch, removed: Batch | None = None, factor: float = 1.0) -> RowSums | None:
        """Add rows, and let others leave or fade, without a check that they were there: a step of a stream.

        :param added: inputs, targets and noise variances or None, as in :meth:`update`.
        :param removed: those of rows that are here and leave, such as those that leave a window.
        :param factor: what the weights of all rows before are multiplied by, as in :meth:`forget`.
        :returns: the sums over the rows that were added; None with ``block_size``.
        :raises ValueError: for bad data, or stale statistics; the model stays as it was.
        """
        is_new = self._fitted is None
        if self.block_size is not None:
            self._slide_blocks(added, removed, factor)
            return None
        known = None if is_new else self._known_sums()
        record = None if is_new else self._known().record
        with self._nothing_lost_on_error():
            sums = self._sums_of([added])
            if known is not None and factor != 1.0:
                known = known.scaled(factor)
            total = sums if known is None else known.merged(sums, self._noise)
            data = [*self.training_data, added] if is_new or self.training_data else []
            if removed is not None:
                total = self.sums_without(total, removed, added, is_centered=False)
                data = self._data_without(*removed, data=data)
                if total.some is not None:
                    total = total._replace(some=total.some.without(*removed[:2]))
            self._take(total, data if factor == 1.0 else [], record)
        return sums

    def sums_without(self, sums: RowSums, removed: Batch, beside: Batch, is_centered: bool = True) -> RowSums:
        """Sums without those over some of their rows, of which perhaps none has a target.

        :param sums: the sums.
        :param removed: the rows that are taken away.
        :param beside: others that stay, of which some have targets.
        :param is_centered: whether the sums are centered anew, at the targets that are left.
        :returns: the sums over the rows that are left.
        """
        y = removed[1]
        if not bool(torch.isnan(y).all()):
            return sums.without(self._sums_of([removed]), self._noise, is_centered)
        left = sums.without(self._sums_of([joined([removed, beside])]), self._noise, is_centered=False)
        return left.merged(self._sums_of([beside]), self._noise)

    def _slide_blocks(self, added: Batch, removed: Batch | None, factor: float) -> None:
        """:meth:`slide` of rows in blocks."""
        before = self._fitted, self._posterior, self.training_data
        try:
            if self._fitted is None:
                self._fit_blocks([added], False)
                return
            if factor != 1.0:
                self.forget(factor)
            self._update_blocks(*added)
            if removed is not None:
                self._downdate_blocks(*removed, 1.0)
        except BaseException:
            self._fitted, self._posterior, self.training_data = before
            raise

    @alone
    def set_sums(self, sums: RowSums) -> Self:
        """Let sums over the rows of the model, found in another order, replace those that it has.

        :param sums: the sums, with those over complex targets.
        :returns: the model.
        """
        with self._nothing_lost_on_error(), quiet():
            self._take(sums._replace(some=self._some_rows), self.training_data)
        return self

    def _data_without(self, x: Tensor, y: Tensor, noise: Tensor | None, data: list[Batch] | None = None) -> list[Batch]:
        """The rows that are kept, but for some."""
        data = self.training_data if data is None else data
        if not data:
            return []
        whole = joined(data)
        numbers = row_numbers(whole, (x, y, noise))
        _check_found(numbers)
        is_left = torch.ones(len(whole[0]), dtype=torch.bool)
        is_left[numbers] = False
        sizes = [len(batch[0]) for batch in data]
        left = (
            [None if p is None else p[k.to(p.device)] for p in b]
            for b, k in zip(data, is_left.split(sizes), strict=True)
        )
        return [(a, b, c) for a, b, c in left if a is not None and b is not None and len(a)]

    def _downdate_blocks(self, x: Tensor, y: Tensor, noise: Tensor | None, weight: float) -> Self:
        """:meth:`downdate` of rows in blocks: those that the rows were in are computed again."""
        statistics, local = self.statistics, self._known_rows()
        with self._nothing_lost_on_error():
            rows = self._checked_rows(x, y, noise, is_all=False)
            columns, variances = self._columns_and_variances(rows)
            numbers = self._numbers_of(x, columns, variances / weight)
            _check_left(len(local.x) - len(numbers))
            dtype = self._product_dtype(x, rows)
            total, local = local.reduced(self.covar_module, statistics, dtype, numbers)
            self._set(finite(total.recentered(), x), self._data_without(x, y, noise), None, local.detached())
        return self

    def _numbers_of(self, x: Tensor, columns: Tensor, variances: Tensor) -> Tensor:
        """The numbers of rows among those that blocks keep."""
        local = self._known_rows()
        numbers = row_numbers((local.x, local.columns), (x.to(local.x), columns))
        _check_found(numbers)
        known = local.variances[numbers.to(local.x.device)]
        is_other = (known - variances).abs() > _WEIGHT * known
        _check_found(torch.where(is_other.cpu(), -1, numbers))
        return numbers

    def _set_blocks(self, local: LocalRows, data: list[Batch]) -> None:
        """Let the model have rows in blocks, and the sums over them."""
        dtype = self.product_dtype or torch.float64
        with quiet():
            shift = local.columns.mean(0)
            self._set(finite(local.statistics(self.covar_module, dtype, shift), local.x), data, None, local)

    def _merge_blocks(self, others: Iterable[Any]) -> Self:
        """:meth:`merge` of models with blocks."""
        local, total, parts = self._known_rows(), self.statistics, [self.training_data]
        dtype = self.product_dtype or torch.float64
        with self._nothing_lost_on_error():
            for other in others:
                total, local = local.updated(self.covar_module, total, dtype, tuple(other._known_rows().tensors))
                parts.append(other.training_data)
            data = [batch for part in parts for batch in part] if all(parts) else []
            self._set(finite(total, local.x), data, None, local.detached())
        return self

    def _check_alike(self, other: Updates) -> None:
        """Raise a ValueError where the rows of another model cannot be added to those of this one."""
        names = ("block_size", "residual", "num_draws", "num_outputs")
        strange = [name for name in names if getattr(self, name) != getattr(other, name)]
        kinds = ("likelihood", "mean_module")
        strange += [name for name in kinds if type(getattr(self, name)) is not type(getattr(other, name))]
        strange += ["num_classes"] if self._noise.num_systems != other._noise.num_systems else []
        if not strange:
            other._known_sums()
            pairs = zip(self.further_draws.of(self), other.further_draws.of(other), strict=True)
            for mine, theirs in ((self, other), *pairs):
                strange += theirs._known().record.changes(mine._known().record.tensors)
        if strange:
            raise ValueError(
                f"expected models with the same features to merge, got another {', '.join(dict.fromkeys(strange))}; "
                "load the state_dict of one model into the others before they are fitted"
            )


def _check_left(count: float) -> None:
    if count <= 0:
        raise ValueError("expected at least one row to be left, got the last ones to take away; make a new model")


def _check_found(numbers: Tensor) -> None:
    """Raise a ValueError where rows were not found."""
    missing = (numbers < 0).nonzero().squeeze(-1).tolist()
    if missing:
        names = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise ValueError(
            f"expected rows that the model has, with the same targets and noise, got others at {names}; pass what was "
            "fitted"
        )
