"""`stsbench identify` on the command line: table B.2 recognised, what it prints, says and refuses."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import light_process
import numpy as np
import pytest
from board_runs import read_once  # noqa: F401  fixture
from clirun import cli, fails, place  # noqa: F401 - fixtures
from run_edits import edit, rows_of
from synthetic_sts import B2, observations, said, write_run

from stsbench.leaderboard.identify.api import source
from stsbench.leaderboard.identify.numbers import ORDER
from stsbench.leaderboard.identify.observed import run_folders
from stsbench.leaderboard.records.publications import load_publications

WORDS = {"all": "sts: all, Spearman", "wmean": "sts: wmean, Spearman"}
PAPERS = {"all": {"sbert", "simcse"}, "wmean": {"whitening", "bert-flow"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run folders whose observations score as table B.2's models did, by name."""
    folder = tmp_path_factory.mktemp("b2")
    return {name: write_run(folder / name, observations(row["all"], row["wmean"])) for name, row in B2.items()}

def asked(cli, numbers, *models):
    """(the JSON, the text) that the command line gives."""
    names = [word for model in models for word in ("--model", model)]
    code, out, err = cli("identify", numbers, *names, "--json", "-")
    assert (code, err) == (0, "")
    code, text, _ = cli("identify", numbers, *names)
    assert code == 0
    return json.loads(out), text


@pytest.mark.parametrize("name", B2)
def test_what_a_paper_reported_in_table_b2_is_recognised(cli, runs, name):
    """SBERT's setting is all, BERT-whitening's wmean, though not all numbers were reproduced to the digit."""
    row = B2[name]
    found, text = asked(cli, said(row["reported"]), runs[name])
    first, second = found["settings"][:2]
    assert first["place"] == 1 and first["setting"][0].startswith(WORDS[row["is"]])
    assert PAPERS[row["is"]] <= set(first["papers"])
    assert (first["to_the_last_digit"], found["verdict"], found["indistinguishable"]) == (row["exact"], "nearest", 1)
    own = np.abs(np.array(row[row["is"]]) - row["reported"])
    assert first["mean_absolute_difference"] == pytest.approx(own.mean(), abs=0.006)
    assert first["largest_task"] == ORDER[own.argmax()]
    assert second["mean_absolute_difference"] > 2 * first["mean_absolute_difference"]
    assert text.splitlines()[-1].startswith("Nothing reproduces these numbers to the last digit: the nearest is sts: ")


@pytest.mark.parametrize("how", ["all", "wmean"])
@pytest.mark.parametrize("name", B2)
def test_what_was_reproduced_in_table_b2_is_said_to_be(cli, runs, name, how):
    found, text = asked(cli, said(B2[name][how]), runs[name])
    assert found["verdict"] == "reproduced" and found["indistinguishable"] == 1
    [setting] = found["settings"][0]["setting"]
    assert setting.startswith(WORDS[how])
    assert text.splitlines()[-1] == (
        f"These numbers are reproduced by {setting} (mean absolute difference 0.00, 7 of 7 tasks to the last digit)."
    )


def test_the_encoder_is_one_of_the_choices(cli, runs):
    """A parent folder of runs; the numbers of one model are found among three, under its setting."""
    found, text = asked(cli, said(B2["whitening-nli"]["wmean"]), runs["sbert"].parent)
    [setting] = found["settings"][0]["setting"]
    assert setting.startswith(WORDS["wmean"]) and "made_for_whitening-nli" in setting
    assert "made_for_sbert" in text
    assert run_folders(runs["sbert"].parent) == sorted(runs.values())


def test_a_published_row_by_its_id(cli, runs):
    [simcse] = [each for each in load_publications() if each.paper.id == "simcse"]
    row = next(row for row in simcse.rows if row.scores == B2["sbert"]["all"] and row.heading.table == "B.2")
    by_id, _ = asked(cli, row.id, runs["sbert"])
    typed, _ = asked(cli, said(row.scores), runs["sbert"])
    assert by_id == typed and by_id["verdict"] == "reproduced"
    dev = next(row for row in simcse.rows if row.heading.split == "dev")
    fails(cli("identify", dev.id, "--model", runs["sbert"]), dev.id, "holds no test scores of tasks")


def test_what_cannot_be_checked_is_said(cli, runs):
    _, text = asked(cli, said(B2["sbert"]["all"]), runs["sbert"])
    lines = [line for line in text.splitlines() if line.startswith("cannot be checked: ")]
    assert any(line.endswith("SICK-R by cosine on MTEB's pairs: no SICK-R-MTEB") for line in lines)
    assert any("of the trained regressor" in line and "no STS-B of regression" in line for line in lines)


def test_where_nothing_can_be_checked_it_failed(cli, runs):
    """The reasons, then one line; no table, no JSON."""
    nothing = "Nothing could be checked: every setting lacks an observation."
    for more in ((), ("--json", "-"), ("--json", "out.json")):
        outcome = cli("identify", "STS-B=76.98", "MR=80", "--model", runs["sbert"], *more)
        assert fails(outcome) == f"stsbench: error: {nothing}"
        assert all((line.startswith("cannot be checked: ") and "MR" in line) or line.startswith("and ")
                   for line in outcome[2].splitlines()[:-1]) and "no MR" in outcome[2]
    assert not Path("out.json").exists()


@pytest.mark.parametrize("text", [", " * 3000 + "x", "1, " * 3000 + "x", "1,2 , " * 3000 + "x", "- " * 3000 + "x"])
def test_a_long_row_is_refused_at_once(cli, runs, text):
    fails(cli("identify", "--model", runs["sbert"], "--", text))


def test_words_of_the_shell_are_numbers_each(cli, runs):
    row = [f"{number:.2f}" for number in B2["sbert"]["all"]]
    whole, _ = asked(cli, ",".join(row), runs["sbert"])
    for words in (row, [f"{text}," for text in row], [" & ".join(row) + r" \\"]):
        code, out, _ = cli("identify", *words, "--model", runs["sbert"], "--json", "-")
        assert (code, json.loads(out)) == (0, whole)
    code, out, _ = cli("identify", "--model", runs["sbert"], "--json", "-", "--", "-", *row[1:])
    found = json.loads(out)
    assert (code, found["not_printed"], list(found["numbers"])) == (0, ["STS12"], list(ORDER[1:]))
    code, out, _ = cli("identify", *[f"{task}={text}" for task, text in zip(ORDER, row, strict=True)],
                       "--model", runs["sbert"], "--json", "-")
    assert (code, json.loads(out)) == (0, whole)


def test_a_table_says_how_much_it_leaves_out(cli, runs):
    found, text = asked(cli, said(B2["sbert"]["all"]), runs["sbert"])
    rows = len(found["settings"])
    for top, line in ((rows - 1, "1 more setting is further off"), (rows - 2, "2 more settings are further off")):
        assert line in cli("identify", said(B2["sbert"]["all"]), "--model", runs["sbert"], "--top", top)[1]
    assert "further off" not in text


# What is neither a run nor a model --------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A Hub on this machine that knows no model but some/model, and an empty cache. Returns the paths it was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.startswith("/api/models"):  # not what the library asks for itself, once a day
                asked.append(self.path)
            known = self.path == "/api/models/some/model"
            self.send_response(200 if known else 404)
            if not known:
                self.send_header("X-Error-Code", "RepoNotFound")
            body = b'{"id": "some/model", "siblings": []}'
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("nosuch", "no such model on the Hub"), ("no/such", "no such model on the Hub"),
        ("empty", "the folder holds no record"), ("file.txt", "it is a file"),
        ("./nosuch", "not a Hub id"), ("a/b/c", "not a Hub id"), ("~/nosuch", "not a Hub id"),
    ],
)
def test_a_model_is_looked_at_before_the_data(cli, hub, model, why):
    """There are no data in this place: what is said is of the model."""
    Path("empty").mkdir()
    Path("file.txt").write_text("x")
    parts = (f"--model {model} is neither a run folder nor a model: ", why, "; give a folder with a run's records")
    line = fails(cli("identify", "STS12=72.37", "--model", model), *parts)
    assert "sts12" not in line and bool(hub) == ("on the Hub" in why)


def test_models_of_other_kinds_are_looked_at_first_too(cli, monkeypatch):
    monkeypatch.setattr("stsbench.encoders.transformer.find._candidates", lambda: iter(()))
    assert "sts12" not in fails(cli("identify", "STS12=72.37", "--model", "minilm"), "is not installed")
    for model, part in (("lexical:nosuch", "unknown encoder"), ("lexcal:tfidf", "did you mean 'lexical:'?"),
                        ("vectors:none.npz", "none.npz"), ("python:mine_cli:nothing", "nothing")):
        assert "sts12" not in fails(cli("identify", "STS12=72.37", "--model", model), part)
    fails(cli("identify", "STS12=72.37", "--model", "lexical:tfidf", "--pooler", "cls"), "--pooler does not apply")


def test_a_model_on_the_hub_is_not_fetched_before_the_data_are_found(hub):
    assert source("some/model", None) == "some/model" and hub == ["/api/models/some/model"]


def test_a_hub_that_cannot_be_asked(cli, hub, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        fails(cli("identify", "STS12=72.37", "--model", "nosuch"), "not in the Hub cache, and the Hub cannot be asked")


def test_settings_that_these_tasks_do_not_tell_apart_share_a_line(cli, runs):
    found, text = asked(cli, "STS-B=76.98", runs["sbert"])
    assert found["settings"][0]["setting"][0].startswith("sts: all, mean or wmean, Spearman; STS-B by cosine")
    assert "cannot be distinguished by these tasks" in text
    assert {*PAPERS["all"], *PAPERS["wmean"]} <= set(found["settings"][0]["papers"])
    assert "a match may be chance" in found["sentence"]


def test_far_numbers_are_reproduced_by_nothing(cli, runs):
    found, text = asked(cli, "11,12,13,14,15,16,17", runs["sbert"])
    assert found["verdict"] == "nearest" and found["indistinguishable"] > 1
    assert "It cannot be distinguished from" in text


def test_shares_are_recognised_and_compared_in_points(cli, runs):
    row = B2["sbert"]["all"]
    found, text = asked(cli, ",".join(f"{number / 100:.4f}" for number in row), runs["sbert"])
    assert found["verdict"] == "reproduced" and found["share"] and "read as shares" in text
    plain, _ = asked(cli, said(row), runs["sbert"])
    for one, other in zip(found["settings"], plain["settings"], strict=True):
        assert one["setting"] == other["setting"]
        assert one["mean_absolute_difference"] == pytest.approx(other["mean_absolute_difference"], abs=1e-9)


def test_an_edited_record_is_refused(cli, tmp_path):
    run = write_run(tmp_path / "run", observations(B2["sbert"]["all"], B2["sbert"]["wmean"]))
    (name,) = (row.name for row in rows_of(run) if row.name.startswith("sts.sts12-"))
    path = edit(run, lambda row: row.record["scores"][-1].update(value=row.record["scores"][-1]["value"] + 0.01), name)
    fails(cli("identify", "STS12=70.97", "--model", run), path.name, "was edited")


def test_a_wrong_average_is_said(cli, runs):
    """SBERT prints 74.89 where its columns give 74.86."""
    _, text = asked(cli, said((*B2["sbert"]["reported"], 74.89)), runs["sbert"])
    assert "Note: the average given, 74.89, is not the mean of the seven numbers, 74.86." in text
    _, text = asked(cli, said((*B2["sbert"]["reported"], 74.86)), runs["sbert"])
    assert "Note" not in text


@pytest.mark.parametrize(
    ("numbers", "parts"),
    [
        ("72.37,80.60", ("2 numbers without names", " ".join(ORDER))), ("72.37", ("1 number without a name",)),
        ("STS12=x", ("STS12=x", "not a number")), ("STS12=1,sts12=2", ("STS12 is given twice",)),
        ("STS12=1,STS12=2", ("STS12 is given twice",)), ("=3", ("empty name",)), ("SST=3", ("did you mean", "SST2")),
        ("STS12/part 9=3", ("did you mean", "STS12/part")), ("hello", ("not understood", "TASK=NUMBER")),
        ("none.csv", ("cannot read none.csv",)), ("simcse:B.2:99", ("B.2", "99")),
        ("hello", ("by commas, spaces, tabs, & or |",)), ("70,80,x", ("'x' is not a number", "by commas, spaces")),
        ("& 1 & 2 & 3 & 4 & 5 & 6 & 7", ("nothing stands before the first separator",)), ("", ("not understood",)),
        ("\t1\t2\t3\t4\t5\t6\t7", ("nothing stands before the first separator",)), (" -,-", ("not understood",)),
        ("|  | 1 | 2 | 3 | 4 | 5 | 6 | 7 |", ("nothing stands before the first separator",)),
        ("STS12=72,37", ("'37' has no name", "with a decimal point as in STS12=72.37")), ("STS12=-", ("holds no number",)),
        ("72,37,80,60,75,59,85,39", ("may be 72.37, 80.60, 75.59, 85.39 with decimal commas: write 72.37",)),
        ("7237,80,75,85,78,82,77", ("STS12=7237 is impossible", "beyond 100")),
        ("70,80,75,85,78,82,100.5", ("SICK-R=100.5 is impossible",)), ("STS13=-100.01", ("STS13=-100.01 is impossible",)),
        ("1,2,3,4,5,6,7,101.0", ("Avg=101.0 is impossible",)),
    ],
)
def test_numbers_that_are_none(cli, runs, numbers, parts):
    fails(cli("identify", numbers, "--model", runs["sbert"]), *parts)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("n.json", "[1, 2]", ("n.json", "one object")), ("n.json", "{", ("n.json",)), ("n.json", "{}", ("holds no number",)),
        ("n.json", '{"STS12": null}', ("n.json, STS12", "null")), ("n.csv", "STS12,1\nSTS13\n", ("line 2",)),
        ("n.csv", "STS12,1\nSTS13,two\n", ("n.csv, line 2", "two")), ("n.csv", "STS12,1\nSTS12,2\n", ("n.csv", "twice")),
        ("n.yaml", "- 1", ("n.yaml", "one mapping")), ("n.yaml", "STS12: [1]", ("n.yaml, line 1",)),
    ],
)
def test_files_that_cannot_be_read_are_named(cli, runs, name, content, parts):
    Path(name).write_text(content)
    fails(cli("identify", name, "--model", runs["sbert"]), *parts)


def test_a_model_is_measured_first(cli):
    models = ("--model", "lexical:token-set", "--model", "python:mine_cli:hashed")
    code, out, err = cli("identify", "STS-B=50.00", *models, "--sample")
    assert code == 0 and "sample data: not comparable with published numbers" in out
    runs = [line.removeprefix("run: ") for line in err.splitlines() if line.startswith("run: ")]
    records = [sorted(row.name.split(".")[0] for row in rows_of(run)) for run in runs]
    assert records == [["regression", "sts"]] * 2
    again = cli("identify", "STS-B=50.00", "--model", "runs")
    assert (again[0], sorted(again[1].splitlines()[-1].split())) == (0, sorted(out.splitlines()[-1].split()))


def test_options_that_do_not_apply_are_refused(cli, runs):
    for option in (("--pooler", "cls"), ("--sample",), ("--data-dir", ".")):
        code, out, err = cli("identify", "STS-B=50.00", "--model", runs["sbert"], *option)
        assert (code, out) == (2, "") and f"{option[0]} does not apply to run folders" in err
    fails(cli("identify", "STS-B=50.00", "--model", "./nowhere"), "./nowhere", "no such folder")
    fails(cli("identify", "STS-B=193.8", "--model", "lexical:token-set"), "STS-B=193.8 is impossible")
    fails(cli("identify", "STS-C=50.00", "--model", "lexical:token-set", "--sample"), "did you mean", "STS-B")


def test_torch_is_not_loaded_for_a_run(runs):
    code = (
        "import sys\n"
        "from stsbench.cli.main import main\n"
        "for numbers, code in (('STS-B=76.98', 0), ('STS-B=76.98,MR=80', 1)):\n"
        "    sys.argv = ['stsbench', 'identify', numbers, '--model', " + repr(str(runs["sbert"])) + "]\n"
        "    try: main()\n"
        "    except SystemExit as stop: assert stop.code == code\n"
        "    else: raise AssertionError('no exit')\n"
        "assert not {'torch', 'transformers', 'sklearn', 'mteb', 'matplotlib'} & set(sys.modules)\n"
    )
    done = light_process.run(code)
    assert done.returncode == 0, done.stderr
