"""A sketch that is written outside of the package: one class with a name is all that it takes."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import LinearKernel, PolynomialKernel, ScaleKernel

import rfgp
from rfgp.approximation import METHODS
from rfgp.approximation.selection import rank_methods
from rfgp.features import ComplexToReal, PolynomialSketch, polynomial_sketch, register_sketch
from rfgp.features.sketch_registry import SKETCHES, TAKEN
from rfgp.linalg import sampling

pytestmark = pytest.mark.usefixtures("float64_default")


@pytest.fixture
def laplace_sketch():
    """A sketch with Laplace weights, named for as long as a test runs."""
    before = dict(SKETCHES)

    @register_sketch("laplace")
    class LaplaceSketch(PolynomialSketch):
        """A product sketch with independent Laplace weights of variance one, real or complex."""

        def __init__(self, input_dim, num_features, degree, is_complex=False, *, generator=None, dtype=None):
            super().__init__(input_dim, num_features, degree, is_complex)
            self._register_weights(generator, dtype)

        def _draw(self, generator):
            planes = 2 if self.is_complex else 1
            shape = (planes, self.degree, self.num_features, self.input_dim)
            level = sampling.uniform(shape, generator) - 0.5
            return {"weight": -level.sign() * torch.log1p(-2.0 * level.abs()) / (2.0 * planes) ** 0.5}

        def _factor(self, i, x, out=None):
            return torch.complex(*(w[i] @ x for w in self.weight)) if self.is_complex else self.weight[0, i] @ x

        @property
        def operations(self):
            return float(self.degree * self.num_features * self.input_dim)

        @classmethod
        def examples(cls):
            return [cls(3, 4, 2)]

    yield LaplaceSketch
    SKETCHES.clear()
    SKETCHES.update(before)


def inputs(num_rows, seed=0):
    x = torch.randn(num_rows, 3, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(x, dim=-1)


def test_names_of_other_methods_are_taken():
    assert set(TAKEN) == {"auto", *METHODS} - SKETCHES.keys()


@pytest.mark.parametrize("form", ["real", "complex", "ctr"])
def test_it_is_made_by_its_name(laplace_sketch, form):
    sketch = polynomial_sketch("laplace", form, 3, 20000, 2, torch.Generator().manual_seed(0))
    assert type(getattr(sketch, "feature_map", sketch)) is laplace_sketch
    assert isinstance(sketch, ComplexToReal) == (form == "ctr") and sketch.is_complex == (form == "complex")
    x = inputs(4)
    assert (sketch(x) @ sketch(x).mH - sketch.target(x, x)).abs().max() <= 0.2


@pytest.mark.parametrize("method", ["laplace", "laplace:real", "laplace:complex", "laplace:ctr"])
@pytest.mark.parametrize("make", [lambda: PolynomialKernel(power=2), lambda: ScaleKernel(LinearKernel())])
def test_kernels_are_approximated_with_it(laplace_sketch, make, method):
    exact, x = make(), inputs(5)
    kernel = rfgp.approximate(exact, 20000, method=method, input_dim=3, seed=1)
    error = (kernel(x).to_dense() - exact(x).to_dense()).abs().max()
    assert error <= 0.05 * exact(x).to_dense().max()
    assert any(isinstance(part, laplace_sketch) for part in kernel.modules())


def test_it_is_ranked_beside_the_others(laplace_sketch):
    ranking = rank_methods(PolynomialKernel(power=2), 32, inputs(40))
    assert {"laplace:real", "laplace:ctr", "tensor_srht:ctr"} <= {candidate.method for candidate in ranking}


def test_a_product_takes_its_columns(laplace_sketch):
    exact = PolynomialKernel(power=2) * LinearKernel()
    kernel = rfgp.approximate(exact, 64, method="laplace", input_dim=3, seed=0)
    assert sum(isinstance(part, laplace_sketch) for part in kernel.modules()) == 2


def test_names_are_taken_once(laplace_sketch):
    with pytest.raises(ValueError, match=r"^expected a name other than rademacher, .*laplace, .*, got 'laplace'"):
        register_sketch("laplace")
    with pytest.raises(ValueError, match="expected one of real, complex, ctr for default_form"):
        register_sketch("another", default_form="imaginary")


def test_without_the_class_the_name_is_unknown():
    with pytest.raises(ValueError, match="expected a method among rademacher, gaussian"):
        rfgp.approximate(PolynomialKernel(power=2), 32, method="laplace", input_dim=3)
