"""A Ray of one node with four processors and, as it is told, one GPU."""

import os

import pytest


@pytest.fixture(scope="module")
def ray_address():
    """Its address; the test is skipped where Ray is not installed."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    node = {"num_cpus": 4, "num_gpus": 1, "include_dashboard": False, "object_store_memory": 100_000_000}
    os.environ.setdefault("RAY_worker_niceness", "0")  # at Ray's, 15, workers starve on a busy machine
    try:
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=node, shutdown_at_exit=False)
    except Exception as error:  # on a busy machine its parts wait in vain for one another
        pytest.skip(f"Ray does not start here: {error}")
    yield cluster.address
    cluster.shutdown()
