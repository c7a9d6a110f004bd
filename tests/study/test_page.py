"""The report and the comparison of two studies, on one small study."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest
import torch

from rfgp import study
from rfgp.__main__ import main
from rfgp.study import plots
from rfgp.study.datasets import Dataset
from rfgp.study.page import page as page_of


@pytest.fixture(scope="module")
def result():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    y = x[:, 0] * x[:, 1] + 0.1 * torch.randn(60, generator=generator, dtype=torch.float64)
    data = Dataset("<toy> & co", x[:40], y[:40], x[40:], y[40:], "regression", None, "made up", "none")
    return study.run(
        data,
        kernel="polynomial:3",
        methods=["rademacher:real", "auto"],
        num_features=[8, 16],
        num_seeds=2,
        progress=False,
    )


@pytest.fixture(scope="module")
def page(result):
    return page_of(result).html()


class Tags(HTMLParser):
    """The open tags of a page, and the addresses that it loads."""

    def __init__(self):
        super().__init__()
        self.open, self.loaded, self.seen = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_report_is_one_file_that_needs_no_network(page):
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and len(tags.loaded) == tags.seen.count("img") == 3
    assert all(address.startswith("data:image/png;base64,") for address in tags.loaded)
    assert "http" not in re.sub('base64,[^"]*', "", page).replace("http-equiv", "")


def test_the_report_says_which_data(page):
    assert "regression, 40 training rows, 20 test rows, 2 inputs" in page


def test_the_report_is_for_phones(page):
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in page
    assert "img { max-width: 100%" in page and page.count("<table") == page.count('<div class="box"><table')


def test_the_report_has_the_verdict_first(page, result):
    verdict = result.verdict()
    places = [page.index(text) for text in ('class="verdict"', "Figures", "All methods", "To repeat it")]
    assert places == sorted(places) and verdict.headline in page
    assert all(reason.replace("&", "&amp;") in page for reason in verdict.reasons)


def test_figures_are_in_the_order_of_the_table_with_captions(page):
    captions = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert [caption.split()[0] for caption in captions] == ["KL(approximate,", "Test", "Test"]
    assert [word in caption for word, caption in zip(("KL", "RMSE", "MNLL"), captions, strict=True)] == [True] * 3
    assert "Curves show" not in page  # all methods are in the figures


def test_figures_have_four_methods_at_most(result):
    """The best one, though it is the farthest from the exact model, and those of the smallest KL."""
    (best,) = result.of("rademacher:real", 16)[:1]
    shift = {"first": 5.0, "second": 9.0, "third": 1.0, "fourth": 2.0, "fifth": 3.0}
    runs = [
        dataclasses.replace(best, method=name, kl=best.kl + more, kl_reverse=0.0 if name == "second" else best.kl)
        for name, more in shift.items()
    ]
    settings = {**result.settings, "methods": list(shift)}
    many = study.StudyResult(**{**vars(result), "runs": tuple(runs), "settings": settings})
    assert many.verdict().method == "second" and many.drawn() == ["second", "third", "fourth", "fifth"]
    figure = many.figure()
    assert all(len(ax.containers) == 4 for ax in figure.axes)
    assert "4 of 5 methods: the best one" in figure.get_suptitle()
    assert "Curves show 4 of 5 methods: the best one" in page_of(many).html()
    assert result.drawn_note == "" and result.drawn() == ["rademacher:real", "auto"]


def test_names_from_files_are_no_markup(page):
    assert "<toy>" not in page and "&lt;toy&gt; &amp; co" in page


def test_the_report_tells_how_to_repeat_it(page, result):
    assert "rfgp study &#39;&lt;toy&gt; &amp; co&#39; --kernel polynomial:3 --methods rademacher:real,auto" in page
    assert result.environment["versions"]["torch"] in page and "covar_module.outputscale" in page
    assert f"auto ({result.settings['auto'][16]})" in page


def test_a_study_against_itself(result):
    same = study.compare(result, result)
    assert same.settings == {} and same.rows == ()
    assert "A and B have the same settings, data and versions." in str(same)
    assert f"Both say: {result.verdict().headline}" in " ".join(str(same).split())


def test_studies_that_differ(result):
    worse = [dataclasses.replace(run, mnll=run.mnll + 500.0, kl_reverse=3.0 * run.kl_reverse) for run in result.runs]
    other = study.StudyResult(
        **{**vars(result), "runs": tuple(worse), "settings": {**result.settings, "scaling": "unit"}}
    )
    found = study.compare(result, other, ("old", "new"))
    assert found.settings == {"scaling": ("standardize", "unit")}
    text = " ".join(str(found).split())
    assert "old and new differ in scaling." in text and "Better in old: MNLL of rademacher:real with 8 features" in text
    assert "Better in new" not in text and "500" in text
    gaps = {name: measures for name, measures in found.rows}
    assert all("MNLL" in measures for measures in gaps.values()) and "exact" not in gaps


def test_small_differences_do_not_count(result):
    near = [dataclasses.replace(run, mnll=run.mnll + 1e-4) for run in result.runs]
    found = study.compare(result, study.StudyResult(**{**vars(result), "runs": tuple(near)}))
    assert "No error, MNLL or divergence of a model that both have differs by more than" in " ".join(found.words)


def test_other_data_are_told(result):
    assert "say nothing" not in " ".join(study.compare(result, result).words)
    other = study.StudyResult(**{**vars(result), "data": {**result.data, "num_test": 21}})
    assert "differences of scores say nothing about methods" in " ".join(study.compare(result, other).words)
    others = study.StudyResult(**{**vars(result), "data": {**result.data, "name": "sales"}})
    with pytest.raises(ValueError, match=r"expected two studies of one data set, got .* and 'sales' as its name"):
        study.compare(result, others)


FORGED = {
    "pair": ("runs", 0, "against", "exact", "mnll", [1.0]),
    "mapping": ("runs", 0, "against", "exact", 3),
    "word": ("exact", "kernel_error", "x"),
    "measure": ("runs", 0, "against", "exact", {}),
    "huge": ("runs", 0, "coverage", 10**400),
    "versions": ("environment", "versions", [1]),
    "auto": ("settings", "auto", "x", {"x": 1}),
    "methods": ("settings", "methods", None),
    "runs": ("runs", []),
    "deep": ("runs", 0, "seconds", 1.0),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_results_are_named(result, tmp_path, capsys, name):
    *path, last, value = FORGED[name]
    record = node = result.to_dict()
    for key in path:
        node = node[key]
    node[last] = value
    (tmp_path / "results.json").write_text(json.dumps(record), encoding="utf-8")
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert "rfgp: error: expected the results of a study in" in capsys.readouterr().err


def test_names_from_files_do_not_move_the_cursor(result, tmp_path, capsys):
    record = result.to_dict()
    record["settings"]["kernel"] = "\x1b[2J\x9bm\u202erbf"
    for name in ("a", "b"):
        (tmp_path / name).write_text(json.dumps(record), encoding="utf-8")
        record["settings"]["\x1b[31mscaling"] = "unit"
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    printed = capsys.readouterr().out
    assert "\\x1b[31mscaling" in printed and not set("\x1b\x9b\u202e") & set(printed)


def test_the_command(result, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("rfgp.study.page._figures", lambda result: [])
    monkeypatch.setattr(study.StudyResult, "figure", lambda self: plots.figure(1, 1)[0])
    result.save(tmp_path)
    assert main(["compare", str(tmp_path), str(tmp_path / "results.json")]) == 0
    assert "have the same settings, data and versions." in " ".join(capsys.readouterr().out.split())
    assert main(["compare", str(tmp_path), str(tmp_path / "nothing")]) == 2
    assert "expected a directory with results.json of a study" in capsys.readouterr().err
