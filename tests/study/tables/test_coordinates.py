"""Latitude and longitude in a table: unit vectors where they are named, in files and new tables too."""

import numpy as np
import pandas
import pytest

from rfgp.study.tables import TableModel, read


def globe(count=60, seed=0, lat="lat", lon="lon"):
    """Places that are uniform on the sphere, and a smooth function of them."""
    rng = np.random.default_rng(seed)
    z, degrees = rng.uniform(-1.0, 1.0, count), rng.uniform(-180.0, 180.0, count)
    latitude = np.degrees(np.arcsin(z))
    x = np.sqrt(1.0 - z**2) * np.cos(np.radians(degrees))
    height = np.sin(2.0 * x) + z + 0.05 * rng.normal(size=count)
    return pandas.DataFrame({lat: latitude, "depth": rng.normal(size=count), lon: degrees, "height": height})


def test_unit_vectors_are_the_inputs_where_they_are_named():
    frame, lat, lon = globe(), "lat", "lon"
    assert read(frame, "height").input_names == (lat, "depth", lon)
    table = read(frame, "height", coordinates=(lat, lon))
    assert table.input_names == ("lat, lon: x", "lat, lon: y", "lat, lon: z", "depth")
    latitude, degrees = (np.radians(frame[name].to_numpy()) for name in (lat, lon))
    wanted = [np.cos(latitude) * np.cos(degrees), np.cos(latitude) * np.sin(degrees), np.sin(latitude), frame["depth"]]
    np.testing.assert_allclose(table.x.numpy(), np.column_stack(wanted), rtol=0.0, atol=1e-15)
    again = table.with_categories(10)
    assert np.array_equal(again.x.numpy(), table.x.numpy())
    record = table.encoding.to_json()
    assert type(table.encoding).from_json(record) == table.encoding


@pytest.mark.parametrize(
    ("coordinates", "message"),
    [
        ("lat", "pairs of a latitude and a longitude"),
        ("lat,height", r"inputs of numbers as coordinates, got 'height' \(target\)"),
        ("lat,kind", r"inputs of numbers as coordinates, got 'kind' \(text\)"),
        ("lat,same", r"inputs of numbers as coordinates, got 'same' \(constant\)"),
        ("lat,left", r"inputs of numbers as coordinates, got 'left' \(dropped\)"),
        ("depth,lon", "columns 'depth' and 'lon': expected a latitude in degrees from -90 to 90, got 1000"),
        ("lat,other", "column"),
    ],
)
def test_bad_coordinates_are_refused(coordinates, message):
    frame = globe().assign(kind=["a", "b"] * 30, depth=1000.0, same=3.0, left=range(60))
    frame.loc[0, "depth"] = 0.0
    with pytest.raises(ValueError, match=message):
        read(frame, "height", coordinates=coordinates, drop="left")


def test_missing_cells_are_filled_in_and_marked():
    frame = globe()
    frame["lon"] = np.where(frame["lon"] > 0.0, frame["lon"] - 5.0, frame["lon"] + 5.0) / 9.0 + 180.0 * np.sign(
        frame["lon"]
    )
    frame.loc[:11, "lat"], frame.loc[20:31, "lon"] = None, None
    table = read(frame, "height", coordinates="lat,lon")
    assert table.input_names[3:] == ("lat is missing", "depth", "lon is missing")
    assert table.x[:12, 2].abs().max() < table.x[:, 2].abs().max(), "means of what others have"
    assert (table.x[20:32, 0] < 0.0).all(), "on the side of the date line, where the others are"
    squares = table.x[:, :3].square().sum(-1).numpy()
    np.testing.assert_allclose(squares, 1.0, rtol=0.0, atol=1e-14)
    assert len(read(frame, "height", coordinates="lat,lon", missing="drop").x) == len(frame) - 24
    assert table.encoding.encode(frame, missing="drop").isnan().all(-1).sum() == 24


def test_other_columns_keep_their_inputs():
    """Categories with means of targets, levels and two pairs of coordinates: every input is where its name says."""
    frame = globe(400).assign(lat2=lambda f: -f["lat"], lon2=lambda f: f["lon"] / 2.0)
    frame.insert(0, "city", [f"city {number % 90}" for number in range(400)])
    frame["crop"] = [f"crop {number % 12}" for number in range(400)]
    degrees = read(frame, "height")
    vectors = read(frame, "height", coordinates="lat,lon,lat2,lon2")
    assert vectors.input_names[:6] == tuple(f"{pair}: {axis}" for pair in ("lat2, lon2", "lat, lon") for axis in "xyz")
    assert [vectors.input_names[k] for k in vectors.encoding.levels[0]] == [
        f"crop=crop {k}" for k in sorted(range(12), key=str)
    ]
    shared = [name for name in vectors.input_names if name in degrees.input_names]
    assert len(shared) == len(vectors.input_names) - 6
    for part in ("x_train", "x_test"):
        one, other = (getattr(table.split(0.2), part) for table in (degrees, vectors))
        for name in shared:
            assert (one[:, degrees.input_names.index(name)] == other[:, vectors.input_names.index(name)]).all(), name


def test_a_model_knows_no_date_line_and_refuses_others(tmp_path):
    model = TableModel.fit(read(globe(200), "height", coordinates="lat,lon"), kernel="matern:2.5", num_features=64)
    model.save(tmp_path / "model.pt")
    model = TableModel.load(tmp_path / "model.pt")
    new = pandas.DataFrame({"lat": [10.0, 10.0, 90.0, 90.0], "depth": 0.0, "lon": [180.0, -180.0, 0.0, 100.0]})
    means = model.predict(new)["height"].to_numpy()
    np.testing.assert_allclose(means[::2], means[1::2], rtol=0.0, atol=1e-6)
    with pytest.raises(
        ValueError, match="columns 'lat' and 'lon': expected a latitude in degrees from -90 to 90, got 95"
    ):
        model.predict(new.assign(lat=95.0))
