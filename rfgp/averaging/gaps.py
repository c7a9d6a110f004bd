"""Missing values of targets, drawn given all that is known of the same rows and the same targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from .bank_member import BankMember
from .column_scale import ColumnScale
from .error_correlations import conditional_densities, missing_draws
from .input_scale import InputScale
from .kernel_bank import SHAPES, KernelBank
from .member import groups_by_size
from .one_target import CHOOSING, chosen_rows

_SWEEPS, _MOST_SHAPES = 4, 4
_DRAWS, _MANY_DRAWS, _FEW_TARGETS = 2, 4, 50
"""How many draws there are, and of up to so many targets."""


def imputations(x: Tensor, y: Tensor, groups: Tensor) -> list[Tensor]:
    """Targets (N, T) with draws where values are missing, by sweeps of imputation; themselves where none is.

    In each sweep a bank of kernels predicts every row by all others, and errors of missing values are drawn given those
    of the known ones in their row. Draws have the noise that values have, and means have not. Processes are those of
    the targets, or of their principal components, whichever predicts known values better by the others of their row:
    errors of targets that determine each other are the same only if their processes are. More than 50 targets have
    principal components.

    :param x: inputs (N, d).
    :param y: targets, with NaN for missing ones.
    :param groups: numbers (N,) of rows that are left out together.

    Source: Rubin (1987), multiple imputation; van Buuren (2007), chained equations.
    """
    known = ~y.isnan()
    if bool(known.all()):
        return [y]
    target, choose, several = ColumnScale(y, is_transformed=True), _Chooser(x), groups_by_size(groups)
    scaled, num_draws = target.forward(y), _MANY_DRAWS if y.shape[1] <= _FEW_TARGETS else _DRAWS
    ways = (False, True) if y.shape[1] <= _FEW_TARGETS else (True,)
    chains = [_chain(scaled, known, choose, several, rotates, num_draws) for rotates in ways]
    best = max(chains, key=lambda chain: chain.log_density)
    low, high = torch.where(known, y, torch.inf).amin(0), torch.where(known, y, -torch.inf).amax(0)
    reach = 0.5 * (high - low)
    return [torch.where(known, y, target.inverse(z).clamp(low - reach, high + reach)) for z in best.draws]


class _Chain(NamedTuple):
    """Draws of targets (N, T), and the log density of their known values given all others, at the last of them."""

    draws: list[Tensor]
    log_density: float


def _chain(
    scaled: Tensor, known: Tensor, choose: _Chooser, groups: Sequence[Tensor], rotates: bool, num_draws: int
) -> _Chain:
    generator, found, draws = Generator().manual_seed(0), torch.where(known, scaled, 0.0), []
    bank, density = choose(found), -math.inf
    for sweep in range(_SWEEPS + num_draws):
        if sweep == _SWEEPS // 2:
            bank = choose(found)
        plain = ColumnScale(found, is_transformed=False)
        (mean,), (variance,) = BankMember(bank, plain, found, rotates).left_out(groups)
        std = variance.sqrt()
        errors = (plain.forward(found) - mean) / std
        density = float((conditional_densities(errors, known) - (std * plain.std).log())[known].sum())
        drawn = plain.inverse(mean + std * missing_draws(errors, known, generator))
        found = torch.where(known, scaled, drawn)
        if sweep >= _SWEEPS:
            draws.append(found)
    return _Chain(draws, density)


class _Chooser:
    """The kernels that predict targets best, of which 300 rows choose those of more than 400."""

    def __init__(self, x: Tensor) -> None:
        self.x, self.scale = x, InputScale(x, "half ranks")
        self.rows = chosen_rows(len(x)) if len(x) > CHOOSING else torch.arange(len(x))
        self.every = KernelBank(self.scale, x[self.rows], SHAPES)

    def __call__(self, targets: Tensor) -> KernelBank:
        some = targets[self.rows]
        member = BankMember(self.every, ColumnScale(some, is_transformed=False), some)
        best = member.mass.topk(_MOST_SHAPES).indices.tolist()
        if len(self.rows) == len(self.x):
            return self.every.some(best)
        return KernelBank(self.scale, self.x, [SHAPES[shape] for shape in best])
