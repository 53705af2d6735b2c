"""Each preset against a plain loop of transformers' own model, one text at a time, written from the paper's description."""

import copy

import numpy as np
import pytest
import torch
from tiny_decoders import TEXTS, Naive, decoder_folder

from stsbench import load_encoder

CLOSE = 1e-6
BEHIND = ' means in one word:"'
FOLDERS = [("llama", "bos"), ("llama", "none"), ("llama", "pieces"), ("opt", "both")]
THOUGHT = 'After thinking step by step , this sentence : "'
KNOWN = ("The essence of a sentence is often captured by its main subjects and actions, while descriptive terms provide "
         'additional but less central details. With this in mind , this sentence : "')
IRRELEVANT = 'The irrelevant information of this sentence : "'


@pytest.fixture(scope="module")
def naive(tmp_path_factory):
    made = {}

    def get(family, ends):
        if (family, ends) not in made:
            folder = decoder_folder(tmp_path_factory.mktemp("decoder") / f"{family}-{ends}", family, ends)
            made[family, ends] = folder, Naive(folder)
        return made[family, ends]

    return get


def cleaned(text):
    if text and text[-1] not in '.?"\'':
        text += "."
    text = text.replace('"', "'")
    return text[:-1] + "." if text and text[-1] == "?" else text


def last(model, before, text, layer=-1, behind=BEHIND):
    return model.states(model.ids(f'{before}{text}"{behind}'), layer)[-1]


def metaeol(model, text):
    from stsbench.extensions.decoders.presets import METAEOL

    assert len(METAEOL) == 8 and len({prompt.partition("{}")[2] for prompt in METAEOL}) == 7  # "means" stands twice
    return torch.stack([model.states(model.ids(prompt.replace("{}", cleaned(text))))[-1] for prompt in METAEOL]).mean(0)


def echo(model, text):
    before = f"Rewrite the following paragraph: {text}. The rewritten paragraph: "
    encoding = model.tokenizer(before + text, return_offsets_mapping=True)
    states = model.states(model.ids(before + text))
    second = [i for i, (left, right) in enumerate(encoding["offset_mapping"][: len(states)]) if right > len(before)]
    # an empty copy has no token but the blank before it
    return states[second or [-1]].mean(0)


def echo_trained(model, text, pooling="mean"):
    parts = ["<s>Instruct:", "Retrieve semantically similar text,", "\nQuery:", text, "\nQuery again:"]
    before = [token for part in parts for token in model.pieces(part)]
    second = [*model.pieces(text), *model.pieces("</s>")]
    states = model.states(before + second)[len(before):]
    return states.mean(0) if pooling == "mean" else states[-1]


def weighted(model, text):
    states = model.states(list(model.tokenizer(text)["input_ids"]) or [0])
    weights = torch.arange(1, len(states) + 1).float()
    return (states * weights[:, None]).sum(0) / weights.sum()


def llm2vec(model, text, before="", behind=""):
    """All attention in both directions; the mean over as many last positions as the text and what closes it have alone."""
    for part in model.model.modules():
        if hasattr(part, "is_causal"):
            part.is_causal = False
    model.model.config.is_causal = False
    states = model.states(model.ids(f"{before}Retrieve semantically similar text: {text}{behind}"))
    own = len(model.pieces(f"{text}{behind}"))
    for part in model.model.modules():
        if hasattr(part, "is_causal"):
            part.is_causal = True
    model.model.config.is_causal = True
    return states[-own:].mean(0)


def by_layers(model, states, change=lambda layer, states: states):
    """(tokens, d) inputs of the layers, one after another, and what comes out of the last; no norm."""
    base = model.model.base_model
    decoder = getattr(base, "decoder", base)
    positions = torch.arange(states.shape[1])[None]
    more = {"position_embeddings": base.rotary_emb(states, positions)} if hasattr(base, "rotary_emb") else {}
    outputs = [states]
    for number, layer in enumerate(decoder.layers):
        outputs.append(layer(change(number, outputs[-1]), attention_mask=None, **more))
    return outputs


def prepended(model, text, before='This sentence :', opening=' "', layer=2, leave=3):
    """A placeholder behind the colon takes the last position's state before the layers 1 to `leave` - 1."""
    words = copy.deepcopy(model.tokenizer)
    words.add_tokens(["<PST>"])
    ids = list(words(f'{before} <PST>{opening}{cleaned(text)}"{BEHIND}')["input_ids"])
    ids = ids[:-1] if ids[-1] == words.eos_token_id else ids
    at = ids.index(len(words) - 1)
    first, rest = ids[:at], ids[at + 1 :]
    embed = model.model.get_input_embeddings()
    vector = torch.randn(embed.weight.shape[1], generator=torch.Generator().manual_seed(3407))
    with torch.no_grad():
        states = torch.cat([embed(torch.tensor(first)), vector[None], embed(torch.tensor(rest))])[None]
        decoder = getattr(model.model.base_model, "decoder", None)
        if decoder is not None:  # OPT's learned positions begin at 2
            states = states + decoder.embed_positions.weight[2 : 2 + states.shape[1]]

        def change(number, states):
            if 1 <= number < leave:
                states = states.clone()
                states[0, len(first)] = states[0, -1]
            return states

        return by_layers(model, states, change)[layer][0, -1]


class Spy(torch.nn.Module):
    """An output projection that keeps what it last read at the last position, or reads something else there."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.read, self.change = inner, None, None

    def forward(self, states):
        if self.change is not None:
            states = states.clone()
            states[0, -1] = self.change(states[0, -1])
        self.read = states[0, -1]
        return self.inner(states)


def contrasted(model, text, before, layer, at, kind="scaled", alpha=0.5):
    base = model.model.base_model
    attention = getattr(base, "decoder", base).layers[at].self_attn
    name = "o_proj" if hasattr(attention, "o_proj") else "out_proj"
    spy = Spy(getattr(attention, name))
    setattr(attention, name, spy)
    try:
        last(model, IRRELEVANT, cleaned(text))
        irrelevant = spy.read

        def change(own):
            rest = own - irrelevant
            return alpha * rest if kind == "scaled" else rest * own.norm() / (rest.norm() + 1e-7)

        spy.change = change
        return last(model, before, cleaned(text), layer)
    finally:
        setattr(attention, name, spy.inner)


def both(model, text, **how):
    return (contrasted(model, text, KNOWN, **how) + contrasted(model, text, THOUGHT, **how)) / 2


FIRST = 'This sentence : "'
TOKENISED = ("prompteol", "echo", "echo:released", "weighted-mean", "llm2vec:inst", "token-prepending:exit=3,layer=2")
PRESETS = {
    "prompteol": lambda model, text: last(model, FIRST, cleaned(text)),
    "prompteol:paper": lambda model, text: last(model, 'This sentence: "', text),
    "prompteol:paper,clean_up=prompteol,layer=1": lambda model, text: last(model, 'This sentence: "', cleaned(text), 1),
    "pretended-cot": lambda model, text: last(model, THOUGHT, cleaned(text), -2),
    "knowledge": lambda model, text: last(model, KNOWN, cleaned(text), -2),
    "metaeol": metaeol,
    "echo": echo,
    "echo:released": echo_trained,
    "echo:released-last": lambda model, text: echo_trained(model, text, "last"),
    "weighted-mean": weighted,
    "llm2vec": llm2vec,
    "llm2vec:inst": lambda model, text: llm2vec(model, text, "[INST] ", " [/INST]"),
    "token-prepending:exit=3,layer=2": prepended,
    "token-prepending:llama-3-8b": lambda model, text: prepended(model, text, THOUGHT[:-2], layer=-2),
    "contrastive:at=1,layer=3": lambda model, text: contrasted(model, text, FIRST, 3, 1),
    "contrastive:paper,at=2,layer=-1": lambda model, text: contrasted(model, text, FIRST, -1, 2, alpha=2.0),
    "contrastive:paper-knowledge,at=0": lambda model, text: contrasted(model, text, KNOWN, -2, 0, alpha=3.0),
    "contrastive:prompt=ck,kind=norm,at=1,layer=3": lambda model, text: both(model, text, layer=3, at=1, kind="norm"),
}


@pytest.mark.parametrize(("family", "ends", "preset"), [
    (family, ends, preset) for family, ends in FOLDERS for preset in PRESETS
    if (family, ends) in FOLDERS[:1] + FOLDERS[-1:] or preset in TOKENISED
])
def test_a_preset_is_what_its_paper_describes(naive, family, ends, preset):
    folder, model = naive(family, ends)
    # without a token in front, a text of no tokens has nothing to be pooled
    texts = [text for text in TEXTS if text or preset not in ("weighted-mean", "llm2vec", "llm2vec:inst", "echo")]
    with torch.no_grad():
        want = torch.stack([PRESETS[preset](model, text) for text in texts]).numpy()
    got = load_encoder(str(folder), preset=preset, device="cpu").encode(texts)
    assert np.ptp(want, axis=0).max() > 0.01  # the texts have different vectors
    assert np.abs(got - want).max() < CLOSE * max(1, np.abs(want).max())


@pytest.mark.parametrize(("family", "preset"), [
    ("opt", "prompteol"), ("llama", "token-prepending:exit=3,layer=-2"), ("opt", "contrastive:at=1,layer=-2"),
    ("llama", "llm2vec"), ("llama", "echo"),
])
def test_a_vector_does_not_depend_on_padding_or_on_other_texts(naive, tmp_path, family, preset):
    left = decoder_folder(tmp_path / "left", family, "bos", "left")
    folder, _ = naive(family, "bos")
    whole = load_encoder(str(folder), preset=preset, device="cpu")
    want = whole.encode(TEXTS)
    assert whole.engine.endswith("without padding")
    others = {
        "left": load_encoder(str(left), preset=preset, device="cpu").encode(TEXTS),
        "alone": np.stack([whole.encode(text) for text in TEXTS]),
        "padded": load_encoder(str(folder), preset=preset, device="cpu", attention="padded").encode(TEXTS),
        "eager": load_encoder(str(folder), preset=preset, device="cpu", attention="eager").encode(TEXTS),
        "few tokens a batch": load_encoder(str(folder), preset=preset, device="cpu", batch_tokens=64).encode(TEXTS),
    }
    assert {name: far for name, got in others.items() if (far := float(np.abs(got - want).max())) > 2 * CLOSE} == {}


def test_demonstrations_stand_before_the_template(naive, tmp_path, monkeypatch):
    folder, model = naive("llama", "bos")
    (tmp_path / "train").mkdir()
    shots = tmp_path / "train" / "shots.tsv"
    shots.write_text("A dog {} runs.\tRunning\nSnow falls\tWinter\n", "utf-8")
    encoder = load_encoder(str(folder), preset=f"prompteol:demonstrations={shots}", device="cpu")
    before = f'{FIRST}A dog {{}} runs."{BEHIND}Running".{FIRST}Snow falls"{BEHIND}Winter".{FIRST}'
    want = torch.stack([last(model, before, cleaned(text)) for text in TEXTS]).numpy()
    assert np.abs(encoder.encode(TEXTS) - want).max() < CLOSE * np.abs(want).max()
    monkeypatch.setenv("STSBENCH_DATA", str(tmp_path))
    assert load_encoder(str(folder), preset="prompteol:demonstrations=shots.tsv", device="cpu").spec == encoder.spec
    options = encoder.spec.options
    assert [shot["word"] for shot in options["demonstrations"]] == ["Running", "Winter"] and "A dog" not in str(encoder.spec)
    shots.write_text("A cat {} runs.\tRunning\nSnow falls\tWinter\n", "utf-8")
    other = load_encoder(str(folder), preset=f"prompteol:demonstrations={shots}", device="cpu")
    assert other.spec.fingerprint() != encoder.spec.fingerprint()


def test_a_long_text_loses_its_last_tokens_and_no_template_does(naive):
    folder, model = naive("opt", "both")
    text = " ".join(["The man plays the guitar."] * 9)
    encoder = load_encoder(str(folder), preset="prompteol", max_length=60, device="cpu")
    result = encoder.run([text])
    whole = model.ids(f'{FIRST}{text}"{BEHIND}')
    behind = len(model.pieces(f'"{BEHIND}'))
    kept = whole[: 60 - behind] + whole[-behind:]
    assert result.truncated.tolist() == [True] and len(whole) > 60
    assert np.abs(result.vectors[0] - model.states(kept)[-1].numpy()).max() < 1e-5
    for preset in ("echo", "echo:released"):
        short = load_encoder(str(folder), preset=preset, max_length=120, device="cpu").built
        rows = short.reader.tokenisers[0]([text, "Rain"])
        assert len(rows.ids[0]) in (119, 120) and rows.cut.tolist() == [True, False]
        tail, words = int(rows.tails[0]), model.pieces(text)
        kept = rows.ids[0][-tail:] if preset == "echo" else rows.ids[0][-tail:-1]
        assert kept == words[: len(kept)] and len(kept) > 20
        assert str(rows.ids[0])[1:-1].count(str(kept[1:-2])[1:-1]) == 2  # either copy was cut
