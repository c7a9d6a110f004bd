"""Latitude and longitude in a table: unit vectors where names and values tell, in files and new tables too."""

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


@pytest.mark.parametrize(
    ("lat", "lon"),
    [("lat", "lon"), ("Latitude", "Longitude"), ("pickup_lat", "pickup_lng"), ("lat of A", "LONG of A")],
    ids=["short", "long", "before", "behind"],
)
def test_unit_vectors_are_the_inputs_and_the_report_says_so(lat, lon):
    frame = globe(lat=lat, lon=lon)
    table = read(frame, "height")
    assert table.input_names == (f"{lat}, {lon}: z", "depth", f"{lat}, {lon}: x", f"{lat}, {lon}: y")
    latitude, degrees = (np.radians(frame[name].to_numpy()) for name in (lat, lon))
    wanted = [np.sin(latitude), frame["depth"], np.cos(latitude) * np.cos(degrees), np.cos(latitude) * np.sin(degrees)]
    np.testing.assert_allclose(table.x.numpy(), np.column_stack(wanted), rtol=0.0, atol=1e-15)
    assert f"{lat}, {lon}: latitude and longitude in degrees, which become a unit vector" in table.report()
    again = table.with_categories(10)
    assert np.array_equal(again.x.numpy(), table.x.numpy())
    record = table.encoding.to_json()
    assert type(table.encoding).from_json(record) == table.encoding


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.assign(lat=1000.0 * frame["lat"]),
        lambda frame: frame.assign(lon=1000.0 * frame["lon"]),
        lambda frame: frame.drop(columns="lon"),
        lambda frame: frame.rename(columns={"lon": "length"}),
        lambda frame: frame.rename(columns={"lon": "from lon"}),
        lambda frame: frame.assign(longitude=frame["lon"]),
    ],
    ids=["meters north", "meters east", "one", "another name", "two places", "two longitudes"],
)
def test_other_columns_stay_as_they_are(change):
    frame = change(globe())
    table = read(frame, "height")
    assert table.input_names == tuple(name for name in frame.columns if name != "height")
    assert not table.encoding.places and "unit vector" not in table.report()


def test_kept_columns_stay_degrees():
    assert read(globe(), "height", keep="lat,lon").input_names == ("lat", "depth", "lon")


def test_missing_cells_are_filled_in_and_marked():
    frame = globe()
    frame.loc[:11, "lat"] = None
    table = read(frame, "height")
    assert table.input_names[:2] == ("lat, lon: z", "lat is missing")
    middle = np.radians(frame["lat"].median())
    np.testing.assert_allclose(table.x[:12, 0].numpy(), np.sin(middle), rtol=0.0, atol=1e-15)
    squares = table.x[:, [0, 3, 4]].square().sum(-1).numpy()
    np.testing.assert_allclose(squares, 1.0, rtol=0.0, atol=1e-14)
    assert len(read(frame, "height", missing="drop").x) == len(frame) - 12


def test_a_model_knows_no_date_line_and_refuses_places_that_are_none(tmp_path):
    model = TableModel.fit(read(globe(200), "height"), kernel="matern:2.5", num_features=64)
    model.save(tmp_path / "model.pt")
    model = TableModel.load(tmp_path / "model.pt")
    new = pandas.DataFrame({"lat": [10.0, 10.0, 90.0, 90.0], "depth": 0.0, "lon": [180.0, -180.0, 0.0, 100.0]})
    means = model.predict(new)["height"].to_numpy()
    np.testing.assert_allclose(means[::2], means[1::2], rtol=0.0, atol=1e-6)
    with pytest.raises(ValueError, match="latitude in degrees from -90 to 90 in column 'lat', got 95"):
        model.predict(new.assign(lat=95.0))
