"""docs/how-to/adding-a-protocol.md: its code, installed as a package of someone else's, runs as the page says. A plug-in
whose score is an error: smaller is better wherever scores are printed, compared and ranked."""

import hashlib
import json
import re
import shlex
import sys
from pathlib import Path

import howto_protocol
import pytest
from board_runs import Letters
from click.testing import CliRunner
from howto_protocol import blocks

from stsbench import evaluate, registry
from stsbench.cli.main import cli
from stsbench.errors import StsbenchError
from stsbench.evaluation import load_records
from stsbench.evaluation.protocol import load_protocol
from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The page's module and its entry points, as pip leaves them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    with howto_protocol.installed(tmp_path / "site", monkeypatch):
        yield tmp_path


def run(line):
    words = shlex.split(line)
    assert words[0] == "stsbench"
    return CliRunner().invoke(cli, words[1:], standalone_mode=False)


def test_the_page_s_commands_run(installed):
    commands, _ = blocks("sh")
    for line in commands.splitlines():
        done = run(line)
        assert done.exception is None and not done.return_value, (line, done.output, done.exception)
        if "show" in line:
            shown = done.output
        if line.startswith("stsbench score"):
            assert "gold of the top" in done.output
    assert '- share = 0.1 (float, > 0, < 1): the share of the pairs that counts. Source: our choice.' in shown
    assert "- similarity = \"cosine\" ('cosine', 'dot'): " in shown and "- sts-top:half" in shown
    (_, record), = load_records(installed / "run")
    assert record.protocol.settings == {"share": 0.1, "similarity": "cosine"}
    (_, half), = load_records(installed / "half")
    assert half.protocol.settings == {"share": 0.5, "similarity": "dot"}
    assert 0 < record.scores[0].value <= 100 and record.scores[0].n == half.scores[0].n


def test_a_file_of_the_user_s_own_is_read(installed):
    _, command = blocks("sh")
    pairs = "sentence1,sentence2,score\na red cat,a red cat,5\na dog,a dog,3\na man,the park,0\nbig,blue food,1\n"
    (installed / "pairs.csv").write_text(pairs, "utf-8")
    done = run(command)
    assert done.exception is None and not done.return_value, (done.output, done.exception)
    (_, record), = load_records(installed / "own")
    assert record.protocol.settings == {"share": 0.5, "similarity": "cosine", "file": "pairs.csv"}
    assert record.data.id.startswith("own:") and record.data.task == "pairs.csv" and record.scores[0].value == 80
    missing = run("stsbench eval --model lexical:token-set --protocol sts-top-own:nothing.csv --output none")
    assert str(missing.exception) == "sts-top-own:nothing.csv: there is no file nothing.csv"
    of_catalog = run("stsbench eval --model lexical:token-set --protocol sts-top-own --sample --output sample")
    (_, sample), = load_records(installed / "sample")
    assert of_catalog.exception is None and "file" not in sample.protocol.settings and sample.data.id == "stsb/test"


CLASS = r"TopProtocol \(sts_top.py\)"
BEFORE = {  # what is replaced on the page, by what, the line that the command ends with: nothing was encoded
    "class": ("TopProtocol(Protocol)", "TopProtocol", "entry point sts-top: <class 'sts_top.TopProtocol'> is not a class"),
    "abstract": ("def observe", "def observed", f"{CLASS} does not define observe"),
    "no name": ('    name = "sts-top"\n', "", f"{CLASS} does not set name to a string"),
    "name": ('name = "sts-top"', 'name = "sts-bottom"', "entry point sts-top: TopProtocol.name is 'sts-bottom'"),
    "variant": ('{"share": 0.5}', '{"shar": 0.5}',
                rf"{CLASS}: variant 'half': protocol sts-top has no setting 'shar'; did you mean share\?"),
    "default": ("setting(0.1,", "setting(10,", f"{CLASS}: default settings: sts-top: share must be below 1, not 10"),
    "no metrics": ('    metrics: ClassVar = {"gold of the top": Metric(range=(0, 100))}\n', "",
                   rf"{CLASS} does not declare its metrics: set metrics to a dictionary, name -> Metric\(better=...\)"),
    "direction": ("Metric(range", "Metric('up', range",
                  r"the protocol 'sts-top' \(sts_top:TopProtocol\) failed .*better must be"),
    "no arrays": ("    arrays: ClassVar", "    others: ClassVar", f"{CLASS} does not declare its arrays: set arrays to a"),
    "kind": ('Array("float", "n", shared', 'Array("f", "n", shared', r"the protocol 'sts-top' .*kind must be one of "),
    "tasks": ('return {"STS-B": "stsb/test"}', 'return ["STS-B"]',
              f"{CLASS}: tasks must return a dict, task -> id of its set, not list")}
AFTER = {  # the same, the reason of the failure
    "observe": ("data.gold}", "data.golden}", r"TopProtocol.observe failed \(sts_top.py:35\): AttributeError: .*'golden'"),
    "dict": ("return Observations(", "return dict(", rf"{CLASS}: observe must return Observations\(arrays\), not dict"),
    "unknown array": ('"gold": data.gold}', '"gold": data.gold, "more": data.gold}',
                      f"{CLASS}: the observations hold more, which the protocol does not declare"),
    "shape": ('"gold": data.gold}', '"gold": data.gold[1:]}', rf"{CLASS}: gold of the observations has the shape \(\d+,\)"),
    "score": ("np.argsort", "np.sort_it", r"TopProtocol.score failed \(sts_top.py:42\): AttributeError: module"),
    "NaN": ("100 *", "np.nan *", f"{CLASS}: score of task STS-B is NaN"),
    "beyond": ("100 *", "101 * 5 *", f"{CLASS}: gold of the top of task STS-B is .*, outside of its range, 0 to 100"),
    "undeclared": ('self.row(task, "gold of the top"', 'self.row(task, "gold"',
                   f"{CLASS} declares no metric 'gold', only gold of the top"),
    "rows": ("return [self.row(", "return [0, self.row(", rf"{CLASS}: score must return a list of ScoreRow, not \[0, Sc"),
    "summarise": ("    def observe", "    def summarise(self, records):\n        raise KeyError('Avg')\n\n    def observe",
                  r"TopProtocol.summarise failed \(sts_top.py:34\): KeyError: 'Avg'")}


def change(folder, before, after):
    path = folder / "site" / "sts_top.py"
    code = path.read_text("utf-8")
    assert before in code
    path.write_text(code.replace(before, after), "utf-8")


@pytest.mark.parametrize("name", BEFORE)
def test_a_mistake_in_the_class_is_found_when_it_is_loaded(installed, name):
    before, after, message = BEFORE[name]
    change(installed, before, after)
    with pytest.raises(StsbenchError) as caught:
        load_protocol("sts-top")
    assert re.match(message, str(caught.value))
    if name == "name":
        with pytest.warns(UserWarning, match=message):
            assert "retrieval " in run("stsbench list protocols").output


@pytest.mark.parametrize("name", AFTER)
def test_a_mistake_in_its_arithmetic_is_a_failure_with_a_reason_and_other_protocols_go_on(installed, name):
    before, after, message = AFTER[name]
    change(installed, before, after)
    result = evaluate("lexical:token-set", protocols=["sts-top", "retrieval"], tasks="STS-B", sample=True, resamples=0)
    ((task, reason),) = result.failures.items()
    assert re.match(f"sts-top (STS-B|over its tasks): {message}", f"{task}: {reason}")
    measured = {record.protocol.name for record in result.records}
    assert measured == ({"retrieval", "sts-top"} if name == "summarise" else {"retrieval"})


def test_a_class_in_a_file_measures_without_an_installation(tmp_path, monkeypatch):
    file, word = tmp_path / "own.py", "./own.py:TopProtocol"
    file.write_text(blocks("python")[0], "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "_of_files", {})
    done = run(f"stsbench eval --model lexical:token-set --protocol {word} --sample --output run")
    assert done.exit_code == 0, done.output
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert load_records("run")[0][1].provenance["protocol_file"] == {"name": "own.py:TopProtocol", "sha256": digest}
    monkeypatch.setattr(registry, "_of_files", {})  # another process
    assert "unknown protocol 'sts-top'" in str(run("stsbench score run").exception)
    again = run(f"stsbench score run --protocol {word}")
    assert again.exit_code == 0 and again.stdout in done.stdout
    Path("later.py").write_text(file.read_text("utf-8") + "\n# another file\n", "utf-8")
    edited = run("stsbench score run --protocol ./later.py:TopProtocol")
    assert "was scored by own.py:TopProtocol, and what is called sts-top now is not the same file" in str(edited.exception)
    measure = "stsbench eval --model lexical:token-set --sample --protocol"
    for wrong, message in (("./own.py:Top", "has no class Top; did you mean"), ("./no.py:Top", "there is no file"),
                           ("./own.py:TopSettings", "is not a protocol: derive a class")):
        assert message in str(run(f"{measure} {wrong}").exception)
    file.write_text(file.read_text("utf-8").replace('name = "sts-top"', 'name = "sts"'), "utf-8")
    assert "its name, sts, is that of an installed one: give it another" in str(run(f"{measure} {word}").exception)


PLUGIN = '''
import numpy as np
from stsbench.evaluation import Array, Metric, Observations, Protocol, ScoreRow
from stsbench.metrics.similarity import paired_similarity

class ErrorProtocol(Protocol):
    """Mean distance of the cosine from the gold score, both from 0 to 1."""
    name = "sts-error"
    version = 1
    metrics = {"error": Metric(BETTER, 1, 4, (0, 2))}
    arrays = {"distance": Array("float", per_item=True), "gold": Array("float", shared=True)}

    def tasks(self):
        return {"STS-B": "stsb/test"}

    def observe(self, embed, data):
        cosine = paired_similarity(embed(data.first), embed(data.second))
        return Observations({"distance": np.abs(cosine - data.gold / 5), "gold": data.gold})

    def score(self, observations, data_id, task):
        each = observations.arrays["distance"]
        return [ScoreRow(protocol=self.label, task=task, metric="error", value=float(each.mean()), n=len(each))]

    def draws(self, observations, data_id, resamples, seed):
        each = observations.arrays["distance"]
        counts = np.random.default_rng(seed).multinomial(len(each), [1 / len(each)] * len(each), size=resamples)
        return {(None, None, "error"): counts @ each / len(each)}
'''


@pytest.fixture(params=["lower", "neither"])
def better(request, tmp_path, monkeypatch):
    """The plug-in is installed, whose error is better in this direction."""
    facts = tmp_path / "site" / "sts_error-1.0.dist-info"
    facts.mkdir(parents=True)
    (tmp_path / "site" / "sts_error.py").write_text(PLUGIN.replace("BETTER", repr(request.param)))
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: sts-error\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[stsbench.protocols]\nsts-error = sts_error:ErrorProtocol\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("stsbench.evaluation.provenance.git_revision", lambda: "0" * 40)
    registry._points.cache_clear()
    yield request.param
    registry._points.cache_clear()
    sys.modules.pop("sts_error", None)


def test_compare_table_and_board_say_which_error_is_better(better, tmp_path):
    """The smaller one, or none where it only describes, and then nothing is ranked."""
    runs = {name: evaluate(encoder, output=tmp_path / name, sample=True, protocols=["sts-error"], no_cache=True)
            for name, encoder in {"good": "lexical:token-set", "bad": Letters(0, 9.0)}.items()}
    assert runs["good"].rows[0].value < runs["bad"].rows[0].value - 0.05
    for name, result in runs.items():
        add(tmp_path / "board", [result.folder], name, Entry(method=name, backbone="none", setting="unsup"))
    board = gather(tmp_path / "board")
    (tab,) = [each for each in board.tabs if each.group == "sts-error"]
    done = run(f"stsbench compare {runs['bad'].folder} {runs['good'].folder} --resamples 200")
    said = " ".join(done.output.split())
    if better == "neither":
        assert "A is higher than B on STS-B" in said and "better" not in said
        assert {row.unranked for row in tab.measured} == {"not ranked: neither a higher nor a lower error is better"}
        assert not any(row.rank for row in tab.measured)
        return
    assert "sts-error: error, not x 100, lower is better" in said and "B is better than A on STS-B by 0." in said
    assert "points" not in said
    scored = run(f"stsbench score {runs['good'].folder}").output
    assert f"{runs['good'].rows[0].value:.4f}" in scored and "x 100" not in scored.replace("not x 100", "")
    assert [row.id for row in tab.measured] == ["good", "bad"] and [row.rank.position for row in tab.measured] == [1, 2]
    assert (tab.lower_is_better, tab.digits) == (True, 4)
    (column,) = next(each["columns"] for each in json.loads(site(board)["index.json"])["tabs"] if each["id"] == tab.id)
    assert column == {"name": "STS-B", "better": "lower", "lower_is_better": True}
    assert len(list((tmp_path / "board" / "observations").glob("sts-error.*.parquet"))) == 1  # what the data decide
