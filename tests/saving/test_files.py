"""Files that are not what rfgp.save wrote are named, and nothing is loaded; what is written appears whole or not."""

import hashlib
import io
import json
import os
import pickle
import warnings
import zipfile

import gpytorch
import pytest
import torch
from problems import INPUTS, ExactModel, model_for, rows_for
from saved_models import MODELS, ROWS, assert_same, predictions, through_a_file

import rfgp
from rfgp._support import tensor_file
from rfgp.inference import GramStatistics
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.pt"


@pytest.fixture
def fitted():
    return model_for("gaussian").condition(*rows_for("gaussian", ROWS))


def rewritten(path, change):
    """Change the header of a file, with a checksum that fits."""
    content = torch.load(path, weights_only=True)
    header = json.loads(content["header"])
    change(header)
    content["header"] = json.dumps(header)
    digest = hashlib.sha256(content["header"].encode())
    for name, value in content["tensors"].items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    torch.save(content | {"checksum": digest.hexdigest()}, path)


class Harmful:
    """A pickle of it would make a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


# Files


def test_other_files_are_named(path, tmp_path, fitted):
    def raises(match):
        with pytest.raises(ValueError, match=match):
            rfgp.load(path)

    path.write_text("not a model")
    raises("starts otherwise")
    path.write_bytes(b"")
    raises("starts otherwise")
    path.write_bytes(pickle.dumps({"header": "{}"}))
    raises("starts otherwise")
    fitted.statistics.save(path)
    raises("GramStatistics.load")
    torch.save(fitted.state_dict(), path)
    raises("read it with torch.load")
    torch.save([1, 2], path)
    raises("read it with torch.load")
    torch.save({"header": 1, "tensors": {}, "checksum": ""}, path)
    raises("read it with torch.load")
    for tensors in ([torch.ones(1)], {"a": 1}):
        torch.save({"header": "{}", "tensors": tensors, "checksum": ""}, path)
        raises("got another checksum")
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    raises("cut off")
    with pytest.raises(ValueError, match="folder"):
        rfgp.load(tmp_path)
    with pytest.raises(ValueError, match="folder"):
        rfgp.save(fitted, tmp_path)
    with pytest.raises(ValueError, match="a path"):
        rfgp.load(3)
    with pytest.raises(ValueError, match=r"expected the folder .*none for model\.pt, got none; make it first"):
        rfgp.save(fitted, tmp_path / "none" / "model.pt")
    with pytest.raises(FileNotFoundError):
        rfgp.load(tmp_path / "nothing.pt")


def test_pickles_are_not_run(path, tmp_path):
    folder = tmp_path / "harm"
    for protocol in (pickle.dumps, None):
        harmful = {"header": "{}", "tensors": Harmful(folder), "checksum": ""}
        if protocol is None:
            torch.save(harmful, path)
        else:
            path.write_bytes(protocol(harmful))
        with pytest.raises(ValueError, match=r"expected a file that rfgp\.save wrote"):
            rfgp.load(path)
        assert not folder.exists()


def bombs():
    """Contents that are much larger than their files, by the name of what makes them so."""
    return {"strides": torch.zeros(1).expand(10_000_000), "packed": torch.zeros(1_000_000)}


@pytest.mark.parametrize("kind", bombs())
def test_small_files_of_large_tensors_are_refused(kind, path, fitted, monkeypatch):
    content = {"header": "{}", "tensors": {"a": bombs()[kind]}, "checksum": ""}
    torch.save(content, path)
    if kind == "packed":
        with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as whole, zipfile.ZipFile(path, "w", 8) as packed:
            for member in whole.infolist():
                packed.writestr(member.filename, whole.read(member))
    assert path.stat().st_size < 20_000
    monkeypatch.setattr("rfgp.saving.file._checksum", lambda *parts: pytest.fail("the whole of it is read"))
    with pytest.raises(ValueError, match=r"expected .*model\.pt.* as rfgp\.save wrote it"):
        rfgp.load(path)


def test_small_files_of_large_sums_are_refused(path):
    tensor_file.write(path, {"gram": bombs()["strides"]})
    with pytest.raises(ValueError, match="got one that repeats or lacks some"):
        GramStatistics.load(path)


def test_every_truncation_and_every_change_is_noticed(path, fitted):
    rfgp.save(fitted, path)
    whole = path.read_bytes()
    for size in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="expected"):
            rfgp.load(path)
    content = torch.load(io.BytesIO(whole), weights_only=True)
    values = [
        tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in content["tensors"].values()
    ]
    places = [whole.find(value) for value in values if whole.count(value) == 1]
    assert len(places) > 5
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="expected"):
            rfgp.load(path)
    place = whole.find(b"num_draws")
    path.write_bytes(whole[:place] + b"num_drawn" + whole[place + 9 :])
    with pytest.raises(ValueError, match="expected"):
        rfgp.load(path)


def test_newer_formats_and_other_versions(path, fitted):
    rfgp.save(fitted, path)
    rewritten(path, lambda header: header["versions"].update(rfgp="9.0"))
    with pytest.warns(UserWarning, match=r"written with rfgp 9\.0"):
        assert_same(predictions(rfgp.load(path)), predictions(fitted))
    rewritten(path, lambda header: header.update(format=2))
    with pytest.raises(ValueError, match=r"format 1 at most, got format 2.*rfgp 9\.0: install"):
        rfgp.load(path)


NAMES = (
    "os:system",
    "builtins:eval",
    "rfgp._support.files:write_whole",
    "rfgp.study.bench:Bench",
    "torch.nn.functional:F",
    "torch.nn.modules.linear:torch",
    "gpytorch.module:torch.nn.Module",
    "rfgp.kernels:no_such_kernel",
    "gpytorch.no_such_module:Kernel",
    "torch.hub:load",
)


@pytest.mark.parametrize("name", NAMES)
def test_no_other_classes_and_functions_are_looked_up(name, path, fitted):
    rfgp.save(fitted, path)

    def change(header):
        header["objects"][0]["object"][0] = name

    rewritten(path, change)
    with pytest.raises(ValueError, match="expected classes of rfgp, GPyTorch and PyTorch"):
        rfgp.load(path)
    for code in ({"function": name}, {"partial": [{"function": name}, []]}, {"new": name}, {"state": [name, {}]}):
        objects = [code] if "function" not in code else [{"list": [code]}]
        rewritten(path, lambda header, objects=objects: header.update(objects=objects, root={"@": 0}))
        with pytest.raises(ValueError, match=r"expected (classes|functions)"):
            rfgp.load(path)


def test_descriptions_that_fit_nothing(path, fitted):
    rfgp.save(fitted, path)
    for root in ({"@": 10_000}, {"no such kind": 1}, {"tuple": 3}, {"dtype": "load"}, {}):
        rewritten(path, lambda header, root=root: header.update(root=root))
        with pytest.raises(ValueError, match="expected"):
            rfgp.load(path)


FORGED = {
    "format": lambda header: header.update(format="x"),
    "versions": lambda header: header.update(versions={"rfgp": "0.1"}),
    "float": lambda header: header.update(root={"float": "x"}),
    "size": lambda header: header.update(root={"size": [2]}),
    "pair": lambda header: header.update(root={"named tuple": [1]}),
    "array": lambda header: header.update(objects=5),
    "parameter": lambda header: header["objects"][0]["object"][1].update(_parameters={"dict": []}, _priors=3),
    "sums": lambda header: header.update(
        objects=[{"state": ["rfgp.inference.sums.statistics:GramStatistics", {}]}], root={"@": 0}
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_headers_are_named(name, path, fitted):
    rfgp.save(fitted, path)
    rewritten(path, FORGED[name])
    with pytest.raises(ValueError, match=r"^expected "):
        rfgp.load(path)


def test_fields_that_a_file_lacks_have_their_defaults(path, fitted):
    def forget_bounds(header):
        (sums,) = [known["object"][1] for known in header["objects"] if "FeatureSums" in known.get("object", [""])[0]]
        del sums["input_bounds"]

    rfgp.save(fitted, path)
    rewritten(path, forget_bounds)
    loaded = rfgp.load(path)
    assert loaded.sums.input_bounds is None and torch.equal(loaded.statistics.gram, fitted.statistics.gram)


def test_a_kernel_in_place_of_a_prior_is_not_gone_through(path, fitted):
    """A kernel has items without an end."""
    rfgp.save(fitted, path)

    def change(header):
        number = len(header["objects"])
        header["objects"] += [{"dict": [["a", {"@": number + 1}]]}, {"new": "gpytorch.kernels.rbf_kernel:RBFKernel"}]
        header["objects"][0]["object"][1]["_priors"] = {"@": number}

    rewritten(path, change)
    assert type(rfgp.load(path)) is WeightSpaceGP


def test_a_header_of_too_many_levels_is_named(path, fitted):
    rfgp.save(fitted, path)
    content = torch.load(path, weights_only=True)
    content["header"] = "[" * 100_000
    checksum = rfgp.saving.file._checksum(content["header"], content["tensors"])
    torch.save(content | {"checksum": checksum}, path)
    with pytest.raises(ValueError, match="expected a header of rfgp"):
        rfgp.load(path)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, MemoryError])
def test_a_failing_save_leaves_the_file(error, path, fitted, monkeypatch):
    rfgp.save(fitted, path)
    before = path.read_bytes()

    def broken(content, file):
        file.write(b"half")
        raise error

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(error):
        rfgp.save(fitted, path)
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]


# Models


def test_what_cannot_be_saved(path):
    x, y, _ = rows_for("gaussian", ROWS)
    exact = ExactModel(x, y, gpytorch.likelihoods.GaussianLikelihood(), model_for("gaussian").covar_module)
    for model, match in (
        (exact, "without training data"),
        (3, "a model of rfgp.models"),
        (exact.state_dict(), "a model of"),
    ):
        with pytest.raises(ValueError, match=match):
            rfgp.save(model, path)
    with pytest.raises(ValueError, match="with_rows"):
        rfgp.save(model_for("gaussian"), path, with_rows="yes")
    with pytest.raises(ValueError, match="classes"):
        rfgp.load(path, classes=["MyKernel"])
    assert not path.exists()


class MyKernel(gpytorch.kernels.RBFKernel):
    """A kernel of a user's, with settings and, where it is asked for, a function."""

    def __init__(self, power, warp=None):
        super().__init__()
        self.power, self.warp = power, warp
        self.register_buffer("shift", torch.full((1,), 0.3))

    def forward(self, x1, x2, **options):
        warp = (lambda x: x) if self.warp is None else self.warp
        return super().forward(warp(x1 + self.shift), warp(x2 + self.shift), **options) ** self.power


def own(**options):
    landmarks = torch.randn(6, INPUTS, generator=torch.Generator().manual_seed(7))
    kernel = rfgp.approximation.LandmarkKernel(MyKernel(2, **options), landmarks)
    return WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())


def test_classes_of_a_user_are_named(path):
    model = own().condition(*rows_for("gaussian", ROWS)[:2])
    rfgp.save(model, path)
    with pytest.raises(ValueError, match=r"classes=\[MyKernel\]"):
        rfgp.load(path)
    assert_same(predictions(rfgp.load(path, classes=[MyKernel])), predictions(model))
    assert_same(predictions(rfgp.load(path, into=own())), predictions(model))


def test_attributes_that_a_file_cannot_hold_come_from_a_model(path):
    model = own(warp=lambda x: torch.sin(x)).condition(*rows_for("gaussian", ROWS)[:2])
    model.covar_module.lengthscale = 0.7
    model.condition(*rows_for("gaussian", ROWS)[:2])
    rfgp.save(model, path)
    with pytest.raises(ValueError, match=r"exact_kernel\.warp, a function; make a model.*into="):
        rfgp.load(path, classes=[MyKernel])
    made = own(warp=lambda x: torch.sin(x))
    parameter, kernel = made.covar_module.exact_kernel.raw_lengthscale, made.covar_module
    assert rfgp.load(path, into=made) is made
    assert made.covar_module is kernel and kernel.raw_lengthscale is parameter
    assert_same(predictions(made), predictions(model))


@pytest.mark.parametrize("name", MODELS)
def test_into_a_fitted_model(name, path):
    model, other = MODELS[name](), MODELS[name]()
    with torch.no_grad():
        for part in (getattr(other, "covar_module", None), getattr(other, "likelihood", None)):
            for parameter in () if part is None else part.parameters():
                parameter.add_(0.1)
    if name in ("few rows", "few labels"):
        other.update(other.x[:3], other.y[:3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rfgp.save(model, path)
    assert rfgp.load(path, into=other) is other
    assert_same(predictions(other), predictions(model))


def test_another_model_stays_as_it_was(path, fitted):
    rfgp.save(fitted, path)
    others = [model_for("dirichlet"), own(), MODELS["counts"]()]
    for other in others:
        before = {name: value.clone() for name, value in other.state_dict().items()}
        with pytest.raises(ValueError, match="make the model as the saved one was"):
            rfgp.load(path, into=other)
        for name, value in other.state_dict().items():
            torch.testing.assert_close(value, before[name], rtol=0.0, atol=0.0, equal_nan=True)


def test_modules_with_hooks(path, fitted):
    found = through_a_file(fitted, path)
    state = fitted.state_dict()
    name = "covar_module.base_kernel.raw_offset"
    if name in state:
        state[name] = state[name].reshape(())
    found.load_state_dict(state)
    assert_same(predictions(found), predictions(fitted))
