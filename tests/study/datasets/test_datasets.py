"""Data sets: the built-in ones, the user's own files, and what is said where a file is not as it should be."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from rfgp.study import datasets
from rfgp.study.datasets import LOADERS, Dataset, read_archive, wind
from rfgp.study.datasets.loaders import Archive, Bundled

ARCHIVES = [name for name, source in LOADERS.items() if isinstance(source, Archive)]
BUNDLED = [name for name, source in LOADERS.items() if isinstance(source, Bundled)]
SEVERAL = [name for name, source in LOADERS.items() if source.outputs]
ROWS = 40


def random_numbers(*shape):
    return np.random.default_rng(1).normal(size=shape)


def archived(name, directory):
    """An archive like the real one, but small."""
    source, x = LOADERS[name], np.abs(random_numbers(ROWS, 3)).astype(np.float32)
    y = np.arange(ROWS) % 4 if source.task == "classification" else random_numbers(ROWS)
    if source.outputs:
        y = np.stack([y + 10 * i for i in range(len(source.outputs))], axis=-1)
    if name == "mnist":
        arrays = {"x_train": x[:30], "y_train": y[:30], "x_test": x[30:], "y_test": y[30:]}
    else:
        arrays = {"x": x, "y": y}
    np.savez(directory / f"{name}.npz", **arrays)
    return x, y


def npz(directory, **arrays):
    path = directory / "table.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("name", LOADERS)
def test_the_catalog_says_what_is_in_a_data_set_and_where_it_comes_from(name):
    source = LOADERS[name]
    assert source.name == name and source.description[0].isdigit() and source.provenance and source.licence


@pytest.mark.parametrize(("name", "rows", "columns"), [("digits", 1797, 64), ("diabetes", 442, 10)])
def test_bundled_data(name, rows, columns):
    data, again = datasets.load(name), datasets.load(name)
    assert LOADERS[name].description.startswith(f"{rows:,} ")
    assert len(data.x_test) == round(0.2 * rows)
    assert data.x_train.shape == (rows - len(data.x_test), columns)
    assert data.x_train.dtype == data.x_test.dtype == torch.float64
    assert torch.equal(data.x_test, again.x_test) and torch.equal(data.y_train, again.y_train)
    assert data.num_classes == (10 if name == "digits" else None)
    assert data.scaling == ("unit" if name == "digits" else "standardize")


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(name, tmp_path):
    x, y = archived(name, tmp_path)
    data = datasets.load(name, tmp_path)
    source = LOADERS[name]
    assert (data.name, data.task, data.licence) == (name, source.task, source.licence)
    if name == "mnist":
        assert np.array_equal(data.x_train.numpy(), x[:30]) and np.array_equal(data.y_test.numpy(), y[30:])
    else:
        target = y if y.ndim == 1 else y[:, 0]
        assert len(data.x_train) == 32 and len(data.x_test) == 8
        rows = {(*row, value) for row, value in zip(x.tolist(), target.tolist(), strict=True)}
        both = zip(torch.cat([data.x_train, data.x_test]), torch.cat([data.y_train, data.y_test]), strict=True)
        assert {(*row.tolist(), value.item()) for row, value in both} == rows
    assert data.num_classes == (4 if source.task == "classification" else None)
    assert data.outputs == source.outputs[:1] and data.num_outputs == 1


@pytest.mark.parametrize("name", SEVERAL)
def test_several_outputs(name, tmp_path):
    _, y = archived(name, tmp_path)
    outputs = LOADERS[name].outputs
    both = datasets.load(name, tmp_path, output="all")
    assert both.y_train.shape == (32, len(outputs)) and both.y_test.shape == (8, len(outputs))
    assert (both.outputs, both.num_outputs) == (outputs, len(outputs))
    assert sorted(torch.cat([both.y_train, both.y_test]).tolist()) == sorted(y.tolist())
    for i, output in enumerate(outputs):
        for chosen in (output, i):
            one = datasets.load(name, tmp_path, output=chosen)
            assert one.outputs == (output,) and one.num_outputs == 1
            assert torch.equal(one.y_train, both.y_train[:, i]) and torch.equal(one.y_test, both.y_test[:, i])
            assert torch.equal(one.x_train, both.x_train)
    assert torch.equal(datasets.load(name, tmp_path).y_train, both.y_train[:, 0])


def test_the_heating_load_is_the_default(tmp_path):
    archived("energy", tmp_path)
    assert LOADERS["energy"].outputs == ("heating_load", "cooling_load")
    heating = datasets.load("energy", tmp_path, output="heating_load")
    assert torch.equal(datasets.load("energy", tmp_path).y_train, heating.y_train)


@pytest.mark.parametrize("output", ["warmth", 2, -1, True, 0.0, "0"])
def test_unknown_outputs(output, tmp_path):
    archived("energy", tmp_path)
    message = r'expected one of heating_load, cooling_load, an index from 0 to 1 or "all" .* energy, got '
    with pytest.raises(ValueError, match=message + repr(output)):
        datasets.load("energy", tmp_path, output=output)


@pytest.mark.parametrize("output", ["all", 0, "y"])
def test_a_single_output_has_no_name(output, tmp_path):
    archived("yacht", tmp_path)
    with pytest.raises(ValueError, match=f"expected no output for yacht, which has one, got {output!r}; leave it out"):
        datasets.load("yacht", tmp_path, output=output)


@pytest.mark.parametrize("y", [random_numbers(ROWS), random_numbers(ROWS, 3)])
def test_archives_with_another_number_of_outputs(y, tmp_path):
    np.savez(tmp_path / "energy.npz", x=random_numbers(ROWS, 8), y=y)
    with pytest.raises(ValueError, match=r"expected targets of energy of shape \(N, 2\), got \(40"):
        datasets.load("energy", tmp_path)


def test_the_data_directory_can_come_from_the_environment(tmp_path, monkeypatch):
    archived("yacht", tmp_path)
    monkeypatch.delenv("RFGP_DATA", raising=False)
    with pytest.raises(ValueError, match=r"expected a data directory with yacht\.npz, got none; pass .*RFGP_DATA"):
        datasets.load("yacht")
    monkeypatch.setenv("RFGP_DATA", str(tmp_path))
    assert len(datasets.load("yacht").x_train) == 32


def test_bad_archives(tmp_path):
    with pytest.raises(ValueError, match=r"expected one of concrete, .*got 'moons'"):
        datasets.load("moons")
    with pytest.raises(ValueError, match=r"expected an existing file, got '.*yacht\.npz'"):
        datasets.load("yacht", tmp_path)
    (tmp_path / "yacht.npz").write_bytes(b"")
    with pytest.raises(ValueError, match="expected a NumPy archive of plain arrays, got"):
        datasets.load("yacht", tmp_path)
    np.savez(tmp_path / "yacht.npz", inputs=random_numbers(20, 2))
    with pytest.raises(ValueError, match="expected the array 'y' for yacht, got inputs"):
        datasets.load("yacht", tmp_path)


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (np.arange(20) % 3 - 1, "classification"),
        (np.arange(20) % 2 == 0, "classification"),
        (np.array(["u", "v"] * 10), "classification"),
        (np.arange(20.0).reshape(20, 1), "regression"),
    ],
)
def test_npz_files(tmp_path, y, task):
    x = random_numbers(20, 3).astype(np.float32)
    data = read_archive(npz(tmp_path, features=x, y=y), "y", inputs="features")
    assert data.task == task and data.x_train.shape == (16, 3)
    assert data.num_classes == (len(np.unique(y)) if task == "classification" else None)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.arange(20)}, r"expected one of the arrays of table\.npz \(y\) as the inputs, got 'x'"),
        ({"x": random_numbers(20, 2)}, r"expected one of the arrays of table\.npz \(x\) as the target, got 'y'"),
        ({"x": random_numbers(20), "y": np.arange(20)}, r"expected inputs 'x' .* \(N, d\) of numbers, got float64 of"),
        ({"x": np.full((20, 2), np.inf), "y": np.arange(20)}, "expected finite numbers in 'x' .* got 40 others"),
        ({"x": random_numbers(20, 2), "y": np.arange(19)}, r"expected a target 'y' .* of shape \(20,\), .*got \(19,\)"),
        ({"x": random_numbers(20, 2), "y": np.full(20, np.nan)}, "expected finite numbers in target 'y' .* got 20"),
        ({"x": random_numbers(20, 2), "y": np.ones(20) * 1j}, "expected numbers or strings .* got complex128"),
    ],
)
def test_bad_npz_files(tmp_path, arrays, message):
    with pytest.raises(ValueError, match=message):
        read_archive(npz(tmp_path, **arrays), "y")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(
        ValueError, match=r"expected a file that ends in \.npz, got 'table\.xlsx'; .* rfgp\.study\.tables\.read"
    ):
        read_archive("table.xlsx", "y")
    with pytest.raises(ValueError, match="expected an existing file, got"):
        read_archive(tmp_path / "none.npz", "y")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="expected a NumPy archive of plain arrays"):
        read_archive(tmp_path / "objects.npz", "y")


def test_a_data_set_is_checked():
    x, y = torch.randn(4, 2), torch.tensor([0.0, 1.0, 2.0, 3.0])
    about = {"task": "regression", "num_classes": None, "provenance": "", "licence": ""}
    with pytest.raises(ValueError, match="expected finite values in x_test, got 1"):
        Dataset("toy", x, y, torch.tensor([[0.0, float("nan")]]), torch.zeros(1), **about)
    with pytest.raises(ValueError, match="expected x_test with 2 columns, got 3"):
        Dataset("toy", x, y, torch.zeros(1, 3), torch.zeros(1), **about)
    two = torch.stack([y, torch.full_like(y, 7.0)], dim=-1)
    with pytest.raises(ValueError, match=r"expected targets of toy that vary .* got 7 in all of them"):
        Dataset("toy", x, two, torch.zeros(1, 2), torch.zeros(1, 2), **about)
    two[0, 1] = 8.0
    assert Dataset("toy", x, two, torch.zeros(1, 2), torch.zeros(1, 2), **about).num_outputs == 2
    with pytest.raises(ValueError, match=r"expected as many outputs in y_test as in y_train, 2, got .* \(1,\)"):
        Dataset("toy", x, two, torch.zeros(1, 2), torch.zeros(1), **about)
    with pytest.raises(ValueError, match=r"expected 2 names of outputs, .* got 1"):
        Dataset("toy", x, two, torch.zeros(1, 2), torch.zeros(1, 2), **about, outputs=("one",))
    two[0, 1] = float("inf")
    with pytest.raises(ValueError, match="expected finite values in y_train, got 1"):
        Dataset("toy", x, two, torch.zeros(1, 2), torch.zeros(1, 2), **about)


RADIUS = 1e6 * wind.EARTH_RADIUS


def spherical(lat, lon):
    """A WindField's arrays from potentials of degree one and two on the sphere, whose Laplacians are known."""
    phi, turn = np.meshgrid(np.radians(lat), np.radians(lon), indexing="ij")
    a, b, c = 5e7, 3e7, 2e7
    psi = a * np.sin(phi) + b * np.cos(phi) * np.cos(turn)
    chi = c * np.sin(phi) * np.cos(phi) * np.sin(turn)
    psi_phi = a * np.cos(phi) - b * np.sin(phi) * np.cos(turn)
    psi_turn = -b * np.sin(turn)  # divided by the cosine of the latitude, as is the next one
    chi_turn, chi_phi = c * np.sin(phi) * np.cos(turn), c * np.cos(2 * phi) * np.sin(turn)
    return {
        "lat": lat,
        "lon": lon,
        "u": (chi_turn - psi_phi) / RADIUS,
        "v": (chi_phi + psi_turn) / RADIUS,
        "streamfunction": psi,
        "velocity_potential": chi,
        "divergence": -6.0 * chi / RADIUS**2,
        "vorticity": -2.0 * psi / RADIUS**2,
    }


def wind_file(directory, lat, lon, others=None):
    np.savez(directory / "wind.npz", **(spherical(lat, lon) | (others or {})))
    return directory


GLOBE = (np.linspace(90.0, -90.0, 19), np.arange(0.0, 360.0, 10.0))


def test_wind_documents_where_it_comes_from(tmp_path):
    field = datasets.load_wind(wind_file(tmp_path, *GLOBE))
    assert f"Provenance: {field.provenance}." in wind.__doc__ and f"License: {field.licence}." in wind.__doc__


def test_wind_is_read_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("RFGP_DATA", str(wind_file(tmp_path, *GLOBE)))
    field, arrays = datasets.load_wind(), spherical(*GLOBE)
    for name, values in arrays.items():
        tensor = getattr(field, name)
        assert tensor.dtype == torch.float64 and np.array_equal(tensor.numpy(), values)
    assert field.u.shape == (19, 36)


@pytest.mark.parametrize(("lat", "lon"), [((35.0, 55.0), (-30.0, 40.0)), ((-60.0, 10.0), (330.0, 400.0))])
@pytest.mark.parametrize("projection", ["tangent", "mercator"])
def test_windows_select_points_from_west_to_east(projection, lat, lon, tmp_path):
    window = datasets.load_wind(wind_file(tmp_path, *GLOBE)).window(lat, lon, projection)
    rows = [value for value in GLOBE[0] if lat[0] <= value <= lat[1]]
    assert window.shape == (len(rows), 8) and window.projection == projection
    expected = spherical(np.array(rows), np.arange(lon[0], lon[1] + 1.0, 10.0))
    grid = {name: getattr(window, name).unflatten(0, window.shape).numpy() for name in ("lat", "lon")}
    np.testing.assert_allclose(grid["lat"], np.repeat(expected["lat"][:, None], 8, axis=1))
    np.testing.assert_allclose(grid["lon"], np.repeat(expected["lon"][None], len(rows), axis=0))
    scales = {"streamfunction": 1e-6, "velocity_potential": 1e-6, "divergence": 1e6, "vorticity": 1e6}
    for name, scale in scales.items():
        np.testing.assert_allclose(getattr(window, name).numpy(), scale * expected[name].ravel(), atol=1e-9)
    np.testing.assert_allclose(window.velocity[:, 0].numpy(), expected["u"].ravel(), atol=1e-9)
    np.testing.assert_allclose(window.velocity[:, 1].numpy(), expected["v"].ravel(), atol=1e-9)
    center = np.cos(np.radians(0.5 * (lat[0] + lat[1])))
    np.testing.assert_allclose(window.metric[:, 0].numpy(), np.cos(np.radians(window.lat.numpy())) / center)
    east = (window.x[0, 0] - window.x[1, 0]).abs().item()
    assert east == pytest.approx(wind.EARTH_RADIUS * center * np.radians(10.0))


def central(values, spacing, dim):
    """Central differences over the inner points."""
    n = values.shape[dim]
    return (values.narrow(dim, 2, n - 2) - values.narrow(dim, 0, n - 2)) / (
        spacing.narrow(dim, 2, n - 2) - spacing.narrow(dim, 0, n - 2)
    )


@pytest.mark.parametrize("projection", ["tangent", "mercator"])
def test_the_metric_turns_potentials_into_velocities(projection, tmp_path):
    """Away from the center of the window; by central differences, with errors of the order of step^2 = 3e-8."""
    lat, lon = np.append(30.0, 50.0 + 0.01 * np.arange(3)), np.append(-5.0, 5.0 + 0.01 * np.arange(3))
    window = datasets.load_wind(wind_file(tmp_path, lat, lon)).window((30.0, 50.02), (-5.0, 5.02), projection)
    x, velocity, h, psi, chi = (
        getattr(window, name).unflatten(0, window.shape)[1:, 1:]
        for name in ("x", "velocity", "metric", "streamfunction", "velocity_potential")
    )
    psi_x, chi_x = (central(f, x[..., 0], 1)[1, 0] for f in (psi, chi))
    psi_y, chi_y = (central(f, x[..., 1], 0)[0, 1] for f in (psi, chi))
    h_x, h_y = h[1, 1]
    assert h_x < 0.9
    u, v = velocity[1, 1].tolist()
    assert (chi_x / h_x - psi_y / h_y).item() == pytest.approx(u, rel=1e-6)
    assert (chi_y / h_y + psi_x / h_x).item() == pytest.approx(v, rel=1e-6)
    assert (h_y == h_x) if projection == "mercator" else (h_y == 1.0)


@pytest.mark.parametrize("projection", ["tangent", "mercator"])
def test_plane_coordinates_are_distances_near_the_center(projection, tmp_path):
    lat, lon = 40.0 + 0.01 * np.arange(-1, 2), 20.0 + 0.01 * np.arange(-1, 2)
    window = datasets.load_wind(wind_file(tmp_path, lat, lon)).window((39.99, 40.01), (19.99, 20.01), projection)
    angles = torch.stack([window.lat, window.lon]).deg2rad()
    points = torch.stack(
        [angles[0].cos() * angles[1].cos(), angles[0].cos() * angles[1].sin(), angles[0].sin()], dim=-1
    )
    chords = wind.EARTH_RADIUS * torch.pdist(points)
    torch.testing.assert_close(torch.pdist(window.x), chords, rtol=3e-4, atol=0.0)
    torch.testing.assert_close(window.x[4], torch.zeros(2, dtype=torch.float64), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("lat", "lon", "projection", "message"),
    [
        ((50.0, 30.0), (0.0, 10.0), "tangent", "expected two increasing borders for lat, got 50 and 30"),
        ((30.0, 50.0), (10.0, 0.0), "tangent", "expected two increasing borders for lon, got 10 and 0"),
        ((30.0, 90.0), (0.0, 10.0), "tangent", "expected latitudes between -90 and 90 degrees, got 30 to 90; leave"),
        ((-90.0, 0.0), (0.0, 10.0), "mercator", "expected latitudes between -90 and 90 degrees, got -90 to 0"),
        ((30.0, 50.0), (0.0, 360.0), "tangent", "expected less than 360 degrees of longitude, got 360"),
        ((31.0, 39.0), (0.0, 10.0), "tangent", "expected a window with points .* got latitudes 31 to 39"),
        ((30.0, 50.0), (0.0, 10.0), "plane", "expected one of tangent, mercator for projection, got 'plane'"),
    ],
)
def test_bad_windows(lat, lon, projection, message, tmp_path):
    field = datasets.load_wind(wind_file(tmp_path, *GLOBE))
    with pytest.raises(ValueError, match=message):
        field.window(lat, lon, projection)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"u": random_numbers(36, 19)}, r"expected u of shape \(19, 36\), lat by lon, got \(36, 19\)"),
        ({"divergence": np.full((19, 36), np.nan)}, "expected finite values in divergence, got 684"),
        ({"lat": random_numbers(19, 1)}, r"expected lat and lon of one dimension each, got \(19, 1\)"),
        ({"lat": np.linspace(180.0, 0.0, 19)}, "expected latitudes from -90 to 90 degrees, got up to 180"),
    ],
)
def test_bad_wind_archives(others, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        datasets.load_wind(wind_file(tmp_path, *GLOBE, others))


def test_wind_archives_without_an_array(tmp_path):
    np.savez(tmp_path / "wind.npz", lat=GLOBE[0], lon=GLOBE[1])
    with pytest.raises(ValueError, match="expected the array 'u' for wind, got lat, lon; check"):
        datasets.load_wind(tmp_path)
    with pytest.raises(ValueError, match="expected an existing file, got"):
        datasets.load_wind(tmp_path / "elsewhere")


def test_the_north_atlantic_needs_no_data_directory(monkeypatch):
    monkeypatch.delenv("RFGP_DATA", raising=False)
    field = datasets.load_wind()
    assert field.u.shape == (27, 49) and wind.BUNDLED.stat().st_size < 60_000
    assert (float(field.lat.min()), float(field.lat.max())) == (10.0, 75.0)
    assert (float(field.lon[0]), float(field.lon[-1])) == (-100.0, 20.0)
    text = (wind.BUNDLED.parent / "README.md").read_text(encoding="utf-8")
    assert wind.BUNDLED.name in text and "License: MIT" in text and "Copyright (c) 2012 Andrew Dawson" in text


def test_the_north_atlantic_obeys_its_decomposition(monkeypatch):
    """By central differences over 5 degrees, whose error was measured as 3 percent of the wind."""
    monkeypatch.delenv("RFGP_DATA", raising=False)
    window = datasets.load_wind().window((10.0, 75.0), (-100.0, 20.0), "mercator")
    x, velocity, h, psi, chi = (
        getattr(window, name).unflatten(0, window.shape)
        for name in ("x", "velocity", "metric", "streamfunction", "velocity_potential")
    )
    psi_x, chi_x = (central(f, x[..., 0], 1)[1:-1] for f in (psi, chi))
    psi_y, chi_y = (central(f, x[..., 1], 0)[:, 1:-1] for f in (psi, chi))
    computed = torch.stack([chi_x - psi_y, chi_y + psi_x], dim=-1)
    actual = (h * velocity)[1:-1, 1:-1]
    assert (computed - actual).square().mean().sqrt() < 0.03 * actual.square().mean().sqrt()


def test_the_north_atlantic_is_a_part_of_the_globe(monkeypatch):
    directory = os.environ.get("RFGP_DATA", "")
    if not os.path.isfile(os.path.join(directory, "wind.npz")):
        pytest.skip("needs wind.npz in RFGP_DATA")
    borders = (20.0, 65.0), (-90.0, 10.0)
    globe = datasets.load_wind().window(*borders)
    monkeypatch.delenv("RFGP_DATA")
    part = datasets.load_wind().window(*borders)
    assert part.shape == globe.shape
    for name in ("x", "velocity", "lat", "lon", "streamfunction", "velocity_potential", "divergence", "vorticity"):
        assert torch.equal(getattr(part, name), getattr(globe, name))
