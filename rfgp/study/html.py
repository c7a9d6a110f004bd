"""HTML of one file that needs no network: a page, tables, and figures inside."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from string import Template
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOCUMENT = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 66rem; margin: 0 auto;
  padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }
.verdict { border-left: 4px solid #0072b2; background: #f3f7fa; padding: .6rem 1rem; margin: 1rem 0; }
.verdict p { font-size: 1.1rem; font-weight: 600; margin: .2rem 0; }
.verdict ul { margin: .5rem 0; padding-left: 1.2rem; }
.box { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #eee; }
th { border-bottom: 1px solid #888; font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
tbody + tbody tr:first-child td { border-top: 1px solid #999; }
.wrap td { white-space: normal; text-align: left; vertical-align: top; }
.wrap td:first-child { white-space: nowrap; color: #555; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
figure { margin: 0; }
img { max-width: 100%; height: auto; display: block; }
pre { overflow-x: auto; background: #f6f6f6; padding: .6rem; font-size: .8rem; line-height: 1.35; }
.note { color: #555; font-size: .85rem; }
@media print { body { max-width: none; font-size: 10pt; } .box, pre { overflow: visible; white-space: pre-wrap; }
  figure, tr, .verdict { break-inside: avoid; } }
</style>
</head>
<body>
$body
</body>
</html>
""")


def document(title: str, parts: Iterable[str]) -> str:
    """A page of parts, those that are not empty."""
    return _DOCUMENT.substitute(title=escape(title), body="\n".join(filter(None, parts)))


def image(figure: Figure, name: str) -> str:
    """A figure as an image inside the page; its name is read aloud where it is not seen."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    text = base64.b64encode(buffer.getvalue()).decode()
    return f'<figure><img alt="{escape(name, quote=True)}" src="data:image/png;base64,{text}"></figure>'


def table(header: Sequence[str], blocks: Iterable[Iterable[Sequence[str]]]) -> str:
    """A table that scrolls in a box of its own."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    bodies = "".join(f"<tbody>{''.join(f'<tr>{_cells(row)}</tr>' for row in block)}</tbody>" for block in blocks)
    return f'<div class="box"><table><thead><tr>{head}</tr></thead>{bodies}</table></div>'


def _cells(row: Sequence[str]) -> str:
    return "".join(f"<td>{escape(cell)}</td>" for cell in row)


def pairs(values: Mapping[str, Any]) -> str:
    """Names and values, a row each."""
    rows = "".join(f"<tr>{_cells([name, _text(value)])}</tr>" for name, value in values.items())
    return f'<div class="box"><table class="wrap"><tbody>{rows}</tbody></table></div>'


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
