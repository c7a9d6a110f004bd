"""A table in, a model of its target out: predictions in the units of the table, and one file that holds them all."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.distributions import Normal

from ..._support import checks, optional
from ..._support.data_frames import Missing
from ...averaging import AveragedGP, AveragedGPClassifier, Mixture
from ...likelihoods.count_predictive import CountPredictive
from ...likelihoods.counts import checked_exposure
from ...linalg.column_scales import standardized
from ...models import LaplaceGP, WeightSpaceGP
from ...saving import load, save
from ...sklearn.comparison import without_advice
from ...sklearn.frames.columns import FEWEST_LEVELS, most_levels
from ...sklearn.frames.donors import Imputations
from ...sklearn.frames.encoding import Encoding
from ...sklearn.frames.problems import warn_of_filled
from ...sklearn.phases import phases
from ...training.costs import slowness
from ...training.timing import Deadline
from ..datasets import Dataset
from ..datasets.base import TEST_SHARE, Task
from .choices import Trials, num_tried
from .exposure import exposures
from .files import LearnedLayout, Reading, open_table
from .predictive import class_probabilities, imputed, predictive, widened
from .scores import Scores
from .spread import Spread, learned_spreads, rows_of_spreads
from .table import Table
from .target_transform import TargetTransform, TransformedNormal, Untransformed, transformed

if TYPE_CHECKING:
    import pandas

    from ...inference.local import SharedRows
    from ...sklearn.near_predictions import OwnLabels, OwnRows

_PHASES = ("target", "inputs", "parameters", "noise", "comparison", "all rows")
_SHARE_OF_TRIALS, _SHARE_OF_FIT = 0.25, 0.7
"""The shares of a time limit for small fits that choose, and of what is left for the fit."""
_TIMES_BOOSTED, _SECONDS_OF_TRANSFORM, _SECONDS_OF_SPREAD, _SPREAD_ROWS = 2, 25.0, 4e-3, 2000
"""How often a target is boosted, and the seconds that the choice of a transform takes, and noise by the inputs for each
of so many rows, where they were measured: on one core of an AMD EPYC."""
_MOST_TESTED = 10_000
"""Rows that are held out at most: they tell coverage to .2 %, and what they cost grows with the model."""


class TableModel(torch.nn.Module):
    """A Gaussian process of the target of a table, with all that predictions from another table need.

    It is made by :meth:`fit` and :meth:`load`, which ``rfgp fit`` and ``rfgp predict`` call.

    :param model: the fitted model, of standardized inputs and targets: an average for few rows, see :meth:`fit`.
    :param encoding: makes inputs of a table.
    :param learned: how the first table was read.
    :param task: "regression", "classification" or "counts".
    :param target_names: the names of the targets.
    :param class_names: the names of the classes.
    :param scales: those of the inputs, see :func:`rfgp.linalg.column_scales.standardized`, and the means and scales of
        the targets (2, T), zero and the rate of all rows for counts, or None for classes.
    :param scores: how well held-out rows were predicted.
    :param fit_seconds: how long the fit took.
    :param transforms: of the targets, before they are standardized; empty for none.
    :param spreads: factors of the standard deviations of targets that depend on the inputs; None for ones.
    :param near: the training rows near new ones where these predict; ``model`` then has parameters and no rows.

    >>> import numpy, pandas, rfgp
    >>> x = numpy.linspace(0.0, 6.0, 60)
    >>> frame = pandas.DataFrame({"hour": x, "kind": ["a", "b"] * 30, "tide": 3.0 + numpy.sin(x)})
    >>> model = TableModel.fit(rfgp.study.tables.read(frame, target="tide"))
    >>> model.predict(frame[["kind", "hour"]][:2]).columns.tolist()
    ['tide', 'tide_sd', 'tide_lower', 'tide_upper', 'unseen']
    """

    x_scales: Tensor
    y_scales: Tensor | None
    transforms: tuple[TargetTransform, ...] = ()
    near: SharedRows | OwnRows | OwnLabels | None = None
    temperature: float = 1.0
    """By what the logarithms of probabilities are divided."""
    gap_noise: float = 1.0
    """The noise variance of rows with marked missing cells, in that of complete ones."""

    def __init__(
        self,
        model: WeightSpaceGP | LaplaceGP | AveragedGP | AveragedGPClassifier,
        encoding: Encoding,
        learned: LearnedLayout,
        task: Task,
        target_names: tuple[str, ...],
        class_names: tuple[str, ...],
        scales: tuple[Tensor, Tensor | None],
        scores: Scores,
        fit_seconds: float,
        transforms: tuple[TargetTransform, ...] = (),
        spreads: Sequence[Spread | None] = (),
        near: SharedRows | OwnRows | OwnLabels | None = None,
    ) -> None:
        super().__init__()
        self.near = near
        self.model, self.encoding, self.learned, self.task = model, encoding, learned, task
        self.target_names, self.class_names = target_names, class_names
        self.scores, self.fit_seconds, self.transforms = scores, fit_seconds, transforms
        self.spreads = torch.nn.ModuleDict({str(place): one for place, one in enumerate(spreads) if one is not None})
        self.register_buffer("x_scales", scales[0])
        self.register_buffer("y_scales", scales[1])

    @classmethod
    def fit(
        cls,
        table: Table,
        *,
        kernel: str | Kernel = "auto",
        num_features: int | str = "auto",
        time_limit: float | None = None,
        test_share: float = TEST_SHARE,
        seed: int = 0,
        verbose: bool = False,
    ) -> Self:
        """Learn from a table: most rows choose the parameters, held-out ones measure, and all are in the model.

        Few rows are averaged over parameters and over scales of the inputs and the targets, where the estimators of
        :mod:`rfgp.sklearn` do so by default: by :class:`rfgp.averaging.AveragedGP`, or
        :class:`rfgp.averaging.AveragedGPClassifier`. For other tables, and with parameters of one model, three choices
        are made by the densities of rows that are not learned from. Of a skewed target a logarithm, a square root or a
        function of Yeo and Johnson is learned; means, deviations and intervals are in the units of the table. Text of
        more than ten values has a kernel on levels, or the means of the target in other rows. And there is a choice of
        kernels, see ``kernel``. For all tables standard deviations may depend on the inputs.

        Counts are learned by :class:`rfgp.sklearn.RandomFeatureGPCountRegressor`, with random effects for text of more
        than ten values, and none of these choices.

        :param table: a table with a target, of :func:`rfgp.study.tables.read`.
        :param kernel: see :class:`rfgp.sklearn.RandomFeatureGPRegressor`, and so the next two.
        :param num_features: the number of features.
        :param time_limit: seconds for the training, about; default: no limit.
        :param test_share: the share of the rows that is held out, between 0 and 1: at most 10,000 rows.
        :param seed: the seed of the rows that are held out, and of the features.
        :param verbose: whether a bar shows the stages.
        :raises ValueError: for bad parameters, a table without a target, too few rows, or equal names of columns.
        :raises ImportError: without scikit-learn.
        """
        began, test_share = time.perf_counter(), _checked_share(table, test_share)
        deadline = _deadline(time_limit)
        trials = Trials(deadline.share(_SHARE_OF_TRIALS))
        with phases(_PHASES, verbose) as bar:
            if table.task == "counts":
                made = cls._of_counts(table, kernel, num_features, deadline, test_share, seed, bar)
                made.fit_seconds = time.perf_counter() - began
                return made
            bar.begin("target")
            data = table.split(test_share, seed)
            averages = _averages(_estimator(data, kernel, num_features, time_limit, seed), table, data)
            transforms: tuple[TargetTransform, ...] = ()
            if not averages and not data.num_classes:
                every = torch.cat([data.y_train, data.y_test])
                transforms = trials.transforms(data.x_train, data.y_train, kernel, every)
            bar.begin("inputs")
            if not averages:
                first = transforms[0] if transforms else Untransformed()
                table, kernel = trials.inputs(table, kernel, first, test_share, seed)
                data = table.split(test_share, seed)
            bar.begin("parameters")
            limit = deadline.share(_SHARE_OF_FIT).limit
            estimator = _estimator(data, kernel, num_features, limit, seed).set_params(average=averages)
            estimator.number_marks = tuple(table.encoding.marks.values())
            y_train = transformed(data.y_train, transforms)
            later = rows_of_spreads(0 if data.num_classes or averages else len(data.x_train), seed)
            first_rows = torch.ones(len(y_train), dtype=torch.bool).index_fill_(0, later, False)
            _learn(estimator, data.x_train[first_rows], y_train[first_rows], data.num_classes)
            bar.begin("noise")
            of_levels = {column for group in table.encoding.levels for column in group}
            of_levels |= set(table.encoding.marks.values())
            columns = tuple(column for column in range(data.x_train.shape[1]) if column not in of_levels)
            spreads: list[Spread | None] = []
            if not data.num_classes:
                rows = later if len(later) else slice(None)
                unseen = data.x_train[rows], y_train[rows]
                is_whole = (unseen[0][:, list(table.encoding.marks.values())] == 0.0).all(-1)
                spreads = learned_spreads(estimator, *unseen, columns, deadline, seed, bool(len(later)), is_whole)
            scales = estimator.x_scaler_.scales, None if data.num_classes else estimator.y_scaler_.scales
            made = cls(
                estimator.learned_,
                table.encoding,
                table.learned,
                data.task,
                table.target_names,
                table.class_names,
                scales,
                Scores.none(),
                0.0,
                transforms,
                spreads,
                estimator.near_,
            )
            made.temperature = getattr(estimator, "temperature_", 1.0)
            made.gap_noise = getattr(estimator, "gap_noise_", 1.0)
            bar.begin("comparison")
            found = made.distribution(data.x_test, missing=table.missing_of_test(test_share, seed))
            made.scores = Scores.of(data, found, _plain(table, test_share, seed))
            bar.begin("all rows")
            y_test = transformed(data.y_test, transforms)
            x_more, y_more = torch.cat([data.x_train[later], data.x_test]), torch.cat([y_train[later], y_test])
            estimator.partial_fit(x_more.numpy(), y_more.numpy())
            made.model, made.near = estimator.learned_, estimator.near_
        made.fit_seconds = time.perf_counter() - began
        return made

    @classmethod
    def _of_counts(
        cls,
        table: Table,
        kernel: str | Kernel,
        num_features: int | str,
        deadline: Deadline,
        test_share: float,
        seed: int,
        bar: Any,
    ) -> Self:
        """A model of counts: training rows teach its parameters, and all are in it."""
        from ...sklearn import RandomFeatureGPCountRegressor
        from ...sklearn.counts import levels_kernel

        bar.begin("parameters")
        table = table.with_categories(most_levels(len(table.x)))
        data = table.split(test_share, seed)
        kernel = levels_kernel(kernel, table.x.shape[1], table.encoding.levels)
        settings: dict[str, Any] = {"time_limit": deadline.limit, "random_state": seed}
        estimator = RandomFeatureGPCountRegressor(kernel, num_features=num_features, **settings)
        exposed = cast("Tensor", data.exposure_train), cast("Tensor", data.exposure_test)
        estimator.fit(data.x_train.numpy(), data.y_train.numpy(), exposure=exposed[0].numpy())
        scales = estimator.x_scaler_.scales, torch.tensor([[0.0], [estimator.rate_]], dtype=torch.float64)
        names = table.target_names, table.class_names
        made = cls(estimator.model_, table.encoding, table.learned, data.task, *names, scales, Scores.none(), 0.0)
        bar.begin("comparison")
        predicted = made.distribution(data.x_test, exposed[1], table.missing_of_test(test_share, seed))
        made.scores = Scores.of(data, predicted, _plain(table, test_share, seed))
        bar.begin("all rows")
        parts = (data.x_train, data.x_test), (data.y_train, data.y_test), exposed
        x, y, exposure = map(torch.cat, parts)
        with torch.no_grad():
            rows = standardized(x, made.x_scales), y
            estimator.model_.condition(*rows, exposure=exposure * estimator.rate_, start=estimator.model_.mode)
        return made

    @classmethod
    def estimated_seconds(
        cls,
        table: Table,
        *,
        kernel: str | Kernel = "auto",
        num_features: int | str = "auto",
        time_limit: float | None = None,
        test_share: float = TEST_SHARE,
        seed: int = 0,
    ) -> float:
        """About how long :meth:`fit` takes on this machine, without a fit; arguments and errors are those of it.

        See :meth:`rfgp.sklearn.RandomFeatureGPRegressor.estimated_seconds`. Other models, to which this one is
        compared, and error bars that depend on the inputs take time too, also after the time limit.

        >>> import numpy, pandas, rfgp
        >>> frame = pandas.DataFrame({"hour": numpy.arange(60.0), "tide": numpy.sin(numpy.arange(60.0))})
        >>> TableModel.estimated_seconds(rfgp.study.tables.read(frame, target="tide")) > 0.0
        True
        """
        from ...sklearn.fit_seconds import count_seconds

        test_share = _checked_share(table, test_share)
        data, deadline = table.split(test_share, seed), _deadline(time_limit)
        if table.task == "counts":
            return min(count_seconds(len(table.x)), deadline.left) + _seconds_of_others(table.x, data.y_train, 2)
        estimator = _estimator(data, kernel, num_features, time_limit, seed)
        averages = _averages(estimator, table, data)
        x, y = torch.cat([data.x_train, data.x_test]), torch.cat([data.y_train, data.y_test])
        seconds = float(estimator.set_params(average=averages).estimated_seconds(x.numpy(), y.numpy()))
        if not averages and not data.num_classes:
            seconds += slowness() * _SECONDS_OF_TRANSFORM * num_tried(y)
        return min(seconds, deadline.left) + _seconds_of_others(x, y, data.num_classes)

    def report(self) -> str:
        """The scores of held-out rows, in plain text."""
        lines = [self.scores.table(self.target_names)]
        for column in self.encoding.columns:
            if column.codes:
                lines.append(f"note: {column.name} has the means of the target in rows with the same value")
        for group in self.encoding.levels:
            name = self.encoding.input_names[group[0]].partition("=")[0]
            lines.append(f"note: {name} has a random effect for each of its {len(group)} values")
        if isinstance(self.model, AveragedGP | AveragedGPClassifier):
            lines.append(
                "note: averaged over parameters and scales; all rows predict, and are in the file of the model"
            )
        for place in self.spreads:
            lines.append(f"note: the noise of {self.target_names[int(place)]} depends on the inputs")
        for name, transform in zip(self.target_names, self.transforms, strict=False):
            if transform.kind != "none":
                lines.append(f"note: {transform.kind} of {name}, which predicts held-out rows better")
        return "\n".join(lines)

    @torch.no_grad()
    def distribution(
        self, x: Tensor, exposure: Tensor | None = None, missing: Imputations | None = None
    ) -> Normal | TransformedNormal | Mixture | CountPredictive | Tensor:
        """Predictions at encoded inputs (N, d), in the units of the table.

        :param exposure: of counts, (N,), positive; default: ones.
        :param missing: inputs of rows with missing cells: moments, and probabilities of classes where no input marks
            what is missing, are pooled over what may be in them; default: none.
        :returns: independent distributions (N,) or (N, T) of new observations, mixtures for an average, else normal
            ones where targets have no transform; or probabilities of classes (N, C).
        """
        if self.y_scales is None:
            probabilities = self._class_probabilities(x)
            if missing is not None and (unmarked := missing.unmarked) is not None:
                probabilities[unmarked.rows] = torch.stack([self._class_probabilities(x) for x in unmarked.x]).mean(0)
            return probabilities
        if self.task == "counts":
            from ...sklearn.counts import count_predictive

            (_, scale), rows = self.y_scales, standardized(x, self.x_scales)
            exposed = scale.expand(len(x)) if exposure is None else scale * checked_exposure(exposure)
            if missing is not None:
                missing = missing._replace(x=torch.stack([standardized(x, self.x_scales) for x in missing.x]))
            return count_predictive(self.model, rows, exposed, missing)
        found = self._transformed(x)
        if missing is not None:
            found = imputed(found, missing, [self._transformed(complete) for complete in missing.x])
        return TransformedNormal(found, self.transforms) if self.transforms else found

    def _transformed(self, x: Tensor) -> Any:
        """Distributions of transformed targets at encoded inputs (N, d)."""
        center, scale = cast("Tensor", self.y_scales)
        has_gaps = (x[:, list(self.encoding.marks.values())] > 0.0).any(-1)
        of_noise = torch.where(has_gaps, self.gap_noise, 1.0).double().unsqueeze(-1)
        found = predictive(self.model, standardized(x, self.x_scales), center, scale, of_noise, self.near)
        return widened(found, self._spread(x, found.mean)) if self.spreads else found

    def _spread(self, x: Tensor, mean: Tensor) -> Tensor:
        """The factors of standard deviations that depend on the inputs, of the shape of the means."""
        means = mean.reshape(len(x), -1)
        factor = torch.ones_like(means)
        for place, spread in self.spreads.items():
            factor[:, int(place)] = spread(x, means[:, int(place)])
        return factor.reshape(mean.shape)

    def _class_probabilities(self, x: Tensor) -> Tensor:
        """Those of classes (N, C) at encoded inputs (N, d)."""
        near = cast("OwnLabels | None", self.near)
        return class_probabilities(self.model, standardized(x, self.x_scales), self.temperature, near)

    def predict(
        self,
        source: Any,
        *,
        level: float = 0.95,
        missing: Missing | None = None,
        separator: str | None = None,
        decimal: str | None = None,
        header: bool | None = None,
        sheet: str | int | None = None,
    ) -> pandas.DataFrame:
        """Predictions for the rows of a table with the same columns of inputs.

        :param source: a path or a data frame, see :func:`rfgp.study.tables.read`.
        :param level: the probability that a new observation is in its interval.
        :param missing: "raise", "drop" (empty predictions) or "impute"; default: as in the table that was learned from.
        :returns: for every row its identifier, if known, and means, standard deviations and ends of intervals, or
            classes and probabilities. Of tables with categories, "unseen" has those that the first table did not.
        :raises ValueError: for columns that are not there, such as the exposures of counts where the first table had
            them, for exposures that are not positive, and cells that are not as they were.

        A warning tells how many cells were filled in. Predictions for a row with missing cells are pooled by Rubin's
        rules over those with the cells of the ten rows of the first table that are nearest in the other columns: its
        interval is wider by what may be missing.
        """
        pandas = optional.require("pandas", "pandas", "tables")
        checks.share("level", level)
        raw = open_table(source, Reading(separator, decimal, header, sheet), self.learned)
        cells = self.encoding.cells(raw.frame, decimal=decimal)
        x = torch.from_numpy(self.encoding.inputs(cells, missing))
        if not x.isnan().any():
            warn_of_filled(cells)
        is_whole, exposure = ~x.isnan().any(-1), None
        if (rule := self.learned.exposure) is not None:
            has_all = (self.encoding.missing if missing is None else missing) == "raise"
            exposure = exposures(rule, rule.cells(raw.frame, decimal=decimal), has_all)
            is_whole &= ~exposure.isnan()
            exposure = exposure[is_whole]
        places, columns = is_whole.nonzero().squeeze(-1), dict[str, Any]()
        if len(places):
            taken = {name: held.taken(places.numpy()) for name, held in cells.items()}
            missing_cells = self.encoding.imputations(x[is_whole].numpy(), taken)
            columns = self._columns(x[is_whole], level, exposure, missing_cells)
        predictions = pandas.DataFrame(columns, index=places.numpy()).reindex(range(len(x)))
        if self.encoding.categorical:
            predictions["unseen"] = self.encoding.unseen(cells)
        if (index := self.learned.index) in raw.frame.columns:
            predictions.insert(0, index, raw.frame[index], allow_duplicates=True)
        return predictions.set_index(source.index) if isinstance(source, pandas.DataFrame) else predictions

    def _columns(self, x: Tensor, level: float, exposure: Tensor | None, missing: Imputations | None) -> dict[str, Any]:
        """The columns of predictions by name."""
        predicted = self.distribution(x, exposure, missing)
        names = _prediction_names(self.target_names, self.class_names, self.learned.index)
        if isinstance(predicted, Tensor):
            best = [self.class_names[code] for code in predicted.argmax(-1).tolist()]
            return dict(zip(names, (best, *predicted.mT.numpy()), strict=True))
        tail = torch.tensor(0.5 - 0.5 * level, dtype=torch.float64)
        ends = torch.stack([predicted.mean, predicted.stddev, predicted.icdf(tail), predicted.icdf(1.0 - tail)], dim=-1)
        return dict(zip(names, ends.reshape(len(x), -1).mT.numpy(), strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all to one file, which :func:`rfgp.load` reads too.

        It has training inputs: landmarks, and all of tables of more than 1,000 rows, from whose neighbors it predicts,
        or all rows of an average.
        """
        save(self, path, with_rows=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TableModel:
        """Read what :meth:`save` or ``rfgp fit`` wrote."""
        model = load(path)
        if not isinstance(model, TableModel):
            raise ValueError(
                f"expected a model of a table in {os.fspath(path)!r}, got a {type(model).__name__}; use rfgp.load"
            )
        return model


def _checked_share(table: Table, test_share: float) -> float:
    """The share of the rows that is held out, or a ValueError for what cannot be learned from."""
    checks.instance("table", table, Table, "a table", "read it with rfgp.study.tables.read")
    share = min(checks.share("test_share", test_share), _MOST_TESTED / max(1, len(table.x)))
    _prediction_names(table.target_names, table.class_names, table.learned.index)
    return share


def _deadline(time_limit: float | None) -> Deadline:
    """When a fit that begins now is to have ended."""
    return Deadline.after(None if time_limit is None else checks.positive("time_limit", time_limit))


def _estimator(
    data: Dataset, kernel: str | Kernel, num_features: int | str, time_limit: float | None, seed: int
) -> Any:
    """The estimator for the task."""
    optional.require("sklearn", "scikit-learn", "models of tables")
    from ...sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor

    kind = RandomFeatureGPRegressor if data.num_classes is None else RandomFeatureGPClassifier
    return kind(kernel, num_features=num_features, time_limit=time_limit, random_state=seed)


def _seconds_of_others(x: Tensor, y: Tensor, num_classes: int | None) -> float:
    """About how long other models of inputs (N, d) take, and noise of targets (N,) or (N, T) by the inputs."""
    from ...sklearn.baselines import boosted_seconds, linear_seconds

    num_rows, num_columns = x.shape
    if num_classes:
        return linear_seconds(num_rows, num_columns, num_classes) + boosted_seconds(num_columns, num_classes)
    count, of_spread = y.numel() // len(y), slowness() * _SECONDS_OF_SPREAD * min(num_rows, _SPREAD_ROWS)
    each = _TIMES_BOOSTED * boosted_seconds(num_columns, 2) + of_spread
    return linear_seconds(num_rows, num_columns, count) + count * each


def _averages(estimator: Any, table: Table, data: Dataset) -> bool:
    """Whether an estimator averages over parameters, of the training rows and then of all rows."""
    if data.num_classes is not None and len(data.y_train.unique()) < data.num_classes:
        return False
    x, y = torch.cat([data.x_train, data.x_test]), torch.cat([data.y_train, data.y_test])
    if table.with_categories(most_levels(len(table.x))).encoding.levels or not estimator.averages(x, y):
        return False
    estimator.number_marks = tuple(table.encoding.marks.values())
    averages: bool = estimator.averages(data.x_train, data.y_train)
    return averages


def _learn(estimator: Any, x: Tensor, y: Tensor, num_classes: int | None) -> None:
    """Fit rows, also where a class is in others alone."""
    with without_advice():
        if num_classes is None:
            estimator.fit(x.numpy(), y.numpy())
        else:
            estimator.partial_fit(x.numpy(), y.numpy(), classes=range(num_classes))


def _prediction_names(targets: tuple[str, ...], classes: tuple[str, ...], index: str) -> list[str]:
    """The names of the columns of predictions, all different: mean and interval, or the best class and all chances."""
    ends = ("",) if classes else ("", "_sd", "_lower", "_upper")
    names = [f"{target}{end}" for target in targets for end in ends] + [f"probability_{name}" for name in classes]
    twice = [name for name, count in Counter([*names, index]).items() if count > 1]
    if twice:
        raise ValueError(
            f"expected different names of the columns of predictions, got two of {twice[0]!r}; name the targets, the "
            "classes or the row identifier otherwise"
        )
    return names


def _plain(table: Table, test_share: float, seed: int) -> Dataset:
    """The data for other models, where text of many values has the means of targets."""
    return table.with_categories(FEWEST_LEVELS - 1).split(test_share, seed)
