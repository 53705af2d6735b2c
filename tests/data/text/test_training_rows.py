"""Rows of training files, against the csv and json modules of Python."""

import csv
import io
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stsbench.data.text.rows import file_format, read_rows

# Characters at which some reader or other splits, joins or unquotes.
CHARACTERS = st.sampled_from([*"ab \"',\\é猫😀", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\ufeff"])
SHORT = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def texts(*more):
    return st.text(st.one_of(CHARACTERS, st.sampled_from(more)) if more else CHARACTERS, max_size=8)


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows_of(path, *args, **kwargs):
    return [(line, row) for line, row in read_rows(path, *args, **kwargs) if row]


@SHORT
@given(
    rows=st.lists(st.tuples(texts("\n", "\r", "\t"), texts("\n", "\r"), texts("\n", "\r")), min_size=1, max_size=6),
    end=st.sampled_from(["\n", "\r\n"]), bom=st.booleans(), few=st.booleans(),
)
def test_csv_gives_what_the_csv_module_wrote_and_where_each_row_starts(tmp_path, rows, end, bom, few):
    """few: with as few quotes as possible, where no carriage return needs them."""
    out, starts = io.StringIO(newline=""), []
    quoting = csv.QUOTE_MINIMAL if few and not any("\r" in text for row in rows for text in row) else csv.QUOTE_ALL
    writer = csv.writer(out, lineterminator=end, quoting=quoting)
    writer.writerow(["sent0", "sent1", "hard_neg"])
    for row in rows:
        starts.append(out.getvalue().count("\n") + 1)
        writer.writerow(row)
    path = written(tmp_path, "a.csv", ("\ufeff" if bom else "") + out.getvalue())
    assert rows_of(path) == list(zip(starts, rows, strict=True))
    with path.open(encoding="utf-8-sig", newline="") as stream:  # the module's own reading, where it splits at \r too
        if not any("\r" in text for row in rows for text in row):
            assert [tuple(row.values()) for row in csv.DictReader(stream)] == rows


@SHORT
@given(rows=st.lists(st.tuples(texts("\r"), texts()), min_size=1, max_size=6), end=st.sampled_from(["\n", "\r\n"]))
def test_tsv_is_split_at_tabs_and_line_feeds_only(tmp_path, rows, end):
    path = written(tmp_path, "a.tsv", end.join(["premise\thypothesis", *map("\t".join, rows), ""]))
    assert rows_of(path) == list(enumerate(rows, start=2))


@SHORT
@given(
    lines=st.lists(texts("\t", "\r").filter(lambda text: not text.endswith("\r")), min_size=1),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_text_has_a_sentence_a_line(tmp_path, lines, end):
    path = written(tmp_path, "a.txt", "\ufeff" + end.join([*lines, ""]))
    assert rows_of(path) == [(number, (line,)) for number, line in enumerate(lines, start=1)]
    if lines[-1]:  # the file's last line end is optional
        assert rows_of(written(tmp_path, "a.txt", end.join(["x", *lines])))[1:] == [
            (number, (line,)) for number, line in enumerate(lines, start=2)
        ]


@SHORT
@given(rows=st.lists(st.tuples(st.text(max_size=6), texts("\n", "\r")), min_size=1, max_size=6), ascii=st.booleans())
def test_jsonl_gives_what_the_json_module_wrote(tmp_path, rows, ascii):
    lines = [json.dumps({"x": 1, "sent1": b, "sent0": a}, ensure_ascii=ascii) for a, b in rows]
    path = written(tmp_path, "a.jsonl", "\n".join(lines))
    assert rows_of(path) == list(enumerate(rows, start=1))


def test_known_headers_need_no_columns(tmp_path):
    own = {"anchor": "sent0", "positive": "sent1", "negative": "hard_neg", "sentence": "text"}
    for header, roles in (
        ("hard_neg,sent1,sent0", ("anchor", "positive", "negative")), ("id,sentence", ("sentence",)),
        ("text", ("sentence",)),
        ("negative2,id,anchor,positive,negative", ("anchor", "positive", "negative", "negative2")),
        ("label,premise,hypothesis", ("premise", "hypothesis", "label")),
    ):
        names = header.split(",")
        path = written(tmp_path, "a.csv", f"{header}\n{','.join(f'<{name}>' for name in names)}\n")
        reader = read_rows(path)
        assert reader.roles == roles
        assert list(reader) == [(2, tuple(f"<{role if role in names else own[role]}>" for role in roles))]


def test_columns_choose_and_where_filters(tmp_path):
    path = written(tmp_path, "a.tsv", 'premise\thypothesis\tlabel\n"a\tb"\tyes\nc\td\tno\ne\tf\tyes\n')
    reader = read_rows(path, columns={"positive": "hypothesis", "anchor": "premise"}, where={"label": "yes"})
    assert reader.roles == ("anchor", "positive")
    assert list(reader) == [(2, ('"a', 'b"')), (4, ("e", "f"))]
    assert reader.left_out == 1
    lines = [json.dumps({"a": "x", "kind": kind}) for kind in "pqp"]
    path = written(tmp_path, "a.jsonl", "\n".join(lines))
    assert [line for line, _ in read_rows(path, columns={"sentence": "a"}, where={"kind": "q"})] == [2]


def test_an_empty_line_is_a_text_only_where_it_can_be_one(tmp_path):
    assert list(read_rows(written(tmp_path, "a.txt", "a\n\nb"))) == [(1, ("a",)), (2, ("",)), (3, ("b",))]
    for name in ("a.csv", "a.tsv"):
        assert list(read_rows(written(tmp_path, name, "text\na\n\nb\n"))) == [(2, ("a",)), (3, ("",)), (4, ("b",))]
    assert list(read_rows(written(tmp_path, "a.csv", "sent0,sent1\na,b\n\n,\n")))[1:] == [(3, ()), (4, ("", ""))]
    assert list(read_rows(written(tmp_path, "a.tsv", "sent0\tsent1\na\tb\n\n\t\n")))[1:] == [(3, ()), (4, ("", ""))]
    assert list(read_rows(written(tmp_path, "a.json", '\n{"text": "a"}\n\n'))) == [(2, ("a",)), (3, ())]


def test_the_format_stated_wins(tmp_path):
    assert file_format(tmp_path / "A.TSV") == "tsv"
    assert file_format(tmp_path / "a.csv", "text") == "text"
    assert rows_of(written(tmp_path, "a.csv", 'a,"b\n'), "text") == [(1, ('a,"b',))]
