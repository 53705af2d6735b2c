"""What a board takes: forged records, made consistent in everything but the data, are refused by name, and so are names that
would mislead, or they are shown as what they are."""

import csv
import io
import re
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import board_example
import numpy as np
import pytest
import yaml
from board_refusals import SHA, fit, forged, mteb, regression, transfer
from board_runs import copied, entry, own_runs, read_once, runs  # noqa: F401 - fixtures
from clirun import refuses
from core_protocols import core_protocols
from run_edits import edit_all

from stsbench.data.sets.catalog import catalog, entries
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.run_file import RUN, load_records, read_observations, write_run
from stsbench.leaderboard.page.tables import csv_table, latex_tables, markdown_tables
from stsbench.leaderboard.ranks.board import Board
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records import admission
from stsbench.leaderboard.records.add import add, described
from stsbench.leaderboard.records.entries import read_entry, refuse_equal_names


def loaded(folder, pattern="*"):
    """(record, observations) of a run's records."""
    return [(record, read_observations(folder, record)) for path, record in load_records(folder) if path.match(pattern)]


@pytest.fixture(scope="module")
def known_runs(own_runs, tmp_path_factory):
    """Runs on invented data that call these known, by name."""
    place = tmp_path_factory.mktemp("known")
    for name in ("letters", "words"):
        items = loaded(own_runs[name])
        for record, observations in items:
            record.data.known = True
            fit(record, observations)
        write_run(place / name / RUN, items)
    return place


@pytest.fixture(scope="module")
def learnt(known_runs, tmp_path_factory):
    """A catalog of their own that knows the data of these runs, and a file of what they decide, learnt from one of them."""
    real, changed, path = catalog(), {}, tmp_path_factory.mktemp("learnt") / "expected.yaml"
    for record, _ in loaded(known_runs / "letters"):
        key = (record.data.id, record.data.text_version)
        changed[key] = replace(real.entries[key], digest=record.data.digest, total=record.data.n, counts=record.data.subsets)
    own = SimpleNamespace(entries={**real.entries, **changed})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "catalog", lambda: own)
        admission.learn([known_runs / "words"], path)
    return own, path


@pytest.fixture
def honest(known_runs, learnt, monkeypatch):
    """A run on invented data, the other one of `known_runs`, which that catalog knows."""
    monkeypatch.setattr(admission, "catalog", lambda: learnt[0])
    monkeypatch.setattr(admission, "EXPECTED", learnt[1])
    admission.expected.cache_clear()
    yield known_runs / "letters"
    admission.expected.cache_clear()


@pytest.fixture
def refused(tmp_path):
    folders = count()

    def refused(record, observations):
        path = forged(tmp_path / f"forged-{next(folders)}", record, observations)
        return refuses(StsbenchError, f"^{re.escape(str(path))}", admission.check_record, path, record)

    return refused


def test_pairs_that_were_picked_are_refused(honest, refused):
    """The items that the encoder has right, four in five."""
    record, observations = loaded(honest, "sts.stsb*")[0]
    arrays = observations.arrays
    ranks = [np.argsort(np.argsort(arrays[name])) for name in ("similarity", "gold")]
    kept = np.sort(np.argsort(np.abs(ranks[0] - ranks[1]))[: int(0.8 * len(ranks[0]))])
    easy = Observations({name: array[kept] for name, array in arrays.items()}, observations.names)
    assert "does not fit the set's items" in refused(record, easy)
    record.data.n = len(kept)
    record.data.subsets = {name: record.data.n for name in record.data.subsets}
    assert "was edited: data: stsb/test has" in refused(record, easy)


def rolled(name):
    return lambda arrays: arrays.update({name: np.roll(arrays[name], 1)})


def test_other_answers_items_or_subsets_are_refused(honest, refused):
    for pattern, forge, part in (
        ("sts.stsb*", lambda arrays: arrays.update(gold=arrays["similarity"] * 5), "gold"),
        ("sts.sts12*", rolled("gold"), "gold"), ("sts.sts12*", rolled("subset"), "subset"),
        ("sts.sts12*", rolled("pair"), "pair"),
        ("retrieval*", lambda arrays: arrays.update(corpus=arrays["corpus"] + 1), "duplicates merge"),
        ("retrieval*", rolled("query"), "duplicates merge"), ("retrieval*", rolled("group"), "duplicates merge"),
        ("geometry*", rolled("gold"), "gold")):
        record, observations = loaded(honest, pattern)[0]
        forge(observations.arrays)
        message = refused(record, observations)
        assert f" not of {record.data.id}: right answers, items, subsets or folds are others (" in message
        assert message.endswith(f"{part})"), (pattern, part)
    # Subsets of other names or sizes, and cosines beyond one.
    record, observations = loaded(honest, "sts.stsb*")[0]
    observations.arrays["similarity"] = observations.arrays["gold"] * 10
    assert "hold a cosine of 50" in refused(record, observations)
    record, observations = loaded(honest, "sts.sts12*")[0]
    names = observations.names["subsets"]
    assert "are others (subsets)" in refused(record, Observations(observations.arrays, {"subsets": names[::-1]}))
    observations.arrays["subset"][0] = 1
    assert "its observations are of" in refused(record, observations)
    record.data.subsets = {name: int(np.sum(observations.arrays["subset"] == i)) for i, name in enumerate(names)}
    assert "was edited: data: sts12/test has" in refused(record, observations)
    observations.arrays["subset"][0] = 99  # of no subset
    record.protocol.settings["resamples"] = 0
    record.data = record.data.model_copy(update={"known": False, "digest": SHA})
    assert "its observations are of" in refused(record, observations)


def test_what_is_proven(honest):
    """Only the catalog's digest proves what data were; a part of a set, or a text without digests, stays unproven."""
    actual = load_records(honest)
    assert len(actual) == 9
    for path, record in actual:
        admission.check_record(path, record)
        assert admission.proven(record)
    record, _ = loaded(honest, "sts.stsb*")[0]

    def changed(text_version="senteval", known=True, digest=record.data.digest, without=()):
        data = record.data.model_copy(update={"text_version": text_version, "known": known, "digest": digest})
        how = record.protocol.model_copy(update={"settings": {**record.protocol.settings, "without_overlap": list(without)}})
        return admission.proven(record.model_copy(update={"data": data, "protocol": how}))

    assert changed() and changed(text_version="own", known=False) and changed(text_version="sample", known=False)
    assert not changed(known=False) and not changed(digest=SHA) and not changed(text_version="raw")
    assert not changed(without=["stsb/dev"])


@pytest.mark.parametrize("build", [transfer, regression, mteb])
def test_invented_records_pass(build, tmp_path):
    record, observations = build()
    admission.check_record(forged(tmp_path, record, observations), record)


def test_what_the_catalogs_sets_decide_is_known():
    """Every set that a protocol here measures by item has a digest, so that no known record passes unchecked."""
    catalogued = {item.id for item in entries("senteval")}
    for name, kind in core_protocols().items():
        for word in ("", *kind.variants):
            protocol = kind(kind.variant(word) if word else {})
            for set_id in {*protocol.tasks().values()} & catalogued if name != "mteb" else ():
                parts = admission.expected()[name][set_id]
                by = f"duplicates {protocol.settings.get('duplicates')}"
                wanted = {"sts": {"gold", "pair", "subset", "subsets"}, "retrieval": {f"query {by}", f"corpus {by}"},
                          "transfer": {"gold", "folds of k 10 and seed 1111"}, "regression": {"gold", "row", "sizes"},
                          "geometry": {"gold"}}[name]
                assert wanted <= parts.keys(), (name, word, set_id)
                assert all(len(sha) == 64 for sha in parts.values())


def test_runs_that_disagree_teach_nothing(honest, tmp_path):
    record, observations = loaded(honest, "sts.stsb*")[0]
    rolled("gold")(observations.arrays)
    path = forged(tmp_path / "forged", record, observations)
    words = f"{path}: its gold of stsb/test is not that of a run before"
    refuses(StsbenchError, words, admission.learn, [honest, path.parent], tmp_path / "learnt.yaml")
    assert not (tmp_path / "learnt.yaml").exists()


def test_records_of_one_encoder_have_one_width_but_where_texts_are_compared_without_vectors():
    def record(width, similarity):
        return "run", SimpleNamespace(
            encoder=SimpleNamespace(spec={"kind": "transformers"}, fingerprint="f", dimension=width),
            protocol=SimpleNamespace(settings={"similarity": similarity} if similarity else {}))

    admission.check_widths([record(8, "cosine"), record(0, "pairwise"), record(8, None)])
    refuses(StsbenchError, "dimension is 0, in run it is 8", admission.check_widths, [record(8, "cosine"), record(0, "dot")])


UNSEEN = (  # an escape, a bell, marks of direction, blanks without width, fillers, sixty accents, a tag, a line's end, ...
    "a\x1b[31mb", "a\x07", "a\u202eb", "a\u2066b", "a\u200bb", "a\u00adb", "a\u2028b", "a\u3164", "a\u034fb", "a\ufe0e",
    "a\u2800b", "a" + "\u0301" * 60, "\ufeffa", "a\U000e0041", "a\x85b", "a\x00b")
FORMULAS = ['=HYPERLINK("http://x.y","z")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\uff1d1+1", "\uff20SUM(1)",
            "a;=1+1", "a; @b", "'=1+1"]
MARKUP = ["http://y.z www.y.z", "@b a@b.c", "a|b", "<script>alert(1)</script>", r"\input{/etc/passwd}", "[x](http://y.z)"]


def test_what_is_not_seen_is_in_no_description(tmp_path):
    for at, text in enumerate(UNSEEN):
        field = ("method", "backbone", "note", "recipe")[at % 4]
        stated = {"method": "m", "backbone": "b", "setting": "unsup", field: text}
        unseen = rf"^--{field} holds a character that is not seen \(U\+"
        assert refuses(StsbenchError, unseen, described, stated).isprintable()
        (tmp_path / "entry.yaml").write_text(yaml.safe_dump(stated))
        refuses(StsbenchError, r"entry.yaml: .*not seen", read_entry, tmp_path / "entry.yaml")


def test_names_that_look_alike_are_one():
    for name, others in (
        ("Letters", ["letters", " LETTERS ", "Le\u0442ters", "\uff2cetters", "L\u0435tt\u0435rs", "\U0001d40betters"]),
        ("a-b c", ["A\u2010B C", "a\u2013b\u00a0c", "a\uff0db\u3000c", "a-b  c"]), ("é", ["e\u0301", "E\u0301"])):
        first = entry(name)
        for other in others:
            named = [("x", first), ("y", entry(other))]
            refuses(StsbenchError, "have one method, backbone and setting", refuse_equal_names, named)
        refuse_equal_names([("x", first), ("y", entry(f"{name} 2"))])


def test_formulas_and_markup_are_text_in_every_table():
    example = board_example.board(measured=4, published=1)
    for text in (*FORMULAS, *MARKUP):
        row = replace(example.tabs[0].measured[1], method=text, backbone=text)
        board = Board((replace(example.tabs[0], measured=(row,), published=()),), example.entries)
        for line in csv.DictReader(io.StringIO(csv_table(board))):
            parts = [part.strip() for cell in line.values() if cell for part in cell.split(";")]
            assert not any(part.startswith(("=", "+", "@", "\uff1d", "\uff20")) for part in parts), line
            assert line["method"].replace("'", "") == text.replace("'", "")
            assert text[0] not in "=+-@" or line["method"][0] == "'"
        assert not re.search(r"://y|www\.y|@b|<script|(?<!\\)\]\(http://y|\| a\|b \|", markdown_tables(board))
        assert r"\input" not in latex_tables(board)


def test_numbers_beyond_float64_are_none_of_an_observation(runs):
    path, record = next((path, record) for path, record in load_records(runs["letters"]) if record.protocol.name == "sts")
    stored = read_observations(path.parent, record)
    longer = Observations({**stored.arrays, "similarity": stored.arrays["similarity"].astype(np.longdouble)}, stored.names)
    refuses(StsbenchError, "something that is not a number: similarity", admission._check_names, path, longer)


def test_times_of_any_zone_are_shown_in_one(copied, tmp_path):
    """As texts 23:00+14:00 would be later than 12:00+00:00 of the same day, and is not."""
    run = edit_all(copied("letters"), lambda row: row.record.update(created="2026-01-02T23:00:00+14:00"))
    add(tmp_path, [run], "letters", entry("m"))
    assert gather(tmp_path).entries["letters"].runs[0]["measured"] == ["2026-01-02T09:00:00+00:00"] * 2
