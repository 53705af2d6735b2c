"""Archives: headers take no memory, no folders are made; broken ones are in tests/refusals/data.yaml. One file over HTTP:
resumed after a cut, begun again when it changed, refused when too large."""

import gzip
import io
import lzma
import tarfile
import tracemalloc
from functools import partial

import pytest
from clirun import refuses
from hubserver import server, tar_of  # noqa: F401 - fixtures

from stsbench.data.fetch.download import download
from stsbench.data.fetch.install import alone, extract, workplace
from stsbench.errors import DataError

LIMIT = 1 << 20


def headers(kind, size, count=1):
    """Headers of `kind` (PAX of a file or of all, GNU's long names) with `size` bytes each, then a file."""
    content = b"a" * size
    if kind in (tarfile.XHDTYPE, tarfile.XGLTYPE):
        record = b" comment=" + content + b"\n"
        content = b"%d" % (len(record) + len(str(len(record) + 9))) + record
    with io.BytesIO() as stream:
        for number in range(count):
            member = tarfile.TarInfo("././@LongLink")
            member.type, member.size = kind, len(content)
            stream.write(member.tobuf(tarfile.USTAR_FORMAT) + content + b"\0" * (-len(content) % 512))
            stream.write(tarfile.TarInfo(f"downstream/{number}").tobuf())
        return stream.getvalue() + b"\0" * 1024


@pytest.mark.parametrize(("pack", "kind", "size", "count"), [
    (bytes, tarfile.XHDTYPE, 15_000_000, 1), (bytes, tarfile.XGLTYPE, 150_000, 100),
    (partial(gzip.compress, compresslevel=1), tarfile.GNUTYPE_LONGNAME, 150_000, 100),
    (partial(lzma.compress, preset=0), tarfile.GNUTYPE_LONGLINK, 15_000_000, 1)])
def test_headers_take_no_memory(tmp_path, pack, kind, size, count, monkeypatch):
    monkeypatch.setattr("stsbench.data.fetch.install._MOST_HEADERS", 2 << 20)
    (tmp_path / "a.tar").write_bytes(pack(headers(kind, size, count)))
    (tmp_path / "into").mkdir()
    tracemalloc.start()
    refuses(DataError, r"header.*refused", extract, tmp_path / "a.tar", tmp_path / "into")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 << 20


def test_an_archive_makes_no_folders(tmp_path):
    names = ["/".join([str(i), *"abcdefghij"]) for i in range(50)]
    (tmp_path / "a.tar").write_bytes(tar_of(dict.fromkeys(names, b"")))
    (tmp_path / "into").mkdir()
    files = extract(tmp_path / "a.tar", tmp_path / "into")
    assert files == {name: tmp_path / "into" / str(i) for i, name in enumerate(names)}
    assert all(path.is_file() for path in files.values())


def test_what_a_killed_fetch_left_is_removed_by_the_next(tmp_path):
    left = tmp_path / ".unpack-abc"
    (left / "deep").mkdir(parents=True)
    with alone(tmp_path), workplace(tmp_path) as folder:
        assert folder.is_dir() and not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".fetch.lock"]


def test_a_cut_connection_is_resumed(server, tmp_path):
    server.body, server.cuts, seen = bytes(range(256)) * 40, [3000, 2000], []
    download(server.url + "/f", tmp_path / "a" / "f", limit=LIMIT, progress=lambda *step: seen.append(step))
    assert (tmp_path / "a" / "f").read_bytes() == server.body and seen[-1] == (10_240, 10_240)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["f"]
    assert [wanted for _, wanted in server.asked] == [None, "bytes=3000-", "bytes=5000-"]


def test_a_later_call_goes_on_from_the_part(server, tmp_path):
    server.body, server.cuts = b"ab" * 4000, [1000, 0, 0, 0, 0, 0]
    with pytest.raises(DataError, match=r"broke after 1000 of 8000 bytes; 1000 bytes are kept in .*f\.part"):
        download(server.url + "/f", tmp_path / "f", limit=LIMIT)
    assert not (tmp_path / "f").exists()
    server.cuts, server.asked = [], []
    download(server.url + "/f", tmp_path / "f", limit=LIMIT)
    assert (tmp_path / "f").read_bytes() == server.body and server.asked == [("/f", "bytes=1000-")]


def test_a_changed_file_and_one_that_cannot_be_resumed_begin_again(server, tmp_path):
    server.body, server.cuts = b"old" * 1000, [1000, 0, 0, 0, 0]
    refuses(DataError, "", download, server.url + "/f", tmp_path / "f", limit=LIMIT)
    server.body, server.etag, server.cuts = b"NEW" * 900, '"two"', []
    download(server.url + "/f", tmp_path / "f", limit=LIMIT)
    assert (tmp_path / "f").read_bytes() == b"NEW" * 900
    for number, (server.etag, server.ranges) in enumerate([("", True), ('W/"weak"', True), ('"one"', False)]):
        server.cuts = [1000]
        download(server.url + "/f", tmp_path / str(number), limit=LIMIT)
        assert (tmp_path / str(number)).read_bytes() == server.body


def test_server_errors_are_tried_again_and_refusals_are_not(server, tmp_path):
    server.body, server.status = b"x", [503, 429]
    download(server.url + "/f", tmp_path / "f", limit=LIMIT)
    server.status, server.asked = [404], []
    refuses(DataError, "HTTP 404", download, server.url + "/f", tmp_path / "g", limit=LIMIT)
    assert len(server.asked) == 1
    server.status = [500] * 9
    refuses(DataError, "HTTP 500", download, server.url + "/f", tmp_path / "g", limit=LIMIT)
    server.body, server.status = b"x" * 2000, []
    refuses(DataError, "is 2000 bytes, more than the 1000", download, server.url + "/f", tmp_path / "f", limit=1000)
    refuses(DataError, "HF_ENDPOINT must start with http", download, "file:///etc/passwd", tmp_path / "f", limit=1000)
