"""Sets from their authors' repositories: a server on this machine in the place of GitHub, with texts of our own."""

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from answers import answering
from clirun import cli, place  # noqa: F401  fixtures

from stsbench import evaluate, load_records
from stsbench.data.sets.catalog import LANGUAGES, entries
from stsbench.errors import DataError
from stsbench.extensions.repositories import sources as room
from stsbench.extensions.repositories.sources import SHAPES, sources


def _zipped(name, content):
    with zipfile.ZipFile(stream := io.BytesIO(), "w") as archive:
        archive.writestr(name, content)
    return stream.getvalue()


PAIR = {"sentence1": "Rain, in May.", "sentence2": "It rains.", "score": 3.5}
CHOICE = {"anchor": "Not wet.", "positive": "Dry.", "negative_1": "Not dry.", "negative_2": "Wet."}
FILES = {
    "columns": (b'"Rain, in May.",It rains.,3.5\n', PAIR),
    "semrel": (b'\xef\xbb\xbfText,Score,PairID\n"Rain, in May. \nIt rains.",3.5,x\n', PAIR),
    "jsts": (json.dumps({"sentence1": "Rain, in May.", "sentence2": "It rains.", "label": 3.5}).encode(), PAIR),
    "korsts": (b"genre\tscore\tsentence1\tsentence2\nnews\t3.5\t\"Rain, in May.\tIt rains.\n",
               {**PAIR, "sentence1": '"Rain, in May.'}),
    "choices": (json.dumps({"label": 1, "input": "Not wet.", "sentences": ["Not dry.", "Dry.", "Wet."]}).encode(), CHOICE),
    "csts": (_zipped("dataset/csts_validation_reannotated.csv",
                     "sentence1,sentence2,condition,label\nA cat.,A dog.,legs,5\n"),
             {"sentence1": "A cat.", "sentence2": "A dog.", "condition": "legs", "score": 5.0})}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_read_into_rows(shape):
    content, row = FILES[shape]
    assert list(SHAPES[shape](content)) == [row]


def _source(rows=2):
    file = ("Track B/x.csv", hashlib.sha256(FILES["semrel"][0]).hexdigest())
    return replace(sources()["semrel"], files={"afr": file, "tel": file}, rows=rows)


def test_a_set_is_fetched_once_at_its_commit_and_stays_where_fetching_it_again_fails(tmp_path):
    source, asked = _source(), []
    with answering(lambda path: asked.append(path) or FILES["semrel"][0]) as host:
        report = source.fetch(tmp_path, host=host)
        again = source.fetch(tmp_path, host=host)
    assert asked == [f"/{source.repository}/{source.commit}/Track%20B/x.csv"] * 2
    assert (report.installed, again.installed) == (("afr", "tel"), ())
    with answering(lambda _: b"other") as host, pytest.raises(DataError):
        source.fetch(tmp_path, host=host, force=True)
    assert [json.loads(line) for line in (source.path(tmp_path) / "tel.jsonl").read_text("utf-8").splitlines()] == [PAIR]


@pytest.mark.parametrize(("content", "rows", "message"), [
    (b"other", 2, "its sha256 differs"), (FILES["semrel"][0], 3, "2 rows in its files, not 3")])
def test_another_file_leaves_nothing(tmp_path, content, rows, message):
    with answering(lambda _: content) as host, pytest.raises(DataError, match=message):
        _source(rows).fetch(tmp_path, host=host)
    assert not (tmp_path / "repositories").exists() and not list(tmp_path.glob(".unpack-*"))


def test_the_command_fetches_and_says_how_to_measure(cli, tmp_path, monkeypatch):
    content = FILES["csts"][0]
    source = replace(sources()["csts"], files={"en": ("x.zip", hashlib.sha256(content).hexdigest())}, rows=1)
    monkeypatch.setattr("stsbench.data.fetch.download.further_sources", lambda: {"csts": source})
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path))
    with answering(lambda _: content) as host:
        monkeypatch.setattr(room.Source.fetch, "__kwdefaults__", {**room.Source.fetch.__kwdefaults__, "host": host})
        code, out, _ = cli("data", "fetch", "csts")
    assert code == 0 and "1 file installed" in out and "--set 'sts.condition=" in out


def test_every_source_is_described(cli):
    for name, source in sources().items():
        assert source.shape in SHAPES and source.protocol in ("sts", "triplets") and len(source.commit) == 40, name
        assert source.about and source.licence and source.citation and source.id.startswith("own:")
        assert all(len(digest) == 64 for _, digest in source.files.values())
    titles = [source.title for source in sources().values()]
    assert len(set(titles)) == len(titles) and not {*titles} & {item.task for item in (*entries(), *LANGUAGES)}
    _, listed, _ = cli("list", "data")
    assert all(name in listed for name in sources())
    assert "SemAntoNeg" in cli("show", "data", "semantoneg")[1]


def test_a_board_calls_a_set_by_its_title(cli, tmp_path, monkeypatch):
    """Whatever its folder was called, in the table of a language, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy").mkdir()
    for language in ("de", "nl"):
        rows = [{**PAIR, "sentence1": f"{language} {i}", "sentence2": f"{i % 7} {language} x", "score": i % 5}
                for i in range(40)]
        (tmp_path / "copy" / f"{language}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    evaluate("lexical:token-set", output="run", protocol="sts:copy", resamples=100)
    ((_, record),) = load_records(Path("run"))
    source = replace(sources()["semrel"], id=record.data.id, title="Two tongues", files={"de": ("", ""), "nl": ("", "")})
    monkeypatch.setattr("stsbench.data.sets.catalog.further_sources", lambda: {"semrel": source})
    about = ["--entry", "words", "--method", "words", "--backbone", "none", "--setting", "unsup"]
    for words in (["init", "board"], ["add", "run", "--board", "board", *about], ["build", "--board", "board"]):
        code, out, err = cli("leaderboard", *words)
        assert code == 0, out + err
    page = (tmp_path / "board/site/leaderboard.md").read_text()
    assert "German" in page and "Two tongues" in page and "copy" not in page
