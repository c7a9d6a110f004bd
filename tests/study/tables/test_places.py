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
    table = read(frame, "height", places=(lat, lon))
    assert table.input_names == ("lat, lon: z", "depth", "lat, lon: x", "lat, lon: y")
    latitude, degrees = (np.radians(frame[name].to_numpy()) for name in (lat, lon))
    wanted = [np.sin(latitude), frame["depth"], np.cos(latitude) * np.cos(degrees), np.cos(latitude) * np.sin(degrees)]
    np.testing.assert_allclose(table.x.numpy(), np.column_stack(wanted), rtol=0.0, atol=1e-15)
    again = table.with_categories(10)
    assert np.array_equal(again.x.numpy(), table.x.numpy())
    record = table.encoding.to_json()
    assert type(table.encoding).from_json(record) == table.encoding


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ("lat", "a latitude and a longitude"),
        ("lat,height", "an input of numbers as a place, got 'height'"),
        ("lat,kind", "an input of numbers as a place, got 'kind'"),
        ("depth,lon", "latitude in degrees from -90 to 90 in column 'depth'"),
        ("lat,other", "column"),
    ],
)
def test_bad_places_are_refused(places, message):
    frame = globe().assign(kind=["a", "b"] * 30).assign(depth=1000.0)
    frame.loc[0, "depth"] = 0.0
    with pytest.raises(ValueError, match=message):
        read(frame, "height", places=places)


def test_missing_cells_are_filled_in_and_marked():
    frame = globe()
    frame.loc[:11, "lat"] = None
    table = read(frame, "height", places="lat,lon")
    assert table.input_names[:2] == ("lat, lon: z", "lat is missing")
    middle = np.radians(frame["lat"].median())
    np.testing.assert_allclose(table.x[:12, 0].numpy(), np.sin(middle), rtol=0.0, atol=1e-15)
    squares = table.x[:, [0, 3, 4]].square().sum(-1).numpy()
    np.testing.assert_allclose(squares, 1.0, rtol=0.0, atol=1e-14)
    assert len(read(frame, "height", places="lat,lon", missing="drop").x) == len(frame) - 12


def test_a_model_knows_no_date_line_and_refuses_places_that_are_none(tmp_path):
    model = TableModel.fit(read(globe(200), "height", places="lat,lon"), kernel="matern:2.5", num_features=64)
    model.save(tmp_path / "model.pt")
    model = TableModel.load(tmp_path / "model.pt")
    new = pandas.DataFrame({"lat": [10.0, 10.0, 90.0, 90.0], "depth": 0.0, "lon": [180.0, -180.0, 0.0, 100.0]})
    means = model.predict(new)["height"].to_numpy()
    np.testing.assert_allclose(means[::2], means[1::2], rtol=0.0, atol=1e-6)
    with pytest.raises(ValueError, match="latitude in degrees from -90 to 90 in column 'lat', got 95"):
        model.predict(new.assign(lat=95.0))
