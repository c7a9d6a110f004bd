"""What an uncertainty study has found, as values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...diagnostics.sensitivity import MainEffects, Propagation, SobolIndices
from .check import Check
from .runs import Runs


@dataclass(frozen=True)
class Findings:
    """What runs of a simulator tell about it.

    :param runs: the runs, with the distributions of the inputs.
    :param check: how well every run is predicted by the others, for each output.
    :param sobol: Sobol' indices with their posterior, (T, d).
    :param effects: main effects, (T, G, d).
    :param propagation: the distribution of the outputs for uncertain inputs.
    :param exceedance: by the name of an output, a threshold, the probability to exceed it, and a 95 % interval.
    :param next_inputs: the runs to do next, (5, d).
    :param model_std: what the model does not know, as a standard deviation of each output, before these runs and after
        each, (6, T).
    """

    runs: Runs
    check: Check
    sobol: SobolIndices
    effects: MainEffects
    propagation: Propagation
    exceedance: dict[str, tuple[float, float, float, float]]
    next_inputs: Tensor
    model_std: Tensor
