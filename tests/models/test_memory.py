"""What a model holds is released with it, without waiting for the garbage collector."""

import gc
import weakref

import gpytorch
import torch

import rfgp
from rfgp.models import LaplaceGP


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


def test_curvatures_of_classes_ask_for_the_memory_that_they_take(monkeypatch):
    """Three times the Gram matrices: of the rows, their sum, and a factor."""
    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 8, input_dim=2, seed=0)
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_features=3, num_classes=3, mixing_weights=False)
    asked = []
    monkeypatch.setattr("rfgp._support.checks.fits_in_memory", lambda size, *words: asked.append(size))
    LaplaceGP(kernel, likelihood).condition(x, torch.arange(30) % 3)
    assert 3 * 6 * 8 * 8 * 8 in asked
