"""SNCSE's loss and gradients against loops in float64, its views token by token, and what its parts come down to. SNCSE's
negations: the released rule on parses made by hand, the rule of verb lists, a file, and what is counted."""

import doctest
import json
import string
import sys
from types import SimpleNamespace

import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, make, total
from shipped_recipes import one_line
from transformers import AutoModel, AutoTokenizer

from stsbench import losses
from stsbench.encoders.prompt.template import with_full_stop
from stsbench.methods.sncse import verbs
from stsbench.methods.sncse.method import SNCSE, Negatives, Token, negated, read_pairs
from stsbench.methods.sncse.options import SNCSEOptions

FIRST = {"bert": "the {} means [MASK] .", "roberta": "the {} means <mask> ."}
OF = {"bert": "a {} means [MASK] .", "roberta": "a {} means <mask> ."}
TEXTS = ["the cat sleeps in the park with food", "a dog is big.", "the man is not red", "blue guitar", "a cat eats food ,"]
NEGATIONS = {"a dog is big.": "a dog is not big.", "the man is not red": "the man is red", "blue guitar .": "no guitar"}
CHOSEN = {
    "released": {},
    "line": {"lookup": "line", "second_template": None},
    "margins": {"alpha": -0.2, "beta": 0.05, "weight": 0.7, "temperature": 0.5},
    "no full stop": {"full_stop": "none", "head": "none", "weight": 2.0},
    "longer": {"max_length_counts": "sentence"},
}


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


class Oracle:
    """The same weights, one text at a time, by transformers."""

    def __init__(self, folder, method):
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False).double().eval()
        self.tokenizer, self.options = AutoTokenizer.from_pretrained(folder), method.options
        self.dense = None
        if method.head is not None:
            self.dense = [weight.detach().clone().requires_grad_() for weight in method.head.dense.parameters()]

    def vector(self, text, template):
        ids = spelt(self.tokenizer, template, text, self.options)
        place = len(ids) - 1 - ids[::-1].index(self.tokenizer.mask_token_id)
        state = self.model(input_ids=torch.tensor([ids])).last_hidden_state[0, place]
        return state if self.dense is None else torch.tanh(self.dense[0] @ state + self.dense[1])

    def loss(self, texts):
        options = self.options
        mask = self.tokenizer.mask_token
        first, second = (each.replace("[MASK]", mask) for each in (
            options.template, options.second_template or options.template))
        z0 = [self.vector(stopped(text, options), first) for text in texts]
        z1 = [self.vector(stopped(text, options), second) for text in texts]
        z2 = [self.vector(negation_of(text, options), second) for text in texts]
        vectors = (torch.stack(rows) for rows in (z0, z1, z2))
        weights = {name: getattr(options, name) for name in ("temperature", "alpha", "beta", "weight")}
        return losses.sncse(*vectors, **weights)


def gradients(method, oracle):
    theirs = {f"backbone.model.{name}": weight.grad for name, weight in oracle.model.named_parameters()}
    if oracle.dense:
        theirs |= dict(zip(("head.dense.weight", "head.dense.bias"), (weight.grad for weight in oracle.dense), strict=True))
    mine = {name: weight.grad for name, weight in method.named_parameters()}
    assert mine.keys() == theirs.keys()
    return [(mine[name], theirs[name]) for name in mine if theirs[name] is not None and theirs[name].any()]


@pytest.mark.parametrize(("family", "name"), [(list(FIRST)[number % 2], name) for number, name in enumerate(CHOSEN)])
def test_loss_and_gradients_are_those_of_the_equations(masked_lms, pairs, name, family):
    method = sncse(masked_lms[family], pairs, **{"weight": 0.5, **CHOSEN[name]})
    oracle = Oracle(masked_lms[family], method)
    terms = method(batch_of(method, MemoryRows(masked_lms[family], {"sentence": TEXTS}), more_padding=3))
    assert [(key, term.count) for key, term in terms.items()] == [("contrastive", 5), ("soft_negative", 5)]
    assert terms["soft_negative"].value.item() > 1e-3
    value, expected = total(terms), oracle.loss(TEXTS)
    assert value.item() == pytest.approx(expected.item(), abs=1e-9)
    value.backward()
    expected.backward()
    compared = gradients(method, oracle)
    assert len(compared) > 20 and max(float(mine.abs().max()) for mine, _ in compared) > 1e-3
    for mine, theirs in compared:
        assert torch.allclose(mine, theirs, rtol=1e-7, atol=1e-8)


def test_a_tokenizer_that_knows_blanks_in_training_as_released(masked_lms, pairs):
    """A blank by itself, and a sentence whose first word has none; the test's tokens have it inside the first word."""
    method = sncse(masked_lms["roberta"], pairs, train_tokens="released", weight=0.5,
                   test_template="the {} means [MASK].")
    rows, oracle = MemoryRows(masked_lms["roberta"], {"sentence": TEXTS}), Oracle(masked_lms["roberta"], method)
    assert total(method(batch_of(method, rows))).item() == pytest.approx(oracle.loss(TEXTS).item(), abs=1e-9)
    tokenizer, cat = oracle.tokenizer, MemoryRows(masked_lms["roberta"], {"sentence": ["cat"]})
    released = tokenizer.convert_ids_to_tokens(method.read(cat, "sentence")[0])
    assert released == ["<s>", "the", "[UNK]", "cat", "Ġ.", "Ġmeans", "<mask>", "Ġ.", "</s>"]  # no blank in its vocabulary
    plain = sncse(masked_lms["roberta"], pairs)
    clean = tokenizer.convert_ids_to_tokens(plain.read(cat, "sentence")[0])
    assert clean == ["<s>", "the", "Ġcat", "Ġ.", "Ġmeans", "<mask>", "Ġ.", "</s>"]
    assert [each.inference().prompt.template for each in (method, plain)] == ["the {} means [MASK].", FIRST["bert"]]


@pytest.mark.parametrize(("text", "expected"), [
    ("a cat", "a cat ."), ("a cat  ", "a cat   ."), ("a cat!", "a cat!"), ("a cat) ", "a cat) "), ("", ""), ("  ", "  "),
    ("a cat\u2026", "a cat\u2026 ."), ("a cat's", "a cat's ."), ("a cat'", "a cat'"),
])
def test_the_full_stop_of_the_released_code(text, expected):
    assert with_full_stop(text, "punctuation32") == expected and with_full_stop(text, False) == text


def test_the_template_counts_and_only_the_sentence_is_cut(masked_lms, pairs):
    method = sncse(masked_lms["bert"], pairs)
    long = MemoryRows(masked_lms["bert"], {"sentence": ["cat dog man woman park"]})
    tokens = method.backbone.tokenizer.convert_ids_to_tokens(method.read(long, "sentence")[0])
    assert tokens == ["[CLS]", "the", "cat", "dog", "man", "woman", "means", "[MASK]", ".", "[SEP]"] and len(tokens) == LIMIT
    marked = MemoryRows(masked_lms["bert"], {"sentence": ["a [MASK]", "cat"]})
    assert method(batch_of(method, marked))["contrastive"].value.isfinite()


# (text, dependency, tag, lemma) a token, and the negation
PARSES = [
    ("She/nsubj/PRP/she has/aux/VBZ/have not/neg/RB/not left/ROOT/VBN/leave ,/punct/,/,", "She has left ,"),
    ("To/aux/TO/to not/neg/RB/not be/advcl/VB/be not/neg/RB/not he/nsubj/PRP/he", "To be not he"),
    ("Not/neg/RB/not all/det/DT/all ships/nsubj/NNS/ship sank/ROOT/VBD/sink", "Not all ships did not sink"),
    ("He/nsubj/PRP/he does/aux/VBZ/do n't/neg/RB/not go/ROOT/VB/go", "He does not n't go"),
    ("To/aux/TO/to win/advcl/VB/win he/nsubj/PRP/he trains/ROOT/VBZ/train", "To not win he trains"),
    ("He/nsubj/PRP/he trains/ROOT/VBZ/train to/aux/TO/to win/xcomp/VB/win", "He does not train to win"),
    ("IS/ROOT/VBZ/be it/nsubj/PRP/it red/acomp/JJ/red ?/punct/./?", "IS not it red ?"),
    ("They/nsubj/PRP/they sing/ROOT/VBP/sing", "They do not sing"),
    ("They/nsubj/PRP/they sang/ROOT/VBD/sing", "They did not sing"),
    ("He/nsubj/PRP/he has/ROOT/VBZ/have ships/dobj/NNS/ship", "He does not have ships"),
    ("A/det/DT/a red/amod/JJ/red ship/ROOT/NN/ship", None),
    ("Be/ROOT/VB/be quiet/acomp/JJ/quiet", None),
    ("", None),
]


@pytest.mark.parametrize(("spelt", "expected"), PARSES)
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
    ("They own a mill.", "They do not own a mill."), ("A  mill,  which  was  new.", "A  mill,  which  was not  new."),
])
def test_the_rule_of_verb_lists(text, expected):
    assert verbs.negated(text) == expected


@pytest.mark.parametrize("module", [sys.modules[negated.__module__], verbs])
def test_examples(module):
    import torch

    result = doctest.testmod(module, globs={**vars(module), "torch": torch})
    assert result.attempted and not result.failed


def test_every_listed_verb_has_four_forms():
    for table in (verbs._STRONG, verbs._WEAK):
        entries = list(verbs._entries(table))
        assert {len(entry) for entry in entries} == {4} and len({entry[0] for entry in entries}) == len(entries)
    assert set(verbs._THIRD) >= verbs._NOUNS_TOO


LINES = ["The ship is red.", "the ship is red", "A red ship", "He went home !", " It may rain. "]


def negatives(**options):
    return Negatives(SNCSEOptions(**options))


def test_what_a_lookup_behind_the_full_stop_misses():
    """A line without punctuation has another text then: none of the table's."""
    released = negatives(negation="verbs")
    assert released(LINES) == ["The ship is not red.", "Not the ship is red .", "Not A red ship .", "He did not go home !",
                               "Not  It may rain. "]
    line = negatives(negation="verbs", lookup="line")
    assert line(LINES) == ["The ship is not red.", "the ship is not red .", "Not A red ship .", "He did not go home !",
                           "It may not rain."]
    for source, expected in ((released, {"source": 2, "full stop": 3}), (line, {"source": 4, "unknown": 1})):
        assert source.report() == []
        source.count(LINES[:2])
        source.count(LINES[2:])
        assert source.counted == expected
    assert released.report() == [
        'soft negatives of 5 sentences: 2 (40.0 %) by verb lists; "Not " in front of 3 (60.0 %) looked up '
        "behind a full stop (options.lookup after_full_stop)"]
    assert line.report() == [
        'soft negatives of 5 sentences: 4 (80.0 %) by verb lists; "Not " in front of 1 (20.0 %) without a verb '
        "that it knows"]


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


def by_a_parser(monkeypatch, calls):
    """spaCy's interface, with a model that knows the roots "is" and "went"."""

    def pipe(texts):
        for text in texts:
            calls.append(text)
            yield [_Word(word, "ROOT" if word in ("is", "went") else "x", "VBD", {"went": "go"}.get(word, word))
                   for word in text.split()]

    class _Word(SimpleNamespace):
        def __init__(self, text, dep, tag, lemma):
            super().__init__(text=text, dep_=dep, tag_=tag, lemma_=lemma)

        def __str__(self):
            return self.text

    model = SimpleNamespace(pipe=pipe, meta={"version": "2"})
    loaded = []
    fake = SimpleNamespace(__version__="1", load=lambda name: loaded.append(name) or model)
    monkeypatch.setitem(sys.modules, "spacy", fake)
    return model, loaded


def test_where_no_form_of_the_rule_fits_not_stands_before_the_tokens(monkeypatch):
    """The released rule joins the tokens of all its forms by blanks; what the lookup misses keeps the sentence's spacing."""
    by_a_parser(monkeypatch, [])
    source = negatives()
    lines = ["A red  mill.", "A red  mill"]
    assert source(lines) == ["Not A red mill.", "Not A red  mill ."]
    source.count(lines)
    assert source.counted == {"unknown": 1, "full stop": 1}


def test_the_rule_by_a_parser(monkeypatch):
    """The model reads each line once, whatever it is asked for."""
    calls = []
    model, loaded = by_a_parser(monkeypatch, calls)
    source = negatives()
    assert loaded == ["en_core_web_sm"]
    source.count(LINES)
    assert source(LINES) == ["The ship is not red.", "Not the ship is red .", "Not A red ship .", "He did not go home !",
                             "Not  It may rain. "]
    assert calls == ["The ship is red.", "He went home !"]
    [report] = source.report()
    assert report.startswith("soft negatives of 5 sentences: 2 (40.0 %) by the released rule (spaCy 1, en_core_web_sm 2); ")
    first = source.inputs()
    model.meta["version"] = "3"
    assert first.keys() == {"parser"} and first != negatives().inputs()
    assert json.dumps(first)
