"""Awkward text files, and what is made of each: the numbers, the report, or the one line that says what is wrong."""

from __future__ import annotations

import functools
import io
import json
import re

import numpy as np
import pandas
import pytest
import torch

from rfgp.sklearn.frames.encoding import Encoding
from rfgp.study.tables import read

ROWS = 30
X = np.random.default_rng(0).normal(size=(ROWS, 3)).round(3)
A, B, Y = X.T


@pytest.fixture
def file(tmp_path):
    def write(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def lines(header, *columns, separator=","):
    rows = [separator.join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([*([header] if header else []), *rows, ""])


def check(table, names=("a", "b"), x=X[:, :2], y=Y):
    assert table.input_names == names and table.task == "regression"
    assert torch.equal(table.x, torch.as_tensor(np.asarray(x, dtype=np.float64)))
    assert torch.equal(table.y, torch.from_numpy(np.asarray(y)))


def roles(table):
    return {column.name: column.role for column in table.columns}


def test_semicolons_and_decimal_commas(file):
    text = lines("a;b;y", A, B, Y, separator=";").replace(".", ",")
    table = read(file(text), "y")
    check(table)
    assert "separator semicolon, decimal comma): 30 rows, 2 inputs; regression of y" in table.report()


def test_tabs_and_windows_lines(file):
    check(read(file(lines("a\tb\ty", A, B, Y, separator="\t").replace("\n", "\r\n"), "table.tsv"), "y"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "utf-16", "utf-16-le"])
def test_encodings(file, encoding):
    table = read(file(lines("Größe,b,y", A, B, Y).encode(encoding)), "y")
    check(table, ("Größe", "b"))


def test_quoted_cells_of_several_lines_with_separators_in_them(file):
    kinds = ['"red,\nwith stripes"', '"blue; plain"', '"say ""green"""'] * 10
    table = read(file(lines('"a","the\nkind","y"', A, kinds, Y)), "y")
    assert table.input_names[1:] == ("the kind=blue; plain", "the kind=red,\nwith stripes", 'the kind=say "green"')
    assert table.x[:4, 1:].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]


def holes():
    a, b, y = (list(map(str, column)) for column in (A, B, Y))
    a[0], a[5], a[9] = "", "NA", "n/a"
    b[2], b[7] = "?", "-"
    y[4] = "NaN"
    return a, b, y


def test_missing_cells_of_all_columns_are_counted(file):
    path = file(lines("a,b,y", *holes()))
    message = (
        "got 6 cells without one in 3 columns: 'a': 3 missing (empty in row 1, 'NA' in row 6, 'n/a' in row 10); 'b': 2 "
        "missing ('?' in row 3, '-' in row 8); 'y': 1 missing ('NaN' in row 5); correct them, or pass missing="
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        read(path, "y", missing="raise")
    whole = [row for row in range(ROWS) if row not in (0, 2, 4, 5, 7, 9)]
    dropped = read(path, "y", missing="drop")
    check(dropped, x=X[whole, :2], y=Y[whole])
    assert dropped.notes == ("1 row without a target left out", "5 rows with missing cells left out")
    assert dropped.rows.tolist() == whole
    filled, with_target = read(path, "y", missing="impute"), [row for row in range(ROWS) if row != 4]
    x = X[:, :2].copy()
    for column, rows in enumerate(([0, 5, 9], [2, 7])):
        known = [row for row in with_target if row not in (0, 2, 5, 7, 9)]
        for row in rows:
            apart = np.abs(x[known, 1 - column] - x[row, 1 - column])
            x[row, column] = X[np.array(known)[np.argsort(apart)[:10]], column].mean()
    np.testing.assert_allclose(filled.x, x[with_target], rtol=1e-12)
    assert torch.equal(filled.y, torch.from_numpy(Y[with_target]))
    assert "note: cells that are filled in by the rows nearest in the other columns: 3 in a, 2 in b" in filled.report()


def test_names_of_rows_are_left_out_and_units_are_numbers(file):
    weights = [f"{i + 0.5} kg" for i in range(60)]
    prices = [f"${1000 * i + 0.25:,.2f}" for i in range(60)]
    path = file(lines("name;weight;price;share;y", [f"n{i}" for i in range(60)], weights, prices, ["12 %", "3%"] * 30,
                      np.tile(Y, 2), separator=";"))  # fmt: skip
    table = read(path, "y")
    assert table.input_names == ("weight", "price", "share") and roles(table)["name"] == "names"
    assert table.x[7].tolist() == [7.5, 7000.25, 3.0]
    without_target = "in a column of text without a target, got 60 in 'name', such as 'n0'; name the target"
    with pytest.raises(ValueError, match=without_target):
        read(path, keep="name")
    again = table.encoding.encode(
        pandas.DataFrame({"weight": ["2 kg", "3"], "price": ["$1,000", "2"], "share": [1, 2]})
    )
    assert again.tolist() == [[2.0, 1000.0, 1.0], [3.0, 2.0, 2.0]]
    euros = read(file(lines("a;y", [f"1.{i:03},50 EUR" for i in range(ROWS)], range(ROWS), separator=";")), "y",
                 task="regression")  # fmt: skip
    assert euros.x[3].tolist() == [1003.5]
    mixed = read(file(lines("a;b;y", ["5 kg", "300 g", "1 m"] * 10, B, Y, separator=";")), "y")
    assert mixed.input_names[0] == "a=1 m"


def test_many_categories_have_the_means_of_other_rows(file):
    rng = np.random.default_rng(0)
    codes = rng.integers(60, size=600)
    path = file(lines("zip,a,y", [f"z{code}" for code in codes], rng.normal(size=600), codes + rng.normal(size=600)))
    table = read(path, "y")
    assert table.input_names == ("zip: mean of target", "zip: log rows", "a")
    assert np.corrcoef(table.x[:, 0], codes)[0, 1] > 0.99
    noise = read(
        file(lines("zip,a,y", [f"z{code}" for code in codes], rng.normal(size=600), rng.normal(size=600))), "y"
    )
    assert abs(np.corrcoef(noise.x[:, 0], noise.y)[0, 1]) < 4.0 / np.sqrt(600)
    again = Encoding.from_json(json.loads(json.dumps(table.encoding.to_json())))
    new = again.encode(pandas.DataFrame({"zip": ["z59", "elsewhere"], "a": [0.0, 0.0]}))
    assert abs(float(new[0, 0]) - 59.0) < 2.0 and new[1, 1] == 0.0
    assert float(new[1, 0]) == pytest.approx(float(table.y.mean()))
    numbers = read(file(lines("zip,a,y", 20000 + codes, rng.normal(size=600), codes + rng.normal(size=600))), "y")
    assert numbers.input_names == table.input_names


def test_booleans_categories_and_dates(file):
    days = [f"{i + 1:02}.03.2021" for i in range(ROWS)]
    times = [f"2021-03-01 {i % 24:02}:30" for i in range(ROWS)]
    path = file(lines("ok,color,day,time,y", ["TRUE", "false"] * 15, ["red", "blue", "green"] * 10, days, times, Y))
    table = read(path, "y")
    colors, days = ("color=blue", "color=green", "color=red"), ("day", "day: day", "day: weekday")
    assert table.input_names == ("ok", *colors, *days, "time", "time: hour")
    assert table.x[1].tolist() == [0.0, 1.0, 0.0, 0.0, 18688.0, 2.0, 1.0, 18687.0 + 1.5 / 24.0, 1.5]
    assert "2021-03-01 to 2021-03-30" in table.report() and "2021-03-01T23:30:00" not in table.notes
    unclear = file(lines("day,a,y", [f"{i % 12 + 1:02}/03/2021" for i in range(ROWS)], A, Y))
    with pytest.raises(ValueError, match="column 'day' that can be read in one way, got '01/03/2021' and others"):
        read(unclear, "y")


def test_constants_duplicates_and_indices(file):
    rows = np.arange(ROWS)
    a, y = np.append(A[:-1], A[0]), np.append(Y[:-1], Y[0])
    path = file(lines(",a,k,a again,empty,y", rows, a, ["7"] * ROWS, a, [""] * ROWS, y))
    table = read(path, "y")
    assert table.input_names == ("a", "a again")
    known = {"unnamed 0": "index", "a": "input", "k": "constant", "a again": "input", "empty": "empty", "y": "target"}
    assert roles(table) == known and table.learned.index == "unnamed 0"
    assert table.columns[3].duplicate_of == "a"
    assert table.notes == (
        "1 row with all the values of an earlier one, the first of them row 30",
        "unnamed 0: is a row identifier and is left out; keep it as an input by keep= (--keep)",
        "k: left out, since there is a single value",
        "empty: left out, since no cell has a value",
        "columns with the same values: a again = a; drop one of each (--drop)",
    )
    assert read(path, "y", keep=["unnamed 0"]).input_names[0] == "unnamed 0"
    alone = read(file(lines("t,y", rows, Y)), "y")
    assert alone.input_names == ("t",)


@pytest.mark.parametrize("missing", ["impute", "drop"])
def test_rows_without_a_target_decide_nothing_of_columns(file, missing):
    rows, towns, shops = np.arange(ROWS), np.resize(["u", "v", "w"], ROWS), np.arange(1000, 1000 + ROWS)
    whole = lines("n,shop id,a,town,b,y", rows, shops, A, towns, B, Y)
    head, *tail = whole.splitlines()
    expected = read(file(whole), "y", missing=missing)
    ragged = [head, *tail[:9], "1,1000,77", "2,1001,88,4", *tail[9:], "2,1000"]
    found = read(file("\n".join(ragged)), "y", missing=missing)
    assert roles(found) == roles(expected) and found.input_names == expected.input_names
    assert torch.equal(found.x, expected.x) and torch.equal(found.y, expected.y)
    assert [column.values for column in found.columns] == [column.values for column in expected.columns]
    assert found.notes == ("3 rows without a target left out", *expected.notes) and found.columns[-1].num_missing == 3
    assert found.rows.tolist() == [*range(9), *range(11, ROWS + 2)] and found.learned.index == "n"
    with pytest.raises(ValueError, match=r"expected a known target in some rows of table\.csv, got none of 30"):
        read(file(lines("a,y", A, [""] * (ROWS - 1) + ["NA"])), "y", missing=missing)


def test_row_numbers_are_those_of_the_table(file):
    a, b, y = (np.insert(values.astype(object), 2, "") for values in (A, B, Y))
    a[9], b[9], y[9] = a[5], b[5], y[5]
    table = read(file(lines("n,a,b,y", np.arange(ROWS + 1), a, b, y)), "y")
    assert "1 row with all the values of an earlier one, the first of them row 10" in table.notes
    assert roles(table)["n"] == "index" and table.rows.tolist() == [0, 1, *range(3, ROWS + 1)]


def test_infinite_values_and_text_among_numbers(file):
    a, b = list(map(str, A)), list(map(str, B))
    a[3], a[8], b[6] = "inf", "-1e999", "12 kg"
    path = file(lines("a,b,y", a, b, Y))
    message = "'a': 2 infinite ('inf' in row 4, '-1e999' in row 9); 'b': 1 wrong ('12 kg' in row 7); correct them"
    with pytest.raises(ValueError, match=re.escape(message)):
        read(path, "y", missing="raise")
    table = read(path, "y", missing="drop")
    assert len(table.x) == 27
    assert "cells of other kinds than their column are taken as missing: b (1 wrong)" in table.notes


@pytest.mark.parametrize("target", [2, "2", -1])
def test_without_a_header(file, target):
    check(read(file(lines("", A, B, Y)), target), ("0", "1"))


def test_integers_with_many_values_ask_for_the_task(file):
    path = file(lines("a,b,y", A, B, np.arange(ROWS)))
    with pytest.raises(ValueError, match=r"got 30 different values in 30 rows; choose regression, .* \(--task\)"):
        read(path, "y")
    check(read(path, "y", task="regression"), y=np.arange(30.0))
    classes = read(path, "y", task="classification")
    assert classes.task == "classification" and classes.class_names == tuple(map(str, range(30)))
    few = read(file(lines("a,b,y", A, B, [10, 9] * 15)), "y")
    assert few.class_names == ("9", "10") and few.y[:2].tolist() == [1, 0]
    with pytest.raises(ValueError, match="got 30 different values in 30 rows; take another target, or name the task"):
        read(file(lines("a,b,y", A, B, [f"n{i}" for i in range(ROWS)])), "y")


@pytest.mark.parametrize(
    "text",
    [
        "# made by hand\n# two, comments\n\n" + lines("a,b,y", A, B, Y).replace("\n", "\n# more\n\n", 4),
        "# a b y\n" + lines("", A, B, Y, separator=" "),
        "\n" + lines("a | b | y", A, B, Y, separator=" | "),
        lines("a,b,y,", A, B, Y, [""] * ROWS),
        lines("a,b,y", A, B, Y, [""] * ROWS),
        "A title\n\n" + lines("a,b,y", A, B, Y),
        lines('"a","b","y"', [f'"{i + 1}"' for i in range(ROWS)], A, B, Y),
        lines("a,b,y", [f" {v}" for v in A], B, Y),
        lines("a,b,y", [str(v).replace("-", "\u2212") for v in A], B, Y),
    ],
    ids=["comments", "names in a comment", "bars", "trailing", "trailing in rows", "title", "R", "blanks", "minus"],
)
def test_other_ways_of_writing(file, text):
    check(read(file(text), "y"))


@pytest.mark.parametrize("header", ["kind,size,y", "# kind,size,y", ""])
def test_rows_that_begin_with_a_comment_sign_stay(file, header):
    kinds = ["#red", "#blue", "plain"] * 10
    text = lines(header, kinds, A, Y).replace("\n", "\n# a remark\n", 5)
    table = read(file(text), -1)
    name = "kind" if header else "0"
    assert len(table.x) == ROWS and table.input_names[:3] == (f"{name}=#blue", f"{name}=#red", f"{name}=plain")
    assert torch.equal(table.y, torch.from_numpy(Y))


def test_a_column_of_cells_with_a_comment_sign(file):
    table = read(file("# colors\ncolor\n#red\n#blue\nplain\n"))
    assert table.input_names == ("color=#blue", "color=#red", "color=plain") and len(table.x) == 3


@pytest.mark.parametrize("group", [",", " ", "\u00a0", "'"])
def test_thousands(file, group):
    big = [f"{1e6 * v:,.1f}".replace(",", group) for v in A]
    table = read(file(lines("a;b;y", big, B, Y, separator=";")), "y")
    assert torch.allclose(table.x[:, 0], torch.from_numpy(1e6 * A), rtol=1e-15)


def test_a_comma_that_may_mean_two_things_asks(file):
    path = file(lines("a;y", [f"{i},250" for i in range(1, ROWS + 1)], np.arange(ROWS), separator=";"))
    message = (
        "got '1,250', which may have a decimal comma, or one between thousands; write such numbers in one way, or read"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        read(path, "y", task="regression")
    for decimal, value in ((",", 1.25), (".", 1250.0)):
        assert read(path, "y", task="regression", decimal=decimal).x[0, 0] == value
    quoted = file(lines("a,y", [f'"{i},250"' for i in range(1, ROWS + 1)], Y))
    assert read(quoted, "y").x[0, 0] == 1250.0  # where commas separate cells, none is in front of decimals


def test_names_that_come_again(file):
    path = file(lines("a,a,y", A, B, Y))
    check(read(path, "y"), ("a", "a (2)"))
    with pytest.raises(
        ValueError, match=r"\(a, a \(2\), y\) or its index as the target, got 'a', which several columns"
    ):
        read(path, "a")
    check(read(path, "y", drop=[0]), ("a (2)",), x=X[:, 1:2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected rows of data, got none in table.csv"),
        ("a,b\n", "expected rows of data, got none in table.csv"),
        ("a\n1\n2\n", "expected a column of table.csv that can be an input, got 'a' (target); add one"),
        (
            "a,b\n1,2\n3,4,5\n6,7,8,9\n",
            "expected at most 2 cells in every row of table.csv, got 2 rows with more (3 in row 3, 4 in row 4)",
        ),
        ("a,b\n1,2,3\n4,5,6\n", "expected 2 cells in every row of table.csv, as many as names, got 3"),
        (
            lines("c,b\n", A, B),
            "one column of table.csv (c, b) or its index as the target, got 'a'",
        ),
        (bytes(range(256)), "expected text in table.csv, got other bytes"),
        (lines("a,b", ["0.5"] * ROWS, B), "expected targets of table that vary over the training rows, got 0.5"),
        (lines("a,b", A[:5], B[:5]), "expected inputs and targets of table.csv with one number of rows, at least 10"),
        ("a,b\n1,2\n3,4\n", "expected at least 10 rows for target 'a' of table.csv, got 2; add rows"),
        (lines("a,b", ["2020-01-01"] * ROWS, B), "expected numbers or labels in target 'a' of table.csv, got dates"),
    ],
)
def test_what_is_refused(file, text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(file(text), "a").split()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": "ab"}, "expected one character or one of tab, semicolon, pipe, comma, whitespace for separator"),
        ({"decimal": ";"}, "expected one of ., , for decimal, got ';'"),
        ({"header": 1}, "expected True or False for header, got 1"),
        ({"missing": "ignore"}, "expected one of raise, drop, impute for missing, got 'ignore'"),
        ({"task": "ranking"}, "expected one of classification, regression, counts for task, got 'ranking'"),
        ({"drop": "y"}, "expected a target that is not dropped, got 'y' as both"),
        ({"drop": ["z"]}, "(a, b, y) or its index as a column to drop, got 'z'"),
        ({"drop": ["a", "b"]}, "expected a column of table.csv that can be an input, got 'y' (target)"),
    ],
)
def test_options_that_are_refused(file, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(file(lines("a,b,y", A, B, Y)), "y", **options)


def test_separators_that_are_given(file):
    check(read(file(lines("a,b,y", A, B, Y)), "y", separator="comma"))
    check(read(file(lines("a~b~y", A, B, Y, separator="~")), "y", separator="~"))
    check(read(file(lines("1,2,3", A, B, Y)), "3", header=True), ("1", "2"))


@pytest.mark.parametrize(("header", "names"), [("2019,2020,y", ("2019", "2020")), ("0,1,2", ("0", "1"))])
def test_names_that_are_numbers(file, header, names):
    check(read(file(lines(header, A, B, Y)), -1), names)
    check(read(file(lines("", A, ["?", *B[1:]], Y)), -1, missing="drop"), ("0", "1"), x=X[1:, :2], y=Y[1:])


def both(file, text, **options):
    """A file, and the data frame of the same text."""
    frame = pandas.read_csv(io.StringIO(text), keep_default_na=False)
    return [functools.partial(read, source, **options) for source in (file(text), frame)]


def test_a_frequent_word_for_missing_cells_in_a_target_asks(file):
    effect = ["None"] * 20 + ["minor"] * 9 + ["nan"]
    for reads in both(file, lines("a,b,effect", A, B, effect), target="effect"):
        with pytest.raises(
            ValueError, match=r"target 'effect' in most rows of .*, got 'None' in 20 of 30 cells, which"
        ):
            reads()
        table = reads(missing_values=["NaN", "NA"])
        assert table.class_names == ("None", "minor") and len(table.x) == 29
        assert Encoding.from_json(json.loads(json.dumps(table.encoding.to_json()))).words == (
            "nan",
            "na",
        )
        with pytest.raises(ValueError, match=r"one|vary"):
            reads(missing_values=["none", "nan"]).split()
        assert reads(missing_values=[]).class_names == ("None", "minor", "nan")
    assert len(read(file(lines("a,b,effect", A, B, ["none"] * 2 + ["x", "y"] * 14)), "effect").x) == 28


def test_missing_words_hold_for_inputs_and_for_new_rows(file):
    kinds = ["?", "none", "unknown"] * 10
    for reads in both(file, lines("kind,a,y", kinds, A, Y), target="y"):
        table = reads(missing_values=["Unknown"])
        assert table.input_names == ("kind=none", "kind is missing", "a")
        new = pandas.DataFrame({"kind": ["none", "?", "UNKNOWN"], "a": [1.0, 2.0, 3.0]})
        assert table.encoding.encode(new)[:, 1].tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="expected words for missing_values"):
        read(file(lines("a,y", A, Y)), "y", missing_values=[1])


@pytest.mark.parametrize("groups", [["0", "1", "2-10", "11-100"], ["<5", "6", "7+"], ["1", "2 to 9", ">= 10"]])
def test_numbers_beside_ranges_are_groups(file, groups):
    cells = ([groups[0]] * 5 + groups) * ROWS
    for reads in both(file, lines("hit,a,y", cells[:ROWS], A, Y), target="y"):
        table = reads()
        assert {column.name: (column.kind, column.num_missing) for column in table.columns}["hit"] == ("text", 0)
        assert [name for name in table.input_names if name.startswith("hit=")] == [
            f"hit={one}" for one in sorted(groups)
        ]


def test_one_range_among_many_numbers_is_a_mistake(file):
    table = read(file(lines("a,b,y", [*A[:-1], "2-10"], B, Y)), "y")
    assert table.columns[0].kind == "number" and table.columns[0].problems == "1 wrong"


def test_a_control_character_in_a_cell_is_text(file):
    notes = ["part\x1a two" if i == 7 else "plain" for i in range(ROWS)]
    table = read(file(lines("a,note,y", A, notes, Y)), "y")
    assert table.columns[1].num_distinct == 2 and len(table.x) == ROWS
    with pytest.raises(ValueError, match=r"expected text in table\.csv, got other bytes"):
        read(file(bytes(range(256)) * 20), "y")


@pytest.mark.parametrize(
    ("cell", "what"),
    [("high", "4 wrong ('high' in row 3, 'high' in row 10, 'high' in row 17, ...)"), ("inf", "4 infinite ('inf' in")],
    ids=["text", "infinite"],
)
def test_targets_that_are_no_numbers_are_not_taken_for_missing(file, cell, what):
    y = list(map(str, Y))
    y[2::7] = [cell] * 4
    path = file(lines("a,b,y", A, B, y))
    with pytest.raises(ValueError, match=re.escape(f"expected numbers as 'y' of {path.name}, got {what}")):
        read(path, "y")
    known = [row for row in range(ROWS) if row % 7 != 2]
    for settings in ({"missing": "drop"}, {"missing_values": [cell]}):
        check(read(path, "y", **settings), x=X[known, :2], y=Y[known])
    if cell == "high":
        assert read(path, "y", task="classification").task == "classification"


def test_exposures_that_are_no_numbers_are_not_taken_for_missing(file):
    years = ["half"] * 3 + ["2"] * (ROWS - 3)
    path = file(lines("a,years,y", A, years, [*range(ROWS)]))
    with pytest.raises(ValueError, match=re.escape(f"expected numbers as 'years' of {path.name}, got 3 wrong ('half'")):
        read(path, "y", task="counts", exposure="years")
