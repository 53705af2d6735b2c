"""`sts:hf:OWNER/NAME`: a dataset of the Hub is read as its files are, at a commit that the record names."""

import gzip
import io
import json
from hashlib import sha1
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from answers import COMMIT, answering
from huggingface_hub import constants
from pyarrow import parquet, table

from stsbench import evaluate, load_records
from stsbench.data.own.relevance import read_relevance
from stsbench.data.own.sets import read_labelled_pairs, read_labelled_texts, read_scored_pairs, read_triplets
from stsbench.errors import DataError
from stsbench.evaluation.plan import user_protocol
from stsbench.evaluation.rescore import rescored
from stsbench.hub import no_downloads

ROWS = [("red cat", "red dog", 1.0), ("blue bird", "blue bird now", 4.5), ("a fish", "the moon", 0.0),
        ("two cats", "cats, two", 3.0)]
CSV = "".join(["sentence1,sentence2,score\n", *(f'"{a}","{b}",{score}\n' for a, b, score in ROWS)])
CONFIGS = """---
configs:
- {config_name: en, data_files: [{split: train, path: en/train-*}, {split: test, path: en/test-*}]}
- {config_name: de, data_files: [{split: dev, path: de/dev.csv}, {split: other, path: de/other.csv}]}
---
Some words.
"""


def packed(rows):
    stream = io.BytesIO()
    columns = dict(zip(("sentence1", "sentence2", "score"), map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(table(columns), stream)
    return stream.getvalue()


def answer(state, path):
    """What the Hub answers, by the files of `state.repositories`, OWNER/NAME -> path -> content."""
    state.asked.append(path)
    kind, *parts = urlsplit(path).path.strip("/").split("/")
    name, rest = "/".join(parts[1:3] if kind == "api" else parts[:2]), parts[3 if kind == "api" else 2:]
    if name in state.gated:
        return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, b""
    if name not in state.repositories:
        return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b""
    files = state.repositories[name]
    if rest[:1] == ["revision"] and rest[1] not in ("main", COMMIT):
        return 404, {"X-Error-Code": "RevisionNotFound"}, b""
    if rest[:1] in ([], ["revision"]):
        return json.dumps({"id": name, "sha": COMMIT, "siblings": [{"rfilename": at} for at in files]}).encode()
    if rest[0] == "tree":
        return json.dumps([{"type": "file", "path": at, "size": len(body), "oid": sha1(body).hexdigest()}
                           for at, body in files.items()]).encode()
    return files.get("/".join(rest[2:]), (404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b""))


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The Hub that its client asks; nothing of it is in the cache."""
    monkeypatch.chdir(tmp_path)
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    state = SimpleNamespace(asked=[], gated={"me/closed"})
    with answering(lambda path: answer(state, path)) as url:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        state.repositories = {
            "me/plain": {"README.md": b"no header", "test.csv": CSV.encode(), "train.csv": CSV.encode(), "LICENSE": b"x"},
            "me/single": {"pairs.csv": CSV.encode(), "LICENSE": b"x", "script.py": b"x"},
            "me/twice": {"test.csv": CSV.encode(), "test.jsonl": b"{}"},
            "me/packed": {"test.csv.gz": gzip.compress(CSV.encode())},
            "me/configs": {
                "README.md": CONFIGS.encode(), "en/train-0.parquet": packed(ROWS[:3]),
                "en/test-00000-of-00002.parquet": packed(ROWS[:2]), "en/test-00001-of-00002.parquet": packed(ROWS[2:]),
                "de/dev.csv": CSV.encode(), "de/other.csv": CSV.encode()},
            "me/pictures": {"train/a.png": b"x"}, "me/closed": {"test.csv": b""},
            "me/labels": {"test.csv": b"question1,question2,is_duplicate\na,b,1\nc,d,0\n"},
            "me/triplets": {"data/train.jsonl": b'{"anchor": "a", "positive": "b", "negative": "c"}\n'},
            "me/texts": {"train.csv": b"text,label\na,0\nb,1\n", "test.csv": b"text,label\nc,1\n",
                         "validation.csv": b"text,label\nd,0\n"}}
        yield state


SETS = {"corpus": [{"_id": "d1", "title": "", "text": "a cat"}, {"_id": "d2", "title": "", "text": "a dog"}],
        "queries": [{"_id": "q1", "text": "cat?"}], "qrels": [{"query-id": "q1", "corpus-id": "d1", "score": 1}]}


def retrieval_repository(language="", judged="qrels", readme=True):
    """A retrieval set's files, with judgements of dev that another split has not."""
    files, configs = {}, []
    for part, rows in SETS.items():
        split = "test" if part == "qrels" else part
        files |= {f"{language}{part}/{split}-00000-of-00001.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode()}
        name = judged if part == "qrels" else part
        configs.append(f"- config_name: {language}{name}\n  data_files:\n"
                       f"  - split: {split}\n    path: {language}{part}/{split}-*\n")
    files[f"{language}qrels/dev-00000-of-00001.jsonl"] = b'{"query-id": "q1", "corpus-id": "d2", "score": 1}\n'
    configs[-1] += f"  - split: dev\n    path: {language}qrels/dev-*\n"
    return ({"README.md": f"---\nconfigs:\n{''.join(configs)}---\n".encode()} if readme else {}) | files


def test_a_retrieval_set_of_the_hub(hub):
    plain, german, bare = retrieval_repository(), retrieval_repository("de-"), retrieval_repository(readme=False)
    for number, (repository, name, relevant) in enumerate((
        (plain, "hf:me/set", 0), (plain, "hf:me/set:dev", 1), (bare, "hf:me/set", 0),
        (retrieval_repository(judged="default"), f"hf:me/set@{COMMIT}", 0), (german, "hf:me/set:de:dev", 1))):
        hub.repositories[f"me/set{number}"] = repository
        name = name.replace("set", f"set{number}")
        data = read_relevance(Path(name))
        assert (data.queries, data.corpus, data.relevant) == (("cat?",), ("a cat", "a dog"), ((relevant,),))
        assert data.task == name and f"the Hub's me/set{number} at {COMMIT}" in data.origin
        with no_downloads(True):
            assert read_relevance(Path(name)).digest == data.digest


def test_a_retrieval_set_of_the_hub_is_refused_in_one_line(hub):
    with no_downloads(True), pytest.raises(DataError, match="hf:me/set is not in the Hub cache, and --offline forbids"):
        read_relevance(Path("hf:me/set"))
    german = retrieval_repository("de-")
    for number, (repository, name, why) in enumerate((
        ({}, "hf:me/set", "must hold queries.tsv"), (retrieval_repository(), "hf:me/set:nope", "there is no split nope"),
        (german, "hf:me/set", "it has several configurations: name one of de"),
        (german, "hf:me/set:fr", "there is no configuration fr: name one of de"),
        (retrieval_repository(), "hf:me/set:en:test", "there is no configuration en: it has none"),
        (retrieval_repository(judged="other"), "hf:me/set", "no configuration qrels of judgements"),
        (retrieval_repository(), "hf:me", "write hf:OWNER/NAME"))):
        hub.repositories[f"me/set{number}"] = repository
        with pytest.raises(DataError, match=why) as caught:
            read_relevance(Path(name.replace("set", f"set{number}")))
        assert "\n" not in str(caught.value)


def scored(name, columns=""):
    return read_scored_pairs(Path(name), columns)


def test_a_dataset_is_known_by_its_content_and_its_commit(hub):
    Path("plain.csv").write_text(CSV)
    local = read_scored_pairs(Path("plain.csv"))
    for name in ("hf:me/plain", "hf:me/packed", "hf:me/configs:en", f"hf:me/plain@{COMMIT}:train", "hf:me/configs:de:dev",
                 "hf:me/single"):
        data = scored(name)
        assert (data.id, data.digest, data.task) == (local.id, local.digest, name), name
    assert scored("hf:me/configs:en:test").origin == f"the Hub's me/configs at {COMMIT}, configuration en, split test"
    assert scored("hf:me/configs:en:train").id != local.id
    assert not any(path.endswith(("LICENSE", "script.py", "de/other.csv")) for path in hub.asked)


def test_the_other_kinds(hub):
    assert read_labelled_pairs(Path("hf:me/labels")).gold.tolist() == [1, 0]
    assert read_triplets(Path("hf:me/triplets")).anchor == ("a",)
    assert read_labelled_texts(Path("hf:me/texts")).splits == ("train", "train", "dev", "test")
    assert set(read_labelled_texts(Path("hf:me/texts:train")).splits) == {"all"}


def test_it_is_read_from_the_cache_without_network_and_half_of_a_split_is_refused(hub, tmp_path, monkeypatch):
    scored("hf:me/configs:en")
    asked = len(hub.asked)
    with no_downloads(True):
        assert len(scored("hf:me/configs:en")) == len(ROWS)
        for name, lacks in (("hf:me/plain", ""), ("hf:me/configs:de:dev", r": .*missing \(de/dev\.csv\).*")):
            offline = rf"^hf:me/\w+ is not in the Hub cache, and --offline forbids fetching it{lacks}$"
            with pytest.raises(DataError, match=offline):
                scored(name)
    assert len(hub.asked) == asked
    older = (tmp_path / "hub").rename(tmp_path / "older")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(older))
    for path in sorted(older.rglob("*")):
        if path.name == "test-00001-of-00002.parquet" or path.parent.name == "trees":
            path.unlink()  # as older clients leave it, which keep no list of the files
    with no_downloads(True), pytest.raises(DataError, match="the Hub cache holds only some of test-00000"):
        scored("hf:me/configs:en")


def test_what_cannot_be_had_is_one_line(hub):
    for name, message in (
        ("hf:plain", "hf:plain: write hf:OWNER/NAME, with @REVISION, :CONFIG and :SPLIT behind it"),
        ("hf:me/none", "hf:me/none: there is no such dataset on the Hub, or it is private: set HF_TOKEN"),
        ("hf:me/closed", "hf:me/closed is gated: accept its terms on the Hub and set HF_TOKEN"),
        ("hf:me/plain@v2", "hf:me/plain@v2: there is no such revision on the Hub"),
        ("hf:me/plain:fr:test", "hf:me/plain: there is no configuration fr: it has none: leave it out, hf:me/plain:test"),
        ("hf:me/configs", "hf:me/configs: it has several configurations: name one of en, de, as in hf:me/configs:en"),
        ("hf:me/configs:fr:test", "hf:me/configs: there is no configuration fr: it has en, de"),
        ("hf:me/configs:en:dev", "hf:me/configs:en:dev: there is no split dev; splits are train, test"),
        ("hf:me/configs:de", "hf:me/configs:de: it has no split test: name one of dev, other, as in hf:me/configs:de:dev"),
        ("hf:me/twice", "hf:me/twice: the same rows may be in its .csv and its .jsonl files: fetch and name one"),
        ("hf:me/pictures", "hf:me/pictures holds no .csv, .tsv, .jsonl, .json or .parquet file")):
        with pytest.raises(DataError) as error:
            scored(name)
        assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_the_protocol(hub):
    result = evaluate("lexical:token-set", output="run", protocol="sts:hf:me/configs:en", resamples=0)
    assert {row.task for row in result.rows} == {"hf:me/configs:en"}
    ((path, record),) = load_records(Path("run"))
    assert COMMIT in record.data.origin and record.protocol.label == "sts:hf:me/configs:en"
    assert rescored(path, record)[1] == record.scores
    again = evaluate("lexical:token-set", protocol="sts:hf:me/configs:en", resamples=0, offline=True)
    assert [row.value for row in again.rows] == [row.value for row in result.rows]
    assert user_protocol("sts:hf:me/configs", {}) and user_protocol("transfer:exact:hf:me/texts", {})
    assert user_protocol("sts:maen", {}) is None
