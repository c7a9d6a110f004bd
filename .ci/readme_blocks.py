"""Run every Python block of the README alone, by the interpreter that runs this script."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
for number, block in enumerate(blocks, 1):
    with tempfile.TemporaryDirectory() as elsewhere:
        command = [sys.executable, "-W", "ignore", "-c", block]
        subprocess.run(command, cwd=elsewhere, check=True, stdout=subprocess.DEVNULL)
    print(f"block {number} of {len(blocks)}: runs")
