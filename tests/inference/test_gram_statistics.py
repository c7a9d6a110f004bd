"""GramStatistics are sums over rows: chunks, merges, subtractions, files and processes all give the same sums."""

import os

import pytest
import torch
import torch.multiprocessing

from rfgp.inference import GramStatistics

ROWS, WIDTH, TARGETS, GROUPS = 60, 9, 2, 3
NAMES = ("gram", "cross", "target_gram", "count", "log_noise")
DTYPES = {
    "real": (torch.float64, torch.float64),
    "complex features": (torch.complex128, torch.float64),
    "complex targets": (torch.float64, torch.complex128),
    "complex": (torch.complex128, torch.complex128),
    "float32": (torch.float32, torch.float32),
}


def rows(kind="real", weighted=True, grouped=True, num_rows=ROWS, seed=0):
    """Arguments of ``update``."""
    generator = torch.Generator().manual_seed(seed)
    features, targets = (
        torch.randn(num_rows, width, dtype=dtype, generator=generator)
        for width, dtype in zip((WIDTH, TARGETS), DTYPES[kind], strict=True)
    )
    noise = 0.1 + torch.rand(num_rows, dtype=torch.float64, generator=generator)
    groups = torch.randint(GROUPS, (num_rows,), generator=generator)
    return (
        features,
        targets,
        1.0 / noise if weighted else None,
        noise.log() if weighted else None,
        groups if grouped else None,
    )


def part(arguments, index):
    return tuple(None if a is None else a[index] for a in arguments)


def empty(kind="real", groups=GROUPS):
    features, targets = DTYPES[kind]
    return GramStatistics(WIDTH, TARGETS, groups, features.is_complex, targets.is_complex)


def assert_same(a, b, rtol=1e-12, atol=1e-10):
    for name in NAMES:
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=rtol, atol=atol)


def assert_identical(a, b):
    for name in NAMES:
        first, second = getattr(a, name), getattr(b, name)
        assert first.dtype == second.dtype and torch.equal(first, second), name


def assert_hermitian(statistics):
    torch.testing.assert_close(statistics.gram, statistics.gram.mH.clone(), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "groups"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("kind", DTYPES)
def test_sums_are_those_of_the_definition(kind, weighted, grouped):
    features, targets, weights, log_noise, groups = arguments = rows(kind, weighted, grouped)
    statistics = empty(kind).update(*arguments)
    phi, t = (a.to(torch.promote_types(a.dtype, torch.float64)) for a in (features, targets))
    for g in range(GROUPS):
        inside = torch.zeros(ROWS, dtype=torch.bool) if groups is None else groups == g
        inside = torch.ones(ROWS, dtype=torch.bool) if groups is None and g == 0 else inside
        w = (torch.ones(ROWS, dtype=torch.float64) if weights is None else weights)[inside].unsqueeze(-1)
        both = torch.promote_types(phi.dtype, t.dtype)
        expected = {
            "gram": phi[inside].mH @ (w * phi[inside]),
            "cross": (w * phi[inside]).mH.to(both) @ t[inside].to(both),
            "target_gram": (w * t[inside]).mH @ t[inside],
            "count": inside.sum().double(),
            "log_noise": torch.zeros((), dtype=torch.float64) if log_noise is None else log_noise[inside].sum(),
        }
        for name in NAMES:
            torch.testing.assert_close(getattr(statistics, name)[g], expected[name], rtol=1e-12, atol=1e-10)
    assert statistics.num_rows == ROWS


@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "groups"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("kind", DTYPES)
def test_chunks_merge_and_subtract(kind, weighted, grouped):
    arguments = rows(kind, weighted, grouped)
    whole = empty(kind).update(*arguments)
    chunked = empty(kind)
    for start in range(0, ROWS, 7):
        chunked.update(*part(arguments, slice(start, start + 7)))
    assert_same(chunked, whole)
    head = empty(kind).update(*part(arguments, slice(0, 25)))
    tail = empty(kind).update(*part(arguments, slice(25, ROWS)))
    assert_same(head.merge(tail), whole)
    assert_same(tail.merge(head), whole)
    assert_same(whole.subtract(tail), head)
    for statistics in (whole, chunked, head.merge(tail), whole.subtract(tail)):
        assert_hermitian(statistics)


def test_merge_and_subtract_leave_their_arguments():
    arguments = rows()
    head, tail = empty().update(*part(arguments, slice(0, 25))), empty().update(*part(arguments, slice(25, ROWS)))
    whole = head.merge(tail)
    copies = [GramStatistics.from_state_dict(s.state_dict()) for s in (head, tail, whole)]
    head.merge(tail).update(*arguments)
    whole.subtract(tail).update(*arguments)
    for statistics, copy in zip((head, tail, whole), copies, strict=True):
        assert_identical(statistics, copy)


def test_gradients_are_those_of_one_update():
    arguments = rows()
    leaves = []
    totals = []
    for chunks in ([slice(0, ROWS)], [slice(0, 20), slice(20, 50), slice(50, ROWS)]):
        features, weights = (arguments[i].clone().requires_grad_() for i in (0, 2))
        statistics = empty()
        for chunk in chunks:
            statistics.update(features[chunk], arguments[1][chunk], weights[chunk], weights[chunk].log())
        total = sum(getattr(statistics, name).sin().sum() for name in NAMES)
        total.backward()
        leaves.append((features.grad, weights.grad))
        totals.append(total.detach())
    torch.testing.assert_close(totals[0], totals[1])
    torch.testing.assert_close(leaves[0], leaves[1])


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_gram_is_hermitian_between_updates(kind):
    arguments = rows(kind)
    statistics, whole = empty(kind), empty(kind)
    for start in range(0, ROWS, 20):
        chunk = part(arguments, slice(start, start + 20))
        statistics.update(*chunk)
        whole.update(*chunk)
        assert_hermitian(statistics)
        assert_same(statistics, empty(kind).update(*part(arguments, slice(0, start + 20))))
    assert_identical(statistics, whole)


def test_wide_gram_is_hermitian_across_blocks_of_columns():
    width = 1030
    features = torch.randn(40, width, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    statistics = GramStatistics(width, 1, is_complex=True)
    for chunk in features.split(20):
        assert_hermitian(statistics.update(chunk, torch.ones(20, 1)))
    torch.testing.assert_close(statistics.gram[0], features.mH @ features)


def test_subtracting_more_rows_raises():
    few, many = (empty().update(*rows(num_rows=n)) for n in (10, 30))
    with pytest.raises(ValueError, match="expected statistics of a subset"):
        few.subtract(many)
    arguments = part(rows(), slice(0, 5))[:4]
    first, second = (empty().update(*arguments, torch.full((5,), g)) for g in (0, 1))
    with pytest.raises(ValueError, match="expected statistics of a subset"):
        first.subtract(second)


@pytest.mark.parametrize(
    "other",
    [
        GramStatistics(WIDTH + 1, TARGETS, GROUPS),
        GramStatistics(WIDTH, TARGETS + 1, GROUPS),
        GramStatistics(WIDTH, TARGETS, GROUPS + 1),
        GramStatistics(WIDTH, TARGETS, GROUPS, is_complex=True),
        GramStatistics(WIDTH, TARGETS, GROUPS, has_complex_targets=True),
    ],
    ids=["width", "targets", "groups", "complex features", "complex targets"],
)
@pytest.mark.parametrize("operation", ["merge", "subtract"])
def test_other_shapes_raise(operation, other):
    statistics = empty().update(*rows())
    with pytest.raises(ValueError, match=r"expected statistics of the same model, .* got "):
        getattr(statistics, operation)(other)


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_save_and_load(tmp_path, kind):
    statistics = empty(kind).update(*rows(kind))
    path = tmp_path / "sums.pt"
    statistics.save(path)
    loaded = GramStatistics.load(str(path))
    assert_identical(loaded, statistics)
    more = rows(kind, seed=1)
    assert_identical(loaded.update(*more), statistics.update(*more))
    statistics.save(path)
    assert_identical(GramStatistics.load(path), statistics)
    assert [entry.name for entry in tmp_path.iterdir()] == ["sums.pt"]


@pytest.mark.parametrize("step", ["torch.save", "os.replace"])
def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "sums.pt"
    empty().update(*rows()).save(path)
    before = path.read_bytes()

    torch_save = torch.save

    def fail(*arguments):
        if step == "torch.save":
            torch_save({}, arguments[1])
        raise OSError("disk full")

    monkeypatch.setattr(step, fail)
    with pytest.raises(OSError, match="disk full"):
        empty().update(*rows(seed=1)).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["sums.pt"]


def test_a_state_dict_carries_no_graph():
    arguments = rows()
    statistics = empty().update(arguments[0].requires_grad_(), *arguments[1:])
    assert statistics.gram.requires_grad
    assert not any(value.requires_grad for value in statistics.state_dict().values())
    assert_same(GramStatistics.from_state_dict(statistics.state_dict()), empty().update(*rows()))


WIDE = 600


def wide(kind, rows_of_all, shift=0.0):
    features, targets = DTYPES[kind]
    generator = torch.Generator().manual_seed(0)
    phi = torch.randn(ROWS, WIDE, dtype=features, generator=generator)[rows_of_all]
    t = torch.randn(ROWS, TARGETS, dtype=targets, generator=generator)[rows_of_all]
    noise, groups = torch.arange(1.0, ROWS + 1)[rows_of_all], (torch.arange(ROWS) % GROUPS)[rows_of_all]
    center = torch.full((TARGETS,), shift, dtype=targets)
    empty = GramStatistics(WIDE, TARGETS, GROUPS, features.is_complex, targets.is_complex, shift=center)
    return empty.update(phi, t, 1.0 / noise, noise.log(), groups)


def _reduce_in_process(rank, kinds, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=2)
    for kind in kinds:
        statistics = wide(kind, slice(0, 25) if rank == 0 else slice(25, ROWS), shift=1.0 + rank)
        if rank == 0:
            assert_hermitian(statistics)
        statistics.all_reduce().save(f"{folder}/{kind}-{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.long("two new processes; tests of ranks have the same sums")
def test_all_reduce_over_two_processes_that_looked_at_the_sums_or_not(tmp_path):
    kinds = ("real", "complex")
    torch.multiprocessing.spawn(_reduce_in_process, (kinds, str(tmp_path)), nprocs=2)
    for kind in kinds:
        whole = wide(kind, slice(0, ROWS))
        for rank in range(2):
            reduced = GramStatistics.load(tmp_path / f"{kind}-{rank}.pt")
            assert_hermitian(reduced)
            assert_same(reduced, whole)


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_a_shift_changes_no_sum(kind):
    plain, other = wide(kind, slice(0, 25)), wide(kind, slice(25, ROWS))
    for one, two in ((3.0, 3.0), (3.0, -7.0), (0.0, 2.0)):
        first, second = wide(kind, slice(0, 25), one), wide(kind, slice(25, ROWS), two)
        assert_same(first, plain)
        assert_same(first.merge(second), plain.merge(other))
        assert_same(first.merge(second).subtract(second), plain)
        assert_same(first.shifted(second.shift), plain)
        assert_same(GramStatistics.concatenate([first, second]), GramStatistics.concatenate([plain, other]))
        assert_same(GramStatistics.from_state_dict(first.state_dict()), plain)
        assert_same(first.pooled(), plain.pooled())
        assert_same(first.of_group(1), plain.of_group(1))


def test_targets_far_from_zero_keep_their_digits():
    generator = torch.Generator().manual_seed(0)
    features, small = torch.randn(50, 3, generator=generator).double(), torch.randn(50, 1, generator=generator).double()
    far = small + 1e8
    shifted = GramStatistics(3, 1, shift=far.mean(0)).update(features, far)
    deviation = far - far.mean(0)
    torch.testing.assert_close(
        shifted.targets.variances, deviation.square().mean(0, keepdim=True), rtol=1e-12, atol=0.0
    )
    first = GramStatistics(3, 1, shift=far[:1].mean(0)).update(features[:20], far[:20])
    second = GramStatistics(3, 1, shift=far[20:].mean(0)).update(features[20:], far[20:])
    torch.testing.assert_close(first.merge(second).targets.variances, shifted.targets.variances, rtol=1e-10, atol=0.0)
