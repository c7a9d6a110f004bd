"""Functions whose indices are known, and SALib's estimates of Saltelli's samples."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from torch.quasirandom import SobolEngine

import rfgp
from rfgp.diagnostics.sensitivity import Uniform, sobol_indices

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*features exceed"),
]


def ishigami(x):
    return x[:, 0].sin() + 7.0 * x[:, 1].sin().square() + 0.1 * x[:, 2] ** 4 * x[:, 0].sin()


def g_function(x):
    return ((4.0 * x - 2.0).abs() / 2.0 + 0.5).prod(-1)  # a = 1, 1


def interactions(dim, part, lengthscale):
    terms = []
    for columns in [*itertools.combinations(range(dim), 1), *itertools.combinations(range(dim), 2)]:
        base = part(active_dims=list(columns))
        base.lengthscale = lengthscale
        terms.append(ScaleKernel(base))
        terms[-1].outputscale = 20.0
    return sum(terms[1:], terms[0])


def fitted(function, limits, part, lengthscale, count, num_features):
    low, high = limits[0]
    x = low + (high - low) * SobolEngine(len(limits), scramble=True, seed=0).draw(count, dtype=torch.float64)
    exact = interactions(len(limits), part, lengthscale)
    kernel = rfgp.approximate(exact, num_features, input_dim=len(limits), seed=0)
    likelihood = GaussianLikelihood()
    likelihood.noise = 1e-3
    return rfgp.WeightSpaceGP(kernel, likelihood, ConstantMean()).condition(x, function(x))


def test_indices_of_ishigami_and_of_salib():
    limits = [(-math.pi, math.pi)] * 3
    model = fitted(ishigami, limits, RBFKernel, 1.5, 200, 900)
    found = sobol_indices(model, [Uniform(*pair) for pair in limits], num_functions=50)
    b4, b8 = 0.1 * math.pi**4, 0.01 * math.pi**8
    parts = torch.tensor([0.5 * (1.0 + b4 / 5.0) ** 2, 49.0 / 8.0, b8 * (1.0 / 18.0 - 1.0 / 50.0)])
    alone, crossed = parts * torch.tensor([1.0, 1.0, 0.0]) / parts.sum(), parts[2] / parts.sum()
    torch.testing.assert_close(found.first.value, alone, rtol=0.0, atol=0.01)
    torch.testing.assert_close(found.total.value, alone + crossed * torch.tensor([1.0, 0, 1]), rtol=0.0, atol=0.01)
    assert float(found.second.value[0, 2]) == pytest.approx(float(crossed), abs=0.01)
    assert float(found.mean.value) == pytest.approx(3.5, abs=0.05)

    saltelli = pytest.importorskip("SALib.sample.sobol")
    analyze = pytest.importorskip("SALib.analyze.sobol").analyze
    problem = {"num_vars": 3, "names": ["x1", "x2", "x3"], "bounds": limits}
    x = torch.from_numpy(saltelli.sample(problem, 1024, seed=1))
    y = model.posterior(x).mean.detach().numpy()
    estimate = analyze(problem, y, conf_level=0.9999, seed=2)
    for name, value in (("S1", found.first.value), ("ST", found.total.value), ("S2", found.second.value)):
        is_known = ~np.isnan(estimate[name])
        error = np.abs(estimate[name] - value.numpy())[is_known]
        assert (error <= estimate[f"{name}_conf"][is_known] + 1e-3).all(), name


def test_indices_of_the_g_function():
    model = fitted(g_function, [(0.0, 1.0)] * 2, lambda **options: MaternKernel(nu=1.5, **options), 0.5, 200, 900)
    found = sobol_indices(model, [Uniform(0.0, 1.0)] * 2, num_functions=2)
    own = 1.0 / 12.0
    whole = (1.0 + own) ** 2 - 1.0
    torch.testing.assert_close(found.first.value, torch.full((2,), own / whole), rtol=0.0, atol=0.01)
    torch.testing.assert_close(found.total.value, torch.full((2,), (own + own**2) / whole), rtol=0.0, atol=0.01)
