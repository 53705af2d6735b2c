"""The table of the findings' page on MiniLM: every measured row of its backbones under every protocol, in one line."""

from __future__ import annotations

from collections.abc import Collection

from stsbench.display.markup import pipes, plain_markdown
from stsbench.errors import StsbenchError
from stsbench.leaderboard.ranks.board import Board, Cell, Row, Tab
from stsbench.training.recipes.recipes import shipped_recipe

MINILM = ("MiniLM-L6", "all-MiniLM-L6-v2 + MLM, 32 tokens")
USUAL = "bert-base-uncased"  # a published figure of another backbone names it
STS = "sts-spearman-all"
# (tab, column, heading)
COLUMNS = (
    (STS, "Avg", "STS average"), ("regression-pearson", "STS-B", "STS-B, regression"),
    ("regression-accuracy", "SICK-E", "SICK-E"), ("transfer-accuracy", "Avg", "transfer"),
    ("transfer-accuracy-transfer-exact", "Avg", "transfer, exact"), ("retrieval", "recall@1", "recall@1"),
    ("geometry", "alignment", "alignment"), ("geometry", "uniformity", "uniformity"),
)


def backbone_table(board: Board, backbones: Collection[str] = MINILM) -> str:
    """Markdown: the rows of these backbones by their STS average, each with its pooler, what its recipe's paper prints for
    that average, and its scores, ± the standard deviation over seeds. Empty where a protocol was not measured."""
    tabs = {tab.id: tab for tab in board.tabs}
    cells = [{row.id: row.cells.get(column) for row in tabs[tab].measured} if tab in tabs else {}
             for tab, column, _ in COLUMNS]
    headings = [heading for _, _, heading in COLUMNS]
    grid = [["method", "pooler", headings[0], "published", *headings[1:]]]
    for row in tabs[STS].measured if STS in tabs else ():
        if row.backbone in backbones and row.best_of is None:
            scores = [_shown(column.get(row.id), tabs.get(tab)) for column, (tab, _, _) in zip(cells, COLUMNS, strict=True)]
            grid.append([plain_markdown(row.method), _pooler(board, row), scores[0], _published(board, row), *scores[1:]])
    return pipes(grid, 2) + "\n"


def _shown(cell: Cell | None, tab: Tab | None) -> str:
    if cell is None or tab is None:
        return ""
    return f"{cell.value:.{tab.digits}f}" + ("" if cell.sd is None else f" ± {cell.sd:.{tab.digits}f}")


def _pooler(board: Board, row: Row) -> str:
    encoders = [run["encoder"] for run in board.entries[row.entry].runs]
    return ", ".join(dict.fromkeys(plain_markdown(str(encoder["pooler"])) for encoder in encoders))


def _published(board: Board, row: Row) -> str:
    """The average of sts:all that the paper of the row's recipe prints, of BERT-base unless another model is named.

    Where a recipe has a twin NAME-released, which repeats the authors' code, the twin holds the scores."""
    name = board.entries[row.entry].recipe
    for twin in (name, f"{name}-released"):
        try:
            recipe = shipped_recipe(twin)
        except StsbenchError:
            continue
        averages = [figures.scores["Avg"] for figures in recipe.published
                    if figures.protocol == "sts:all" and figures.metric == "spearman" and "Avg" in figures.scores]
        if averages:
            model = recipe.backbone.model.rpartition("/")[2]
            return f"{averages[0]:.2f}" + ("" if model == USUAL else f" ({plain_markdown(model)})")
    return ""
