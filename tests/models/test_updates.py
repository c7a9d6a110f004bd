"""Rows that come and go: downdates, forgetting and merging equal fits, leave no trace, and refuse what cannot be."""

import copy
import io
import math
import pickle

import gpytorch
import pytest
import torch
from output_problems import CASES, output_kernel, output_likelihood, output_mean, output_noise, output_rows
from problems import CLASSES, FORMS, INPUTS, KINDS, likelihood_for, model_for, rows_for

import rfgp
from rfgp.inference import GramStatistics
from rfgp.models import WeightSpaceGP

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:the residuals of complex targets", "ignore:.*exceed the"),
]

ROWS, GONE, TRACE = 40, 9, 1e-9
RESIDUALS, BLOCKS = ("vfe", "fitc"), {"block": None, "neighbors": 16}


def part(arguments, rows):
    return tuple(None if a is None else a[rows] for a in arguments)


def landmark_model(x, likelihood=None, **options):
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5))
    exact.base_kernel.lengthscale = 0.8
    kernel = rfgp.approximate(exact, 10, method="landmarks", train_inputs=x, seed=0)
    mean = gpytorch.means.ConstantMean()
    mean.constant = 0.3
    return WeightSpaceGP(kernel, likelihood_for("gaussian") if likelihood is None else likelihood, mean, **options)


def scalar(kind, form):
    return lambda: (model_for(kind, form), rows_for(kind, ROWS))


def missing():
    x, y, noise = rows_for("complex", ROWS)
    y[::5] = math.nan
    return model_for("complex", "complex"), (x, y, noise)


def outputs(name, noise, pattern):
    def make():
        model = WeightSpaceGP(output_kernel(name), output_likelihood(name, noise, ROWS), output_mean(name))
        known = output_noise(name, ROWS) if noise.startswith("fixed") else None
        return model, (*output_rows(name, ROWS, pattern), known)

    return make


def several_draws(kind):
    def make():
        single = model_for(kind, "real")
        parts = single.covar_module, single.likelihood, single.mean_module
        return WeightSpaceGP(*parts, num_draws=3), rows_for(kind, ROWS)

    return make


def with_landmarks(kind, **options):
    def make():
        arguments = rows_for(kind, ROWS)
        return landmark_model(arguments[0][10:20], likelihood_for(kind), **options), arguments

    return make


SUMS = {f"{kind}, {form}": scalar(kind, form) for kind in KINDS for form in FORMS}
SUMS |= {"missing complex": missing}
SUMS |= {f"{name}, {noise}, {pattern}": outputs(name, noise, pattern) for name, noise, pattern in CASES}
SUMS |= {f"draws, {kind}": several_draws(kind) for kind in ("gaussian", "fixed", "dirichlet", "complex")}
SUMS |= {f"{name}, {kind}": with_landmarks(kind, residual=name) for name in RESIDUALS for kind in ("gaussian", "fixed")}
LOCAL = {
    f"{name}, {kind}": with_landmarks(kind, block_size=8, num_neighbors=neighbors)
    for name, neighbors in BLOCKS.items()
    for kind in ("gaussian", "fixed")
}
FEW = [
    "gaussian, ctr",
    "fixed+learned, complex",
    "dirichlet, real",
    "complex, complex",
    "vfe, fixed",
    "draws, gaussian",
]
FEW += ["multitask, full, one per row", "curl-free, fixed, none"]


def moments(model, x):
    with torch.no_grad():
        found = model.posterior(x)
        return found.mean, found.variance


def assert_equal(found, wanted, tolerance=TRACE):
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=tolerance * max(1.0, float(b.abs().max())))


def assert_same_state(found, wanted):
    assert found.keys() == wanted.keys()
    for a, b in zip(found.values(), wanted.values(), strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=0.0, atol=0.0, equal_nan=True)


def assert_same_evidence(found, wanted, tolerance=TRACE):
    if found.covar_module.is_complex and not found.noise.is_complex:
        return
    values = [float(model.log_marginal_likelihood()) for model in (found, wanted)]
    assert abs(values[0] - values[1]) <= tolerance * max(1.0, abs(values[1]))


@pytest.mark.parametrize("name", [*SUMS, *LOCAL])
@torch.no_grad()
def test_a_downdate_equals_the_fit_to_the_others(name):
    model, rows = (SUMS | LOCAL)[name]()
    left = part(rows, slice(GONE, ROWS))
    model.condition(*rows)
    for chunk in (slice(0, 3), slice(3, GONE)):
        if not torch.isnan(rows[1][chunk]).all():
            assert model.downdate(*part(rows, chunk)) is model
        else:
            left = part(rows, [*range(*chunk.indices(ROWS)), *range(GONE, ROWS)])
    assert model.refit_error(*left).largest <= TRACE
    if name in SUMS:
        other = copy.deepcopy(model).condition(*left)
        assert_equal(moments(model, rows[0]), moments(other, rows[0]))
        assert_same_evidence(model, other)


@pytest.mark.parametrize("name", FEW)
@torch.no_grad()
def test_a_chain_of_updates_and_downdates_equals_a_fit(name):
    model, rows = SUMS[name]()
    model.update(*part(rows, slice(0, 20)))
    for start in range(0, 20, 5):
        model.update(*part(rows, slice(start + 20, start + 25))).downdate(*part(rows, slice(start, start + 5)))
    assert model.refit_error(*part(rows, slice(20, 40))).largest <= TRACE
    assert model.refit_error(*part(rows, slice(19, 40))).largest > 1e-3


def bytes_of(model):
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    return saved.getvalue() + pickle.dumps(model)


@pytest.mark.parametrize("name", ["gaussian, real", "complex, real", "block, gaussian", "neighbors, fixed"])
@torch.no_grad()
def test_a_deleted_row_leaves_nothing_in_states_and_pickles(name):
    model, rows = (SUMS | LOCAL)[name]()
    model.keep_data = True
    model.condition(*rows).posterior(rows[0])
    numbers = rows[0][3].tolist() + torch.view_as_real(rows[1][3:4].to(torch.complex128)).flatten().tolist()[:1]
    patterns = [torch.tensor(number).numpy().tobytes() for number in numbers]
    assert all(pattern in bytes_of(model) for pattern in patterns)
    model.downdate(*part(rows, slice(3, 4)))
    assert not any(pattern in bytes_of(model) for pattern in patterns)
    left = part(rows, [*range(3), *range(4, ROWS)])
    assert model.refit_error(*left).largest <= TRACE
    for kept, wanted in zip(model.training_data[0], left, strict=True):
        assert wanted is None or torch.equal(kept, wanted)


@torch.no_grad()
def test_a_pattern_of_missing_outputs_goes_with_its_last_row():
    model, (x, y, _) = SUMS["multitask, full, none"]()
    y[5, 1] = math.nan
    left = [*range(5), *range(6, ROWS)]
    model.condition(x, y).downdate(x[5:6], y[5:6])
    assert model.state_dict()["patterns"].tolist() == [[True] * 3]
    assert model.refit_error(x[left], y[left]).largest <= TRACE
    model.update(x[5:6], y[5:6])
    assert model.refit_error(x, y).largest <= TRACE


@torch.no_grad()
def test_large_offsets_of_targets_cost_no_digits():
    model, (x, y, _) = SUMS["gaussian, ctr"]()
    y = y + 1e6
    left = (x[5:], y[5:])
    model.mean_module.constant = 1e6
    model.condition(x, y).downdate(x[:5], y[:5])
    assert model.refit_error(*left).largest <= TRACE


def weighted_fit(model, rows, weights, noise):
    """A model with known noise variances that stands for one whose rows have weights."""
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.ones(1))
    options = {"residual": model.residual, "block_size": model.block_size, "num_neighbors": model.num_neighbors}
    other = WeightSpaceGP(copy.deepcopy(model.covar_module), likelihood, model.mean_module, **options)
    return other.condition(*rows[:2], noise / weights)


@pytest.mark.parametrize("name", ["gaussian, ctr", "fixed, real", "fixed, complex", "vfe, gaussian", *LOCAL])
@torch.no_grad()
def test_forgetting_equals_a_fit_with_raised_noise(name):
    model, rows = (SUMS | LOCAL)[name]()
    chunks, factor = [slice(start, start + 10) for start in range(0, ROWS, 10)], 0.7
    weights = torch.cat([torch.full((10,), factor**age) for age in range(3, -1, -1)])
    noise = rows[2] if rows[2] is not None else model.likelihood.noise.detach().expand(ROWS)
    if model.block_size is None:
        for chunk in chunks:
            (model if model.conditioned is None else model.forget(factor)).update(*part(rows, chunk))
        other = weighted_fit(model, rows, weights, noise)
        assert abs(model.statistics.num_rows - float(weights.sum())) <= 1e-12 * ROWS
    else:
        other = weighted_fit(model.condition(*rows).forget(0.5).forget(0.2), rows, torch.full((ROWS,), 0.1), noise)
        logs = 0.9 * (noise.log() + math.log(2.0 * math.pi)) - math.log(0.1)
        wanted = other.log_marginal_likelihood() + 0.5 * logs.sum()
        assert abs(float(model.log_marginal_likelihood() - wanted)) <= TRACE * ROWS
    assert_equal(moments(model, rows[0] + 0.1), moments(other, rows[0] + 0.1))


@torch.no_grad()
def test_the_evidence_of_forgotten_rows_is_that_of_weighted_densities():
    model, rows = SUMS["fixed, real"]()
    weights = torch.cat([torch.full((25,), 0.3), torch.ones(15)])
    model.condition(*part(rows, slice(0, 25))).forget(0.3).update(*part(rows, slice(25, ROWS)))
    known = float(weighted_fit(model, rows, weights, rows[2]).log_marginal_likelihood())
    logs = (1.0 - weights) * (rows[2].log() + math.log(2.0 * math.pi)) - weights.log()
    assert abs(float(model.log_marginal_likelihood()) - known - 0.5 * float(logs.sum())) <= TRACE * abs(known)


@pytest.mark.parametrize(
    "kind", ["gaussian", "fixed", "dirichlet", "complete", "correlated", "missing", "not separable"]
)
@torch.no_grad()
def test_forgotten_rows_have_the_same_evidence_with_and_without_blocks(kind):
    """Where every row is a landmark blocks leave nothing over."""
    is_single, count = kind in ("gaussian", "fixed", "dirichlet"), 3
    x, y, noise = rows_for(kind if is_single else "gaussian", ROWS)
    base = gpytorch.kernels.MaternKernel(nu=1.5)
    if is_single:
        kernel, mean = base, gpytorch.means.ConstantMean()
    else:
        y, mean = (
            torch.stack([y, y.square(), -y], -1),
            gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), count),
        )
        y[::4, 1] = math.nan if kind == "missing" else 0.0
        parts = [base, gpytorch.kernels.RBFKernel()]
        kernel = gpytorch.kernels.MultitaskKernel(base, num_tasks=count, rank=1)
        kernel = gpytorch.kernels.LCMKernel(parts, num_tasks=count, rank=1) if kind == "not separable" else kernel
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(count, rank=int(kind == "correlated"))
    models = [
        WeightSpaceGP(
            rfgp.approximate(
                kernel, ROWS * (1 + (kind == "not separable")), method="landmarks", train_inputs=x, seed=0
            ),
            likelihood_for(kind) if is_single else likelihood,
            mean,
            block_size=size,
        )
        for size in (None, 8)
    ]
    arguments, values = (x, y, noise), []
    for model in models:
        model.condition(*part(arguments, slice(0, 25))).forget(0.3).update(*part(arguments, slice(25, ROWS))).forget(
            0.9
        )
        copied = copy.deepcopy(model)
        copied.load_state_dict(model.state_dict())
        values += [float(model.log_marginal_likelihood()), float(copied.log_marginal_likelihood())]
    assert max(values) - min(values) <= 1e-5 * abs(values[0])


@torch.no_grad()
def test_the_prior_comes_back_where_no_rows_come():
    model, rows = SUMS["gaussian, ctr"]()
    x = rows[0][:5]
    model.condition(*rows)
    for _ in range(200):
        model.forget(0.5)
    assert_equal(moments(model, x), (torch.full((5,), 0.3), model.covar_module(x).to_dense().diagonal()))


@pytest.mark.parametrize("name", [*FEW, "block, fixed"])
@torch.no_grad()
def test_forgotten_rows_can_be_deleted(name):
    model, rows = (SUMS | LOCAL)[name]()
    other = copy.deepcopy(model)
    model.condition(*rows).forget(0.9).forget(0.7).downdate(*part(rows, slice(0, GONE)), weight=0.9 * 0.7)
    other.condition(*part(rows, slice(GONE, ROWS))).forget(0.9 * 0.7)
    if name in SUMS:
        assert_equal(moments(model, rows[0]), moments(other, rows[0]))
    assert model.sums.num_rows == pytest.approx(other.sums.num_rows, rel=1e-9)


@torch.no_grad()
def test_blocks_drop_rows_whose_weight_is_lost():
    model, rows = LOCAL["block, gaussian"]()
    model.condition(*part(rows, slice(0, 20)))
    for _ in range(60):
        model.forget(0.5)
    assert len(model.conditioned.sums.local.x) == 20
    model.update(*part(rows, slice(20, ROWS))).forget(0.9)
    assert len(model.conditioned.sums.local.x) == 20
    alone = LOCAL["block, gaussian"]()[0].condition(*part(rows, slice(20, ROWS)))
    assert torch.equal(alone.conditioned.sums.local.x, model.conditioned.sums.local.x)


@pytest.mark.parametrize("name", ["fixed+learned, complex", "complex, complex", "missing complex", "block, gaussian"])
@torch.no_grad()
def test_three_models_that_are_merged_equal_a_fit_to_all_rows(name):
    """Complex ones, and blocks after which rows leave: others are in tests/contract."""
    model, rows = (SUMS | LOCAL)[name]()
    twins = [copy.deepcopy(model) for _ in range(2)]
    chunks = [slice(0, 15), slice(15, 30), slice(30, ROWS)]
    states = []
    for one, chunk in zip((model, *twins), chunks, strict=True):
        one.condition(*part(rows, chunk))
        states.append(copy.deepcopy(one.state_dict()))
    assert model.merge(*twins) is model
    assert model.refit_error(*rows).largest <= TRACE
    for twin, state in zip(twins, states[1:], strict=True):
        assert_same_state(twin.state_dict(), state)
    model.downdate(*part(rows, chunks[0]))
    assert model.refit_error(*part(rows, slice(15, ROWS))).largest <= TRACE


def test_what_differs_between_models_is_named():
    model, rows = SUMS["gaussian, real"]()
    model.condition(*rows)
    before = copy.deepcopy(model.state_dict())

    def changed(change):
        other = copy.deepcopy(model)
        change(other)
        return other

    wider = model_for("gaussian", "real", width=16).condition(*rows)
    cases = {
        "offset": changed(
            lambda m: (setattr(m.covar_module.exact_kernel.base_kernel, "offset", 2.0), m.condition(*rows))
        ),
        "random weights": changed(lambda m: m.resample(torch.Generator().manual_seed(9)).condition(*rows)),
        "likelihood": model_for("fixed", "real").condition(*rows_for("fixed", ROWS)),
        "random weights|gram": wider,
        "fit": model_for("gaussian", "real"),
        "WeightSpaceGP": None,
        "residual": with_landmarks("gaussian", residual="vfe")()[0].condition(*rows),
        "new": changed(lambda m: m.resample(torch.Generator().manual_seed(9))),
    }
    for text, other in cases.items():
        with pytest.raises(ValueError, match=text):
            model.merge(changed(lambda m: None), other)
    assert_same_state(model.state_dict(), before)


@pytest.mark.parametrize("name", ["gaussian, ctr", "complex, complex", "dirichlet, real", "multitask, full, random"])
@torch.no_grad()
def test_bad_downdates_are_refused_and_nothing_is_lost(name):
    model, rows = SUMS[name]()
    model.keep_data = False
    x, y, noise = rows
    model.condition(*rows)
    before, kept = copy.deepcopy(model.state_dict()), moments(model, x)
    twice = tuple(None if a is None else torch.cat([a, a[:1]]) for a in rows)
    shuffled = CLASSES - 1 - y if name.startswith("dirichlet") else y + 100.0
    cases = [
        (rows, "last ones"),
        (twice, "more rows than there are"),
        ((20.0 * x[:3], y[:3], noise), "negative|positive"),
        ((x[:20], shuffled[:20], noise), "negative|positive|more rows"),
        ((x[:3], y[:2], noise), "shape|rows|length"),
        ((x[:3, :1], y[:3], noise), "columns"),
        ((math.nan * x[:3], y[:3], noise), "finite"),
    ]
    for arguments, text in cases:
        with pytest.raises(ValueError, match=text):
            model.downdate(*arguments)
    for factor in (0.0, -1.0, 1.5, math.nan, None):
        with pytest.raises(ValueError, match="factor"):
            model.forget(factor)
    with pytest.raises(ValueError, match="weight"):
        model.downdate(x[:1], y[:1], weight=0.0)
    assert_same_state(model.state_dict(), before)
    assert_equal(moments(model, x), kept, 0.0)


@pytest.mark.parametrize("name", [*LOCAL, "gaussian, ctr"])
@torch.no_grad()
def test_unknown_rows_are_named_where_rows_are_kept(name):
    model, (x, y, noise) = (SUMS | LOCAL)[name]()
    model.condition(x, y, noise)
    before = moments(model, x)
    for wrong in (y + 1e-6 * (torch.arange(ROWS) == 7), torch.where(torch.arange(ROWS) == 7, y.roll(1), y)):
        with pytest.raises(ValueError, match=r"others at 2;|positive"):
            model.downdate(*part((x, wrong, noise), slice(5, 10)))
    if noise is not None:
        with pytest.raises(ValueError, match="others at 0, 1;"):
            model.downdate(x[:2], y[:2], 2.0 * noise[:2])
    with pytest.raises(ValueError, match=r"more rows|others at 1[;,]"):
        model.downdate(*(None if a is None else a[[3] * (ROWS + 1)] for a in (x, y, noise)))
    assert_equal(moments(model, x), before, 0.0)


def test_rows_of_which_none_is_near_are_refused_where_rows_are_kept():
    model, (x, y, noise) = LOCAL["block, fixed"]()
    model.condition(x, y, noise)
    with pytest.raises(ValueError, match="others at 0, 1;"):
        model.downdate(x[:2] + 100.0, y[:2], noise[:2])


@torch.no_grad()
def test_outputs_that_have_faded_to_nothing_leave_the_prior():
    name, noise, pattern = next(case for case in CASES if case[2] == "one per row")
    model, rows = SUMS[f"{name}, {noise}, {pattern}"]()
    model.condition(*rows)
    for _ in range(200):
        model.forget(1e-3)
    x = rows[0][:5]
    assert_equal(moments(model, x)[1:], (model.covar_module(x).to_dense().diagonal().reshape(5, -1),))


def test_stale_and_unfitted_models_are_refused():
    model, rows = SUMS["gaussian, real"]()
    for call in (lambda: model.downdate(*rows), lambda: model.forget(0.5), lambda: model.merge(model)):
        with pytest.raises(ValueError, match="fit"):
            call()
    model.condition(*rows).resample(torch.Generator().manual_seed(9))
    for call in (lambda: model.downdate(*rows), lambda: model.forget(0.5), lambda: model.merge(model)):
        with pytest.raises(ValueError, match="call condition"):
            call()


@torch.no_grad()
def test_only_the_blocks_of_deleted_rows_are_computed_again(monkeypatch):
    model, rows = LOCAL["block, gaussian"]()
    model.condition(*rows)
    counts, whole = [], GramStatistics.add
    monkeypatch.setattr(GramStatistics, "add", lambda self, f, *a: (counts.append(len(f)), whole(self, f, *a))[1])
    model.downdate(*part(rows, slice(0, 1)))
    assert len(counts) == 2 and counts[1] == counts[0] - 1


@pytest.mark.parametrize("neighbors", BLOCKS.values(), ids=BLOCKS.keys())
@torch.no_grad()
def test_whole_blocks_can_be_deleted_and_states_keep_that(neighbors):
    model, rows = with_landmarks("gaussian", block_size=8, num_neighbors=neighbors)()
    model.condition(*rows)
    for block in (5, 0):
        numbers = model.conditioned.sums.local.partition.blocks[block]
        gone = model.conditioned.sums.local.x[numbers]
        is_gone = (rows[0].unsqueeze(1) == gone).all(-1).any(-1)
        model.downdate(*part(rows, is_gone))
        rows = part(rows, ~is_gone)
    assert model.refit_error(*rows).largest <= TRACE
    assert sorted(torch.cat(model.conditioned.sums.local.partition.blocks).tolist()) == list(range(len(rows[0])))
    twin = with_landmarks("gaussian", block_size=8, num_neighbors=neighbors)()[0]
    twin.load_state_dict(model.state_dict())
    points = torch.randn(30, INPUTS)
    assert_equal(moments(twin, points), moments(model, points), 1e-12)
    model.update(gone, torch.ones(len(gone)))
    assert model.refit_error(torch.cat([rows[0], gone]), torch.cat([rows[1], torch.ones(len(gone))])).largest <= TRACE


def graph_size(model):
    """The number of nodes of graphs that the sums and kept rows of a model keep alive."""
    local = model.conditioned.sums.local
    tensors = [t for sums in model.draw_statistics for t in sums.sums().values()]
    tensors += [] if local is None else list(local.tensors)
    known, open_nodes = set(), [t.grad_fn for t in tensors]
    while open_nodes:
        node = open_nodes.pop()
        if node is not None and node not in known:
            known.add(node)
            open_nodes += [following for following, _ in node.next_functions]
    return len(known)


CHANGES = {
    "update": lambda model, rows: model.update(*rows),
    "downdate": lambda model, rows: model.downdate(*rows),
    "forget": lambda model, rows: model.forget(0.5),
    "merge": lambda model, rows: model.merge(copy.deepcopy(model)),
    "slide": lambda model, rows: model.slide(rows, rows),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["gaussian, ctr", "block, gaussian"])
def test_sums_that_change_keep_no_graph_and_refuse_gradients(name, change):
    """With gradients enabled, which is the default: a stream would keep all that ever came."""
    model, arguments = {**SUMS, **LOCAL}[name]()
    model.condition(*arguments)
    CHANGES[change](model, part(arguments, slice(0, 3)))
    assert graph_size(model) == 0
    value = model.log_marginal_likelihood()
    with pytest.raises(ValueError, match="call condition with all rows"):
        value.backward()


def test_other_gradients_stay_where_sums_have_changed():
    model, arguments = SUMS["gaussian, ctr"]()
    free = [model.likelihood.raw_noise, *model.mean_module.parameters()]
    wanted = torch.autograd.grad(model.condition(*arguments).log_marginal_likelihood(), free)
    model.condition(*part(arguments, slice(0, 9))).update(*part(arguments, slice(9, None)))
    found = torch.autograd.grad(model.log_marginal_likelihood(), free)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        model.condition(*arguments)
    with pytest.raises(ValueError, match="without gradients"):
        model.log_marginal_likelihood().backward()
