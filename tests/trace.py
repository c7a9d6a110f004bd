"""How far a reader has to go: calls, functions and files of a warm fit, posterior mean and evidence, and lines by room.

``python -m tests.trace`` prints both tables. A call is a call of a Python function of the package, comprehensions and
properties included; a change is a call in another file than the call before. Lines of code have a token beside
comments and docstrings.
"""

from __future__ import annotations

import ast
import io
import itertools
import sys
import tokenize
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gpytorch
import torch

import rfgp

ROOT = Path(rfgp.__file__).parent
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Trace(NamedTuple):
    """What one step calls inside the package."""

    calls: int
    functions: int
    files: int
    changes: int

    @classmethod
    def of(cls, step: Callable[[], object]) -> Trace:
        """The trace of a step."""
        seen: list[tuple[str, int]] = []

        def note(frame, event, argument):
            if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
                seen.append((frame.f_code.co_filename, frame.f_code.co_firstlineno))

        sys.setprofile(note)
        try:
            step()
        finally:
            sys.setprofile(None)
        files = [file for file, _ in seen]
        changes = sum(first != second for first, second in itertools.pairwise(files))
        return cls(len(seen), len(set(seen)), len(set(files)), changes)


def traces() -> dict[str, Trace]:
    """The traces of a model of 60 rows that has been through every step once, in float64 and without gradients."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    y = x[:, 0].sin()
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3)).double()
    kernel = rfgp.approximate(exact, num_features=32, input_dim=3, seed=0)
    model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    with torch.no_grad(), warnings.catch_warnings():
        model.condition(x, y)
        steps = {
            "fit": lambda: model.condition(x, y),
            "posterior mean": lambda: model.posterior(x[:5]).mean,
            "evidence": model.log_marginal_likelihood,
        }
        for step in steps.values():
            step()
        return {name: Trace.of(step) for name, step in steps.items()}


def lines(path: Path) -> tuple[int, int]:
    """The numbers of lines of code and of docstrings of a file."""
    text = path.read_text(encoding="utf-8")
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        can_have = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if can_have and ast.get_docstring(node) is not None:
            documented |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code |= {*range(token.start[0], token.end[0] + 1)}
    return len(code - documented), len(documented)


def main() -> None:
    """Print both tables."""
    print(f"{'step':16}{'calls':>8}{'functions':>11}{'files':>7}{'changes':>9}")
    for name, trace in traces().items():
        print(f"{name:16}{trace.calls:8}{trace.functions:11}{trace.files:7}{trace.changes:9}")
    rooms: dict[str, list[int]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        total = rooms.setdefault(parts[0] if len(parts) > 1 else ".", [0, 0, 0])
        code, documented = lines(path)
        for place, count in enumerate((1, code, documented)):
            total[place] += count
    print(f"\n{'room':16}{'files':>8}{'code':>8}{'docstrings':>12}")
    for name, (files, code, documented) in rooms.items():
        print(f"{name:16}{files:8}{code:8}{documented:12}")
    totals = [sum(column) for column in zip(*rooms.values(), strict=True)]
    print(f"{'all':16}{totals[0]:8}{totals[1]:8}{totals[2]:12}")


if __name__ == "__main__":
    main()
