"""Figures: what is drawn, checked on the Axes without rendering."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from images import assert_image, assert_readable_in_grey

from rfgp.study import plots
from rfgp.study.plots import Curve

pytest.importorskip("matplotlib")
WIDTHS = [64, 128, 256]


def curves(count=2):
    return {f"method {i}": Curve(WIDTHS, [3.0 + i, 2.0, 0.5], [0.1, 0.2, np.nan]) for i in range(count)}


def lines(ax):
    return [container.lines[0] for container in ax.containers]


def test_one_line_and_color_per_method():
    ax = plots.comparison(curves(10), xlabel="number of features", ylabel="KL")
    drawn = lines(ax)
    assert ax.get_legend_handles_labels()[1] == [f"method {i}" for i in range(10)]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale(), ax.get_yscale()) == (
        "number of features",
        "KL",
        "log",
        "log",
    )
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn}) == 10
    assert [line.get_color() for line in drawn[:8]] == list(plots.COLORS)
    assert drawn[1].get_ydata().tolist() == [4.0, 2.0, 0.5]


def test_error_bars_are_the_standard_errors():
    ax = plots.comparison(curves(1))
    segments = np.array(ax.containers[0].lines[2][0].get_segments())
    assert np.allclose(np.diff(segments[:, :, 1], axis=1)[:, 0], [0.2, 0.4, 0.0])
    assert lines(plots.comparison({"a": Curve([1.0, 2.0], [1.0, 2.0])}))[0].get_ydata().tolist() == [1.0, 2.0]


def test_values_without_a_place_leave_a_gap():
    ax = plots.comparison({"a": Curve([1.0, 2.0, 3.0], [np.inf, 0.0, 1.0])})
    assert np.isnan(lines(ax)[0].get_ydata()).tolist() == [True, True, False]
    ax = plots.comparison({"a": Curve([1.0, 2.0, 3.0], [np.nan, 0.0, -1.0])}, log_y=False)
    assert np.isnan(lines(ax)[0].get_ydata()).tolist() == [True, False, False]
    assert ax.get_yscale() == "linear"


def test_the_exact_model_is_dashed():
    ax = plots.comparison(curves(), exact=0.4, exact_x=100.0)
    dashed = [line for line in ax.lines if line.get_label() == "exact"]
    assert all(line.get_linestyle() == "--" for line in dashed)
    across, up = dashed
    assert list(across.get_ydata()) == [0.4, 0.4] and list(up.get_xdata()) == [100.0, 100.0]
    assert not [line for line in plots.comparison(curves()).lines if line.get_label() == "exact"]


def test_every_number_of_features_has_a_tick():
    ax = plots.comparison(curves(), log_x=2)
    assert ax.get_xticks().tolist() == WIDTHS
    assert [ax.xaxis.get_major_formatter()(value, 0) for value in WIDTHS] == ["64", "128", "256"]
    assert plots.comparison(curves(), log_x=None).get_xscale() == "linear"


def test_one_legend_for_all_panels(tmp_path):
    figure, axes = plots.figure(2, 3)
    assert axes.shape == (2, 3)
    for ax in axes.flat:
        plots.comparison(curves(), exact=1.0, exact_x=100.0, ax=ax)
    plots.legend(figure, list(axes.flat))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["exact", "method 0", "method 1"]
    assert {text.get_fontsize() for text in figure.legends[0].get_texts()} == {axes[0, 0].xaxis.label.get_fontsize()}
    assert figure.get_layout_engine() is not None
    figure.savefig(tmp_path / "figure.png", dpi=30)
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_one_legend_replaces_those_over_the_data():
    figure, axes = plots.figure(1, 1)
    plots.sobol_bars(["a", "b"], [0.3, 0.6], [0.4, 0.7], ax=axes[0, 0])
    plots.legend(figure, [axes[0, 0]])
    assert axes[0, 0].get_legend() is None
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["first order", "total"]


def test_bad_arrays():
    with pytest.raises(ValueError, match=r"expected arrays of one length for a, got \(2,\), \(1,\) and \(1,\)"):
        plots.comparison({"a": Curve([1.0, 2.0], [1.0])})


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"expected matplotlib for figures, got none; .* pip install '\.\[study\]'"):
        plots.figure(1, 1)


def grid(x, y):
    return np.stack(np.meshgrid(x, y), axis=-1)


def whirl(points):
    return np.stack([-points[..., 1], points[..., 0]], axis=-1)


def test_streamlines_follow_the_field_on_a_grid():
    points = grid(np.linspace(-1.0, 1.0, 21), np.linspace(-2.0, 2.0, 31))
    ax = plots.vector_field(points, whirl(points))
    (lines,) = ax.collections
    radii = [np.hypot(*np.asarray(segment).T) for segment in lines.get_segments()]
    assert len(radii) > 100 and max(np.ptp(radius) for radius in radii) < 0.02
    assert (ax.get_xlim(), ax.get_ylim(), ax.get_aspect()) == ((-1.0, 1.0), (-2.0, 2.0), 1.0)


@pytest.mark.parametrize("flip", [slice(None), slice(None, None, -1)])
def test_uneven_and_falling_coordinates_are_interpolated(flip):
    x, y = np.array([0.0, 1.0, 4.0, 5.0]), np.array([0.0, 3.0, 4.0])[flip]
    values = 2.0 * x[None] - y[:, None]
    even = np.linspace(0.0, 5.0, 7), np.linspace(0.0, 4.0, 5)
    np.testing.assert_allclose(plots.fields._resampled(values, x, y, *even), 2.0 * even[0][None] - even[1][:, None])
    points = grid(x, y)
    assert plots.vector_field(points, np.ones_like(points)).collections


def test_the_map_below_a_field_is_its_standard_deviation():
    points = grid(np.linspace(0.0, 1.0, 4), np.linspace(0.0, 1.0, 3))
    variance = np.stack([np.full((3, 4), 4.0), np.arange(12.0).reshape(3, 4)], axis=-1)
    for given in (variance, variance.sum(-1)):
        ax = plots.vector_field(points, points, given, label="sd")
        mesh = ax.collections[0]
        np.testing.assert_allclose(mesh.get_array().reshape(3, 4), np.sqrt(4.0 + variance[..., 1]))
        assert mesh.get_clim() == (2.0, np.sqrt(15.0))
        assert [other.get_ylabel() for other in ax.figure.axes] == ["", "sd"]
    assert len(plots.vector_field(points, points, variance, label=None).figure.axes) == 1


def test_scattered_points_have_arrows():
    points = np.random.default_rng(0).normal(size=(30, 2))
    ax = plots.vector_field(points, whirl(points), np.ones(30))
    triangles, arrows = ax.collections
    np.testing.assert_array_equal(arrows.get_offsets(), points)
    np.testing.assert_array_equal(np.stack([arrows.U, arrows.V], axis=-1), whirl(points))
    assert triangles.get_array().tolist() == [1.0] * 30


def test_a_function_in_the_plane(tmp_path):
    points = torch.as_tensor(grid(np.linspace(0.0, 1.0, 5), np.linspace(0.0, 2.0, 4)))
    values = (points[..., 0] - 0.25 * points[..., 1]).requires_grad_()
    ax = plots.scalar_field(points, values, levels=[0.0, 0.5], label="potential")
    mesh, contour = ax.collections
    np.testing.assert_array_equal(mesh.get_array().reshape(4, 5), values.detach())
    assert mesh.get_clim() == (-1.0, 1.0) and contour.levels.tolist() == [0.0, 0.5]
    scattered = plots.scalar_field(points.flatten(0, 1), values.flatten(), levels=3, limits=(0.0, 2.0))
    assert scattered.collections[0].get_clim() == (0.0, 2.0) and len(scattered.collections) == 2
    for drawn in (ax, scattered):
        drawn.figure.savefig(tmp_path / "figure.png", dpi=30)


def test_a_function_on_a_part_of_the_grid():
    points, values = grid(np.arange(4.0), np.arange(3.0)), np.arange(12.0).reshape(3, 4)
    values[0, 0] = np.nan
    ax = plots.scalar_field(points, values)
    (mesh,) = ax.collections
    assert mesh.get_clim() == (-11.0, 11.0)
    assert np.ma.getmaskarray(mesh.get_array()).ravel().tolist() == [True] + 11 * [False]


@pytest.mark.parametrize(
    ("points", "velocity", "message"),
    [
        ((3, 4, 2), (4, 3, 2), r"expected points and velocity of one shape.* got \(3, 4, 2\) and \(4, 3, 2\)"),
        ((5, 3), (5, 3), r"expected points and velocity of one shape, \(R, C, 2\) or \(N, 2\), got \(5, 3\)"),
        ((3, 4, 2), (3, 4, 2), "expected a grid with one first coordinate in every column"),
    ],
)
def test_bad_fields(points, velocity, message):
    with pytest.raises(ValueError, match=message):
        plots.vector_field(np.random.default_rng(0).normal(size=points), np.zeros(velocity))


def test_bad_functions():
    with pytest.raises(ValueError, match=r"expected points \(R, C, 2\) and values .* got \(4, 2\) and \(3,\)"):
        plots.scalar_field(np.zeros((4, 2)), np.zeros(3))
    points = grid(np.arange(3.0), np.arange(4.0))
    with pytest.raises(ValueError, match=r"got \(4, 3, 2\) and \(3, 4\)"):
        plots.vector_field(points, points, np.zeros((3, 4)))


def test_image_of_a_comparison():
    target, axes = plots.figure(1, 1, width=5.5)
    ax = plots.comparison(curves(3), exact=0.4, xlabel="number of features", ylabel="KL to exact (nats)", ax=axes[0, 0])
    plots.legend(target, [ax])
    assert_image(target, "comparison")
    assert_readable_in_grey(ax)
    ax.lines[0].remove()
    with pytest.raises(AssertionError, match="differs"):
        assert_image(target, "comparison")
