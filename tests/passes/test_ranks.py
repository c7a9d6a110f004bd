"""Fits of several ranks against the same fits in one process."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import gpytorch
import pytest
import torch
import torch.multiprocessing
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood

import rfgp
from rfgp.likelihoods import ComplexGaussianLikelihood, DirichletClassificationLikelihood

ROWS, RANKS, WIDTH = 90, 3, 16
EDGES = (0, 0, 65, ROWS)  # the first rank has no rows
TIMEOUT = datetime.timedelta(seconds=30)


def run(function, folder, count=RANKS, join=True):
    """Run a function as so many ranks, in processes that are forked from one that has imported the package."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["rfgp.training"])
    return torch.multiprocessing.start_processes(
        function, (str(folder),), nprocs=count, join=join, start_method="forkserver"
    )


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0, equal_nan=True, msg=name)


def inputs():
    return torch.rand(ROWS, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def approximated(exact, **options):
    return rfgp.approximate(exact.double(), WIDTH, seed=0, **options)


def single(likelihood, **options):
    kernel = approximated(ScaleKernel(RBFKernel()))  # its map waits for the first inputs
    return rfgp.WeightSpaceGP(kernel, likelihood.double(), gpytorch.means.ConstantMean().double(), **options)


def of_tasks(rank):
    torch.manual_seed(0)
    kernel = approximated(MultitaskKernel(RBFKernel(), num_tasks=2, rank=1), input_dim=2)
    mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=2).double()
    return rfgp.WeightSpaceGP(kernel, MultitaskGaussianLikelihood(num_tasks=2, rank=rank).double(), mean)


def one_output():
    x = inputs()
    return single(GaussianLikelihood()), x, torch.sin(5.0 * x.sum(-1)) + 100.0, None


def several_draws():
    x = inputs()
    return single(GaussianLikelihood(), num_draws=2), x, x.sum(-1), None


def on_a_grid():
    x = inputs()
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()).double(), 25, method="fourier_grid", train_inputs=x)
    model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood().double(), gpytorch.means.ConstantMean().double())
    return model, x, torch.sin(5.0 * x.sum(-1)), None


def known_noise():
    x = inputs()
    noise = 0.1 + x[:, 0]
    likelihood = FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True)
    return single(likelihood), x, x.sum(-1), noise


def classes():
    x = inputs()
    model = single(DirichletClassificationLikelihood(num_classes=3, dtype=torch.float64))
    model.mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size([3])).double()
    return model, x, (3 * x[:, 0]).long(), None


def many_classes():
    x = inputs()
    model = single(DirichletClassificationLikelihood(num_classes=40, dtype=torch.float64))
    model.mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size([40])).double()
    return model, x, torch.arange(ROWS) % 37, None


def complex_targets():
    x = inputs()
    kernel = approximated(ScaleKernel(RBFKernel()), method="fourier:complex")
    model = rfgp.WeightSpaceGP(kernel, ComplexGaussianLikelihood().double())
    return model, x, torch.polar(x[:, 0], 5.0 * x[:, 1]), None


def missing_in_one_shard(rank):
    x = inputs()
    y = torch.stack([x.sum(-1), x[:, 0] - x[:, 1]], dim=-1)
    y[70:80, 1] = torch.nan
    y[80:85, 0] = torch.nan
    return of_tasks(rank), x, y, None


def missing_independent():
    return missing_in_one_shard(0)


def missing_correlated():
    return missing_in_one_shard(1)


CASES = (
    one_output,
    several_draws,
    on_a_grid,
    known_noise,
    classes,
    complex_targets,
    missing_independent,
    missing_correlated,
)


def batches_of(x, y, noise, begin, end):
    parts = (slice(first, min(first + 20, end)) for first in range(begin, end, 20))
    return [(x[rows], y[rows]) if noise is None else (x[rows], y[rows], noise[rows]) for rows in parts]


def summary(model):
    """Sums, evidence, its gradients and predictions of a fitted model."""
    value = model.log_marginal_likelihood()
    value.backward()
    found = {
        f"sums {k}.{name}": v
        for k, s in enumerate(model.draw_statistics)
        for name, v in s.pooled().state_dict().items()
    }
    found |= {f"gradient {name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    with torch.no_grad():
        found["mean"] = model.posterior(inputs()[:5]).mean
    return found | {"evidence": value.detach(), "bounds": model.conditioned.sums.input_bounds}


def start(rank, count, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/init", rank=rank, world_size=count, timeout=TIMEOUT
    )


def shard_of(rank, x, y, noise):
    return rfgp.passes.Shard(batches_of(x, y, noise, EDGES[rank], EDGES[rank + 1]))


def fit_in_process(rank, folder):
    start(rank, RANKS, folder)
    for case in CASES:
        model, *data = case()
        shard = shard_of(rank, *data)
        torch.save(summary(model.condition(shard)), f"{folder}/{case.__name__}-{rank}")
        without = case()[0]
        with torch.no_grad():
            assert torch.equal(without.condition(shard).statistics.gram, model.statistics.gram)
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks")
    run(fit_in_process, path)
    return path


@pytest.mark.parametrize("case", CASES)
def test_sums_and_gradients_are_those_of_all_rows(case, folder):
    model, *data = case()
    whole = summary(model.condition(batches_of(*data, 0, ROWS)))
    for rank in range(RANKS):
        found = torch.load(folder / f"{case.__name__}-{rank}")
        assert found.keys() == whole.keys()
        for name, value in whole.items():
            if name.endswith(("shift", "cross", "target_gram")):  # ranks have another shift
                continue
            scale = float(value.abs().max()) if value.numel() else 1.0
            torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12 * max(scale, 1.0), msg=name)


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_have_the_same_bits(case, folder):
    first, *others = (torch.load(folder / f"{case.__name__}-{rank}") for rank in range(RANKS))
    for other in others:
        assert_same(other, first)


TRAINED = one_output, on_a_grid


def train_in_process(rank, folder):
    start(rank, RANKS, folder)
    for case in TRAINED:
        model, *data = case()
        model.covar_module.base_kernel.lengthscale = 0.5 + rank
        rfgp.passes.broadcast(model)
        found = rfgp.fit(model, shard_of(rank, *data), max_evaluations=8)
        evidence = {"evidence": torch.tensor(found.log_marginal_likelihood)}
        torch.save({**model.state_dict(), **evidence}, f"{folder}/{case.__name__}-{rank}")
    torch.distributed.destroy_process_group()


def test_training_ends_with_the_same_parameters_on_all_ranks(tmp_path):
    run(train_in_process, tmp_path)
    for case in TRAINED:
        first, *others = (torch.load(tmp_path / f"{case.__name__}-{rank}") for rank in range(RANKS))
        for other in others:
            assert_same(other, first)
        model, *data = case()
        model.covar_module.base_kernel.lengthscale = 0.5
        alone = rfgp.fit(model, batches_of(*data, 0, ROWS), max_evaluations=8)
        assert float(first["evidence"]) == pytest.approx(alone.log_marginal_likelihood, abs=1.0)


def fail_in_process(rank, folder):
    start(rank, RANKS, folder)
    model, x, y, _ = one_output()
    bad = x.clone()
    bad[70, 0] = torch.nan
    before = {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    messages = []
    for data in ((bad, y), (x, y)):
        try:
            rows = batches_of(*data, None, EDGES[rank], EDGES[rank + 1])
            if data[0] is x and rank == 1:
                model = single(GaussianLikelihood())
                model.covar_module.base_kernel.lengthscale = 0.1  # another kernel than the others
            model.condition(rfgp.passes.Shard(rows))
            messages.append("")
        except ValueError as error:
            messages.append(str(error))
    after = model.state_dict()
    if rank != 1:
        assert_same({name: after[name] for name in before}, before)
    torch.save(messages, f"{folder}/{rank}")
    torch.distributed.destroy_process_group()


def test_all_ranks_raise_where_one_fails_or_differs(tmp_path):
    run(fail_in_process, tmp_path)
    found = [torch.load(tmp_path / str(rank)) for rank in range(RANKS)]
    assert all("on rank 2" in messages[0] for messages in found[:2])
    assert "finite" in found[2][0]
    assert all("lengthscale" in messages[1] for messages in found)


def die_in_process(rank, folder):
    start(rank, 2, folder)
    model, x, y, _ = one_output()
    shard = rfgp.passes.Shard([(x, y)])
    model.condition(shard)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        model.condition(shard)
    except ConnectionError as error:
        Path(folder, "message").write_text(str(error))


def test_a_rank_that_dies_raises_on_the_others(tmp_path):
    context = run(die_in_process, tmp_path, count=2, join=False)
    for process in context.processes:
        process.join()
    assert [process.exitcode for process in context.processes] == [0, -signal.SIGKILL]
    assert "has died" in (tmp_path / "message").read_text()


def test_a_shard_needs_a_process_group_and_rows_that_can_be_read_again():
    with pytest.raises(ValueError, match="init_process_group"):
        rfgp.passes.Shard([])
    with pytest.raises(ValueError, match="again"):
        rfgp.passes.Shard(iter([]))


@pytest.fixture
def one_rank():
    """A process group of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@torch.no_grad()
def test_sums_of_many_classes(one_rank):
    model, x, y, _ = many_classes()
    model.condition(rfgp.passes.Shard(batches_of(x, y, None, 0, ROWS)))
    found = model.posterior(x[:5]).mean
    torch.testing.assert_close(found, model.condition(x, y).posterior(x[:5]).mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{"keep_data": True}, {"block_size": 8}])
def test_models_that_keep_rows_are_refused(one_rank, options):
    x = inputs()
    kernel = approximated(ScaleKernel(RBFKernel()), method="landmarks", train_inputs=x)
    model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood().double(), **options)
    with pytest.raises(ValueError, match="without block_size and keep_data"):
        model.condition(rfgp.passes.Shard([(x, x.sum(-1))]))


def test_models_of_other_likelihoods_are_refused(one_rank):
    x = inputs()
    shard = rfgp.passes.Shard([(x, (x.sum(-1) > 1.0).double())])
    kernel = approximated(ScaleKernel(RBFKernel()), input_dim=2)
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    with pytest.raises(ValueError, match="rows of all ranks for a LaplaceGP"):
        rfgp.models.LaplaceGP(kernel, likelihood).condition(shard)
    with pytest.raises(ValueError, match="rows of all ranks for a WeightSpaceVariationalGP"):
        rfgp.fit(rfgp.models.WeightSpaceVariationalGP(kernel, likelihood), shard)
    with pytest.raises(ValueError, match="no time_limit beside a Shard"):
        rfgp.fit(rfgp.WeightSpaceGP(kernel, GaussianLikelihood().double()), shard, time_limit=10)


@pytest.mark.long("torchrun starts Python anew for every rank; the tests above fork")
def test_the_example_runs_under_torchrun(tmp_path):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = [str(root / "examples/torchrun_fit.py"), "--num-rows", "3000", "--num-features", "32"]
    options = ["--max-evaluations", "5", "--out", str(tmp_path / "sums")]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *script, *options], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "3000 rows on 2 processes" in done.stdout
    assert rfgp.inference.GramStatistics.load(tmp_path / "sums").num_rows == 3000
