"""Figures against stored images, and whether they can be read without colors."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
from matplotlib.image import imread

IMAGES = Path(__file__).parents[1] / "study" / "plots" / "images"
"""PNG files by name. RFGP_WRITE_IMAGES=1 writes those that are missing: look at them before they are committed."""
_SIZE = 100.0  # dots per inch, small enough to commit
_TOLERANCE = 0.02  # root mean square of the difference in shades of grey, from 0 to 1; a lost line makes about 0.05


def grey(figure) -> np.ndarray:
    """The luminance of a figure, (height, width), from 0 for black to 1 for white."""
    figure.set_dpi(_SIZE)
    for _ in range(2):
        figure.draw_without_rendering()  # constrained layouts with equal scales settle at the second time
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=_SIZE, format="png", facecolor="white")
    buffer.seek(0)
    return _luminance(imread(buffer))


def assert_image(target, name: str) -> None:
    """Raise where a figure, or that of some Axes, differs from the image of that name."""
    figure = getattr(target, "figure", target)
    path = IMAGES / f"{name}.png"
    found = grey(figure)
    if not path.exists() and os.environ.get("RFGP_WRITE_IMAGES") == "1":
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, dpi=_SIZE, facecolor="white", metadata={"Software": None})
    assert path.exists(), f"{path.name} is missing: RFGP_WRITE_IMAGES=1 writes it"
    stored = _luminance(imread(path))
    assert found.shape == stored.shape, f"{name}: {found.shape} in place of {stored.shape}"
    difference = float(np.sqrt(np.mean((found - stored) ** 2)))
    assert difference < _TOLERANCE, f"{name}: differs by {difference:.3f}"


def assert_readable_in_grey(ax) -> None:
    """Raise where two lines with names differ by nothing but their hue."""
    styles = {}
    for line in ax.get_lines():
        if not line.get_label().startswith("_"):
            shade = round(float(_luminance(np.array(_rgb(line.get_color())))), 1)
            style = (shade, line.get_linestyle(), line.get_marker(), line.get_linewidth())
            assert styles.setdefault(style, line.get_label()) == line.get_label(), f"{line.get_label()} and {style}"


def _rgb(color):
    from matplotlib.colors import to_rgb

    return to_rgb(color)


def _luminance(pixels: np.ndarray) -> np.ndarray:
    return pixels[..., :3] @ np.array([0.2126, 0.7152, 0.0722])
