"""What sums and products of kernels with features share."""

from __future__ import annotations

import abc
from collections.abc import Mapping, MutableSet
from typing import Any

from gpytorch import Module
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..family import Family, family
from ..method import Method
from ..random_feature_kernel import RandomFeatureKernel
from ..request import Request


class CompositeKernel(RandomFeatureKernel):
    """Parts in ``kernels``, whose output scales belong to the features."""

    kernels: Any

    @property
    def parts(self) -> list[Any]:
        return list(self.kernels)

    def local_load_samples(self, samples_dict: Mapping[str, Tensor], memo: MutableSet[Prior], prefix: str) -> None:
        Module.local_load_samples(self, samples_dict, memo, prefix)  # the batch is that of the parts

    @abc.abstractmethod
    def _with(self, kernels: list[Kernel]) -> Kernel:
        """The same composition of other parts."""

    def __getitem__(self, index: Any) -> Kernel:
        return self._with([kernel[index] for kernel in self.parts]) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> Kernel:
        return self._with([kernel.expand_batch(*sizes) for kernel in self.parts])


class CompositeFamily(Family):
    """A sum or a product."""

    @property
    def parts(self) -> list[Family]:
        """The families of the parts."""
        return [family(part) for part in self.kernel.kernels]

    @property
    def has_features(self) -> bool:
        return all(part.has_features for part in self.parts)

    @property
    def mixes_methods(self) -> bool:
        return True

    def _applicable(self, input_dim: int) -> tuple[Method, ...]:
        parts = [methods for part in self.parts if (methods := part.applicable(input_dim)) is not None]
        is_open = [not methods or not methods[0].is_exact for methods in parts]
        first, *others = [m for m, open_ended in zip(parts, is_open, strict=True) if open_ended] or parts[:1] or [()]
        return tuple(method for method in first if all(method in other for other in others))

    def has_pairs(self, request: Request) -> bool:
        return request.method is None or not request.method.is_complex

    def truncates(self, method: Method) -> bool:
        return any(part.truncates(method) for part in self.parts)
