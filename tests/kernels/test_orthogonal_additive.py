"""The orthogonal additive kernel: its definition, its means of zero, and variances of its components."""

import itertools

import gpytorch
import pytest
import torch

import rfgp
from rfgp.diagnostics.sensitivity import Normal, sobol_indices
from rfgp.kernels import LaplaceKernel, OrthogonalAdditiveKernel

DRAWN = torch.Generator().manual_seed(0)
ROWS = torch.randn(40, 3, dtype=torch.float64, generator=DRAWN)


def make(degree=2):
    kernel = OrthogonalAdditiveKernel(3, max_degree=degree).double()
    kernel.lengthscale = torch.tensor([0.7, 1.0, 1.5])
    kernel.variances = torch.tensor([0.5, 1.0, 0.3, 0.2][: degree + 1])
    return kernel


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_values_are_sums_over_subsets_of_inputs(degree):
    kernel = make(degree)
    parts = kernel.parts(ROWS, ROWS)
    wanted = sum(
        kernel.variances[q] * sum(parts[..., list(chosen)].prod(-1) for chosen in itertools.combinations(range(3), q))
        for q in range(degree + 1)
    )
    torch.testing.assert_close(kernel(ROWS).to_dense(), wanted)
    torch.testing.assert_close(kernel(ROWS, diag=True), wanted.diagonal())
    assert float(torch.linalg.eigvalsh(wanted.detach()).min()) > -1e-10


def test_every_part_has_a_mean_of_zero_under_the_standard_normal():
    line = torch.linspace(-10.0, 10.0, 4001, dtype=torch.float64).unsqueeze(-1).expand(-1, 3)
    density = torch.exp(-0.5 * line[:, 0].square())
    means = (make().parts(line, ROWS) * (density / density.sum())[:, None, None]).sum(0)
    assert float(means.abs().max()) < 1e-10


def test_variances_of_components_are_the_indices_of_a_posterior_mean():
    y = ROWS[:, 0] + torch.sin(2.0 * ROWS[:, 1]) + 0.5 * ROWS[:, 0] * ROWS[:, 2]
    kernel = make()
    approximate = rfgp.approximate(kernel, len(ROWS), method="landmarks", train_inputs=ROWS, seed=0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 1e-4
    model = rfgp.WeightSpaceGP(approximate, likelihood).condition(ROWS, y)
    with torch.no_grad():
        dense = kernel(ROWS).to_dense() + 1e-4 * torch.eye(len(ROWS), dtype=torch.float64)
        found = kernel.component_variances(ROWS, torch.linalg.solve(dense, y))
        indices = sobol_indices(model, [Normal(0.0, 1.0)] * 3, num_functions=50, num_points=4096)
    whole = sum(found.values())
    first = torch.tensor([found[(i,)] / whole for i in range(3)], dtype=torch.float64)
    assert float((indices.first.value - first).abs().max()) < 0.05
    assert float((indices.second.value[0, 2] - found[0, 2] / whole).abs()) < 0.05


@pytest.mark.parametrize(
    ("rows", "weights", "told"),
    [
        (ROWS[:, :2], torch.ones(40), "rows with 3 columns, got 2"),
        (ROWS, torch.ones(39), "one per row"),
        (ROWS[None], torch.ones(1, 40), "rows of shape"),
    ],
)
def test_variances_of_components_refuse_other_shapes(rows, weights, told):
    with pytest.raises(ValueError, match=told):
        make().component_variances(rows, weights)


def test_a_degree_above_the_number_of_inputs_is_refused():
    with pytest.raises(ValueError, match="max_degree"):
        OrthogonalAdditiveKernel(2, max_degree=3)


@pytest.mark.parametrize("kernel", [LaplaceKernel(), OrthogonalAdditiveKernel(2)])
def test_inputs_are_asked_for(kernel):
    for inputs in ((None,), (None, torch.ones(3, 2)), (3.0,)):
        with pytest.raises(ValueError, match="x1"):
            kernel(*inputs)
    with pytest.raises(ValueError, match="x1 and x2 with equally many columns"):
        kernel(torch.ones(3, 2), torch.ones(3, 1))
