"""What a rank does with the answers of the others, which the test gives."""

from types import SimpleNamespace

import pytest
import torch

from rfgp.passes.ranks import RankReducer

STATE = {"weights": torch.tensor([1.0, 2.0]), "phases": torch.tensor([1.0 + 2.0j])}


class Ranks:
    """Two ranks, the other of which has three columns and the state that is given."""

    def __init__(self, state):
        self.other = state

    def attempt(self, action, what):
        return action()

    def every(self, value):
        return [value, 3 if isinstance(value, int) else digests(self.other)]

    def sum_(self, tensors):
        for tensor in tensors:
            assert tensor.is_contiguous()
            tensor.mul_(2.0)


def digests(state):
    found = []
    reducer = RankReducer(SimpleNamespace(ranks=SimpleNamespace(every=lambda own: found.append(own) or [own])), None)
    reducer._check(SimpleNamespace(states=lambda: [state]))
    return found[0]


class Summation(SimpleNamespace):
    """Sums that note for which widths maps are made, and what is reduced."""

    def __init__(self):
        super().__init__(made=[], parameters=[torch.zeros(2), torch.ones(3, 2).mT])

    def states(self):
        return [STATE]

    def make_for(self, width):
        self.made.append(width)

    def all_reduce(self, sums, ranks):
        return "of all", sums


def reducer(rows, state=STATE):
    class Shard(list):
        ranks = Ranks(state)

    local = SimpleNamespace(
        sums=lambda summation: "of this rank", gradients=lambda *_: [None, torch.full((3, 2), 4.0).mT]
    )
    return RankReducer(Shard(rows), local)


def test_maps_are_made_for_the_width_of_others_where_a_rank_has_no_rows():
    with_rows, without = Summation(), Summation()
    assert reducer([(torch.zeros(5, 3),)]).sums(with_rows) == ("of all", "of this rank") and with_rows.made == []
    assert reducer([]).sums(without) == ("of all", None) and without.made == [3]


@pytest.mark.parametrize("has_rows", [False, True])
def test_gradients_of_ranks_without_rows_are_zero(has_rows):
    summation, made = Summation(), reducer([(torch.zeros(5, 3),)] if has_rows else [])
    made.sums(summation)
    found = made.gradients(summation, None, [])
    assert torch.equal(found[0], torch.zeros(2))
    assert torch.equal(found[1], torch.full((2, 3), 8.0 if has_rows else 0.0))


@pytest.mark.parametrize("name", STATE)
def test_other_models_are_named(name):
    changed = STATE | {name: STATE[name] * 1.0000001}
    with pytest.raises(ValueError, match=f"the same model on all ranks, got another {name}; call"):
        reducer([], changed).sums(Summation())
    with pytest.raises(ValueError, match=f"got another {name}; call"):
        reducer([], {key: value for key, value in STATE.items() if key != name}).sums(Summation())
