"""Partitions: every row in one block, blocks of bounded size, and new rows where old ones like them are."""

import pytest
import torch

from rfgp.inference.local import BlockPartition


def table(kind):
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(1000, 3, generator=generator, dtype=torch.float64)
    return {
        "normal": normal,
        "one column": normal[:, :1],
        "integers": normal.mul(2).round(),
        "two values": (normal[:, :2] > 0).double(),
        "all the same": torch.zeros(100, 2, dtype=torch.float64),
        "one apart": torch.cat([torch.zeros(500, 1), torch.ones(1, 1)]).double(),
        "single row": normal[:1],
        "single precision": normal.float(),
    }[kind]


KINDS = (
    "normal", "one column", "integers", "two values", "all the same", "one apart", "single row", "single precision",
)  # fmt: skip


def is_partition(blocks, count):
    return sorted(torch.cat(blocks).tolist()) == list(range(count))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 37, 2000])
def test_every_row_is_in_one_block_of_bounded_size(kind, size):
    points = table(kind)
    blocks = BlockPartition(points, size).blocks
    assert is_partition(blocks, len(points))
    assert max(map(len, blocks)) <= size


@pytest.mark.parametrize("kind", ["normal", "one column", "single precision"])
def test_rows_are_placed_in_their_own_blocks(kind):
    points = table(kind)
    partition = BlockPartition(points, 37)
    places = partition.place(points)
    for number, rows in enumerate(partition.blocks):
        assert bool((places[rows] == number).all())
    assert min(map(len, partition.blocks)) > 37 / 4


@pytest.mark.parametrize("kind", KINDS)
def test_equal_points_are_placed_in_the_same_block(kind):
    points = table(kind)
    partition = BlockPartition(points, 37)
    assert torch.equal(partition.place(points), partition.place(points.clone()))
    assert int(partition.place(points).max()) < len(partition.blocks)


def test_blocks_are_near():
    points = table("normal")
    spread = points.var(0).sum()
    within = sum(len(rows) * points[rows].var(0).sum() for rows in BlockPartition(points, 37).blocks) / len(points)
    assert within < 0.3 * spread


@pytest.mark.parametrize("kind", KINDS)
def test_more_rows_go_to_the_blocks_where_they_are_placed(kind):
    points = table(kind)
    partition = BlockPartition(points, 37)
    before = [rows.clone() for rows in partition.blocks]
    every = torch.cat([points, points[:60]])
    extended, touched = partition.extended(every, len(every) - len(points))
    assert is_partition(extended.blocks, len(every))
    assert max(map(len, extended.blocks)) <= 37
    for number, rows in enumerate(before):
        assert torch.equal(partition.blocks[number], rows)
        if number not in touched:
            assert torch.equal(extended.blocks[number], rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_makes_the_same_partition(kind):
    points = table(kind)
    partition = BlockPartition(points, 37)
    again = BlockPartition.from_state_dict(partition.state_dict())
    assert torch.equal(again.place(points), partition.place(points))
    for rows, same in zip(partition.blocks, again.blocks, strict=True):
        assert torch.equal(rows.sort().values, same)


@pytest.mark.parametrize("known", [30, 400])
def test_rows_that_come_and_go_are_placed_in_their_own_blocks(known):
    """From a single block too, of which the root is no split yet."""
    points = table("normal")[:500]
    partition = BlockPartition(points[:known], 37)
    partition, _ = partition.extended(points, len(points) - known)
    is_removed = torch.arange(len(points)) % 3 == 0
    left, _ = partition.without(points, is_removed)
    for made, rows_of_all in ((partition, points), (left, points[~is_removed])):
        assert is_partition(made.blocks, len(rows_of_all)) and len(made.blocks) > 10
        places = made.place(rows_of_all)
        assert all(bool((places[rows] == number).all()) for number, rows in enumerate(made.blocks))
