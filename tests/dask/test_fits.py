"""Fits to data frames and arrays of Dask: the bits of an executor, also where a worker is killed."""

from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array
import dask.dataframe
import numpy as np
import pandas
import pytest
import torch
from deadly import Deadly, kill_at
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood, FixedNoiseGaussianLikelihood, GaussianLikelihood

import rfgp
import rfgp.dask
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS, SIZE, WIDTH = 500, 80, 24
COLUMNS = ["a", "b", "c"]


@pytest.fixture(scope="module")
def client():
    """Two workers, each a process with a nanny."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["rfgp.dask", "dask.dataframe", "distributed"])
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client


def table():
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame(generator.random((ROWS, 3)), columns=COLUMNS)
    return frame.assign(
        y=np.sin(4.0 * frame.a) + 5.0, noise=0.1 + frame.b, label=(3.0 * frame.c).astype(int), number=frame.index
    )


def model(likelihood=None, **settings):
    kernel = rfgp.approximate(RBFKernel(), WIDTH, seed=0)
    return WeightSpaceGP(kernel, likelihood or GaussianLikelihood(), **settings)


def pieces(frame, target="y", noise=None):
    names = [COLUMNS, target, *([noise] if noise else [])]
    return [
        tuple(torch.tensor(frame[name].to_numpy()[begin : begin + SIZE]) for name in names)
        for begin in range(0, len(frame), SIZE)
    ]


def by_threads(made, parts):
    with ThreadPoolExecutor(1) as pool:
        return made.condition(parts, executor=pool)


def are_same(a, b):
    return all(
        torch.equal(first, second)
        for one, other in zip(a.draw_statistics, b.draw_statistics, strict=True)
        for first, second in zip((*one.sums().values(), one.shift), (*other.sums().values(), other.shift), strict=True)
    )


def dask_frame(frame):
    return dask.dataframe.concat(
        [dask.dataframe.from_pandas(frame[begin : begin + SIZE], npartitions=1) for begin in range(0, ROWS, SIZE)]
    )


def dask_arrays(frame):
    x = dask.array.from_array(frame[COLUMNS].to_numpy(), chunks=(SIZE, 2))
    return x, dask.array.from_array(frame.y.to_numpy(), chunks=60)


def test_a_client_is_an_executor_with_the_same_bits(client):
    parts = pieces(table())
    wanted = by_threads(model(num_draws=2), parts)
    assert are_same(wanted, model(num_draws=2).condition(parts, executor=client.get_executor()))
    only = client.get_executor(workers=[next(iter(client.scheduler_info()["workers"]))])
    assert are_same(wanted, model(num_draws=2).condition(parts, executor=only))


def test_a_frame_and_arrays_have_the_same_bits_as_their_partitions(client):
    frame = table()
    wanted = by_threads(model(), pieces(frame))
    with client.as_current():
        assert are_same(wanted, rfgp.dask.condition(model(), dask_frame(frame), inputs=COLUMNS, target="y"))
        assert are_same(wanted, rfgp.dask.condition(model(), *dask_arrays(frame)))
    with dask.config.set(scheduler="sync"):
        assert are_same(wanted, rfgp.dask.condition(model(), dask_frame(frame), inputs=COLUMNS, target="y"))


def test_sums_of_a_grid_have_the_same_bits(client):
    frame = table()[["a", "b", "y"]]
    x = torch.tensor(frame[["a", "b"]].to_numpy())

    def gridded():
        kernel = rfgp.approximate(RBFKernel(), 25, method="fourier_grid", train_inputs=x)
        return WeightSpaceGP(kernel, GaussianLikelihood())

    parts = [
        (x[begin : begin + SIZE], torch.tensor(frame.y.to_numpy())[begin : begin + SIZE])
        for begin in range(0, ROWS, SIZE)
    ]
    with client.as_current():
        found = rfgp.dask.condition(gridded(), dask_frame(frame), inputs=["a", "b"], target="y")
    assert are_same(by_threads(gridded(), parts), found)


def test_labels_and_noise_come_along(client):
    frame = table()
    cases = {
        "label": lambda: model(DirichletClassificationLikelihood(torch.arange(3), learn_additional_noise=True)),
        "y": lambda: model(FixedNoiseGaussianLikelihood(torch.ones(1))),
    }
    for target, make in cases.items():
        noise = "noise" if target == "y" else None
        wanted = by_threads(make(), pieces(frame, target, noise))
        with client.as_current():
            found = rfgp.dask.condition(make(), dask_frame(frame), noise=noise, inputs=COLUMNS, target=target)
        assert are_same(wanted, found)


def test_a_worker_that_is_killed_changes_no_bit(client, tmp_path):
    frame = table()
    parts = pieces(frame)
    wanted = by_threads(model(), parts)
    deadly = Deadly(*parts[3])
    deadly.mark = str(tmp_path / "executor")
    assert are_same(wanted, model().condition([*parts[:3], deadly, *parts[4:]], executor=client.get_executor()))
    killing = dask_frame(frame).map_partitions(kill_at, 300, str(tmp_path / "frame"), meta=frame[:0])
    with client.as_current():
        assert are_same(wanted, rfgp.dask.condition(model(), killing, inputs=COLUMNS, target="y"))
    assert {path.name for path in tmp_path.iterdir()} == {"executor", "frame"}


@pytest.fixture
def here():
    """All tasks in this process."""
    with dask.config.set(scheduler="sync"):
        yield


def test_partitions_without_rows_add_nothing(here):
    frame = table()
    filtered = dask_frame(frame)
    found = rfgp.dask.condition(model(), filtered[filtered.number < 6 * SIZE], inputs=COLUMNS, target="y")
    assert are_same(by_threads(model(), pieces(frame[: 6 * SIZE])), found)
    found = rfgp.dask.condition(model(), filtered[filtered.number >= SIZE], inputs=COLUMNS, target="y")
    wanted = by_threads(model(), pieces(frame[SIZE:]))
    assert torch.allclose(found.statistics.gram, wanted.statistics.gram, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="expected rows in the partitions to make the features with, got none"):
        rfgp.dask.condition(model(), filtered[filtered.number >= ROWS], inputs=COLUMNS, target="y")


def test_a_partition_that_fails_names_its_rows_and_leaves_the_model(here):
    frame = table()
    made = model().condition(torch.tensor(frame[COLUMNS].to_numpy()), torch.tensor(frame.y.to_numpy()))
    before = made.statistics.state_dict()
    frame.loc[300, "b"] = np.nan
    with pytest.raises(ValueError, match=r"partition 3 \(index 240 to 319\): expected finite values in x, got 1 NaN"):
        rfgp.dask.condition(made, dask_frame(frame), inputs=COLUMNS, target="y")
    with pytest.raises(ValueError, match=r"partition 3 \(rows 240 to 320\): expected finite values in x, got 1 NaN"):
        rfgp.dask.condition(made, *dask_arrays(frame))
    assert all(torch.equal(value, before[name]) for name, value in made.statistics.state_dict().items())


def test_arrays_of_unknown_sizes_are_cut_alike(here):
    frame = table()
    unknown = dask_frame(frame)
    x, y = unknown[COLUMNS].to_dask_array(), unknown.y.to_dask_array()
    assert are_same(by_threads(model(), pieces(frame)), rfgp.dask.condition(model(), x, y))
    with pytest.raises(ValueError, match="expected as many chunks of rows in y as in x, 7, got 4, of unknown sizes"):
        rfgp.dask.condition(model(), x, y.partitions[:4] if hasattr(y, "partitions") else y.blocks[:4])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, f, x, y: rfgp.dask.condition(m, f, y), "expected inputs= and target=, which name columns"),
        (lambda m, f, x, y: rfgp.dask.condition(m, f, inputs="a", target="y"), "expected a list of columns for inputs"),
        (lambda m, f, x, y: rfgp.dask.condition(m, f, inputs=["z"], target="y"), r"expected columns \['z'\]"),
        (lambda m, f, x, y: rfgp.dask.condition(m, f.compute(), inputs=["a"], target="y"), "a Dask DataFrame, got a"),
        (lambda m, f, x, y: rfgp.dask.condition(m, x), "expected a Dask array of targets y"),
        (
            lambda m, f, x, y: rfgp.dask.condition(m, x, y, inputs=["a"]),
            "beside a Dask DataFrame, got them beside an array",
        ),
        (lambda m, f, x, y: rfgp.dask.condition(m, x, y[:60]), "expected 500 rows in y, as many as in x, got 60"),
        (lambda m, f, x, y: rfgp.dask.condition(m, y, y), r"expected inputs x of shape \(N, d\)"),
        (lambda m, f, x, y: rfgp.dask.condition(m, x, [1.0]), "expected a Dask array for y, .* got list"),
        (lambda m, f, x, y: rfgp.dask.condition(None, x, y), "expected a WeightSpaceGP for model, got NoneType"),
        (lambda m, f, x, y: rfgp.dask.condition(model(keep_data=True), x, y), "expected a model that keeps no rows"),
    ],
)
def test_bad_calls_are_told(here, call, message):
    frame = table()
    with pytest.raises(ValueError, match=message):
        call(model(), dask_frame(frame), *dask_arrays(frame))


def test_a_gradient_that_would_be_zero_raises(here):
    made = rfgp.dask.condition(model(), *dask_arrays(table()))
    with pytest.raises(ValueError, match="expected sums with gradients for the parameters of the features"):
        made.log_marginal_likelihood().backward()
