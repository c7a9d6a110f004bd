"""Fits that go on from a file: with the same bits, whatever stops them and wherever."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from output_problems import output_model, output_noise, output_rows
from problems import KINDS, model_for, rows_for
from torch.utils.data import DataLoader, TensorDataset

import rfgp
from rfgp.data import ArraySource
from rfgp.inference import GramStatistics
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS, BATCH = 60, 7


class StoppedError(Exception):
    """What stops a fit."""


class Stopping(ArraySource):
    """A source that fails before a batch, and says which batches are read."""

    stop = None
    numbers: list[int]

    def batches(self, start=0):
        self.numbers = []
        for number, batch in enumerate(super().batches(start), start):
            if number == self.stop:
                raise StoppedError
            self.numbers.append(number)
            yield batch


def given(arguments):
    return [value for value in arguments if value is not None]


def assert_same_bits(model, other):
    assert model.patterns == other.patterns
    for one, two in zip(model.draw_statistics, other.draw_statistics, strict=True):
        states = one.state_dict(), two.state_dict()
        assert states[0].keys() == states[1].keys()
        for name, value in states[0].items():
            assert torch.equal(value, states[1][name]), name
    for one, two in zip(model.conditioned.sums.some_rows or (), other.conditioned.sums.some_rows or (), strict=True):
        assert torch.equal(one, two)


def check(make, arguments, path, batch_size=BATCH):
    """A fit that is stopped twice ends with the bits of one that is not, and of one without a file."""
    whole, source = make(), Stopping(*given(arguments), batch_size=batch_size)
    whole.condition(source)
    options = {"checkpoint": path, "checkpoint_every": 2 * batch_size}
    for stop in (3, 6):
        source.stop, model = stop, make()
        with pytest.raises(StoppedError):
            model.condition(source, **options)
        assert model.conditioned is None
    source.stop, model = None, make()
    assert_same_bits(model.condition(source, **options), whole)
    assert_same_bits(make().condition(source, **options), whole)
    return model


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:the residuals of complex targets")
def test_a_stopped_fit_ends_with_the_same_bits(kind, tmp_path):
    check(lambda: model_for(kind, keep_data=False), rows_for(kind, ROWS), tmp_path / "fit.checkpoint")
    assert [entry.name for entry in tmp_path.iterdir()] == ["fit.checkpoint"]


@torch.no_grad()
@pytest.mark.parametrize("noise", ["one", "per task", "full", "fixed+learned"])
def test_a_stopped_fit_of_several_outputs_with_new_patterns(noise, tmp_path):
    x, y = output_rows("multitask", ROWS, "random")
    y[:14] = output_rows("multitask", 14)[1]
    known = output_noise("multitask", ROWS) if noise.startswith("fixed") else None

    def make():
        model = output_model("multitask", noise, num_rows=ROWS)
        model.keep_data = False
        return model

    check(make, (x, y, known), tmp_path / "fit")


def wide(dtype, num_draws=1, input_dim=3):
    """A model whose Gram matrices have several blocks."""
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 600, input_dim=input_dim, seed=0)
    return WeightSpaceGP(kernel, GaussianLikelihood(), num_draws=num_draws).to(dtype)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
def test_a_stopped_fit_of_wide_features_and_several_draws(dtype, tmp_path):
    arguments = [value.to(dtype) for value in given(rows_for("gaussian", 700))]
    check(lambda: wide(dtype, num_draws=2), arguments, tmp_path / "fit", batch_size=80)


@torch.no_grad()
def test_a_stopped_fit_of_a_kernel_that_waits_for_its_first_inputs(tmp_path):
    check(lambda: model_for("gaussian", input_dim=None, keep_data=False), rows_for("gaussian", ROWS), tmp_path / "fit")


@torch.no_grad()
def test_a_stopped_fit_of_many_classes(tmp_path):
    x, _, _ = rows_for("gaussian", 400)
    labels = torch.where(torch.arange(400) % 2 == 0, 0, torch.arange(400) % 40)

    def make():
        kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=3, seed=0)
        return WeightSpaceGP(kernel, DirichletClassificationLikelihood(num_classes=40))

    check(make, (x, labels), tmp_path / "fit", batch_size=30)


def test_gradients_after_a_checkpoint_are_those_of_all_rows(tmp_path):
    x, y, _ = rows_for("gaussian", ROWS)
    model = check(lambda: model_for("gaussian", keep_data=False), (x, y), tmp_path / "fit")
    whole = model_for("gaussian", keep_data=False).condition(x, y)
    for one in (model, whole):
        one.log_marginal_likelihood().backward()
    for own, wanted in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(own.grad, wanted.grad, rtol=1e-9, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("last", [1, 2])
def test_batches_are_views_of_any_strides(last, tmp_path):
    """A last batch of one row too, which PyTorch calls contiguous whatever its strides are, and negated views."""
    x, z = torch.rand(6 + last, 6)[:, ::2], torch.rand(6 + last, 2).to(torch.complex128)
    source, options = ArraySource(x, z.conj().imag[:, 0], batch_size=3), {"checkpoint": tmp_path / "fit"}
    model, other = (model_for("gaussian", keep_data=False).condition(source, **options) for _ in range(2))
    assert_same_bits(model, other)


@torch.no_grad()
def test_a_loader_is_read_up_to_where_it_goes_on(tmp_path):
    data = TensorDataset(*given(rows_for("gaussian", ROWS)))
    path, options = tmp_path / "fit", {"checkpoint_every": 20}
    whole = model_for("gaussian", keep_data=False).condition(DataLoader(data, batch_size=BATCH))

    def cut():
        for number, batch in enumerate(DataLoader(data, batch_size=BATCH)):
            if number == 5:
                raise StoppedError
            yield batch

    with pytest.raises(StoppedError):
        model_for("gaussian", keep_data=False).condition(cut(), checkpoint=path, **options)
    rest = (batch for batch in DataLoader(data, batch_size=BATCH))
    model = model_for("gaussian", keep_data=False).condition(rest, checkpoint=path, **options)
    assert_same_bits(model, whole)
    shuffled = (batch for batch in DataLoader(data, batch_size=BATCH, shuffle=True))
    with pytest.raises(ValueError, match="another order"):
        model_for("gaussian", keep_data=False).condition(shuffled, checkpoint=path)


# Other files


def saved(path):
    """A checkpoint of the first rows, and how to go on from it."""
    x, y, _ = rows_for("gaussian", ROWS)
    source = Stopping(x, y, batch_size=BATCH)
    source.stop = 5
    with pytest.raises(StoppedError):
        model_for("gaussian", keep_data=False).condition(source, checkpoint=path, checkpoint_every=20)
    source.stop = None
    return source


def with_lengthscale(model):
    model.covar_module.outputscale = 3.0
    return model


def other_rows(shift=0.0, rows=ROWS, last=ROWS):
    x, y, _ = rows_for("gaussian", rows)
    shift = shift * (torch.arange(rows) < last).unsqueeze(-1)
    return ArraySource(x + shift, y, batch_size=BATCH)


OTHERS = {
    "weights": (lambda source: (model_for("gaussian", keep_data=False, seed=1), source), "random weights"),
    "parameters": (
        lambda source: (with_lengthscale(model_for("gaussian", keep_data=False)), source),
        "raw_outputscale",
    ),
    "noise": (lambda source: (with_noise(model_for("gaussian", keep_data=False)), source), "raw_noise"),
    "width": (lambda source: (model_for("gaussian", keep_data=False, width=14), source), "kernel"),
    "likelihood": (lambda source: (model_for("fixed", keep_data=False), source), "likelihood"),
    "rows": (lambda source: (model_for("gaussian", keep_data=False), other_rows(1.0)), "others, or another order"),
    "an early row": (
        lambda source: (model_for("gaussian", keep_data=False), other_rows(1e-9, last=1)),
        "others, or an",
    ),
    "number of rows": (lambda source: (model_for("gaussian", keep_data=False), other_rows(rows=50)), "rows 0 to 60"),
}


def with_noise(model):
    model.likelihood.noise = 0.5
    return model


@torch.no_grad()
@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_another_fit_is_named(name, tmp_path):
    path = tmp_path / "fit.checkpoint"
    source = saved(path)
    content = path.read_bytes()
    change, message = OTHERS[name]
    model, rows = change(source)
    with pytest.raises(ValueError, match=message) as raised:
        model.condition(rows, checkpoint=path)
    assert "fit.checkpoint" in str(raised.value) and model.conditioned is None
    assert path.read_bytes() == content
    model_for("gaussian", keep_data=False).condition(source, checkpoint=path)


@torch.no_grad()
@pytest.mark.parametrize("name", ["cut off", "changed", "foreign", "statistics", "empty", "folder"])
def test_a_damaged_or_foreign_file_is_named(name, tmp_path):
    path = tmp_path / "fit.checkpoint"
    source = saved(path)
    content = path.read_bytes()
    if name == "folder":
        path.unlink()
        path.mkdir()
    elif name == "statistics":
        GramStatistics(3, 1).save(path)
    else:
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes({"cut off": content[:middle], "changed": changed, "foreign": b"a table", "empty": b""}[name])
    with pytest.raises(ValueError, match="expected") as raised:
        model_for("gaussian", keep_data=False).condition(source, checkpoint=path)
    assert "fit.checkpoint" in str(raised.value)


BAD = {
    "tensors": lambda path: model_for("gaussian", keep_data=False).condition(
        *rows_for("gaussian", 9)[:2], checkpoint=path
    ),
    "rows kept": lambda path: model_for("gaussian").condition(other_rows(), checkpoint=path),
    "no folder": lambda path: model_for("gaussian", keep_data=False).condition(
        other_rows(), checkpoint=path / "a" / "b"
    ),
    "number": lambda path: model_for("gaussian", keep_data=False).condition(other_rows(), checkpoint=3),
    "no rows between": lambda path: model_for("gaussian", keep_data=False).condition(
        other_rows(), checkpoint=path, checkpoint_every=0
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_raise(name, tmp_path):
    with pytest.raises(ValueError, match="expected"):
        BAD[name](tmp_path / "fit")
    assert list(tmp_path.iterdir()) == []


# Whatever kills a fit

PROGRAM = """
import sys, torch, gpytorch, rfgp
torch.manual_seed(0)
x = torch.randn(40_000, 4)
kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 256, input_dim=4, seed=0)
model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
with torch.no_grad():
    source = rfgp.data.ArraySource(x, x.sin().sum(-1), batch_size=500)
    model.condition(source, checkpoint=sys.argv[1], checkpoint_every=1000)
model.statistics.save(sys.argv[2])
"""


@pytest.mark.long("five processes, three of which are killed")
def test_a_fit_that_is_killed_ends_with_the_same_bits(tmp_path):
    path, result = tmp_path / "fit.checkpoint", tmp_path / "sums"
    command = [sys.executable, "-c", PROGRAM, str(path), str(result)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(rfgp.__file__).parents[1])}
    subprocess.run(command, env=environment, check=True)
    expected = result.read_bytes()
    path.unlink()
    result.unlink()
    waits, kills = random.Random(0), 0
    for _ in range(3):
        known = path.read_bytes() if path.exists() else None
        process = subprocess.Popen(command, env=environment)
        while process.poll() is None and (not path.exists() or path.read_bytes() == known):
            time.sleep(0.01)
        time.sleep(0.1 * waits.random())
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert kills >= 2
    subprocess.run(command, env=environment, check=True)
    assert result.read_bytes() == expected


# The bar


def test_a_bar_shows_rows_on_demand_alone(capsys):
    model, source = model_for("gaussian", keep_data=False), other_rows()
    with torch.no_grad():
        model.condition(source)
        model.condition(*rows_for("gaussian", ROWS), progress=True)
        assert capsys.readouterr().err == ""
        model.condition(source, progress=True)
    assert "60.0" in capsys.readouterr().err
    assert gpytorch.settings.detach_test_caches.on()
