"""What sums and products of kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..family import Family, family
from ..method import FeatureMethod
from ..request import Request


class CompositeFamily(Family):
    """A sum or a product."""

    @property
    def kernels(self) -> list[Family]:
        """The families of the parts before maps are drawn."""
        return [family(part) for part in self.kernel.kernels]

    @property
    def parts(self) -> list[Family]:
        return [family(part, maps) for part, maps in zip(self.kernel.kernels, self.maps, strict=True)]

    def check(self) -> None:
        check_maps(self.kernel, self.maps, torch.nn.ModuleList, len(self.kernels))
        super().check()

    @property
    def has_features(self) -> bool:
        return all(part.has_features for part in self.kernels)

    @property
    def mixes_methods(self) -> bool:
        return True

    def _applicable(self, input_dim: int) -> tuple[FeatureMethod, ...]:
        parts = [methods for part in self.kernels if (methods := part.applicable(input_dim)) is not None]
        is_open = [not methods or not methods[0].is_exact for methods in parts]
        first, *others = [m for m, open_ended in zip(parts, is_open, strict=True) if open_ended] or parts[:1] or [()]
        return tuple(method for method in first if all(method in other for other in others))

    def has_pairs(self, request: Request) -> bool:
        return request.method is None or not request.method.is_complex

    def truncates(self, method: FeatureMethod) -> bool:
        return any(part.truncates(method) for part in self.kernels)

    def active_leaves(self, x: Tensor | None) -> Iterator[tuple[Family, Tensor | None]]:
        for part in self.parts:
            yield from part.leaves(x)


def check_maps(kernel: Kernel, maps: object, kind: type[torch.nn.ModuleList], count: int) -> None:
    """Raise a ValueError for maps that are not those of so many parts of a kernel."""
    if not isinstance(maps, kind) or len(maps) != count:
        found = f"{len(maps)} maps" if isinstance(maps, torch.nn.ModuleList) else f"a {type(maps).__name__}"
        raise ValueError(
            f"expected the maps of {count} parts for {type(kernel).__name__}, got {found}; make the kernel by "
            "rfgp.approximate, or approximate its parts and take rfgp.approximation.with_features"
        )
