"""A server on this machine in the place of the Hub, and a catalog that knows the sample's files."""

import pytest
from hubserver import know_the_sample, serving


@pytest.fixture
def server(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path) as state:
        yield state


@pytest.fixture
def sample_catalog(monkeypatch):
    return know_the_sample(monkeypatch)
