"""Units of inputs: the shortest lengthscales, deviations where there are none, and columns that do not count."""

import gpytorch
import torch
from gpytorch.kernels import IndexKernel, LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel

from rfgp.approximation.input_units import input_units


def test_the_shortest_lengthscale_of_every_column():
    kernel = ScaleKernel(RBFKernel(active_dims=[0, 2])) + RBFKernel(active_dims=[2])
    kernel.kernels[0].base_kernel.lengthscale, kernel.kernels[1].lengthscale = 2.0, 0.5
    assert torch.equal(input_units(kernel, torch.randn(4, 3)), torch.tensor([2.0, torch.inf, 0.5]).double())


def test_every_dimension_has_its_own():
    kernel = ScaleKernel(RBFKernel(ard_num_dims=3))
    kernel.base_kernel.lengthscale = torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(input_units(kernel, torch.randn(4, 3)), torch.tensor([1.0, 2.0, 3.0]).double())


def test_columns_without_lengthscales_have_their_deviations():
    x = torch.tensor([[0.0, 0.0, 0.0, 1.0], [2.0, 4.0, 1.0, 1.0]])
    kernel = LinearKernel(active_dims=[0]) + PeriodicKernel(active_dims=[1]) * IndexKernel(2, active_dims=[2])
    assert torch.equal(input_units(kernel, x), torch.tensor([1.0, 2.0, 0.5, torch.inf]).double())
    constant = LinearKernel(active_dims=[3])
    assert torch.equal(input_units(constant, x), torch.full((4,), torch.inf).double())


def test_lengthscales_of_other_spaces_do_not_count():
    class Deep(gpytorch.kernels.Kernel):
        def __init__(self):
            super().__init__()
            self.inner = RBFKernel(ard_num_dims=2)

        def forward(self, x1, x2, diag=False, **params):
            return self.inner(x1[..., :2], x2[..., :2], diag=diag)

    x = torch.tensor([[0.0, 0.0, 0.0], [2.0, 4.0, 6.0]])
    assert torch.equal(input_units(Deep(), x), torch.tensor([1.0, 2.0, 3.0]).double())
