"""Trivial predictions know classes that the training rows lack."""

import math

import pytest
import torch

from rfgp.study.baselines import baselines


def test_classes_that_are_not_seen_have_a_probability():
    x = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    found, _ = baselines(x, torch.tensor([0, 0, 1]), x[:2], torch.tensor([2, 0]), 3)["trivial"]
    assert found.log_loss.tolist() == pytest.approx([math.log(6.0), math.log(2.0)])
    assert found.error.tolist() == [1.0, 0.0]
