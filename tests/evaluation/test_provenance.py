"""The revision that a record names: what changes the code counts, what lies beside it does not."""

import subprocess
from pathlib import Path

import pytest

import stsbench
from stsbench.evaluation import provenance

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = ["leaderboard/measured/a/run.json", "docs/findings/protocol-sensitivity.md", "README.md", "docs/notebooks/b.ipynb"]
BESIDE = ["sentences.txt", "runs/mean/a.json", "mymodel.py", "entries.svg", "docs/new.md"]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    for name in ("stsbench/__init__.py", "methods/a.py", "docs/index.md", *WRITTEN):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"), "utf-8")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(stsbench, "__file__", str(tmp_path / "stsbench" / "__init__.py"))
    return tmp_path


REAL = provenance.git_revision  # the suite asks git once


def revision():
    return REAL()


def test_a_clean_checkout_and_what_is_no_part_of_its_code(checkout):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True).stdout.strip()
    assert revision() == head
    for name in [*BESIDE, *WRITTEN]:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("2\n")
        assert revision() == head, name
    assert provenance.why_not_repeatable(head) is None


def test_a_change_and_a_new_file_of_the_code(checkout):
    for name in ("stsbench/new.py", "methods/new method/method.py", "methods/a.py", "docs/index.md"):
        path = checkout / name
        before = path.read_text() if path.exists() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("2\n")
        assert revision().endswith("+changes"), name
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
    assert "new files in its code" in provenance.why_not_repeatable("a" * 40 + "+changes")
