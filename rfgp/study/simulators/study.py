"""An uncertainty study of a simulator in one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from ..._support import checks, optional
from ...diagnostics.sensitivity import (
    MainEffects,
    Propagation,
    ShapleyEffects,
    SobolIndices,
    main_effects,
    propagate,
    shapley_effects,
    sobol_indices,
)
from ...diagnostics.sensitivity.sampled import levels
from ...linalg.sampling import drawing_from
from .check import checked
from .emulator import Emulator
from .findings import Findings
from .kinks import kinks
from .next_runs import next_runs
from .page import page
from .runs import Runs, runs_of

if TYPE_CHECKING:
    import pandas

_NUM_FUNCTIONS, _NUM_POINTS, _NUM_DRAWS, _NUM_NEXT = 128, 1024, 4096, 5


@dataclass(frozen=True)
class UncertaintyStudy(Findings):
    """What runs of a simulator tell about it, from :func:`uncertainty`.

    Printed, it is a page of words and tables.

    >>> import numpy as np, rfgp
    >>> x = np.random.default_rng(0).random((20, 1))
    >>> study = rfgp.study.uncertainty(x, x[:, 0] ** 2)
    >>> mean, std = study.predict([[0.5]])
    >>> round(mean.item(), 2)
    0.25

    :param runs: the runs, with the distributions of the inputs.
    :param check: how well every run is predicted by others, for each output.
    :param shares: Sobol' indices with their posterior, (T, d), also ``sobol``; of inputs that depend on each other,
        Shapley effects, also ``shapley``.
    :param effects: main effects, (T, G, d); None where inputs depend on each other.
    :param propagation: the distribution of the outputs for uncertain inputs.
    :param failed: how many runs have no value of each output, (T,).
    :param failures: which runs these are, and where others are expected to be.
    :param lost: the shares of the distribution of the inputs where runs are expected to fail, (T,).
    :param limits: the bounds that repeated values of the outputs show, to which predictions are clipped.
    :param kinks: for each output, up to three places where it bends or jumps along an input that matters.
    :param exceedance: by the name of an output, a threshold, the probability to exceed it, and a 95 % interval.
    :param next_inputs: the runs to do next, (5, d).
    :param model_std: what the model does not know, as a standard deviation of each output, before these runs and after
        each, (6, T).
    :param emulator: the averages of exact processes of the outputs.
    """

    emulator: Emulator

    def __str__(self) -> str:
        return str(page(self))

    def predict(self, x: Any) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of the outputs at inputs x; the latter with what the kernel does not explain.

        :param x: inputs (M, d), an array or a data frame with the columns of the runs.
        :returns: two tensors (M, T), or (M,) for one output, in float64 and the units of the outputs.
        :raises ValueError: for other columns.
        """
        names = list(self.runs.inputs)
        if hasattr(x, "columns"):
            absent = [name for name in names if name not in x.columns]
            if absent:
                raise ValueError(f"expected the columns {', '.join(names)}, got none of the name {absent[0]}; add it")
            x = x[names].to_numpy(dtype=float)
        values = checks.finite(checks.inputs(checks.real_tensor(x, "x"), len(names)), "x")
        mean, variance = self.emulator.predicted(values.double().cpu())
        std = variance.sqrt()
        return (mean, std) if len(self.runs.outputs) > 1 else (mean.squeeze(-1), std.squeeze(-1))

    def to_frame(self) -> pandas.DataFrame:
        """Sobol' indices, or Shapley effects of dependent inputs, with 95 % intervals as a pandas DataFrame.

        It has a row for each output and input.
        """
        frame = self.shares.to_frame()
        frame["output"] = [self.runs.outputs[t - 1] for t in frame["output"]]
        return frame

    def next_runs(self) -> pandas.DataFrame:
        """The runs to do next as a pandas DataFrame, a column for each input."""
        optional.require("pandas", "study", "data frames")
        import pandas as pd

        return pd.DataFrame(self.next_inputs.numpy(), columns=list(self.runs.inputs))

    def report(self, path: str | Path) -> Path:
        """Write the study as one HTML file with figures, and return its path.

        :raises ImportError: without matplotlib.
        """
        checks.path("path", path)
        place = Path(path)
        place.write_text(page(self).html(), encoding="utf-8")
        return place


def uncertainty(
    x: Any, y: Any, inputs: Any = None, *, thresholds: Mapping[str, float] | None = None, seed: int = 0
) -> UncertaintyStudy:
    r"""Study a simulator by its runs: which inputs matter, how uncertain its outputs are, and what to run next.

    .. math:: y_t = f_t(x), \qquad S_k = \frac{\mathrm{Var}\, E[f(X) \mid X_k]}{\mathrm{Var}\, f(X)}

    Each output has an average of exact Gaussian processes, :class:`rfgp.averaging.AveragedGP`, of smooth functions with
    effects of single inputs and of others; parameters are drawn from their posterior. Every run is predicted by others,
    from which the parameters are learned anew. The posterior is widened until 95 % of new runs are expected in their
    intervals. Beyond the runs functions go on as at their edge, by a factor that is not known. Runs without an output
    have failed: they are counted, a classifier of the inputs says where others are expected to fail, and runs to do
    next are elsewhere. Where the smallest or largest value of an output is repeated, it is a bound of all functions.

    :param x: inputs of 10 to 2,000 runs, (N, d), a data frame or an array.
    :param y: their outputs, (N,) or (N, T), NaN where a run has none.
    :param inputs: distributions of the inputs, by name or in order, of :mod:`rfgp.diagnostics.sensitivity`,
        scipy.stats or torch.distributions, or in words such as "normal(10, 2)"; default, also of inputs that are not
        named: uniform over the range of the runs. Of inputs that depend on each other, a
        :class:`~rfgp.diagnostics.sensitivity.GaussianCopula`; then there are Shapley effects in place of Sobol' indices
        and main effects, which are those of independent inputs.
    :param thresholds: by the name of an output, the value for which the probability to exceed it is wanted.
    :param seed: the seed of all random numbers.
    :raises ValueError: for other shapes, unknown names, columns of text or of one value, infinite numbers, or inputs
        far outside the runs.

    Source: Oakley and O'Hagan (2004); Le Gratiet, Cannamela and Iooss (2014), intervals of Sobol' indices.

    >>> import numpy as np, rfgp
    >>> x = np.random.default_rng(0).random((40, 2))
    >>> study = rfgp.study.uncertainty(x, x[:, 0] + x[:, 1] ** 2, {"length": "uniform(0, 1)", "load": "normal(.5, .1)"})
    >>> study.sobol.first.value.argmax().item()
    0
    """
    random = Generator().manual_seed(checks.seed(seed))
    runs = runs_of(x, y, inputs)
    limits = _limits(thresholds, runs.outputs)
    emulator = Emulator(runs.x, runs.y, random)
    check = checked(emulator, runs.y)
    emulator.spread = check.spread
    with drawing_from(random):
        shares, effects = _shares(emulator, runs)
        eps = torch.finfo(torch.float64).eps
        draws = runs.points(levels(_NUM_DRAWS, len(runs.inputs), seed=1).clamp(eps, 1.0 - eps))
        known = propagate(emulator, draws, num_functions=_NUM_FUNCTIONS)
    probabilities = {name: _exceedance(known, runs.outputs.index(name), value) for name, value in limits.items()}
    return UncertaintyStudy(
        runs,
        check,
        shares,
        effects,
        known,
        (~emulator.has_run).sum(0),
        emulator.failures,
        1.0 - emulator.success(draws).mean(0),
        emulator.limits,
        kinks(emulator, shares.total.value if isinstance(shares, SobolIndices) else shares.effects.value),
        probabilities,
        *next_runs(emulator, runs, _NUM_NEXT),
        emulator,
    )


def _shares(emulator: Emulator, runs: Runs) -> tuple[SobolIndices | ShapleyEffects, MainEffects | None]:
    """What the inputs contribute, and main effects of independent ones."""
    if runs.copula is not None:
        return shapley_effects(emulator, runs.copula, num_functions=_NUM_FUNCTIONS, num_points=_NUM_POINTS), None
    counts = {"num_functions": _NUM_FUNCTIONS, "num_points": _NUM_POINTS}
    indices = sobol_indices(emulator, runs.inputs, second_order=False, **counts)
    return indices, main_effects(emulator, runs.inputs, 25, num_functions=_NUM_FUNCTIONS, num_points=128)


def _limits(thresholds: Mapping[str, float] | None, outputs: tuple[str, ...]) -> dict[str, float]:
    if thresholds is None:
        return {}
    checks.instance("thresholds", thresholds, Mapping, "a mapping", f'such as {{"{outputs[0]}": 1.0}}')
    for name in thresholds:
        if name not in outputs:
            raise ValueError(f"expected names among {', '.join(outputs)} in thresholds, got {name!r}; name an output")
    return {name: checks.number(value) for name, value in thresholds.items()}


def _exceedance(known: Propagation, place: int, threshold: float) -> tuple[float, float, float, float]:
    estimate = known.exceedance(threshold)
    low, high = estimate.interval()
    return threshold, float(estimate.value[place]), float(low[place]), float(high[place])
