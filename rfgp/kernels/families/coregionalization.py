"""The linear model of coregionalization."""

from __future__ import annotations

from gpytorch.kernels import LCMKernel

from ..family import Family, approximates, family
from .shared_measure import AdditiveFamily


@approximates(LCMKernel)
class LCMFamily(AdditiveFamily):
    """LCMKernel, which is a sum of MultitaskKernels."""

    kernel: LCMKernel

    @property
    def parts(self) -> list[Family]:
        return [family(part) for part in self.kernel.covar_module_list]

    @property
    def is_scalar(self) -> bool:
        return False
