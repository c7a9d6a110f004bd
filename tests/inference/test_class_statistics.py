"""Statistics of many classes are those with a Gram matrix for each, whatever is done with them."""

import copy

import pytest
import torch
import torch.multiprocessing

from rfgp.inference import ClassStatistics, GramStatistics
from rfgp.inference.sums.rows import Rows

WIDTH, TARGETS, CLASSES = 12, 2, 40
NAMES = ("gram", "cross", "target_gram", "count", "log_noise")
KINDS = {"real": torch.float64, "complex": torch.complex128}


def rows(num_rows=150, kind="real", seed=0, weighted=True):
    """Features, targets, weights, log noise and classes; a fifth of the rows is of class 0."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(num_rows, WIDTH, dtype=KINDS[kind], generator=generator)
    targets = torch.randn(num_rows, TARGETS, dtype=torch.float64, generator=generator)
    noise = 0.1 + torch.rand(num_rows, dtype=torch.float64, generator=generator)
    groups = torch.randint(CLASSES - 1, (num_rows,), generator=generator)
    groups[: num_rows // 5] = 0
    return features, targets, *((1.0 / noise, noise.log()) if weighted else (None, None)), groups


def part(arguments, index):
    return tuple(None if a is None else a[index] for a in arguments)


def both(arguments, kind="real", shift=0.0, batches=1):
    """The statistics of classes, and those with Gram matrices."""
    found = []
    for statistics in (ClassStatistics, GramStatistics):
        total = statistics(
            WIDTH, TARGETS, CLASSES, kind == "complex", shift=torch.full((TARGETS,), shift, dtype=torch.float64)
        )
        size = -(-len(arguments[0]) // batches)
        for start in range(0, len(arguments[0]), size):
            total.update(*part(arguments, slice(start, start + size)))
        found.append(total)
    return found


def assert_same(held, dense, tolerance=1e-11):
    for name in NAMES:
        torch.testing.assert_close(getattr(held, name), getattr(dense, name), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("batches", [1, 7])
def test_sums_are_those_with_gram_matrices(kind, batches):
    held, dense = both(rows(kind=kind), kind, 0.5, batches)
    assert_same(held, dense)
    assert held.is_finite and held.num_rows == dense.num_rows and held.has_complex_features == (kind == "complex")
    assert_same(held.pooled(), dense.pooled())
    for group in (0, 3, CLASSES - 1):
        assert_same(held.of_group(group), dense.of_group(group))
    ones = torch.ones(TARGETS, dtype=torch.float64)
    assert_same(held.shifted(ones), dense.shifted(ones))
    assert_same(GramStatistics.concatenate([held, held]), GramStatistics.concatenate([dense, dense]))
    assert_same(held.empty_group(), dense.empty_group())


def test_a_class_has_a_gram_matrix_from_more_rows_than_half_of_the_features_on():
    features, groups = torch.randn(2 * WIDTH, WIDTH).double(), torch.zeros(2 * WIDTH, dtype=torch.long)
    statistics = ClassStatistics(WIDTH, 1, CLASSES)
    for count in range(2 * WIDTH):
        one = slice(count, count + 1)
        statistics.update(features[one], torch.ones(1, 1), groups=groups[one])
        is_held = count + 1 <= WIDTH // 2
        assert len(statistics.dense) == (not is_held) and len(statistics.rows) == (count + 1 if is_held else 0)
        torch.testing.assert_close(statistics.gram[0], features[: count + 1].mT @ features[: count + 1])


@pytest.mark.parametrize("kind", list(KINDS))
def test_merged_and_subtracted(kind):
    arguments = rows(kind=kind)
    few, many = (
        part(arguments, index) for index in (slice(30, 70), torch.cat([torch.arange(30), torch.arange(70, 150)]))
    )
    (held_few, dense_few), (held_many, dense_many) = both(few, kind, 0.2), both(many, kind, -1.0)
    whole, expected = held_few.merge(held_many), dense_few.merge(dense_many)
    assert isinstance(whole, ClassStatistics)
    assert_same(whole, expected)
    for other in (held_few, dense_few):
        assert_same(whole.subtract(other), expected.subtract(dense_few), 1e-10)
    assert_same(held_many.merge(dense_few), expected)
    assert_same(dense_many.merge(held_few), dense_many.merge(dense_few))
    nothing = whole.subtract(held_many).subtract(held_few)
    assert len(nothing.rows) == 0 and nothing.num_rows == 0


def test_a_row_that_is_taken_away_leaves_as_many_rows_as_there_are():
    held, _ = both(rows(weighted=False))
    left = held.subtract(both(part(rows(weighted=False), slice(60, 120)))[0])
    assert bool((left.held_counts <= left.count).all())


def test_what_was_never_added_is_not_subtracted():
    held, _ = both(rows())
    with pytest.raises(ValueError, match="more rows than there are"):
        held.subtract(held.merge(held))
    strange = part(rows(seed=1), slice(140, 150))
    arguments = (10.0 * strange[0], *strange[1:4], rows()[4][140:])
    with pytest.raises(ValueError, match="subset"):
        held.subtract(both(arguments)[0])


def test_states_files_copies_and_pickles(tmp_path):
    held, dense = both(rows())
    held.save(tmp_path / "sums")
    for other in (
        GramStatistics.from_state_dict(held.state_dict()),
        GramStatistics.load(tmp_path / "sums"),
        ClassStatistics.load(tmp_path / "sums"),
        copy.deepcopy(held),
        copy.deepcopy(held).to(torch.device("cpu")),
    ):
        assert isinstance(other, ClassStatistics)
        assert_same(other, dense)
    assert type(GramStatistics.from_state_dict(dense.state_dict())) is GramStatistics


@pytest.mark.parametrize("name", ["rows", "row_groups", "dense", "gram", "cross"])
def test_a_state_that_is_not_whole_is_refused(name):
    state = both(rows())[0].state_dict()
    with pytest.raises(ValueError, match="expected"):
        GramStatistics.from_state_dict({**state, name: state[name][:-1]})
    with pytest.raises(ValueError, match="expected the sums"):
        GramStatistics.from_state_dict({k: v for k, v in state.items() if k != name})


def test_statistics_of_another_model_are_refused():
    held, _ = both(rows())
    with pytest.raises(ValueError, match="same model"):
        held.merge(ClassStatistics(WIDTH + 1, TARGETS, CLASSES))
    with pytest.raises(ValueError, match="GramStatistics"):
        held.merge(3)


def test_gradients_run_through_the_sums():
    arguments = rows(60)
    features = arguments[0].requires_grad_()
    sums = []
    for total in (ClassStatistics(WIDTH, TARGETS, CLASSES), GramStatistics(WIDTH, TARGETS, CLASSES)):
        total.update(features, *arguments[1:])
        value = (total.gram * torch.arange(CLASSES)[:, None, None]).sin().sum() + total.cross.sin().sum()
        sums.append(torch.autograd.grad(value, features)[0])
    torch.testing.assert_close(*sums, rtol=1e-10, atol=1e-10)


def test_rows_keep_the_dtype_of_the_features():
    features, targets, _, _, groups = rows(50, weighted=False)
    statistics = ClassStatistics(WIDTH, TARGETS, CLASSES).update(features.float(), targets.float(), groups=groups)
    assert statistics.rows.dtype == torch.float32 and statistics.gram.dtype == torch.float64


def test_adding_later_changes_no_rows_of_the_caller():
    features, targets, _, _, groups = rows(50, weighted=False)
    statistics = ClassStatistics(WIDTH, TARGETS, CLASSES)
    statistics.add(features, Rows(targets, groups=groups, num_groups=CLASSES))
    expected = statistics.gram
    features.zero_()
    torch.testing.assert_close(statistics.gram, expected)


def _reduce_in_process(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    own = part(rows(), slice(0, 45) if rank == 0 else slice(45, 150))
    both(own, shift=float(rank))[0].all_reduce().save(f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.long("two new processes; tests of ranks have the same sums")
def test_all_reduce_over_two_processes(tmp_path):
    torch.multiprocessing.spawn(_reduce_in_process, (str(tmp_path),), nprocs=2)
    _, dense = both(rows())
    first, second = (GramStatistics.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert_same(first, dense)
    assert all(torch.equal(value, second.sums()[name]) for name, value in first.sums().items())


def test_dense_grams_are_symmetric_after_every_addition(monkeypatch):
    """Sums are of blocks above the diagonal."""
    monkeypatch.setattr("rfgp.linalg.gram_matrix._GRAM_COLUMNS", 5)
    features, targets, weights, log_noise, groups = rows()
    statistics = ClassStatistics(WIDTH, TARGETS, CLASSES)
    for part_of in (slice(0, 20), slice(20, 30)):  # of class 0, which has a Gram matrix
        statistics.update(*part((features, targets, weights, log_noise, groups), part_of))
        assert statistics.dense.tolist() == [0]
        seen = features[: part_of.stop]
        torch.testing.assert_close(statistics.dense_grams[0], seen.mT @ (weights[: part_of.stop, None] * seen))


def test_gram_matrices_of_all_groups_ask_for_the_memory_that_they_take(monkeypatch):
    asked = []
    monkeypatch.setattr("rfgp._support.checks.fits_in_memory", lambda size, *words: asked.append(size))
    held = ClassStatistics(WIDTH, TARGETS, CLASSES).update(*rows())
    assert asked == [] and held.gram.nbytes == asked[-1]
