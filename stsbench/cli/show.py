"""`stsbench list` and `stsbench show`."""

from __future__ import annotations

import json

import click
import yaml


@click.command("list")
@click.argument("what", type=click.Choice(["protocols", "encoders", "data"]))
def list_(what: str) -> None:
    """List protocols (with papers' presets), encoders or data sets."""
    if what == "protocols":
        from stsbench.plan import kinds, presets

        for name, kind in kinds().items():
            forms = f"; also {', '.join(f'{name}:{word}' for word in kind.variants)}" if kind.variants else ""
            click.echo(f"{name:12} tasks: {', '.join(kind({}).tasks())}{forms}")
        for name, preset in presets().items():
            click.echo(f"{name:12} {preset['paper']}")
    elif what == "encoders":
        from stsbench.encoders.pooling import POOLERS

        click.echo("minilm, a Hub id, a transformers or sentence-transformers folder")
        click.echo("lexical:token-set, lexical:tfidf, words:GLOVE.txt, vectors:FILE.npz, python:module:callable")
        click.echo(f"poolers: {', '.join(POOLERS)}")
    else:
        from stsbench.data.catalog import entries

        for entry in entries():
            click.echo(f"{entry.id:20} {entry.view:9} {entry.total:6} {entry.licence}")


@click.command("show")
@click.argument("kind", type=click.Choice(["protocol", "data"]))
@click.argument("name")
def show(kind: str, name: str) -> None:
    """Show one protocol (or a paper's preset) or data set in full, as YAML."""
    if kind == "data":
        from dataclasses import asdict

        from stsbench.data.catalog import entry

        facts = json.loads(json.dumps(asdict(entry(name))))
        click.echo(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True), nl=False)
        return
    from stsbench.plan import presets, protocol_of

    papers = presets()
    if name in papers:
        click.echo(yaml.safe_dump({"name": name, **papers[name]}, sort_keys=False), nl=False)
        return
    protocol = protocol_of(name, {})
    facts = {"name": name, "version": protocol.version, "tasks": protocol.tasks(), "settings": protocol.settings}
    if forms := [f"{protocol.name}:{word}" for word in protocol.variants]:
        facts["forms"] = forms
    click.echo(yaml.safe_dump(json.loads(json.dumps(facts)), sort_keys=False), nl=False)  # by JSON: no YAML anchors
