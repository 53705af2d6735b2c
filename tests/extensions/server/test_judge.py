"""`judge:NAME`: one question a pair, one number an answer, and answers that outlast an interrupted run."""

import json
import threading
from pathlib import Path

import pytest
from clirun import place  # noqa: F401 - fixture
from embedding_server import quick, server, status  # noqa: F401 - fixtures

import stsbench
from stsbench.evaluation.run_file import read_observations
from stsbench.extensions.server.judge import read_number

pytest.importorskip("openai")
ROWS = [(f"{'a' * (i + 1)} {{b}}", "b" * (7 - i), i) for i in range(7)]
PROMPT = "How alike are {a} and {b}, from 0 to 5? Answer with a number."


def saying(answer):
    """A chat model whose answer follows from the question."""
    def spoil(handler, body):
        text = answer(body["messages"][0]["content"])
        reply = {"choices": [{"message": {"content": text}}], "model": "tiny-chat", "usage": {"total_tokens": 5}}
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
    server.always, before = saying(number), len(server.asked)
    assert len(measured(server).records) == 1 and len(server.asked) - before == 4
    assert all(json.loads(line) for line in file.read_text().splitlines() if line and not line.endswith("cut"))


@pytest.mark.parametrize(("answer", "expected"), [
    ("4", 4), (" 4.5\n", 4.5), (".25", 0.25), ("-1", -1), ("\u22121.5", -1.5), ("+2", 2), ("Score: 3.", 3), ("Score=3", 3),
    ("**4**", 4), ('"0.5"', 0.5), ("(2)", 2), ("the score is 4, surely", 4),
    *((text, None) for text in (
        "", "none", "1 or 2", "4/5", "80%", "1,5", "1.5.2", "score-1.5", "GPT-4 cannot say", "2\u00bd", "1e3", "3rd",
        "2-3", "\u0663", "NaN",
    )),
])
def test_a_number_is_read_or_refused(answer, expected):
    assert read_number(answer) == expected


@pytest.mark.parametrize(("answer", "line"), [
    (lambda question: "4/5" if "aaa" in question else "3", "5 of 7 answers do not hold one number, as of pair "),
    (lambda question: "I cannot say", ": 'I cannot say'; --judge-prompt"),
    (lambda question: {"choices": []}, "gave an answer without a text"),
    (lambda question: {"choices": [{"message": {"content": "1."}, "finish_reason": "length"}]}, "an answer that was cut"),
])
def test_an_answer_without_its_number_is_a_failure(server, answer, line):
    server.always = saying(answer)
    result = measured(server)
    assert not result.records and line in str(result.failures)
