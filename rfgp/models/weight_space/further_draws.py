"""Further draws of the random weights of a model, with statistics of their own."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...approximation.maps import drawn_maps
from ...approximation.shared_weights import random_maps
from ...inference.posterior.draws import FunctionDraws, MixtureDraws
from ..record import Record
from .conditioned import Conditioned, summed_state
from .row_sums import FeatureSums, RowSums

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel
    from .model import WeightSpaceGP


class FurtherDraws(torch.nn.Module):
    """The models of further draws of the random weights, with maps of their own and the parameters of the first."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.maps = torch.nn.ModuleList()
        self.models: tuple[WeightSpaceGP, ...] = ()
        self._loaded: tuple[Conditioned, ...] = ()

    def of(self, first: WeightSpaceGP) -> tuple[WeightSpaceGP, ...]:
        """The fitted models, made of the model of the first draw after a state was loaded."""
        if self._loaded:
            models = tuple(self._unconditioned(first))
            for model, loaded in zip(models, self._loaded, strict=True):
                model.conditioned = loaded
            self.models, self._loaded = models, ()
        return self.models

    def begin(self, first: WeightSpaceGP) -> list[WeightSpaceGP]:
        """Models to be fitted, with the parameters of the first draw as they are; their maps are made where needed."""
        if self.count and not self._fits(first.covar_module):
            self.maps = _drawn_maps(first.covar_module, self.count)
        return list(self._unconditioned(first))

    def set(self, first: WeightSpaceGP, sums: RowSums) -> None:
        """Condition the further draws on sums over the rows of the model of the first."""
        models = tuple(self.begin(first)) if len(sums.draws) > 1 else ()
        for model, statistics in zip(models, sums.draws[1:], strict=True):
            own = FeatureSums((statistics,), sums.patterns, training_rows=sums.training_rows)
            model.conditioned = Conditioned(own, Record(summed_state(model)))
        self.models, self._loaded = models, ()

    @contextmanager
    def kept_on_error(self) -> Iterator[None]:
        """Where anything is raised, go back to the maps and the models that there were."""
        maps, models, loaded = self.maps, self.models, self._loaded
        try:
            yield
        except BaseException:
            self.maps, self.models, self._loaded = maps, models, loaded
            raise

    def restore(self, loaded: tuple[Conditioned, ...]) -> None:
        """Take over what a state has brought for every draw."""
        self.models, self._loaded = (), loaded

    def prepare(self, kernel: FeatureKernel, state: Mapping[str, Tensor], prefix: str) -> None:
        """Make the maps where a state has them, else drop them; a ValueError for another number of draws."""
        start = f"{prefix}maps."
        found = {name.removeprefix(start).partition(".")[0] for name in state if name.startswith(start)}
        if len(found) not in (0, self.count):
            raise ValueError(
                f"expected the state of a model with num_draws={self.count + 1}, got one with {len(found) + 1}; load "
                "it into a model that is made as the saved one was"
            )
        if not found:
            self.maps = torch.nn.ModuleList()
            return
        self.maps = _drawn_maps(kernel, self.count)
        for index, maps in enumerate(self._lists()):
            for place, feature_map in enumerate(maps):
                feature_map.prepare_for(state, f"{start}{index}.{place}.")

    def resample(self, generator: torch.Generator | None) -> None:
        """Draw new weights."""
        for feature_map in itertools.chain(*self._lists()):
            feature_map.resample(generator)

    def _fits(self, kernel: FeatureKernel) -> bool:
        """Whether there are maps of the kinds and sizes that a kernel has now."""
        wanted = [feature_map.description for feature_map in _maps(kernel)]
        return len(self.maps) == self.count and all([m.description for m in maps] == wanted for maps in self._lists())

    def _lists(self) -> list[list[Any]]:
        """The maps of every draw, in the order of the kernel's."""
        draws: Any = self.maps
        return [list(maps) for maps in draws]

    def _unconditioned(self, first: WeightSpaceGP) -> Iterator[WeightSpaceGP]:
        kernel = first.covar_module
        for maps in self._lists():
            own = {id(old): new for old, new in zip(_maps(kernel), maps, strict=True)}
            yield first.unconditioned(_copied(kernel, own))


def check_draws(kernel: FeatureKernel, num_draws: int, has_blocks: bool) -> None:
    """Raise a ValueError where there are no random weights to draw several times."""
    if num_draws == 1:
        return
    if has_blocks:
        raise ValueError(
            f"expected num_draws=1 beside block_size, got {num_draws}; landmarks with blocks are not random, and leave "
            "nothing over that a mixture of draws would show"
        )
    is_made = all(part.feature_map is not None for part in drawn_maps(kernel))
    if is_made and not random_maps(kernel):
        raise ValueError(
            f"expected random features for num_draws={num_draws}, got features that are not random, of which every "
            "draw is the same; use num_draws=1, or a method with random weights"
        )


def functions_of_random_draws(sources: Sequence[Callable[[int], FunctionDraws]], count: int) -> FunctionDraws:
    """Functions, each from a source that is chosen at random; a source takes a number and draws as many."""
    chosen = torch.randint(len(sources), (count,))
    places = [(chosen == index).nonzero().squeeze(-1) for index in range(len(sources))]
    known = [(source(len(own)), own) for source, own in zip(sources, places, strict=True) if len(own)]
    return MixtureDraws([part for part, _ in known], [own for _, own in known])


def _drawn_maps(kernel: FeatureKernel, count: int) -> torch.nn.ModuleList:
    """The maps of so many copies of a kernel, each with weights whose seed follows from those of the kernel."""
    check_draws(kernel, count + 1, has_blocks=False)
    draws = torch.nn.ModuleList()
    for index in range(count):
        generator = torch.Generator().manual_seed(_seed(kernel, index))
        with torch.inference_mode(False):
            draws.append(torch.nn.ModuleList(_maps(_copied(kernel, {}).resample(generator))))
    return draws


def _copied(kernel: FeatureKernel, replaced: dict[int, Any]) -> Any:
    """A copy of a kernel with the same parameters, and with other parts in place of some."""
    return copy.deepcopy(kernel, {id(parameter): parameter for parameter in kernel.parameters()} | replaced)


def _maps(kernel: FeatureKernel) -> list[Any]:
    return [part.made_map() for part in drawn_maps(kernel)]


def _seed(kernel: FeatureKernel, index: int) -> int:
    """A seed that follows from the weights of a kernel, the same in float32 and float64."""
    digest = hashlib.blake2b(str(index).encode(), digest_size=7)
    for feature_map in random_maps(kernel):
        for buffer in feature_map.buffers():
            values = torch.view_as_real(buffer) if buffer.is_complex() else buffer
            values = values.float() if values.is_floating_point() else values
            digest.update(values.detach().cpu().contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "big")
