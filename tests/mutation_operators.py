"""Kinds of small changes that cosmic-ray has not: dropped terms, removed branches, shifted bounds, wrong types."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator

import parso
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from parso.python.tree import IfStmt, Name
from parso.tree import NodeOrLeaf

CONVERSIONS = ("to", "double", "float", "detach", "clone", "conj")
"""Methods that leave the values of a tensor as they are, or almost."""
VIEWS = ("mT", "mH", "T", "H", "real")
"""Attributes of a tensor that are left out."""


def code(nodes: Iterable[NodeOrLeaf]) -> str:
    """The source of consecutive nodes, without what is before the first."""
    first, *others = nodes
    return first.get_code(include_prefix=False) + "".join(node.get_code() for node in others)


def replaced(node: NodeOrLeaf, part: NodeOrLeaf, text: str) -> str:
    """The source of a node with another text in place of a part of it, without what is before the first leaf."""

    def source(inside: NodeOrLeaf) -> str:
        if inside is part:
            return inside.get_first_leaf().prefix + text
        return "".join(map(source, inside.children)) if hasattr(inside, "children") else inside.get_code()

    return source(node)[len(node.get_first_leaf().prefix) :]


class Rewriting(Operator):
    """A change of the source of a node."""

    @abstractmethod
    def rewritings(self, node: NodeOrLeaf) -> Iterator[tuple[NodeOrLeaf, str]]:
        """What may be instead of a node: the part of it that is changed, and the new source of the whole."""

    def mutation_positions(self, node):
        for part, _ in self.rewritings(node):
            yield part.start_pos, part.end_pos

    def mutate(self, node, index):
        return parso.parse(node.get_first_leaf().prefix + list(self.rewritings(node))[index][1])


class DropTerm(Rewriting):
    """A term of a sum, a factor of a product, an exponent, a condition of several, or an addition in place is gone."""

    kinds = ("arith_expr", "term", "power", "and_test", "or_test")

    def rewritings(self, node):
        parts = getattr(node, "children", ())
        if node.type == "expr_stmt" and parts[1].type == "operator" and parts[1].value in ("+=", "-=", "*=", "/="):
            yield parts[1], "pass"
        if node.type not in self.kinds or any(part.type in ("string", "strings", "fstring") for part in parts):
            return
        for at in range(1, len(parts), 2):
            operator = getattr(parts[at], "value", None)
            if operator in ("+", "-", "*", "/", "**", "and", "or"):
                yield parts[at], code([*parts[:at], *parts[at + 2 :]])
            if at == 1 and operator in ("+", "*", "and", "or"):
                yield parts[0], code(parts[2:])
            if at == 1 and operator == "-":
                yield parts[0], code(parts[1:])

    @classmethod
    def examples(cls):
        return (
            Example("x = a + b - c\n", "x = a - c\n"),
            Example("x = a + b - c\n", "x = b - c\n", occurrence=1),
            Example("x = a + b - c\n", "x = a + b\n", occurrence=2),
            Example("x = a - b\n", "x = - b\n", occurrence=1),
            Example("x = a * b ** 2\n", "x = a\n"),
            Example("x = a * b ** 2\n", "x = a * b\n", occurrence=2),
            Example("return a and b\n", "return a\n"),
            Example("def f(x):\n    x += 1\n", "def f(x):\n    pass\n"),
        )


class RemoveBranch(Rewriting):
    """A branch of an ``if`` is never taken, or a conditional expression is one of its sides."""

    def rewritings(self, node):
        parts = getattr(node, "children", ())
        if node.type == "test":
            yield parts[1], code(parts[:1])
            yield parts[3], code(parts[4:])
        if not isinstance(node, IfStmt):
            return
        for at, part in enumerate(parts):
            if part.type == "keyword" and part.value == "else":
                yield part, code(parts[:at])
            elif part.type == "keyword":
                yield part, replaced(node, parts[at + 1], "False")

    @classmethod
    def examples(cls):
        source = "if a:\n    b\nelif c:\n    d\nelse:\n    e\n"
        return (
            Example(source, source.replace("a", "False")),
            Example(source, source.replace("c:", "False:"), occurrence=1),
            Example(source, source[:-12], occurrence=2),
            Example("x = a if b else c\n", "x = a\n"),
            Example("x = a if b else c\n", "x = c\n", occurrence=1),
        )


class ShiftBound(Rewriting):
    """A bound of a slice or the end of a range is one more or less; numbers are left to cosmic-ray."""

    def rewritings(self, node):
        parts = getattr(node, "children", ())
        if node.type == "subscript":
            bounds = [part for part in parts if part.type not in ("operator", "sliceop")]
        elif node.type == "trailer" and parts[0].value == "(" and is_name(node.get_previous_leaf(), "range"):
            inner = parts[1].children[::2] if parts[1].type == "arglist" else parts[1:-1]
            bounds = inner[:1] if len(inner) == 1 else inner[1:2]
        else:
            return
        for bound in bounds:
            if bound.get_last_leaf().type == "number":
                continue
            for change in ("+ 1", "- 1"):
                yield bound, replaced(node, bound, f"({code([bound])}) {change}")

    @classmethod
    def examples(cls):
        return (
            Example("x[m:n]\n", "x[(m) + 1:n]\n"),
            Example("x[m:n]\n", "x[m:(n) - 1]\n", occurrence=3),
            Example("x[:1, n:]\n", "x[:1, (n) - 1:]\n", occurrence=1),
            Example("range(1, n)\n", "range(1, (n) + 1)\n"),
        )


class WrongType(Rewriting):
    """A conversion of a tensor, a transposition, or the type of a new tensor is left out."""

    def rewritings(self, node):
        parts = getattr(node, "children", ())
        if node.type == "arglist":
            for at, part in enumerate(parts):
                if part.type == "argument" and is_name(part.children[0], "dtype"):
                    yield part, code([*parts[: max(at - 1, 0)], *parts[at + (1 if at else 2) :]])
        if node.type not in ("atom_expr", "power"):
            return
        for at, part in enumerate(parts[1:], 1):
            if part.type != "trailer" or part.children[0].value != ".":
                continue
            is_called = at + 1 < len(parts) and parts[at + 1].get_first_leaf().value == "("
            if is_name(part.children[1], *(CONVERSIONS if is_called else VIEWS)):
                yield part, code([*parts[:at], *parts[at + 1 + is_called :]])

    @classmethod
    def examples(cls):
        return (
            Example("a.to(b).c.mT + d\n", "a.c.mT + d\n"),
            Example("a.to(b).c.mT + d\n", "a.to(b).c + d\n", occurrence=1),
            Example("zeros(n, dtype=x.dtype)\n", "zeros(n)\n"),
            Example("zeros(n, dtype=x.dtype, device=y)\n", "zeros(n, device=y)\n"),
        )


def is_name(node: NodeOrLeaf | None, *names: str) -> bool:
    """Whether a node is one of some names."""
    return isinstance(node, Name) and node.value in names


OPERATORS = {operator.__name__: operator for operator in (DropTerm, RemoveBranch, ShiftBound, WrongType)}


def check_examples() -> None:
    """Make the examples of all operators.

    :raises ValueError: if one is another than it says.
    """
    for operator in OPERATORS.values():
        for example in operator.examples():
            made = mutate_code(example.pre_mutation_code, operator(), example.occurrence)
            if made != example.post_mutation_code:
                raise ValueError(f"{operator.__name__} makes {made!r} of {example.pre_mutation_code!r}.")
