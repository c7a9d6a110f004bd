"""Scales of inputs: by the shortest lengthscales, else deviations, and zero for columns that do not count."""

import gpytorch
import torch
from gpytorch.kernels import IndexKernel, LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel

from rfgp.approximation.input_scales import input_scales
from rfgp.kernels import InputTransformKernel, LinearMap, SinhArcsinhWarp
from rfgp.linalg.nearest import scaled_points


def test_the_shortest_lengthscale_of_every_column():
    kernel = ScaleKernel(RBFKernel(active_dims=[0, 2])) + RBFKernel(active_dims=[2])
    kernel.kernels[0].base_kernel.lengthscale, kernel.kernels[1].lengthscale = 2.0, 0.5
    assert torch.equal(input_scales(kernel, torch.randn(4, 3)), 1.0 / torch.tensor([2.0, torch.inf, 0.5]).double())


def test_every_dimension_has_its_own():
    kernel = ScaleKernel(RBFKernel(ard_num_dims=3))
    kernel.base_kernel.lengthscale = torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(input_scales(kernel, torch.randn(4, 3)), 1.0 / torch.tensor([1.0, 2.0, 3.0]).double())


def test_columns_without_lengthscales_have_their_deviations():
    x = torch.tensor([[0.0, 0.0, 0.0, 1.0], [2.0, 4.0, 1.0, 1.0]])
    kernel = LinearKernel(active_dims=[0]) + PeriodicKernel(active_dims=[1]) * IndexKernel(2, active_dims=[2])
    assert torch.equal(input_scales(kernel, x), 1.0 / torch.tensor([1.0, 2.0, 0.5, torch.inf]).double())
    constant = LinearKernel(active_dims=[3])
    assert not input_scales(constant, x).any()


def test_lengthscales_of_other_spaces_do_not_count():
    class Deep(gpytorch.kernels.Kernel):
        def __init__(self):
            super().__init__()
            self.inner = RBFKernel(ard_num_dims=2)

        def forward(self, x1, x2, diag=False, **params):
            return self.inner(x1[..., :2], x2[..., :2], diag=diag)

    x = torch.tensor([[0.0, 0.0, 0.0], [2.0, 4.0, 6.0]])
    assert torch.equal(input_scales(Deep(), x), 1.0 / torch.tensor([1.0, 2.0, 3.0]).double())


def test_a_linear_map_has_the_distances_of_its_metric():
    x = torch.randn(50, 3, dtype=torch.float64)
    base = RBFKernel(ard_num_dims=2).double()
    base.lengthscale = torch.tensor([0.5, 2.0])
    linear = LinearMap(x, rank=2)
    points = scaled_points(x, input_scales(ScaleKernel(InputTransformKernel(base, linear)), x))
    assert points.shape == (50, 2)
    wanted = torch.cdist(linear(x) / base.lengthscale, linear(x) / base.lengthscale)
    torch.testing.assert_close(torch.cdist(points, points), wanted.detach(), rtol=0.0, atol=1e-6)


def test_a_warping_counts_by_its_mean_slope():
    x = torch.randn(200, 1, dtype=torch.float64)
    warp = SinhArcsinhWarp(x)
    warp.initialize(raw_tail=warp.raw_tail_constraint.inverse_transform(torch.tensor([2.0], dtype=torch.float64)))
    kernel = InputTransformKernel(RBFKernel().double(), warp)
    slopes = torch.func.vmap(torch.func.grad(lambda row: warp(row.unsqueeze(0)).sum()))(x)
    wanted = (slopes.square().mean().sqrt() / kernel.base_kernel.lengthscale).detach()
    torch.testing.assert_close(input_scales(kernel, x).abs(), wanted)
