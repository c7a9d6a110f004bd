"""What a model was before something that may fail."""

from __future__ import annotations

from typing import Any

import torch

_MODULE_TABLES = ("_parameters", "_buffers", "_modules")


class Values:
    """The values of the parameters of a model, to be restored."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._values = [(p, p.detach().clone()) for p in model.parameters()]

    @torch.no_grad()
    def restore(self) -> None:
        """Put them back."""
        for parameter, value in self._values:
            parameter.copy_(value)
            parameter.grad = None


class Rollback:
    """Parameters, buffers, training data and caches of a model, to be restored after a failure."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._values = Values(model)
        self._modules = [(module, dict(vars(module)), _tables(module)) for module in model.modules()]
        self._lists = [
            (v, list(v)) for _, attributes, _ in self._modules for v in attributes.values() if isinstance(v, list)
        ]

    def restore(self) -> None:
        """Put everything back."""
        self._values.restore()
        for module, attributes, tables in self._modules:
            vars(module).clear()
            vars(module).update(attributes)
            for name, table in zip(_MODULE_TABLES, tables, strict=True):
                vars(module)[name].clear()
                vars(module)[name].update(table)
        for entries, values in self._lists:
            entries[:] = values


def _tables(module: torch.nn.Module) -> list[dict[str, Any]]:
    return [dict(vars(module)[name]) for name in _MODULE_TABLES]
