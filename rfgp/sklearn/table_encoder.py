"""Data frames as numbers, as a step of pipelines."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from .._support import checks, optional
from .._support.data_frames import as_pandas
from .arrays import Floats, all_or_nothing, check_masks, check_names
from .frames.cells import Cells
from .frames.columns import MOST_CATEGORIES, InputColumn, has_names
from .frames.encoding import Encoding, cells_of, named
from .frames.problems import warn_of_filled, written

if TYPE_CHECKING:
    import pandas


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode columns of any type as numbers, by the rules of ``rfgp fit``.

    It takes data frames of pandas, Polars or PyArrow.

    - Numbers stay as they are, also in text such as "$69.44".
    - Dates become days since 1970, and year, month, day, weekday and hour if these vary.
    - Text with two values becomes one input, and text with a few values one input per value (one-hot). Text with more
      values becomes the mean target of the rows with the same value, and the logarithm of their number; in
      :meth:`fit_transform`, the means are those of other folds. Integers in a column named, for example, "zip" count
      as text.
    - Missing cells get the mean, or the most frequent text, of the ten rows that are nearest in the other columns. If a
      column has ten missing cells or more, one more input marks them.
    - Columns with a single value, or with different text in most rows, are left out.

    :param max_categories: the largest number of values that are encoded one-hot.

    Attributes after ``fit``: ``encoding_`` and ``columns_`` (the rules), ``dropped_`` (the names of columns that are
    left out), ``n_features_in_`` and, for data frames, ``feature_names_in_``.

    :raises ValueError: at ``fit``, for columns that cannot be read, or if no column can be an input; at ``transform``,
        for other columns.
    :raises ImportError: without pandas, which the extra ``study`` installs.

    Source: Micci-Barreca (2001) for means of targets.

    >>> import pandas
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> frame = pandas.DataFrame({"price": ["$1.50", "$2.50", "$4.00"], "size": ["small", "large", None]})
    >>> TableEncoder().fit(frame).get_feature_names_out().tolist()
    ['price', 'size=small']
    >>> make_pipeline(TableEncoder(), Ridge()).fit(frame, [1.0, 2.0, 3.0]).predict(frame[:1]).shape
    (1,)
    """

    encoding_: Encoding
    _has_names: bool

    def __init__(self, max_categories: int = MOST_CATEGORIES) -> None:
        self.max_categories = max_categories

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn the rules from a table (N, p), and for text with many values from targets (N,) or (N, T)."""
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: ArrayLike, y: Any = None) -> Floats:
        """Learn the rules from a table (N, p), and return its encoding (N, d)."""
        with all_or_nothing(self):
            most = checks.positive_integer("max_categories", self.max_categories)
            frame = self._frame(X, is_first=True)
            cells, decimal = cells_of(frame)
            chosen = {name: held for name, held in cells.items() if held.kind != "empty"}
            if len(frame) > 1:
                chosen = {name: held for name, held in chosen.items() if not held.is_constant and not has_names(held)}
            if not chosen:
                raise ValueError(
                    f"expected a column that can be an input, got {', '.join(map(repr, cells))}, which are empty, have "
                    "a single value, or a text of its own for most rows; add another"
                )
            _warn_of_misread(chosen)
            self.encoding_, numbers = Encoding.learned(chosen, *_targets(y), most, decimal=decimal)
            self.dropped_ = [name for name in cells if name not in chosen]
        return numbers

    @property
    def columns_(self) -> tuple[InputColumn, ...]:
        """The rules of the columns."""
        return self.encoding_.columns

    def transform(self, X: ArrayLike) -> Floats:
        """Encode a table with the same columns: (N, d); a warning names columns whose missing cells no input marks."""
        cells = self.cells(X)
        filled = [rule.name for rule in self.columns_ if not (rule.marks_missing or cells[rule.name].is_there.all())]
        if filled:
            warnings.warn(
                f"cells are missing in {', '.join(map(repr, filled))}, where the fit had too few for an input that "
                "marks them: they are filled in, and error bars are those of complete rows; an estimator of "
                "rfgp.sklearn that is fitted to the data frame itself widens them",
                UserWarning,
                stacklevel=2,
            )
        return self.encoding_.inputs(cells)

    def unseen(self, X: ArrayLike) -> list[str]:
        """The categories of each row that did not occur in ``fit``, such as "region=West"; "" if there are none."""
        return self.encoding_.unseen(self.cells(X))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the inputs (d,)."""
        check_is_fitted(self)
        return np.array(self.encoding_.input_names, dtype=object)

    def cells(self, X: ArrayLike) -> dict[str, Cells]:
        """The cells of the columns of a table that are inputs, by name; a warning tells those that cannot be read."""
        check_is_fitted(self)
        cells = self.encoding_.cells(self._frame(X, is_first=False))
        _warn_of_misread(cells)
        return cells

    def _frame(self, X: Any, is_first: bool) -> pandas.DataFrame:
        """A table as a data frame with names of columns."""
        pandas = optional.require("pandas", "pandas", "TableEncoder")
        check_masks(X, "X")
        X = as_pandas(X)
        has_names = isinstance(X, pandas.DataFrame)
        self._has_names = has_names if is_first else self._has_names
        if has_names and not self._has_names:
            raise ValueError("expected an array, as in the fit, got a data frame; pass frame.to_numpy()")
        if not has_names and self._has_names:
            raise ValueError(
                f"expected a data frame with the columns of the fit, got {type(X).__name__}; make a data frame of it, "
                "with their names"
            )
        if not has_names:
            X = pandas.DataFrame(validate_data(self, X, reset=is_first, dtype=None, ensure_all_finite="allow-nan"))
            return X.rename(columns="x{}".format)
        check_names(X)
        validate_data(self, X, reset=is_first, skip_check_array=True)
        if not len(X) or not X.shape[1]:
            raise ValueError(f"expected rows and columns, got a table of shape {X.shape}; check how it was made")
        return named(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def is_table(X: Any) -> bool:
    """Whether inputs are a data frame of pandas with cells that are no numbers, or are missing."""
    if not (hasattr(X, "dtypes") and hasattr(X, "columns") and hasattr(X, "isna")):
        return False
    return not all(getattr(kind, "kind", "O") in "fiu" for kind in X.dtypes) or bool(X.isna().to_numpy().any())


def _warn_of_misread(cells: Mapping[str, Cells]) -> None:
    """Warn of cells such as "high" in a column of numbers, which are not those that a user left empty."""
    warn_of_filled({name: written(held) for name, held in cells.items()})


def _targets(y: Any) -> tuple[NDArray[Any] | None, str]:
    """Targets as an array, and their task."""
    if y is None:
        return None, ""
    values = np.asarray(y)
    is_regression = values.dtype.kind == "f" or type_of_target(values).startswith("continuous")
    return (values.astype(np.float64), "regression") if is_regression else (values, "classification")
