"""A few cases of a parametrized test that have every value of every argument, or every pair of values."""

import itertools
from collections.abc import Hashable
from typing import Any

PLAIN = str | int | float | complex | bool | None


def covering(items: list) -> list:
    """The cases, in their order, among which every value of every argument is found at least once.

    Of a test marked ``every_pair`` also all values of two arguments that any case has together. Cases with most values
    that no other has shown are taken first. Smoke tests are always among them. Tests without arguments are single
    cases.

    :param items: the cases of one test, as pytest collects them.
    """
    values = {item: shown(item) for item in items}
    kept = {item for item in items if is_always_run(item) or not values[item]}
    seen = set().union(*(values[item] for item in kept))
    for number in range(max(map(len, values.values()), default=0), 0, -1):
        for item in items:
            if item not in kept and len(values[item] - seen) >= number:
                kept.add(item)
                seen |= values[item]
    return [item for item in items if item in kept]


def is_always_run(item: Any) -> bool:
    """Whether a case runs whatever others show."""
    return any(item.get_closest_marker(name) is not None for name in ("smoke", "every_case"))


def shown(item: Any) -> set[Hashable]:
    """The arguments of a case with their values, and where it is asked for the pairs of these."""
    callspec = getattr(item, "callspec", None)
    arguments = callspec.params.items() if callspec is not None else ()
    values = {(name, *part) for name, value in arguments for part in enumerate(parts(value))}
    if item.get_closest_marker("every_pair") is None:
        return values
    return values | {frozenset(pair) for pair in itertools.combinations(values, 2)}


def parts(value: Any) -> list[Hashable]:
    """What counts as the same value: what is equal, the same object, or an example of the same kind.

    A name such as "gaussian, complex" is that of two values; what has ``parts`` says itself of which it is.
    """
    if isinstance(getattr(value, "parts", None), tuple):
        return list(value.parts)
    if hasattr(value, "kind"):
        return [value.kind]
    if isinstance(value, str):
        return value.split(", ")
    return [(type(value), value) if isinstance(value, PLAIN) else id(value)]
