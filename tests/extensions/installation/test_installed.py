"""Declared packages against installed ones, and a cache that cannot be written."""

import os

import pytest

from stsbench.extensions.installation.checks import Package, embedding_cache, packages

METADATA = """Metadata-Version: 2.1
Name: demo-of-the-doctor
Version: 1.0
Provides-Extra: more
Provides-Extra: dev
Requires-Dist: numpy>=1.26
Requires-Dist: no-such-package-anywhere>=3
Requires-Dist: click<2
Requires-Dist: missing-extra>=1; extra == "more"
Requires-Dist: missing-tool>=1; extra == "dev"
Requires-Dist: for-other-systems>=1; sys_platform == "plan9"
"""


def test_what_is_missing_or_of_another_version(tmp_path, monkeypatch):
    info = tmp_path / "demo_of_the_doctor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(tmp_path)
    listed = {each.name: each for each in packages("demo-of-the-doctor")}
    assert list(listed) == ["numpy", "no-such-package-anywhere", "click", "missing-extra"]
    assert listed["numpy"].version and listed["numpy"].problem is None
    absent = listed["no-such-package-anywhere"].problem
    assert absent == "no-such-package-anywhere>=3 is not installed: pip install 'no-such-package-anywhere>=3'"
    assert listed["click"].problem.endswith("is installed, and click<2 is needed: pip install 'click<2'")
    assert (listed["missing-extra"].extra, listed["missing-extra"].problem) == ("more", None)


@pytest.mark.parametrize(("version", "fits"), [("2.6.0", True), ("2.13.0+cpu", True), ("2.7.0a1", True), ("2.4.1", False)])
def test_builds_and_previews_count_by_their_number(version, fits):
    assert (Package("torch", version, ">=2.6").problem is None) == fits


def test_stsbench_s_own_are_as_declared():
    assert [each.problem for each in packages() if each.problem] == []
    assert {"torch", "transformers", "click"} <= {each.name for each in packages() if each.extra is None}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_folder_that_refuses(tmp_path, monkeypatch):
    tmp_path.chmod(0o500)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    assert "cannot be written: Permission denied" in embedding_cache().problem


def test_a_cache_folder_below_a_file(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "file"))
    assert "$STSBENCH_CACHE names another folder" in embedding_cache().problem
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "new"))
    assert embedding_cache().problem is None and not (tmp_path / "new").exists()
