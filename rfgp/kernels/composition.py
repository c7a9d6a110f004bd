"""Compositions of kernels that keep the structure of their features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from .feature_kernel import FeatureStructure


class FeatureScaleKernel(FeatureStructure, ScaleKernel):
    r"""A scaled kernel whose features are those of its base kernel times the root of the output scale.

    A batch of output scales over one base kernel shares the scalar features.

    :param base_kernel: a kernel with features.
    :param scale_kernel: the GPyTorch kernel whose parameter, constraint and prior are shared.

    >>> import gpytorch, rfgp
    >>> exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.LinearKernel())
    >>> kernel = rfgp.approximate(exact, num_features=2, input_dim=2)
    >>> kernel.raw_outputscale is exact.raw_outputscale
    True
    """

    def __init__(self, base_kernel: Kernel, scale_kernel: ScaleKernel) -> None:
        ScaleKernel.__init__(self, base_kernel, batch_shape=scale_kernel._batch_shape)
        self.active_dims = scale_kernel.active_dims
        share_scale(scale_kernel, self)

    @property
    def exact_kernel(self) -> ScaleKernel:
        """The exact scaled kernel, with the same parameters, constraints and priors."""
        exact = ScaleKernel(self.base_kernel.exact_kernel, batch_shape=self._batch_shape)
        exact.active_dims = self.active_dims
        share_scale(self, exact)
        return exact

    @property
    def is_complex(self) -> bool:
        """Whether the features are complex; the kernel is then their real part."""
        return self.base_kernel.is_complex

    @property
    def draws(self) -> int:
        """How many times the weights have been drawn anew."""
        return self.base_kernel.draws

    def active_features(self, x: Tensor) -> Tensor:
        """The features of the base kernel, (..., N, D)."""
        return self.base_kernel.active_features(x)

    def output_factor(self) -> Tensor:
        """The root of the output scale times the factor of the base kernel, (..., 1, 1)."""
        return self.outputscale.sqrt()[..., None, None] * self.base_kernel.output_factor()

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters of the base kernel's scalar features."""
        return self.base_kernel.feature_parameters()

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new weights in place, and return the kernel."""
        self.base_kernel.resample(generator)
        return self

    def __getitem__(self, index: Any) -> FeatureScaleKernel:
        if not self.batch_shape:
            return self
        return self._with(self.base_kernel[index], ScaleKernel.__getitem__(self._without_dims(), index))

    def expand_batch(self, *sizes: Any) -> FeatureScaleKernel:
        return self._with(self.base_kernel.expand_batch(*sizes), self._without_dims().expand_batch(*sizes))

    def _without_dims(self) -> ScaleKernel:
        """The exact kernel without ``active_dims``, which GPyTorch would index as if they were batched."""
        exact = self.exact_kernel
        exact.active_dims = None
        return exact

    def _with(self, base_kernel: Kernel, scale_kernel: ScaleKernel) -> FeatureScaleKernel:
        scale_kernel.active_dims = self.active_dims
        return FeatureScaleKernel(base_kernel, scale_kernel).train(self.training)


def share_scale(source: ScaleKernel, target: ScaleKernel) -> None:
    """Let ``target`` use the very parameter, constraint and prior of the output scale of ``source``."""
    target.raw_outputscale = source.raw_outputscale
    target.raw_outputscale_constraint = source.raw_outputscale_constraint
    if "outputscale_prior" in source._priors:
        target.register_prior(
            "outputscale_prior", source.outputscale_prior, target._outputscale_param, target._outputscale_closure
        )
