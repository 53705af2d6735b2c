"""The board's functions against its commands: the same files, rows and words, and nothing printed."""

import inspect
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import warnings
from pathlib import Path

import pytest
from board_runs import checkout, own_runs, read_once, runs  # noqa: F401  fixtures
from clirun import cli, place  # noqa: F401  fixtures

import stsbench
from stsbench import leaderboard
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.evaluation.result import Result
from stsbench.leaderboard.command import leaderboard as commands

NEW = {"method": "my method", "backbone": "none", "setting": "unsup", "flag": "nli"}
WORDS = ("--entry", "new", "--method", "my method", "--backbone", "none", "--setting", "unsup", "--flag", "nli")
GIT = ("-c", "user.name=tester", "-c", "user.email=t@example.org")


@pytest.fixture(scope="module")
def made(own_runs, tmp_path_factory):
    """A checkout with a board of two entries."""
    home = tmp_path_factory.mktemp("checkout")
    for name in ("words", "noisy"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaderboard.add(own_runs[name], name, board=home / "leaderboard", method=name, backbone="none", setting="unsup")
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), (*GIT, "commit", "-qm", "board")):
        subprocess.run(["git", *command], cwd=home, check=True)
    return home


@pytest.fixture(autouse=True)
def _silent(request, capsys):
    """A function prints nothing."""
    yield
    if "cli" not in request.fixturenames:
        assert capsys.readouterr() == ("", "")


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("name", "renamed"), [
    ("build", {"only_check": "check", "every": "all"}), ("index", {}),
    ("add", {"slug": "entry"}), ("submit", {"slug": "entry", "commit": "open"}), ("placement", {}),
    ("serve", {}), ("init", {}),
])
def test_options_and_defaults_are_the_commands(name, renamed):
    options = {renamed.get(option.name, option.name): option for option in commands.commands[name].params}
    parameters = inspect.signature(getattr(leaderboard, name)).parameters
    assert options.keys() == parameters.keys()
    for key, parameter in parameters.items():
        if options[key].required:
            assert parameter.default is inspect.Parameter.empty
        else:
            default = options[key].to_info_dict()["default"]
            assert parameter.default == (() if options[key].multiple else default), key


def test_the_names_are_completed_and_the_door_is_light():
    assert {"build", "add", "submit", "placement", "load"} <= set(dir(leaderboard))
    assert all(getattr(leaderboard, name).__doc__ for name in leaderboard.__all__)
    code = ("import sys, stsbench; stsbench.leaderboard.__all__;"
            "assert not {'numpy', 'pydantic'} & set(sys.modules);"
            "from stsbench import leaderboard; import stsbench.leaderboard.command, stsbench.leaderboard.submission;"
            "assert all(callable(getattr(leaderboard, name)) for name in leaderboard.__all__)")
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'biuld'"):
        leaderboard.biuld  # noqa: B018


def test_a_build_is_the_command_s(checkout, cli):
    code, out, _ = cli("leaderboard", "build", "--output", "page")
    assert code == 0 and out
    built = leaderboard.build(output="other")
    assert files("other") == files("page")
    assert {str(path) for path in built.written} == {f"other/{name}" for name in files("page")}
    assert leaderboard.build("leaderboard", output=Path("other"), all=True).written == ()
    assert leaderboard.build(check=True).written == ()
    assert leaderboard.load().save("third") and files("third") == files("page")


def test_a_check_fails_with_the_command_s_words(checkout, cli):
    (checkout / "leaderboard/measured/words/entry.yaml").write_text("method: [\n")
    _, _, err = cli("leaderboard", "build", "--check")
    with pytest.raises(StsbenchError) as error:
        leaderboard.build(check=True)
    assert err == f"stsbench: error: {' '.join(str(error.value).split())}\n"
    with pytest.raises(StsbenchError, match="--check and --output exclude each other: it writes nothing"):
        leaderboard.build(check=True, output="page")


@pytest.mark.parametrize("form", [str, Path, lambda folder: [folder], Result])
def test_an_addition_is_the_command_s(own_runs, checkout, cli, tmp_path, form):
    shutil.copytree(checkout, tmp_path / "second")
    code, out, err = cli("leaderboard", "add", own_runs["letters"], *WORDS)
    assert code == 0 and "note: " in err
    with pytest.warns(StsbenchWarning, match="not the catalog's data") as heard:
        added = leaderboard.add(form(own_runs["letters"]), "new", board=tmp_path / "second/leaderboard", **NEW)
    assert {warning.filename for warning in heard} == {__file__}
    assert files(tmp_path / "second/leaderboard") == files("leaderboard")
    assert [f"note: {line}" for line in added.warnings] == [line for line in err.splitlines() if line.startswith("note: ")]
    assert sum(1 for _ in added.written) == int(out.rpartition(": ")[2].split()[0])


def test_what_the_command_refuses_is_refused(own_runs, checkout, cli):
    for arguments, options, says in [
        (WORDS[:2], {}, "is a new entry"), ((*WORDS[:4],), {"method": "my method"}, "needs --backbone, --setting too"),
    ]:
        _, _, err = cli("leaderboard", "add", own_runs["letters"], *arguments)
        with pytest.raises(StsbenchError, match=says) as error:
            leaderboard.add(own_runs["letters"], "new", **options)
        assert err == f"stsbench: error: {error.value}\n"
    for option, value in {"setting": "none", "flag": "nil", "best_of": 1}.items():
        with pytest.raises(StsbenchError, match=f"^--{option.replace('_', '-')}"):
            leaderboard.add(own_runs["letters"], "new", **{**NEW, option: value})
    with pytest.raises(StsbenchError, match="neither a run folder nor a result"):
        leaderboard.add(3, "new", **NEW)
    with pytest.raises(TypeError, match="unexpected keyword argument 'methd'"):
        leaderboard.add(own_runs["letters"], "new", methd="x")


def test_a_submission_and_a_placement_are_the_commands(own_runs, checkout, cli):
    code, out, _ = cli("leaderboard", "submit", own_runs["letters"], *WORDS)
    before = files("leaderboard")
    with pytest.warns(StsbenchWarning):
        submission = leaderboard.submit(own_runs["letters"], "new", **NEW)
    assert code == 0 and f"{submission}\n" == out and files("leaderboard") == before
    assert repr(submission).startswith("<Submission of new: ") and len(repr(submission)) < 100
    with pytest.warns(StsbenchWarning):
        assert leaderboard.submit(own_runs["letters"], "new", open=True, **NEW).branch == "entry-new"
    subprocess.run(["git", "switch", "-q", "entry-new"], check=True)
    code, out, _ = cli("leaderboard", "placement", "--since", "main")
    placement = leaderboard.placement("main")
    assert code == 0 and str(placement) == placement._repr_markdown_() == out
    frame = placement.to_frame()
    rows = [row for row in placement.board.tabs[0].measured if row.entry == "new"]
    assert (frame.entry == "new").all() and frame.value[0] == rows[0].cells["Avg"].value
    assert (frame["first"][0], frame["last"][0]) == (rows[0].rank.first, rows[0].rank.last)


def test_a_picture_is_written_where_it_is_asked_for(checkout):
    tab = leaderboard.load().tab().id
    axes = leaderboard.plot("none", (tab, "STS12"), tab=tab, output="two")
    assert (axes.get_xlabel(), axes.get_ylabel()) == (f"Avg ({tab})", f"STS12 ({tab})")
    leaderboard.plot("none", (tab, "STS12"), tab=tab)
    assert sorted(path.name for path in Path().glob("two.*")) == ["two.png", "two.svg"] and not [*Path().glob("entries*")]


def test_an_index_is_the_command_s(checkout, cli, tmp_path):
    shutil.copytree("leaderboard", tmp_path / "runs")
    code, out, _ = cli("leaderboard", "index", "--records", tmp_path / "runs")
    written = Path("leaderboard/records.sha256").read_bytes()
    index = leaderboard.index(tmp_path / "runs")
    assert code == 0 and out == f"leaderboard/records.sha256: {len(index.files)} files\n"
    assert Path("leaderboard/records.sha256").read_bytes() == written


def test_a_page_is_served_until_it_is_closed(checkout):
    leaderboard.build()
    with leaderboard.serve(port=0) as server:
        with urllib.request.urlopen(server.url, timeout=10) as answer:
            assert answer.read() == Path("leaderboard/site/index.html").read_bytes()
        assert server.url in server._repr_html_() and server.url in repr(server)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.url, timeout=10)


def test_the_functions_are_the_package_s():
    assert stsbench.leaderboard is leaderboard and "leaderboard" in dir(stsbench)
