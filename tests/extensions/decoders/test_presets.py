"""Each preset against a plain loop of transformers' own model, one text at a time, written from the paper's description.
Presets that change a model's states on other families, too, and on layers on the disk: each text has its own vector. How a
preset is spelled, and what of it stands in a record."""

import copy
import json

import numpy as np
import pytest
import torch
import transformers
from clirun import cli, evaluate, place, record  # noqa: F401 - fixtures
from families import FAMILIES
from tiny_decoders import SPREAD, TEXTS, Naive, decoder_folder, tokenizer

from stsbench import load_encoder
from stsbench.encoders.forward.model import main_device
from stsbench.encoders.transformer import parts
from stsbench.errors import EncoderError
from stsbench.extensions.decoders.base import CleanUp
from stsbench.extensions.decoders.load import PRESETS, PresetPages, load_preset
from stsbench.extensions.decoders.presets import METAEOL
from stsbench.extensions.decoders.tokenise import CLEAN_UPS, trailing_tokens

CLOSE = 1e-6
BEHIND = ' means in one word:"'
THOUGHT = 'After thinking step by step , this sentence : "'
KNOWN = ("The essence of a sentence is often captured by its main subjects and actions, while descriptive terms provide "
         'additional but less central details. With this in mind , this sentence : "')


@pytest.fixture(scope="module")
def naive(tmp_path_factory):
    made = {}

    def get(family, ends):
        if (family, ends) not in made:
            side = {"ends": "bos", "padding_side": "left"} if ends == "left" else {"ends": ends}
            folder = decoder_folder(tmp_path_factory.mktemp("decoder") / f"{family}-{ends}", family, **side)
            made[family, ends] = folder, Naive(folder)
        return made[family, ends]

    return get


@pytest.fixture
def folder(naive):
    return naive("llama", "bos")[0]


def cleaned(text):
    if text and text[-1] not in '.?"\'':
        text += "."
    text = text.replace('"', "'")
    return text[:-1] + "." if text and text[-1] == "?" else text


def last(model, before, text, layer=-1, behind=BEHIND):
    return model.states(model.ids(f'{before}{text}"{behind}'), layer)[-1]


def metaeol(model, text):
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
    parts = [*(part for part in model.model.modules() if hasattr(part, "is_causal")), model.model.config]
    for part in parts:
        part.is_causal = False
    states = model.states(model.ids(f"{before}Retrieve semantically similar text: {text}{behind}"))
    own = len(model.pieces(f"{text}{behind}"))
    for part in parts:
        part.is_causal = True
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


def contrasted(model, text, before, layer, at, kind="scaled", alpha=0.5):
    """The other prompt's input of the output projection is taken away from the text's own, at the last position."""
    base, read = model.model.base_model, []
    attention = getattr(base, "decoder", base).layers[at].self_attn
    projection = attention.o_proj if hasattr(attention, "o_proj") else attention.out_proj
    with projection.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0][0, -1])):
        last(model, 'The irrelevant information of this sentence : "', cleaned(text))

    def change(module, inputs):
        states = inputs[0].clone()
        own, rest = states[0, -1].clone(), states[0, -1] - read[0]
        states[0, -1] = alpha * rest if kind == "scaled" else rest * own.norm() / (rest.norm() + 1e-7)
        return (states,)

    with projection.register_forward_pre_hook(change):
        return last(model, before, cleaned(text), layer)


def both(model, text, **how):
    return (contrasted(model, text, KNOWN, **how) + contrasted(model, text, THOUGHT, **how)) / 2


FIRST = 'This sentence : "'
AS_A_LOOP = {
    "prompteol": lambda model, text: last(model, FIRST, cleaned(text)),
    "prompteol:paper,layer=1": lambda model, text: last(model, 'This sentence: "', text, 1),
    "pretended-cot": lambda model, text: last(model, THOUGHT, cleaned(text), -2),
    "knowledge": lambda model, text: last(model, KNOWN, cleaned(text), -2),
    "metaeol": metaeol, "echo": echo, "echo:released": echo_trained,
    "echo:released-last": lambda model, text: echo_trained(model, text, "last"),
    "weighted-mean": weighted, "llm2vec": llm2vec,
    "llm2vec:inst": lambda model, text: llm2vec(model, text, "[INST] ", " [/INST]"),
    "token-prepending:exit=3,layer=2": prepended,
    "token-prepending:llama-3-8b": lambda model, text: prepended(model, text, THOUGHT[:-2], layer=-2),
    "contrastive:at=1,layer=3": lambda model, text: contrasted(model, text, FIRST, 3, 1),
    "contrastive:paper,at=2,layer=-1": lambda model, text: contrasted(model, text, FIRST, -1, 2, alpha=2.0),
    "contrastive:paper-knowledge,at=0": lambda model, text: contrasted(model, text, KNOWN, -2, 0, alpha=3.0),
    "contrastive:prompt=ck,kind=norm,at=1,layer=3": lambda model, text: both(model, text, layer=3, at=1, kind="norm")}


# Those whose tokens or modules are others in another folder than Llama's with a token in front of a text
ELSEWHERE = {
    ("llama", "none"): ("llm2vec:inst", "echo"), ("llama", "pieces"): ("echo:released", "token-prepending:exit=3,layer=2"),
    ("llama", "left"): ("llm2vec", "token-prepending:exit=3,layer=2"),
    ("opt", "both"): ("echo", "llm2vec:inst", "token-prepending:exit=3,layer=2", "contrastive:at=1,layer=3")}
ONLY_THERE = {preset for presets in ELSEWHERE.values() for preset in presets}


@pytest.mark.parametrize(("family", "ends", "preset"), [
    *(("llama", "bos", preset) for preset in AS_A_LOOP if preset not in ONLY_THERE),
    *((*folder, preset) for folder, presets in ELSEWHERE.items() for preset in presets)])
def test_a_preset_is_what_its_paper_describes(naive, family, ends, preset):
    folder, model = naive(family, ends)
    # without a token in front, a text of no tokens has nothing to be pooled
    texts = [text for text in TEXTS if text or preset not in ("weighted-mean", "llm2vec", "llm2vec:inst", "echo")]
    with torch.no_grad():
        want = torch.stack([AS_A_LOOP[preset](model, text) for text in texts]).numpy()
    how = {"attention": "eager", "batch_tokens": 64} if ends == "left" else {}
    encoder = load_encoder(str(folder), preset=preset, device="cpu", **how)
    got = encoder.encode(texts)
    assert how or encoder.engine.endswith("without padding")
    assert np.ptp(want, axis=0).max() > 0.01  # the texts have different vectors
    assert np.abs(got - want).max() < CLOSE * max(1, np.abs(want).max())


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
    assert [trailing_tokens(tokenizer(ends)) for ends in ("none", "bos", "eos", "both")] == [0, 0, 1, 1]
    assert np.abs(result.vectors[0] - model.states(kept)[-1].numpy()).max() < 1e-5
    for preset in ("echo", "echo:released"):
        short = load_encoder(str(folder), preset=preset, max_length=120, device="cpu").built
        rows = short.reader.tokenisers[0]([text, "Rain"])
        assert len(rows.ids[0]) in (119, 120) and rows.cut.tolist() == [True, False]
        tail, words = int(rows.tails[0]), model.pieces(text)
        kept = rows.ids[0][-tail:] if preset == "echo" else rows.ids[0][-tail:-1]
        assert kept == words[: len(kept)] and len(kept) > 20
        assert str(rows.ids[0])[1:-1].count(str(kept[1:-2])[1:-1]) == 2  # either copy was cut


def pair(name):
    kind, settings = FAMILIES[name]
    words = tokenizer("bos")
    more = {"n_positions": 512} if name == "gpt2" else {"max_position_embeddings": 512}
    more |= {"sliding_window": 300} if "sliding_window" in settings else {}  # the placeholder is not out of sight
    torch.manual_seed(2)
    config = getattr(transformers, f"{kind}Config")(**{**settings, "vocab_size": len(words), "pad_token_id": 0, **more})
    model = getattr(transformers, f"{kind}Model")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return model, words


@pytest.mark.parametrize(("family", "preset"), [  # causal families, each with an attention of its own
    ("gemma3", "contrastive:at=1,layer=-1"), ("gpt2", "llm2vec"), ("gpt_neox", "token-prepending:exit=2,layer=-2")])
def test_a_text_has_the_vector_that_it_has_alone(family, preset):
    model = pair(family)
    encoder = load_encoder(model, preset=preset, device="cpu")
    vectors = encoder.encode(TEXTS)
    size = max(1, np.abs(vectors).max())
    assert np.abs(vectors - np.stack([encoder.encode(text) for text in TEXTS])).max() < 1e-5 * size
    # what the preset changes has an effect, by one pass as by the other
    padded = load_encoder(model, preset=preset, device="cpu", attention="padded").encode(TEXTS)
    assert np.abs(vectors - padded).max() < 1e-5 * size
    plain = {"llm2vec": "llm2vec:attention=causal"}.get(preset, f"prompteol:layer={preset.rpartition('=')[2]}")
    assert np.abs(vectors - load_encoder(model, preset=plain, device="cpu").encode(TEXTS)).max() > 1e-2


def test_a_model_without_attention_is_read_but_not_changed():
    mamba = pair("mamba")
    assert load_encoder(mamba, preset="prompteol", device="cpu").encode("Rain").shape == (32,)
    with pytest.raises(EncoderError, match="has no output projection, which the preset changes"):
        load_encoder(mamba, preset="contrastive:at=1,layer=-1", device="cpu").encode("Rain")
    with pytest.raises(EncoderError, match="cannot be switched to both directions"):
        load_encoder(mamba, preset="llm2vec", device="cpu").encode("Rain")


def test_the_last_state_of_a_model_that_projects_it_has_its_own_width(tmp_path):
    """OPT-350m: embeddings and last state of width 512, layers of 1,024."""
    folder = decoder_folder(tmp_path / "opt", "opt", "bos", word_embed_proj_dim=16, do_layer_norm_before=False)
    model = Naive(folder)
    for layer, width in ((-1, 16), (-2, 32)):
        encoder = load_encoder(str(folder), preset="token-prepending:exit=2", layer=layer, device="cpu")
        assert encoder.dimension == width and encoder.encode(TEXTS).shape == (len(TEXTS), width)
        want = model.states(model.ids(TEXTS[0]), layer)[-1].numpy()
        got = load_encoder(str(folder), pooler="last", layer=layer, device="cpu").encode(TEXTS[0])
        assert got.shape == (width,) and np.abs(got - want).max() < 1e-5


def test_half_precision_and_what_comes_behind_the_mean(folder):
    of_two = {"preset": "contrastive:prompt=ck,at=1,layer=3", "device": "cpu"}
    whole, done = load_encoder(str(folder), **of_two).encode(TEXTS), []
    encoder = load_encoder(str(folder), **of_two, dtype="bfloat16", batch_tokens=32)
    half = encoder.run(TEXTS, done.append).vectors
    assert sum(done) == len(TEXTS) and min(done) >= 0
    assert 0 < np.linalg.norm(half - whole) < 0.05 * np.linalg.norm(whole)
    cut = load_encoder(str(folder), **of_two, normalize=True, truncate_dim=8).encode(TEXTS)
    want = whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True)
    assert np.abs(cut - want).max() < 1e-6


def test_layers_on_the_disk_give_the_same_vectors(folder, monkeypatch):
    monkeypatch.setattr(parts, "DEVICE_MAP", SPREAD["llama"])
    whole, spread = (load_encoder(str(folder), preset="token-prepending:exit=3,layer=-2", device=device, dtype="bfloat16")
                     for device in ("cpu", "auto"))
    model = spread.built.model
    assert {str(weight.device) for weight in model.parameters()} == {"cpu", "meta"}  # meta: on the disk
    assert main_device(model) == torch.device("cpu") and spread.spec == whole.spec
    assert np.array_equal(spread.encode(TEXTS), whole.encode(TEXTS))


OTHER = {  # a value of a setting that is not its default
    "clean_up": "full_stop", "template": 'This says : "{}" in one word:"', "pooling": "last", "instruction": "Cluster",
    "prompt": "pretended-cot", "start": 2, "exit": 3, "token": "zero", "seed": 1, "kind": "norm", "alpha": 4.0, "at": 2,
    "wrapper": "inst", "attention": "causal", "layer": 1}
# what a model of four layers needs
SMALL = {"token-prepending": {"exit": 4, "layer": -2}, "contrastive": {"at": 1, "layer": -2}}


def spelled(name, form=None, **settings):
    words = [form] if form else []
    words += [f"{key}={value}" for key, value in {**SMALL.get(name, {}), **settings}.items()]
    return f"{name}:{','.join(words)}" if words else name


def test_any_two_presets_forms_and_settings_have_two_fingerprints(folder, tmp_path):
    shots = tmp_path / "shots.tsv"
    shots.write_text("It rains.\tRain\n", "utf-8")
    asked = [spelled(name, form) for name, kind in PRESETS.items() for form in kind.forms]
    for name, kind in PRESETS.items():
        settings = {key: str(shots) if key == "demonstrations" else OTHER[key] for key in kind.Options.model_fields}
        released = "released" if name == "echo" else None  # whose instruction the first form has not
        asked += [spelled(name, released, **{key: value}) for key, value in settings.items()]
    prints = {}
    for preset in asked:
        reading = load_preset(preset).reading()
        known = json.loads(json.dumps(reading.spec_options() | {"template": reading.template, "pooler": reading.pooler}))
        prints.setdefault(json.dumps(known, sort_keys=True), []).append(preset)
    assert [presets for presets in prints.values() if len(presets) > 1] == []
    assert len(prints) == len(asked) > 50
    encoders = [load_encoder(str(folder), **one, layer=layer)
                for one in ({"preset": "prompteol"}, {"pooler": "last"}) for layer in (None, 2)]
    assert len({encoder.spec.fingerprint() for encoder in encoders}) == len(encoders)


def test_what_a_preset_resolves_to_stands_in_the_spec(folder):
    spec = load_encoder(str(folder), preset="contrastive:at=1,layer=-2,kind=norm", normalize=True).spec
    assert (spec.kind, spec.pooler, spec.max_length, spec.normalize) == ("transformers", "last", 1024, True)
    irrelevant = 'The irrelevant information of this sentence : "{}" means in one word:"'
    assert spec.template == 'This sentence : "{}" means in one word:"' and spec.options == {
        "preset": "contrastive:released,kind=norm,at=1", "layer": -2, "clean_up": "prompteol",
        "contrast": {"template": irrelevant, "at": 1, "kind": "norm", "alpha": None}}
    assert load_preset("contrastive:paper,alpha=2.0,at=3,layer=1").spelled == "contrastive:paper,at=3"


def test_rules_of_clean_up():
    texts = ["", "a", "a.", "a?", 'a"', "a'", 'He said "no"', "Who? Me"]
    assert [CLEAN_UPS["prompteol"](text) for text in texts] == [*map(cleaned, texts)]
    stopped = ["", "a.", "a.", "a?", 'a"', "a'", 'He said "no"', "Who? Me."]
    assert [CLEAN_UPS["full_stop"](text) for text in texts] == stopped and {*CLEAN_UPS} == {*CleanUp.__args__}


def test_the_command_line(cli, evaluate, folder):
    _, listed, _ = cli("list", "encoders")
    assert all(name in listed and kind.sentence in listed and kind.source in listed for name, kind in PRESETS.items())
    assert all(kind.source.rpartition(" ")[2] in PresetPages.page(name) for name, kind in PRESETS.items())
    _, shown, _ = cli("show", "preset", "contrastive")
    assert "# Contrastive Prompting" in shown and "- paper-knowledge: " in shown and "- alpha = 0.5" in shown
    code, _, err = evaluate(str(folder), "--preset", "pretended-cot", "--layer", "-3")
    line = next(line for line in err.splitlines() if line.startswith("encoder "))
    assert code == 0
    for part in ('template After thinking step by step , this sentence : "{}" means in one word:"', "pooler last",
                 "preset pretended-cot:released", "cleaned up by the rule prompteol", "hidden state -3, not normed"):
        assert part in line
    assert ", preset pretended-cot:released, layer -3" in cli("cache", "info")[1]
    spec = record()["encoder"]["spec"]
    assert spec["options"]["layer"] == -3 and spec["options"]["preset"] == "pretended-cot:released"
