"""What features leave over of the covariance of outputs, in batches as for single ones, and as noise of a grid."""

import gpytorch
import pytest
import torch
from linear_operator import to_linear_operator

from rfgp.inference import GramStatistics, noise_model
from rfgp.inference.noise.raised import raised
from rfgp.inference.posterior.covariance import ResidualCovariance

pytestmark = pytest.mark.usefixtures("float64_default")

BATCH, ROWS, PARTS, OUTPUTS = 2, 5, 3, 4


def random(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def residual(seed=0):
    roots = random(BATCH, PARTS, OUTPUTS, OUTPUTS, seed=seed + 1)
    return ResidualCovariance(random(BATCH, ROWS, PARTS, seed=seed), roots @ roots.mT)


def single(of_batch, place):
    return ResidualCovariance(of_batch.variances[place], of_batch.outputs[place])


def test_batches_are_those_of_single_ones():
    both, other = residual(), residual(seed=7)
    assert both.num_outputs == OUTPUTS
    for place in range(BATCH):
        one = single(both, place)
        dense = (one.variances[:, :, None, None] * one.outputs).sum(1)
        assert one.num_outputs == OUTPUTS
        torch.testing.assert_close(both.dense()[place], dense)
        torch.testing.assert_close(both.variance()[place], dense.diagonal(dim1=-2, dim2=-1).flatten())
        torch.testing.assert_close(both.plus(other).dense()[place], dense + single(other, place).dense())
        torch.testing.assert_close(both.take(slice(1, 3)).dense()[place], dense[1:3])
        torch.testing.assert_close(both.scaled(torch.tensor([2.0, 3.0])).dense()[place], (2.0 + place) * dense)
        added = both.added_to(to_linear_operator(torch.eye(ROWS * OUTPUTS).expand(BATCH, -1, -1))).to_dense()[place]
        torch.testing.assert_close(added, torch.eye(ROWS * OUTPUTS) + torch.block_diag(*dense))


def test_draws_have_the_covariance_of_the_outputs():
    torch.manual_seed(0)
    one, count = single(residual(), 0), 20_000
    draws, wanted = one.draws(count), one.dense()
    found = torch.einsum("snt,snu->ntu", draws, draws) / count
    diagonal = wanted.diagonal(dim1=-2, dim2=-1)
    error = ((diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2) + wanted.square()) / count).sqrt()
    assert float(((found - wanted) / error).abs().max()) < 4.5


def test_noise_of_a_grid_before_any_rows_is_that_of_complete_rows():
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2, rank=1)
    likelihood.task_noise_covar_factor.data.copy_(torch.tensor([[0.4], [-0.3]]))
    cut_off = torch.tensor([[0.3, 0.1], [0.1, 0.2]])
    measured = noise_model(likelihood, 2)
    noise = raised(measured, lambda: cut_off, dict)
    covariance = likelihood.task_noise_covar_factor @ likelihood.task_noise_covar_factor.mT
    total = (covariance + likelihood.noise * torch.eye(2) + cut_off).detach()
    torch.testing.assert_close(noise.covariance().detach(), total)
    (precision,) = noise.precisions(1)
    torch.testing.assert_close(precision.detach(), torch.linalg.inv(total))
    assert noise.parameters() == {}


def test_labels_with_weights_and_without_do_not_go_together():
    labels = noise_model(gpytorch.likelihoods.DirichletClassificationLikelihood(torch.arange(3)), None)
    few, many = (GramStatistics(2, 1, count) for count in (3, 6))
    assert labels.aligned(few, few) == (few, few)
    with pytest.raises(ValueError, match="weights beside all rows or none of class labels"):
        labels.aligned(few, many)
