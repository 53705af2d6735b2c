"""docs/how-to/adding-a-method.md, run as it stands on a tiny model: its method as a file and as a package."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import howto_package
import numpy as np
import pytest
import tiny_models
from clirun import cli, place  # noqa: F401
from howto_package import FILES, PAGE
from sentence_transformers import SentenceTransformer

from stsbench import registry
from stsbench.errors import StsbenchError
from stsbench.files import sha256_file
from stsbench.training.recipes import methods
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.finish import load_trained

COMMANDS = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)).splitlines()
TRAIN, EVAL, EXPORT, RESUME, TRAIN_PACKAGE = COMMANDS
VIEWS, FORWARD, CALL = (code for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
                        if code not in FILES.values())
[PLAIN] = (code for code in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) if code not in FILES.values())


@pytest.fixture
def folder(place):
    tiny_models.build(place / "tiny", pooler=False, layers=1)
    for name in ("sbert.py", "sbert-nli.yaml", "pairs.csv"):
        (place / name).write_text(FILES[name], "utf-8")
    yield place
    methods.find_method.cache_clear()


@pytest.fixture
def package(folder, monkeypatch):
    code = howto_package.install(folder / "site")
    monkeypatch.syspath_prepend(str(folder / "site"))
    registry._points.cache_clear()
    yield code
    registry._points.cache_clear()
    for name in [name for name in sys.modules if name.startswith("stsbench_sbert")]:
        del sys.modules[name]


def words(command):
    """A line of the page for the tiny model, as arguments."""
    short = ["--device", "cpu", "--set", "backbone.max_length=32"] if " train " in command else []  # tiny has 64 positions
    return [*shlex.split(command.replace("minilm", "tiny"))[1:], *short]


def refused(cli, *arguments):
    code, _, err = cli(*arguments)
    line = err.splitlines()[-1]
    assert code == 1 and line.startswith("stsbench: error: "), err
    return line


def test_both_ways_train_the_same_encoder(cli, folder, package, capsys):
    for command in COMMANDS:
        code, _, err = cli(*words(command))
        assert code == 0, f"{command}\n{err}"
    weights = [Path(run, "best", "model.safetensors").read_bytes() for run in ("run", "packaged")]
    assert weights[0] == weights[1] and weights[0] != (folder / "tiny" / "model.safetensors").read_bytes()
    with pytest.raises(StsbenchError, match=r"run was trained by .*sbert.py:SBERT, a Python file, .* it is named: method="):
        load_trained(Path("run"))
    assert load_trained(Path("run"), method="./sbert.py:SBERT").vectors is not None
    vectors = SentenceTransformer("model").encode(["A boat lies upside down on the sand.", "There is a clock."])
    assert vectors.shape == (2, 32) and np.isfinite(vectors).all()
    summary = json.loads(Path("run/train.json").read_text("utf-8"))
    assert summary["method_file"] == sha256_file(folder / "sbert.py") and summary["stages"] == {"main": 2}
    assert "method_file" not in json.loads(Path("packaged/train.json").read_text("utf-8"))
    card = Path("run/best/README.md").read_text("utf-8")
    assert "# sbert.py:SBERT on" in card and str(folder) not in card
    exec(CALL, {})
    assert re.match(r"tensor\(\d+\.\d+", capsys.readouterr().out)


def test_the_parts_on_plain_text_make_a_method(cli, folder):
    head = (
        "import torch\nfrom torch.nn.functional import multi_margin_loss, normalize\n"
        "from stsbench.training.api import Method, Term, Views, gather\n\n\nclass SpanMask(Method):\n"
        '    """A span mask and a hinge."""\n\n')
    (folder / "spanmask.py").write_text(f"{head}{VIEWS}\n{FORWARD}")
    (folder / "spanmask.yaml").write_text(PLAIN)
    (folder / "sentences.txt").write_text("".join(f"{line.split(',')[1]}\n" for line in FILES["pairs.csv"].splitlines()))
    method = "./spanmask.py:SpanMask"
    trained = cli(*words(f"stsbench train {method} --recipe spanmask.yaml --backbone tiny --output plain"))
    assert trained[0] == 0, trained[2]
    [step] = [json.loads(line) for line in Path("plain/log.jsonl").read_text().splitlines() if '"train"' in line]
    assert step["gradient_norm"] > 0 and step["terms"]["hinge"] > 0
    code, out, _ = cli("show", "method", method)
    assert code == 0 and out.startswith("# spanmask.py:SpanMask\n\nA span mask and a hinge.\n") and "Stages: main" in out
    assert "name the method's class, too: sbert.py:CLASS" in refused(cli, "train", "sbert.py", "--labelled", "pairs.csv")
    assert load_recipe("./sbert.py:SBERT").method == f"{folder / 'sbert.py'}:SBERT"


def test_a_run_of_a_file_is_resumed_with_the_same_file_only(cli, folder):
    assert cli(*words(TRAIN), "--set", "selection.by=none")[0] == 0
    Path("run/train.json").unlink()
    again = [*words(TRAIN), "--set", "selection.by=none", "--resume"]
    assert cli(*again)[0] == 0
    method = folder / "sbert.py"
    method.write_text(FILES["sbert.py"] + "\n# changed\n")
    changed = "--resume: the method file is not what run began with"
    assert changed in refused(cli, *again)  # though the run is finished
    Path("run/train.json").unlink()
    shutil.rmtree("run/checkpoints")
    assert changed in refused(cli, *again)
    method.write_text(FILES["sbert.py"])
    code, _, err = cli(*again)
    assert code == 0 and "no checkpoint yet: the run begins again" in err
    Path("run/train.json").unlink()
    method.unlink()
    methods.find_method.cache_clear()
    assert "sbert.py:SBERT: there is no file" in refused(cli, *again)


MISTAKES = {  # before there is a run folder
    "no forward": ("def forward", "def backward", r"sbert.py:SBERT has no forward\(self, batch\)"),
    "no views": ('labelled="only"', 'labelled="none"',
                 r"SBERT \(sbert.py\): stage main trains on the recipe's data .*no views"),
    "no method": ("SBERT(Method)", "SBERT(nn.Module)", "sbert.py:SBERT is not a method: derive a class from"),
    "options": ("SBERTOptions(Options)", "SBERTOptions", "SBERT.Options must derive from stsbench.training.api.Options"),
    "no class": ("class SBERT(", "class SBart(", r"sbert.py has no class SBERT; did you mean SBart\?"),
    "syntax": ("def forward(", "def forward(:", r"sbert.py:SBERT failed to load: sbert.py:\d+: invalid syntax"),
    "recipe": ('default_recipe = "sbert-nli"', "", r"sbert.py:SBERT has no recipe that says how the tokens of tiny"),
    "recipe name": ('"sbert-nli"', '"sbert-nil"',
                    r"default_recipe 'sbert-nil': there is no sbert-nil.yaml in \S+work or \S+/recipes")}
LATE = {
    "hook": ("    def forward", "    def metrics(self):\n        return {}['x']\n\n    def forward",
             r"SBERT\.metrics failed .*\(sbert\.py:\d+\): KeyError: 'x'$"),
    "choice": ('labelled="only"', """labelled="only", labelled_usable=lambda rows: {}['x']""",
               r"SBERT\.needs\(\)\.labelled_usable failed .*\(sbert\.py:\d+\): KeyError: 'x'$"),
    "shape": ("3 * backbone", "2 * backbone",
              r"SBERT.forward failed at step 1 of stage main \(sbert.py:\d+\): RuntimeError: mat1"),
    "init": ("super().__init__(backbone, options)", "pass", r"SBERT.__init__ failed \(sbert.py:\d+\): AttributeError")}


@pytest.mark.parametrize("name", [*MISTAKES, *LATE])
def test_a_mistake_in_the_class_or_its_loss_is_one_line(cli, folder, name):
    """Those of the class before there is a run folder."""
    before, after, message = {**MISTAKES, **LATE}[name]
    assert before in FILES["sbert.py"]
    (folder / "sbert.py").write_text(FILES["sbert.py"].replace(before, after), "utf-8")
    assert re.search(message, refused(cli, *words(TRAIN), "--set", "selection.by=none"))
    assert name in LATE or not Path("run").exists()
