"""Tables in files and data frames: what their columns are, and how they become inputs and targets."""

from .encoding import Encoding, InputColumn
from .model import TableModel
from .report import Column
from .scores import Scores
from .table import Table, read

__all__ = ["Column", "Encoding", "InputColumn", "Scores", "Table", "TableModel", "read"]
