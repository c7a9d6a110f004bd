"""Kernels with features that have the parameters, priors and constraints of an exact kernel as their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableSet
from typing import Any, Self

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.module import Module, RandomModuleMixin
from gpytorch.priors import Prior
from torch import Tensor

from .._support.gpytorch_names import hide_priors_of, own_names, show_registries
from .shared_priors import without_priors


class ExactParameters(Kernel):
    """A kernel around an exact one, whose parameters, priors and constraints it lists under their names there."""

    counts_priors = True
    """Whether the priors count here, and not where another kernel shares the exact one."""

    base_kernel: Kernel

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            base_kernel = vars(self).get("_modules", {}).get("base_kernel")
            if base_kernel is None or name.startswith("__"):
                raise
        return getattr(base_kernel, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_inside(name):
            setattr(self.base_kernel, name, value)
            return
        super().__setattr__(name, value)
        if name == "base_kernel":
            self.ard_num_dims = value.ard_num_dims
            show_registries(value, self)

    def _is_inside(self, name: str) -> bool:
        """Whether a name is that of an attribute of the exact kernel, and not one of this kernel itself."""
        base_kernel = vars(self).get("_modules", {}).get("base_kernel")
        is_own = name in vars(self) or hasattr(type(self), name) or name in own_names(self)
        return base_kernel is not None and not is_own and hasattr(base_kernel, name)

    @property
    def has_lengthscale(self) -> bool:
        """Whether the exact kernel has one."""
        return "base_kernel" in own_names(self) and self.base_kernel.has_lengthscale

    @property
    def lengthscale(self) -> Tensor:
        """The lengthscale of the exact kernel."""
        return self.base_kernel.lengthscale

    @lengthscale.setter
    def lengthscale(self, value: Tensor | float) -> None:
        self.base_kernel.lengthscale = value

    def _set_lengthscale(self, value: Tensor | float) -> None:
        self.base_kernel.lengthscale = value

    @property
    def is_stationary(self) -> bool:
        """False: features of a stationary kernel need not have a stationary product."""
        return False

    def initialize(self, **kwargs: Any) -> Self:
        """Set parameters by name, those of the exact kernel there."""
        for name, value in kwargs.items():
            if name.partition(".")[0] not in own_names(self):
                self.base_kernel.initialize(**{name: value})
            elif isinstance(self.base_kernel, RandomModuleMixin):
                RandomModuleMixin.initialize(self, **{name: value})
            else:
                super().initialize(**{name: value})
        return self

    def register_constraint(self, param_name: str, constraint: Interval, replace: bool = True) -> None:
        """Register a constraint, for a parameter of the exact kernel there."""
        if param_name in own_names(self):
            super().register_constraint(param_name, constraint, replace)
        else:
            self.base_kernel.register_constraint(param_name, constraint, replace)

    def register_prior(
        self,
        name: str,
        prior: Prior,
        param_or_closure: str | Callable[..., Any],
        setting_closure: Callable[..., Any] | None = None,
    ) -> None:
        """Register a prior, for a parameter of the exact kernel there."""
        if isinstance(param_or_closure, str) and param_or_closure in own_names(self):
            super().register_prior(name, prior, param_or_closure, setting_closure)
        else:
            self.base_kernel.register_prior(name, prior, param_or_closure, setting_closure)

    def named_children(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """The parts by name, with those of the exact kernel in its place: GPyTorch looks for priors in them."""
        for name, part in super().named_children():
            if name != "base_kernel":
                yield name, part
            elif self.counts_priors:
                yield from part.named_children()

    def children(self) -> Iterator[torch.nn.Module]:
        """The parts, of which the exact kernel is one."""
        return (part for _, part in super().named_children())

    def local_load_samples(self, samples_dict: Mapping[str, Tensor], memo: MutableSet[Prior], prefix: str) -> None:
        if self.counts_priors:
            self.base_kernel.local_load_samples(samples_dict, memo, prefix)
        Module.local_load_samples(self, samples_dict, memo, prefix)

    @property
    def exact_kernel(self) -> Kernel:
        """The exact kernel; a copy with the very parameters where its priors count elsewhere."""
        return self.base_kernel if self.counts_priors else without_priors(self.base_kernel)

    @property
    def exact_parts(self) -> list[Any]:
        """The exact kernel, which has the parameters."""
        return [self.base_kernel]

    def hide_priors(self) -> None:
        """Leave the priors to another kernel around the same exact one."""
        self.counts_priors = False
        hide_priors_of(self)
