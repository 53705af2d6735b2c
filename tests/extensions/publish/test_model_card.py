"""Model cards: every score arrives on the Hub, none merged, none under another's name; names stay text."""

import copy
import json
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import asdict
from pathlib import Path

import light_process
import pytest
import yaml
from board_runs import read_once  # noqa: F401  fixture
from clirun import cli as cli
from huggingface_hub import ModelCardData, metadata_load
from markdown_it import MarkdownIt
from mteb_run import hub_file, vectors
from prompted import models, rich  # noqa: F401  fixtures
from run_edits import edit, put_beside, rows_of

from stsbench import evaluate, load_encoder
from stsbench.data.fetch.mteb import undisturbed
from stsbench.data.sets.catalog import entry
from stsbench.errors import StsbenchError
from stsbench.evaluation import api
from stsbench.evaluation.api import EvalOptions
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.tables import interval
from stsbench.extensions.publish import model_card
from stsbench.extensions.publish.model_card import card, export_card
from stsbench.extensions.publish.model_index import _of_mteb, card_data
from stsbench.wording import without_paths

PLAIN = {"mse", "alignment", "uniformity", "anisotropy", "mean cosine", "effective rank"}  # not x 100

HUB_TYPE = re.compile(r"(?:[\w-]+/)?[\w.-]+", re.ASCII)  # the Hub's own check, as mteb's issue 1111 quotes it
NOT_COMPARABLE = "sample data: not comparable with published numbers"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The sample under three protocols: subsets, averages, scores that are no percentages, one task alone."""
    folder = tmp_path_factory.mktemp("card") / "run"
    protocols = ["sts", "retrieval", "geometry"]
    result = evaluate(vectors, output=folder, protocols=protocols, sample=True, resamples=60, no_cache=True)
    assert not result.failures
    return result.folder


@pytest.fixture(scope="module")
def scored(run):
    return score_again(run)


@pytest.fixture
def result(scored):
    """A copy, which a test may change."""
    return copy.deepcopy(scored)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """One task alone."""
    folder = tmp_path_factory.mktemp("small") / "run"
    return evaluate(vectors, output=folder, protocols=["retrieval"], sample=True, resamples=0, no_cache=True).folder


def loaded(folder):
    return ModelCardData(**metadata_load(folder / "README.md")).eval_results


def stored(run):
    """(record's name, score) of every score, as the file has it."""
    return [(row.name, score) for row in rows_of(run) for score in row.record["scores"]]


def printed(score):
    return round(score["value"], 3 if score["metric"] in PLAIN else 2)


def test_every_score_arrives_and_none_is_merged(run, result, tmp_path):
    [file], failures = export_card(run, tmp_path / "out", "model-card")
    assert file == tmp_path / "out" / "README.md" and failures == {} and [file] == list((tmp_path / "out").iterdir())
    results = loaded(tmp_path / "out")
    scores, averages = stored(run), result.summaries
    assert len(scores) > 70 and len(averages) == 12 and len(results) == len(scores) + len(averages)
    for stem, score in scores:
        [one] = [each for each in results if each.dataset_args.get("record") == stem
                 and re.match(rf"{score['metric']}\b", each.metric_name) and each.metric_config == score["aggregation"]
                 and each.metric_name.partition(", subset ")[2] == (score["subset"] or "")]
        assert one.metric_value == pytest.approx(printed(score), abs=1e-9)
        assert one.dataset_name == f"{score['task']} ({NOT_COMPARABLE})" and one.dataset_config == score["protocol"]
    for row in averages:
        how = "two-decimal" if row.task == "Avg" else "unrounded"
        [one] = [each for each in results if each.dataset_name.startswith("Average of STS12, ") and how in each.metric_name
                 and each.metric_config == row.aggregation and each.metric_name.startswith(row.metric)]
        assert one.metric_value == round(row.value, 2) and NOT_COMPARABLE in one.dataset_name
    assert all(each.verified is None and HUB_TYPE.fullmatch(each.dataset_type) for each in results)
    assert "verif" not in file.read_text() and not any("/" in each.dataset_type for each in results)
    names = [(each.unique_identifier, each.metric_type, each.metric_name) for each in results]
    assert len(set(names)) == len(names)
    # aggregations never look alike
    year = [each for each in results if each.dataset_type == "sample-sts12-test" and each.metric_config]
    assert {(each.metric_type, each.metric_config) for each in year} == {
        (f"cos_sim_{metric}{suffix}", how) for metric in ("spearman", "pearson")
        for how, suffix in (("all", ""), ("mean", "_mean"), ("wmean", "_wmean"))}
    assert all(f"({each.metric_config})" in each.metric_name for each in year)
    subsets = {each.metric_type for each in results if ", subset MSRvid" in each.metric_name}
    assert subsets == {"cos_sim_spearman_subset", "cos_sim_pearson_subset"}


def test_the_page_says_what_a_stranger_must_know(run, result):
    page = card(result).split("\n---\n", 1)[1]
    titles = re.findall(r"^### (.*)$", page, re.M)
    assert titles == [f"{name} ({NOT_COMPARABLE})" for name in ("sts", "retrieval", "geometry")]
    assert "**Sample data: not comparable" in page and "Anything published" in page
    assert result.records[0].encoder.fingerprint in page
    assert "callable" in page and "stsbench.evaluation.api.evaluate" in page
    for stem, score in stored(run):
        if score["subset"] is None:
            assert f" {score['value']:.{3 if score['metric'] in PLAIN else 2}f} " in page, stem
    for row in result.summaries:
        assert row.task == "Avg-full" or f" {row.value:.2f} |" in page
    rows = [row for row in (*result.rows, *result.summaries) if row.low is not None]
    first = [row for row in rows if (row.metric, row.aggregation, row.subset) == ("spearman", "all", None)]
    assert all(f" {interval(row)} |" in page for row in first)  # as a table of several tasks has them
    assert any((row.metric, row.aggregation, row.task) == ("spearman", "all", "Avg") for row in rows)
    assert "The STS average" not in page
    # what gave no score is said
    result.records = [each for each in result.records if each.protocol.name != "sts" or each.data.task != "STS12"]
    result.failures["sts STS12"] = "all | equal"
    page = card(result)
    assert "\nNot scored: sts STS12: all &#124; equal\n" in page
    assert "- The STS average: it is the mean of all its tasks" in page and "Average of" not in page


def test_two_measurements_of_one_set_stay_two(run, tmp_path):
    """Cosine and dot product in one folder: the same protocol, data and metric names."""
    options = {"sample": True, "resamples": 0, "no_cache": True}
    dot = evaluate(vectors, output=tmp_path / "dot", protocols=["sts"], similarity="dot", **options)
    both = put_beside(shutil.copytree(run, tmp_path / "both"), dot.folder)
    export_card(both, tmp_path / "out", "model-card")
    results = loaded(tmp_path / "out")
    assert len(results) == len(stored(both)) + 24
    values = {(stem, printed(score)) for stem, score in stored(both)}
    assert values == {(each.dataset_args["record"], each.metric_value) for each in results if "record" in each.dataset_args}
    averages = [each for each in results if each.dataset_name.startswith("Average")]
    assert {each.metric_type.rpartition("_spearman")[0] for each in averages} == {"cos_sim", "dot", ""}
    dots = [each for each in results if each.metric_name.startswith("spearman of dot")]
    assert dots and all(each.dataset_args["settings"] == {"similarity": "dot"} for each in dots)
    page = (tmp_path / "out" / "README.md").read_text()
    assert page.count("### sts (") == 2 and '"similarity": "dot"' in page


@pytest.mark.parametrize("known", [True, False])
def test_only_the_hub_s_own_file_is_called_the_hub_s(tmp_path, known):
    data = hub_file(tmp_path / "data", lock=known)
    options = {"text_version": "raw", "data_dir": data, "tasks": ["STS-B"], "resamples": 0, "no_cache": True}
    done = evaluate(vectors, output=tmp_path / "run", **options)
    results = card_data(score_again(done.folder)).eval_results
    hub = entry("stsb/test", "raw").hub
    actual = {(each.dataset_type, each.dataset_revision, each.dataset_split, each.dataset_name) for each in results}
    if known:
        assert actual == {(hub.repo, hub.revision, "test", "STS-B (raw text, the Hub's file)")}
    else:
        assert actual == {("unknown-raw-stsb-test", None, "test", "STS-B (raw text; files differ from the catalog)")}
    page = card(score_again(done.folder))
    assert ("not those that the catalog knows" in page) is not known and "The STS average" in page
    assert str(tmp_path) not in page


def test_a_user_s_own_folder_is_called_so(tmp_path):
    folder = tmp_path / "my: set"
    folder.mkdir()
    (folder / "queries.tsv").write_text("q1\tone\nq2\ttwo\n")
    (folder / "corpus.tsv").write_text("c1\tun\nc2\tdeux\nc3\ttrois\n")
    (folder / "relevance.tsv").write_text("q1\tc1\nq2\tc2\n")
    protocol = f"retrieval:{folder}"
    done = api.run(EvalOptions(model=vectors, output=tmp_path / "run", protocols=protocol, resamples=0, no_cache=True,
                           command=["stsbench", "eval", "--protocol", protocol]))
    results = card_data(score_again(done.folder)).eval_results
    assert {each.dataset_type for each in results} == {"own-own-my-set"}
    assert all("the user's own data" in each.dataset_name and each.dataset_revision is None for each in results)
    page = card(score_again(done.folder))
    assert "own:my: set is the user's own" in page and "'retrieval:my: set'" in page and str(tmp_path) not in page


def test_what_is_beside_the_scores(tmp_path):
    """An error is no percentage, and lower is better; rows of one item are counted once."""
    rows = [f"the sun {i}\tthe moon {i % 7}\t{i % 6}" for i in range(30)] * 3
    (tmp_path / "six.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    protocols = ["regression", f"sts:{tmp_path / 'six.tsv'}"]
    done = evaluate(vectors, protocols=protocols, tasks=["STS-B", "six.tsv"], sample=True, resamples=0,
                    output=tmp_path / "run", no_cache=True)
    page = card(score_again(done.folder))
    [row] = [row for row in done.rows if row.metric == "mse"]
    assert "Not x 100: mse. Lower is better: mse." in page and f" {row.value:.3f} " in page
    assert "90 rows of six.tsv are 30 different items" in page


def of_sts(result, *tasks):
    result.records = [each for each in result.records if each.protocol.name == "sts" and each.data.task in tasks]
    return result


def test_a_prompt_is_told_in_full(rich, result):
    for record in of_sts(result, "STS-B").records:
        record.encoder.spec |= asdict(load_encoder(str(rich[1])).spec)
    page = card(result)
    assert "| pooler | mask |" in page and "the cat of" in page and "prefix 3 and 2, averaged" in page


def test_an_encoder_fitted_on_the_test_texts_is_called_so(result):
    for record in of_sts(result, "STS12", "STS-B").records:
        record.encoder.spec["fitted_on"] = f"{record.data.id}@{'0' * 64}"
    [*measured] = (each for each in card_data(result).eval_results if not each.dataset_name.startswith("Average"))
    assert measured and all("fitted on these very texts" in each.dataset_name for each in measured)
    assert "(transductive)" in card(result) and "each test set's own texts" in card(result)


def test_test_texts_in_the_training_texts_are_counted(result):
    overlap = {"text": "my_notes.txt", "digest": "0" * 64, "looked_for": ["exact", "normalised"],
               "shared": {"sts12/test": {"texts": 40, "exact": 2, "normalised": 1, "rows": 4}},
               "none": ["stsb/test"], "not_looked_for": [], "sample": True}
    for record in of_sts(result, "STS12", "STS-B").records:
        record.provenance["training_overlap"] = [overlap]
    page = card(result)
    assert ("Encoders that never saw the test texts: this one was trained on my_notes.txt, which holds test texts: 3 of "
            "40 of sts12/test, as its training recorded (near duplicates were not looked for).") in page
    assert "known not to have seen" not in page
    overlap |= {"shared": {}, "none": [], "not_looked_for": ["sts12/test"]}
    page = card(of_sts(result, "STS12"))
    assert "Encoders that are known not to have seen the test texts: this one was trained on my_notes.txt, which was" in page
    assert "that never saw the test texts: this one was trained on" not in page


@pytest.mark.parametrize(("n", "overlap", "type", "said"), [
    (1379, [], "senteval-stsb-test", ""),
    (1300, ["stsb/train"], "senteval-stsb-test-part", "; without the pairs that share a sentence with stsb/train")])
def test_senteval_s_text_is_no_data_set_of_the_hub(result, n, overlap, type, said):
    [record] = of_sts(result, "STS-B").records
    record.data.text_version, record.data.n, record.protocol.settings["without_overlap"] = "senteval", n, overlap
    names = {(each.dataset_type, each.dataset_revision, each.dataset_name) for each in card_data(result).eval_results}
    assert names == {(type, None, f"STS-B (SentEval's text{said})")}
    page = card(result)
    assert ("were left out" in page) is bool(overlap) and "SentEval's text is tokenised" in page and "sample" not in page


def test_mteb_s_own_data_are_named_by_the_revision_they_were_loaded_at():
    def told(task, revision):
        result = json.dumps({"task_name": task, "dataset_revision": revision})
        return _of_mteb({"task_result": [result], "split": ["test", "test"]})

    assert told("Banking77Classification", "0" * 40) == {"task_type": "text-classification", "task_name": "Classification"}
    assert told("NoSuchTask", "0" * 40) == {}
    with undisturbed() as mteb:
        about = mteb.get_task("Banking77Classification").metadata.dataset
    actual = told("Banking77Classification", about["revision"])
    assert actual.pop("dataset_type") == about["path"] == "mteb/banking77"
    assert (actual["dataset_revision"], actual["dataset_split"]) == (about["revision"], "test")


NAMES = [
    "a|b`c`<script>alert(1)</script> '\" &amp; &lt;", "x\n---\ny: [1", "null", "\u202etxt\u2028\x85\ttail",
    "*b* _i_ [l](http://x.y) ![i](z) $$m$$ ~~s~~ @me", "\\|\\", "`", "é 漢字 🙂", "a: b # c <!-- d",
]
TAGS = {"body", "h1", "h2", "h3", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "strong", "pre", "code"}


def rendered(page):
    """The tags of a page, and the text of its title and of each table's cell."""
    markdown = MarkdownIt("commonmark", {"html": True, "xhtmlOut": True}).enable(["table", "strikethrough"])
    tree = ET.fromstring(f"<body>{markdown.render(page)}</body>")
    return {part.tag for part in tree.iter()}, ["".join(part.itertext()) for part in tree.iter() if part.tag in ("h1", "td")]


def test_a_model_s_name_stays_text(small):
    result = score_again(small)
    for name in NAMES:
        for record in result.records:
            record.encoder.spec |= {"name": name, "template": f"{name} [X]"}
            record.provenance["command"] = ["stsbench", "eval", "--model", name]
        text = card(result)
        _, front, page = re.split(r"^---$", text, maxsplit=2, flags=re.M)
        stored = yaml.safe_load(front)
        shown = stored["model-index"][0]["name"]
        assert shown == card_data(result).model_name and shown.isprintable()
        assert shown == name or not name.isprintable()
        tags, actual = rendered(page)
        assert tags <= TAGS
        assert actual[0] == shown and actual[actual.index("name") + 1] == shown
        assert json.loads(actual[actual.index("template") + 1].replace("\\x85", "\\u0085")) == f"{name} [X]"
        assert ModelCardData(**stored).eval_results


def test_paths_of_the_machine_are_left_out(small):
    for path, kept in (
        ("/home/me/models/mini", "mini"), ("words:/home/me/glove.txt", "words:glove.txt"), ("--to=/tmp/x/", "--to=x"),
        ("../shared/data", "data"), ("~/runs/a", "a"), ("~me/a/b", "b"), ("C:\\Users\\me\\m", "m"), ("file:///home/m", "m"),
        ("sts,retrieval:/home/me/q,mteb", "sts,retrieval:q,mteb"), ("words:/a/g.t?stop=/a/b/s.t", "words:g.t?stop=s.t")):
        assert without_paths(path) == kept
    for same in ("org/model", "sts:all", "python:a.b:c", ".5", "https://hf.co/a/b", "mteb:MTEB(eng, v2)"):
        assert without_paths(same) == same
    result = score_again(small)  # a template is no path
    result.records[0].provenance["command"] = ["stsbench", "eval", "--template", "/[X]/ means", "--model", "/home/me/it"]
    assert "--template '/[X]/ means' --model it\n" in card(result)


def test_either_file_has_the_same_metadata_and_an_edited_record_none(small, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a checkout may hold runs of its own
    copy = Path(shutil.copytree(small, tmp_path / "mine"))
    for target, name in model_card.FILES.items():
        assert cli("export", copy, "--to", target) == (0, f"{tmp_path / f'mine-{target}' / name}\n", "")
    alone = yaml.safe_load((tmp_path / "mine-model-index" / "model-index.yml").read_text())
    assert alone == metadata_load(tmp_path / "mine-model-card" / "README.md") and alone["model-index"][0]["results"]
    assert "library_name" not in alone and alone["tags"][0] == "sentence-similarity"
    edit(copy, lambda row: row.record["scores"][0].update(value=1.0))
    with pytest.raises(StsbenchError, match="edited"):
        export_card(copy, tmp_path / "out", "model-card")
    assert not (tmp_path / "out").exists()


def test_neither_torch_nor_mteb_is_loaded(run, tmp_path):
    code = (
        "import sys; from stsbench.extensions.publish.model_card import export_card; from pathlib import Path\n"
        "assert 'huggingface_hub' not in sys.modules\n"
        f"export_card(Path({str(run)!r}), Path({str(tmp_path / 'out')!r}), 'model-card')\n"
        "assert not {'torch', 'mteb', 'sklearn', 'matplotlib', 'transformers'} & set(sys.modules)\n")
    done = light_process.run(code)
    assert done.returncode == 0, done.stderr
