"""A fit by the workers of an executor: the same bits whatever the workers, and errors that name the rows."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import gpytorch
import pytest
import torch
from deadly import Deadly, Unreadable
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    DirichletClassificationLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
)

import rfgp
from rfgp.likelihoods import ComplexGaussianLikelihood
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS, WIDTH, RELATIVE = 600, 24, 1e-12


@pytest.fixture(scope="module")
def pools():
    """Processes that import the package once, in their server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rfgp.training"])
    with ProcessPoolExecutor(1, context) as one, ProcessPoolExecutor(2, context) as two:
        yield {"one process": one, "two processes": two}


@pytest.fixture
def executors(pools):
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(2) as two:
        yield {"one thread": one, "two threads": two, **pools}


class InThisProcess(Executor):
    """Calls every task at once, and remembers how many results wait to be fetched."""

    def __init__(self, workers=None):
        self.most, self.waiting = 0, 0
        if workers:
            self.num_workers = workers

    def submit(self, function, /, *arguments):
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        future = _Fetched(self)
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


class _Fetched(Future):
    def __init__(self, executor):
        super().__init__()
        self.executor = executor

    def result(self, timeout=None):
        self.executor.waiting -= 1
        return super().result(timeout)


def kernel(is_multitask=False, **options):
    scaled = ScaleKernel(RBFKernel())
    exact = MultitaskKernel(scaled, num_tasks=2, rank=1) if is_multitask else scaled
    return rfgp.approximate(exact, WIDTH, seed=0, **options)


def table(kind):
    """Rows x, y and noise, and a function that makes the model for them."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(ROWS, 3, generator=generator)
    y = torch.sin(4.0 * x.sum(-1)) + 5.0
    if kind == "labels":
        labels = (3.0 * x[:, 0]).long()
        likelihood = DirichletClassificationLikelihood(labels, learn_additional_noise=True)
        return (x, labels, None), lambda: WeightSpaceGP(kernel(), likelihood)
    if kind == "fixed noise":
        noise = 0.1 + x[:, 1]
        return (x, y, noise), lambda: WeightSpaceGP(kernel(), FixedNoiseGaussianLikelihood(torch.ones(1)))
    if kind == "complex":
        return (x, torch.complex(y, x[:, 2]), None), lambda: WeightSpaceGP(kernel(), ComplexGaussianLikelihood())
    if kind == "missing":
        both = torch.stack([y, -y], -1)
        both[100:170, 0], both[400:, 1] = torch.nan, torch.nan
        likelihood = MultitaskGaussianLikelihood(num_tasks=2, rank=1)
        return (x, both, None), lambda: WeightSpaceGP(kernel(is_multitask=True), likelihood)
    settings = {"draws": {"num_draws": 3}, "one output": {}}[kind]
    return (x, y, None), lambda: WeightSpaceGP(
        kernel(), GaussianLikelihood(), gpytorch.means.ConstantMean(), **settings
    )


def parted(rows, size=70):
    x, y, noise = rows
    pieces = [x.split(size), y.split(size)] + ([] if noise is None else [noise.split(size)])
    return list(zip(*pieces, strict=True))


def bits(model):
    return [value for draw in model.draw_statistics for value in (*draw.sums().values(), draw.shift)]


def are_same(a, b):
    return all(torch.equal(one, other) for one, other in zip(bits(a), bits(b), strict=True))


def are_close(a, b):
    return all(
        torch.allclose(one, other.shifted(one_shift).sums()[name], rtol=RELATIVE, atol=1e-9)
        for draw, other in zip(a.draw_statistics, b.draw_statistics, strict=True)
        for one_shift in [draw.shift]
        for name, one in draw.sums().items()
    )


@pytest.mark.parametrize("kind", ["one output", "draws", "labels", "fixed noise", "complex", "missing"])
def test_the_sums_are_the_same_bits_whatever_the_workers(executors, kind):
    rows, make = table(kind)
    fits = {name: make().condition(parted(rows), executor=executor) for name, executor in executors.items()}
    first = fits.pop("one thread")
    for name, other in fits.items():
        assert are_same(first, other), name
        assert first.patterns == other.patterns
    assert are_close(first, make().condition(parted(rows)))


def test_tensors_sources_and_their_partitions_have_the_same_bits(executors, monkeypatch):
    (x, y, _), make = table("one output")
    monkeypatch.setattr("rfgp.passes.partitions.ROWS", 150)
    source = rfgp.data.ArraySource(x, y, batch_size=50)
    two = executors["two threads"]
    fits = [make().condition(*rows, executor=two) for rows in ((x, y), (source,), (source.partitions(4),))]
    fits.append(make().condition([[*part] for part in source.partitions(4)], executor=executors["two processes"]))
    assert are_close(fits[0], make().condition(x, y))
    assert are_same(fits[1], fits[2])
    assert are_same(fits[1], fits[3])


def test_strides_and_places_in_memory_do_not_change_a_bit(executors):
    (x, y, _), make = table("one output")
    moved = torch.cat([torch.zeros(1), x.mT.reshape(-1)])[1:].reshape(3, -1).mT
    fits = [make().condition(parted((inputs, y, None)), executor=executors["one thread"]) for inputs in (x, moved)]
    assert are_same(*fits)


def test_maps_of_all_draws_are_those_of_the_parent(executors):
    rows, make = table("draws")
    model = make().condition(parted(rows), executor=executors["two processes"])
    again = make().condition(parted(rows))
    x = rows[0][:5]
    assert torch.allclose(model.posterior(x).mean, again.posterior(x).mean, rtol=1e-10)
    assert torch.allclose(model.covar_module.scalar_features(x), again.covar_module.scalar_features(x), rtol=0, atol=0)


def test_partitions_without_rows_add_nothing():
    (x, y, _), make = table("one output")
    parts = [(x[:300], y[:300]), (x[:0], y[:0]), [(x[300:400], y[300:400]), (x[:0], y[:0]), (x[400:], y[400:])]]
    assert are_close(make().condition(parts, executor=InThisProcess()), make().condition(x, y))
    with pytest.raises(ValueError, match="expected rows in partition 0"):
        make().condition([(x[:0], y[:0])], executor=InThisProcess())


def test_results_do_not_pile_up():
    rows, make = table("one output")
    executor = InThisProcess(workers=2)
    make().condition(parted(rows, size=10), executor=executor)
    assert executor.most == 5
    assert executor.waiting == 0


def test_the_number_of_threads_stays(executors):
    rows, make = table("one output")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = make().condition(parted(rows), executor=executors["two threads"])
        assert torch.get_num_threads() == 2
        assert are_same(model, make().condition(parted(rows), executor=executors["one process"]))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("workers", ["two threads", "two processes"])
def test_a_partition_that_fails_names_its_rows_and_leaves_the_model(executors, workers):
    rows, make = table("one output")
    model = make().condition(parted(rows), executor=executors[workers])
    before = bits(model)
    x = rows[0].clone()
    x[500] = torch.nan
    with pytest.raises(ValueError, match=r"partition 7 \(rows 490 to 560\): expected finite values in x, got 3"):
        model.condition(parted((x, *rows[1:])), executor=executors[workers])
    assert all(torch.equal(a, b) for a, b in zip(before, bits(model), strict=True))
    source = rfgp.data.ArraySource(x, rows[1], batch_size=100)
    with pytest.raises(ValueError, match=r"partition 5 \(rows 500 to 600 of Tensor float64 .* expected finite values"):
        model.condition(source.partitions(6), executor=executors[workers])


def test_a_first_partition_that_fails_leaves_no_map():
    (x, y, _), make = table("one output")
    model = make()
    with pytest.raises(ValueError, match=r"partition 0 \(rows 0 to 600\): expected"):
        model.condition([(torch.full_like(x, torch.nan), y)], executor=InThisProcess())
    assert model.covar_module.feature_map is None


def test_other_errors_are_named_too_and_other_tasks_are_canceled():
    (x, y, _), make = table("one output")
    parts = [rfgp.data.ArraySource(x, y), Unreadable(x, y), *[rfgp.data.ArraySource(x, y)] * 9]
    error = pytest.raises(ValueError, match=r"partition 1 \(rows 0 to 600 .*: OSError: the disk has gone")
    with ThreadPoolExecutor(1) as pool, error:
        make().condition(parts, executor=pool)


def test_a_pool_whose_worker_died_says_what_to_do():
    (x, y, _), make = table("one output")
    model = make().condition(x, y)
    before = bits(model)
    error = pytest.raises(BrokenExecutor, match=r"partition 1 \(.*one died.*make a new one with fewer workers")
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as pool, error:
        model.condition([(x, y), Deadly(x, y)], executor=pool)
    assert all(torch.equal(a, b) for a, b in zip(before, bits(model), strict=True))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda x, y: ([],), "expected at least one partition, got none"),
        (lambda x, y: ([x.numpy()],), "expected a source, a list of batches or a tuple"),
        (lambda x, y: ([(x, y.numpy())],), "expected a torch.Tensor for every part of a batch, got ndarray"),
        (lambda x, y: (x,), "expected targets y beside the inputs"),
        (lambda x, y: (x.numpy(), y), "expected a torch.Tensor for x beside y"),
    ],
)
def test_bad_partitions_are_told(data, message):
    (x, y, _), make = table("one output")
    with pytest.raises(ValueError, match=message):
        make().condition(*data(x, y), executor=InThisProcess())


def test_an_executor_is_one_of_concurrent_futures():
    (x, y, _), make = table("one output")
    with pytest.raises(ValueError, match="expected an Executor for executor, got int"):
        make().condition(x, y, executor=2)


def test_kept_rows_stay_with_their_workers():
    (x, y, _), _ = table("one output")
    model = WeightSpaceGP(kernel(), GaussianLikelihood(), keep_data=True)
    with pytest.raises(ValueError, match="expected keep_data=False beside executor"):
        model.condition(x, y, executor=InThisProcess())


class LocalKernel(RBFKernel):
    """A kernel that cannot be pickled."""

    def __getstate__(self):
        raise TypeError("no pickles")


def test_a_model_that_cannot_be_pickled_is_told():
    (x, y, _), _ = table("one output")
    made = rfgp.approximate(LocalKernel(), WIDTH, method="landmarks", train_inputs=x, seed=0)
    with pytest.raises(ValueError, match=r"expected something that can be pickled for the model, .*no pickles"):
        WeightSpaceGP(made, GaussianLikelihood()).condition(x, y, executor=InThisProcess())


def gradients(model):
    model.zero_grad()
    model.log_marginal_likelihood().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("kind", ["one output", "draws", "fixed noise", "missing", "complex"])
def test_gradients_are_the_same_bits_and_those_of_a_fit_in_one_process(executors, kind):
    rows, make = table(kind)

    def made():
        torch.manual_seed(2)
        return make()

    names = ("one thread", "two threads") if kind != "one output" else executors
    fits = [gradients(made().condition(parted(rows), executor=executors[name])) for name in names]
    wanted = gradients(made().condition(parted(rows)))
    assert wanted.keys() == fits[0].keys()
    for name, value in wanted.items():
        assert all(torch.equal(fits[0][name], other[name]) for other in fits[1:]), name
        assert torch.allclose(fits[0][name], value, rtol=1e-9, atol=1e-9), name


@pytest.mark.long("whole trainings by four executors; sums and gradients are in make test")
def test_training_is_the_same_bits_whatever_the_workers(executors):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, 2, generator=generator)
    y = torch.sin(4.0 * x.sum(-1)) + 0.1 * torch.randn(ROWS, generator=generator)
    parts = list(zip(x.split(100), y.split(100), strict=True))

    def trained(*data, **options):
        kernel = rfgp.approximate(ScaleKernel(RBFKernel()), WIDTH, input_dim=2, seed=0)
        model = WeightSpaceGP(kernel, GaussianLikelihood(), gpytorch.means.ConstantMean())
        return model, rfgp.fit(model, *data, max_evaluations=10, strategy=rfgp.training.Evidence(**options))

    first, summary = trained(parts, executor=executors["one thread"])
    for name in ("two threads", "two processes"):
        other, _ = trained(parts, executor=executors[name])
        assert all(torch.equal(p, q) for p, q in zip(first.parameters(), other.parameters(), strict=True))
    _, alone = trained(parts)
    assert summary.log_marginal_likelihood == pytest.approx(alone.log_marginal_likelihood, rel=1e-6)
    assert trained(x, y, executor=executors["one thread"])[1].log_marginal_likelihood == pytest.approx(
        alone.log_marginal_likelihood, rel=1e-6
    )
    with pytest.raises(ValueError, match="WeightSpaceGP beside executor"):
        strategy = rfgp.training.Evidence(executor=executors["one thread"])
        rfgp.fit(rfgp.models.LaplaceGP(first.covar_module, GaussianLikelihood()), x, y, strategy=strategy)


def test_a_gradient_needs_the_partitions_once_more():
    (x, y, _), make = table("one output")
    parts = parted((x, y, None))
    model = make().condition(iter(parts), executor=InThisProcess())
    with pytest.raises(ValueError, match="expected the 9 partitions of the fit once more for its gradient, got 0"):
        model.log_marginal_likelihood().backward()
    model = make().condition(parts, executor=InThisProcess())
    parts[2] = (x[:3], y[:3])
    with pytest.raises(ValueError, match=r"partition 2 \(rows 140 to 143\): expected the 70 rows of the fit once more"):
        model.log_marginal_likelihood().backward()


MPI = """
import torch
from mpi4py.futures import MPIPoolExecutor
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
import rfgp

if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    x, y = torch.load("rows.pt")
    model = rfgp.WeightSpaceGP(rfgp.approximate(RBFKernel(), 24, seed=0), GaussianLikelihood())
    with MPIPoolExecutor() as executor:
        model.condition(list(zip(x.split(70), y.split(70))), executor=executor)
    model.statistics.save("sums")
"""


@pytest.mark.long("processes of MPI; the tests above have those of Python")
def test_the_workers_of_mpi_find_the_same_bits(tmp_path):
    """One process gives out the tasks, another one calls them."""
    mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    pytest.importorskip("mpi4py")
    assert mpiexec is not None
    (x, y, _), _ = table("one output")
    torch.save((x, y), tmp_path / "rows.pt")
    (tmp_path / "fit.py").write_text(MPI)
    command = [mpiexec, "-n", "2", sys.executable, "-m", "mpi4py.futures", "fit.py"]
    paths = os.pathsep.join([str(Path(rfgp.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = rfgp.inference.GramStatistics.load(tmp_path / "sums")
    model = WeightSpaceGP(rfgp.approximate(RBFKernel(), WIDTH, seed=0), GaussianLikelihood())
    wanted = model.condition(parted((x, y, None)), executor=InThisProcess()).statistics
    assert all(torch.equal(found.sums()[name], value) for name, value in wanted.sums().items())


def local_model(x, likelihood=None):
    exact = rfgp.approximate(ScaleKernel(RBFKernel()), WIDTH, method="landmarks", train_inputs=x, seed=0)
    mean = gpytorch.means.ConstantMean()
    return WeightSpaceGP(exact, likelihood or GaussianLikelihood(), mean, block_size=40, num_neighbors=None)


@pytest.mark.parametrize("kind", ["one output", "fixed noise"])
def test_local_blocks_have_the_same_bits_and_those_of_a_fit_in_one_process(executors, monkeypatch, kind):
    monkeypatch.setattr("rfgp.models.weight_space.conditioning.BLOCK_ROWS", 100)
    (x, y, noise), _ = table(kind)
    likelihood = None if noise is None else FixedNoiseGaussianLikelihood(torch.ones(1))
    wanted = local_model(x, likelihood).condition([(x, y)] if noise is None else [(x, y, noise)])
    parts = parted((x, y, noise))
    fits = {
        name: local_model(x, likelihood).condition(parts, executor=executor) for name, executor in executors.items()
    }
    for name, found in fits.items():
        assert are_same(fits["one thread"], found), name
        blocks = found.conditioned.sums.local.partition.blocks
        assert len(blocks) == 16
        assert all(map(torch.equal, blocks, wanted.conditioned.sums.local.partition.blocks))
    assert are_close(found, wanted)
    assert torch.allclose(found.posterior(x[::7] + 0.01).variance, wanted.posterior(x[::7] + 0.01).variance, rtol=1e-9)
    evidence = found.log_marginal_likelihood()
    assert torch.allclose(evidence, wanted.log_marginal_likelihood(), rtol=1e-10)
    with pytest.raises(ValueError, match="expected sums with gradients"):
        evidence.backward()


def test_rows_for_blocks_that_fail_are_named(executors):
    (x, y, _), _ = table("one output")
    bad = x.clone()
    bad[100] = torch.nan
    model = local_model(x)
    with pytest.raises(ValueError, match=r"partition 1 \(rows 70 to 140\): expected finite values in x"):
        model.condition(parted((bad, y, None)), executor=executors["two threads"])
    with pytest.raises(ValueError, match="expected at least one batch"):
        model.condition([(x[:0], y[:0])], executor=executors["two threads"])
    assert model.conditioned is None
