"""Nodes are shared out so that any of them can run any task."""

import pytest

from stsbench.extensions.cluster import shares


@pytest.mark.parametrize(("nodes", "threads", "gpus", "share"), [
    ([(8, 0)], 4, 0, (4, 2)),
    ([(4, 0), (2, 0)], 8, 0, (2, 3)),  # not 4: when the larger node is lost, no other one has as many
    ([(4, 0), (2, 0), (0, 0)], 2, 0, (2, 3)),
    ([(0, 0)], 2, 0, (2, 0)),
    ([(64, 0), (16, 8)], 64, 1, (2, 8)),
    ([(16, 8), (32, 4)], 4, 1, (2, 12)),
    ([(2, 4)], 4, 1, (1, 2)),
    ([(8, 0)], 4, 1, (4, 0)),
    ([(8, 1)], 8, 0.25, (2, 4)),
    ([(2, 1)], 8, 0.25, (1, 2)),
    ([(64, 5)], 1, 0.4, (1, 10)),  # none is spread over two
    ([(64, 2)], 1, 0.1, (1, 20)),
])
def test_what_a_task_has_and_how_many_there_is_room_for(nodes, threads, gpus, share):
    assert shares(nodes, threads, gpus) == share
