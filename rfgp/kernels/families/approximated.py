"""Kernels that are approximated already, as parts of another kernel."""

from __future__ import annotations

from typing import Any

from ..family import Family, approximates
from ..random_feature_kernel import RandomFeatureKernel
from ..request import Request


@approximates(RandomFeatureKernel)
class ApproximatedFamily(Family):
    """A kernel with features, which stays as it is."""

    kernel: RandomFeatureKernel

    def approximate(self, request: Request) -> Any:
        return self.kernel

    def with_landmarks(self, request: Request) -> Any:
        return self.kernel

    @property
    def is_scalar(self) -> bool:
        return not self.kernel.has_output_factor

    @property
    def is_approximated(self) -> bool:
        return True

    @property
    def has_features(self) -> bool:
        return True

    def with_features(self) -> Any:
        return self.kernel
