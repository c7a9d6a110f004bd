"""Kernels around one other kernel, which answers for them."""

from __future__ import annotations

import abc
from typing import Any

from ..family import Family
from ..method import Method
from ..request import Request


class WrapperFamily(Family):
    """A kernel around another one, whose features it takes over."""

    @property
    @abc.abstractmethod
    def inner(self) -> Family:
        """The family of the kernel inside."""

    @abc.abstractmethod
    def around(self, kernel: Any) -> Any:
        """The kernel with features around one with features."""

    def approximate(self, request: Request) -> Any:
        return self.around(self.inner.approximate(self.inside(request)))

    def with_landmarks(self, request: Request) -> Any:
        return self.around(self.inner.with_landmarks(self.inside(request)))

    def on_grid(self, request: Request) -> Any:
        return self.around(self.inner.on_grid(self.inside(request)))

    def with_features(self) -> Any:
        return self.around(self.inner.with_features())

    def inside(self, request: Request) -> Request:
        """The request for the kernel inside."""
        return request.select(self.kernel)

    @property
    def has_features(self) -> bool:
        return self.inner.has_features

    @property
    def mixes_methods(self) -> bool:
        return self.inner.mixes_methods

    def _applicable(self, input_dim: int) -> tuple[Method, ...] | None:
        return self.inner.applicable(input_dim)

    def exact_columns(self, request: Request) -> int | None:
        return self.inner.exact_columns(self.inside(request))

    def has_pairs(self, request: Request) -> bool:
        return self.inner.has_pairs(self.inside(request))

    def truncates(self, method: Method) -> bool:
        return self.inner.truncates(method)
