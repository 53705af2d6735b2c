"""SNCSE's loss and gradients against loops in float64, its views token by token, and what its parts come down to."""

import json
import string

import promptbert_oracle
import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, make, total
from shipped_recipes import one_line
from transformers import AutoModel, AutoTokenizer

from stsbench.config import validate
from stsbench.encoders.prompt.template import with_full_stop
from stsbench.errors import StsbenchError
from stsbench.losses.margins import bidirectional_margin
from stsbench.methods.promptbert.method import PromptBERT
from stsbench.methods.sncse.method import SNCSE
from stsbench.methods.sncse.options import SNCSEOptions

FIRST = {"bert": "the {} means [MASK] .", "roberta": "the {} means <mask> ."}
OF = {"bert": "a {} means [MASK] .", "roberta": "a {} means <mask> ."}
TEXTS = ["the cat sleeps in the park with food", "a dog is big.", "the man is not red", "blue guitar", "a cat eats food ,"]
NEGATIONS = {"a dog is big.": "a dog is not big.", "the man is not red": "the man is red", "blue guitar .": "no guitar"}
CHOSEN = {
    "released": {},
    "line": {"lookup": "line"},
    "margins": {"alpha": -0.2, "beta": 0.05, "weight": 0.7, "temperature": 0.5},
    "no head": {"head": "none", "weight": 2.0},
    "one template": {"second_template": None},
    "no full stop": {"full_stop": "none"},
    "longer": {"max_length_counts": "sentence"},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("sncse")
    return {family: promptbert_oracle.build(place / family, family) for family in FIRST}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    path.write_text("".join(json.dumps(pair) + "\n" for pair in NEGATIONS.items()), "utf-8")
    return str(path)


def sncse(folder, pairs, **options):
    first, second = (each[folder.name].replace("<mask>", "[MASK]") for each in (FIRST, OF))
    chosen = {"template": first, "second_template": second, "negation": "file", "negations": pairs, **options}
    if chosen.get("weight") == 0:
        del chosen["negation"], chosen["negations"]
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
        total = 0
        for i, anchor in enumerate(z0):
            sims = [torch.exp(cosine(anchor, other) / options.temperature) for other in z1]
            total = total - torch.log(sims[i] / sum(sims))
            if options.weight:
                z2 = self.vector(negation_of(texts[i], options), second)
                d = cosine(anchor, z2) - cosine(anchor, z1[i])
                margin = max(d + options.alpha, 0 * d) + max(-d - options.beta, 0 * d)
                total = total + options.weight * margin
        return total / len(texts)


def cosine(a, b):
    return (a @ b) / (a.norm() * b.norm())


def gradients(method, oracle):
    theirs = {f"backbone.model.{name}": weight.grad for name, weight in oracle.model.named_parameters()}
    if oracle.dense:
        theirs |= dict(zip(("head.dense.weight", "head.dense.bias"), (weight.grad for weight in oracle.dense), strict=True))
    mine = {name: weight.grad for name, weight in method.named_parameters()}
    assert mine.keys() == theirs.keys()
    return [(mine[name], theirs[name]) for name in mine if theirs[name] is not None and theirs[name].any()]


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("family", FIRST)
@pytest.mark.parametrize("name", CHOSEN)
def test_loss_and_gradients_are_those_of_the_equations(folders, pairs, name, family, padding):
    method = sncse(folders[family], pairs, **{"weight": 0.5, **CHOSEN[name]})
    oracle = Oracle(folders[family], method)
    terms = method(batch_of(method, MemoryRows(folders[family], {"sentence": TEXTS}), more_padding=padding))
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


def test_a_tokenizer_that_knows_blanks_in_training_as_released(folders, pairs):
    """A blank by itself, and a sentence whose first word has none; the test's tokens have it inside the first word."""
    method = sncse(folders["roberta"], pairs, train_tokens="released", weight=0.5,
                   test_template="the {} means [MASK].")
    rows, oracle = MemoryRows(folders["roberta"], {"sentence": TEXTS}), Oracle(folders["roberta"], method)
    assert total(method(batch_of(method, rows))).item() == pytest.approx(oracle.loss(TEXTS).item(), abs=1e-9)
    tokenizer, cat = oracle.tokenizer, MemoryRows(folders["roberta"], {"sentence": ["cat"]})
    released = tokenizer.convert_ids_to_tokens(method.read(cat, "sentence")[0])
    assert released == ["<s>", "the", "[UNK]", "cat", "Ġ.", "Ġmeans", "<mask>", "Ġ.", "</s>"]  # no blank in its vocabulary
    plain = sncse(folders["roberta"], pairs)
    clean = tokenizer.convert_ids_to_tokens(plain.read(cat, "sentence")[0])
    assert clean == ["<s>", "the", "Ġcat", "Ġ.", "Ġmeans", "<mask>", "Ġ.", "</s>"]
    assert [each.inference().prompt.template for each in (method, plain)] == ["the {} means [MASK].", FIRST["bert"]]
    assert one_line(lambda: sncse(folders["bert"], pairs, train_tokens="released")).startswith(
        "options.train_tokens released has no effect: for bert the blank before the sentence is no token")


def test_weight_0_is_the_contrast_of_two_templates_that_promptbert_has(folders, pairs):
    """Bit by bit, with dropout: the comparison that the soft negatives have to be held against."""
    texts = ["the cat sleeps", "a dog.", "blue guitar ?"]
    options = {"template": FIRST["bert"], "second_template": OF["bert"]}
    ours = make(SNCSE, folders["bert"], {**options, "weight": 0, "full_stop": "none", "max_length_counts": "sentence"},
                dropout=0.1, pooler="mask")
    theirs = make(PromptBERT, folders["bert"], {**options, "denoise": False, "text": "inside"}, dropout=0.1, pooler="mask")
    values = []
    for method in (ours, theirs):
        batch = batch_of(method, MemoryRows(folders["bert"], {"sentence": texts}))
        torch.manual_seed(5)
        terms = method(batch)
        assert list(terms) == ["contrastive"] and batch.views == 2
        total(terms).backward()
        values.append((terms["contrastive"].value.item(), [weight.grad for weight in method.parameters()]))
    assert values[0][0] == values[1][0]
    assert all(one is other or torch.equal(one, other) for one, other in zip(values[0][1], values[1][1], strict=True))


def margin(d, alpha=0.1, beta=0.3):
    """Of one sentence whose cosines differ by d; and the gradient of its two cosines."""
    cosines = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (0.2, 0.2 + d)]
    rows = [torch.stack([each, (1 - each**2).sqrt()]).unsqueeze(0) for each in cosines]
    anchor = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    value = bidirectional_margin(anchor, *rows, alpha=alpha, beta=beta)
    value.backward()
    return value.item(), *(each.grad.item() for each in cosines)


def test_the_margin_by_hand():
    assert margin(0.05) == pytest.approx((0.15, -1, 1)) and margin(-0.5) == pytest.approx((0.2, 1, -1))
    assert margin(-0.2) == (0, 0, 0)
    assert margin(-0.2, alpha=0.25, beta=0.3)[0] == pytest.approx(0.05)


def test_the_margin_knows_no_lengths_and_is_0_without_a_gradient_inside():
    torch.manual_seed(1)
    a, p, m = (torch.randn(6, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    value = bidirectional_margin(a, p, m, alpha=0.1, beta=0.3)
    scaled = bidirectional_margin(7 * a, p / 3, m * torch.arange(1, 7).unsqueeze(1), alpha=0.1, beta=0.3)
    assert value.item() > 0.05 and scaled.item() == pytest.approx(value.item(), abs=1e-12)
    inside = bidirectional_margin(a, p, m, alpha=-2, beta=2)
    inside.backward()
    assert inside.item() == 0 and not any(each.grad.any() for each in (a, p, m))
    low = [each.detach().bfloat16() for each in (a, p, m)]
    with torch.autocast("cpu", torch.bfloat16):
        narrow = bidirectional_margin(*low, alpha=0.1, beta=0.3)
    assert narrow.dtype == torch.float32 and narrow.item() == pytest.approx(
        bidirectional_margin(*(each.double() for each in low), alpha=0.1, beta=0.3).item(), abs=1e-6)
    none = bidirectional_margin(a[:0], p[:0], m[:0], alpha=0.1, beta=0.3)
    assert none.item() == 0 and none.requires_grad


@pytest.mark.parametrize(("text", "expected"), [
    ("a cat", "a cat ."), ("a cat  ", "a cat   ."), ("a cat!", "a cat!"), ("a cat) ", "a cat) "), ("", ""), ("  ", "  "),
    ("a cat\u2026", "a cat\u2026 ."), ("a cat's", "a cat's ."), ("a cat'", "a cat'"),
])
def test_the_full_stop_of_the_released_code(text, expected):
    assert with_full_stop(text, "punctuation32") == expected and with_full_stop(text, False) == text


def test_the_template_counts_and_only_the_sentence_is_cut(folders, pairs):
    method = sncse(folders["bert"], pairs)
    long = MemoryRows(folders["bert"], {"sentence": ["cat dog man woman park"]})
    tokens = method.backbone.tokenizer.convert_ids_to_tokens(method.read(long, "sentence")[0])
    assert tokens == ["[CLS]", "the", "cat", "dog", "man", "woman", "means", "[MASK]", ".", "[SEP]"] and len(tokens) == LIMIT
    marked = MemoryRows(folders["bert"], {"sentence": ["a [MASK]", "cat"]})
    assert method(batch_of(method, marked))["contrastive"].value.isfinite()
    with pytest.raises(StsbenchError, match=r"options\.template: its 10 tokens fill backbone\.max_length 10"):
        sncse(folders["bert"], pairs, template="the man in the big {} means [MASK] .")


@pytest.mark.parametrize(("options", "said"), [
    ({"weight": 0, "alpha": 0.2}, "options.alpha 0.2 has no effect with weight 0: it goes with weight above 0"),
    ({"weight": 0, "negation": "verbs"}, "options.negation verbs has no effect with weight 0"),
    ({"weight": 0, "lookup": "line"}, "options.lookup line has no effect with weight 0"),
    ({"alpha": 0.4}, "options.beta 0.3 is below alpha 0.4"),
    ({"negation": "file"}, "options.negation file needs negations: a file of JSON lines [sentence, negation]"),
    ({"negation": "verbs", "negations": "x"}, "options.negations x has no effect with negation verbs"),
    ({"negation": "verbs", "full_stop": "none", "lookup": "line"}, "options.lookup line has no effect with full_stop none"),
    ({"negation": "verbs", "test_template": FIRST["bert"]}, "options.test_template is template"),
])
def test_options_that_do_not_go_together(options, said):
    chosen = {"template": FIRST["bert"], "second_template": OF["bert"], **options}
    assert one_line(lambda: validate(SNCSEOptions, chosen, "recipe", "options.")).startswith(f"recipe: {said}")


def test_a_template_without_a_mask_is_refused(folders):
    chosen = {"template": "a {}", "second_template": OF["bert"], "negation": "verbs"}
    assert one_line(lambda: make(SNCSE, folders["bert"], chosen, pooler="mask")).startswith(
        "options.template: 'a {}' must hold [MASK] or {mask} exactly once")


def test_another_pooler_is_refused(folders):
    assert "sncse trains the pooler mask, not cls" in one_line(
        lambda: make(SNCSE, folders["bert"], {"negation": "verbs"}, pooler="cls"))
