"""Tables in files and data frames, and models of them: how columns become inputs and targets."""

from typing import TYPE_CHECKING

from ..._support import lazy

if TYPE_CHECKING:
    from .model import TableModel
    from .report import Column
    from .scores import Scores
    from .table import Table, read

__all__ = ["Column", "Scores", "Table", "TableModel", "read"]

__getattr__ = lazy.attach(
    __name__,
    {
        "Column": "report",
        "Scores": "scores",
        "Table": "table",
        "TableModel": "model",
        "read": "table",
    },
)
