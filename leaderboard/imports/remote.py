"""One model's result files out of mteb's public results repository, file by file: a clone of it is gigabytes."""

from __future__ import annotations

import urllib.error
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from stsbench.data.fetch.download import download
from stsbench.errors import DataError, StsbenchError
from stsbench.parsing import read_json

REPOSITORY = "https://github.com/embeddings-benchmark/results"
LISTING = "https://api.github.com/repos/embeddings-benchmark/results/contents/results"
FILES = "https://raw.githubusercontent.com/embeddings-benchmark/results/main/results"
MOST = 4_000_000  # bytes of a file: a result of an STS task has about 1,000


def fetch_results(model: str, tasks: Sequence[str], revision: str | None, folder: Path) -> str:
    """Download the files of `tasks` that the repository has of `model` to `folder`/ORG__MODEL/REVISION/TASK.json.

    Of all revisions of the model, or of `revision`. Returns the address of what was read, for people. Raises StsbenchError
    for a model or revision that is not there, DataError where the network fails.
    """
    name = model.replace("/", "__")
    listed = folder / "listing.json"
    if not _fetched(f"{LISTING}/{quote(name)}", listed):
        raise StsbenchError(f"mteb's results repository ({REPOSITORY}) has no model {model}")
    revisions = _folders(listed)
    listed.unlink()
    if revision is not None and revision not in revisions:
        raise StsbenchError(f"the results repository has no revision {revision} of {model}; it has {', '.join(revisions)}")
    for each in revisions if revision is None else [revision]:
        for task in tasks:
            path = f"{name}/{each}/{task}.json"
            _fetched(f"{FILES}/{quote(path)}", folder / path)
    return f"{REPOSITORY}/tree/main/results/{name}"


def _folders(listing: Path) -> list[str]:
    answer = read_json(listing)
    if not isinstance(answer, list) or not all(isinstance(each, dict) for each in answer):
        raise StsbenchError(f"{LISTING} answered with something that is not a list of folders")
    names = [str(each.get("name")) for each in answer if each.get("type") == "dir"]
    return sorted(name for name in names if "/" not in name and not name.startswith("."))


def _fetched(url: str, target: Path) -> bool:
    """Download `url`; False where the server has no such file."""
    try:
        download(url, target, limit=MOST)
    except DataError as error:
        if isinstance(error.__cause__, urllib.error.HTTPError) and error.__cause__.code == 404:
            return False
        raise
    return True
