"""Another commit of the package beside this one, under the name ``rfgp_old``; the registry of models, for both.

``python tests/old_version.py COMMIT`` writes it into ``.old``; with that folder on the path, ``import rfgp, rfgp_old``
works in one process. ``python tests/reference.py against COMMIT`` compares what all models of the registry compute.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
FOLDER = ROOT / ".old"
NAME = re.compile(r"\brfgp\b")


def renamed(text: str, modules: tuple[str, ...] = ()) -> str:
    """A source text that imports the old package, and the copies of some modules made for it.

    >>> renamed("import rfgp.models\\nfrom problems import rows", ("problems",))
    'import rfgp_old.models\\nfrom old_problems import rows'
    """
    text = NAME.sub("rfgp_old", text).replace('version("rfgp_old")', 'version("rfgp")')
    names = "|".join(modules)
    text = re.sub(rf"^import ({names})$", r"import old_\1 as \1", text, flags=re.MULTILINE)
    return re.sub(rf"^from ({names}) import", r"from old_\1 import", text, flags=re.MULTILINE)


def install(commit: str, folder: Path = FOLDER) -> Path:
    """Write the package of a commit, and the references of this checkout for it, into a new folder.

    :raises ValueError: for an unknown commit.
    """
    done = subprocess.run(["git", "archive", commit, "rfgp"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"expected a commit of this repository, got {commit!r}; see git log")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    (folder / "rfgp").rename(folder / "rfgp_old")
    for path in folder.rglob("*.py"):
        path.write_text(renamed(path.read_text(encoding="utf-8")), encoding="utf-8")
    sources = [HERE / "reference.py", HERE / "reference_models.py", *(HERE / "support").glob("*.py")]
    modules = tuple(source.stem for source in sources)
    for source in sources:
        text = renamed(source.read_text(encoding="utf-8"), modules)
        (folder / f"old_{source.name}").write_text(text, encoding="utf-8")
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    print(install(parser.parse_args().commit))
