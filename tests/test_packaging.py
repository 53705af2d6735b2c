"""What pip installs is what lies in the folders, and what a release is made of."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]


def script(path):
    """A script of the checkout as a module, its `__main__` part not run."""
    return runpy.run_path(str(ROOT / path), run_name="a test")


def test_every_module_is_in_a_package():
    """But for those of what `stsbench new` copies, which are data."""
    folders = {path.parent.relative_to(ROOT).as_posix() for top in ("stsbench", "protocols", "methods", "leaderboard")
               for path in (ROOT / top).rglob("*.py")}
    packages = script("setup.py")["packages"](ROOT)
    templates = "stsbench/extensions/templates/"
    assert set(packages.values()) == {folder for folder in folders if not folder.startswith(templates)}
    assert "*/*.py" in SETTINGS["package-data"]["stsbench.extensions.templates"]
    assert packages["stsbench.methods.simcse"] == "methods/simcse" and packages["stsbench.cli"] == "stsbench/cli"


def test_every_file_of_data_is_packed():
    """All that git keeps in a package's folder and is no module, but for what only the repository's own board needs."""
    packed, folders = SETTINGS["package-data"], script("setup.py")["packages"](ROOT)
    held = {path for name, folder in folders.items() for pattern in (*packed["*"], *packed.get(name, ()))
            for path in (ROOT / folder).glob(pattern)}
    data = {path for top in ("stsbench", "methods", "protocols") for path in (ROOT / top).rglob("*")
            if path.is_file() and path.suffix not in (".py", ".pyc") and not path.name.startswith(".")}
    assert data <= held, sorted(data - held)


def test_links_of_the_description_are_absolute():
    relative = "[`sts`](docs/x.md), ![rows: 7](docs/board.svg), [paper](https://arxiv.org/abs/1), [below](#here)"
    absolute = ("[`sts`](https://github.com/a/b/blob/v1.2/docs/x.md), "
                "![rows: 7](https://raw.githubusercontent.com/a/b/v1.2/docs/board.svg?sanitize=true), "
                "[paper](https://arxiv.org/abs/1), [below](#here)")
    assert script("setup.py")["description"](relative, "https://github.com/a/b", "1.2") == absolute


def test_the_description_has_no_relative_link():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    readme = (ROOT / "README.md").read_text("utf-8")
    made = script("setup.py")["description"](readme, project["urls"]["Repository"], project["version"])
    targets = re.findall(r"\]\(([^)\s]+)\)", made)
    assert len(targets) > 10 and [link for link in targets if not link.startswith(("https://", "#"))] == []
    assert re.sub(r"\]\([^)]*\)", "]()", made) == re.sub(r"\]\([^)]*\)", "]()", readme)


def test_files_name_one_version():
    assert script(".ci/version")["faults"](ROOT, None) == []


@pytest.mark.parametrize(("file", "old", "new", "fault"), [
    ("CITATION.cff", "version: 1.0", "version: 0.9", "CITATION.cff says 0.9, and pyproject.toml 1.0"),
    ("CHANGELOG.md", "(2026-01-01)", "(unreleased)", "CHANGELOG.md has nothing below a heading"),
    ("CHANGELOG.md", "- A change.\n", "", "CHANGELOG.md has nothing below a heading")])
def test_a_version_left_behind_is_named(tmp_path, file, old, new, fault):
    version = script(".ci/version")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.0"\n')
    (tmp_path / "CITATION.cff").write_text("version: 1.0\n")
    changes = "# Changelog\n\n## 1.0 (2026-01-01)\n\n- A change.\n\n## 0.9 (2025-01-01)\n\n- Old.\n"
    (tmp_path / "CHANGELOG.md").write_text(changes)
    assert version["faults"](tmp_path, "v1.0") == []
    assert version["changes"](changes, "1.0") == "- A change."
    assert version["faults"](tmp_path, "v1.1") == ["the tag is v1.1, and pyproject.toml says 1.0: the tag must be v1.0"]
    (tmp_path / file).write_text((tmp_path / file).read_text().replace(old, new))
    assert len(faults := version["faults"](tmp_path, None)) == 1 and faults[0].startswith(fault)


def test_who_may_publish_runs_no_code_of_the_repository():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))["jobs"]
    for name, job in jobs.items():
        assert (job["permissions"] == {"contents": "read"}) == (name == "build")
        assert name == "build" or not any("checkout" in step.get("uses", "") for step in job["steps"])
    assert jobs["publish"]["permissions"] == {"id-token": "write"} and jobs["publish"]["needs"] == "build"


def test_every_action_is_pinned_by_its_commit():
    """A tag or a branch can be moved by whoever takes over the action's repository, and some jobs here may publish."""
    texts = [path.read_text("utf-8") for path in sorted((ROOT / ".github").rglob("*.y*ml"))]
    used = [line.strip() for text in texts for line in text.splitlines() if re.match(r"\s*(- )?uses:", line)]
    assert len(used) == 20
    pinned = r"(- )?uses: [\w.-]+/[\w./-]+@([0-9a-f]{40})  # (v\d+\.\d+\.\d+)"
    matches = [re.fullmatch(pinned, line) for line in used]
    assert all(matches), [line for line, match in zip(used, matches, strict=True) if not match]
    versions = {(match[2], match[3]) for match in matches}
    assert len({digest for digest, _ in versions}) == len(versions)


def test_the_docker_context_has_what_the_build_reads():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    folders = {folder.split("/")[0] for folder in project["tool"]["setuptools"]["package-dir"].values()}
    assert folders | {"pyproject.toml", "setup.py", "README.md", *project["project"]["license-files"]} <= allowed
    copied = re.findall(r"^COPY (?!--from)(\S+) ", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert set(copied) - {"."} <= allowed
