"""Output scales that are shared between kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSet
from typing import Any, Self

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.priors import Prior
from torch import Tensor

from .._support.gpytorch_names import batch_shape_of, hide_priors_of, modules_of, set_batch_shape, share_registries
from .randomized import randomized


class SharedScaleKernel(ScaleKernel):
    """A ScaleKernel that shares parameter, constraint and prior of the output scale with another one."""

    counts_priors = True
    """Whether the priors of the output scale count here, and not where another kernel shares it."""

    def __init__(self, base_kernel: Kernel, source: ScaleKernel, batch_shape: torch.Size | None = None) -> None:
        shape = batch_shape_of(source) if batch_shape is None else batch_shape
        Kernel.__init__(self, batch_shape=shape, active_dims=base_kernel.active_dims)
        self.base_kernel = base_kernel
        original = source.original if isinstance(source, SharedScaleKernel) else source
        self._original = (original,)  # in a tuple, since it is no part of this kernel
        share_registries(original, self)

    @property
    def original(self) -> ScaleKernel:
        """The kernel that has the output scale."""
        return self._original[0]

    @property
    def _modules(self) -> dict[str, Any]:
        """The base kernel, and the constraints and priors that the original has now."""
        modules: dict[str, Any] = vars(self)["_modules"]
        if "_original" in vars(self):
            for name, part in modules_of(self._original[0]).items():
                if name != "base_kernel":
                    modules[name] = part
        return modules

    @_modules.setter
    def _modules(self, value: dict[str, Any]) -> None:
        self.__dict__["_modules"] = value

    @property
    def raw_outputscale(self) -> Tensor:
        """The raw output scale of the original."""
        return self._original[0].raw_outputscale

    @property
    def raw_outputscale_constraint(self) -> Interval:
        """The constraint of the original."""
        return self._original[0].raw_outputscale_constraint

    @property
    def outputscale_prior(self) -> Prior:
        """The prior of the original."""
        return self.original.outputscale_prior

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Interval | Prior):
            setattr(self.original, name, value)
        else:
            super().__setattr__(name, value)

    def register_constraint(self, param_name: str, constraint: Interval, replace: bool = True) -> None:
        """Register a constraint on the original, and so on all kernels that share its output scale."""
        self.original.register_constraint(param_name, constraint, replace)

    def register_prior(
        self,
        name: str,
        prior: Prior,
        param_or_closure: str | Callable[..., Any],
        setting_closure: Callable[..., Any] | None = None,
    ) -> None:
        """Register a prior on the original, and so on all kernels that share its output scale."""
        self.original.register_prior(name, prior, param_or_closure, setting_closure)

    def initialize(self, **kwargs: Any) -> Self:
        """Set parameters, those of the output scale on the original."""
        for name, value in kwargs.items():
            if "." in name:
                super().initialize(**{name: value})
            else:
                self.original.initialize(**{name: value})
        return self

    def local_load_samples(self, samples_dict: Mapping[str, Tensor], memo: MutableSet[Prior], prefix: str) -> None:
        if not self.counts_priors:  # the original has its samples
            set_batch_shape(self, batch_shape_of(self.original))
            return
        shape = torch.Size([len(next(iter(samples_dict.values()))), *self.batch_shape])
        self.original.local_load_samples(samples_dict, memo, prefix)
        set_batch_shape(self, shape)

    def to_random_module(self) -> Self:
        return randomized(self)

    @property
    def exact_parts(self) -> list[Any]:
        """The kernels that have the parameters: the original, and a base kernel without features."""
        return [self.original] if hasattr(self.base_kernel, "exact_parts") else [self.original, self.base_kernel]

    def hide_priors(self) -> None:
        """Leave the priors to another kernel with the same output scale."""
        self.counts_priors = False
        hide_priors_of(self)


def with_scale_of(source: ScaleKernel, kernel: Kernel) -> ScaleKernel:
    """A kernel with the very output scale of another one."""
    return SharedScaleKernel(kernel, source, source.raw_outputscale.shape)


def scale_alone(source: ScaleKernel) -> ScaleKernel:
    """The present output scale of a kernel around nothing, which can be indexed and expanded."""
    alone = ScaleKernel(Kernel(), batch_shape=source.raw_outputscale.shape)
    # without active_dims, which GPyTorch would index as if they were batched
    del alone.raw_outputscale  # a snapshot of a kernel has clones in place of parameters
    alone.raw_outputscale = source.raw_outputscale
    alone.raw_outputscale_constraint = source.raw_outputscale_constraint
    return alone
