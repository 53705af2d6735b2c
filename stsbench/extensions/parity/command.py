"""`stsbench parity` and `stsbench canary`: whether two encoders give the same vectors, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stsbench.cli.options import Command, add_options
from stsbench.extensions.parity.options import ParityOptions

DIFFERING = 3  # exit code of a comparison that found a difference


@click.command(
    "parity", cls=Command, short_help="Compare and decide | Say whether B gives the vectors of A, and if not, why.",
)
@click.argument("a")
@click.argument("b")
@click.option("--a", "a_settings", multiple=True, metavar="OPTION=VALUE", help="An option of A, as `stsbench eval --help` "
              "names it, without the dashes, e.g. pooler=cls; repeatable.")
@click.option("--b", "b_settings", multiple=True, metavar="OPTION=VALUE", help="The same for B, e.g. dtype=bfloat16.")
@click.option("--texts", type=click.Path(path_type=Path), help="UTF-8, one text a line; default: those of the package.")
@add_options(ParityOptions)
@click.option("--json", "json_target", metavar="FILE|-", help="Write the result as JSON; - makes stdout pure JSON.")
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE.html", help="Write a page to hand on, in one file.")
def parity_(
    a: str, b: str, a_settings: Sequence[str], b_settings: Sequence[str], texts: Path | None, json_target: str | None,
    page: Path | None, **how: Any,
) -> int:
    """Say whether B gives the vectors of A, and if not, why.

    A is the reference, best a model folder; B is any encoder: another folder, a function, an encoder of mteb. Both read
    the same texts. Where the vectors differ, A is changed part by part (pooling, modules, prompt, limit, special tokens,
    tokenizer, precision, ...) until it gives B's.

    Exit codes: 0 equal, 3 different, 1 not comparable, 2 wrong usage. With --protocol 0 also where every
    score is equivalent.
    """
    from stsbench.cli.messages import log, print_result
    from stsbench.extensions.parity.parity import compare_encoders
    from stsbench.extensions.parity.result import write_page

    of_a, of_b = _settings("--a", a_settings), _settings("--b", b_settings)
    result = compare_encoders(a, b, texts, of_a, of_b, log, **how)
    print_result(result, json_target=json_target)
    if page is not None:
        write_page(result, page)
        log(f"page: {page}")
    return 0 if result.equal else DIFFERING


@click.group("canary", short_help="Compare and decide | Keep a few vectors, and say later whether a model still gives them.")
def canary() -> None:
    """Keep a model's vectors of a few texts in a small file, and say later whether model, server or export still gives them.

    The model that the vectors were kept of need not exist any more.
    """


@canary.command("make", cls=Command)
@click.argument("model")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--with", "settings", multiple=True, metavar="OPTION=VALUE", help="An option of MODEL, as `stsbench eval "
              "--help` names it, without the dashes; repeatable.")
@click.option("--texts", type=click.Path(path_type=Path), help="UTF-8, one text a line; default: those of the package.")
def make(model: str, file: Path, settings: Sequence[str], texts: Path | None) -> None:
    """Write the vectors of MODEL to FILE, an .npz archive."""
    from stsbench.cli.messages import echo
    from stsbench.extensions.parity.canary import make_canary

    echo(f"canary: {make_canary(model, file, texts=texts, options=_settings('--with', settings))}")


@canary.command("check", cls=Command)
@click.argument("model")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--with", "settings", multiple=True, metavar="OPTION=VALUE", help="As of `canary make`.")
@click.option("--tolerance", type=click.Choice(["float32", "float16", "bfloat16"]), default="float32", show_default=True,
              help="Whose rounding still is equal.")
@click.option("--why/--no-why", default=True, show_default=True, help="Look for what the canary's model did otherwise.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the result as JSON; - makes stdout pure JSON.")
def check(
    model: str, file: Path, settings: Sequence[str], tolerance: str, why: bool, json_target: str | None,
) -> int:
    """Say whether MODEL, as it is now (A), gives the vectors in FILE (B).

    Exit codes: 0 equal, 3 different, 1 not comparable, 2 wrong usage.
    """
    from stsbench.cli.messages import log, print_result
    from stsbench.extensions.parity.canary import check_canary

    result = check_canary(model, file, options=_settings("--with", settings), tolerance=tolerance, why=why, log=log)
    print_result(result, json_target=json_target)
    return 0 if result.equal else DIFFERING


def _settings(option: str, words: Sequence[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    if wrong := [word for word, (name, equals, _) in zip(words, pairs, strict=True) if not (name and equals)]:
        raise click.UsageError(f"{option} {wrong[0]}: write OPTION=VALUE, e.g. pooler=cls")
    names = [name for name, _, _ in pairs]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise click.UsageError(f"{option} {twice[0]} is given twice")
    return {name: value for name, _, value in pairs}
