"""One method on one split, in an interpreter that has it: ``python -m accuracy.cell MODULE SET METHOD SEED``."""

from __future__ import annotations

import argparse
import importlib
import json
import time
import warnings
from pathlib import Path

from .rows import CLASSES, load, measured


def main() -> None:
    """Print the scores as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", help="of the methods: ours, peers or installed")
    parser.add_argument("set")
    parser.add_argument("method")
    parser.add_argument("seed", type=int)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--limit", type=int, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    module = importlib.import_module(f"accuracy.{options.module}")
    methods = module.CLASSES if options.set in CLASSES else module.NUMBERS
    rows = load(options.set, options.data_dir, options.seed, options.rows)
    time.perf_counter = time.process_time
    print("\n" + json.dumps(measured(methods[options.method], rows, options.limit)))


if __name__ == "__main__":
    main()
