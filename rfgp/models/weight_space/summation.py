"""What a pass over rows sums for a weight-space model: its statistics, for every draw of the weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from ..._support.ranks import Ranks
from ...approximation.map_holder import map_holders
from ...data.batches import Batch
from ...inference import GramStatistics
from ...inference.sums.accumulation import SecondPass
from ...inference.sums.grid_statistics import GridStatistics
from ...inference.sums.recomputation import added_up, recomputed
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...linalg.frequency_grid import FrequencyGrid
from ...passes.reducer import Summation
from ..impropriety import SomeRows
from .conditioned import summed_state
from .row_summation import check_rows, running_sums, summed_rows, weighed_rows
from .row_sums import FeatureSums, Patterns, joined_bounds, united

if TYPE_CHECKING:
    from .model import WeightSpaceGP


class FeatureSummation(Summation[FeatureSums]):
    """The statistics of the features of a model, and their gradients."""

    def __init__(self, model: WeightSpaceGP) -> None:
        self.model = model

    @property
    def has_gradients_by_part(self) -> bool:
        kind: type[SufficientStatistics] = self.model.noise.statistics_kind
        return kind is GramStatistics

    @property
    def parameters(self) -> list[Tensor]:
        model, kernel = self.model, self.model.covar_module
        has_all = model.contains_noise
        found = [
            *(kernel.parameters() if has_all or model.residual != "none" else kernel.summed_parameters()),
            *(model.likelihood.parameters() if has_all else model.noise.parameters().values()),
        ]
        return [p for p in {id(p): p for p in found}.values() if p.requires_grad]

    def running(self, batches: Iterable[Batch], before: FeatureSums | None = None) -> Iterator[FeatureSums]:
        return running_sums(self.model, batches, before)

    def merge(self, first: FeatureSums, second: FeatureSums) -> FeatureSums:
        merged = first.merge(second, self.model)
        self.model.noise.patterns = merged.patterns
        return merged

    def tensors(self, sums: FeatureSums) -> list[Tensor]:
        return [value for draw in sums.draws for value in draw.differentiable()]

    def with_tensors(self, sums: FeatureSums, tensors: Sequence[Tensor]) -> FeatureSums:
        size = len(tensors) // len(sums.draws)
        pairs = zip(sums.draws, range(0, len(tensors), size), strict=True)
        draws = (draw.with_differentiable(tensors[first : first + size]) for draw, first in pairs)
        return dataclasses.replace(sums, draws=tuple(draws))

    def gradients(
        self, sums: FeatureSums, batches: Iterable[Batch], num_rows: int, of_sums: Sequence[Tensor]
    ) -> list[Tensor | None]:
        model = self.model
        model.noise.patterns = sums.patterns
        parameters = self.parameters
        with torch.enable_grad():
            second = _SecondPass(model, sums, batches, num_rows)
            tensors = recomputed(of_sums, second.gradients, parameters=second.inputs(parameters))
            return list(torch.autograd.grad(tensors, parameters, of_sums, allow_unused=True))

    @property
    def waits(self) -> bool:
        return any(part.feature_map is None for part in map_holders(self.model.covar_module))

    def prepare(self, batch: Batch | None) -> None:
        if batch is not None:
            x, y, noise = batch
            check_rows(self.model, x, y, noise)
            with torch.no_grad():
                self.model.covar_module.scalar_features(x[:1])
        self.model.further_draws.begin(self.model)

    def make_for(self, input_dim: int) -> None:
        reference = next(self.model.covar_module.parameters())
        x = torch.zeros(1, input_dim, dtype=reference.dtype, device=reference.device)
        with torch.no_grad():
            self.model.covar_module.scalar_features(x)

    def without_rows(self) -> Self:
        twin = type(self)(self.model.unconditioned())
        if self.model.patterns:
            twin.model.noise.patterns = self.model.patterns
        return twin

    def all_reduce(self, sums: FeatureSums | None, ranks: Ranks) -> FeatureSums:
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
        model = self.model
        parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        return [parameters | summed_state(model), *map(summed_state, model.further_draws.begin(model))]

    def settings(self) -> dict[str, str]:
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
        tensors = {f"{k}.{name}": v for k, draw in enumerate(sums.draws) for name, v in draw.state_dict().items()}
        if sums.some_rows is not None:
            tensors |= {f"some_rows.{name}": value for name, value in sums.some_rows._asdict().items()}
        if sums.input_bounds is not None:
            tensors["input_bounds"] = sums.input_bounds
        return {"patterns": sums.patterns, "num_rows": sums.num_rows}, tensors

    def restored(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FeatureSums:
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
