"""The best numbers of features by degree: the largest gains first, until the columns are used up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .pairs import DegreeStatistics

_Order = tuple[np.ndarray, np.ndarray, np.ndarray]


def sorted_gains(statistics: dict[int, DegreeStatistics], unit: dict[int, int], block: int, budget: int) -> _Order:
    """Degrees, costs in columns and gains per column of one more feature each, by falling gain."""
    gains, owners = [], []
    for n, means in statistics.items():
        values = means.surrogate(np.arange(1, max(budget // unit[n], 1) + 1, dtype=np.float64), block)
        gain = np.minimum.accumulate(np.maximum(values[:-1] - values[1:], 0.0)) / unit[n]
        gains.append(gain)
        owners.append(np.full(len(gain), n))
    falling = np.concatenate(gains)
    order = np.argsort(-falling, kind="stable")
    owner = np.concatenate(owners)[order]
    return owner, np.array(list(unit.values()))[np.searchsorted(list(unit), owner)], falling[order]


def candidates_for(
    order: _Order, kept: list[int], unit: dict[int, int], budget: int, exact_columns: int | None, has_constant: bool
) -> Iterator[dict[int, int]]:
    """Numbers of features by degree, the constant included, that use a budget of columns."""
    rest = budget - int(has_constant) - sum(unit[n] for n in kept)
    for spare in range(1 + int(has_constant)):
        if rest >= spare:
            widths = _take(order, kept, unit, rest - spare)
            if sum(unit[n] * width for n, width in widths.items()) + int(has_constant) + spare == budget:
                yield widths
    if exact_columns is None or kept[0] != 1:
        return
    others = kept[1:]
    rest = budget - int(has_constant) - exact_columns - sum(unit[n] for n in others)
    if rest < 0:
        return
    is_other = order[0] != 1
    widths = {1: exact_columns} | _take(
        (order[0][is_other], order[1][is_other], order[2][is_other]), others, unit, rest
    )
    if has_constant or sum(unit[n] * width for n, width in widths.items()) == budget:
        yield widths


def _take(order: _Order, kept: list[int], unit: dict[int, int], rest: int) -> dict[int, int]:
    """One feature for every degree kept, and the best of the others until the budget is used up."""
    if not kept:
        return {}
    usable = order[0] <= kept[-1]
    owner, cost, gain = (values[usable] for values in order)
    spent = np.cumsum(cost)
    count = int(np.searchsorted(spent, rest, side="right"))
    taken = np.bincount(owner[:count], minlength=kept[-1] + 1)
    widths = {n: 1 + int(taken[n]) for n in kept}
    left_over = rest - (int(spent[count - 1]) if count else 0)
    linear = np.flatnonzero(cost == 1)
    used = int(np.searchsorted(linear, count))
    if left_over == 1 and used and count < len(owner):
        gains = gain[linear[used - 1 : used + 1]].sum()
        if 2.0 * gain[count] > gains:
            widths[int(owner[count])] += 1
            widths[int(owner[linear[used - 1]])] -= 1
            left_over = 0
    for n in kept:
        while left_over >= unit[n]:
            widths[n] += left_over // unit[n]
            left_over -= unit[n] * (left_over // unit[n])
    return widths
