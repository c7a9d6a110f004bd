"""The notebooks of GPyTorch keep their posteriors with one line changed, where every row is a landmark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyro")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import gpytorch_notebooks

REFUSED = {"RBFKernelGrad as it is": "here LinearlyObservedKernel"}
UNSEEN = {  # kernels that do not see the inputs, and those of derivatives, which have no landmarks
    "kernels_with_additive_structure",
    "kernels_with_product_structure",
    "Gaussian_Process_Latent_Variable_Models",
    "Deep_Gaussian_Processes",
    "Deep_Sigma_Point_Processes",
    "Deep_Kernel_Regression",
    "Derivative_Information_1d",
    "Derivative_Information_2d",
}
QUICK = {
    "GP_Regression_on_Classification_Labels",
    "Multitask_GP_Regression",
    "missing observations",
    "Hadamard_Multitask_GP_Regression",
    "SVGP_Regression",
    "Deep_Kernel_Regression",
    "Simple_Batch_Mode_GP_Regression",
    "Derivative_Information_1d",
}
LONG = pytest.mark.long("the other notebooks take 40 s, and share what the quick ones use")
JITTER = 1e-6
"""The divergence that the jitter of landmarks leaves, in nats a value."""

pytestmark = pytest.mark.usefixtures("float64_default")


@pytest.fixture
def few(monkeypatch):
    """As many rows as landmarks."""
    for name, size in {"ROWS": 40, "FEATURES": 40, "INDUCING": 8, "NEW": 20}.items():
        monkeypatch.setattr(gpytorch_notebooks, name, size)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else LONG)
        for name in gpytorch_notebooks.NOTEBOOKS
        if name not in REFUSED
    ],
)
def test_posteriors_are_those_of_the_exact_kernel(name, few):
    cell = gpytorch_notebooks.measured(name, steps=2)
    assert cell.keys() == {"exact", "approximated", "auto", *([] if name in UNSEEN else ["landmarks"])}
    if name in UNSEEN:  # 40 random features
        assert 0.0 < cell["auto"]["nats a value"] < 1.0
    elif name == "missing observations":  # GPyTorch's variances are those of a table without gaps
        assert cell["landmarks"]["mean"] < JITTER
    else:
        assert 0.0 <= cell["landmarks"]["nats a value"] < JITTER
    assert gpytorch_notebooks.row(cell).keys() == {"auto", "landmarks", "error", "nlpd", "coverage", "seconds"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_to_do(name, few):
    cell = gpytorch_notebooks.measured(name, steps=1)
    assert cell.keys() == {"exact", "message"} and REFUSED[name] in cell["message"]
