"""openai:NAME against a server that spoils its answers: the right vectors, or one line. `judge:NAME`: one question a pair,
one number an answer, and answers that outlast an interrupted run."""

import base64
import json
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from clirun import place  # noqa: F401 - fixture
from embedding_server import (  # noqa: F401 - fixtures
    WIDTH,
    changed,
    closed,
    dripping,
    half,
    hashed,
    loaded,
    quick,
    server,
    status,
    when,
)

import stsbench
from stsbench.errors import EncoderError
from stsbench.evaluation.run_file import read_observations
from stsbench.extensions.server import client
from stsbench.extensions.server.client import BadAnswerError, HalfAnswerError, read_answer, retry_after
from stsbench.extensions.server.encoder import MOST, at_once, batches, estimated_tokens
from stsbench.extensions.server.identity import TEXTS as PROBE
from stsbench.extensions.server.judge import read_number

pytest.importorskip("openai")

WORDS = [f"number {i} {'very ' * (i % 7)}long" for i in range(100)]


def equal(encoder, texts=WORDS):
    np.testing.assert_array_equal(encoder.encode(texts), hashed(texts))


def test_vectors_are_the_servers_whatever_their_encoding(server):
    encoder = loaded(server)
    assert encoder.dimension == WIDTH and len(server.asked) == 6 and encoder.spent["requests"] == 6
    equal(encoder)
    later = server.asked[6:]  # with each of them a text of the probe
    assert len(later) == len(batches(WORDS)) and all(body["input"][-1] in PROBE[:-1] for body in later)
    assert len({body["input"][-1] for body in later}) == len(later)
    server.base64 = False  # some servers answer in decimals whatever they are asked for
    equal(encoder)
    assert all(body["encoding_format"] == "base64" and body["model"] == "hash" for body in server.asked)
    assert all(len(body["input"]) <= 32 for body in server.asked) and server.keys[0] is None
    server.asked.clear()
    server.always = when(lambda body: body["encoding_format"] == "base64", status(400, "encoding_format must be float"))
    equal(loaded(server))
    assert [body["encoding_format"] for body in server.asked].count("base64") == 1


def test_what_passes_costs_no_vector(server):
    again = changed(lambda answer: answer["data"].reverse())  # another order is none that matters
    for spoils in ([status(502), status(503), status(504)], [again],
                   [changed(lambda answer: b"<html>bad gateway</html>"), half, status(500), status(408), closed],
                   [status(500)] * 9):  # longer than a text is suspected for
        encoder, before = loaded(server, requests=1), len(server.asked)
        server.spoils = [*spoils]
        equal(encoder)
        retries = len(server.asked) - before - len(batches(WORDS))  # that for a harmless text, and halves, among them
        assert not server.spoils and encoder.spent["requests"] == len(server.asked) - before + 6
        assert encoder.spent["retries"] == (9 if len(spoils) == 9 else retries)


def test_nobody_asks_before_a_server_says(server, monkeypatch):
    encoder = loaded(server, requests=8)
    server.spoils, began = [status(429, retry_after="0.5")], time.monotonic()
    equal(encoder)
    assert 0.5 <= time.monotonic() - began < 30
    monkeypatch.setattr(client.time, "time", lambda: 784111777.0)  # the date of RFC 9110's example
    assert retry_after("120") == 120 and retry_after("0.5") == 0.5 and retry_after("-3") == 0
    assert retry_after("Sun, 06 Nov 1994 08:50:37 GMT") == 60 and retry_after("Sun, 06 Nov 1994 08:00:00 GMT") == 0
    assert [retry_after(header) for header in (None, "", "soon", "nan", "99/99/99")] == [None] * 5


# asked: three times, for a harmless text, and patiently; or once, and for a harmless text; or once where no text can be why
@pytest.mark.parametrize(("spoil", "line", "asked"), [
    (status(401, "who?"), "answered 401: who?; the key is the variable OPENAI_API_KEY, which is not set", 1),
    (status(429, "quota: insufficient_quota"), "answered 429: quota: insufficient_quota", 1),
    (status(429, retry_after="3600"), "it asks to wait 3,600 s", 1),
    (status(503, "\x1b[31mred\r\n\u202eline " + "x" * 1000), "answered 503: ", 12),
    (status(302, location="http://me:key=1@elsewhere.example/v1?key=1#2"),
     "requests on to http://elsewhere.example/v1 (status", 1),
    (closed, "closed the connection", 12),
    (lambda handler, body: handler.give(b"<html>"), "not JSON, or half of one (in 8 tries)", 12),
    (lambda handler, body: handler.give({"error": {"message": "asleep"}}), "without vectors: asleep", 2),
    (changed(lambda answer: answer.update(more="x" * 3_000_000)), "an answer of more than", 2)])
def test_what_does_not_pass_is_one_line(server, spoil, line, asked):
    encoder = loaded(server, requests=1)
    server.always = spoil
    before = len(server.asked)
    with pytest.raises(EncoderError) as caught:
        encoder.encode(WORDS)
    text = str(caught.value)
    assert line in text and text.startswith(f"openai:hash: {server.url} ") and len(text) < 600
    assert text.isprintable() and "key=1" not in text and len(server.asked) - before == asked
    assert caught.value.__suppress_context__ or caught.value.__context__ is None  # what the client raised may hold the key


def test_read_answer_of_both_encodings():
    last = base64.b64encode(np.array([3.0, 4.0], np.float32).tobytes()).decode()
    data = [{"index": 1, "embedding": last}, {"index": 0, "embedding": [1.5, -2.25]}]
    for usage, tokens in (({"prompt_tokens": 7}, 7), ({"total_tokens": "7"}, None)):
        made = read_answer(json.dumps({"data": data, "usage": usage}).encode(), 2)
        assert made.vectors.tolist() == [[1.5, -2.25], [3.0, 4.0]] and made.tokens == tokens
    for body in (b"{", b"\xff\xfe", b"[" * 100_000):
        with pytest.raises(HalfAnswerError):
            read_answer(body, 1)
    with pytest.raises(BadAnswerError):  # a number of so many digits that Python reads none
        read_answer(b'{"data": [{"index": 0, "embedding": [1' + b"0" * 5000 + b"]}]}", 1)


def test_a_slow_server_is_asked_again_and_not_for_ever(server, monkeypatch):
    encoder = loaded(server)
    monkeypatch.setattr(client, "SECONDS", 0.2)
    server.spoils = [lambda handler, body: time.sleep(0.4)]
    equal(encoder, WORDS[:5])
    monkeypatch.setattr(client, "TRIES", 2)
    for begin in (b"HTTP/1.1 200 OK\r\nX-Slow: ",  # within the headers, the body
                  b"HTTP/1.1 500 Oh\r\nContent-Length: 1000000\r\n\r\n"):
        server.always, began = dripping(begin), time.monotonic()
        with pytest.raises(EncoderError, match=r"did not answer within 0\.2 s \(in 2 tries\)"):
            encoder.encode(WORDS[:5])
        assert time.monotonic() - began < 2


@pytest.mark.parametrize(("most", "code", "said"), [
    (8, 413, "batch size 32 > maximum allowed batch size 8"), (2, 500, "out of memory")])
def test_a_smaller_limit_of_texts_is_found(server, most, code, said):
    """From the probe on, whatever the words; it is not looked for again with every batch."""
    server.always = when(lambda body: len(body["input"]) > most, status(code, said))
    encoder = loaded(server, requests=1)
    before = len(server.asked)
    equal(encoder, WORDS[:50])
    assert sum(len(body["input"]) > most for body in server.asked[before:]) <= (50 if code == 500 else 4)


def test_numbers_that_are_none_are_rows_of_nan(server):
    """As other encoders give them: a protocol fails the tasks that need them, and no other."""
    def spoil(bad):
        return changed(lambda answer: answer["data"][0]["embedding"].__setitem__(3, bad))

    encoder = loaded(server, requests=1)
    for bad in (float("nan"), float("inf"), None, 1e300):
        server.spoils = [spoil(bad)]
        vectors = encoder.encode(WORDS[:5])
        assert np.isfinite(vectors).all(axis=1).sum() == 4
    server.always = spoil(None)
    with pytest.raises(EncoderError, match="NaN or infinity for a text of the probe"):
        loaded(server)


def test_batches_by_count_and_by_tokens():
    texts = ["x" * size for size in (3000, 9, 9, 30, 1500)] + ["y"] * 40
    parts = batches(texts, tokens=1100)
    assert sorted(row for part in parts for row in part) == list(range(45)) and max(map(len, parts)) == MOST
    assert parts[:2] == [[0], [4, 3, *parts[1][2:]]]
    assert all(len(part) == 1 or sum(estimated_tokens(texts[row]) for row in part) <= 1100 for part in parts)
    assert batches([], 10) == [] and batches(["x" * 90], 10) == [[0]]


def test_so_many_at_a_time_and_the_first_error_ends_all(server):
    def work(job, stopped):
        if job == 30:
            raise EncoderError("thirty")
        return -job

    assert sorted(at_once(range(20), work, 4)) == [(job, -job) for job in range(20)]
    with pytest.raises(EncoderError, match="thirty"):
        list(at_once(range(25, 1000), work, 3))
    encoder = loaded(server, requests=4)
    server.seconds = 0.05
    equal(encoder, [f"{word} {i}" for word in WORDS for i in range(3)])
    assert server.most_active == 4


@pytest.mark.parametrize("failing", [
    status(500, "failed to encode response: json: unsupported value: NaN"),
    changed(lambda answer: [answer["data"].pop(), None][1]),
    status(413, "`inputs` must have less than 512 tokens. Given: 600")], ids=range(3))
def test_the_text_that_a_server_fails_at_is_named(server, failing):
    """Whatever it says, in a few tries, and no other one; a text as long as this is cut."""
    encoder = loaded(server, requests=1)
    bad = "the ship\x1b sinks " * 20
    server.always = when(lambda body: bad in body["input"], failing)
    before = len(server.asked)
    with pytest.raises(EncoderError, match=r"; the text, of 320 characters: 'the ship.* sinks the .*\.\.\.'$") as caught:
        encoder.encode([*WORDS[:40], bad, *WORDS[40:]])
    assert len(server.asked) - before < 35 and str(caught.value).isprintable() and len(str(caught.value)) < 400
    equal(encoder)


def test_another_width_than_at_the_start(server):
    encoder = loaded(server)
    server.model = partial(hashed, width=WIDTH + 1)
    with pytest.raises(EncoderError, match=f"vectors of {WIDTH + 1} numbers, and of {WIDTH} when it was loaded"):
        encoder.encode(WORDS)
    server.model = lambda texts: hashed(texts, width=24 if len(texts) > 1 else 25)
    with pytest.raises(EncoderError, match="vectors of 24 numbers in one answer, and others in the next"):
        loaded(server)
    server.model = lambda texts: np.ones((len(texts), 24), np.float32)
    with pytest.raises(EncoderError, match="gives 12 different texts only 1 different vectors"):
        loaded(server)


# What a server says of itself


def naming(*names):
    """Answers under these names in turn, the last one for all others."""
    left = list(names)
    return changed(lambda answer: answer.update(model=left.pop(0) if len(left) > 1 else left[0], system_fingerprint="fp_1"))


def test_another_model_than_was_asked_for_is_said_and_two_of_one_run_are_refused(server):
    server.always = naming("all-minilm:22m\x1b[31m")
    encoder = loaded(server)
    [line] = [note for note in encoder.notes if "its answers come from" in note]
    assert line.startswith("warning: openai:hash: ") and "all-minilm:22m" in line and line.isprintable()
    assert encoder.spent["model"].startswith("all-minilm:22m") and encoder.spent["system_fingerprint"] == "fp_1"
    for name in ("hash", "hash:latest", "", None, 7):
        server.always = naming(name)
        encoder = loaded(server)
        assert not any("its answers come from" in note for note in encoder.notes)
    assert "model" not in encoder.spent
    server.always = naming("one", "two")
    with pytest.raises(EncoderError, match="says that two answers, and one before: several models are behind one address"):
        loaded(server)
    server.always = naming("one")
    encoder = loaded(server)
    server.always = naming("one", "", "two")
    with pytest.raises(EncoderError, match="says that two answers, and one before"):
        encoder.encode(WORDS)


ROWS = [(f"{'a' * (i + 1)} {{b}}", "b" * (7 - i), i) for i in range(7)]
PROMPT = "How alike are {a} and {b}, from 0 to 5? Answer with a number."


def saying(answer, model="tiny-chat"):
    """A chat model whose answer follows from the question."""
    def spoil(handler, body):
        text = answer(body["messages"][0]["content"])
        reply = {"choices": [{"message": {"content": text}}], "model": model, "usage": {"total_tokens": 5}}
        handler.give(text if isinstance(text, dict) else reply)

    return spoil


def number(question):
    return f"Score: {question.count('a') / 8}."


def measured(server, **options):
    Path("prompt.txt").write_text(PROMPT)
    return stsbench.evaluate("judge:chat", sts=ROWS, resamples=0, base_url=server.url, judge_prompt="prompt.txt", **options)


def test_each_pair_is_asked_about_once_and_the_question_is_recorded(server):
    server.always = saying(number)
    result = measured(server, price=2.0)
    [record] = result.records
    questions = [PROMPT.replace("{b}", b).replace("{a}", a, 1) for a, b, _ in ROWS]
    assert sorted(body["messages"][0]["content"] for body in server.asked) == sorted(questions)
    assert {(body["model"], body["temperature"]) for body in server.asked} == {("chat", 0)}
    made = read_observations(result.folder, record).arrays["similarity"].tolist()
    assert made == [question.count("a") / 8 for question in questions]
    options = record.encoder.spec["options"]
    assert options["question"] == PROMPT and options["number"].startswith("the only word")
    spent = record.provenance["server"]
    assert (spent["model"], spent["requests"], spent["tokens"], spent["cost"]) == ("tiny-chat", 7, 35, 7e-5)
    again = measured(server).records[0]
    assert len(server.asked) == 7 and again.encoder == record.encoder and again.scores == record.scores
    other = measured(server, extra_body={"temperature": 0.5}).records[0]
    assert server.asked[-1]["temperature"] == 0.5 and other.encoder.fingerprint != record.encoder.fingerprint
    measured(server, no_cache=True)
    assert len(server.asked) == 21


def test_an_interrupted_run_asks_for_the_rest(server):
    lock, counted = threading.Lock(), []

    def breaking(handler, body):
        with lock:
            counted.append(body)
        saying(number)(handler, body) if len(counted) < 4 else status(401)(handler, body)

    server.always = breaking
    assert "answered 401" in str(measured(server, requests=1).failures)
    [file] = Path(stsbench.files.cache_root()).rglob("*.jsonl")
    with file.open("a") as stream:
        stream.write('\n["cut')  # as a killed process leaves it
    server.always = saying(number, "other")
    assert "says that other answers, and tiny-chat before" in str(measured(server, requests=1).failures)
    server.always, before = saying(number), len(server.asked)
    assert len(measured(server).records) == 1 and len(server.asked) - before == 4
    assert all(json.loads(line) for line in file.read_text().splitlines() if line and not line.endswith("cut"))


def test_a_number_is_read_or_refused():
    numbers = {"4": 4, " 4.5\n": 4.5, ".25": 0.25, "-1": -1, "\u22121.5": -1.5, "+2": 2, "Score: 3.": 3, "Score=3": 3,
               "**4**": 4, '"0.5"': 0.5, "(2)": 2, "the score is 4, surely": 4}
    none = ("", "none", "1 or 2", "4/5", "80%", "1,5", "1.5.2", "score-1.5", "GPT-4 cannot say", "2\u00bd", "1e3", "3rd",
            "2-3", "\u0663", "NaN")
    assert {text: read_number(text) for text in (*numbers, *none)} == numbers | dict.fromkeys(none)


@pytest.mark.parametrize(("answer", "line"), [
    (lambda question: "4/5" if "aaa" in question else "3", "5 of 7 answers do not hold one number, as of pair "),
    (lambda question: {"choices": []}, "gave an answer without a text"),
    (lambda question: {"choices": [{"message": {"content": "1."}, "finish_reason": "length"}]}, "an answer that was cut")])
def test_an_answer_without_its_number_is_a_failure(server, answer, line):
    server.always = saying(answer)
    result = measured(server)
    assert not result.records and line in str(result.failures)
