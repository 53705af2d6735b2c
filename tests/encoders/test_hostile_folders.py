"""A model folder from elsewhere is data: whatever its files name, nothing of it is imported or run, nothing outside is read,
nothing hangs or fills the memory, and an error is one line that names the file.

Run folders, plans and records are in tests/cli."""

import pickle
import shutil

import pytest
from hostile import CODE, MARKER, OUTSIDE, Evil, check, several, told
from model_folders import write
from spoilt_folders import (  # noqa: F401 - a fixture
    ADAPTER,
    CONFIG,
    LIBRARY,
    NORMALIZE,
    TOKENIZER,
    WEIGHT,
    WORDS,
    base_of_code,
    header,
    index,
    linked,
    linked_module,
    models,
    module,
    own_code,
    pickled,
    put,
    router_of_code,
    set_in,
    work,
    zipped,
)
from training_runs import one_thread  # noqa: F401

from stsbench.encoders.model_folder import check_tokenizer
from stsbench.errors import EncoderError

EVAL = "eval --model m --sample --tasks STS-B --resamples 0 --no-cache --output o --device cpu --offline"
PLAIN = f"{EVAL} --pooler mean"
FIT = f"{EVAL} --post standardise --fit-on text.txt"
TRAIN = ("train simcse --backbone m --data text.txt --sample --offline --max-steps 1 --set training.batch_size=10 "
         "--set selection.every=1 --device cpu --output run")
HUGE = 10**400
SECRET = f"../../{OUTSIDE}/secret"
CATASTROPHE = "(.*a)*(.*b)*(.+)+$(?!x)"


# name: how it is spoilt; what the error says, None where it may do without one; which model; how it is read
VARIANTS = {
    # code
    "auto_map of a known family": (own_code(CONFIG, AutoModel="code.M"), None),
    "auto_map of its own": (several(own_code(CONFIG, AutoModel="code.M", AutoConfig="code.M"),
                                    set_in(CONFIG, model_type="mine")), "--trust-remote-code"),
    "auto_map elsewhere": (several(own_code(CONFIG, AutoModel="other/repo--code.M"), set_in(CONFIG, model_type="mine")),
                           "--trust-remote-code"),
    "tokenizer's class of its own": (several(own_code(TOKENIZER, AutoTokenizer=["code.M", None]),
                                             set_in(TOKENIZER, tokenizer_class="M")), None),
    "module of another library": (several(module(1, type="torch.hub.load"), module(2, type=NORMALIZE)), "", "library"),
    "module of its own behind": (module(2, type="code.M"), "code.M|trust", "library"),
    "dense's activation in torch": (set_in("2_Dense/config.json", activation_function="torch.os.abort"), "", "library"),
    "kernels": (set_in(CONFIG, attn_implementation="org/kernel"), "attn_implementation"),
    "unpickling, asked for": (several(pickled("pytorch_model.bin"), set_in(LIBRARY, model_args={"weights_only": False})),
                              "weights_only"),
    "quantizer, asked for": (set_in(LIBRARY, model_args={"quantization_config": {"quant_method": "gptq"}}),
                             "quantization_config", "library"),
    "quantizer": (set_in(CONFIG, quantization_config={"quant_method": "gptq", "checkpoint_format": "x"}), ""),
    "pickled weights": (pickled("pytorch_model.bin"), "pytorch_model.bin|weights"),
    "zipped pickle": (zipped("pytorch_model.bin"), "pytorch_model.bin|[Ww]eights"),
    "pickle of a module": (several(lambda m: (m / "2_Dense/model.safetensors").unlink(),
                                   put("2_Dense/pytorch_model.bin", pickle.dumps(Evil()))), "", "library"),
    "pickled adapter": (several(lambda m: (m / "adapter_model.safetensors").unlink(),
                                put("adapter_model.bin", pickle.dumps(Evil()))), "", "adapted", PLAIN),
    # paths
    "transformers_weights": (set_in(CONFIG, transformers_weights=f"{SECRET}.safetensors"), "leads out"),
    "shard outside": (index(**{WEIGHT: f"{SECRET}.safetensors"}), "leads out", "sharded", PLAIN),
    "shard missing": (lambda m: next(m.glob("model-*")).unlink(), "model-0.*missing", "sharded", PLAIN),
    "module outside": (module(1, path=f"../{OUTSIDE}/model"), "leads out"),
    "vocabulary outside": (several(set_in(TOKENIZER, vocab_file=f"{SECRET}.json"), lambda m: (m / WORDS).unlink()), ""),
    "class of a table's tokenizer": (several(
        set_in("0_WordEmbeddings/wordembedding_config.json", tokenizer_class="code.M"), put("code.py", CODE),
        put("0_WordEmbeddings/code.py", CODE)), "code.M", "words"),
    "module in a router": (router_of_code, "code.M", "router"),
    "code of an adapter's base": (base_of_code, "--trust-remote-code|code.py", "adapted", PLAIN),
    "linked module": (linked_module, "1_Pooling"),
    "weights a pipe": (linked("model.safetensors", "pipe"), ""),
    "config without an end": (linked(CONFIG, "/dev/zero"), ""),
    "notes without an end": (linked("README.md", "/dev/zero"), None),
    "folder in a circle": (lambda m: (m / "again").symlink_to(m), None),
    # sizes
    "too many layers": (set_in(CONFIG, num_hidden_layers=900), ""),
    "layers beyond": (set_in(CONFIG, num_hidden_layers=HUGE), ""),
    "no heads": (set_in(CONFIG, num_attention_heads=0), ""),
    "layers inside": (set_in(CONFIG, text_config={"num_hidden_layers": 10**6}), "num_hidden_layers"),
    "layer types": (set_in(CONFIG, layer_types=["full_attention"] * 10**6), "", "decoder", PLAIN),
    "dense's width": (set_in("2_Dense/config.json", out_features=10**12), "", "library"),
    "pooling's modes": (set_in("1_Pooling/config.json", pooling_mode=["mean"] * 10**5), "pooling_mode", "library"),
    "padding": (set_in(WORDS, padding={"strategy": {"Fixed": 10**10}, "direction": "Right", "pad_to_multiple_of": None,
                                       "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}), None),
    "tokens without end": (set_in(WORDS, post_processor__single=[{"SpecialToken": {"id": "[SEP]", "type_id": 0}}] * 10**5),
                           "tokenizer.json: single of 100,000 entries"),
    "a pattern without end": (several(
        set_in(WORDS, normalizer={"type": "Replace", "pattern": {"Regex": "(x+x+)+y"}, "content": "z"}),
        lambda m: (m.parent / "text.txt").write_text("x" * 60 + "\n", "utf-8")), "tokenizer of m cannot read", "m", FIT),
    "no decoder": (set_in(CONFIG, is_encoder_decoder=True), "config.json: is_encoder_decoder is true"),
    "added tokens": (set_in(TOKENIZER, added_tokens_decoder={str(10**12): {"content": "x"}}), ""),
    # patterns
    "target_modules": (set_in(ADAPTER, target_modules=CATASTROPHE), "target_modules", "adapted", PLAIN),
    # adapters' code
    "adapter's auto_mapping": (several(put("code.py", CODE), set_in(ADAPTER, auto_mapping={
        "base_model_class": "M", "parent_library": "code"})), None, "adapted", PLAIN),
    # broken
    "header's size": (header("model.safetensors", "{}", 10**12), "cannot load m: model.safetensors: "),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_model_folder_names_is_data(work, name):
    spoil, line, model, words = (*VARIANTS[name], *("m", EVAL)[len(VARIANTS[name]) - 2:])
    shutil.copytree(models() / model, work / "m")
    check(work, lambda work: spoil(work / "m"), [words], line)


@pytest.mark.parametrize(("name", "words"), [
    ("auto_map of its own", TRAIN), ("zipped pickle", TRAIN), ("module outside", FIT),
])
def test_every_reader_reads_it_so(work, name, words):
    spoil, line, *_ = VARIANTS[name]
    shutil.copytree(models() / "m", work / "m")
    check(work, lambda work: spoil(work / "m"), [words], line)


def test_the_watch_sees_a_folder_s_code(work):
    """Without which the table above would prove nothing."""
    shutil.copytree(models() / "m", work / "m")
    VARIANTS["auto_map of its own"][0](work / "m")
    assert MARKER in told([*PLAIN.split(), "--trust-remote-code"], work).ran


MARKS = "\u2026\u2025\u22ef\ufe19\u0eaf\u0e2f\u1801\u2e31"


@pytest.mark.parametrize(("steps", "kept"), [
    ([(mark, f" {mark} ") for mark in MARKS], True),  # none finds what another wrote
    ([(mark, "..") for mark in MARKS] + [(".", "aa"), ("a", "bbb")], True),
    ([({"Regex": "|".join(f"q{i}q" for i in range(400))}, "q")], True),
    ([("ab", "baba")] * 12, False),
    ([("a", "bbbb"), ("b", "aaaa")] * 4, False),
    ([({"Regex": "."}, "xx")] * 12, False),
])
def test_only_replacements_that_find_what_others_wrote_make_a_text_long(tmp_path, steps, kept):
    normalizers = [{"type": "Replace", "pattern": old if isinstance(old, dict) else {"String": old}, "content": new}
                   for old, new in steps]
    write(tmp_path / WORDS, {"normalizer": {"type": "Sequence", "normalizers": normalizers}})
    if kept:
        check_tokenizer(tmp_path / WORDS)
    else:
        with pytest.raises(EncoderError, match=r"replacements make a text [\d,]+ times as long"):
            check_tokenizer(tmp_path / WORDS)
