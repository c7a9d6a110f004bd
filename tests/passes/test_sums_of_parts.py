"""Partitions, what is merged of them, and the order of their sum."""

from types import SimpleNamespace

import pytest
import torch

from rfgp.data import ArraySource
from rfgp.passes.executor import TreeSum, merged, not_empty
from rfgp.passes.partitions import Partitions

X, Y = torch.arange(12.0).reshape(6, 2), torch.arange(6.0)


def test_partitions_are_all_rows_by_name_and_as_copies():
    parts = [(X[:2], Y[:2]), [(X[2:3], Y[2:3]), (X[3:5], Y[3:5])], ArraySource(X[5:], Y[5:])]
    found = list(Partitions(parts, None, None))
    names = [part[0] for part in found]
    assert names[:2] == ["partition 0 (rows 0 to 2)", "partition 1 (rows 2 to 5)"] and "partition 2 (" in names[2]
    batches = [batch for part in found for batch in part.rows()]
    assert torch.equal(torch.cat([x for x, *_ in batches]), X)
    assert torch.equal(torch.cat([y for _, y, *_ in batches]), Y)
    assert all(x.data_ptr() != X.data_ptr() for x, *_ in batches)


@pytest.mark.parametrize("part", [3, [], "rows", (X.numpy(), Y)])
def test_other_partitions_are_refused(part):
    with pytest.raises(ValueError, match=r"^expected "):
        list(Partitions([part], None, None))


def test_sums_of_no_rows_are_left_out_or_refused():
    summation = SimpleNamespace(merge=lambda first, second: first + second)
    assert merged(summation, "a", "b") == "ab" and merged(summation, None, "b") == "b"
    assert merged(summation, "a", None) == "a" and merged(summation, None, None) is None
    assert not_empty("a") == "a"
    with pytest.raises(ValueError, match="expected rows in at least one partition"):
        not_empty(None)


@pytest.mark.parametrize(("letters", "wanted"), [("a", "a"), ("abc", "((ab)c)"), ("abcdefg", "(((ab)(cd))((ef)g))")])
def test_values_are_added_by_pairs(letters, wanted):
    total = TreeSum(lambda first, second: f"({first}{second})")
    with pytest.raises(ValueError, match="at least one value"):
        total.value()
    for letter in letters:
        total.add(letter)
    assert total.value() == wanted
