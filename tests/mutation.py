"""Measure the power of the tests: the share of small changes to the package that some test notices.

It is run by hand, with the extra ``mutation``; see CONTRIBUTING.md::

    python tests/mutation.py draw mutants.json
    python tests/mutation.py measure measured
    python tests/mutation.py run mutants.json measured results.jsonl
    python tests/mutation.py report results.jsonl

Mutants are in the bodies of functions. Those of cosmic-ray: an operator, a comparison, a number or a truth value is
another one. Those of ``mutation_operators.py``: a term is dropped, a branch removed, a bound shifted, a conversion left
out. The tests run once with coverage. Then they are collected once more; for each mutant a fork replaces the code of a
function, and runs the tests that executed its line until one fails, first those of the folder of the subpackage.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import gc
import importlib
import itertools
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import CodeType, FunctionType

import coverage
import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names
from mutation_operators import OPERATORS, check_examples

ROOT = Path(__file__).parents[1]
NUMBERS = {
    "approximation": 34,
    "botorch": 10,
    "data": 10,
    "diagnostics": 26,
    "features": 15,
    "functionals": 10,
    "inference": 50,
    "kernels": 10,
    "likelihoods": 10,
    "linalg": 10,
    "models": 33,
    "passes": 10,
    "saving": 10,
    "sklearn": 15,
    "study": 23,
    "training": 24,
}
"""How many mutants are drawn in each subpackage: by its lines, at least ten."""
CONTRACT = ("approximation", "inference", "models", "passes")
"""Subpackages whose own tests are also those of ``tests/contract``."""
INVALID, OWN = "invalid", "rfgp"
CHECKS_OR_WORDS = ("strict", "help", "desc", "leave", "validate_args")
"""Arguments whose changes change nothing where there is no error, or words."""
ARITHMETIC = ("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow")
OTHERS = ("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd")
OTHERS += ("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop")
OTHERS += ("ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_USub")


def is_used(name: str) -> bool:
    """Whether an operator makes mutants that are not wrong at first sight, as shifts of floats are."""
    provider, name = name.split("/")
    if provider == OWN:
        return True
    kind, *change = name.split("_")
    if kind == "ReplaceBinaryOperator":
        return all(part in ARITHMETIC for part in change)
    if kind == "ReplaceComparisonOperator":
        return not {"Is", "IsNot"} & set(change)
    return name in OTHERS


def operator_of(name: str) -> Operator:
    """The operator of a name, of cosmic-ray or of ``mutation_operators.py``."""
    provider, own = name.split("/")
    return OPERATORS[own]() if provider == OWN else get_operator(name)()


def own_folders(file: str) -> tuple[str, ...]:
    """The folders with the tests of the subpackage of a file."""
    part = Path(file).parts[1]
    return (f"tests/{part}/", *(("tests/contract/",) if part in CONTRACT else ()))


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A change of one operator at one place.

    :param file: the file, from the root of the project.
    :param function: the function, by its qualified name.
    :param operator: the operator, by its provider and name.
    :param text: the line.
    :param column: the place in the line, without its indentation.
    :param index: which of the mutants of the operator at this place.
    """

    file: str
    function: str
    operator: str
    text: str
    column: int
    index: int


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a mutant is in the present code: its line, and which occurrence of its operator."""

    line: int
    occurrence: int


def bodies(tree: ast.Module) -> list[tuple[str, int, int]]:
    """Qualified names, first and last lines of the bodies of functions, inner functions last."""
    found = []

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                is_function = isinstance(child, ast.FunctionDef)
                if is_function and child.name != "examples":  # which are for tests
                    statements = child.body[1:] if ast.get_docstring(child) is not None else child.body
                    if statements:
                        found.append((name, statements[0].lineno, statements[-1].end_lineno))
                visit(child, f"{name}.<locals>." if is_function else f"{name}.")
            else:
                visit(child, prefix)

    visit(tree, "")
    return found


def left_out(tree: ast.Module) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """From where to where no mutants are drawn: errors, warnings and words, annotations, heads and checks."""
    found = []
    for node in ast.walk(tree):
        parts = [node] if isinstance(node, ast.Raise) else []
        if isinstance(node, ast.Call) and "warn" in ast.unparse(node.func):
            parts = [node]
        if isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        if isinstance(node, ast.FunctionDef):
            parts = [node.args, *node.decorator_list, *([node.returns] if node.returns else [])]
            parts = [part for part in ast.walk(ast.Module(parts, [])) if hasattr(part, "lineno")]
        if isinstance(node, ast.JoinedStr):
            parts = [node]
        if isinstance(node, ast.keyword) and node.arg in CHECKS_OR_WORDS:
            parts = [node.value]
        found += [((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)) for part in parts]
    return found


def mutants(path: Path) -> dict[Mutant, Place]:
    """All mutants of a file, and where they are.

    :param path: the file.
    """
    source = path.read_text(encoding="utf-8")
    lines, tree = source.splitlines(), ast.parse(source)
    places, holes = bodies(tree), left_out(tree)
    found = {}
    nodes = list(ast_nodes(get_ast(source)))
    for name in filter(is_used, (*operator_names(), *(f"{OWN}/{name}" for name in OPERATORS))):
        operator = operator_of(name)
        seen: dict[tuple, int] = defaultdict(int)
        positions = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, (line, column) in enumerate(positions):
            inside = [function for function, first, last in places if first <= line <= last]
            if not inside or any(start <= (line, column) < end for start, end in holes):
                continue
            text = lines[line - 1].strip()
            offset = column - lines[line - 1].index(text)
            key = inside[-1], text, offset
            found[Mutant(str(path.relative_to(ROOT)), inside[-1], name, text, offset, seen[key])] = Place(
                line, occurrence
            )
            seen[key] += 1
    return found


def draw(seed: int) -> list[Mutant]:
    """A sample of mutants of every subpackage, at different lines; of a line first the kind, then the mutant.

    :param seed: the seed of the sample.
    """
    chooser = random.Random(seed)
    found = []
    for part, number in NUMBERS.items():
        by_line: dict[tuple[str, int], dict[str, list[Mutant]]] = defaultdict(lambda: defaultdict(list))
        for path in sorted((ROOT / "rfgp" / part).rglob("*.py")):
            for mutant, place in mutants(path).items():
                by_line[str(path), place.line][mutant.operator.split("_")[0]].append(mutant)
        for line in chooser.sample(sorted(by_line), number):
            kind = chooser.choice(sorted(by_line[line]))
            found.append(chooser.choice(by_line[line][kind]))
    return found


def all_codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """A code object and those inside it, by their qualified names and first lines."""
    found = {(code.co_qualname, code.co_firstlineno): code}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= all_codes(constant)
    return found


def functions_of_package() -> list[FunctionType]:
    """The functions of this process that the package has."""
    gc.unfreeze()  # what is frozen is not among the objects
    package = str(ROOT / "rfgp")
    found = [f for f in gc.get_objects() if isinstance(f, FunctionType) and f.__code__.co_filename.startswith(package)]
    gc.freeze()
    return found


def apply(mutant: Mutant, place: Place, functions: list[FunctionType]) -> None:
    """Replace the code of the functions that a mutant changes.

    :param mutant: the mutant.
    :param place: where it is.
    :param functions: all functions of the package.
    :raises ValueError: if the code stays the same, no function has it, or one that has it cannot have the new one.
    """
    path = ROOT / mutant.file
    source = path.read_text(encoding="utf-8")
    changed = mutate_code(source, operator_of(mutant.operator), place.occurrence)
    old, new = (all_codes(compile(text, str(path), "exec")) for text in (source, changed))
    if old == new:
        raise ValueError("The mutant is the same code.")
    num_changed = 0
    for function in functions:
        if function.__code__.co_filename == str(path):
            key = function.__code__.co_qualname, function.__code__.co_firstlineno
            if key in new and new[key] != old[key]:
                function.__code__ = new[key]
                num_changed += 1
    if not num_changed:
        raise ValueError("No function has the code of the mutant.")


def executed(path: Path, mutant: Mutant, line: int) -> range:
    """The lines of the statement of a mutant, without the statements inside it; of a removed branch its first line."""
    inside = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno
    ]
    innermost = max(inside, key=lambda node: (node.lineno, -node.end_lineno))
    if isinstance(innermost, ast.If) and mutant.operator == f"{OWN}/RemoveBranch" and not mutant.column:
        branch = innermost.orelse if mutant.text.startswith("else") else innermost.body
        return range(branch[0].lineno, branch[0].lineno + 1)
    is_block = hasattr(innermost, "body")
    return range(innermost.lineno, (line if is_block else innermost.end_lineno) + 1)


class Durations:
    """Plugin: the seconds of each test, in a file."""

    def __init__(self, path: Path) -> None:
        self._path, self._seconds = path, defaultdict(float)

    def pytest_runtest_logreport(self, report):
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self):
        self._path.write_text(json.dumps(self._seconds))


class Judges:
    """Plugin: in place of the tests, forks that run some of them, each with a mutant.

    :param chosen: the mutants.
    :param measured: the directory of the coverage and the durations.
    :param out: the file that gets a line for each mutant.
    :param budget: how many seconds the tests of a mutant may take, before mutation.
    :param jobs: how many forks run at a time.
    """

    def __init__(self, chosen: list[Mutant], measured: Path, out: Path, budget: float, jobs: int) -> None:
        self._chosen, self._out, self._budget, self._jobs = chosen, out, budget, jobs
        self._seconds = json.loads((measured / "durations.json").read_text())
        self._coverage = coverage.CoverageData(str(measured / ".coverage"))
        self._coverage.read()

    def pytest_runtestloop(self, session):
        items = {item.nodeid: item for item in session.items}
        for file in {mutant.file for mutant in self._chosen if (ROOT / mutant.file).exists()}:
            importlib.import_module(".".join(Path(file).with_suffix("").parts).removesuffix(".__init__"))
        self._functions = functions_of_package()
        work, running = self._work(items), {}
        with self._out.open("a") as out:
            while True:
                if len(running) < self._jobs and (task := next(work, None)) is not None:
                    mutant, place, names = task
                    if place is None or not names:
                        verdict = "gone" if place is None else "uncovered"
                        out.write(json.dumps(dataclasses.asdict(mutant) | {"verdict": verdict}) + "\n")
                        continue
                    read, write = os.pipe()
                    process = os.fork()
                    if not process:
                        self._judge(mutant, place, [items[name] for name in names], write)
                    os.close(write)
                    limit = time.monotonic() + 60 + 5 * sum(self._seconds.get(name, 0.0) for name in names)
                    running[process] = mutant, place, read, limit
                elif not running:
                    return True
                else:
                    self._collect(running, out)

    def _collect(self, running, out) -> None:
        """Write the verdicts of forks that have ended."""
        time.sleep(0.02)
        for process, (mutant, place, read, limit) in list(running.items()):
            late = time.monotonic() > limit
            if late:
                os.kill(process, signal.SIGKILL)
            if late or os.waitpid(process, os.WNOHANG)[0]:
                if late:
                    os.waitpid(process, 0)
                with os.fdopen(read) as pipe:
                    killer = pipe.read()
                killer = killer or ("time" if late else "")
                verdict = INVALID if killer == INVALID else "killed" if killer else "survived"
                line = dataclasses.asdict(mutant) | {"verdict": verdict, "by": killer, "line": place.line}
                out.write(json.dumps(line) + "\n")
                out.flush()
                del running[process]

    def _work(self, items):
        """Every mutant, where it is now, and the tests to run."""
        for file, group in itertools.groupby(sorted(self._chosen, key=lambda m: m.file), key=lambda m: m.file):
            path = ROOT / file
            places = mutants(path) if path.exists() else {}
            contexts = self._coverage.contexts_by_lineno(str(path))
            for mutant in group:
                place = places.get(mutant)
                lines = executed(path, mutant, place.line) if place else ()
                names = {context.rsplit("|", 1)[0] for line in lines for context in contexts.get(line, [])}
                yield mutant, place, self._ordered(names & set(items), mutant)

    def _ordered(self, names, mutant):
        """First the tests of the subpackage, in half of the budget, then others; of every file in turn the fastest."""
        folders = own_folders(mutant.file)
        own = {name for name in names if name.startswith(folders)}
        found, left = [], self._budget
        for group, share in ((own, 0.5), (names - own, 1.0)):
            available = share * left
            by_file = defaultdict(list)
            for name in sorted(group, key=lambda name: (self._seconds.get(name, 0.0), name)):
                by_file[name.split("::")[0]].append(name)
            files = (by_file[file] for file in sorted(by_file))
            for name in filter(None, itertools.chain(*itertools.zip_longest(*files))):
                seconds = self._seconds.get(name, 0.0)
                if seconds <= available:
                    found.append(name)
                    available -= seconds
                    left -= seconds
        return found

    def _judge(self, mutant, place, items, pipe) -> None:
        """In a fork: run tests with the mutant, and write the name of the first that fails."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        session = items[0].session
        try:
            apply(mutant, place, self._functions)
        except (SyntaxError, ValueError):
            os.write(pipe, INVALID.encode())
            os._exit(0)
        try:
            for item, following in itertools.zip_longest(items, items[1:]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    os.write(pipe, item.nodeid.encode())
                    break
        except BaseException as error:
            os.write(pipe, f"{type(error).__name__} outside of tests".encode())
        os._exit(0)


def report(path: Path) -> str:
    """Killed mutants by subpackage, how many by its own tests, and those that survived.

    :param path: the file of the results.
    """
    found = [json.loads(line) for line in path.read_text().splitlines()]
    lines = []
    for part in (*NUMBERS, ""):
        here = [
            r
            for r in found
            if r["file"].startswith(f"rfgp/{part}/" if part else "") and r["verdict"] not in ("gone", INVALID)
        ]
        killers = [r for r in here if r["verdict"] == "killed"]
        own = sum(r["by"].startswith(own_folders(r["file"])) for r in killers)
        share = len(killers) / max(len(here), 1)
        lines.append(f"{part or 'all':13} {len(killers):4} of {len(here):4} killed, {share:6.1%}; {own:4} by own tests")
    lines += [
        f"{r['verdict']}: {r['file']}:{r.get('line')} {r['function']} {r['operator'].split('/')[1]} {r['text'][:90]}"
        for r in found
        if r["verdict"] != "killed"
    ]
    return "\n".join(lines)


def main() -> int:
    """Draw mutants, measure the tests, run them, or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    part = commands.add_parser("draw")
    part.add_argument("mutants", type=Path)
    part.add_argument("--seed", type=int, default=0)
    part = commands.add_parser("measure")
    part.add_argument("measured", type=Path)
    part = commands.add_parser("run")
    for name in ("mutants", "measured", "results"):
        part.add_argument(name, type=Path)
    part.add_argument("--budget", type=float, default=60.0, help="seconds of tests for a mutant (default: %(default)s)")
    part.add_argument("--jobs", type=int, default=2)
    part = commands.add_parser("report")
    part.add_argument("results", type=Path)
    options = parser.parse_args()
    if options.command == "draw":
        check_examples()
        options.mutants.write_text(json.dumps([dataclasses.asdict(mutant) for mutant in draw(options.seed)], indent=0))
        return 0
    if options.command == "measure":
        options.measured.mkdir(exist_ok=True)
        os.environ["COVERAGE_FILE"] = str((options.measured / ".coverage").resolve())
        arguments = ["-n", "2", "--cov=rfgp", "--cov-context=test", "--cov-report=", "tests"]
        return pytest.main(arguments, plugins=[Durations((options.measured / "durations.json").resolve())])
    if options.command == "run":
        chosen = [Mutant(**fields) for fields in json.loads(options.mutants.read_text())]
        judges = Judges(chosen, options.measured, options.results.resolve(), options.budget, options.jobs)
        return pytest.main(["-p", "no:cacheprovider", "-p", "no:xdist", "tests"], plugins=[judges])
    print(report(options.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
