"""Hostile and broken archives: nothing comes out of the folder, nothing but plain files is made."""

from __future__ import annotations

import gzip
import io
import lzma
import shutil
import tarfile
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hubserver import tar_of

from stsbench.data.fetch.install import alone, extract, workplace
from stsbench.errors import DataError


def link(name: str, kind: bytes, target: str = "/etc/passwd") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def test_hostile_and_broken_archives(tmp_path: Path) -> None:
    into = tmp_path / "deep" / "into"
    into.mkdir(parents=True)
    for body, message in (
        (tar_of({"ok": b"1", "../x": b"2"}), "outside"), (tar_of({"a/../../x": b"2"}), "outside"),
        (tar_of({"/abs": b"2"}), "outside"), (tar_of({"C:\\x": b"2"}), "outside"),
        (tar_of({"a\\..\\..\\x": b"2"}), "outside"),
        (tar_of({}, [link("s", tarfile.SYMTYPE)]), "link or a special file"),
        (tar_of({"ok": b"1"}, [link("h", tarfile.LNKTYPE, "ok")]), "link or a special file"),
        (tar_of({}, [link("dev", tarfile.CHRTYPE)]), "link or a special file"),
        (tar_of({}, [link("pipe", tarfile.FIFOTYPE)]), "link or a special file"),
        (tar_of({"big": b"1" * 3000})[:2000], "truncated"),
        (gzip.compress(tar_of({"big": bytes(range(256)) * 64}))[:-30], "truncated"),
        (b"<html>no tar</html>" * 99, "truncated or not a tar file"), (b"", "truncated or not a tar file"),
        (tar_of({}), "contains no file"),
    ):
        (tmp_path / "a.tar").write_bytes(body)
        with pytest.raises(DataError, match=message):
            extract(tmp_path / "a.tar", into)
        assert not (tmp_path / "x").exists() and not (tmp_path / "deep" / "x").exists()
        shutil.rmtree(into)
        into.mkdir()


def test_archive_limits_and_repeated_names(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of({"a": b"12345", "b": b"12345"}))
    for index, limits in enumerate([{"max_bytes": 9}, {"max_members": 1}]):
        (tmp_path / str(index)).mkdir()
        with pytest.raises(DataError, match="refused"):
            extract(tmp_path / "a.tar", tmp_path / str(index), **limits)
    double = tarfile.TarInfo("a")
    (tmp_path / "d.tar").write_bytes(tar_of({"a": b"1"}, [double]))
    (tmp_path / "d").mkdir()
    with pytest.raises(DataError, match="holds 'a' twice"):
        extract(tmp_path / "d.tar", tmp_path / "d")


def headers(kind: bytes, size: int, count: int = 1) -> bytes:
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
    (bytes, tarfile.GNUTYPE_LONGNAME, 150_000, 100), (bytes, tarfile.GNUTYPE_LONGLINK, 15_000_000, 1),
    (partial(gzip.compress, compresslevel=1), tarfile.XHDTYPE, 150_000, 100),
    (partial(lzma.compress, preset=0), tarfile.GNUTYPE_LONGNAME, 15_000_000, 1),
])
def test_headers_take_no_memory(
    tmp_path: Path, pack: Callable[[bytes], bytes], kind: bytes, size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stsbench.data.fetch.install._MOST_HEADERS", 2 << 20)
    (tmp_path / "a.tar").write_bytes(pack(headers(kind, size, count)))
    (tmp_path / "into").mkdir()
    tracemalloc.start()
    with pytest.raises(DataError, match=r"header.*refused"):
        extract(tmp_path / "a.tar", tmp_path / "into")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 << 20


def test_a_negative_size_does_not_make_room(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x")
    member.pax_headers = {"size": "-4096"}
    (tmp_path / "a.tar").write_bytes(tar_of({}, [member]))
    (tmp_path / "into").mkdir()
    with pytest.raises(DataError):
        extract(tmp_path / "a.tar", tmp_path / "into")


def test_an_archive_makes_no_folders(tmp_path: Path) -> None:
    names = ["/".join([str(i), *"abcdefghij"]) for i in range(50)]
    (tmp_path / "a.tar").write_bytes(tar_of(dict.fromkeys(names, b"")))
    (tmp_path / "into").mkdir()
    files = extract(tmp_path / "a.tar", tmp_path / "into")
    assert files == {name: tmp_path / "into" / str(i) for i, name in enumerate(names)}
    assert all(path.is_file() for path in files.values())


def test_what_a_killed_fetch_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".unpack-abc"
    (left / "deep").mkdir(parents=True)
    with alone(tmp_path), workplace(tmp_path) as folder:
        assert folder.is_dir() and not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".fetch.lock"]
