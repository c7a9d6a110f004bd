"""Uncertainty studies of simulators: exact processes, their check, indices, quantiles and the next runs."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import rfgp
from rfgp.__main__ import main
from rfgp.averaging import AveragedGP, one_target
from rfgp.diagnostics.sensitivity import GaussianCopula, Normal
from rfgp.study.simulators.beyond import Beyond, factors
from rfgp.study.simulators.check import checked
from rfgp.study.simulators.emulator import Emulator
from rfgp.study.simulators.files import read as read_files
from rfgp.study.simulators.limits import Limits
from rfgp.study.simulators.one_output import CutOffFunction, mixed
from rfgp.study.simulators.page import page as page_of
from rfgp.study.simulators.runs import runs_of

LOW, HIGH = np.array([1e9, 0.001, -2.0]), np.array([3e9, 0.003, 2.0])
INPUTS = {"modulus": "uniform(1e9, 3e9)", "width": stats.norm(0.002, 0.0003)}


def outputs(x):
    """Two outputs of inputs in the unit cube: one is additive, the other has an interaction."""
    return np.column_stack([1e6 * (3.0 * x[:, 0] + np.sin(3.0 * x[:, 1])), 1e-3 * x[:, 0] * np.exp(x[:, 2])])


def table(count=60, seed=0):
    """Runs in the units of a simulator."""
    unit = stats.qmc.LatinHypercube(3, seed=seed).random(count)
    x = pd.DataFrame(LOW + (HIGH - LOW) * unit, columns=["modulus", "width", "offset"])
    return x, pd.DataFrame(outputs(unit), columns=["force", "flow"])


@pytest.fixture(scope="module")
def study():
    return rfgp.study.uncertainty(*table(), INPUTS, thresholds={"force": 3e6})


def test_indices_and_moments_are_those_of_many_runs(study):
    levels = stats.qmc.Sobol(3, seed=1).random(2**15)
    normal = (stats.norm(0.002, 0.0003).ppf(levels[:, 1]) - LOW[1]) / (HIGH[1] - LOW[1])
    y = outputs(np.column_stack([levels[:, 0], normal, levels[:, 2]]))
    force_of_modulus = np.var(3e6 * levels[:, 0]) / np.var(y[:, 0])
    low, high = study.sobol.first.interval(0.99)
    assert low[0, 0] - 1e-3 <= force_of_modulus <= high[0, 0] + 1e-3
    assert study.sobol.total.value[0, 2] < 1e-3 and study.sobol.total.interval()[0][0, 2] == 0.0
    whole = torch.from_numpy(y.std(0))
    assert ((study.propagation.mean - torch.from_numpy(y.mean(0))).abs() < 0.01 * whole).all()
    for level in (0.05, 0.5):
        low, high = study.propagation.quantile(level).interval(0.99)
        truth = torch.from_numpy(np.quantile(y, level, axis=0))
        assert ((low <= truth) & (truth <= high)).all()
    _, value, low, high = study.exceedance["force"]
    assert low <= (y[:, 0] > 3e6).mean() <= high and low < value < high


def test_predictions_are_those_of_runs_that_were_not_seen(study):
    x, y = table(400, seed=5)
    mean, std = study.predict(x[["offset", "modulus", "width"]])
    error = torch.from_numpy(y.to_numpy()) - mean
    assert (error.square().mean(0).sqrt() < 0.02 * torch.from_numpy(y.to_numpy()).std(0)).all()
    assert ((error.abs() < 3.0 * std).double().mean(0) > 0.95).all()


def test_left_out_runs_are_those_of_averages_without_them(small_defaults):
    """In the order of the runs, in their units, and each by an average that has never seen it."""
    x, y = (torch.from_numpy(part.to_numpy(copy=True)) for part in table(12))
    emulator = Emulator(x, y[:, :1], torch.Generator().manual_seed(0))
    emulator.generator.manual_seed(1)
    mean, variance = emulator.left_out()
    (output,), (rows,) = emulator.outputs, emulator.rows
    average = output.average.thinned(3)
    for fold in torch.randperm(12, generator=torch.Generator().manual_seed(1)).chunk(4):
        found = average.without(fold).predictive(emulator._scaled(x)[rows[fold]])
        torch.testing.assert_close(mean[rows[fold], 0], emulator.offset + emulator.unit * found.mean)
        torch.testing.assert_close(variance[rows[fold], 0], emulator.unit.square() * found.variance)
    torch.testing.assert_close(average.y, ((y - emulator.offset) / emulator.unit)[rows, 0])


def test_functions_drawn_have_the_moments_of_the_emulator():
    x, y = (torch.from_numpy(part.to_numpy()) for part in table(12))
    emulator = Emulator(x, y, torch.Generator().manual_seed(0))
    emulator.spread = torch.tensor([1.0, 2.0], dtype=torch.float64)
    at = torch.from_numpy(table(7, seed=2)[0].to_numpy(copy=True))
    at[0, 0], at[1], at[2, 2] = 4e9, torch.tensor([3.5e9, 0.0, 2.5], dtype=torch.float64), -2.2  # beyond the runs
    mean, variance = emulator.moments(at)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        groups = [group(at).unflatten(-1, (-1, 2)) for group in emulator.functions(8000)]
    drawn = torch.cat([group[:, 1:] for group in groups], dim=1)
    torch.testing.assert_close(torch.stack([group[:, 0] for group in groups]).mean(0), mean)
    error = (drawn.var(1) / len(drawn[0])).sqrt()
    assert ((drawn.mean(1) - mean).abs() < 4.5 * error).all()
    ratios = drawn.var(1) / variance  # each of the eight groups has random waves of its own
    assert abs(ratios.mean() - 1.0) < 3.0 * ratios.std() / math.sqrt(8.0)


def test_many_runs_have_as_many_draws_of_the_parameters_as_few(monkeypatch):
    monkeypatch.setattr(one_target, "CHOOSING", 40)
    x, y = (torch.from_numpy(part.to_numpy()) for part in table(60))
    emulator = Emulator(x, y, torch.Generator().manual_seed(0))
    assert [len(output.processes) for output in emulator.outputs] == [8, 8]
    assert [len(output.average.y) for output in emulator.outputs] == [60, 60]
    assert len(emulator.functions(16)) == 8


def test_functions_beyond_the_runs_have_the_moments_of_draws():
    """Draws of what is known inside, and of the factors, have the mean and the covariance that are computed."""
    random = torch.Generator().manual_seed(0)
    x = torch.rand(9, 2, generator=random, dtype=torch.float64)
    (process,) = AveragedGP(x, x.sum(-1).sin() + x[:, 0] ** 2).single_draws(1)
    beyond = Beyond(torch.tensor([[0.4, 0.7], [1.5, 0.2], [1.2, 0.9], [1.3, -0.4], [-0.2, 0.5]], dtype=torch.float64))
    within = 2.0**2 * process.covariance(beyond.known, has_noise=False)
    root = torch.linalg.cholesky(within + 1e-9 * torch.eye(len(within)))
    normal = torch.randn(len(within), 40_000, generator=random, dtype=torch.float64)
    inside = process.function(beyond.known).mean.unsqueeze(-1) + root @ normal
    drawn = beyond.values(lambda _: inside, factors(2, 40_000, random)[:, 1:])
    mean, variance = beyond.moments(process, 2.0)
    covariance = beyond.covariance(process, 2.0)
    torch.testing.assert_close(covariance.diagonal(), variance)
    apart = drawn - mean.unsqueeze(-1)
    products = apart.unsqueeze(0) * apart.unsqueeze(1)
    for values, expected in ((drawn, mean), (products, covariance)):
        assert ((values.mean(-1) - expected).abs() < 4.5 * values.std(-1) / math.sqrt(40_000)).all()


def test_failed_runs_are_left_out_of_their_output_only(small_defaults):
    x, y = table(30)
    y.loc[::5, "flow"] = math.nan
    study = rfgp.study.uncertainty(x, y)
    assert study.emulator.left_out()[0].isnan().sum(0).tolist() == [0, 6]
    assert "assumed: the range of the runs" in str(study)


def test_failed_runs_are_counted_and_next_runs_are_elsewhere(small_defaults, tmp_path):
    x = np.random.default_rng(0).random((120, 2))
    fails = x[:, 0] > x[:, 1]
    study = rfgp.study.uncertainty(x, np.where(fails, math.nan, x.sum(1) ** 2), ["uniform(0, 1)"] * 2)
    assert study.failed.tolist() == [fails.sum()] and abs(study.lost.item() - 0.5) < 0.05
    assert (study.next_inputs[:, 0] < study.next_inputs[:, 1]).all()
    page, report = str(study), study.report(tmp_path / "study.html").read_text()
    for words in (f"120 runs ({fails.sum()} failed)", "of the inputs are expected to fail", "most where x"):
        assert words in page and words in report
    at = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wrong = (study.emulator.success(at)[:, 0] > 0.5) != (at[:, 0] < at[:, 1])
    assert wrong.double().mean() < 0.05


def test_failures_that_follow_no_input_leave_candidates(small_defaults):
    x = np.random.default_rng(0).random((60, 2))
    y = np.where(np.random.default_rng(1).random(60) < 0.4, math.nan, x.sum(1))
    study = rfgp.study.uncertainty(x, y)
    assert len(study.next_inputs) == 5 and "runs do not fail in one part" in str(study)


def test_repeated_values_are_bounds(small_defaults):
    def f(x):
        return np.maximum(0.0, 8 * x[:, 0] * x[:, 1] - 3 * x[:, 2] - 0.5)

    random = np.random.default_rng(0)
    x, new = random.random((60, 3)), torch.from_numpy(random.random((500, 3)))
    y = f(x)
    study = rfgp.study.uncertainty(x, np.column_stack([y, -y, x.sum(1)]), ["uniform(0, 1)"] * 3)
    assert study.limits.low.tolist() == [0.0, -math.inf, -math.inf]
    assert study.limits.high.tolist() == [math.inf, 0.0, math.inf]
    low, high = study.propagation.quantile(0.05).interval()
    assert low[0] == high[0] == 0.0 and study.propagation.values[..., 0].min() == 0.0
    assert study.propagation.quantile(0.95).interval()[1][1] == 0.0
    assert (study.predict(new)[0][:, 0] >= 0.0).all()
    page = str(study)
    assert "taken to be at least 0" in page and "taken to be at most 0" in page
    assert page.count(f"{(y == 0.0).sum()} of 60 runs have the value 0.") == 2
    assert study.limits.cuts_off == (True, True, False) and page.count("cuts off a function that goes on") == 2
    truth = f(new.numpy())
    error = study.predict(new)[0][:, :2] - torch.from_numpy(np.column_stack([truth, -truth]))
    assert (error.square().mean(0) < 1e-3 * truth.var()).all(), "the kink is no part of what is learned"
    share, exceeded = (truth > 0.0).mean(), study.propagation.exceedance(0.0)
    assert abs(float(exceeded.value[0]) - share) < 3.0 * (share * (1.0 - share) / 500.0) ** 0.5
    assert float(exceeded.value[1]) == 0.0


def test_outputs_that_no_bound_cuts_off_are_learned_as_they_are(small_defaults):
    """A narrow ridge above zeros: few runs inside the bound do not tell a function that goes on below it."""
    x = np.random.default_rng(0).random((80, 2))
    ridge = np.maximum(0.0, 1.0 - 10.0 * np.abs(x[:, 0] - x[:, 1]))
    study = rfgp.study.uncertainty(x, np.column_stack([ridge, np.sin(9.0 * x[:, 0]).round()]))
    assert study.limits.low.tolist() == [0.0, -1.0] and study.limits.cuts_off[0] is False
    assert "predictions near this value are worse" in str(study)


def test_moments_of_clipped_normals_are_those_of_draws():
    limits = Limits.of(
        torch.tensor([[0.0, 0.0, 1.0]] * 5 + [[1.0, -1.0, 2.0]] * 4 + [[3.0, -4.0, 9.0]], dtype=torch.float64)
    )
    mean, variance = torch.tensor([0.3, 0.2, -50.0]).double(), torch.tensor([0.5, 2.0, 0.04]).double()
    normal = torch.randn(40_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = limits.clipped(mean + variance.sqrt() * normal)
    found = limits.moments(mean, variance)
    assert ((drawn.mean(0) - found[0]).abs() <= 4.0 * (found[1] / 40_000).sqrt()).all()
    torch.testing.assert_close(drawn.var(0), found[1], rtol=0.04, atol=1e-12)
    free = Limits.of(torch.rand(9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).moments(
        mean, variance
    )
    torch.testing.assert_close(free[0], mean)
    torch.testing.assert_close(free[1], variance)


def test_intervals_that_are_too_narrow_are_widened():
    y = torch.randn(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y[::7, 1] = math.nan
    emulator = SimpleNamespace(left_out=lambda: (torch.zeros_like(y), torch.tensor([0.25, 1.0])), limits=Limits.of(y))
    check = checked(emulator, y)
    assert float(check.spread[0]) == pytest.approx(2.0, abs=0.2) and 1.0 <= float(check.spread[1]) < 1.1
    torch.testing.assert_close(check.width, 2.0 * 1.959964 * check.spread * torch.tensor([0.5, 1.0]))
    emulator.limits = Limits(torch.zeros(2), torch.full((2,), math.inf), (None, None))
    torch.testing.assert_close(checked(emulator, y).width, 1.959964 * check.spread * torch.tensor([0.5, 1.0]))
    wide = SimpleNamespace(left_out=lambda: (torch.zeros_like(y), torch.tensor([4.0, 4.0])), limits=Limits.of(y))
    assert checked(wide, y).spread.tolist() == [1.0, 1.0]
    few = torch.linspace(0.0, 2.0 * 1.959964, 12, dtype=torch.float64).unsqueeze(-1)  # of 12, the last one counts
    narrow = SimpleNamespace(left_out=lambda: (torch.zeros_like(few), torch.ones(1)), limits=Limits.of(few))
    assert float(checked(narrow, few).spread) == pytest.approx(2.0)


def test_what_the_kernel_does_not_explain_is_part_of_predictions(small_defaults):
    def f(x):
        return x[:, 0] + 0.05 * np.sin(60.0 * x[:, 1])

    random = np.random.default_rng(0)
    x, new = random.random((60, 2)), random.random((400, 2))
    study = rfgp.study.uncertainty(x, f(x))
    mean, std = study.predict(new)
    inside = (torch.from_numpy(f(new)) - mean).abs() < 1.96 * std
    assert inside.double().mean() > 0.95 - 3.0 * math.sqrt(0.05 * 0.95 / 60)
    emulator, at = study.emulator, torch.from_numpy(new)
    scaled = (at - emulator.low) / emulator.width
    both = [(one.predictive(scaled).variance, one.function(scaled).variance) for one in emulator.outputs[0].processes]
    noise = torch.stack([whole - known for whole, known in both]).mean(0).unsqueeze(-1)
    expected = emulator.moments(at)[1] + (emulator.unit * emulator.spread).square() * noise
    torch.testing.assert_close(emulator.predicted(at)[1], expected)


def test_a_run_that_went_wrong_is_named(small_defaults):
    x, y = table(60)
    y.loc[6, "force"] += 2e7
    study = rfgp.study.uncertainty(x, y["force"])
    assert "Look at run 7" in str(study) and "is predicted badly" in str(study)
    assert study.check.farthest > 100.0  # by runs that know nothing of it: the noise has not learned from it


def test_the_next_runs_leave_less_variance(study):
    assert study.next_runs().columns.tolist() == ["modulus", "width", "offset"]
    assert (study.model_std.diff(dim=0) < 0.0).all()


def test_inputs_beyond_the_runs_are_named(small_defaults):
    x, y = table(20)
    page = str(rfgp.study.uncertainty(x, y["flow"], {"offset": "uniform(-2.5, 2)"}))
    assert "of offset is outside the runs" in page and "of width is outside" not in page


def test_the_next_runs_are_where_inputs_may_be(small_defaults):
    generator = np.random.default_rng(0)
    runs = pd.DataFrame(3.0 * generator.random((40, 3)), columns=["dose", "time", "place"])
    law = stats.lognorm(0.9)
    found = rfgp.study.uncertainty(runs, runs.sum(axis=1), {"dose": law})
    assert law.sf(found.next_runs()["dose"].max()) > 1e-4  # of 512 candidates one has a level of 1 - 5e-7


def test_intervals_know_of_the_inputs_beyond_the_runs(small_defaults):
    """Nine tenths of a long tail are where the runs are, and a quarter of its variance; a sum has known indices."""
    load = stats.lognorm(1.0)
    low, high = load.ppf([0.05, 0.95])
    unit = stats.qmc.LatinHypercube(2, seed=0).random(40)
    x = np.column_stack([low + (high - low) * unit[:, 0], unit[:, 1]])
    study = rfgp.study.uncertainty(x, x[:, 0] + 5.0 * x[:, 1], {"load": load, "length": "uniform(0, 1)"})
    index = load.var() / (load.var() + 25.0 / 12.0)
    (low, high), found = study.sobol.first.interval(), study.sobol.first.value[0, 0]
    assert low[0, 0] <= index <= high[0, 0] and high[0, 0] - low[0, 0] > 0.15 and abs(found - index) < 0.05
    assert study.sobol.outside[1, 0] > 0.7 and "of the variance of load" in str(study)
    mean, std = study.predict([[20.0, 0.5]])
    assert abs(mean - 22.5) < 0.5 and abs(std - (20.0 - x[:, 0].max())) < 0.5  # the growth beyond, as much as expected


def test_the_page_and_the_report_say_the_same(study, tmp_path):
    page, report = str(study), study.report(tmp_path / "study.html").read_text()
    for words in (
        "Can the emulator be trusted?",
        "Which inputs matter?",
        "What should be run next?",
        "force",
        "offset",
    ):
        assert words in page and words in report
    assert report.count("<img") == 4
    assert study.to_frame()["output"].unique().tolist() == ["force", "flow"]


def test_figures_have_their_legends_below_and_four_lines_at_most(small_defaults):
    x = np.random.default_rng(0).random((40, 5))
    study = rfgp.study.uncertainty(x, x @ np.arange(1.0, 6.0))
    (section,) = [section for section in page_of(study).sections if section.figures]
    (_, bars), (caption, lines) = section.figures()
    assert len(bars.axes[0].containers[0]) == 5 and len(lines.axes[0].get_lines()) == 4
    assert caption == "Main effects on y (4 inputs with the largest total indices)"
    for figure in (bars, lines):
        assert figure.axes[0].get_legend() is None and len(figure.legends) == 1
    assert [text.get_text() for text in lines.legends[0].get_texts()] == ["x5", "x4", "x3", "x2"]


def test_findings_are_told_in_the_units_of_the_names(small_defaults):
    """A bound, a kink, failures, a threshold and interactions, in sentences with numbers."""
    x = np.random.default_rng(0).random((80, 2))
    flow = np.maximum(0.0, 8.0 * x[:, 0] * x[:, 1] - 2.0)
    heat = np.where(x[:, 1] > 0.8, math.nan, 300.0 + 20.0 * np.abs(x[:, 0] - 0.4))
    x, y = pd.DataFrame(x, columns=["depth [m]", "load"]), pd.DataFrame({"flow [m3/s]": flow, "heat [K]": heat})
    laws = dict.fromkeys(x.columns, "uniform(0, 1)")
    study = rfgp.study.uncertainty(x, y, laws, thresholds={"flow [m3/s]": 2.0})
    page, failed = str(study), np.isnan(heat).sum()
    zeros, width = (flow == 0.0).sum(), study.check.width.tolist()
    assert f"95 % interval of a new run is {width[0]:.2g} m3/s wide (median)" in page
    assert f"{zeros} of 80 runs have the value 0 m3/s" in page and "taken to be at least 0 m3/s: its" in page
    assert f"{failed} of 80 runs failed" in page
    load = x["load"][x["load"] > 0.8].sort_values().iloc[(failed - 1) // 2]
    assert f"runs fail most where load is large (median of failed runs {load:.4g}, of others" in page
    _, value, low, high = (100.0 * number for number in study.exceedance["flow [m3/s]"])
    assert f"exceeds 2 m3/s with a probability of {value:.3g} % (95 % interval: {low:.3g} % to {high:.3g} %)" in page
    low, high = (float(study.propagation.quantile(level).value[1]) for level in (0.05, 0.95))
    assert f"the 90 % interval is {high - low:.3g} K wide, from {low:.4g} K to {high:.4g} K" in page
    turn = re.search(r"With depth, the mean of heat falls from \S+ K at \S+ m to (\S+) K at (\S+) m, and rises", page)
    lowest = float(study.effects.effect.value[1, :, 0].min())
    assert turn[1] == f"{lowest:.4g}" and abs(float(turn[2]) - 0.4) < float(study.effects.grid[:, 0].diff().max())
    whole = 100.0 * float(study.sobol.total[0].value.sum())
    assert whole > 110.0 and f"Totals sum to {whole:.0f} %, because an interaction is counted" in page


def test_totals_that_do_not_exceed_the_whole_have_no_sentence(small_defaults):
    x = np.random.default_rng(0).random((40, 2))
    study = rfgp.study.uncertainty(x, x.sum(1))
    assert "Totals sum to" not in str(study)


def test_files_and_the_command(small_defaults, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.concat(table(30), axis=1).to_csv("runs.csv", index=False)
    (tmp_path / "inputs.toml").write_text(
        '[inputs]\nmodulus = "uniform(1e9, 3e9)"\n'
        'width = {distribution = "normal", mean = 0.002, sd = 0.0003}\noffset = "uniform(-2, 2)"\n'
        "[thresholds]\nforce = 3e6\n"
    )
    assert main(["study", "runs.csv", "--inputs", "inputs.toml"]) == 0
    assert "force" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "study-results").iterdir()) == [
        "indices.csv",
        "next_runs.csv",
        "study.html",
    ]
    assert main(["study", "runs.csv", "--inputs", "inputs.toml"]) == 2
    assert "expected a directory without study.html" in capsys.readouterr().err
    (tmp_path / "inputs.toml").write_text('[inputs]\nmodulos = "uniform(1e9, 3e9)"\n')
    assert main(["study", "runs.csv", "--inputs", "inputs.toml", "--force"]) == 2
    assert "did you mean 'modulus'?" in capsys.readouterr().err


def joined(rho=0.8):
    correlation = pd.DataFrame(np.eye(3), ["load", "length", "width"], ["load", "length", "width"])
    correlation.loc["load", "length"] = correlation.loc["length", "load"] = rho
    return GaussianCopula(dict.fromkeys(("load", "length", "width"), Normal(0.0, 1.0)), correlation)


def test_inputs_that_depend_on_each_other_have_shapley_effects(small_defaults, tmp_path):
    """Of a linear function of normal inputs, the effects are known: what two share, each has half of."""
    draws = joined(0.0).sample(60, torch.Generator().manual_seed(0)).numpy()
    x = pd.DataFrame(draws, columns=["load", "length", "width"])[["width", "load", "length"]]
    y = (x["load"] + x["length"] + 0.5 * x["width"]).rename("force")
    study = rfgp.study.uncertainty(x, y, joined(), thresholds={"force": 2.0})
    wanted = torch.tensor([[0.25, 1.8, 1.8]], dtype=torch.float64) / 3.85
    low, high = study.shapley.effects.interval(0.99)
    margin = 3.0 * study.shapley.standard_error
    assert ((low - margin <= wanted) & (wanted <= high + margin)).all()
    exceeded = stats.norm.sf(2.0, scale=3.85**0.5)
    assert abs(study.exceedance["force"][1] - exceeded) < 3.0 * (exceeded * (1.0 - exceeded) / 512) ** 0.5
    frame = study.to_frame()
    assert frame["input"].tolist() == ["width", "load", "length"] and frame["output"].tolist() == ["force"] * 3
    assert np.allclose(frame["effect"], study.shapley.effects.value[0])
    page = str(study)
    assert "Shapley effects: shares" in page and "Sobol" not in page and "load     0.00  1.00    0.80" in page
    assert "Shapley effects on force" in study.report(tmp_path / "study.html").read_text(encoding="utf-8")
    spread = study.next_runs()[["load", "length"]].to_numpy()
    assert np.isfinite(spread).all()
    with pytest.raises(ValueError, match=r"expected independent inputs for Sobol' indices.*study.shapley"):
        study.sobol.table()


def test_independent_inputs_have_no_shapley_effects(study):
    with pytest.raises(ValueError, match=r"got independent ones; read study\.sobol"):
        study.shapley.table()


def test_correlations_of_a_file_join_inputs(tmp_path):
    x, y = table(20)
    runs, inputs = tmp_path / "runs.csv", tmp_path / "inputs.toml"
    pd.concat([x, y], axis=1).to_csv(runs, index=False)
    names = '[inputs]\nwidth = "uniform(0.001, 0.003)"\nmodulus = "uniform(1e9, 3e9)"\n'

    def found(correlations):
        inputs.write_text(f"{names}[correlations]\n{correlations}\n", encoding="utf-8")
        return read_files(runs, inputs).inputs

    assert found("modulus = {width = -0.3}").correlation.tolist() == [[1.0, -0.3], [-0.3, 1.0]]
    assert list(found("modulus = {width = -0.3}").inputs) == ["width", "modulus"]
    for wrong in ("modulus = {force = 0.5}", "modulus = {modulus = 1.0}"):
        with pytest.raises(ValueError, match="expected pairs of width, modulus in"):
            found(wrong)
    with pytest.raises(ValueError, match=r"expected numbers by pairs of inputs in \[correlations\]"):
        found("modulus = 0.5")
    with pytest.raises(ValueError, match=r"one correlation of 'width' and 'modulus', got 0\.5 and 0\.6"):
        found("modulus = {width = 0.5}\nwidth = {modulus = 0.6}")
    with pytest.raises(ValueError, match="expected a positive definite correlation"):
        found("modulus = {width = 1.0}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x, y.iloc[:-1]), "expected x and y of as many rows"),
        (lambda x, y: (x.iloc[:5], y.iloc[:5]), "expected at least 10 runs"),
        (lambda x, y: (x.assign(kind="a"), y), "expected numbers in x"),
        (lambda x, y: (x, ["a"] * 20), "expected numbers for y, got text, such as 'a'"),
        (lambda x, y: (x.iloc[:0], y.iloc[:0]), "expected rows and columns in x, got none"),
        (lambda x, y: (x.assign(width=1.0), y), "different values of the input width"),
        (lambda x, y: (x, y.assign(flow=2.0)), "different values of the output flow"),
        (lambda x, y: (x, y.assign(flow=math.inf)), "expected finite numbers in the output flow"),
        (lambda x, y: (x, y.assign(flow=math.nan)), "expected 10 runs with the output flow"),
        (lambda x, y: (x, y, {"widht": "uniform(0, 1)"}), "did you mean 'width'?"),
        (lambda x, y: (x, y, {"width": "uniform(1, 3)"}), "expected width near the training inputs"),
        (lambda x, y: (x, y, ["uniform(0, 1)"]), "expected 3 distributions"),
        (lambda x, y: (x, y, "uniform(0, 1)"), "expected distributions by name"),
        (lambda x, y: (x.to_numpy(), y, {"width": "uniform(0, 1)"}), "a distribution for each of the 3 columns"),
        (lambda x, y: (x, y, GaussianCopula({"width": Normal(0.0, 1.0)}, [[1.0]])), "expected all columns of x in the"),
    ],
)
def test_what_is_refused(small_defaults, change, words):
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        rfgp.study.uncertainty(*change(*table(20)))


def test_runs_of_other_libraries_are_those_of_pandas():
    polars = pytest.importorskip("polars")
    x, y = table(20)
    known = runs_of(x, y, INPUTS)
    found = runs_of(polars.from_pandas(x), polars.from_pandas(y), INPUTS)
    assert torch.equal(found.x, known.x) and torch.equal(found.y, known.y)
    assert list(found.inputs) == list(known.inputs) and found.outputs == known.outputs


@torch.no_grad()
def test_a_function_that_a_bound_cuts_off_is_learned_with_what_is_not_known_of_it():
    """Left-out runs inside have the errors of new ones, and intervals cover these."""
    random = np.random.default_rng(3)
    x, new = (torch.from_numpy(random.random((count, 6))) for count in (60, 2000))

    def inner(x):
        return torch.sin(3.0 * x[:, 0]) + x[:, 1] ** 2 + 0.5 * x[:, 2] * x[:, 3] - 1.1

    g, is_inside, generator = inner(x), inner(new) > 0.0, torch.Generator().manual_seed(0)
    output = CutOffFunction(x, g.clamp_min(0.0), g > 0.0, g <= 0.0, generator)
    found = [process.predictive(new) for process in output.processes]
    mean, variance = mixed(torch.stack([one.mean for one in found]), torch.stack([one.variance for one in found]))
    error = (mean - inner(new))[is_inside].abs()
    covered = (error <= 1.96 * variance.sqrt()[is_inside]).double().mean()
    assert covered > 0.95 - 3.0 * (0.05 * 0.95 / (g > 0.0).sum()) ** 0.5
    left_out = (output.left_out[0] - g)[g > 0.0].abs()
    assert left_out.median() > 0.5 * error.median(), "values beyond the bound know no left-out run"
