"""The study and its command, end to end on small data: what is measured, written and printed, and every refusal."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from rfgp import study
from rfgp.__main__ import main
from rfgp._support import files
from rfgp.approximation import selection
from rfgp.approximation.selection import best_method
from rfgp.diagnostics import Measurement
from rfgp.diagnostics.kl import kl_per_point
from rfgp.study import bench, datasets, tables
from rfgp.study.runs import MEASURES, plain
from rfgp.study.scaling import scale_inputs

METHODS = ["tensor_srht:ctr", "rademacher:real"]


def regression_file(directory, rows=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    y = 50 + 10 * x[:, 0] * x[:, 1] + rng.normal(size=rows)
    lines = ["a,b,c,yield", *(f"{a},{b},{c},{v}" for (a, b, c), v in zip(x, y, strict=True))]
    path = directory / "plants.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def classification_file(directory, rows=60):
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % 3
    pixels = rng.uniform(size=(rows, 4)) + 2.0 * np.eye(4)[labels]
    path = directory / "shapes.npz"
    np.savez(path, x=pixels, kind=np.array(["disc", "ring", "star"])[labels])
    return path


def run(dataset, **settings):
    defaults = {
        "kernel": "polynomial:3",
        "methods": METHODS,
        "num_features": [8, 16],
        "num_seeds": 2,
        "progress": False,
    }
    return study.run(dataset, **{**defaults, **settings})


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    return tables.read(regression_file(tmp_path_factory.mktemp("regression")), "yield").split()


@pytest.fixture(scope="module")
def classification(tmp_path_factory):
    return datasets.read_archive(classification_file(tmp_path_factory.mktemp("classification")), "kind")


@pytest.fixture(scope="module")
def regression_result(regression):
    return run(regression)


@pytest.mark.parametrize(("kind", "exact_limit"), [("regression", 1000), ("classification", 30)])
def test_command(kind, exact_limit, tmp_path, capsys):
    path = {"regression": regression_file, "classification": classification_file}[kind](tmp_path)
    target = {"regression": "yield", "classification": "kind"}[kind]
    out = tmp_path / "deep" / "out"
    options = [
        "--kernel",
        "polynomial:3",
        "--methods",
        ",".join(METHODS),
        "--num-features",
        "8, 16",
        "--seeds",
        "2",
        "--scaling",
        "unit",
    ]
    code = main(["study", str(path), "--target", target, *options, f"--exact-limit={exact_limit}", "--out", str(out)])
    printed = capsys.readouterr()
    assert code == 0 and "study: 100%" in printed.err and "rfgp: error" not in printed.err
    assert f"{path.stem}: {kind}, 48 training rows, 12 test rows" in printed.out
    assert sorted(file.name for file in out.iterdir()) == ["report.html", "results.json", "study.png"]
    assert (out / "study.png").read_bytes().startswith(b"\x89PNG")

    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    settings, data = results["settings"], results["data"]
    assert (settings["kernel"], settings["methods"], settings["num_features"]) == ("polynomial:3", METHODS, [8, 16])
    assert (settings["seeds"], settings["exact_limit"], settings["scaling"]) == ([0, 1], exact_limit, "unit")
    assert (data["task"], data["num_train"], data["exact_rows"]) == (kind, 48, min(48, exact_limit))
    assert "divided by their norms" in data["preprocessing"] and data["provenance"] in (str(path), path.name)
    assert results["environment"]["versions"].keys() >= {"python", "rfgp", "torch", "gpytorch"}
    assert results["environment"]["platform"] and results["environment"]["threads"]
    assert "covar_module.outputscale" in results["training"]["parameters"]
    jobs = {(r["method"], r["num_features"], r["seed"]) for r in results["runs"]}
    assert jobs == {(method, width, seed) for method in METHODS for width in (8, 16) for seed in (0, 1)}
    for record in [results["exact"], *results["runs"]]:
        numbers = {name: value for name, value in record.items() if name not in ("method", "num_features", "seed")}
        noisy, trust = numbers.pop("kl_noisy"), (numbers.pop("coverage"), numbers.pop("overconfidence"))
        rows, against, outputs = (numbers.pop(name) for name in ("row_errors", "against", "outputs"))
        assert all(isinstance(value, float) and value >= 0 for name, value in numbers.items() if name != "mnll")
        assert (noisy is None, trust[1] is not None) == (kind == "classification",) * 2
        assert (trust[0] is not None) == (kind == "regression") and all(error >= 0 for error in rows.values())
        assert {"linear", "trivial"} <= set(against) and outputs == {}
    assert [record["method"] for record in results["baselines"]] == ["linear", "boosting", "trivial"]
    assert "".join(results["verdict"]["headline"].split()) in "".join(printed.out.split())
    assert all(r["kl"] > 0 and r["kl_reverse"] > 0 and r["kernel_error"] > 0 for r in results["runs"])
    assert results["exact"]["kl"] == 0
    assert len(results["summaries"]) == 4
    for method in METHODS:
        assert sum(line.startswith(method) for line in printed.out.splitlines()) == 2
    assert f"exact, {data['exact_rows']} rows" in printed.out


def test_summaries_are_means_and_standard_errors(regression_result):
    runs = [r for r in regression_result.runs if (r.method, r.num_features) == (METHODS[0], 16)]
    (row,) = [s for s in regression_result.summaries() if (s.method, s.num_features) == (METHODS[0], 16)]
    for measure in (name for name in MEASURES if name != "overconfidence"):
        values = torch.tensor([getattr(r, measure) for r in runs], dtype=torch.float64)
        assert row.mean[measure] == pytest.approx(float(values.mean()))
        assert row.standard_error[measure] == pytest.approx(float(values.std() / 2**0.5))


def test_one_seed_has_no_standard_error(regression):
    result = run(regression, methods=METHODS[:1], num_features=[8], num_seeds=1)
    assert all(math.isnan(error) for error in result.summaries()[0].standard_error.values())
    assert "±" not in result.table() and "one seed" in result.table()
    assert result.to_dict()["summaries"][0]["standard_error"]["kl"] is None


def test_the_same_study_gives_the_same_numbers(regression, regression_result):
    again = run(regression, methods=METHODS[1:], num_features=[16])
    selected = [r for r in regression_result.runs if (r.method, r.num_features) == (METHODS[1], 16)]
    for a, b in zip(again.runs, selected, strict=True):
        assert (a.seed, a.kl, a.error, a.mnll) == pytest.approx((b.seed, b.kl, b.error, b.mnll), rel=1e-9)


@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize("limit", [1000, 20])
def test_exact_features_are_no_distance_from_exact(kind, limit, request):
    dataset = request.getfixturevalue(kind)
    result = run(dataset, kernel="linear", methods=["linear"], num_features=[4], num_seeds=1, exact_limit=limit)
    (only,) = result.runs
    assert only.kl < 1e-9 and only.kl_reverse < 1e-9 and only.kernel_error < 1e-9
    if limit == 1000:
        assert (only.error, only.mnll) == pytest.approx((result.exact.error, result.exact.mnll), rel=1e-6)


@pytest.mark.parametrize(
    ("kernel", "methods"),
    [
        (
            "rbf",
            [
                "fourier",
                "fourier_orthogonal",
                "fourier_hadamard",
                "landmarks",
                "optimized_maclaurin:real",
                "optimized_maclaurin:ctr",
            ],
        ),
        ("matern:0.5", ["fourier", "fourier_orthogonal", "fourier_hadamard", "landmarks"]),
        ("rq", ["fourier", "fourier_orthogonal", "fourier_hadamard", "landmarks"]),
        ("linear", list(study.METHODS)),
    ],
)
def test_methods_where_none_are_named(regression, kernel, methods):
    result = run(regression, kernel=kernel, methods=None, num_features=[8], num_seeds=1, exact_limit=30)
    assert [r.method for r in result.runs] == result.settings["methods"] == methods
    assert all(0.0 < r.kl < math.inf and 0.0 <= r.kernel_error < math.inf for r in result.runs)


def test_features_come_closer_to_a_shift_invariant_kernel(regression):
    result = run(regression, kernel="matern:1.5", methods=["fourier"], num_features=[8, 512], num_seeds=3)
    errors = {row.num_features: row.mean["kernel_error"] for row in result.summaries()}
    assert errors[512] < 0.5 * errors[8]


def test_auto_of_a_study_is_the_method_that_is_predicted_to_be_best(regression):
    measured = bench.Bench(regression, study.exact_kernel("rbf"), 48, 0.01, "standardize")
    chosen = best_method(measured.kernel, 16, measured.x)
    kernels = [measured.approximation(method, 16, 0) for method in ("auto", chosen)]
    assert torch.equal(*[kernel(measured.x[:9]).to_dense() for kernel in kernels])


@pytest.mark.long("a whole study")
def test_tables_and_results_name_the_method_that_auto_took(regression, tmp_path):
    settings = {"methods": ["auto", "fourier"], "num_features": [8, 16], "num_seeds": 1, "exact_limit": 30}
    result = run(regression, kernel="rbf", **settings)
    chosen = result.settings["auto"]
    measured = bench.Bench(regression, study.exact_kernel("rbf"), 30, 0.01, "standardize")
    assert set(chosen) == {8, 16} and set(chosen.values()) <= set(
        selection.ranking.methods_for_auto(measured.kernel, measured.x)
    )
    lines = result.table().splitlines()
    for width, method in chosen.items():
        assert any(f"auto ({method})" in line and f" {width} " in line for line in lines)
    result.save(tmp_path)
    saved = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert saved["settings"]["auto"] == {str(width): method for width, method in chosen.items()}
    assert {record["method"] for record in saved["runs"]} == {"auto", "fourier"}
    assert "auto" not in run(regression, **settings | {"methods": ["tensor_srht"]}).settings


def test_error_and_mnll_are_in_units_of_the_target(regression):
    settings = {"methods": METHODS[:1], "num_features": [16], "num_seeds": 1}
    result = run(regression, **settings)
    scaled = torch.tensor(1000.0) * regression.y_train, torch.tensor(1000.0) * regression.y_test
    large = run(type(regression)(**{**vars(regression), "y_train": scaled[0], "y_test": scaled[1]}), **settings)
    assert large.exact.error == pytest.approx(1000.0 * result.exact.error, rel=1e-3)
    assert large.exact.mnll == pytest.approx(result.exact.mnll + math.log(1000.0), rel=1e-3)
    assert result.exact.error < float(regression.y_test.std())


def test_scaling():
    train, test = torch.rand(50, 4, dtype=torch.float64) + 5.0, torch.rand(9, 4, dtype=torch.float64)
    train[:, 1] = 3.0
    scaled, other, text = scale_inputs(train, test, "standardize")
    assert torch.allclose(scaled.mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(scaled.square().sum(0) / 50, torch.tensor([0.25, 0.0, 0.25, 0.25], dtype=torch.float64))
    assert torch.allclose(other[:, 1], (test[:, 1] - 3.0) / 2.0) and "standardized" in text
    train[0] = 0.0
    norms = scale_inputs(train, test, "unit")[0].norm(dim=-1)
    assert norms[0] == 0 and torch.allclose(norms[1:], torch.ones(49, dtype=torch.float64))
    assert scale_inputs(train, test, "none")[0] is train


def test_figure_has_a_panel_for_each_measure(regression_result):
    figure = regression_result.figure()
    labels = [(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes]
    xs = ["number of features"] * 4 + ["time to fit and predict (s)"] * 4
    ys = ["KL(approximate, exact)", "test RMSE", "test MNLL", "coverage of 95 %"]
    assert labels == list(zip(xs, ys * 2, strict=True))
    assert [ax.get_xscale() for ax in figure.axes] == ["log"] * 8
    assert [ax.get_yscale() for ax in figure.axes] == ["log", "log", "linear", "linear"] * 2
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert names == {*METHODS, "exact, 48 rows", "linear", "nominal"}


def test_files_appear_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")

    def broken(temporary):
        temporary.write_text("ne", encoding="utf-8")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        files.write_whole(path, broken)
    assert [file.name for file in tmp_path.iterdir()] == ["file"] and path.read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (21.674, 0.5321, "21.67 ± 0.53"),
        (1234.5, 67.8, "1234 ± 68"),
        (5.38782, 0.0009, "5.3878 ± 0.0009"),
        (0.0123, 0.0049, "0.0123 ± 0.0049"),
        (0.0, 0.0, "0"),
        (2.5, math.nan, "2.5"),
        (math.inf, math.nan, "inf"),
    ],
)
def test_means_with_standard_errors(mean, error, text):
    assert str(Measurement(mean, error)) == text


def test_a_vanished_variance_is_infinitely_far():
    p = torch.distributions.Normal(torch.zeros(2), torch.tensor([1.0, 0.0]), validate_args=False)
    q = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
    assert kl_per_point(p, q) == kl_per_point(q, p) == math.inf and kl_per_point(q, q) == 0.0
    assert plain({"kl": math.inf, "x": (1, math.nan)}) == {"kl": None, "x": [1, None]}


BAD_SETTINGS = [
    ({"kernel": "periodic"}, "expected polynomial:p with a degree p, linear, rbf, rq, or matern:nu .* got 'periodic'"),
    ({"kernel": "matern:2"}, "matern:nu with nu 0.5, 1.5 or 2.5 as the kernel, got 'matern:2'; choose one of these"),
    ({"kernel": "polynomial:0"}, "got 'polynomial:0'"),
    ({"kernel": "polynomial:21"}, "expected an integer from 1 to 20 for power, got 21"),
    ({"methods": ["fourier"]}, "expected one of the methods rademacher, .* for PolynomialKernel, got 'fourier'"),
    ({"kernel": "rbf"}, "expected one of the methods fourier, .* for RBFKernel, got 'tensor_srht:ctr'"),
    ({"methods": ["magic"]}, "expected a method among rademacher, .* got 'magic'"),
    ({"methods": ["rademacher:imaginary"]}, "got 'rademacher:imaginary'"),
    ({"methods": []}, "expected at least one value for methods, got none"),
    ({"num_features": [9]}, "expected an even num_features for tensor_srht:ctr, .* got 9"),
    ({"num_features": []}, "expected at least one value for num_features, got none"),
    ({"num_seeds": 0}, "expected an integer from 1 to 1000 for num_seeds, got 0"),
    ({"exact_limit": 0}, "expected a positive integer for exact_limit, got 0"),
    ({"scaling": "minmax"}, "expected one of standardize, unit, none for scaling, got 'minmax'"),
]


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS)
def test_bad_settings(regression, monkeypatch, settings, message):
    monkeypatch.setattr("rfgp.study.bench.fit", None)  # nothing is learned before the settings are checked
    with pytest.raises(ValueError, match=message):
        run(regression, **settings)


def test_a_model_too_large_for_memory(regression, monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 64)
    with pytest.raises(
        ValueError, match=r"expected the training of an exact model of 48 rows to fit in .*--exact-limit"
    ):
        run(regression)


BAD_COMMANDS = [
    ([], "the following arguments are required: COMMAND; see rfgp --help"),
    (["study"], "the following arguments are required: DATA; see rfgp study --help"),
    (["stud"], "invalid choice: 'stud'"),
    (["study", "moons"], "expected one of concrete, diabetes, digits"),
    (
        ["study", "diabetes", "--target", "y"],
        "expected --target, --task and --inputs for tables and NPZ files, got 'diabetes'",
    ),
    (["study", "protein"], "expected a data directory with protein.npz, got none"),
    (["study", "protein", "--data-dir", "nowhere"], "expected an existing file, got 'nowhere/protein.npz'"),
    (["study", "nowhere.csv", "--target", "y"], "expected an existing file, got 'nowhere.csv'"),
    (["study", "FILE"], "expected the name of the target in"),
    (["study", "FILE", "--target", "y"], "expected the name of one column of plants.csv (a, b, c, yield) or its index"),
    (["study", "FILE", "--target", "yield", "--task", "ranking"], "argument --task: invalid choice: 'ranking'"),
    (["study", "FILE", "--target", "yield", "--task", "classification"], "expected class labels in target 'yield'"),
    (["study", "diabetes", "--methods", "magic"], "got 'magic'; choose one of these"),
    (["study", "diabetes", "--methods", ","], "expected at least one value for methods, got none"),
    (["study", "diabetes", "--kernel", "cubic"], "expected polynomial:p with a degree p, linear, rbf, rq"),
    (["study", "diabetes", "--num-features", "8,x"], "argument --num-features: expected a positive integer, got 'x'"),
    (["study", "diabetes", "--num-features", "-8"], "argument --num-features: expected a positive integer, got '-8'"),
    (["study", "diabetes", "--seeds", "0"], "argument --seeds: expected a positive integer, got '0'"),
    (["study", "diabetes", "--exact-limit", "1.5"], "argument --exact-limit: expected a positive integer, got '1.5'"),
    (
        ["study", "diabetes", "--alpha-epsilon", "small"],
        "--alpha-epsilon: expected a positive number, got 'small'",
    ),
    (["study", "digits", "--alpha-epsilon", "-1"], "argument --alpha-epsilon: expected a positive number, got '-1'"),
    (["study", "diabetes", "--out", "FILE"], "expected a directory for --out, got the file"),
    (["study", "diabetes", "--speed", "9"], "unrecognized arguments: --speed 9"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_COMMANDS)
def test_bad_commands(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("RFGP_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    path = regression_file(tmp_path)
    assert main([str(path) if part == "FILE" else part for part in arguments]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("rfgp: error: ") and message in line


@pytest.mark.parametrize("arguments", [["--help"], ["study", "--help"]])
def test_help(arguments, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    assert "study" in capsys.readouterr().out
