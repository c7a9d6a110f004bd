"""Every feature map under the transforms of torch.func, the tracer and the compiler of PyTorch."""

import pytest
import torch
from cases import map_classes, map_examples

pytestmark = pytest.mark.usefixtures("float64_default")
EXAMPLES = [example for example in map_examples() if (index := example.values[0].index) < 2 or index % 3 == 0]
every_map = pytest.mark.parametrize("make", EXAMPLES)


def inputs(feature_map, *shape):
    """Inputs on the unit sphere, in the domain of every map."""
    x = torch.rand(*shape, feature_map.input_dim, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(x, dim=-1)


def real(features):
    return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@every_map
def test_vmap_over_a_batch_is_the_batch(make):
    feature_map = make()
    x = inputs(feature_map, 2, 3)
    close(torch.func.vmap(feature_map)(x), feature_map(x))


@every_map
def test_derivatives_forward_and_backward_are_those_of_autograd(make):
    feature_map = make()
    x = inputs(feature_map, 1)

    def features(x):
        return real(feature_map(x))

    expected = torch.autograd.functional.jacobian(features, x)
    close(torch.func.jacrev(features)(x), expected)
    close(torch.func.jacfwd(features)(x), expected)


@pytest.mark.parametrize("make", EXAMPLES[::5])
def test_hessians_are_those_of_autograd(make):
    feature_map = make()
    x = inputs(feature_map, 1)

    def total(x):
        return (real(feature_map(x)) ** 3).sum()

    close(torch.func.hessian(total)(x), torch.autograd.functional.hessian(total, x))


@every_map
def test_a_trace_takes_another_number_of_rows(make):
    feature_map = make()
    traced = torch.jit.trace(feature_map, inputs(feature_map, 3), check_trace=False)
    close(traced(inputs(feature_map, 7)), feature_map(inputs(feature_map, 7)))


@pytest.mark.parametrize("cls", map_classes(), ids=lambda cls: cls.__name__)
@pytest.mark.long("compiles for seconds")
def test_one_graph_holds_a_map(cls):
    feature_map = cls.examples()[-1].double()
    torch.compiler.reset()
    compiled = torch.compile(feature_map, fullgraph=True, backend="eager")
    x = inputs(feature_map, 3)
    close(compiled(x), feature_map(x))
