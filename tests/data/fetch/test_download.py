"""One file over HTTP: resumed after a cut, begun again when it changed, refused when too large."""

from __future__ import annotations

from pathlib import Path

import pytest
from hubserver import Server

from stsbench.data.fetch.download import download
from stsbench.errors import DataError

LIMIT = 1 << 20


def test_download(server: Server, tmp_path: Path) -> None:
    server.body = b"x" * 5000
    seen: list[tuple[int, int | None]] = []
    download(server.url + "/f", tmp_path / "a" / "f", limit=LIMIT, progress=lambda *step: seen.append(step))
    assert (tmp_path / "a" / "f").read_bytes() == server.body and seen[-1] == (5000, 5000)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["f"]


def test_a_cut_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.body, server.cuts = bytes(range(256)) * 40, [3000, 2000]
    download(server.url + "/f", tmp_path / "f", limit=LIMIT)
    assert (tmp_path / "f").read_bytes() == server.body
    assert [wanted for _, wanted in server.asked] == [None, "bytes=3000-", "bytes=5000-"]


def test_a_later_call_goes_on_from_the_part(server: Server, tmp_path: Path) -> None:
    server.body, server.cuts = b"ab" * 4000, [1000, 0, 0, 0, 0, 0]
    with pytest.raises(DataError, match=r"broke after 1000 of 8000 bytes; 1000 bytes are kept in .*f\.part"):
        download(server.url + "/f", tmp_path / "f", limit=LIMIT)
    assert not (tmp_path / "f").exists()
    server.cuts, server.asked = [], []
    download(server.url + "/f", tmp_path / "f", limit=LIMIT)
    assert (tmp_path / "f").read_bytes() == server.body and server.asked == [("/f", "bytes=1000-")]


def test_a_changed_file_and_one_that_cannot_be_resumed_begin_again(server: Server, tmp_path: Path) -> None:
    server.body, server.cuts = b"old" * 1000, [1000, 0, 0, 0, 0]
    with pytest.raises(DataError):
        download(server.url + "/f", tmp_path / "f", limit=LIMIT)
    server.body, server.etag, server.cuts = b"NEW" * 900, '"two"', []
    download(server.url + "/f", tmp_path / "f", limit=LIMIT)
    assert (tmp_path / "f").read_bytes() == b"NEW" * 900
    for number, (server.etag, server.ranges) in enumerate([("", True), ('W/"weak"', True), ('"one"', False)]):
        server.cuts = [1000]
        download(server.url + "/f", tmp_path / str(number), limit=LIMIT)
        assert (tmp_path / str(number)).read_bytes() == server.body


def test_server_errors_are_tried_again_and_refusals_are_not(server: Server, tmp_path: Path) -> None:
    server.body, server.status = b"x", [503, 429]
    download(server.url + "/f", tmp_path / "f", limit=LIMIT)
    server.status, server.asked = [404], []
    with pytest.raises(DataError, match="HTTP 404"):
        download(server.url + "/f", tmp_path / "g", limit=LIMIT)
    assert len(server.asked) == 1
    server.status = [500] * 9
    with pytest.raises(DataError, match="HTTP 500"):
        download(server.url + "/f", tmp_path / "g", limit=LIMIT)


def test_limits_and_schemes(server: Server, tmp_path: Path) -> None:
    server.body = b"x" * 2000
    with pytest.raises(DataError, match="is 2000 bytes, more than the 1000"):
        download(server.url + "/f", tmp_path / "f", limit=1000)
    with pytest.raises(DataError, match="HF_ENDPOINT must start with http"):
        download("file:///etc/passwd", tmp_path / "f", limit=1000)
