"""SNCSE's loss and gradients against loops in float64, its views token by token, and what its parts come down to."""

from __future__ import annotations

import json
import string

import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, make, total
from transformers import AutoModel, AutoTokenizer

from stsbench import losses
from stsbench.encoders.prompt.template import with_full_stop
from stsbench.methods.sncse.method import SNCSE

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
