"""An encoding that was learned from one table makes inputs of another, whatever the order of its columns."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas
import pytest
import torch

from rfgp.sklearn.frames.encoding import Encoding
from rfgp.study.tables import read

FRAME = pandas.DataFrame(
    {
        "size": ["1,5", "2,5", "4,0", "8,0"],
        "color": ["red", "green", "blue", "red"],
        "sold": ["31.12.2020", "01.01.2021", "02.01.2021", "13.01.2021"],
        "heated": ["True", "False", "True", "True"],
        "price": [1.0, 2.0, 3.0, 4.0],
    }
)


@pytest.fixture
def table():
    return read(FRAME, "price")


def test_rows_in_another_order_of_columns(table):
    again = Encoding.from_json(json.loads(json.dumps(table.encoding.to_json())))
    assert again == table.encoding
    new = FRAME[["sold", "price", "heated", "color", "size"]].iloc[::-1].assign(more=1.0)
    assert torch.equal(again.encode(new), table.x.flip(0))
    assert torch.equal(again.encode(new.drop(columns="price")), table.x.flip(0))


def test_typed_cells_are_those_of_text(table):
    typed = FRAME.assign(
        size=[1.5, 2.5, 4.0, 8.0],
        sold=pandas.to_datetime(FRAME["sold"], format="%d.%m.%Y"),
        heated=[True, False, True, True],
    )
    assert torch.equal(table.encoding.encode(typed), table.x)


def test_missing_cells(table):
    holes = FRAME.copy()
    holes.loc[1, ["size", "color"]] = ["", "?"]
    holes.loc[2, "heated"] = "maybe"
    message = (
        "got 3 cells without one in 3 columns: 'size': 1 missing (empty in row 2); 'color': 1 missing ('?' in row 2)"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        table.encoding.encode(holes, missing="raise")
    filled = table.encoding.encode(holes)
    assert filled[1, :4].tolist() == [
        float(table.x[:, 0].mean()),
        0.0,
        0.0,
        1.0,
    ]  # the mean, and the color that is most frequent
    assert filled[2, -1] == 1.0
    left = table.encoding.encode(holes, missing="drop").isnan().numpy()
    assert np.array_equal(left.any(-1), [False, True, True, False])


@pytest.mark.parametrize(
    ("learned", "new", "size"),
    [
        ("4,5", "2.436", 2436.0),
        ("4,5", "2.5", 2.5),
        ("4,5", "2.436,5", 2436.5),
        ("4.5", "2,436", 2436.0),
        ("4.5", "2,5", 2.5),
        ("4.5", "2.436", 2.436),
    ],
)
def test_the_decimal_mark_that_was_learned_tells_where_a_number_may_be_two(learned, new, size):
    table = read(FRAME.assign(size=["1", "2", "3", learned]), "price")
    again = Encoding.from_json(json.loads(json.dumps(table.encoding.to_json())))
    assert again.encode(FRAME.assign(size=new))[0, 0] == size


def test_what_was_not_there_before(table):
    pink = FRAME.assign(color=["pink", "red", "pink", "red"])
    assert table.encoding.encode(pink)[0, 1:4].tolist() == [0.0, 0.0, 0.0]
    assert table.encoding.unseen(table.encoding.cells(pink)) == ["color=pink", "", "color=pink", ""]
    with pytest.raises(ValueError, match="got none for 'size', 'sold'; add them"):
        table.encoding.encode(FRAME.drop(columns=["size", "sold"]))
    with pytest.raises(ValueError, match="expected one of raise, drop, impute for missing, got 'skip'"):
        table.encoding.encode(FRAME, missing="skip")


def test_missing_cells_are_marked():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.normal(size=(40, 2)), columns=["a", "y"])
    frame.loc[:14, "a"] = None
    table = read(frame, "y")
    assert table.input_names == ("a", "a is missing") and table.x[:, 1].tolist() == [1.0] * 15 + [0.0] * 25
    both = read(frame.assign(x=range(40)), ["a", "y"])
    assert len(both.y) == 40 and both.y[:, 0].isnan().sum() == 15


def test_several_targets_make_a_data_set():
    rows = pandas.DataFrame(np.random.default_rng(0).normal(size=(20, 4)), columns=list("abcd"))
    data = read(rows, ["c", "d"]).split(test_share=0.25, seed=3)
    assert data.outputs == ("c", "d") and data.y_train.shape == (15, 2) and data.x_test.shape == (5, 2)
    assert torch.equal(read(rows, "c").split().y_test, read(rows, "c,d").split().y_test[:, 0])
    with pytest.raises(ValueError, match="expected a table with a target, got none"):
        read(rows).split()
    with pytest.raises(ValueError, match="expected a test_share between 0 and 1, got 1"):
        read(rows, "c").split(1)
    with pytest.raises(ValueError, match="expected one target for classification, or several for regression"):
        read(rows.assign(kind=["u", "v"] * 10), "c,kind")


@pytest.mark.parametrize("learned", ["%d/%m/%Y", "%Y-%m-%d", "%d.%m.%Y", None])
@pytest.mark.parametrize("later", ["%d/%m/%Y", "%Y-%m-%d", "%m/%d/%Y"])
def test_dates_of_another_table_may_be_written_in_another_way(learned, later):
    days = pandas.Series(pandas.date_range("2024-01-01", periods=60, freq="5D"))
    first, second = (days if form is None else days.dt.strftime(form) for form in (learned, later))
    table = read(pandas.DataFrame({"day": first, "y": np.arange(60.0)}), "y")
    assert torch.equal(table.encoding.encode(pandas.DataFrame({"day": second})), table.x)


def test_dates_of_another_table_that_can_be_read_in_two_ways_are_refused():
    days = pandas.date_range("2024-01-01", periods=60, freq="5D")
    table = read(pandas.DataFrame({"day": days, "y": np.arange(60.0)}), "y")
    with pytest.raises(ValueError, match="dates in column 'day' that can be read in one way, got '03/04/2024'"):
        table.encoding.encode(pandas.DataFrame({"day": ["03/04/2024"] * 3}))
