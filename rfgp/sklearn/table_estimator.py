"""What estimators of a table share: parameters, inputs, and the size of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from .._support import checks
from .._support.data_frames import as_pandas
from ..training.timing import NEVER, Deadline
from .arrays import Floats, validated
from .choice import Parts
from .frames.columns import most_levels
from .frames.donors import Donors, Imputations
from .kernels import kernel_of_levels
from .model_size import DEFAULT_BLOCK_SIZE, USUAL_WIDTH, ModelSize
from .scaling import ColumnScaler
from .table_encoder import TableEncoder, is_table


class TableEstimator(BaseEstimator):
    """The base of the estimators of targets, classes and counts, which hold a model of standardized inputs."""

    kernel: str | Kernel
    num_features: int | str
    method: str
    time_limit: float | None
    random_state: Any
    verbose: bool
    fallback: bool = False
    block_size: int | str | None = None
    num_neighbors: int | str | None = None

    model_: Any
    x_scaler_: ColumnScaler

    encoder_: TableEncoder | None = None
    """What makes numbers of a data frame with text, dates or missing cells; None for numbers."""

    donors_: Donors | None = None
    """Rows of a data frame of numbers, whose cells take the place of those that new rows miss."""

    marks_: tuple[int, ...] = ()
    """The inputs that mark missing cells."""
    number_marks: tuple[int, ...] = ()
    """These, where an encoder of others has made the numbers that are fitted."""

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The log evidence of the training data."""
        check_is_fitted(self)
        with torch.no_grad():
            return float(self.model_.log_marginal_likelihood())

    def _inputs(self, X: ArrayLike) -> tuple[Tensor, Imputations | None]:
        """New inputs (N, d), checked and standardized, and those of rows of a data frame with missing cells."""
        check_is_fitted(self)
        X, missing, options = as_pandas(X), None, dict[str, Any](dtype=np.float64, order="C")
        if self.encoder_ is not None:
            cells, encoding = self.encoder_.cells(X), self.encoder_.encoding_
            validate_data(self, X, reset=False, skip_check_array=True)
            numbers = validated(BaseEstimator(), encoding.inputs(cells), **options)
            missing = encoding.imputations(numbers, cells)
        elif self.donors_ is not None and hasattr(X, "columns"):
            numbers = validated(self, X, reset=False, ensure_all_finite="allow-nan", **options)
            numbers, missing = self.donors_.imputed(numbers)
        else:
            numbers = validated(self, X, reset=False, **options)
        if missing is not None:
            missing = missing._replace(x=torch.stack([self._standardized(x.numpy()) for x in missing.x]))
        return self._standardized(numbers), missing

    def _standardized(self, numbers: Floats) -> Tensor:
        return torch.from_numpy(self.x_scaler_.transform(numbers))

    def _validated(self, X: Any, y: Any, *, is_first: bool, **options: Any) -> Any:
        """What :func:`validated` returns, of the numbers that an encoder makes of a data frame with other cells."""
        X = as_pandas(X)
        encoder = (TableEncoder(most_levels(len(X))) if is_table(X) else None) if is_first else self.encoder_
        if encoder is None:
            checked = validated(self, X, y, reset=is_first, **options)
        else:
            numbers = encoder.fit_transform(X, y) if is_first else encoder.encoding_.inputs(encoder.cells(X))
            validate_data(self, X, reset=is_first, skip_check_array=True)
            checked = validated(BaseEstimator(), numbers, y, **options)
        self.encoder_ = encoder
        if is_first:
            self.marks_ = self.number_marks if encoder is None else tuple(encoder.encoding_.marks.values())
            is_frame = encoder is None and hasattr(X, "columns")
            self.donors_ = (
                Donors.of_complete(checked[0] if isinstance(checked, tuple) else checked) if is_frame else None
            )
        return checked

    def _with_levels(self, kernel: str | Kernel, num_columns: int) -> str | Kernel:
        """The kernel of so many inputs, with random effects where a data frame has text of levels."""
        groups = [] if self.encoder_ is None else self.encoder_.encoding_.levels
        return kernel_of_levels(kernel, num_columns, groups)

    @property
    def _has_levels(self) -> bool:
        """Whether a data frame has text of many values."""
        return self.encoder_ is not None and bool(self.encoder_.encoding_.levels)

    @property
    def _deadline(self) -> Deadline:
        """When a fit that begins now is to have ended; a ValueError for bad flags."""
        for name in ("fallback", "verbose"):
            checks.flag(name, getattr(self, name))
        if self.time_limit is None:
            return NEVER
        return Deadline.after(checks.positive("time_limit", self.time_limit, "choose a number of seconds"))

    @property
    def _method(self) -> str:
        """Landmarks, unless another method is given, or the kernel has exact features."""
        if self.method != "auto":
            return self.method
        return "linear" if isinstance(self.kernel, str) and self.kernel == "linear" else "landmarks"

    @property
    def _usual_width(self) -> int:
        """The number of features that is given, or that models with blocks usually have."""
        if isinstance(self.num_features, str):
            return USUAL_WIDTH
        return checks.positive_integer("num_features", self.num_features)

    def _completed(self, proposed: ModelSize, num_rows: int, parts: Parts) -> ModelSize:
        """A size with what the user has set, and without what the model cannot have."""
        num_features, block_size = proposed.num_features, proposed.block_size
        if self.num_features != "auto":
            num_features = checks.positive_integer("num_features", self.num_features)
            block_size = DEFAULT_BLOCK_SIZE if block_size is None else block_size
        is_landmarks = self._method == "landmarks"
        num_features = min(num_features, num_rows) if is_landmarks else num_features + num_features % 2
        if not (is_landmarks and parts.can_have_blocks(num_features) and num_features < num_rows):
            block_size = None
        if self.block_size is None or isinstance(self.block_size, int):
            block_size = self.block_size
        elif self.block_size != "auto":
            raise ValueError(
                f'expected "auto", None or a number of rows for block_size, got {self.block_size!r}; choose one'
            )
        neighbors = self.num_neighbors
        if isinstance(neighbors, str):
            if neighbors != "auto":
                raise ValueError(f'expected "auto", None or a number for num_neighbors, got {neighbors!r}; choose one')
            neighbors = proposed.num_neighbors
        return ModelSize(num_features, block_size, neighbors)
