"""Where an output of a simulator bends or jumps along an input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...averaging.table_member import TableMember
from .emulator import Emulator
from .one_output import OutputFunction

_EDGE, _NUM_PLACES = 0.1, 33
"""The share of the runs beyond the outermost places that are tried, and how many of an input there are."""
_LEAST_SCORE = 4.5
"""Smooth functions have scores up to three, in eight simulators with eight designs each; few steep ones have more."""
_MOST, _LEAST_SHARE = 3, 0.01
"""Kinks of an output, and the share of its variance of an input along which they are looked for."""
_DEPENDENT = 1e-6
"""Columns of which others explain all but such a share of the squares tell nothing more."""


class Kink(NamedTuple):
    """A place where an output bends or jumps.

    :param input: the number of the input.
    :param place: its value there.
    :param is_jump: whether the output jumps; else its slope changes.
    :param score: by how many standard errors.
    """

    input: int
    place: float
    is_jump: bool
    score: float


@torch.no_grad()
def kinks(emulator: Emulator, shares: Tensor) -> list[list[Kink]]:
    r"""At most three kinks of each output along inputs that matter, those with the largest scores first.

    .. math:: t = \frac{h^\top K^{-1} y}{\sqrt{h^\top K^{-1} h}}, \qquad
        h_i = \max(x_{ij} - c, 0) \;\text{ or }\; 1[x_{ij} > c]

    K is the covariance of the runs with noise. The score t is that of the column h added to the mean of the process,
    normal with variance one where there is no such column. Here it is a mean over draws of the parameters, and largest
    over columns; further kinks are what the first columns leave over.

    :param shares: the shares (T, d) of the variance of each output that involve each input.

    Source: Rao (1948), score tests.
    """
    found = []
    for output, share in zip(emulator.outputs, shares, strict=True):
        of_output = _kinks_of(output, (share >= _LEAST_SHARE).nonzero().flatten().tolist())
        places = [float(emulator.low[kink.input] + kink.place * emulator.width[kink.input]) for kink in of_output]
        found.append([kink._replace(place=place) for kink, place in zip(of_output, places, strict=True)])
    return found


def _kinks_of(output: OutputFunction, inputs: Sequence[int]) -> list[Kink]:
    """Those of an output along some inputs, with places on the scale of the emulator."""
    x, members = output.processes[0].x, [member for process in output.processes for member in process.members]
    levels = torch.linspace(_EDGE, 1.0 - _EDGE, _NUM_PLACES, dtype=x.dtype)
    tried = [(k, float(place)) for k in inputs for place in x[:, k].quantile(levels).unique()]
    if not tried:
        return []
    apart = torch.stack([x[:, k] - place for k, place in tried], dim=-1)
    columns = torch.cat([apart.clamp_min(0.0), (apart > 0.0).to(apart)], dim=-1)
    whitened = [member.whitened(columns) for member in members if isinstance(member, TableMember)]
    rest, target = (torch.stack(part) for part in zip(*whitened, strict=True))
    squares, found = rest.square().sum(-2), list[Kink]()
    while len(found) < _MOST:
        left = rest.square().sum(-2)
        scores = (rest.mT @ target).squeeze(-1) / left.sqrt()
        score, best = torch.where(left > _DEPENDENT * squares, scores, 0.0).mean(0).abs().max(0)
        if float(score) <= _LEAST_SCORE:
            break
        is_jump, place = divmod(int(best), len(tried))
        found.append(Kink(*tried[place], bool(is_jump), float(score)))
        direction = torch.nn.functional.normalize(rest[..., best, None], dim=-2)
        rest = rest - direction @ (direction.mT @ rest)
        target = target - direction @ (direction.mT @ target)
    return found
