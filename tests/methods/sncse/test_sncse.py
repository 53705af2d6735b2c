"""SNCSE's views token by token and its vectors text by text; its negations: the released rule on parses made by hand, the
rule of verb lists, a file, and what is counted."""

import json
import string
import sys
from types import SimpleNamespace

import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, make, states
from shipped_recipes import one_line
from transformers import AutoTokenizer

from stsbench.encoders.prompt.template import with_full_stop
from stsbench.methods.sncse import verbs
from stsbench.methods.sncse.method import SNCSE, Negatives, Token, negated, read_pairs

FIRST = {"bert": "the {} means [MASK] .", "roberta": "the {} means <mask> ."}
OF = {"bert": "a {} means [MASK] food .", "roberta": "a {} means <mask> food ."}
TEXTS = ["the cat sleeps in the park with food", "a dog is big.", "the man is not red", "blue guitar", "a cat eats food ,"]
NEGATIONS = {"a dog is big.": "a dog is not big.", "the man is not red": "the man is red", "blue guitar .": "no guitar"}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    path.write_text("".join(json.dumps(pair) + "\n" for pair in NEGATIONS.items()), "utf-8")
    return str(path)


def sncse(folder, pairs, **options):
    first, second = (each[folder.name].replace("<mask>", "[MASK]") for each in (FIRST, OF))
    chosen = {"template": first, "second_template": second, "negation": "file", "negations": pairs, **options}
    return make(SNCSE, folder, chosen, pooler="mask")


def stopped(text, options):
    last = text.rstrip()[-1:]
    return text if options.full_stop == "none" or not last or last in string.punctuation else text + " ."


def negation_of(text, options):
    sentence = stopped(text, options)
    return stopped(NEGATIONS.get(text.strip() if options.lookup == "line" else sentence, "Not " + sentence), options)


def spelt(tokenizer, template, text, options):
    """Token ids of a text inside a template, its end cut."""
    before, after = template.split("{}")

    def plain(part):
        return tokenizer(part, add_special_tokens=False)["input_ids"]

    start, stop = plain(before.rstrip()), plain(after)
    if options.train_tokens == "released":
        start, inner = plain(before), plain(text)
    else:
        whole = plain(before + text + after)
        inner = whole[len(start) : len(whole) - len(stop)]
    room = LIMIT - 2 - (len(start) + len(stop) if options.max_length_counts == "template" else 0)
    return [tokenizer.cls_token_id, *start, *inner[:room], *stop, tokenizer.sep_token_id]


@pytest.mark.parametrize(("family", "options"), [
    ("bert", {}), ("roberta", {"lookup": "line", "second_template": None, "max_length_counts": "sentence"}),
    ("bert", {"full_stop": "none", "head": "none"}), ("roberta", {"train_tokens": "released"})], ids=str)
def test_views_and_vectors_are_those_of_the_description(masked_lms, pairs, family, options):
    """The loss of the vectors: tests/methods/test_terms.py."""
    folder = masked_lms[family]
    method = sncse(folder, pairs, **options)
    options, tokenizer = method.options, AutoTokenizer.from_pretrained(folder)
    texts = [*TEXTS, f"a {tokenizer.mask_token}"]
    batch = batch_of(method, MemoryRows(folder, {"sentence": texts}), more_padding=3)
    first, second = (each.replace("[MASK]", tokenizer.mask_token)
                     for each in (options.template, options.second_template or options.template))
    plain, negations = ([made(text, options) for text in texts] for made in (stopped, negation_of))
    expected = [spelt(tokenizer, template, text, options)
                for template, read in ((first, plain), (second, plain), (second, negations)) for text in read]
    assert [ids[: int(mask.sum())].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)] == expected
    vectors = method._vectors(batch.ids, batch.mask, len(texts))
    for ids, state, vector in zip(expected, states(folder, expected), vectors, strict=True):
        state = state[len(ids) - 1 - ids[::-1].index(tokenizer.mask_token_id)]
        vector_of_text = state if method.head is None else torch.tanh(method.head.dense(state))
        assert (vector - vector_of_text).abs().max() < 1e-9
    assert [(key, term.count) for key, term in method(batch).items()] == [("contrastive", 6), ("soft_negative", 6)]


def test_a_tokenizer_that_knows_blanks_in_training_as_released(masked_lms, pairs):
    """A blank by itself, and a sentence whose first word has none; the test's tokens have it inside the first word."""
    method = sncse(masked_lms["roberta"], pairs, train_tokens="released", test_template="the {} means [MASK].")
    tokenizer, cat = method.backbone.tokenizer, MemoryRows(masked_lms["roberta"], {"sentence": ["cat"]})
    released = tokenizer.convert_ids_to_tokens(method.read(cat, "sentence")[0])
    assert released == ["<s>", "the", "[UNK]", "cat", "Ġ.", "Ġmeans", "<mask>", "Ġ.", "</s>"]  # no blank in its vocabulary
    plain = sncse(masked_lms["roberta"], pairs)
    clean = tokenizer.convert_ids_to_tokens(plain.read(cat, "sentence")[0])
    assert clean == ["<s>", "the", "Ġcat", "Ġ.", "Ġmeans", "<mask>", "Ġ.", "</s>"]
    assert [each.inference().prompt.template for each in (method, plain)] == ["the {} means [MASK].", FIRST["bert"]]


@pytest.mark.parametrize(("text", "expected"), [
    ("a cat", "a cat ."), ("a cat  ", "a cat   ."), ("a cat!", "a cat!"), ("a cat) ", "a cat) "), ("", ""), ("  ", "  "),
    ("a cat\u2026", "a cat\u2026 ."), ("a cat's", "a cat's ."), ("a cat'", "a cat'")])
def test_the_full_stop_of_the_released_code(text, expected):
    assert with_full_stop(text, "punctuation32") == expected and with_full_stop(text, False) == text


@pytest.mark.parametrize(("spelt", "expected"), [  # (text, dependency, tag, lemma) a token, and the negation
    ("She/nsubj/PRP/she has/aux/VBZ/have not/neg/RB/not left/ROOT/VBN/leave ,/punct/,/,", "She has left ,"),
    ("To/aux/TO/to not/neg/RB/not be/advcl/VB/be not/neg/RB/not he/nsubj/PRP/he", "To be not he"),
    ("Not/neg/RB/not all/det/DT/all ships/nsubj/NNS/ship sank/ROOT/VBD/sink", "Not all ships did not sink"),
    ("He/nsubj/PRP/he does/aux/VBZ/do n't/neg/RB/not go/ROOT/VB/go", "He does not n't go"),
    ("To/aux/TO/to win/advcl/VB/win he/nsubj/PRP/he trains/ROOT/VBZ/train", "To not win he trains"),
    ("He/nsubj/PRP/he trains/ROOT/VBZ/train to/aux/TO/to win/xcomp/VB/win", "He does not train to win"),
    ("IS/ROOT/VBZ/be it/nsubj/PRP/it red/acomp/JJ/red ?/punct/./?", "IS not it red ?"),
    ("They/nsubj/PRP/they sing/ROOT/VBP/sing", "They do not sing"),
    ("They/nsubj/PRP/they sang/ROOT/VBD/sing", "They did not sing"), ("Be/ROOT/VB/be quiet/acomp/JJ/quiet", None),
    ("He/nsubj/PRP/he has/ROOT/VBZ/have ships/dobj/NNS/ship", "He does not have ships"),
    ("A/det/DT/a red/amod/JJ/red ship/ROOT/NN/ship", None), ("", None)])
def test_the_released_rule_on_parses_made_by_hand(spelt, expected):
    assert negated([Token(*word.split("/")) for word in spelt.split()]) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("It is not, not at all.", "It is not, at all."), ("Not a ship was late.", "Not a ship was not late."),
    ("It's knotty and nothing more.", None), ("It may rain.", "It may not rain."),
    ("The town has a mill.", "The town does not have a mill."), ("They have two mills.", "They do not have two mills."),
    ("It had a mill.", "It did not have a mill."), ("It had recently closed.", "It had not recently closed."),
    ("He went home.", "He did not go home."), ("Did you win?", "Did not you win?"),
    ("She did her work.", "She did not do her work."), ("She does help.", "She does not do help."),
    ("You do know.", "You do not know."), ("Anna played chess.", "Anna did not play chess."),
    ("The played game ended.", None), ("He plays chess.", "He does not play chess."), ("Three plays close.", None),
    ("They own a mill.", "They do not own a mill."), ("A  mill,  which  was  new.", "A  mill,  which  was not  new.")])
def test_the_rule_of_verb_lists(text, expected):
    assert verbs.negated(text) == expected


def test_every_listed_verb_has_four_forms():
    for table in (verbs._STRONG, verbs._WEAK):
        entries = list(verbs._entries(table))
        assert {len(entry) for entry in entries} == {4} and len({entry[0] for entry in entries}) == len(entries)
    assert set(verbs._THIRD) >= verbs._NOUNS_TOO


LINES = ["The ship is red.", "the ship is red", "A red ship", "He went home !", " It may rain. "]


def negatives(**options):
    return Negatives(SNCSE.Options(**options))


def test_what_a_lookup_behind_the_full_stop_misses():
    """A line without punctuation has another text then: none of the table's."""
    released, line = negatives(negation="verbs"), negatives(negation="verbs", lookup="line")
    both = ["Not A red ship .", "He did not go home !"]
    assert released(LINES) == ["The ship is not red.", "Not the ship is red .", *both, "Not  It may rain. "]
    assert line(LINES) == ["The ship is not red.", "the ship is not red .", *both, "It may not rain."]
    for source, expected in ((released, {"source": 2, "full stop": 3}), (line, {"source": 4, "unknown": 1})):
        assert source.report() == []
        source.count(LINES[:2])
        source.count(LINES[2:])
        assert source.counted == expected
    assert [*released.report(), *line.report()] == [
        'soft negatives of 5 sentences: 2 (40.0 %) by verb lists; "Not " in front of 3 (60.0 %) looked up '
        "behind a full stop (options.lookup after_full_stop)",
        'soft negatives of 5 sentences: 4 (80.0 %) by verb lists; "Not " in front of 1 (20.0 %) without a verb that it '
        "knows"]


def test_a_file_of_pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('["the ship is red .", "stopped"]\n\n["the ship is red", "line"]\n["A red ship", "not any"]', "utf-8")
    assert read_pairs(path)["A red ship"] == "not any"
    released, line = (negatives(negation="file", negations=str(path), lookup=key) for key in ("after_full_stop", "line"))
    assert released(LINES[:3]) == ["Not The ship is red.", "stopped .", "Not A red ship ."]
    assert line(LINES[:3]) == ["Not The ship is red.", "line .", "not any ."]
    released.count(LINES[:3])
    [report] = released.report()
    assert f"1 (33.3 %) by {path}" in report and "1 (33.3 %) that it lacks and of 1 (33.3 %) looked up behind" in report
    first = released.inputs()["negations"]
    path.write_text('["a", "b"]\n', "utf-8")
    assert negatives(negation="file", negations=str(path)).inputs()["negations"] != first
    for content in ('["a", "b"]\n["a"]\n', '["a", "b"]\nnot json\n', '["a", "b"]\n["a", 3]\n', '["a", "b"]\n["a", " "]\n'):
        path.write_text(content, "utf-8")
        one_line(lambda: read_pairs(path), "pairs.jsonl:2: not a pair of texts")
    path.write_text("\n", "utf-8")
    one_line(lambda: read_pairs(path), "contains no pairs")
    one_line(lambda: negatives(negation="file", negations=str(tmp_path / "none")), "none")


def test_the_rule_without_spacy(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    one_line(negatives, "options.negation rule needs spaCy and its model en_core_web_sm", "set options.negation to verbs")


class Word(str):
    """As spaCy has it, of a model that knows the roots "is" and "went"."""

    dep_ = property(lambda self: "ROOT" if self in ("is", "went") else "x")
    lemma_ = property(lambda self: {"went": "go"}.get(self, self))
    tag_ = "VBD"


def test_the_rule_by_a_parser(monkeypatch):
    """The model reads each line once, whatever it is asked for. Where no form of the rule fits, Not stands before the
    tokens, joined by blanks as in all its forms; what the lookup misses keeps the sentence's spacing."""
    calls, loaded = [], []

    def pipe(texts):
        for text in texts:
            calls.append(text)
            yield [Word(word) for word in text.split()]

    model = SimpleNamespace(pipe=pipe, meta={"version": "2"})
    fake = SimpleNamespace(__version__="1", load=lambda name: loaded.append(name) or model)
    monkeypatch.setitem(sys.modules, "spacy", fake)
    source = negatives()
    assert loaded == ["en_core_web_sm"]
    lines = [*LINES[:4], "A red  mill.", "A red  mill"]
    source.count(lines)
    assert source(lines) == ["The ship is not red.", "Not the ship is red .", "Not A red ship .", "He did not go home !",
                             "Not A red mill.", "Not A red  mill ."]
    assert calls == ["The ship is red.", "He went home !", "A red  mill."]
    assert source.counted == {"source": 2, "unknown": 1, "full stop": 3}
    [report] = source.report()
    assert report.startswith("soft negatives of 6 sentences: 2 (33.3 %) by the released rule (spaCy 1, en_core_web_sm 2); ")
    first = source.inputs()
    model.meta["version"] = "3"
    assert first.keys() == {"parser"} and first != negatives().inputs()
    assert json.dumps(first)
