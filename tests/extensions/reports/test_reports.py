"""Reports for papers: their numbers are those of the rows, and they say nothing that the records do not hold. Those on
docs/how-to/report.md are those that the commands above them print: `python tests/extensions/reports/test_reports.py`
writes them."""

import re
import shutil
from pathlib import Path

import pytest
from clirun import cli, place  # noqa: F401
from run_edits import edit_all
from sts_runs import sts_run, two  # noqa: F401

from stsbench import compare, evaluate, load
from stsbench.comparison import shared

FIXED = {"sample": True, "tasks": "STS-B", "resamples": 40, "no_cache": True}
pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return sts_run(folder / "a", 0.3), sts_run(folder / "b", 0.5, draw=1)


@pytest.fixture
def copies(runs, tmp_path):
    """Runs to be edited."""
    return [shutil.copytree(run, tmp_path / run.name) for run in runs]


def grid(text):
    """The cells of a report's first Markdown table, the header first."""
    first = text[text.index("| task"):].partition("\n\n")[0].splitlines()
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in first]
    assert len({len(line) for line in lines}) == 1 and lines[1][0] == "---"
    return [lines[0], *lines[2:]]


def one(pattern, text):
    matches = re.findall(pattern, text)
    assert len(matches) == 1, (pattern, matches)
    return [float(number) for number in (matches[0] if isinstance(matches[0], tuple) else matches)]


def test_the_numbers_of_the_paragraph_and_of_the_table_are_those_of_the_rows(runs):
    comparison = compare(*runs, resamples=60, seed=3, margin=30)
    text, rows = comparison.report(), comparison.to_arrow().to_pylist()
    average = rows[-1]
    assert average["task"] == "Avg" and len(rows) == 8
    assert one(r"On average A scores (\S+) and B (\S+) \(", text) == [round(average["a"], 2), round(average["b"], 2)]
    assert one(r"A is better than B on average by (\S+) points \(95 % interval (\S+) to (\S+)\)", text) == [
        round(average[key], 2) for key in ("difference", "low", "high")]
    over = comparison.tables[0].over_tasks
    assert one(r"A - B, 95 % interval (\S+) to (\S+); on", text) == [round(over.low, 2), round(over.high, 2)]
    least, most = (end(row["detectable"] for row in rows[:-1]) for end in (min, max))
    assert one(r"detectable difference is (\S+) points on average and (\S+) to (\S+) points on a single task", text) == [
        round(number, 2) for number in (average["detectable"], least, most)]
    assert "(60 resamples, seed 3)" in text and "Holm's method over the 7 tasks of the table" in text
    assert "margin of 30 is tested by two one-sided tests (TOST)" in text
    assert one(r"on average[^.]* 30 points: 90 % interval (\S+) to (\S+)\. Task", text) == [
        round(average["low_90"], 2), round(average["high_90"], 2)]
    assert "420 scored items in 7 sets" in text and "similarity cosine" in text and "text version senteval" in text
    header, *lines = grid(text)
    assert header[:5] == ["task", "n", "A", "B", r"A - B \[95 % interval\]"]
    for line, row in zip(lines, rows, strict=True):
        assert [line[0].removesuffix("-full"), line[1]] == [row["task"], str(row["n"])]
        assert [float(cell) for cell in line[2:4]] == [round(row[key], 2) for key in ("a", "b")]
        assert line[4] == f"{row['difference']:+.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        assert float(line[7]) == round(row["detectable"], 2)
    assert lines[-1][-1] == average["verdict"]


def test_what_a_record_has_is_said_and_what_it_lacks(copies):
    def change(row):
        row.record["encoder"]["spec"].update({
            "kind": "transformers", "prefix": "query: ", "template": None, "max_length": 32, "normalize": False,
            "dtype": "bfloat16", "post": "whitening", "fitted_on": "sts12/test@" + "ab" * 32})
        row.record["counts"] = {"truncated": 3 if row.record["data"]["task"] == "STS13" else 0}
        row.record["provenance"].update({
            "versions": {"stsbench": "9.8.7", "torch": "2.0"}, "device": "a card {0}", "git": "0123456789abcdef+changes",
            "recipe": "simcse/x", "seed": 7, "trained_on": ["sts12"]})

    edit_all(copies[0], change)
    shared = {"texts": 100, "exact": 2, "normalised": 1, "rows": 3}
    overlap = {"text": "wiki", "digest": "0" * 64, "looked_for": ["exact", "normalised"], "shared": {"sts12": shared},
               "none": ["sts13"], "not_looked_for": ["sts16"]}
    edit_all(copies[1], lambda row: row.record["provenance"].update({"recipe": "r", "training_overlap": [overlap]}))
    text = compare(*copies, resamples=40).report()
    a, b, *_ = text.split("\n\n")
    for words in ('prompt “query: ”', "at most 32 tokens", "vectors not normalised", "computed in bfloat16",
                  "post-processed by whitening", "It was fitted on the texts of sts12/test@abababababab", "transductive",
                  "It cut up to 3 texts of a set", "recipe simcse/x with the seed 7", "holds sentences of sts12"):
        assert words in a and words not in b, words
    assert "How its checkpoint was chosen is not recorded." in a
    assert ("A was measured with stsbench 9.8.7 (revision 0123456789ab with uncommitted changes) and torch 2.0, "
            "on a card {0}, on 20") in text
    assert "B was measured with versions that are not recorded" in text and "transformers 5" not in text
    assert "not recorded: prompt, limit on length, normalisation and precision" in b
    assert not any(words in b for words in ("no prompt", "vectors normalised", "It cut"))
    assert ("its training text wiki shares with test sets (exact, normalised): with sts12 (3 texts of 100); none "
            "with sts13; not looked for: sts16.") in b
    assert "It was trained by the recipe r; its seed is not recorded." in b


def test_several_seeds(two):
    folders, _ = two
    result = compare(*folders, resamples=60)
    text, row = result.report(), result.to_arrow().to_pylist()[0]
    assert "A is good (3 runs, whose scores are averaged)" in text
    assert "It was trained by the recipe good with the seeds 42, 43 and 44." in text
    assert "3 seeds of A and 3 of B, not paired" in text and "paired bootstrap" not in text
    assert one(r"On STS-B A scores (\S+) and B (\S+) \(60 items\)", text) == [round(row["a"], 2), round(row["b"], 2)]
    assert "there is nothing to correct for" in text and "Holm" not in text
    assert "compared seed by seed" in compare(*folders, resamples=60, by_seed=True).report()
    assert "Nothing is known of other seeds of A." in compare(folders[0][0], folders[1], resamples=60).report()


def test_lower_is_better(tmp_path):
    result = compare(*(evaluate(f"lexical:{name}", output=tmp_path / name, protocols="regression", **FIXED)
                       for name in ("tfidf", "token-set")), metric="mse", resamples=60)
    (row,), text = result.to_arrow().to_pylist(), result.report()
    better = "AB"[row["a"] > row["b"]]
    assert "Scores are mean squared error, lower is better." in text and " points" not in text and "TOST" not in text
    assert f"{better} is better than" in text or "do not differ significantly" in text
    a, b = one(r"On STS-B A scores (\S+) and B ([\d.]+) \(", text)
    assert [f"{a:.3f}", f"{b:.3f}"] == [f"{row['a']:.3f}", f"{row['b']:.3f}"]


def test_a_run_is_reported_with_the_numbers_of_its_rows(tmp_path, cli):
    run = evaluate("lexical:tfidf", output=tmp_path / "run", protocols="sts", **FIXED)
    first = next(row for row in run.rows if (row.metric, row.aggregation) == ("spearman", "all"))
    for text in (run.report(), load(tmp_path / "run").report()):
        assert one(r"The score of STS-B is (\S+) \(95 % interval (\S+) to (\S+)\)", text) == [
            round(first.value, 2), round(first.low, 2), round(first.high, 2)]
        assert "95 % intervals are from a bootstrap over the items (40 resamples); pairs that share a sentence" in text
        assert "stsbench 0" in text
        assert grid(text)[1][:3] == ["STS-B", "42", f"{first.value:.2f} [{first.low:.2f}, {first.high:.2f}]"]
    assert "No average for sts" in text
    assert cli("score", tmp_path / "run", "--report", "-")[:2] == (0, text)


def test_latex_is_balanced_and_escaped(copies, cli, place):
    edit_all(copies[0], lambda row: row.record["encoder"]["spec"].update({"name": "my_model & 50% #1 {x} ~^\\"}))
    text = compare(*copies, resamples=40).report("latex")
    code, out, _ = cli("compare", *copies, "--resamples", 40, "--report", "r.tex")
    assert code == 0 and "A - B" in out and (place / "r.tex").read_text("utf-8") == text
    assert re.findall(r"\\begin{(.*?)}", text) == ["table*", "tabular"] == re.findall(r"\\end{(.*?)}", text)[::-1]
    assert r"my\_model \& 50\% \#1 \{x\} \textasciitilde{}\textasciicircum{}\textbackslash{}" in text
    assert text.index("\\caption") < text.index("\\label") and text.startswith("% \\usepackage{booktabs,graphicx}\n")
    plain = re.sub(r"\\[&%$#_{}]|^%.*$|%$|\$(\\times|\\pm|-)\$", "", text, flags=re.M)
    assert not re.search("[%_$#~^]", plain) and plain.count("{") == plain.count("}")
    cells = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(cells) == 9 and {line.count("&") - line.count(r"\&") for line in cells} == {7}


ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/how-to/report.md"
RESAMPLES = 1000  # the usual number takes ten seconds
ENOUGH = 145  # resamples, for the same tasks to differ significantly
REPORT = re.compile(r"(?<=<!-- report: )(?P<a>\S+) (?P<b>\S+) -->\n(?P<text>.*?)(?=<!-- end of report -->)", re.DOTALL)


def quoted(a, b, resamples=RESAMPLES):
    """The report of two entries of the board, as the page has it."""
    measured = ROOT / "leaderboard/measured"
    lines = compare(measured / a, measured / b, protocols="sts", resamples=resamples).report().splitlines()
    return "\n".join(["", *(f"> {line}".rstrip() for line in lines), "", ""])


def outline(text):
    """Without the figures, many of which depend on the number of resamples."""
    return re.sub(r"\d+\.\d+|[\d,]+ resamples", "#", text)


def rows_of(text):
    """Task, number of items, both scores and their difference, of each row of the table."""
    return re.findall(r"^> \| (\S+ \| \d+ \| \S+ \| \S+ \| \S+) ", text, re.MULTILINE)


def test_the_page_has_what_the_command_prints(monkeypatch):
    monkeypatch.setattr(shared, "rescored", lambda path, record: (None, record.scores))  # the board's tests score them again
    page = PAGE.read_text("utf-8")
    [match] = REPORT.finditer(page)
    a, b = (f"leaderboard/measured/{match[side]}" for side in "ab")
    assert f"stsbench compare {a} {b} --protocol sts --resamples {RESAMPLES} --report -" in page
    made = quoted(match["a"], match["b"], ENOUGH)
    assert outline(match["text"]) == outline(made) and rows_of(match["text"]) == rows_of(made) and len(rows_of(made)) == 8


if __name__ == "__main__":
    page = REPORT.sub(lambda each: f"{each['a']} {each['b']} -->\n{quoted(each['a'], each['b'])}", PAGE.read_text("utf-8"))
    PAGE.write_text(page, "utf-8")
