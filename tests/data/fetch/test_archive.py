"""Hostile and broken archives: nothing comes out of the folder, nothing but plain files is made."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest
from hubserver import tar_of

from stsbench.data.fetch.archive import extract
from stsbench.errors import DataError


def link(name: str, kind: bytes, target: str = "/etc/passwd") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(("body", "message"), [
    (tar_of({"ok": b"1", "../x": b"2"}), "outside"),
    (tar_of({"a/../../x": b"2"}), "outside"),
    (tar_of({"/abs": b"2"}), "outside"),
    (tar_of({"C:\\x": b"2"}), "outside"),
    (tar_of({"a\\..\\..\\x": b"2"}), "outside"),
    (tar_of({}, [link("s", tarfile.SYMTYPE)]), "link or a special file"),
    (tar_of({"ok": b"1"}, [link("h", tarfile.LNKTYPE, "ok")]), "link or a special file"),
    (tar_of({}, [link("dev", tarfile.CHRTYPE)]), "link or a special file"),
    (tar_of({}, [link("pipe", tarfile.FIFOTYPE)]), "link or a special file"),
    (tar_of({"ok": b"1"}) + b"", ""),
    (tar_of({"big": b"1" * 3000})[:2000], "truncated"),
    (gzip.compress(tar_of({"big": bytes(range(256)) * 64}))[:-30], "truncated"),
    (b"<html>no tar</html>" * 99, "truncated or not a tar file"),
    (b"", "truncated or not a tar file"),
    (tar_of({}), "contains no file"),
])
def test_hostile_and_broken_archives(tmp_path: Path, body: bytes, message: str) -> None:
    (tmp_path / "a.tar").write_bytes(body)
    into = tmp_path / "deep" / "into"
    into.mkdir(parents=True)
    if not message:
        assert extract(tmp_path / "a.tar", into) == ["ok"]
        return
    with pytest.raises(DataError, match=message):
        extract(tmp_path / "a.tar", into)
    assert not (tmp_path / "x").exists() and not (tmp_path / "deep" / "x").exists()


def test_archive_limits_and_repeated_names(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of({"a": b"12345", "b": b"12345"}))
    for index, limits in enumerate([{"max_bytes": 9}, {"max_members": 1}]):
        (tmp_path / str(index)).mkdir()
        with pytest.raises(DataError, match="refused"):
            extract(tmp_path / "a.tar", tmp_path / str(index), **limits)
    double = tarfile.TarInfo("a")
    (tmp_path / "d.tar").write_bytes(tar_of({"a": b"1"}, [double]))
    (tmp_path / "d").mkdir()
    with pytest.raises(DataError, match="File exists"):
        extract(tmp_path / "d.tar", tmp_path / "d")
