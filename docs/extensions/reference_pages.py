"""The reference: a page for every public subpackage, found by its ``__all__``, and links by any name of an object."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer

import rfgp

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

USED_MOST = [
    "training",
    "models",
    "kernels",
    "likelihoods",
    "diagnostics",
    "approximation.selection",
    "study",
    "sklearn",
]
INTERNAL = ["features", "features.allocation", "inference", "linalg"]
INSIDE = [  # subpackages of rooms that users import from
    *(f"diagnostics.{name}" for name in ("bounds", "certificates", "conformal", "sensitivity", "two_sample")),
    *("approximation.selection", "features.allocation", "functionals.observations", "models.maps", "models.streams"),
    *(f"study.{name}" for name in ("datasets", "plots", "tables")),
]
FIRST = {  # what users of a package look for first; the others follow by name
    "rfgp.models": ["WeightSpaceGP", "LaplaceGP", "WeightSpaceVariationalGP", "HeteroscedasticGP"],
    "rfgp.training": ["fit", "FitSummary"],
    "rfgp.diagnostics": ["kl_to_exact"],
    "rfgp.approximation.selection": ["rank_methods", "suggest_num_features"],
    "rfgp.study": ["run", "StudyResult"],
}
EXTENDING = {  # what is for those who add to the package, behind what users call
    "rfgp.botorch": ["ModelSamples"],
    "rfgp.approximation": ["METHODS", "Family", "approximates", "family"],
    "rfgp.kernels": ["StationaryKernel"],
    "rfgp.models": ["WeightSpaceVariationalStrategy"],
    "rfgp.functionals": [
        "Polynomial",
        "PolynomialMatrix",
        "add",
        "adjoint",
        "adjoint_matrix",
        "degree",
        "evaluate",
        "matrix_product",
        "multiply",
    ],
}
MODULES = {"rfgp.models": ["rfgp.models.least_squares.simplex"]}  # modules that users import from
SKLEARN_PLUMBING = (
    "score, fit_transform, set_output, get_metadata_routing, set_fit_request, set_partial_fit_request, "
    "set_predict_request, set_score_request, set_transform_request, set_inverse_transform_request"
)
OPTIONS = {  # of the classes of a package, beside :members:
    "rfgp.botorch": {"exclude-members": "forward, load_state_dict"},
    "rfgp.likelihoods": {"exclude-members": "rsample"},
    "rfgp.models": {"inherited-members": "Module, tuple"},
    "rfgp.sklearn": {"inherited-members": "BaseEstimator", "exclude-members": SKLEARN_PLUMBING},
}


def packages() -> list[str]:
    """The public subpackages: those that users call most, the others by name, and the internal ones last."""
    found = [module.name for module in pkgutil.iter_modules(rfgp.__path__) if module.ispkg] + INSIDE
    public = [name for name in found if hasattr(importlib.import_module(f"rfgp.{name}"), "__all__")]
    others = sorted(set(public) - {*USED_MOST, *INTERNAL})
    return [f"rfgp.{name}" for name in [*USED_MOST, *others, *INTERNAL] if name in public]


def public_names(package: str) -> list[str]:
    """What the package exports, without its subpackages, as in ``__all__``."""
    module = importlib.import_module(package)
    return [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]


def is_documented_by_itself(thing: Any) -> bool:
    """Whether it is a class or a function, and not a constant or an alias of a type."""
    return inspect.isclass(thing) or inspect.isfunction(thing)


def summary(thing: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def constant_summary(package: str, name: str) -> str:
    """The docstring below a constant, in whichever file of the package it is defined."""
    path = importlib.import_module(package).__path__
    for module in [package, *(found.name for found in pkgutil.walk_packages(path, f"{package}."))]:
        try:
            docs = ModuleAnalyzer.for_module(module).find_attr_docs()
        except PycodeError:  # it is compiled
            continue
        if ("", name) in docs:
            return " ".join(" ".join(docs["", name]).split())
    return ""


def _heading(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n\n"


def _directive(kind: str, name: str, options: dict[str, str]) -> str:
    lines = "".join(f"   :{option}: {value}".rstrip() + "\n" for option, value in options.items())
    return f".. {kind}:: {name}\n{lines}\n"


def _entry(package: str, name: str) -> str:
    thing = getattr(importlib.import_module(package), name)
    if inspect.isclass(thing):
        return _directive("autoclass", f"{package}.{name}", {"members": "", **OPTIONS.get(package, {})})
    if inspect.isfunction(thing):
        return _directive("autofunction", f"{package}.{name}", {})
    value = {} if "<" in str(thing) else {"value": textwrap.shorten(str(thing), 300)}
    text = _directive("py:data", name, value)
    return text + f"   {constant_summary(package, name)}\n\n"


def page(package: str) -> str:
    """The page of a package: what it is, a table of its names, and every one of them."""
    extending = [name for name in EXTENDING.get(package, []) if name in public_names(package)]
    first = FIRST.get(package, [])
    plain = [*first, *(name for name in public_names(package) if name not in {*extending, *first})]
    text = _heading(package, "=") + _directive("automodule", package, {"no-members": ""})
    text += "".join(_entry(package, name) for name in plain)
    for module in MODULES.get(package, []):
        text += _heading(module, "-") + _directive("automodule", module, {"members": ""})
    if extending:
        text += _heading("For extensions", "-") + "".join(_entry(package, name) for name in extending)
    return text


def front_page() -> str:
    """The page of the names at the top of the package."""
    doors = [name for name in public_names("rfgp") if canonical_name(getattr(rfgp, name)) != f"rfgp.{name}"]
    text = _heading("rfgp", "=") + "The names that most scripts need are at the top of the package.\n\n"
    text += ".. list-table::\n   :widths: auto\n\n"
    text += "".join(
        f"   * - :py:obj:`rfgp.{name} <{canonical_name(getattr(rfgp, name))}>`\n     - {summary(getattr(rfgp, name))}\n"
        for name in doors
    )
    return text + "\n" + _directive("autofunction", "rfgp.approximate", {})


def index() -> str:
    """The page that lists the others."""
    internal = [package for package in packages() if package.removeprefix("rfgp.") in INTERNAL]
    groups = {"For users": ["rfgp", *(p for p in packages() if p not in internal)], "Internals": internal}
    text = _heading("Reference", "=")
    text += "Every public class and function, by subpackage. What most scripts need comes first.\n\n"
    for title, members in groups.items():
        text += _heading(title, "-") + ".. list-table::\n   :widths: auto\n\n"
        for package in members:
            text += f"   * - :doc:`{package} <{package}>`\n     - {summary(importlib.import_module(package))}\n"
        text += "\n.. toctree::\n   :hidden:\n\n" + "".join(f"   {package}\n" for package in members) + "\n"
    return text


def pages() -> dict[str, str]:
    """All pages of the reference, by the names of their files."""
    return {"index.rst": index(), "rfgp.rst": front_page(), **{f"{name}.rst": page(name) for name in packages()}}


def _canonical() -> Iterator[tuple[int, str]]:
    for package in reversed(["rfgp", *packages()]):
        for name in public_names(package):
            yield id(getattr(importlib.import_module(package), name)), f"{package}.{name}"


def canonical_name(thing: Any) -> str | None:
    """The name under which an object is documented: that in its subpackage."""
    names = dict(_canonical())
    home = (getattr(thing, "__module__", "") or "").split(".")[1:2]
    in_home = f"rfgp.{home[0]}.{getattr(thing, '__name__', '')}" if home else ""
    if any(in_home == f"{package}.{name}" for package in packages() for name in public_names(package)):
        return in_home
    return names.get(id(thing))


def _found(target: str) -> tuple[Any, list[str]] | None:
    """The longest importable part of a dotted name, and the members behind it."""
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        rest = parts[length:]
        while rest and isinstance(thing, ModuleType) and hasattr(thing, rest[0]):
            thing = getattr(thing, rest.pop(0))
        return thing, rest
    return None


def resolved(app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Element) -> nodes.Element | None:
    """The link to an object by a name other than its documented one: that of its file, or that of a subclass.

    Types in signatures that are not public stay text.
    """
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith("rfgp."):
        return None
    found = _found(target)
    if found is None:
        return None
    thing, members = found
    for owner in thing.__mro__ if inspect.isclass(thing) and members else [thing]:
        name = canonical_name(owner)
        if name is not None:
            full = ".".join([name, *members])
            link = env.domains.python_domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, contnode)
            if link is not None:
                return link
    return None if members and not inspect.isclass(thing) else contnode


def is_alias(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of named tuples, which their class describes."""
    return True if (getattr(thing, "__doc__", None) or "").startswith("Alias for field number") else None


def write(folder: Path, texts: dict[str, str]) -> None:
    """Write files that have changed, and remove those that are not wanted any more."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.is_file() and path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def generate(app: Sphinx) -> None:
    write(Path(app.srcdir) / "reference", pages())


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", generate)
    app.connect("missing-reference", resolved)
    app.connect("autodoc-skip-member", is_alias)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
