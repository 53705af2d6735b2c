"""`stsbench leaderboard`: build the page and tables, add records, look at the page."""

from __future__ import annotations

from pathlib import Path

import click

from stsbench.wording import counted

BOARD = click.option("--board", type=click.Path(path_type=Path), help="The board's folder (default: ./leaderboard).")


@click.group()
def leaderboard() -> None:
    """Build the leaderboard from records and published rows, add records to it, look at it."""


@leaderboard.command()
@BOARD
@click.option("--check", "only_check", is_flag=True, help="Write nothing; fail where a file is out of date or edited.")
@click.option("--all", "every", is_flag=True, help="Score every run again, not only those that changed since a build.")
@click.option("--output", type=click.Path(path_type=Path), help="Write everything there instead of into the board.")
def build(board: Path | None, only_check: bool, every: bool, output: Path | None) -> None:
    """Check every record against its observations, then write the page, the tables and the README's table.

    What a run scored is kept in the user's cache, under a digest of its files and of the code that scores them; a run is
    scored again as soon as one of these changes.
    Needs no torch, no data and no network. The same records give the same bytes. A build that is interrupted leaves every
    file as it was or as it should be.
    """
    from stsbench.leaderboard import build as building
    from stsbench.leaderboard.ranks import results
    from stsbench.leaderboard.records.paths import find_board

    root = find_board(board)
    if every:
        results.clear()
    if only_check:
        building.check(root, output)
        click.echo("up to date")
        return
    changed = building.build(root, output)
    for path in changed:
        click.echo(str(path))
    if not changed:
        click.echo("up to date")


@leaderboard.command()
@click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="RUN|RECORD...")
@BOARD
@click.option("--entry", "slug", required=True, metavar="NAME", help="Which entry they belong to: small letters and dashes.")
@click.option("--method", help="What the row is called.")
@click.option("--backbone", help="The network underneath, such as BERT-base.")
@click.option("--setting", type=click.Choice(["unsup", "semi", "sup"]), help="Which labels it was trained with.")
@click.option("--flag", "flags", multiple=True, type=click.Choice(["nli", "sts", "transductive", "dev-selected"]),
              help="nli, sts: trained on such labels; transductive: on test texts; dev-selected: on STS-B dev.")  # fmt: skip
@click.option("--best-of", type=click.IntRange(2), help="It is the best of so many seeds: shown as such, never ranked.")
@click.option("--recipe", default="", help="The recipe it was trained by.")
@click.option("--paper", help="The paper's address.")
@click.option("--card", default="", help="The address of the method's card.")
@click.option("--note", default="", help="What else a reader should know.")
def add(records: tuple[Path, ...], board: Path | None, slug: str, **stated: object) -> None:
    """Add RUN folders or single RECORDs to an entry, once their scores, data and provenance have been checked.

    A new entry needs --method, --backbone and --setting. Runs of several seeds of one method go into one entry. A record
    that was edited, or measured by code with uncommitted changes, is refused. Nothing is ever overwritten.
    """
    from stsbench.leaderboard.records.add import add as adding
    from stsbench.leaderboard.records.add import described

    entry = described(stated)
    root = board or Path("leaderboard")
    if board is None and not root.is_dir():
        raise click.UsageError(f"there is no folder {root}: run this in a checkout, or name a board with --board")
    added = adding(root, records, slug, entry)
    for path in added.written:
        click.echo(str(path))
    if added.present:
        click.echo(f"already there: {counted(len(added.present), 'record')}", err=True)
    for line in added.warnings:
        click.echo(f"note: {line}", err=True)
    click.echo("now run `stsbench leaderboard build`", err=True)


@leaderboard.command()
@BOARD
def convert(board: Path | None) -> None:
    """Bring the records of a board into the form it keeps today: Parquet files, shared where the data decide.

    In place; `leaderboard add` writes this form. No score moves by more than 5e-7. A second call goes on where the first was
    interrupted.
    """
    from stsbench.leaderboard.records.convert import convert as converting
    from stsbench.leaderboard.records.paths import find_board

    done = converting(find_board(board))
    click.echo(f"{counted(done.records, 'record')} converted: observations {done.before / 1e6:.1f} MB -> "
               f"{done.after / 1e6:.1f} MB, largest change of a score {done.moved:.1g}")  # fmt: skip


@leaderboard.command()
@BOARD
@click.option("--backbone", required=True, metavar="NAME", help="Of the entries with this backbone.")
@click.option("--tab", default="sts-spearman-all", show_default=True, help="A tab, by its name in the page's address.")
@click.option("--column", default="Avg", show_default=True)
@click.option("--output", metavar="FILE.png|.svg", type=click.Path(path_type=Path), default=Path("entries"),
              help="Where to write; without a suffix, both .png and .svg. Default: entries.")  # fmt: skip
def plot(board: Path | None, backbone: str, tab: str, column: str, output: Path) -> None:
    """Draw the measured entries on one backbone: a point for each seed, a bar at their mean."""
    from stsbench.leaderboard.page.entries_picture import figure
    from stsbench.leaderboard.records.paths import find_board
    from stsbench.plots.style import save, style, targets

    targets(output)  # a wrong suffix is an error before anything is read
    with style():
        for path in save(figure(find_board(board), backbone, tab, column), output):
            click.echo(str(path))


@leaderboard.command()
@BOARD
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free one.")
def serve(board: Path | None, port: int) -> None:
    """Show the built page at http://127.0.0.1:PORT/, to this machine only."""
    from stsbench.leaderboard.records.paths import find_board
    from stsbench.leaderboard.serve import serve as serving

    serving(find_board(board) / "site", port, lambda line: click.echo(line, err=True))
