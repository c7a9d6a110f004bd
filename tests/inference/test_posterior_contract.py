"""Every posterior of weights does what the contract says, compared with its dense covariance."""

import gpytorch
import pytest
import torch
from linear_operator.operators import DiagLinearOperator

from rfgp.inference import ClassPosterior, GaussianPosterior, KroneckerPosterior, OutputFactor, WeightPosterior
from rfgp.inference.latent.variational import learned_weights
from rfgp.inference.posterior.covariance import WeightSpaceCovariance
from rfgp.inference.posterior.function_posterior import FunctionPosterior
from rfgp.inference.posterior.many_classes import ClassFactors
from rfgp.inference.posterior.posterior import RootPosterior
from rfgp.inference.posterior.square_root import SquareRootPosterior

pytestmark = pytest.mark.usefixtures("float64_default")
D, T, N, CLASSES = 4, 3, 6, 5


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gram(*shape, seed=0):
    root = draw(*shape, shape[-1] + 2, seed=seed)
    return root @ root.mT


def scales(count):
    return OutputFactor.kronecker(torch.arange(1.0, count + 1).diag(), D)


def of_classes():
    groups = torch.arange(CLASSES).repeat_interleave(2)
    one = torch.ones(CLASSES)
    factors = ClassFactors(gram(D), draw(len(groups), D, seed=1), groups, one, 2.0 * one)
    dense = torch.tensor([1, 3])
    own = WeightPosterior(gram(2, D, seed=2), torch.zeros(2, D, 1))
    return ClassPosterior(factors, own, dense, draw(CLASSES, D, seed=3)), scales(1)


def of_functions(is_full):
    matrix = gram(1, T * D) if is_full else gram(T, D)
    factor = torch.linalg.cholesky(matrix + torch.eye(matrix.shape[-1]))
    return FunctionPosterior(factor, draw(D, T)), scales(T)


def square_root(is_updated):
    known = SquareRootPosterior(draw(2, 1, D), draw(2, 1, D, D, seed=1))
    if is_updated:  # at two sets of inputs, which makes a batch
        known = known.conditioned(draw(2, 3, D, seed=2), draw(2, 2, 3, 1, seed=3), torch.ones(2, 2, 3, 1, 1))
    return known, OutputFactor.kronecker(torch.eye(2), D)


def learned(covariance):
    normal = gpytorch.distributions.MultivariateNormal(draw(2, D), covariance)
    return learned_weights(normal), scales(1)


POSTERIORS = {
    "weights": lambda: (WeightPosterior(gram(D), draw(D, 1)), scales(1)),
    "weights, batch": lambda: (WeightPosterior(gram(2, D), draw(2, D, 1)), scales(1)),
    "weights, several outputs": lambda: (WeightPosterior(gram(T * D), draw(T * D, 1)), scales(T)),
    "classes": of_classes,
    "Kronecker": lambda: (KroneckerPosterior(gram(D), draw(D * T, 1), gram(T)), scales(T)),
    "functions": lambda: of_functions(True),
    "functions, blocks": lambda: of_functions(False),
    "square root": lambda: square_root(False),
    "square root, batch": lambda: square_root(True),
    "learned": lambda: learned(gram(2, D)),
    "learned, diagonal": lambda: learned(DiagLinearOperator(draw(2, D).exp())),
    "prior": lambda: (RootPosterior.prior((D * T,), False, torch.device("cpu")), scales(T)),
}


@pytest.fixture(params=POSTERIORS)
def case(request):
    """A posterior, the factor of its outputs, scalar features, and the dense covariance of the functions there."""
    posterior, outputs = POSTERIORS[request.param]()
    scalar = draw(N, D, seed=9)
    identity = torch.eye(posterior.mean.shape[-2]).expand(*posterior.batch_shape, -1, -1)
    features = outputs.features(scalar)
    return posterior, outputs, scalar, features @ posterior.solve(identity) @ features.mT


def test_a_root_and_variances_are_those_of_the_covariance(case):
    posterior, outputs, scalar, wanted = case
    assert isinstance(posterior, GaussianPosterior)
    root = posterior.function_root(scalar, outputs)
    torch.testing.assert_close(root @ root.mT, wanted)
    variance = posterior.function_variance(scalar, outputs)
    torch.testing.assert_close(variance, wanted.diagonal(dim1=-2, dim2=-1))
    lazy = WeightSpaceCovariance(scalar, posterior, outputs, lambda x: x)
    torch.testing.assert_close((lazy.to_dense(), lazy.diagonal()), (wanted, variance))


def test_variances_of_points_are_those_of_the_covariance(case):
    posterior, outputs, scalar, wanted = case
    by_function = wanted.diagonal(dim1=-2, dim2=-1).unflatten(-1, (N, -1)).mT.reshape(-1, N)
    torch.testing.assert_close(posterior.point_variance(outputs)(scalar), by_function.mT)
    assert posterior.num_point_roots(outputs) in (1, len(by_function)) and posterior.variance_width(outputs) >= D


@pytest.mark.parametrize("size", [1, 2])
def test_covariances_of_blocks_are_those_of_the_covariance(case, size):
    posterior, outputs, scalar, wanted = case
    width = size * outputs.num_outputs
    blocks = wanted.unflatten(-2, (-1, width)).unflatten(-1, (-1, width)).diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
    torch.testing.assert_close(posterior.block_covariances(scalar, outputs, size), blocks)
    found = posterior.output_directions(outputs)
    if found is None:
        with pytest.raises(ValueError, match="expected a separable posterior"):
            posterior.direction_covariances(scalar, size)
    else:
        along = posterior.direction_covariances(scalar, size)
        product = torch.einsum("grab,tr,ur->gatbu", along, found[0], found[0])
        torch.testing.assert_close(product.flatten(-2).flatten(-3, -2), blocks)


def test_the_determinant_is_that_of_the_covariance(case):
    posterior, *_ = case
    identity = torch.eye(posterior.mean.shape[-2]).expand(*posterior.batch_shape, -1, -1)
    covariance = posterior.solve(identity)
    torch.testing.assert_close(posterior.log_determinant, -torch.linalg.slogdet(covariance).logabsdet)
    assert not posterior.is_ill_conditioned and posterior.batch_shape == posterior.mean.shape[:-2]


def test_draws_have_the_covariance(case):
    posterior, outputs, scalar, wanted = case
    torch.manual_seed(0)
    count = 4000
    values = outputs.features(scalar) @ posterior.deviations(count)
    found, variance = values @ values.mT / count, wanted.diagonal(dim1=-2, dim2=-1)
    error = ((variance[..., :, None] * variance[..., None, :] + wanted.square()) / count).sqrt()
    assert ((found - wanted).abs() < 6.0 * error).all()
