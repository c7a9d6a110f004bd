"""What results say for pages, computed again from their cells: ``python benchmarks/claims.py``, which measures nothing.

A script whose pages show more than numbers of single cells has a function ``claims`` of its result. It writes what this
returns beside the cells, under "claims", and so does this script, after such a function has changed.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import HERE, write


def stored() -> Iterator[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """Every result whose script has claims: its path, its content, and the claims that follow from its cells."""
    for path in sorted((HERE / "results").glob("*.json")):
        function = runpy.run_path(str(HERE / f"{path.stem}.py")).get("claims")
        if function is not None:
            result = json.loads(path.read_text(encoding="utf-8"))
            yield path, result, function(result)


def main() -> None:
    """Write the claims of all results."""
    for path, result, found in stored():
        write(path, result | {"claims": found})


if __name__ == "__main__":
    main()
