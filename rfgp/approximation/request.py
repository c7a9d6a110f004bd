"""The arguments of an approximation: of the whole kernel at first, then of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from gpytorch.kernels import Kernel
from torch import Tensor

from ..features import FeatureMap
from .method import FeatureMethod


@dataclass(frozen=True)
class Request:
    """The features to be made for a kernel, or for a part of one.

    ``like`` has the dtype and device of weights of parts without parameters; ``choose`` names the method for a kernel,
    a number of features and inputs, where neither ``method`` nor ``feature_map`` is given.
    """

    num_features: int
    input_dim: int | None
    x: Tensor | None
    like: Tensor
    seeds: Iterator[int] = field(repr=False)
    choose: Callable[[Kernel, int, Tensor], str] = field(repr=False)
    is_open_ended: bool = False
    """Whether a method that can tell how many features it needs has as many."""
    method: FeatureMethod | None = None
    feature_map: FeatureMap | None = None

    def select(self, kernel: Kernel) -> Request:
        """The same request for the inputs that ``active_dims`` select; a ValueError where there are fewer columns."""
        if kernel.active_dims is None:
            return self
        dims = kernel.active_dims
        if self.input_dim is not None and int(dims.max()) >= self.input_dim:
            raise ValueError(
                f"expected active_dims below input_dim={self.input_dim}, got {int(dims.max())}; correct one of the two"
            )
        x = None if self.x is None else self.x.index_select(-1, dims)
        return replace(self, input_dim=dims.numel(), x=x)

    def check_no_map(self, kernel: Kernel) -> None:
        """Raise a ValueError where one ready map is to serve all parts of a sum or product."""
        if self.feature_map is not None:
            raise ValueError(
                f"expected the name of a method for {type(kernel).__name__}, whose parts need features of their own, "
                f"got a {type(self.feature_map).__name__}; approximate the parts one by one"
            )
