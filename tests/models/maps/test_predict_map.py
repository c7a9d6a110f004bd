"""Where a map goes, who makes it, and what is left of one that fails."""

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import gpytorch
import numpy as np
import pytest
import torch
import zarr
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from output_problems import output_model, output_rows
from problems import model_for, rows_for
from pyarrow import parquet

import rfgp
from rfgp.data import ArraySource, GridSource, ParquetSource
from rfgp.models import WeightSpaceGP
from rfgp.models.maps import engine, writers

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]

ROWS = 5000
PATHS = ("folder", "group.zarr", "table.parquet")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of a thousand rows, so that a small map has several."""
    monkeypatch.setattr(rfgp.models.maps.points, "_ROWS", 1024)


@pytest.fixture(scope="module")
def processes():
    """Two workers that start from a process that has imported the package, and know nothing of this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rfgp.training"])
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        yield executor


def fitted(input_dim=2):
    x = torch.rand(100, input_dim, generator=torch.Generator().manual_seed(0))
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=input_dim, seed=0)
    return WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, torch.sin(5.0 * x.sum(-1)))


def points(rows=ROWS, columns=2):
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(1))


def read(path):
    """The arrays of a map, by name."""
    if path.suffix == ".zarr":
        return {name: array[:] for name, array in zarr.open_group(path, mode="r").arrays()}
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
        return {name: table[name].to_numpy() for name in table.column_names}
    return {file.stem: np.load(file, mmap_mode="r") for file in path.iterdir()}


def assert_has(path, summary):
    arrays = read(path)
    assert set(arrays) == {"mean", "variance"}
    assert np.array_equal(arrays["mean"], summary.mean) and np.array_equal(arrays["variance"], summary.variance)


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("worker", ["none", "threads", "processes"])
def test_maps_are_the_same_whoever_makes_them_and_wherever_they_go(name, worker, tmp_path, processes):
    model, x, path = fitted(), points(), tmp_path / name
    whole = rfgp.predict_map(model, x, progress=False)
    with ThreadPoolExecutor(3) as threads:
        executor = {"none": None, "threads": threads, "processes": processes}[worker]
        summary = rfgp.predict_map(model, x, path, executor=executor, progress=False)
        assert_has(path, whole)
        assert summary.path == path and summary.mean is None and summary.num_rows == ROWS
        found = rfgp.predict_map(model, x, executor=executor, progress=False)
    assert torch.equal(found.mean, whole.mean) and torch.equal(found.variance, whole.variance)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_any_number_of_workers_makes_the_same_bits():
    model, x = fitted(), points()
    means = []
    for workers in (1, 2, 5):
        with ThreadPoolExecutor(workers) as executor:
            means.append(rfgp.predict_map(model, x, executor=executor, progress=False).variance)
    assert torch.equal(means[0], means[1]) and torch.equal(means[0], means[2])


@pytest.mark.parametrize("name", PATHS)
def test_several_outputs(name, tmp_path):
    model = output_model("multitask").condition(*output_rows("multitask"))
    whole = rfgp.predict_map(model, points(300), progress=False)
    assert whole.mean.shape == (300, 3) and whole.num_outputs == 3
    rfgp.predict_map(model, points(300), tmp_path / name, progress=False)
    arrays = read(tmp_path / name)
    if name.endswith("parquet"):
        assert set(arrays) == {f"{kind}_{t}" for kind in ("mean", "variance") for t in range(3)}
        arrays = {kind: np.stack([arrays[f"{kind}_{t}"] for t in range(3)], -1) for kind in ("mean", "variance")}
    assert np.array_equal(arrays["mean"], whole.mean) and np.array_equal(arrays["variance"], whole.variance)


@pytest.mark.parametrize("name", PATHS)
def test_means_alone(name, tmp_path):
    model, x = fitted(), points(300)
    rfgp.predict_map(model, x, tmp_path / name, variance=False, dtype=torch.float32, progress=False)
    arrays = read(tmp_path / name)
    assert set(arrays) == {"mean"} and arrays["mean"].dtype == np.float32


def test_classes_and_complex_means(tmp_path):
    classes = model_for("dirichlet").condition(*rows_for("dirichlet", 40))
    assert rfgp.predict_map(classes, points(20, 3), progress=False).mean.shape == (20, 3)
    model = model_for("complex", "complex").condition(*rows_for("complex", 40))
    rfgp.predict_map(model, points(20, 3), tmp_path / "folder", progress=False)
    assert read(tmp_path / "folder")["mean"].dtype == np.complex128
    with pytest.raises(ValueError, match="real means for a Parquet file"):
        rfgp.predict_map(model, points(20, 3), tmp_path / "table.parquet")
    assert not (tmp_path / "table.parquet").exists()


def sources(tmp_path):
    """The same points from everywhere."""
    x = points()
    np.save(tmp_path / "points.npy", x.numpy())
    array = zarr.create_array(tmp_path / "points.zarr", shape=x.shape, chunks=(700, 2), dtype="f8")
    array[:] = x.numpy()
    return {
        "tensor": x,
        "memory map": np.load(tmp_path / "points.npy", mmap_mode="r"),
        "Zarr array": zarr.open_array(tmp_path / "points.zarr", mode="r"),
        "source": ArraySource(x, batch_size=300),
        "targets beside them": ArraySource(x, x[:, 0], batch_size=300),
        "list": list(x.split(300)),
        "loader": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=300),
    }


@pytest.mark.parametrize("name", ["memory map", "Zarr array", "source", "targets beside them", "list", "loader"])
def test_points_from_everywhere(name, tmp_path):
    known, model = sources(tmp_path), fitted()
    whole = rfgp.predict_map(model, known["tensor"], tmp_path / "whole", progress=False)
    found = rfgp.predict_map(model, known[name], progress=False)
    assert found.num_rows == whole.num_rows == ROWS
    np.testing.assert_allclose(found.mean, read(tmp_path / "whole")["mean"], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.variance, read(tmp_path / "whole")["variance"], rtol=1e-10)


def test_a_grid_and_a_table(tmp_path):
    axes = [torch.linspace(0.0, 1.0, 40), torch.linspace(0.0, 2.0, 60)]
    x = torch.cartesian_prod(*axes)
    expected = rfgp.predict_map(fitted(), x, progress=False)
    found = rfgp.predict_map(fitted(), GridSource(axes), progress=False)
    torch.testing.assert_close(found.mean.reshape(40, 60), expected.mean.reshape(40, 60), rtol=1e-12, atol=1e-13)
    table = {f"x{i}": x[:, i].numpy() for i in range(2)}
    parquet.write_table(writers.require("pyarrow", "pyarrow", "a test").table(table), tmp_path / "points.parquet")
    source = ParquetSource(tmp_path / "points.parquet", inputs=["x0", "x1"], target=None)
    found = rfgp.predict_map(fitted(), source, progress=False)
    torch.testing.assert_close(found.variance, expected.variance, rtol=1e-10, atol=0.0)


def test_arrays_that_take_the_values():
    model, x = fitted(), points()
    expected = rfgp.predict_map(model, x, progress=False)
    arrays = {"mean": np.zeros(ROWS), "variance": torch.zeros(ROWS, dtype=torch.float64).numpy()}
    with ThreadPoolExecutor(2) as executor:
        summary = rfgp.predict_map(model, x, arrays, executor=executor, progress=False)
    assert summary.mean is None and summary.path is None
    assert np.array_equal(arrays["mean"], expected.mean) and np.array_equal(arrays["variance"], expected.variance)


BAD_OUTS = {
    "an array is missing": (lambda path: {"mean": np.zeros(ROWS)}, "array 'variance' in out, got none"),
    "another shape": (lambda path: {"mean": np.zeros(ROWS), "variance": np.zeros(3)}, r"of shape \(5000,\) in out"),
    "integers": (lambda path: {"mean": np.zeros(ROWS), "variance": np.zeros(ROWS, int)}, "float64 in out, got int64"),
    "tensors": (lambda path: dict.fromkeys(["mean", "variance"], torch.zeros(ROWS)), "in out, got torch.float64"),
    "no mapping": (lambda path: 3, "a path, or arrays by name"),
    "another ending": (lambda path: path / "map.npy", "ends in .zarr or .parquet"),
    "no such folder": (lambda path: path / "none" / "map", "expected the folder"),
    "a folder with other things": (lambda path: path / "home", "older map"),
    "a folder for a file": (lambda path: path / "home" / "folder.parquet", "got a folder"),
    "a file": (lambda path: path / "file", "older map"),
}


@pytest.mark.parametrize("name", BAD_OUTS)
def test_bad_outs(name, tmp_path):
    (tmp_path / "home" / "folder.parquet").mkdir(parents=True)
    (tmp_path / "home" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("text")
    out, message = BAD_OUTS[name]
    with pytest.raises(ValueError, match=message):
        rfgp.predict_map(fitted(), points(), out(tmp_path))
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear" and (tmp_path / "file").read_text() == "text"
    assert {entry.name for entry in tmp_path.iterdir()} == {"home", "file"}


class Exploding(ArraySource):
    """Points of which those from row 2000 on cannot be read."""

    def _read(self, edges):
        if edges[0] >= 2000:
            raise OSError("the disk is gone")
        yield from super()._read(edges)


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("worker", ["none", "threads", "processes"])
def test_a_map_that_fails_leaves_nothing(name, worker, tmp_path, processes):
    x = points()
    x[3210] = np.nan
    with ThreadPoolExecutor(2) as threads:
        executor = {"none": None, "threads": threads, "processes": processes}[worker]
        with pytest.raises(ValueError, match="row 3210 of the map"):
            rfgp.predict_map(fitted(), x, tmp_path / name, executor=executor, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_map_that_fails_leaves_the_older_one(tmp_path):
    model, x = fitted(), points(2000)
    for name in PATHS:
        rfgp.predict_map(model, points(100), tmp_path / name, progress=False)
        rfgp.predict_map(model, x, tmp_path / name, progress=False)
    expected = rfgp.predict_map(model, x, progress=False)
    bad = x.clone()
    bad[1999] = np.inf
    for name in PATHS:
        with pytest.raises(ValueError, match="row 1999"):
            rfgp.predict_map(model, bad, tmp_path / name)
        assert_has(tmp_path / name, expected)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("worker", ["none", "threads"])
def test_what_cannot_be_read_is_named(worker, tmp_path):
    source = Exploding(points(), batch_size=1000)
    with ThreadPoolExecutor(2) as threads:
        executor = {"none": None, "threads": threads}[worker]
        with pytest.raises(RuntimeError, match="rows 2000 to 3000 of the map: OSError: the disk is gone"):
            rfgp.predict_map(fitted(), source, tmp_path / "folder", executor=executor)
    assert list(tmp_path.iterdir()) == []


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_work", die)
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor,
        pytest.raises(RuntimeError, match=r"rows 0 to \d+ of the map: BrokenProcessPool") as caught,
    ):
        rfgp.predict_map(fitted(), points(), tmp_path / "folder", executor=executor)
    assert isinstance(caught.value.__cause__, BrokenProcessPool) and list(tmp_path.iterdir()) == []


def test_workers_of_their_own_process_have_one_thread(processes):
    rfgp.predict_map(fitted(), points(), executor=processes, progress=False)
    assert processes.submit(torch.get_num_threads).result() == 1


BAD_POINTS = {
    "a generator": (lambda: (x for x in points().split(10)), "read again"),
    "a number": (lambda: 3, "read again"),
    "no points": (lambda: [], "at least one point"),
    "another number of columns": (lambda: points(columns=3), "rows 0 to 1 of the map: expected x with 2 columns"),
    "one dimension": (lambda: torch.zeros(5), "shape"),
    "three dimensions": (lambda: [torch.zeros(2, 5, 2)], r"batches of points \(n, d\)"),
    "a tensor of integers": (lambda: torch.zeros(5, 2, dtype=torch.long), "expected floating-point points"),
    "integers": (lambda: [torch.zeros(5, 2, dtype=torch.long)], "floating-point"),
}


@pytest.mark.parametrize("name", BAD_POINTS)
def test_bad_points(name):
    make, message = BAD_POINTS[name]
    with pytest.raises(ValueError, match=message):
        rfgp.predict_map(fitted(), make())


def test_points_of_an_unknown_number_are_not_parted():
    with ThreadPoolExecutor(1) as executor, pytest.raises(ValueError, match="of a known number for an executor"):
        rfgp.predict_map(fitted(), [points()], executor=executor)


def test_models_that_are_not_ready():
    model = fitted()
    model.covar_module.base_kernel.lengthscale = 3.0
    with pytest.raises(ValueError, match="call condition"):
        rfgp.predict_map(model, points())
    unfitted = WeightSpaceGP(rfgp.approximate(RBFKernel(), 16, input_dim=2, seed=0), GaussianLikelihood())
    with pytest.raises(ValueError, match="call condition"):
        rfgp.predict_map(unfitted, points())
    with pytest.raises(ValueError, match=r"model with posterior\(x\)"):
        rfgp.predict_map(gpytorch.kernels.RBFKernel(), points())
    with pytest.raises(ValueError, match=r"float32 or torch\.float64"):
        rfgp.predict_map(fitted(), points(), dtype=torch.float16)
    for option in ("variance", "noise"):
        with pytest.raises(ValueError, match="True or False"):
            rfgp.predict_map(fitted(), points(), **{option: 1})


def test_the_summary_reads_well(tmp_path):
    model = fitted()
    text = str(rfgp.predict_map(model, points(), tmp_path / "folder", dtype=torch.float32, progress=False))
    assert text.startswith("5,000 points in ") and "float32 errors up to" in text and "folder" in text


def test_a_bar_counts_rows(capsys):
    rfgp.predict_map(fitted(), points(), progress=True)
    assert "/5.00k" in capsys.readouterr().err
    rfgp.predict_map(fitted(), points(), progress=False)
    assert capsys.readouterr().err == ""


def test_chunks_of_zarr_divide_parts_and_stay_small():
    assert writers._chunk_rows(2**18, 8) == 2**16
    assert writers._chunk_rows(2**18, 8000) == 2**10
    assert writers._chunk_rows(7 * 2**12, 8) == 7 * 2**12
