"""A kind of sums that rfgp has never heard of: one class, and models, gradients, updates and states follow."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import ClassVar

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood

import rfgp
from rfgp.inference import GramStatistics
from rfgp.inference.noise import IndependentNoise, registered
from rfgp.inference.sums.sufficient_statistics import SufficientStatistics

pytestmark = pytest.mark.usefixtures("float64_default")


class PackedStatistics(SufficientStatistics):
    """Sums that hold the upper triangles of Gram matrices alone, (G, D (D + 1) / 2)."""

    additive: ClassVar[tuple[str, ...]] = ("packed",)
    differentiable_sums: ClassVar[tuple[str, ...]] = ("packed", "cross", "target_gram", "log_noise")

    @staticmethod
    def _no_features(none, num_groups):
        width = none.shape[-1]
        return {"packed": none.new_zeros(num_groups, width * (width + 1) // 2)}

    @classmethod
    def _check_state(cls, state):
        width = state["cross"].shape[1]
        if state["packed"].shape[-1] != width * (width + 1) // 2:
            raise ValueError("expected the triangles of Gram matrices, got others; save the state again")

    @property
    def gram(self):
        matrices = self._own["packed"].new_zeros(len(self.count), self.num_features, self.num_features)
        rows, columns = torch.triu_indices(self.num_features, self.num_features)
        matrices[:, rows, columns] = self._own["packed"]
        return matrices + matrices.triu(1).mT

    @staticmethod
    def _squares(features):
        width = int((2 * features["packed"].shape[-1]) ** 0.5)
        rows, columns = torch.triu_indices(width, width)
        return features["packed"][:, rows == columns]

    def add(self, features, rows, product_dtype=torch.float64):
        packed, cross, target_gram, log_noise = self.graph(product_dtype)(features, rows)
        added = self.targets._replace(cross=cross, gram=target_gram, num_rows=rows.counts, log_noise=log_noise)
        self.targets = self.targets.combined(added, torch.add)
        self._hold({"packed": self._own["packed"] + packed})
        return self

    def graph(self, product_dtype) -> Callable[..., Sequence[torch.Tensor]]:
        return functools.partial(self._sums_of_rows, product_dtype)

    def _sums_of_rows(self, product_dtype, features, rows, positions=None):
        sums = GramStatistics.of_rows(features, rows, product_dtype, self.shift)
        upper = torch.triu_indices(self.num_features, self.num_features)
        gram, targets = sums.gram, sums.targets
        return gram[:, upper[0], upper[1]], targets.cross, targets.gram, targets.log_noise

    def is_part_of(self, whole):
        return GramStatistics.of(self).is_part_of(GramStatistics.of(whole))

    def chunks(self, rows, itemsize):
        return [slice(start, start + 16) for start in range(0, len(rows.targets), 16)]

    @classmethod
    def check_memory(cls, width, num_groups, num_rows, itemsize):
        GramStatistics.check_memory(width, num_groups, num_rows, itemsize)


class PackedLikelihood(GaussianLikelihood):
    """A Gaussian likelihood whose rows are summed so."""


@registered(PackedLikelihood)
class PackedNoise(IndependentNoise):
    @property
    def statistics_kind(self):
        return PackedStatistics


def pair():
    x = torch.rand(50, 2)
    y = torch.sin(3.0 * x[:, 0]) + 2.0
    kernel = rfgp.approximate(gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()), 20, input_dim=2, seed=0)
    likelihoods = PackedLikelihood(), GaussianLikelihood()
    means = [gpytorch.means.ConstantMean() for _ in likelihoods]
    every = zip(likelihoods, means, strict=True)
    return [rfgp.WeightSpaceGP(copy.deepcopy(kernel), *parts) for parts in every], x, y


def test_a_kind_of_sums_from_outside_is_that_of_gram_matrices():
    models, x, y = pair()
    slopes = []
    for model in models:
        evidence = model.condition(x, y).log_marginal_likelihood()
        slopes.append(torch.cat([g.flatten() for g in torch.autograd.grad(evidence, list(model.parameters()))]))
    torch.testing.assert_close(*slopes)
    assert isinstance(models[0].statistics, PackedStatistics)
    for model in models:
        with torch.no_grad():
            model.condition(x[:30], y[:30]).update(x[30:], y[30:]).downdate(x[:5], y[:5]).forget(0.5)
    packed, usual = (model.posterior(x[:4]) for model in models)
    torch.testing.assert_close(packed.mean, usual.mean)
    torch.testing.assert_close(packed.variance, usual.variance)


def test_its_states_merge_and_are_read_again(tmp_path):
    models, x, y = pair()
    first, second = models[0].condition(x[:20], y[:20]), copy.deepcopy(models[0]).condition(x[20:], y[20:])
    merged = first.merge(second)
    again = pair()[0][0]
    again.load_state_dict(merged.state_dict())
    assert isinstance(again.statistics, PackedStatistics)
    torch.testing.assert_close(again.posterior(x).mean, models[1].condition(x, y).posterior(x).mean)
    merged.statistics.save(tmp_path / "sums")
    assert torch.equal(SufficientStatistics.load(tmp_path / "sums").gram, merged.statistics.gram)
