"""`stsbench cache`: what the embedding cache holds, and emptying it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from stsbench.encoders.cache.cache import CachedEncoder, EmbeddingCache
from stsbench.encoders.cache.key import changed
from stsbench.files import cache_root
from stsbench.wording import counted, sized


def default_folder() -> Path:
    """Where embeddings are kept unless --cache says otherwise."""
    return cache_root() / "embeddings"


@click.group()
def cache() -> None:
    """Show or clear the embeddings kept on disk."""


_folder = click.option(
    "--cache", "folder", type=click.Path(path_type=Path, file_okay=False), help="The cache folder, if not the default."
)


@cache.command()
@_folder
def info(folder: Path | None) -> None:
    """List what is stored for each encoder."""
    store = EmbeddingCache(folder or default_folder())
    encoders = store.encoders()
    click.echo(f"{store.folder}: {sized(store.size())}, {counted(len(encoders), 'encoder')}")
    for entry in encoders:
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        texts = counted(entry.texts, "text")
        click.echo(f"{entry.key[:12]}  {texts}, {sized(entry.bytes)}, used {used}  {entry.name or '?'}{_stale(entry)}")


@cache.command(short_help="Delete every stored embedding.")
@_folder
def clear(folder: Path | None) -> None:
    """Delete every stored embedding (they are computed again when needed)."""
    store = EmbeddingCache(folder or default_folder())
    click.echo(f"{store.folder}: {sized(store.clear())} freed")


def _stale(entry: CachedEncoder) -> str:
    """Why no run will read these embeddings again, if that is so."""
    if entry.name is None:
        return ", stale: made before the versions of libraries were kept"
    now = changed(entry.libraries)
    return f", stale: {', '.join(now)}" if now else ""
