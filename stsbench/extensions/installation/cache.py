"""`stsbench cache`: list or clear the embedding cache."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stsbench.cli.messages import echo
from stsbench.files import cache_root
from stsbench.wording import counted, sized

if TYPE_CHECKING:
    from stsbench.encoders.cache.cache import CachedEncoder


def default_folder() -> Path:
    """Return the default folder of the embedding cache, used without --cache."""
    return cache_root() / "embeddings"


@click.group(short_help="Tools | Show or clear the embedding cache.")
def cache() -> None:
    """Show or clear the embeddings kept on disk."""


_folder = click.option(
    "--cache", "folder", type=click.Path(path_type=Path, file_okay=False), help="The cache folder, if not the default."
)


@cache.command()
@_folder
def info(folder: Path | None) -> None:
    """List what is stored for each encoder."""
    from stsbench.encoders.cache.cache import EmbeddingCache

    store = EmbeddingCache(folder or default_folder())
    encoders = store.encoders()
    echo(f"{store.folder}: {sized(store.size())}, {counted(len(encoders), 'encoder')}")
    for entry in encoders:
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        texts = counted(entry.texts, "text")
        echo(f"{_identity(entry)}  {texts}, {sized(entry.bytes)}, used {used}  {_name(entry)}{_stale(entry)}")


@cache.command(short_help="Delete every stored embedding.")
@_folder
def clear(folder: Path | None) -> None:
    """Delete every stored embedding (they are computed again when needed)."""
    from stsbench.encoders.cache.cache import EmbeddingCache

    store = EmbeddingCache(folder or default_folder())
    echo(f"{store.folder}: {sized(store.clear())} freed")


def _identity(entry: CachedEncoder) -> str:
    """Return the start of the fingerprint, as `eval` prints it and records keep it; of the folder's name where none is
    known."""
    from stsbench.encoders.base import mapping_fingerprint

    return (mapping_fingerprint(entry.about.spec) if entry.about.spec else entry.key)[:12]


def _name(entry: CachedEncoder) -> str:
    """Return the encoder as a reader knows it: two poolers of one model have one name, but not one fingerprint."""
    from stsbench.encoders.prompt.reading import described_reading

    spec = entry.about.spec
    prompts = (f"{kind} {spec[kind]!r}" for kind in ("prefix", "template") if spec.get(kind))
    pooler = [f"pooler {spec['pooler']}"] if spec.get("pooler") else []
    reading = described_reading(spec.get("options") or {}, brief=True)
    return ", ".join([str(spec.get("name", "?")), *pooler, *prompts, *reading])


def _stale(entry: CachedEncoder) -> str:
    """Return why no run can read these embeddings any more, "" if runs can."""
    from stsbench.encoders.cache.encode import changed

    if not entry.about.spec:
        return ", stale: made before the versions of libraries were kept"
    now = changed(entry.about.libraries)
    return f", stale: {', '.join(now)}" if now else ""
