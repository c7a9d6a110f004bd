"""What a model holds is released with it, without waiting for the garbage collector."""

import gc
import weakref

import gpytorch
import torch

import rfgp


def test_a_model_is_freed_with_its_last_reference():
    gc.disable()
    try:
        exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PolynomialKernel(power=2))
        kernel = rfgp.approximate(exact, 8, input_dim=3, seed=0)
        model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
        x = torch.rand(30, 3, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            posterior = model.condition(x, x.sum(-1)).posterior(x)
            assert torch.isfinite(posterior.mean).all() and torch.isfinite(posterior.variance).all()
        held = weakref.ref(model), weakref.ref(model.statistics), weakref.ref(model.weight_posterior().factor)
        assert all(reference() is not None for reference in held)
        del model, posterior
        assert all(reference() is None for reference in held)
    finally:
        gc.enable()
