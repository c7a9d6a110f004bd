"""Missing values of targets, drawn given all that is known of the same rows and the same targets."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from .bank_member import BankMember
from .column_scale import ColumnScale
from .error_correlations import missing_draws
from .input_scale import InputScale
from .kernel_bank import SHAPES, KernelBank
from .member import groups_by_size
from .one_target import CHOOSING, chosen_rows

_SWEEPS, _MOST_SHAPES = 4, 4
_DRAWS, _MANY_DRAWS, _FEW_TARGETS = 2, 4, 50
"""How many draws there are, and of up to so many targets."""


def imputations(x: Tensor, y: Tensor, groups: Tensor) -> list[Tensor]:
    """Targets (N, T) with draws where values are missing, by sweeps of imputation; themselves where none is.

    In each sweep a bank of kernels predicts every value by all others of its target, and errors of missing values are
    drawn given those of the known ones in their row. Draws have the noise that values have, and means have not.

    :param x: inputs (N, d).
    :param y: targets, with NaN for missing ones.
    :param groups: numbers (N,) of rows that are left out together.

    Source: Rubin (1987), multiple imputation; van Buuren (2007), chained equations.
    """
    known = ~y.isnan()
    if bool(known.all()):
        return [y]
    target, generator = ColumnScale(y, is_transformed=True), Generator().manual_seed(0)
    scaled, several = target.forward(y), groups_by_size(groups)
    low, high = torch.where(known, y, torch.inf).amin(0), torch.where(known, y, -torch.inf).amax(0)
    reach = 0.5 * (high - low)
    found, made, choose = torch.where(known, scaled, 0.0), [], _Chooser(x)
    bank = choose(found)
    num_draws = _MANY_DRAWS if y.shape[1] <= _FEW_TARGETS else _DRAWS
    for sweep in range(_SWEEPS + num_draws):
        if sweep == _SWEEPS // 2:
            bank = choose(found)
        plain = ColumnScale(found, is_transformed=False)
        (mean,), (variance,) = BankMember(bank, plain, found).left_out(several)
        std = variance.sqrt()
        errors = (plain.forward(found) - mean) / std
        drawn = plain.inverse(mean + std * missing_draws(errors, known, generator))
        found = torch.where(known, scaled, drawn)
        if sweep >= _SWEEPS:
            made.append(torch.where(known, y, target.inverse(found).clamp(low - reach, high + reach)))
    return made


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
