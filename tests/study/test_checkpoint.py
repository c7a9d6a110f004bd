"""Studies that stop and go on, and directories that are not overwritten by mistake."""

from __future__ import annotations

import json

import pytest
import torch

from rfgp import study
from rfgp.__main__ import main
from rfgp.study import plots
from rfgp.study.bench import Bench
from rfgp.study.checkpoint import FOLDER
from rfgp.study.datasets import Dataset
from rfgp.study.result import FILES

SETTINGS = {
    "kernel": "polynomial:3",
    "methods": ["rademacher:real", "landmarks"],
    "num_features": [4, 8],
    "num_seeds": 2,
    "progress": False,
}
JOBS = 8


@pytest.fixture(scope="module")
def dataset():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    y = x[:, 0] * x[:, 1] + 0.1 * torch.randn(40, generator=generator, dtype=torch.float64)
    return Dataset("toy", x[:30], y[:30], x[30:], y[30:], "regression", None, "made up", "none")


@pytest.fixture(autouse=True)
def few_figures(monkeypatch):
    """Reports without their panels, which take seconds."""
    monkeypatch.setattr("rfgp.study.page._figures", lambda result: "")
    monkeypatch.setattr(study.StudyResult, "figure", lambda self: plots.figure(1, 1)[0])


@pytest.fixture
def stops(monkeypatch):
    """Makes the user interrupt after some measurements, and counts those that are made."""
    real, measured = Bench.measure, []

    def after(count):
        def measure(self, job):
            if len(measured) == count:
                raise KeyboardInterrupt
            measured.append(job)
            return real(self, job)

        monkeypatch.setattr(Bench, "measure", measure)
        return measured

    return after


def numbers(result):
    """What does not depend on the machine."""
    return [(run.method, run.num_features, run.seed, run.kl, run.error, run.mnll, run.against) for run in result.runs]


def test_a_study_goes_on_where_it_has_stopped(dataset, stops, tmp_path):
    whole = study.run(dataset, **SETTINGS)
    measured = stops(3)
    with pytest.raises(KeyboardInterrupt, match=r"3 runs are kept in .*; --resume goes on with it"):
        study.run(dataset, out=tmp_path, **SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER]
    with (tmp_path / FOLDER / "runs.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"method": "landma')  # the machine went off while this was written
    with pytest.raises(ValueError, match=r"expected an empty directory .* with checkpoint; go on .* --resume"):
        study.run(dataset, out=tmp_path, **SETTINGS)
    with pytest.raises(ValueError, match=r"has num_features = \[4, 8\], got \[4\]; choose that, or .* --force"):
        study.run(dataset, out=tmp_path, resume=True, **{**SETTINGS, "num_features": [4]})
    stops(-1)
    result = study.run(dataset, out=tmp_path, resume=True, **SETTINGS)
    assert len(measured) == JOBS and len(set(measured)) == JOBS
    assert numbers(result) == numbers(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)


def test_a_finished_study_is_read_again(dataset, stops, tmp_path):
    result = study.run(dataset, out=tmp_path, **SETTINGS)
    stops(0)
    again = study.run(dataset, out=tmp_path, resume=True, **SETTINGS)
    assert numbers(again) == numbers(result) and str(again.verdict()) == str(result.verdict())
    assert again.to_dict() == json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match="which has num_seeds = 2, got 3"):
        study.run(dataset, out=tmp_path, resume=True, **{**SETTINGS, "num_seeds": 3})


def test_other_data_are_not_gone_on_with(dataset, tmp_path):
    study.run(dataset, out=tmp_path, **SETTINGS)
    other = Dataset(**{**vars(dataset), "y_train": 2.0 * dataset.y_train})
    with pytest.raises(ValueError, match="which has rows = "):
        study.run(other, out=tmp_path, resume=True, **SETTINGS)


def test_force_replaces_results_and_nothing_else(dataset, tmp_path):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "results.json").write_text("old", encoding="utf-8")
    with pytest.raises(ValueError, match=r"with notes\.txt, results\.json; go on"):
        study.run(dataset, out=tmp_path, **SETTINGS)
    study.run(dataset, out=tmp_path, force=True, **SETTINGS)
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert study.load(tmp_path).data["name"] == "toy"


def test_an_interrupted_command_says_how_to_go_on(stops, tmp_path, capsys):
    stops(1)
    out = tmp_path / "out"
    command = ["study", "diabetes", "--methods", "rademacher:real", "--num-features", "8", "--seeds", "2"]
    command += ["--exact-limit", "30", "--out", str(out)]
    assert main(command) == 130
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "interrupted" in line]
    assert line.endswith(f"rfgp: interrupted: 1 run is kept in {str(out)!r}; --resume goes on with it")
    stops(-1)
    assert main([*command, "--resume"]) == 0 and len(study.load(out).runs) == 2


@pytest.mark.parametrize("text", ["{}", "[1]", "no JSON", '{"settings": {}}'])
def test_files_that_are_no_study(text, tmp_path):
    (tmp_path / "results.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected the results of a study in .*, got another file"):
        study.load(tmp_path)
    with pytest.raises(ValueError, match=r"expected a directory with results\.json of a study, got"):
        study.load(tmp_path / "nothing")
