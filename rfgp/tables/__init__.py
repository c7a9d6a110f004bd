"""Tables in files and data frames: what their columns are, and how they become inputs and targets."""

from typing import TYPE_CHECKING

from .. import _lazy

if TYPE_CHECKING:
    from .encoding import Encoding, InputColumn
    from .model import TableModel
    from .report import Column
    from .scores import Scores
    from .table import Table, read

__all__ = ["Column", "Encoding", "InputColumn", "Scores", "Table", "TableModel", "read"]

__getattr__ = _lazy.attach(
    __name__,
    {
        "Column": "report",
        "Encoding": "encoding",
        "InputColumn": "encoding",
        "Scores": "scores",
        "Table": "table",
        "TableModel": "model",
        "read": "table",
    },
)
