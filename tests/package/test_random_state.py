"""Calls with a seed or a generator leave the global states of PyTorch and NumPy as they were."""

from __future__ import annotations

import copy
import inspect
import warnings

import gpytorch
import numpy as np
import pytest
import torch
from cases import map_examples
from gpytorch.kernels import PolynomialKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood

import rfgp
from rfgp import data, diagnostics, likelihoods, models, sklearn
from rfgp.approximation import selection
from rfgp.botorch import WeightSpaceModel
from rfgp.diagnostics import certificates, conformal, sensitivity, two_sample
from rfgp.features import allocation
from rfgp.linalg import sampling
from rfgp.study import exact_kernel

STATES = "generator", "seed", "random_state"
SUBPACKAGES = certificates, conformal, diagnostics, models, sampling, selection, sensitivity, sklearn, two_sample
X = torch.rand(24, 2, generator=torch.Generator().manual_seed(0))
Y, LABELS = X.sum(-1), (X[:, 0] > 0.5).long()
BOTH = torch.stack([Y, X[:, 0]], dim=-1)


def generator():
    return torch.Generator().manual_seed(0)


def fitted(likelihood=None, y=Y, **settings):
    kernel = rfgp.approximate(RBFKernel(), 8, input_dim=2, seed=0)
    return rfgp.WeightSpaceGP(kernel, likelihood or GaussianLikelihood(), **settings).condition(X, y)


CLASSES = fitted(likelihoods.DirichletClassificationLikelihood(LABELS, learn_additional_noise=False), LABELS)
COEFFICIENTS = torch.tensor([0.0, 1.0, 0.5])
CALLS = {
    "approximate": lambda: [
        rfgp.approximate(kernel, 8, train_inputs=X, method=method, seed=1)
        for kernel, method in (
            (RBFKernel(), "auto"),
            (RBFKernel(), "landmarks_kmeans"),
            (RBFKernel(), "fourier_orthogonal"),
            (PolynomialKernel(2), "tensor_srht:ctr"),
            (RBFKernel(), "optimized_maclaurin:real"),
        )
    ],
    "WeightSpaceModel": lambda: WeightSpaceModel(X.double(), BOTH.double(), seed=1),
    "log_determinant": lambda: certificates.log_determinant(
        RBFKernel(), GaussianLikelihood(), X, num_landmarks=4, seed=1
    ),
    "stochastic_kl": lambda: certificates.stochastic_kl(fitted().covar_module, GaussianLikelihood(), X, seed=1),
    "jackknife_plus": lambda: conformal.jackknife_plus(fitted(), X, Y, X, groups=4, seed=1),
    "sample": lambda: data.sample([(X, Y)], 5, seed=1),
    "compare_to_exact": lambda: diagnostics.compare_to_exact(
        fitted(), X, train_inputs=X, train_targets=Y, max_rows=8, num_subsets=2, seed=1
    ),
    "DirichletClassificationLikelihood.class_probabilities": lambda: CLASSES.likelihood.class_probabilities(
        CLASSES.posterior(X), generator=generator()
    ),
    "DirichletClassificationLikelihood.select_alpha_epsilon": lambda: CLASSES.likelihood.select_alpha_epsilon(
        CLASSES, X, LABELS, num_samples=8, seed=1
    ),
    "LaplaceGP.resample": lambda: models.LaplaceGP(
        rfgp.approximate(RBFKernel(), 8, input_dim=2, seed=0), gpytorch.likelihoods.BernoulliLikelihood()
    ).resample(generator()),
    "LocalizedMaclaurinGP": lambda: models.LocalizedMaclaurinGP(RBFKernel(), GaussianLikelihood(), 8, seed=1).condition(
        X, Y
    ),
    "WeightSpaceGP.leave_group_out": lambda: fitted().leave_group_out(X, Y, 4, seed=1),
    "WeightSpaceGP.leave_out_functions": lambda: fitted().leave_out_functions(X, Y, 4, seed=1),
    "WeightSpaceGP.resample": lambda: fitted(num_draws=2).resample(generator()),
    "folds": lambda: models.folds(24, 4, seed=1),
    "best_method": lambda: selection.best_method(RBFKernel(), 8, X, seed=1),
    "posterior_loss": lambda: selection.posterior_loss(fitted().covar_module, X, seed=1),
    "predicted_error": lambda: selection.predicted_error(
        rfgp.approximate(PolynomialKernel(2), 8, input_dim=2, method="tensor_sketch", seed=0), X, seed=1
    ),
    "rank_methods": lambda: selection.rank_methods(
        PolynomialKernel(2), 8, X, methods=["tensor_sketch:real", "landmarks"], seed=1
    ),
    "suggest_num_features": lambda: selection.suggest_num_features(RBFKernel(), X, kl_per_point=1.0, seed=1),
    "GaussianCopula.sample": lambda: sensitivity.GaussianCopula(
        [sensitivity.Uniform(0.0, 1.0)] * 2, [[1.0, 0.5], [0.5, 1.0]]
    ).sample(8, generator()),
    "propagate": lambda: sensitivity.propagate(fitted(), [sensitivity.Uniform(0.0, 1.0)] * 2, generator=generator()),
    "RandomFeatureGPClassifier": lambda: sklearn.RandomFeatureGPClassifier(num_features=8, random_state=0).fit(
        X, LABELS
    ),
    "RandomFeatureGPCountRegressor": lambda: sklearn.RandomFeatureGPCountRegressor(
        max_evaluations=1, random_state=0
    ).fit(X, LABELS),
    "RandomFeatureGPCountRegressor.sample_y": lambda: (
        sklearn.RandomFeatureGPCountRegressor("rbf", max_evaluations=1, random_state=0)
        .fit(X, LABELS)
        .sample_y(X, 2, random_state=0)
    ),
    "RandomFeatureGPRegressor": lambda: sklearn.RandomFeatureGPRegressor(num_features=8, random_state=0).fit(X, BOTH),
    "RandomFeatureGPRegressor.sample_y": lambda: (
        sklearn.RandomFeatureGPRegressor(num_features=8, random_state=0).fit(X, Y).sample_y(X, 2, random_state=0)
    ),
    "RandomFeatures": lambda: sklearn.RandomFeatures(num_features=8, random_state=0).fit_transform(X),
    "allocate": lambda: allocation.allocate(X, 8, COEFFICIENTS, num_pairs=4, generator=generator()),
    "optimized_maclaurin": lambda: allocation.optimized_maclaurin(X, 8, COEFFICIENTS, generator=generator()),
    "random_maclaurin": lambda: allocation.random_maclaurin(2, 8, COEFFICIENTS, generator=generator()),
    "feature maps": lambda: [case.values[0]().resample(generator()) for case in map_examples()],
    "rademacher": lambda: sampling.rademacher((3,), generator()),
    "fourth_roots": lambda: sampling.fourth_roots((3,), generator()),
    "gaussian": lambda: sampling.gaussian((3,), generator()),
    "complex_gaussian": lambda: sampling.complex_gaussian((3,), generator()),
    "uniform": lambda: sampling.uniform((3,), generator()),
    "sobol": lambda: sampling.sobol(3, 2, generator()),
    "chi": lambda: sampling.chi(3.5, (3,), generator()),
    "orthogonal_directions": lambda: sampling.orthogonal_directions(3, 2, generator()),
    "shuffled_copies": lambda: sampling.shuffled_copies(3, 5, generator()),
    "stacked_permutations": lambda: sampling.stacked_permutations(3, 5, generator()),
    "exact_kernel": lambda: exact_kernel("linear", num_outputs=2),
    "block_mmd": lambda: two_sample.block_mmd(X, X, RBFKernel(), block_size=8, num_blocks=2, seed=1),
    "kernel_inception_distance": lambda: two_sample.kernel_inception_distance(X, X, num_features=8, seed=1),
    "permutation_test": lambda: two_sample.permutation_test(X, X, RBFKernel(), num_permutations=3, seed=1),
}


def test_every_public_call_with_a_seed_is_here():
    public = {name: getattr(part, name) for part in SUBPACKAGES for name in getattr(part, "__all__", ())}
    calls = {name: value for name, value in public.items() if inspect.isclass(value) or inspect.isfunction(value)}
    assert {name for name, call in calls.items() if set(STATES) & set(inspect.signature(call).parameters)} <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_global_states_stay(name):
    before, numpys = torch.random.get_rng_state(), copy.deepcopy(np.random.get_state())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CALLS[name]()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpys, strict=True))
