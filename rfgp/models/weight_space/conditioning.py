"""The sums over the rows that a weight-space model is given: tensors, batches of a source, ranks, or partitions."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from ..._support import checks
from ..._support.ranks import Ranks
from ..._support.threads import one_thread
from ...approximation.maps import drawn_maps
from ...data.batches import Batch, Batches, batches, joined
from ...inference import GramStatistics
from ...inference.local import LocalRows, sums_of_blocks
from ...inference.sums.accumulation import SecondPass
from ...inference.sums.grid_statistics import GridStatistics
from ...inference.sums.recomputation import added_up, recomputed
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...linalg.frequency_grid import FrequencyGrid
from ...passes import Shard
from ...passes.checkpoint import Checkpoint
from ...passes.executor import ExecutorReducer, TreeSum
from ...passes.local import LocalReducer
from ...passes.partitions import Partition, Partitions
from ...passes.ranks import RankReducer
from ...passes.reducer import Reducer, without_gradients
from ...passes.tasks import pickled, results
from ..impropriety import SomeRows
from .checks import check_statistics
from .conditioned import summed_state
from .imputation import imputed, needs_imputation
from .row_summation import blocks_of, check_rows, feature_sums, running_sums, summed_rows, weighed_rows
from .row_sums import BlockSums, FeatureSums, Patterns, RowSums, joined_bounds, united

if TYPE_CHECKING:
    from .model import WeightSpaceGP


class FeatureSummation:
    """The statistics of the features of a model, and their gradients."""

    def __init__(self, model: WeightSpaceGP) -> None:
        self.model = model

    @property
    def has_gradients_by_part(self) -> bool:
        """Whether gradients of sums over all rows can be computed from some of the rows at a time, in any order."""
        kind: type[SufficientStatistics] = self.model.noise.statistics_kind
        return kind is GramStatistics

    @property
    def parameters(self) -> list[Tensor]:
        """What the sums depend on and wants gradients, in the same order in every process."""
        model, kernel = self.model, self.model.covar_module
        has_all = model.contains_noise
        found = [
            *(kernel.parameters() if has_all or model.residual != "none" else kernel.summed_parameters()),
            *(model.likelihood.parameters() if has_all else model.noise.parameters().values()),
        ]
        return [p for p in {id(p): p for p in found}.values() if p.requires_grad]

    def running(self, batches: Iterable[Batch], before: FeatureSums | None = None) -> Iterator[FeatureSums]:
        """The sums after every batch, on top of those over earlier batches; those before it change."""
        return running_sums(self.model, batches, before)

    def merge(self, first: FeatureSums, second: FeatureSums) -> FeatureSums:
        """The sums over the rows of both."""
        merged = first.merge(second, self.model)
        self.model.noise.patterns = merged.patterns
        return merged

    def tensors(self, sums: FeatureSums) -> list[Tensor]:
        """The sums that have gradients."""
        return [value for draw in sums.draws for value in draw.differentiable()]

    def with_tensors(self, sums: FeatureSums, tensors: Sequence[Tensor]) -> FeatureSums:
        """Sums with other tensors in place of :meth:`tensors`."""
        size = len(tensors) // len(sums.draws)
        pairs = zip(sums.draws, range(0, len(tensors), size), strict=True)
        draws = (draw.with_differentiable(tensors[first : first + size]) for draw, first in pairs)
        return dataclasses.replace(sums, draws=tuple(draws))

    def gradients(
        self, sums: FeatureSums, batches: Iterable[Batch], num_rows: int, of_sums: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """The gradients in ``parameters`` that rows add, which are read once more.

        :param sums: the sums over all rows, whose tensors do not matter.
        :param num_rows: their number at the first pass.
        :param of_sums: the gradients of ``tensors(sums)``.
        """
        model = self.model
        model.noise.patterns = sums.patterns
        parameters = self.parameters
        with torch.enable_grad():
            second = _SecondPass(model, sums, batches, num_rows)
            tensors = recomputed(of_sums, second.gradients, parameters=second.inputs(parameters))
            return list(torch.autograd.grad(tensors, parameters, of_sums, allow_unused=True))

    @property
    def waits(self) -> bool:
        """Whether something waits for its first inputs."""
        return any(part.feature_map is None for part in drawn_maps(self.model.covar_module))

    def prepare(self, batch: Batch | None) -> None:
        """Make what waits for its first inputs, so that it is the same in all processes."""
        if batch is not None:
            x, y, noise = batch
            check_rows(self.model, x, y, noise)
            with torch.no_grad():
                self.model.covar_module.scalar_features(x[:1])
        self.model.further_draws.begin(self.model)

    def make_for(self, input_dim: int) -> None:
        """Make what waits for its first inputs, by their number of columns."""
        reference = next(self.model.covar_module.parameters())
        x = torch.zeros(1, input_dim, dtype=reference.dtype, device=reference.device)
        with torch.no_grad():
            self.model.covar_module.scalar_features(x)

    def without_rows(self) -> Self:
        """What workers get."""
        twin = type(self)(self.model.unconditioned())
        if self.model.patterns:
            twin.model.noise.patterns = self.model.patterns
        return twin

    def all_reduce(self, sums: FeatureSums | None, ranks: Ranks) -> FeatureSums:
        """The sums over the rows of all ranks, with the same bits on all; None stands for a rank without rows."""
        parts = [part for part in ranks.every(None if sums is None else _Outline.of(sums)) if part is not None]
        if not parts:
            raise ValueError(f"expected rows on at least one of {ranks.count} ranks, got none; check the shards")
        first = parts[0]
        for part in parts:
            if [size[:2] for size in part.sizes] != [size[:2] for size in first.sizes] or part.kinds != first.kinds:
                raise ValueError(
                    f"expected the same model on all ranks, got sums of sizes {part.sizes} and {first.sizes}; make it "
                    "with the same arguments everywhere"
                )
        noise, device = self.model.noise, next(self.model.covar_module.parameters()).device
        patterns: Patterns = ()
        some_rows, bounds = first.some_rows, first.input_bounds
        for index, part in enumerate(parts):
            patterns = united(patterns, part.patterns)
            if index:
                bounds = joined_bounds(bounds, part.input_bounds)
                if some_rows is not None and part.some_rows is not None:
                    some_rows = some_rows.and_some_of(*part.some_rows)
        noise.patterns = patterns
        groups = len(patterns) or max(size[2] for part in parts for size in part.sizes)
        draws = []
        for index, (width, columns, _) in enumerate(first.sizes):
            total = self._empty(first, width, columns, groups, device)
            if sums is not None:
                total = noise.merged(sums.grouped(patterns)[index], total)
            draws.append(total.all_reduce(ranks))
        return FeatureSums(tuple(draws), patterns, some_rows, input_bounds=bounds)

    def _empty(
        self, outline: _Outline, width: int, columns: int, groups: int, device: torch.device
    ) -> SufficientStatistics:
        """Statistics without rows, of the kind and the size that another rank has."""
        grid = self.model.summed_grid if self.model.has_grid else None
        if isinstance(grid, FrequencyGrid):
            return GridStatistics.of_grid(grid, groups, torch.zeros(columns, dtype=torch.float64, device=device))
        return outline.kind(width, columns, groups, *outline.kinds, device=device)

    def states(self) -> list[dict[str, Tensor]]:
        """What the sums depend on, by name, for every draw of random weights."""
        model = self.model
        parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        return [parameters | summed_state(model), *map(summed_state, model.further_draws.begin(model))]

    def settings(self) -> dict[str, str]:
        """What the sums depend on beside tensors, by name."""
        model = self.model
        return {
            "kernel": str(model.covar_module),
            "likelihood": str(model.likelihood),
            "mean": str(model.mean_module),
            "residual": model.residual,
            "num_draws": str(model.num_draws),
            "product_dtype": str(model.product_dtype),
        }

    def saved(self, sums: FeatureSums) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Sums as values for JSON and tensors by name."""
        tensors = {f"{k}.{name}": v for k, draw in enumerate(sums.draws) for name, v in draw.state_dict().items()}
        if sums.some_rows is not None:
            tensors |= {f"some_rows.{name}": value for name, value in sums.some_rows._asdict().items()}
        if sums.input_bounds is not None:
            tensors["input_bounds"] = sums.input_bounds
        return {"patterns": sums.patterns, "num_rows": sums.num_rows}, tensors

    def restored(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FeatureSums:
        """Sums from what :meth:`saved` has made."""
        device = next(self.model.covar_module.parameters()).device
        draws = []
        for k in range(self.model.num_draws):
            state = {name.removeprefix(f"{k}."): v for name, v in tensors.items() if name.startswith(f"{k}.")}
            draws.append(GramStatistics.from_state_dict(state).to(device))
        patterns = tuple(tuple(pattern) for pattern in values["patterns"])
        self.model.noise.patterns = patterns
        x, y = (tensors.get(f"some_rows.{name}") for name in SomeRows._fields)
        some_rows = None if x is None or y is None else SomeRows(x.to(device), y.to(device))
        return FeatureSums(
            tuple(draws), patterns, some_rows, num_rows=values["num_rows"], input_bounds=tensors.get("input_bounds")
        )


@dataclasses.dataclass(frozen=True)
class _Outline:
    """What a rank tells the others of its sums: sizes and kinds, and not the sums."""

    patterns: Patterns
    some_rows: SomeRows | None
    input_bounds: Tensor | None
    sizes: tuple[tuple[int, int, int], ...]
    kinds: tuple[bool, bool]
    kind: type[SufficientStatistics]

    @classmethod
    def of(cls, sums: FeatureSums) -> _Outline:
        first = sums.draws[0]
        sizes = tuple((draw.num_features, len(draw.shift), len(draw.count)) for draw in sums.draws)
        kinds = first.has_complex_features, first.shift.is_complex()
        return cls(sums.patterns, sums.some_rows, sums.input_bounds, sizes, kinds, type(first))


class _SecondPass:
    """Rows that are read once more for gradients, and forgotten batch by batch; ``num_rows``: at the first pass."""

    def __init__(self, model: WeightSpaceGP, sums: FeatureSums, batches: Iterable[Batch], num_rows: int) -> None:
        self.batches, self.num_rows = batches, num_rows
        self.models = [model.unconditioned(model.covar_module), *model.further_draws.begin(model)]
        residual, grid = model.summed_residual, model.summed_grid if model.has_grid else None
        self.draws = [
            SecondPass(one.features, one.noise, total, residual, grid)
            for one, total in zip(self.models, sums.draws, strict=True)
        ]

    def inputs(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """What the sums were made of: the parameters, and tensors that were made of these once for all rows."""
        found = [*parameters, *(tensor for draw in self.draws for tensor in draw.parameters)]
        return list({id(tensor): tensor for tensor in found}.values())

    def gradients(self, of_sums: Sequence[Tensor], _: object, inputs: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of some tensors, batch by batch."""
        total: list[Tensor | None] = [None] * len(inputs)
        count, size = 0, len(of_sums) // len(self.draws)
        of_draws = [of_sums[first : first + size] for first in range(0, len(of_sums), size)]
        for x, y, noise in self.batches:
            if any(isinstance(t, Tensor) and t.requires_grad for t in (x, y, noise)):
                raise ValueError(
                    "expected batches without gradients of their own, got some that require them; pass tensors, "
                    "condition(x, y), for gradients in the data"
                )
            checked = check_rows(self.models[0], x, y, noise)
            for model, draw, of_draw in zip(self.models, self.draws, of_draws, strict=True):
                with torch.enable_grad():
                    rows, dtype = summed_rows(model, x, weighed_rows(model, checked))
                total = added_up(total, draw.gradients(of_draw, x, rows, dtype, inputs))
            count += len(x)
        if count != self.num_rows:
            raise ValueError(
                f"expected the {self.num_rows} rows of the fit once more for its gradient, got {count}; a generator "
                "can be gone through once: pass a list, a DataLoader or a source of rfgp.data, or fit under "
                "torch.no_grad()"
            )
        return total


BLOCK_ROWS = 8192
"""How many rows the blocks of a task have together, about."""


def rows_of_partitions(model: WeightSpaceGP, partitions: Iterable[Partition], executor: Executor) -> list[Batch]:
    """The rows of all partitions, read and checked by the workers; a ValueError where a task raises anything."""
    unfitted = pickled(model.unconditioned(), "the model")
    tasks = ((part.name, (unfitted, pickled(part.batches, part.name))) for part in partitions)
    parts = [pickle.loads(rows) for rows in results(executor, _pickled_rows, tasks)]
    return [part for part in parts if part is not None]


def sums_of_blocks_by(
    executor: Executor, model: WeightSpaceGP, local: LocalRows, product_dtype: torch.dtype, shift: Tensor
) -> SufficientStatistics:
    """The sums over blocks of rows by the workers, whole blocks per task; a ValueError where a task raises anything."""
    unfitted, shift, has_cells = pickled(model.unconditioned(), "the model"), shift.detach(), local.has_cells
    tensors = local.detached().tensors

    def tasks() -> Iterator[tuple[str, tuple[Any, ...]]]:
        first = 0
        for blocks in _groups(local.partition.blocks):
            last = first + len(blocks)
            rows, sizes = torch.cat(blocks).to(local.x.device), [len(block) for block in blocks]
            own = [tensor[rows] for tensor in tensors]
            yield f"blocks {first} to {last}", (unfitted, pickle.dumps((own, sizes, product_dtype, shift, has_cells)))
            first = last

    total = TreeSum[SufficientStatistics](_added)
    for sums in results(executor, _pickled_block_sums, tasks()):
        total.add(pickle.loads(sums))
    return total.value()


def _groups(blocks: list[Tensor]) -> Iterator[list[Tensor]]:
    """Blocks that follow one another, with about :data:`BLOCK_ROWS` rows together."""
    group: list[Tensor] = []
    for block in blocks:
        group.append(block)
        if sum(map(len, group)) >= BLOCK_ROWS:
            yield group
            group = []
    if group:
        yield group


def _added(first: SufficientStatistics, second: SufficientStatistics) -> SufficientStatistics:
    with one_thread(), torch.no_grad():
        return first.merge(second)


def _pickled_rows(model: bytes, parts: bytes) -> bytes:
    """The checked rows of a partition, or None where there are none."""
    found = [batch for batch in batches(pickle.loads(parts), None, None) if len(batch[0])]
    if not found:
        return pickle.dumps(None)
    with torch.no_grad():
        rows = joined(found)
        check_rows(pickle.loads(model), *rows)
    return pickle.dumps(rows)


def _pickled_block_sums(model: bytes, rows: bytes) -> bytes:
    """The sums over some blocks, by one thread."""
    tensors, sizes, product_dtype, shift, has_cells = pickle.loads(rows)
    blocks = torch.arange(sum(sizes)).split(sizes)
    with one_thread(), torch.no_grad():
        systems = pickle.loads(model).systems(has_cells)
        return pickle.dumps(sums_of_blocks(systems, tensors, blocks, product_dtype, shift))


def sums_of_data(
    model: WeightSpaceGP,
    x: Any,
    y: Any,
    noise: Any,
    executor: Executor | None,
    progress: bool | None,
    checkpoint: Any,
    checkpoint_every: int,
) -> tuple[RowSums, list[Batch]]:
    """The sums over all rows, and the rows where the model keeps them; see :meth:`WeightSpaceGP.condition`."""
    has_blocks, keeps_rows = model.block_size is not None, model.keep_data or model.block_size is not None
    checks.no_bar(progress)
    if executor is not None:
        if checkpoint is not None or progress:
            raise ValueError(
                "expected neither checkpoint nor progress beside executor, got one; the engine that runs the tasks "
                "retries and shows them"
            )
        if model.keep_data:
            raise ValueError("expected keep_data=False beside executor, whose workers have the rows; leave it out")
        partitions = Partitions(x, y, noise)
        if has_blocks:
            return _block_sums(model, rows_of_partitions(model, partitions, executor), False, executor)
        return ExecutorReducer(partitions, executor).reduce(FeatureSummation(model)), []
    if isinstance(x, Shard) and keeps_rows:
        raise ValueError(
            "expected a model without block_size and keep_data for the Shard of a rank, got one that keeps the rows, "
            "of which every rank has its own; leave them out, or fit all rows in one process"
        )
    is_several = model.covar_module.has_output_factor and not keeps_rows
    is_imputed = is_several and needs_imputation(model, x, y)
    source = batches(x, imputed(model, x, y, noise) if is_imputed else y, noise)
    file = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every)
    if file is not None and (keeps_rows or not isinstance(source, Batches)):
        raise ValueError(
            "expected batches, and a model without block_size and keep_data, beside checkpoint, got another; make "
            "batches of tensors by rfgp.data.ArraySource(x, y)"
        )
    if has_blocks:
        return _block_sums(model, list(source), isinstance(x, Tensor))
    data = list(source) if model.keep_data else []
    if not isinstance(source, Batches):
        (batch,) = source
        sums = feature_sums(model, check_rows(model, *batch, is_all=True))
        return dataclasses.replace(sums, is_imputed=is_imputed), data
    local = LocalReducer(data or source, progress, file)
    reducer: Reducer = RankReducer(x, local) if isinstance(x, Shard) else local
    return reducer.reduce(FeatureSummation(model)), data


def _block_sums(
    model: WeightSpaceGP, data: list[Batch], is_all: bool, executor: Executor | None = None
) -> tuple[BlockSums, list[Batch]]:
    """The sums over rows in blocks, which are all taken together first."""
    rows = blocks_of(model, data, is_all)
    shift = model.systems(rows.local.has_cells).center(rows.local.columns)
    if executor is None:
        return rows.summed(model, shift), data
    statistics = sums_of_blocks_by(executor, model, rows.local, rows.product_dtype, shift)
    summation, sums = FeatureSummation(model), FeatureSums((statistics,))
    return rows.with_sums(without_gradients(summation, sums).draws[0]), data


def statistics_given(
    model: WeightSpaceGP, statistics: SufficientStatistics | Sequence[SufficientStatistics]
) -> FeatureSums:
    """Copies of statistics from elsewhere as the sums of a model; a ValueError for those of another model."""
    given: list[Any] = list(statistics) if isinstance(statistics, list | tuple) else [statistics]
    if len(given) != model.num_draws or not all(isinstance(sums, SufficientStatistics) for sums in given):
        got = ", ".join(type(sums).__name__ for sums in given)
        raise ValueError(
            f"expected GramStatistics for each of num_draws={model.num_draws}, got {got}; take model.draw_statistics"
        )
    if model.block_size is not None:
        raise ValueError(
            "expected a model without blocks for statistics from elsewhere, got one with them, which needs the "
            "rows; call condition(x, y), or make it without block_size"
        )
    for sums in given:
        check_statistics(sums, model)
    device = next(model.covar_module.parameters()).device
    return FeatureSums(tuple(given), model.patterns).detached().to(device)
