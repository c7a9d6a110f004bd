"""The cases that are run have every value of every argument, and every two values where that is asked for."""

import itertools

import pytest
from covering import covering


class Case:
    """What pytest collects of a test of three arguments."""

    def __init__(self, params, *marks):
        self.callspec = self
        self.params = params
        self.marks = marks

    def get_closest_marker(self, name):
        return name if name in self.marks else None


def cases(*marks):
    """All but one of the combinations of 4, 3 and 3 values."""
    combinations = itertools.islice(itertools.product(range(4), "abc", "xyz"), 1, None)
    return [Case(dict(zip(("number", "letter", "end"), values, strict=True)), *marks) for values in combinations]


def together(chosen, size):
    """The values of so many arguments that are found in one case."""
    return {part for case in chosen for part in itertools.combinations(case.params.items(), size)}


@pytest.mark.parametrize(("mark", "size", "most"), [("none", 1, 6), ("every_pair", 2, 18), ("every_case", 3, 35)])
def test_all_values_of_so_many_arguments_are_found_in_few_cases(mark, size, most):
    every = cases(mark)
    chosen = covering(every)
    assert together(chosen, size) == together(every, size) and len(chosen) <= most
    assert chosen == [case for case in every if case in chosen]
    assert (together(chosen, 3) == together(every, 3)) == (size == 3)
