"""A board of one's own: made by `init`, a table for each file's content and each language, rules that only it relaxes."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from board_runs import REVISION, read_once  # noqa: F401 - fixtures
from clirun import refuses
from mteb_folders import ITEMS, write

from stsbench import leaderboard
from stsbench.data.sets.catalog import AVERAGED, SEVERAL, set_language
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.plan import presets
from stsbench.evaluation.run_file import load_records
from stsbench.leaderboard.ranks.published_tabs import published_rows, published_tabs
from stsbench.leaderboard.records.board_settings import read_settings
from stsbench.leaderboard.records.paths import SHIPPED
from stsbench.leaderboard.records.publications import load_publications

pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
WORDS = ("parcel", "invoice", "account", "password", "printer", "contract")
MODELS = ("tfidf", "token-set")


def pairs(last, odd=0):
    """odd: of how many words the labels are turned round."""
    lines = [f"my {word} is {last},the {word} is {kind},{label ^ (i < odd)}" for i, word in enumerate(WORDS)
             for kind, label in ((last, 1), ("blue", 0))]
    return "\n".join(["text1,text2,label", *lines]) + "\n"


def scored():
    rows = [f"my {word} is lost,the {word} is {'lost' if i % 2 else 'blue'},{i % 4}" for i, word in enumerate(WORDS)]
    return "\n".join(["sentence1,sentence2,score", *rows]) + "\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two encoders on two files of pairs and one of scores, measured by a checkout with uncommitted changes."""
    folder = tmp_path_factory.mktemp("runs")
    for name, text in (("tickets", pairs("lost")), ("faq", pairs("late")), ("scored", scored())):
        (folder / f"{name}.csv").write_text(text)
    protocols = ["pairs:tickets.csv", "pairs:faq.csv", "sts:scored.csv"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("stsbench.evaluation.provenance.git_revision", lambda: REVISION + "+changes")
        results = {name: evaluate(f"lexical:{name}", output=folder / name, protocols=protocols) for name in MODELS}
    assert not any(result.failures for result in results.values())
    return {name: [result.folder] for name, result in results.items()}


def filled(board, runs, **settings):
    leaderboard.init(board, title="Tickets & <b>more</b>")
    if settings:
        (board / "board.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items()))
    for name, folder in ((name, folder) for name, folders in runs.items() for folder in folders):
        leaderboard.add(folder, name, board=board, method=name, backbone="words", setting="unsup")
    return board


def test_each_file_has_a_table_and_the_page_the_boards_name(runs, tmp_path):
    assert not (SHIPPED / "board.yaml").exists() and read_settings(SHIPPED) is None
    board = filled(tmp_path / "papers", {"tfidf": runs["tfidf"]}, published=True)
    loaded = leaderboard.load(board)
    assert any(tab.published for tab in loaded.tabs) and loaded.name == "Leaderboard"
    board = filled(tmp_path / "board", runs)
    leaderboard.build(board)
    index = json.loads((board / "site/index.json").read_text())
    assert index["name"] == "Tickets & <b>more</b>" and all(not tab["published"] for tab in index["tabs"])
    shown = {(tab["group"], tab["title"], tab["user_set"], tab["form"]): tab for tab in index["tabs"]}
    # no table of means over subsets: a file without any has one correlation
    assert list(shown) == [
        *(("sts", f"scored.csv, {metric}", "scored.csv", "scored.csv") for metric in ("Spearman", "Pearson")),
        *(("pairs", name, name, name) for name in ("faq.csv", "tickets.csv"))]
    pairs = shown["pairs", "faq.csv", "faq.csv", "faq.csv"]
    assert pairs["measured"] == 2 and pairs["digits"] == 2 and pairs["id"] == "pairs-faq-csv"
    assert {column["name"]: column.get("digits") for column in pairs["columns"]} == {
        "ap": None, "auc": None, "f1": None, "accuracy": None, "f1-threshold": 4, "accuracy-threshold": 4}
    page = (board / "site/index.html").read_text()
    assert "<h1>Tickets &amp; &lt;b&gt;more&lt;/b&gt;</h1>" in page and "<b>more" not in page
    assert (board / "site/leaderboard.md").read_text().startswith("# Tickets")
    (row, *_) = json.loads((board / "site" / pairs["file"]).read_text())["measured"]
    assert "measured by a checkout with uncommitted changes: nobody can repeat it" in row["marks"]


def test_only_a_board_that_says_so_takes_what_uncommitted_code_measured(runs, tmp_path):
    words, public = "uncommitted changes or new files", tmp_path / "public"
    refuses(StsbenchError, words, filled, tmp_path / "strict", {"tfidf": runs["tfidf"]}, uncommitted=False)
    (public / "measured").mkdir(parents=True)
    stated = {"method": "tf-idf", "backbone": "words", "setting": "unsup"}
    refuses(StsbenchError, words, leaderboard.add, runs["tfidf"][0], "tfidf", board=public, **stated)
    board = filled(tmp_path / "board", runs)
    assert len(leaderboard.load(board).entries) == 2  # scored, and kept in the cache
    shutil.copytree(board / "measured", public / "measured", dirs_exist_ok=True)
    shutil.copytree(board / "observations", public / "observations")
    refuses(StsbenchError, words, leaderboard.load, public)


def built(board, runs):
    leaderboard.build(filled(board, runs))
    return json.loads((board / "site/index.json").read_text())["tabs"]


def rows(board, tab):
    return {row["id"]: row for row in json.loads((board / "site" / tab["file"]).read_text())["measured"]}


def test_two_files_of_one_name_are_two_tables_and_one_content_of_two_names_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for month, odd in (("january", 0), ("february", 2)):
        (tmp_path / month).mkdir()
        (tmp_path / month / "pairs.csv").write_text(pairs("lost", odd))
    (tmp_path / "mails.tsv").write_text(pairs("blue ink").replace(",", "\t"))
    (tmp_path / "letters.csv").write_text(pairs("blue ink"))
    runs = {}
    for name, mails, same in zip(MODELS, ("mails.tsv", "letters.csv"), ("a.csv", "b.csv"), strict=True):
        (tmp_path / same).write_text(scored())
        wanted = ([f"pairs:{mails}", "pairs:january/pairs.csv", f"sts:{same}"], ["pairs:february/pairs.csv"])
        runs[name] = [evaluate(f"lexical:{name}", output=f"{name}{i}", protocols=some).folder
                      for i, some in enumerate(wanted)]
    tabs = built(tmp_path / "board", runs)
    ids = {record.data.id: record.scores[0].value for run in runs["tfidf"] for _, record in load_records(run)
           if record.data.task == "pairs.csv"}
    months = sorted(ids)
    assert len(set(ids.values())) == 2
    assert [tab["title"] for tab in tabs] == [
        "a.csv, Spearman", "a.csv, Pearson", "letters.csv", *(f"pairs.csv ({id[:12]})" for id in months)]
    assert all(tab["measured"] == 2 for tab in tabs)  # so are those of one content, whatever the file's name and form
    assert "the same data were also called mails.tsv" in tabs[2]["about"]
    assert [column["name"] for column in tabs[0]["columns"]] == ["Spearman"]
    for tab, id in zip(tabs[3:], months, strict=True):
        assert rows(tmp_path / "board", tab)["tfidf"]["scores"]["ap"][0] == pytest.approx(ids[id], abs=1e-4)


def test_a_folder_that_is_a_fetched_set_has_the_tables_of_its_languages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mails").mkdir()
    for language in ("de", "fr"):
        (tmp_path / f"mails/{language}.csv").write_text(scored().replace("lost", language))
    run = evaluate("lexical:tfidf", output="run", protocols=["sts:mails"])
    [record] = run.records
    source = SimpleNamespace(id=record.data.id, codes=("de", "fr"), title="Mails")
    monkeypatch.setattr("stsbench.data.sets.catalog.further_sources", lambda: {"mails": source})
    monkeypatch.setattr("stsbench.leaderboard.ranks.lines.data_remarks",
                        lambda _, set_id, rows: ["de: at most 85.0; less is shown" for row in rows if row.subset == "de"])
    tabs = {tab["id"]: tab for tab in built(tmp_path / "board", {"tfidf": [run.folder]})}
    assert tabs["sts-spearman-all-german"]["about"].endswith("were measured. Mails: at most 85.0.")
    assert tabs["sts-spearman-all-french"]["about"].endswith("were measured.")
    assert {tab["language"] for tab in tabs.values()} == {SEVERAL, "German", "French"}
    german = rows(tmp_path / "board", tabs["sts-spearman-all-german"])["tfidf"]["scores"]
    [expected] = [row.value for row in record.scores if (row.subset, row.metric) == ("de", "spearman")]
    assert german["Mails"][0] == pytest.approx(expected, abs=1e-4)


@pytest.fixture(scope="module")
def languages(tmp_path_factory):
    """A board on small copies of mteb's sets: one encoder by the preset `zh`, the other by tasks alone."""
    pytest.importorskip("mteb")
    folder = tmp_path_factory.mktemp("languages")
    for task in ("STS17", "KorSTS", *AVERAGED["Chinese"]):
        write(folder / "data", ITEMS[task])
    common, tasks = {"data_dir": folder / "data", "resamples": 200}, ["STS17", "KorSTS"]
    chinese = evaluate("lexical:char-ngrams", protocols=["zh"], output=folder / "zh", **common).folder
    several = evaluate("lexical:char-ngrams", protocols=["sts"], tasks=tasks, output=folder / "ko", **common).folder
    tasks += AVERAGED["Chinese"]
    other = evaluate("lexical:tfidf", protocols=["sts"], tasks=tasks, output=folder / "all", **common).folder
    runs = {"ngrams": [chinese, several], "tfidf": [other]}
    return folder, built(folder / "board", runs), runs


def test_each_language_has_a_table_in_words_and_in_order_and_the_scores_of_its_subset(languages):
    folder, tabs, runs = languages
    names = list(dict.fromkeys(tab["language"] for tab in tabs))
    pairs_ = ["Arabic and English", "Dutch and English", "English and French", "English and German", "English and Italian",
              "English and Spanish", "English and Turkish"]
    assert names == [SEVERAL, "Arabic", "Chinese", "English", "Korean", "Spanish", *pairs_]
    korean = next(tab for tab in tabs if tab["language"] == "Korean")
    assert korean["title"] == "Korean, counts not mteb's, Spearman"  # of the small copies
    assert [column["name"] for column in korean["columns"]] == ["STS17", "KorSTS"]
    assert korean["about"].endswith("Ranked by STS17.") and "Data: all sets of that language" in korean["about"]
    assert all("Data: sets of several languages" in tab["about"] for tab in tabs if tab["language"] == SEVERAL)
    assert all(tab["measured"] == 2 for tab in tabs if tab["metric"] == "spearman")
    compared = 0
    stored = [(entry, record, row) for entry, of_entry in runs.items() for run in of_entry
              for _, record in load_records(run) for row in record.scores]
    for entry, record, row in stored:
        language = set_language(record.data.id, row.subset)
        if language == SEVERAL or (row.subset is None and row.aggregation != "all"):
            continue
        (tab,) = (tab for tab in tabs if tab["language"] == language and tab["metric"] == row.metric)
        shown = rows(folder / "board", tab)[entry]["scores"][record.data.task]
        assert shown[:3] == pytest.approx([row.value, row.low, row.high], abs=0.006), (entry, row)
        assert shown[4] == row.n
        compared += 1
    assert compared == 2 * (11 + 1) * 2 + 5 + 2 * 5  # STS17's parts and KorSTS, both metrics; the five, of zh Spearman alone
    # The Chinese average is the preset's, however the sets were named.
    assert list(AVERAGED["Chinese"]) == presets()["zh"]["parts"][0]["settings"]["average"]
    (tab,) = (tab for tab in tabs if tab["language"] == "Chinese" and tab["metric"] == "spearman")
    assert tab["lead"] == "Avg" and tab["about"].endswith(f"Avg: the mean of {', '.join(AVERAGED['Chinese'])}.")
    for entry, of_entry in runs.items():
        scores = {record.data.task: row.value for run in of_entry for _, record in load_records(run)
                  for row in record.scores if (row.metric, row.aggregation) == ("spearman", "all")}
        row = rows(folder / "board", tab)[entry]
        value, low, high, *_ = row["scores"]["Avg"]
        assert value == pytest.approx(np.mean([scores[task] for task in AVERAGED["Chinese"]]), abs=0.011)
        assert low < value < high and row["rank"]


def test_papers_chinese_rows_have_a_table_of_their_own_or_stand_beside_the_measured():
    papers = [item for item in load_publications() if item.paper.id == "cosent-readme"]

    def chinese(*tabs):
        return published_tabs(published_rows([*tabs], papers), papers)

    (alone,) = chinese()
    assert (alone.title, alone.id, alone.lead) == ("Chinese, Spearman", "sts-spearman-all-chinese", "Avg")
    first = next(row for row in alone.published if row.id == "cosent-readme:README:1")
    assert first.cells["PAWSX"].value == 60.0 and first.cells["Avg"].value == 68.19 and len(alone.published) == 8
    (joined,) = chinese(replace(alone, columns=(*AVERAGED["Chinese"], "Avg"), published=()))
    assert [row.id for row in joined.published] == [row.id for row in alone.published]
    assert not published_rows([replace(alone, id="sts-spearman-all", language="", published=())], papers)[0][0].published
