"""Who may import whom, and what every file of the package has to have; read from the source, without running it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import reference_pages
import rooms
from syntax import nodes

import rfgp

ROOT = Path(rfgp.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if "__pycache__" not in path.parts)

REPOSITORY = ROOT.parent
PAGE, GUIDE = REPOSITORY / "docs" / "architecture.md", REPOSITORY / "CONTRIBUTING.md"
REFERENCE = re.compile(r"`((?:rfgp|benchmarks|docs|tests)/[\w/]*(?:\.py|\.md|/))(?::([\w.]+))?`")


def tables(page):
    """The rows of all tables of a page, by the heading of their first column: lists of cells."""
    found, heading = {}, None
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            heading = None
        elif heading is None:
            heading = cells[0]
            found[heading] = []
        elif set(cells[0]) != {"-"}:
            found[heading].append(cells)
    return found


def names(cell):
    return [name.strip().strip("`") for name in cell.split(",") if name.strip()]


def test_the_page_shows_the_rooms_that_there_are():
    """Written by ``python docs/extensions/rooms.py``."""
    assert PAGE.read_text(encoding="utf-8") == rooms.with_table(PAGE.read_text(encoding="utf-8"))
    assert rooms.PICTURE.read_text(encoding="utf-8") == rooms.picture()


def test_rooms_in_a_circle_are_an_error(monkeypatch):
    monkeypatch.setattr(rooms, "imports", lambda: {"a": {"b"}, "b": {"a"}, "c": set()})
    with pytest.raises(ValueError, match="a circle in a, b"):
        rooms.floors()


def test_paragraphs_of_the_page_begin_a_sentence():
    """A line that begins in lower case goes on from one that does not end."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    pairs = zip(["", *lines], lines, strict=False)
    assert [line for before, line in pairs if line[:1].islower() and (not before or before.endswith("."))] == []


def module_name(path):
    parts = ("rfgp", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_inside(name, package):
    return name == package or name.startswith(package + ".")


def is_inside_any(name, packages):
    return any(is_inside(name, package) for package in packages)


def resolved(node, path):
    """Absolute names of what an import statement imports: modules, or names in modules."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    base = package[: len(package) - node.level + 1] if node.level else []
    prefix = ".".join([*base, *([node.module] if node.module else [])])
    return [f"{prefix}.{alias.name}" for alias in node.names]


def is_for_types(node):
    """Whether what is inside is for type checkers alone."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports_within(path, choose):
    """The import statements inside the nodes of a file that are chosen."""
    inner = (inner for node in nodes(path) if choose(node) for inner in ast.walk(node))
    return {node for node in inner if isinstance(node, ast.Import | ast.ImportFrom)}


def imports(path):
    """What a file imports where it runs, with lines."""
    for_types = imports_within(path, is_for_types)
    found = (node for node in nodes(path) if isinstance(node, ast.Import | ast.ImportFrom) and node not in for_types)
    return [(name, node.lineno) for node in found for name in resolved(node, path)]


def test_relative_imports_are_resolved():
    entry, checks = ROOT / "approximation" / "entry.py", ROOT / "_support" / "checks.py"
    (node,) = ast.parse("from .._support import checks").body
    assert resolved(node, entry) == ["rfgp._support.checks"]
    (node,) = ast.parse("from ..features import FeatureMap, TensorSRHT as T").body
    assert resolved(node, entry) == ["rfgp.features.FeatureMap", "rfgp.features.TensorSRHT"]
    (node,) = ast.parse("from .maps import MapRecipe").body
    assert resolved(node, entry) == ["rfgp.approximation.maps.MapRecipe"]
    assert resolved(node, ROOT / "approximation" / "__init__.py") == ["rfgp.approximation.maps.MapRecipe"]
    (node,) = ast.parse("import gpytorch.kernels as k, math").body
    assert resolved(node, checks) == ["gpytorch.kernels", "math"]


def layer_of(name):
    """The room of a module, or of a name in it."""
    return ".".join(name.split(".")[:2])


def test_nothing_below_the_kernels_imports_those_of_gpytorch():
    below = {f"rfgp.{name}" for name in (*rooms.below("kernels"), *rooms.below("inference"), "inference", "data")}
    files = [path for path in FILES if is_inside_any(module_name(path), below) and path.name != "gpytorch_names.py"]
    assert len(files) > 100
    for path in files:
        found = [name for name, _ in imports(path) if is_inside_any(name, {"gpytorch.kernels", "gpytorch.models"})]
        assert not found, path


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
PRIVATE = re.compile(r"_[a-z]\w*")


def private_uses(path):
    """Private members of other objects than ``self`` and ``cls`` that a file reads, and does not define itself."""
    read = [node for node in nodes(path) if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr)]
    own = {node.attr for node in read if is_self(node.value)} | {"_replace", "_asdict", "_fields", "_make"}
    own |= {node.name for node in nodes(path) if isinstance(node, FUNCTIONS | ast.ClassDef)}
    own |= {node.target.id for node in nodes(path) if isinstance(node, ast.AnnAssign) and hasattr(node.target, "id")}
    for node in read:
        if not is_self(node.value) and node.attr not in own:
            yield node.lineno, node.attr


def is_self(node):
    is_super = isinstance(node, ast.Call) and ast.unparse(node.func) == "super"
    return is_super or (isinstance(node, ast.Name) and node.id in ("self", "cls"))


def test_private_members_are_used_in_the_file_of_their_class_alone():
    """Those of GPyTorch and PyTorch are read in ``_support``; a column of BoTorch's transform is the one exception."""
    files = [path for path in FILES if path.name not in ("gpytorch_names.py", "torch_names.py")]
    found = {(path.name, name) for path in files for _, name in private_uses(path)}
    assert found == set()


def found(file, name):
    """What a file of the package has under a dotted name."""
    value = importlib.import_module(module_name(REPOSITORY / file))
    for part in name.split("."):
        value = inspect.getattr_static(value, part)
    return value


@pytest.mark.parametrize("page", [PAGE, GUIDE], ids=lambda page: page.name)
def test_files_and_names_on_a_page_exist(page):
    references = REFERENCE.findall(page.read_text(encoding="utf-8"))
    assert len(references) > 5
    for file, name in references:
        assert (REPOSITORY / file).exists(), file
        if name:
            value = found(file, name)
            own = getattr(value, "__module__", module_name(REPOSITORY / file))
            assert own == module_name(REPOSITORY / file), f"{name} is defined in {own}"


@pytest.mark.parametrize("row", tables(GUIDE)["class"], ids=lambda row: row[0].rpartition(":")[2].strip("`"))
def test_the_guide_names_the_members_that_are_abstract(row):
    ((file, name),) = REFERENCE.findall(row[0])
    assert set(names(row[1])) == found(file, name).__abstractmethods__


def imported_files(path, modules):
    """The modules of rfgp that run where a file is imported or its functions are called, beside its own packages."""
    name = module_name(path)
    found = set()
    for imported, _ in imports(path):
        parts = imported.split(".")
        prefixes = [".".join(parts[:i]) for i in range(1, len(parts) + 1)]
        known = [prefix for prefix in prefixes if prefix in modules]
        found |= {known[-1], *(package for package in known if not is_inside(name, package))} if known else set()
    return found - {name}


def a_circle(graph):
    """The names on a circle of a directed graph, or none."""
    done = set()

    def visit(name, way):
        if name in way:
            return way[way.index(name) :]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if circle := visit(other, [*way, name]):
                return circle
        done.add(name)
        return []

    return next((circle for name in graph if (circle := visit(name, []))), [])


def test_circles_are_found():
    assert a_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert a_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_file_imports_itself_by_way_of_others():
    """Neither at once nor inside a function; a file of a package runs after its __init__."""
    modules = {module_name(path) for path in FILES}
    assert a_circle({module_name(path): imported_files(path, modules) for path in FILES}) == []


def test_no_assert_statements():
    lines = [(path.name, node.lineno) for path in FILES for node in nodes(path) if isinstance(node, ast.Assert)]
    assert not lines, f"raise a ValueError instead of asserting in {lines}"


def is_lazy(node):
    """Whether what is inside runs only where a function is called, or a type checker looks at it."""
    return is_for_types(node) or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


DOORS = {"rfgp.botorch": {"botorch"}, "rfgp.dask": {"dask"}, "rfgp.sklearn": {"sklearn"}}
"""Subpackages that ``import rfgp`` does not import, with the packages to which they are the doors."""


def test_plotting_and_study_packages_are_imported_lazily():
    optional = {"botorch", "dask", "distributed", "matplotlib", "sklearn", "pandas", "pyarrow", "zarr"}
    for path in FILES:
        lazy = imports_within(path, is_lazy)
        foreign = optional - DOORS.get(layer_of(module_name(path)), set())
        for node in nodes(path):
            if isinstance(node, ast.Import | ast.ImportFrom) and node not in lazy:
                assert not any(is_inside_any(name, foreign) for name in resolved(node, path)), (path, node.lineno)


def modules_after(code):
    """The modules that a new process has imported after a line of code, one a line."""
    code = f"import sys; {code}; print(*sys.modules, sep=chr(10))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_package_and_its_help_import_neither_pytorch_nor_numpy():
    """A command, wrong ones and wrong options among them, is parsed before what it needs is imported."""
    calls = [["--help"], ["fitt"], ["fit", "--help"], ["predict", "--colour"], ["study", "--help"], ["compare"]]
    code = f"""
import contextlib
from rfgp.__main__ import main
for arguments in {calls}:
    with contextlib.suppress(SystemExit):
        main(arguments)
    """
    imported = modules_after(f"exec({code!r})")
    assert "rfgp.study.commands.compare" in imported and not {"numpy", "torch"} & set(imported)


def test_one_import_is_enough_and_imports_no_heavy_packages():
    """Subpackages of rooms and what a user calls are there, in a process where nothing has imported them before."""
    known = "import torch, gpytorch, operator, sys; known = set(sys.modules)"
    paths = [*reference_pages.INSIDE, "approximation.family", "models.WeightSpaceGP"]
    used = f"import rfgp; [operator.attrgetter(name)(rfgp) for name in {paths} + rfgp.__all__]"
    imported = modules_after(f"{known}; {used}; [sys.modules.pop(name) for name in known]")
    assert "rfgp.training" in imported
    heavy = (
        "matplotlib",
        "sklearn",
        "pandas",
        "pyarrow",
        "zarr",
        "dask",
        "distributed",
        "botorch",
        "pyro",
        "torch._dynamo",
        "torch._inductor",
        "numpy.f2py",
    )
    parts = ("constants", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "sparse", "spatial")
    heavy += tuple(f"scipy.{part}" for part in (*parts, "special", "stats"))
    assert not [name for name in imported if is_inside_any(name, heavy)]


def public(nodes, kind):
    return [node for node in nodes if isinstance(node, kind) and not node.name.startswith("_")]


def overrides(module, class_name, name):
    """Whether a method stands in for one of a base class, which documents it."""
    cls = getattr(importlib.import_module(module), class_name)
    return any(name in vars(base) for base in cls.__mro__[1:])


def is_setter(function):
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(decorator.endswith((".setter", ".deleter")) for decorator in decorators)


def undocumented(path):
    tree, module = nodes(path)[0], module_name(path)
    if ast.get_docstring(tree) is None and tree.body:
        yield path.name
    for node in public(tree.body, FUNCTIONS | ast.ClassDef):
        if ast.get_docstring(node) is None:
            yield f"{path.name}:{node.lineno} {node.name}"
    for node in public(tree.body, ast.ClassDef):
        for member in public(node.body, FUNCTIONS):
            is_new = not is_setter(member) and not overrides(module, node.name, member.name)
            if is_new and ast.get_docstring(member) is None:
                yield f"{path.name}:{member.lineno} {node.name}.{member.name}"


def test_everything_public_has_a_docstring():
    assert [(path.name, name) for path in FILES for name in undocumented(path)] == []


def test_subpackages_export_what_exists():
    for path in [path for path in FILES if path.name == "__init__.py" and path.parent != ROOT]:
        module = importlib.import_module(module_name(path))
        assert Path(inspect.getfile(module)) == path
        names = getattr(module, "__all__", [])
        assert all(hasattr(module, name) for name in names) and len(set(names)) == len(names), path
        assert names or path.parent.parent != ROOT or path.parent.name == "_support", path
