"""What is refused, and how: values that are not finite, places that take no files, forged files, other shapes."""

import json
import os
import subprocess
import sys

import gpytorch
import pandas
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel, SpectralMixtureKernel
from gpytorch.likelihoods import BernoulliLikelihood, BetaLikelihood, GaussianLikelihood
from linear_operator.utils.errors import NanError
from problems import ExactModel

import rfgp
from rfgp.__main__ import main
from rfgp.models import LaplaceGP, WeightSpaceGP
from rfgp.saving.file import _checksum
from rfgp.study.commands.options import without_formulas

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]
X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X.sum(-1).sin()


def model(**options):
    return WeightSpaceGP(rfgp.approximate(ScaleKernel(RBFKernel()), 16, seed=0, **options), GaussianLikelihood())


def test_a_line_search_of_others_knows_features_that_are_not_finite():
    """BoTorch's goes on with a shorter step after a NanError."""
    kernel = rfgp.approximate(RBFKernel(), 16, input_dim=2, seed=0)
    kernel.exact_kernel.raw_lengthscale.data.fill_(torch.nan)
    for call in (lambda: kernel.features(X), lambda: kernel(X).to_dense()):
        with pytest.raises(NanError, match=r"expected finite parameters, got nan in .*raw_lengthscale") as raised:
            call()
        assert isinstance(raised.value, ValueError)


def test_a_parameter_that_is_not_finite_is_named():
    kernel = SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2)
    kernel.raw_mixture_scales.data[0, 0, 1] = torch.inf
    with pytest.raises(ValueError, match=r"got inf in .*raw_mixture_scales; set it to finite values"):
        WeightSpaceGP(rfgp.approximate(kernel, 16, input_dim=2, seed=0), GaussianLikelihood()).condition(X, Y)


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_a_target_where_no_density_is_finite_is_named_with_its_row(end):
    shares = 0.1 + 0.8 * torch.rand(40)
    shares[7] = end
    beta = LaplaceGP(rfgp.approximate(RBFKernel(), 16, input_dim=2, seed=0), BetaLikelihood())
    with pytest.raises(ValueError, match=f"density of BetaLikelihood is finite, got {end:g} in row 7; move"):
        beta.condition(X, shares)


def test_sums_of_inference_mode_outlive_it_and_training_is_refused_there():
    with torch.inference_mode():
        fitted = model(input_dim=2).condition(X, Y)
        mean = fitted.posterior(X[:3]).mean
        with pytest.raises(ValueError, match="inference_mode"):
            rfgp.fit(fitted, X, Y)
    after = fitted.update(X[:2], Y[:2]).posterior(X[:3])
    assert torch.isfinite(mean).all() and torch.isfinite(after.mean).all()


def test_dtypes_and_devices_without_digits_are_refused():
    with pytest.raises(ValueError, match="float32 or float16, got torch"):
        model(input_dim=2).bfloat16().condition(X.bfloat16(), Y.bfloat16())
    kernel = RBFKernel()
    with torch.device("meta"), pytest.raises(ValueError, match="got the meta device"):
        rfgp.approximate(kernel, 16, input_dim=2, seed=0)


def test_inputs_of_one_dimension_are_a_column():
    x, column = X[:, 0], X[:, :1]
    one, other = (model(input_dim=1).condition(rows, Y) for rows in (x, column))
    torch.testing.assert_close(one.posterior(x[:3]).mean, other.posterior(column[:3]).mean)
    assert one.sample_functions(2)(x).shape == (2, 40)
    torch.testing.assert_close(one.leave_one_out(x, Y).mean, other.leave_one_out(column, Y).mean)
    torch.testing.assert_close(
        one.update(x, Y).posterior(x).variance, other.update(column, Y).posterior(column).variance
    )
    kernel = rfgp.approximate(RBFKernel(), 8, method="landmarks", train_inputs=x, seed=0)
    assert kernel.features(x).shape == (40, 8)
    assert LaplaceGP(kernel, BernoulliLikelihood()).condition(x, (Y > 0.5).double()).posterior(x).mean.shape == (40,)
    assert rfgp.fit(model(), x, Y, max_evaluations=2, progress=False).evaluations >= 1
    assert torch.isfinite(rfgp.kl_to_exact(one, x, train_inputs=x, train_targets=Y))


def test_targets_that_are_missing_have_a_way():
    targets = Y.clone()
    targets[3] = torch.nan
    exact = ExactModel(X, targets, GaussianLikelihood(), RBFKernel())
    with pytest.raises(ValueError, match=r"remove these rows, or use a rfgp\.WeightSpaceGP"):
        rfgp.fit(exact, max_evaluations=2, progress=False)


def forged(path, header=None, tensors=None):
    """A file whose header or tensors are others, with the checksum that they have if they have one."""
    content = torch.load(path, weights_only=True)
    header = header or content["header"]
    tensors = content["tensors"] if tensors is None else tensors
    try:
        checksum = _checksum(header, tensors)
    except (UnicodeError, AttributeError):
        checksum = "0"
    torch.save({"header": header, "tensors": tensors, "checksum": checksum}, path)


@pytest.mark.parametrize("kind", ["infinite format", "surrogate", "numbers"])
def test_forged_files_are_refused(kind, tmp_path):
    path = tmp_path / "model.pt"
    rfgp.save(model(input_dim=2), path)
    header = json.loads(torch.load(path, weights_only=True)["header"])
    forms = {
        "infinite format": {"header": json.dumps(header | {"format": float("inf")})},
        "surrogate": {"header": "\ud800"},
        "numbers": {"tensors": {"a": 1}},
    }
    forged(path, **forms[kind])
    with pytest.raises(ValueError, match="expected "):
        rfgp.load(path)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder that takes no files is one of Linux")
def test_a_folder_that_takes_no_files_and_a_pipe_are_refused(tmp_path):
    with pytest.raises(ValueError, match="got one that takes none"):
        rfgp.save(model(input_dim=2), "/proc/model.pt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="got a device or a pipe"):
        rfgp.save(model(input_dim=2), tmp_path / "pipe")


def refused(capsys, *arguments):
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def test_a_file_to_write_is_no_link_and_none_that_is_read(tmp_path, capsys):
    table, link = tmp_path / "table.csv", tmp_path / "link.pt"
    table.write_text("a,y\n1,2\n")
    link.symlink_to(tmp_path / "nowhere")
    told = refused(capsys, "fit", str(table), "--target", "y", "--out", str(link))
    assert "expected a new file for --out" in told and not (tmp_path / "nowhere").exists()
    told = refused(capsys, "fit", str(table), "--target", "y", "--out", str(table), "--force")
    assert "that is not read" in told and table.read_text().startswith("a,y")


def test_a_file_that_is_not_there_is_told_before_pytorch_is_imported():
    code = """
import sys
from rfgp.__main__ import main
assert main(["fit", "nothere.csv", "--target", "y", "--out", "m.pt"]) == 2
assert main(["predict", "nothere.pt", "nothere.csv"]) == 2
assert not {"torch", "numpy", "sklearn"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("expected an existing file") == 2


def test_tables_for_spreadsheets_have_no_formulas():
    table = without_formulas(pandas.DataFrame({"=cmd": ["@sum", "-1.5", "plain"]}))
    assert list(table.columns) == ["'=cmd"] and list(table["'=cmd"]) == ["'@sum", "-1.5", "plain"]


def test_a_name_with_dollars_is_no_mathematics(tmp_path):
    pytest.importorskip("matplotlib")
    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
    inputs = {r"$\frac{$": "uniform(0, 1)", "b": "uniform(0, 1)"}
    path = rfgp.study.uncertainty(x, x.sum(1), inputs).report(tmp_path / "study.html")
    assert path.stat().st_size > 10_000


def test_a_model_of_gpytorch_is_fitted_by_botorch_where_the_exact_one_is():
    pytest.importorskip("botorch")
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP

    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    y = 1 - torch.norm(x - 0.5, dim=-1, keepdim=True)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel(ard_num_dims=2)), 64, input_dim=2, seed=0)
    fitted = SingleTaskGP(x, y, covar_module=kernel)
    fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(fitted.likelihood, fitted))
    assert float(fitted.posterior(x).mean.sub(y).abs().mean()) < 0.1
