"""Kinks and jumps of simulators along an input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import rfgp
from rfgp.averaging.table_member import TableMember
from rfgp.study.simulators.emulator import Emulator
from rfgp.study.simulators.kinks import kinks

SCALES = np.array([10.0, 1.0, 1e-3])


def runs(seed=1, count=64):
    """Inputs in units of their own, and outputs with a kink, a jump, both, and neither."""
    a, b, c = stats.qmc.Sobol(3, rng=seed).random(count).T
    smooth = np.sin(3.0 * a) + a * c + b
    kink, jump = np.abs(a - 0.4), 0.5 * (b > 0.6)
    return np.column_stack([a, b, c]) * SCALES, np.column_stack(
        [smooth + kink, smooth + jump, smooth, np.exp(4 * a) / (1 + b)]
    )


def found_in(x, y):
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    emulator = Emulator(x, y, torch.Generator().manual_seed(0))
    return emulator, kinks(emulator, torch.ones(y.shape[1], 3, dtype=torch.float64))


def test_kinks_and_jumps_are_found_where_they_are_and_smooth_functions_have_none():
    kink, jump, *smooth = found_in(*runs())[1]
    assert [(one.input, one.is_jump) for one in kink] == [(0, False)] and abs(kink[0].place - 4.0) < 0.2
    assert [(one.input, one.is_jump) for one in jump] == [(1, True)] and abs(jump[0].place - 0.6) < 0.02
    assert smooth == [[], []]


def test_several_kinks_are_found_one_after_the_other():
    x, _ = runs(count=128)
    a, b, c = (x / SCALES).T
    found = found_in(x, (np.abs(a - 0.4) + np.abs(b - 0.6) + c**2)[:, None])[1][0]
    assert {(one.input, one.is_jump) for one in found} == {(0, False), (1, False)} and len(found) <= 3
    assert found == sorted(found, key=lambda one: -one.score)


def test_scores_are_those_of_a_column_added_to_the_mean():
    """The first score is that of generalized least squares, by the dense covariance of the runs."""
    x, y = runs()
    emulator, found = found_in(x, y[:, 1:2])
    (output,), (best, *_) = emulator.outputs, found[0]
    column = (torch.from_numpy(x[emulator.rows[0], best.input]) > best.place).double()
    scores = []
    for process in output.processes:
        member = process.members[0]
        assert isinstance(member, TableMember)
        kernel, vector = member.kernels[0], member.vectors[0][0]
        dense = kernel.of_rows(vector)[0] + kernel.noise(vector) * torch.eye(64, dtype=torch.float64)
        solved = torch.linalg.solve(dense, column)
        scores.append(solved @ kernel.y / (solved @ column).sqrt())
    assert best.is_jump and best.score == pytest.approx(abs(float(torch.stack(scores).mean())), rel=1e-6)


def test_the_page_says_where_kinks_are(small_defaults):
    x, y = runs()
    study = rfgp.study.uncertainty(x, y[:, [1, 2]])
    words = "It seems that y1 jumps along x2 near 0.6"
    assert words in str(study) and "It seems that y2" not in str(study)
    assert [len(found) for found in study.kinks] == [1, 0]
