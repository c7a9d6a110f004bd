"""Fits of a weight-space model: sums over all rows, over more rows, or from elsewhere."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Self

import torch
from torch import Tensor

from ..distributed import Shard
from ..inference import GramStatistics, Rows, SufficientStatistics, TrainingRows, accumulate
from ..inference.training_residual import RESIDUALS
from .batches import Batch, Batches, batches
from .block_tasks import rows_of_partitions
from .checkpoint import Checkpoint
from .impropriety import SomeRows
from .input_bounds import input_bounds, joined_bounds
from .model_lock import alone
from .partitions import Partitions, sums_of_partitions
from .progress import shown
from .rank_sums import processes_of
from .record import Record
from .row_sums import RowSums
from .second_pass import differentiable
from .weight_space_blocks import TakesBlocks
from .weight_space_checks import check_statistics
from .weight_space_rows import finite


class TakesData(TakesBlocks):
    """A weight-space model that is fitted to data."""

    @alone
    def condition(
        self,
        x: Tensor | Iterable[Any],
        y: Tensor | None = None,
        noise: Tensor | None = None,
        *,
        executor: Executor | None = None,
        progress: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1_000_000,
    ) -> Self:
        """Compute the statistics of the data, and forget earlier data.

        With gradients enabled the statistics carry those of the parameters, at constant memory: batches are read once
        here, and once more when a gradient runs back.

        :param x: inputs (N, d), or an iterable of batches (x, y) or (x, y, noise), such as a source of
            :mod:`rfgp.data`, a list or a DataLoader; for gradients it is gone through again, with the same rows.
        :param y: targets (N,), integer labels for a Dirichlet likelihood, or (N, T) for several outputs, with NaN for
            missing ones (of a batch at least one is observed). Complex targets are missing where a part is NaN.
        :param noise: noise variances of the shape of y, for a fixed-noise likelihood.
        :param executor: any executor of ``concurrent.futures``, also Dask's and MPI's, whose workers sum the rows. Then
            x is a list of partitions, each a source of :mod:`rfgp.data`, a list of batches, or a tuple (x, y) or
            (x, y, noise), or one source. The result is the same to the last bit whatever the number of workers, each
            of which has one thread, and so are gradients, for which the workers read the partitions once more; those
            of local blocks and of held classes raise. Default: none, all in this process.
        :param progress: whether a bar shows the rows of batches and the time left; default: on terminals.
        :param checkpoint: a file that the sums of batches are saved to on the way, whole or not at all. Where it is
            there, the same call goes on from it, and ends with the same bits as a fit that was never stopped. The rows
            that are in it are read once more, to tell that they are the same. It stays when the fit is done. Default:
            none.
        :param checkpoint_every: the number of rows after which it is saved, at the end of a batch.
        :returns: the model.
        :raises ValueError: for bad data, and for a checkpoint that is damaged, or of another model, other parameters or
            weights, or other data; the model stays as it was.
        """
        if executor is not None and (checkpoint is not None or progress):
            raise ValueError(
                "expected neither checkpoint nor progress beside executor, got one; the engine that runs the tasks "
                "retries and shows them"
            )
        if executor is not None:
            return self._fit_by(executor, Partitions(x, y, noise))
        if isinstance(x, Shard) and (self.keep_data or self.block_size is not None):
            raise ValueError(
                "expected a model without block_size and keep_data for the Shard of a rank, got one that keeps the "
                "rows, of which every rank has its own; leave them out, or fit all rows in one process"
            )
        is_all = isinstance(x, Tensor)
        parts = batches(x, y, noise)
        file = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every)
        if file is not None and (is_all or self.keep_data or self.block_size is not None):
            raise ValueError(
                "expected batches, and a model without block_size and keep_data, beside checkpoint, got another; make "
                "batches of tensors by rfgp.data.ArraySource(x, y)"
            )
        if self.block_size is not None:
            return self._fit_blocks(list(parts), is_all)
        with self._nothing_lost_on_error():
            data = list(parts) if self.keep_data else []
            if isinstance(parts, Batches):
                running = shown(self._running_sums, parts.num_rows, progress)
                found = running(data or parts, None) if file is None else file.sums(self, parts, running)
                sums = self._streamed(data or parts, found)
            else:
                sums = self._sums_of(parts, is_all=True)
            self._take(sums, data)
        return self

    def _fit_by(self, executor: Executor, partitions: Partitions) -> Self:
        """:meth:`condition` to partitions, whose rows the workers of an executor sum."""
        if self.keep_data:
            raise ValueError("expected keep_data=False beside executor, whose workers have the rows; leave it out")
        if self.block_size is not None:
            return self._fit_blocks(rows_of_partitions(self, partitions, executor), False, executor)
        with self._nothing_lost_on_error():
            self._take(sums_of_partitions(self, partitions, executor), [])
        return self

    @alone
    def load_statistics(self, statistics: SufficientStatistics | Sequence[SufficientStatistics]) -> Self:
        """Take statistics from elsewhere, such as merged ones of several shards, in place of a fit.

        They count as computed with the present parameters of the kernel and, for fixed noise, of the likelihood, and
        with the present random weights: equal seeds and parameters are up to the caller, and so is the center of the
        inputs that :func:`rfgp.fit` stores in the kernel. Loading the ``state_dict`` of one model into the others makes
        all of these equal; do it before these are fitted to their shards.

        :param statistics: those of models with the same kernel, likelihood and mean; for several draws of the weights
            those of every draw, in the order of ``draw_statistics``; they are copied.
        :returns: the model.
        :raises ValueError: where the kernel waits for its first inputs, or where numbers of groups, features or
            target columns or the dtypes are not those of this model; the model stays as it was.

        >>> import gpytorch, rfgp
        >>> def model_of_a_shard():
        ...     exact = gpytorch.kernels.PolynomialKernel(power=2)
        ...     kernel = rfgp.approximate(exact, num_features=16, input_dim=2, seed=0)
        ...     return rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
        >>> x, y = torch.rand(200, 2), torch.rand(200)
        >>> shards = [model_of_a_shard().condition(x[rows], y[rows]) for rows in (slice(0, 100), slice(100, 200))]
        >>> both = shards[0].statistics.merge(shards[1].statistics)
        >>> model_of_a_shard().load_statistics(both).posterior(x[:3]).variance.shape
        torch.Size([3])
        """
        given: list[Any] = list(statistics) if isinstance(statistics, list | tuple) else [statistics]
        if len(given) != self.num_draws or not all(isinstance(sums, SufficientStatistics) for sums in given):
            got = ", ".join(type(sums).__name__ for sums in given)
            raise ValueError(
                f"expected GramStatistics for each of num_draws={self.num_draws}, got {got}; take model.draw_statistics"
            )
        if self.block_size is not None:
            raise ValueError(
                "expected a model without blocks for statistics from elsewhere, got one with them, which needs the "
                "rows; call condition(x, y), or make it without block_size"
            )
        with self._nothing_lost_on_error():
            for sums in given:
                check_statistics(sums, self._features, self.mean_module, self._noise, self._has_trace)
            device = next(self.covar_module.parameters()).device
            copies = (GramStatistics.from_state_dict(sums.state_dict()).to(device) for sums in given)
            self._take(RowSums(tuple(copies), self._patterns), [])
        return self

    def _streamed(self, source: Iterable[Batch], sums: Iterable[RowSums]) -> RowSums:
        """The sums over a source, which is read once, and once more for every gradient.

        :param source: the batches.
        :param sums: the sums after every batch.
        """
        own: list[RowSums] = []

        def make() -> RowSums:
            own.append(_last(sums))
            return own[0]

        processes = processes_of(source)
        with torch.no_grad():
            total = processes.sums(self, make)
        if not torch.is_grad_enabled():
            return total
        return differentiable(self, source, own[0].num_rows if own else 0, total, processes)

    def _sums_of(self, parts: Iterable[Batch], is_all: bool = False) -> RowSums:
        """The sums over batches of rows; the model stays as it is, but for maps and patterns that are made on the way.

        :param parts: the batches.
        :param is_all: whether they are one batch of all rows, whose noise the likelihood may know.
        """
        return _last(self._running_sums(parts, is_all=is_all))

    def _running_sums(
        self, parts: Iterable[Batch], known: RowSums | None = None, is_all: bool = False
    ) -> Iterator[RowSums]:
        """The sums after every batch, in which those before it change.

        :param parts: the batches.
        :param known: the sums over the batches before these.
        :param is_all: whether they are one batch of all rows, whose noise the likelihood may know.
        """
        models: list[Any] = [self]
        draws: list[Any] = [None] * self.num_draws if known is None else list(known.draws)
        some, num_rows = (None, 0) if known is None else (known.some, known.num_rows)
        inputs = None if known is None else known.input_bounds
        keeps_rows = is_all and torch.is_grad_enabled() and not self._contains_noise
        for batch in parts:
            draws[0], rows = self._add(draws[0], *batch, is_all=is_all)
            if len(models) < self.num_draws:
                models += self.further_draws.begin(self)
            draws[1:] = [
                model._add(total, *batch, is_all=is_all)[0] for model, total in zip(models[1:], draws[1:], strict=True)
            ]
            some = self._and_some_of(some, *batch[:2])
            own = input_bounds(batch[0])
            inputs = own if num_rows == 0 else joined_bounds(inputs, own)
            num_rows += len(batch[0])
            kept = TrainingRows.of(batch[0], rows, self._noise.num_outputs) if keeps_rows else None
            yield RowSums(tuple(draws), self._patterns, some, kept, num_rows, inputs)

    def _known_sums(self) -> RowSums:
        """The sums of the last fit, or a ValueError where there are none, or they are stale."""
        draws = tuple(self.draw_statistics)
        return RowSums(draws, self._patterns, self._some_rows, input_bounds=self._known().input_bounds)

    def _take(self, sums: RowSums, data: list[Batch], record: Record | None = None) -> None:
        """Let these be the sums of the model.

        :param sums: the sums.
        :param data: the rows, where they are kept.
        :param record: what they were computed with; default: what there is now.
        """
        self._noise.patterns = sums.patterns
        self.further_draws.set(self, sums.draws[1:], sums.rows)
        self._set(sums.draws[0], data, sums.some, record=record, input_bounds=sums.input_bounds)
        self._rows = sums.rows

    def _add(
        self, total: SufficientStatistics | None, x: Tensor, y: Tensor, noise: Tensor | None, is_all: bool
    ) -> tuple[SufficientStatistics, Rows]:
        """The statistics with more rows, and what these added."""
        rows, known, dtype = self._prepared(x, y, noise, is_all)
        total = accumulate(self._features, self._noise, x, known, dtype, total, RESIDUALS[self.residual])
        return finite(total, x), rows

    def _prepared(self, x: Tensor, y: Tensor, noise: Tensor | None, is_all: bool) -> tuple[Rows, Rows, torch.dtype]:
        """Checked rows, the same with room for what the features lack, and the dtype of products."""
        rows = self._checked_rows(x, y, noise, is_all)
        residual = RESIDUALS[self.residual]
        if residual is not None and self.covar_module.residual_variance(x[:1].detach()) is None:
            raise ValueError(
                "expected features that leave variance over for residual, such as landmarks or a truncated series, got "
                'others, which estimate the whole kernel; use residual="none"'
            )
        known = rows if residual is None else residual.prepared(rows, self._noise.variances(rows))
        return rows, known, self._product_dtype(x, rows)

    def _and_some_of(self, known: SomeRows | None, x: Tensor, y: Tensor) -> SomeRows | None:
        """Rows of complex targets on which the residuals will be looked at."""
        if getattr(self.likelihood, "has_pseudo_noise", True) or self.likelihood.noise.numel() > 1:
            return None
        return SomeRows.of(x, y) if known is None else known.and_some_of(x, y)


def _last(sums: Iterable[RowSums]) -> RowSums:
    """The last of running sums, or a ValueError where there are none."""
    last = collections.deque(sums, maxlen=1)
    if not last:
        raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
    return last[0]
