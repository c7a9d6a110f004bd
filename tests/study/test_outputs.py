"""Studies of several outputs, of vector fields and of data frames, and kernels that are chosen."""

from __future__ import annotations

import functools
import math

import pandas
import pytest
import torch

import rfgp
from rfgp import study
from rfgp.study import plots, tables
from rfgp.study.bench import Bench
from rfgp.study.datasets import Dataset
from rfgp.study.kernel_choice import leave_one_out, rank_kernels
from rfgp.study.losses import classification_losses, regression_losses


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Reports without their panels, which take seconds, and short searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rfgp.study.page._figures", lambda result: "")
        patch.setattr(study.StudyResult, "figure", lambda self: plots.figure(1, 1)[0])
        patch.setattr("rfgp.study.bench.fit", functools.partial(rfgp.fit, max_evaluations=25))
        yield


def field(rows=60, factor=1.0):
    """A gradient in the plane, with noise."""
    generator = torch.Generator().manual_seed(0)
    x = 2.0 * torch.rand(rows, 2, generator=generator, dtype=torch.float64)
    y = torch.stack([torch.cos(x[:, 0]) * x[:, 1], torch.sin(x[:, 0])], -1)
    y = factor * (y + 0.05 * torch.randn(rows, 2, generator=generator, dtype=torch.float64))
    return Dataset("hills", x[:40], y[:40], x[40:], y[40:], "regression", None, "made up", "none", outputs=("u", "v"))


SETTINGS = {"num_features": [8], "num_seeds": 2, "progress": False}


@pytest.fixture(scope="module")
def separable():
    return study.run(field(), kernel="rbf", methods=["fourier", "landmarks"], exact_limit=60, **SETTINGS)


def test_outputs_have_scores_of_their_own(separable):
    assert separable.data["outputs"] == ["u", "v"] and separable.data["exact_rows"] == 30
    for run in (separable.exact, *separable.runs, *separable.baselines):
        assert list(run.outputs) == ["u", "v"] and 0.0 <= run.coverage <= 1.0
        assert run.coverage == pytest.approx(sum(part["coverage"] for part in run.outputs.values()) / 2)
    assert "RMSE / sd" in separable.table() and separable.verdict().choice in ("exact", "approximate")


def test_scores_of_outputs_are_in_their_units():
    benches = [Bench(field(factor=c), study.exact_kernel("rbf", 2), 60, 0.01, "standardize") for c in (1.0, 100.0)]
    for small, large in zip(*(bench.measure_baselines() for bench in benches), strict=True):
        assert (large.error, large.mnll) == pytest.approx((small.error, small.mnll))
        for a, b in zip(small.outputs.values(), large.outputs.values(), strict=True):
            assert b["error"] == pytest.approx(100.0 * a["error"])
            assert b["mnll"] == pytest.approx(a["mnll"] + math.log(100.0))


@pytest.mark.parametrize("kernel", ["curl_free", "helmholtz"])
def test_fields(kernel, tmp_path):
    result = study.run(field(), kernel=kernel, exact_limit=40, out=tmp_path, **{**SETTINGS, "num_seeds": 1})
    assert {run.method for run in result.runs} == {"fourier", "fourier_orthogonal"}
    assert "one number" in result.data["preprocessing"] and all(run.kl > 0 for run in result.runs)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Each target" in page and "RMSE, exact" in page


def test_a_field_needs_an_output_per_input():
    one = Dataset(**{**vars(field()), "x_train": field().x_train[:, :1], "x_test": field().x_test[:, :1]})
    with pytest.raises(ValueError, match=r"expected as many targets as inputs .* got 2 targets of 1 inputs"):
        study.run(one, kernel="helmholtz", **SETTINGS)
    with pytest.raises(ValueError, match="expected one of standardize, none for scaling of a field, got 'unit'"):
        study.run(field(), kernel="helmholtz", scaling="unit", **SETTINGS)


def frame(rows=60):
    generator = torch.Generator().manual_seed(0)
    a, noise = torch.rand(2, rows, generator=generator)
    return pandas.DataFrame(
        {"size": a.numpy(), "old": ["yes", "no"] * (rows // 2), "price": (a.sin() + 0.1 * noise).numpy()}
    )


def test_a_data_frame(tmp_path):
    settings = {"kernel": "rbf", "methods": ["landmarks"], "out": tmp_path, **SETTINGS}
    result = study.run(frame(), target="price", origin="houses.csv --target price", **settings)
    assert result.data["input_dim"] == 2 and "old" in result.data["columns"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "rfgp study houses.csv --target price --kernel rbf" in page and "distinct" in page
    again = study.run(tables.read(frame(), target="price"), **{**settings, "out": None})
    assert again.exact.mnll == pytest.approx(result.exact.mnll)
    with pytest.raises(ValueError, match="got a Table, which is read already"):
        study.run(tables.read(frame(), target="price"), target="price", **settings)


@pytest.fixture(scope="module")
def chosen():
    settings = {"num_features": [8], "num_seeds": 1, "progress": False, "methods": ["landmarks"], "exact_limit": 40}
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(60, 1, generator=generator, dtype=torch.float64)
    y = torch.sin(12.0 * x[:, 0]) + 0.1 * torch.randn(60, generator=generator, dtype=torch.float64)
    return study.run(
        Dataset("wave", x[:48], y[:48], x[48:], y[48:], "regression", None, "a", "b"), kernel="auto", **settings
    )


@pytest.mark.long("trains eight exact models")
def test_the_kernel_that_predicts_left_out_rows_best_is_taken(chosen):
    names = [candidate.kernel for candidate in chosen.kernels]
    assert sorted(names) == sorted(study.CANDIDATES) and chosen.settings["kernel"] == names[0]
    assert names[0] in ("rbf", "rq", "matern:2.5") and names.index("linear") >= 5
    values = [candidate.nlpd for candidate in chosen.kernels]
    assert values == sorted(values) and chosen.kernels[0].behind == 0.0
    assert f"The kernel {names[0]} was chosen of 8" in str(chosen.verdict()).replace("\n  ", " ")


@pytest.mark.parametrize(
    ("limit", "methods", "rows", "kernels"),
    [
        (700, None, 500, study.CANDIDATES),
        (40, ["landmarks"], 40, study.CANDIDATES),
        (700, ["fourier"], 500, study.CANDIDATES[:6]),
        (40, ["rademacher:real", "auto"], 40, study.CANDIDATES[5:]),
    ],
)
def test_the_default_kernel_is_chosen_by_some_rows_of_those_with_the_methods(
    limit, methods, rows, kernels, monkeypatch
):
    seen = []

    def rank(make, names, progress):
        seen.append((len(make(names[0]).some), tuple(names)))
        raise KeyboardInterrupt

    monkeypatch.setattr("rfgp.study.comparison.rank_kernels", rank)
    x = torch.rand(700, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = Dataset("plane", x[:600], x[:600, 0], x[600:], x[600:, 0], "regression", None, "a", "b")
    with pytest.raises(KeyboardInterrupt):
        study.run(data, methods=methods, exact_limit=limit, **SETTINGS)
    assert seen == [(rows, kernels)]


def without_row(bench, i):
    """The noisy predictions of a row by an exact model of the others."""
    keep = torch.arange(len(bench.x)) != i
    prior = bench.exact_model()(bench.x)
    noisy = bench.likelihood(prior)
    count = bench.num_outputs
    inside = keep.repeat_interleave(count)
    k, m, y = noisy.covariance_matrix, noisy.mean.flatten(), bench.targets.flatten()
    weights = torch.linalg.solve(k[inside][:, inside], k[inside][:, ~inside]).mT
    mean = m[~inside] + weights @ (y - m)[inside]
    variance = (k[~inside][:, ~inside] - weights @ k[inside][:, ~inside]).diagonal()
    return torch.distributions.Normal(mean, variance.sqrt())


@pytest.mark.parametrize("num_outputs", [1, 2])
@torch.no_grad()
def test_rows_that_are_left_out_without_refits(num_outputs):
    data = field()
    parts = {"y_train": data.y_train[:20, 0], "y_test": data.y_test[:, 0], "outputs": ()} if num_outputs == 1 else {}
    data = Dataset(**{**vars(data), "x_train": data.x_train[:20], "y_train": data.y_train[:20], **parts})
    bench = Bench(data, study.exact_kernel("rbf", num_outputs), 100, 0.01, "standardize")
    losses = leave_one_out(bench)
    for i in (0, 7, 19):
        expected = regression_losses(without_row(bench, i), bench.targets[i].reshape(-1))
        assert torch.allclose(losses.log_loss[i].reshape(-1), expected.log_loss, rtol=1e-8)
        assert torch.allclose(losses.error[i].reshape(-1), expected.error, rtol=1e-8)


def test_left_out_rows_of_classes():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(30) % 3
    x = torch.randn(30, 2, generator=generator, dtype=torch.float64) + 4.0 * torch.eye(3, 2, dtype=torch.float64)[y]
    data = Dataset("groups", x[:24], y[:24], x[24:], y[24:], "classification", 3, "a", "b")
    ranked = rank_kernels(lambda name: Bench(data, study.exact_kernel(name), 24, 0.01, "standardize"), ["rbf"], False)
    assert 0.0 < ranked[0].nlpd < math.log(3.0)


def test_losses_of_every_row():
    y = torch.tensor([0.0, 3.0], dtype=torch.float64)
    losses = regression_losses(torch.distributions.Normal(torch.zeros(2, dtype=torch.float64), 1.0), y)
    assert losses.error.tolist() == [0.0, 9.0] and losses.trust.tolist() == [1.0, 0.0]
    assert losses.log_loss.tolist() == pytest.approx([0.5 * math.log(2 * math.pi) + part for part in (0.0, 4.5)])
    sure = classification_losses(torch.tensor([[0.9, 0.1], [0.8, 0.2]]).double(), torch.tensor([0, 1]))
    assert sure.error.tolist() == [0.0, 1.0] and sure.trust.tolist() == pytest.approx([-0.1, 0.8])
    assert sure.log_loss.tolist() == pytest.approx([-math.log(0.9), -math.log(0.2)])
    assert losses.minus(losses)["mnll"] == (0.0, 0.0)
