"""A model folder from elsewhere is data: whatever its files name, nothing of it is imported or run, nothing outside is read,
nothing hangs or fills the memory, and an error is one line that names the file.

Run folders, plans and records are in tests/cli; code that is named plainly is in test_folder_kinds.py."""

import pickle
import re
import shutil

import pytest
from hostile import CODE, MARKER, OUTSIDE, Evil, check, several, told
from model_folders import write
from spoilt_folders import (  # noqa: F401 - a fixture
    CONFIG,
    LIBRARY,
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
    read_spoilt,
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
SECRET = f"../../{OUTSIDE}/secret"
MEAN = {"pooler": "mean"}
OWN = several(own_code(CONFIG, AutoModel="code.M", AutoConfig="code.M"), set_in(CONFIG, model_type="mine"))


# name: how it is spoilt; what the error says, None where it may do without one; which model; how it is read
VARIANTS = {
    "auto_map of its own": (OWN, "--trust-remote-code", "m", TRAIN),
    "auto_map elsewhere": (several(own_code(CONFIG, AutoModel="other/repo--code.M"), set_in(CONFIG, model_type="mine")),
                           "--trust-remote-code", "m", EVAL),
    "module of another library": (module(1, type="torch.hub.load"), "", "library", EVAL),
    "dense's activation in torch": (set_in("2_Dense/config.json", activation_function="torch.os.abort"), "", "library",
                                    EVAL),
    "pickled weights": (pickled("pytorch_model.bin"), "pytorch_model.bin|weights", "m", EVAL),
    "zipped pickle": (zipped("pytorch_model.bin"), "pytorch_model.bin|[Ww]eights", "m", TRAIN),
    "pickled adapter": (several(lambda m: (m / "adapter_model.safetensors").unlink(),
                                put("adapter_model.bin", pickle.dumps(Evil()))), "", "adapted", PLAIN),
    "module outside": (module(1, path=f"../{OUTSIDE}/model"), "leads out", "m", FIT),
    "class of a table's tokenizer": (several(
        set_in("0_WordEmbeddings/wordembedding_config.json", tokenizer_class="code.M"), put("code.py", CODE),
        put("0_WordEmbeddings/code.py", CODE)), "code.M", "words", EVAL),
    "module in a router": (router_of_code, "code.M", "router", EVAL),
    "code of an adapter's base": (base_of_code, "--trust-remote-code|code.py", "adapted", PLAIN),
    "weights a pipe": (linked("model.safetensors", "pipe"), "", "m", EVAL),
    "config without an end": (linked(CONFIG, "/dev/zero"), "", "m", EVAL),
    "notes without an end, in a circle": (
        several(linked("README.md", "/dev/zero"), lambda m: (m / "again").symlink_to(m)), None, "m", EVAL),
    "a pattern without end": (several(
        set_in(WORDS, normalizer={"type": "Replace", "pattern": {"Regex": "(x+x+)+y"}, "content": "z"}),
        lambda m: (m.parent / "text.txt").write_text("x" * 60 + "\n", "utf-8")), "tokenizer of m cannot read", "m", FIT),
    "adapter's auto_mapping": (several(put("code.py", CODE), set_in("adapter_config.json", auto_mapping={
        "base_model_class": "M", "parent_library": "code"})), None, "adapted", PLAIN),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_model_folder_names_is_data(work, name):
    spoil, line, model, words = VARIANTS[name]
    shutil.copytree(models() / model, work / "m")
    check(work, lambda work: spoil(work / "m"), [words], line)


def test_the_watch_sees_a_folder_s_code(work):
    """Without which the table above would prove nothing."""
    shutil.copytree(models() / "m", work / "m")
    OWN(work / "m")
    assert MARKER in told([*PLAIN.split(), "--trust-remote-code"], work).ran


REFUSED = [  # how it is spoilt, before anything is run or read; what the error says; which model, and options
    (set_in(CONFIG, attn_implementation="org/kernel"), "attn_implementation", "m", {}),
    (set_in(LIBRARY, model_args={"weights_only": False}), "weights_only", "m", {}),
    (set_in(LIBRARY, model_args={"quantization_config": {"quant_method": "gptq"}}), "quantization_config", "library", {}),
    (set_in(CONFIG, transformers_weights=f"{SECRET}.safetensors"), "leads out", "m", {}),
    (index(**{WEIGHT: f"{SECRET}.safetensors"}), "leads out", "sharded", MEAN),
    (lambda m: next(m.glob("model-*")).unlink(), "model-0.*missing", "sharded", MEAN),
    (set_in(TOKENIZER, vocab_file=f"{SECRET}.json"), "leads out", "m", {}),
    (linked_module, "1_Pooling", "m", {}),
    (set_in(CONFIG, num_hidden_layers=10**400), "num_hidden_layers", "m", {}),
    (set_in(CONFIG, text_config={"num_hidden_layers": 257}), "num_hidden_layers 257", "m", {}),
    (set_in(CONFIG, notes="x" * 8_000_000), "config.json is larger than 8,000,000 bytes", "m", {}),
    (set_in("2_Dense/config.json", out_features=10**12), "weights are more than its files hold", "library", {}),
    (set_in("1_Pooling/config.json", pooling_mode=["mean"] * 17), "17 values of pooling_mode", "library", {}),
    (set_in(WORDS, post_processor__single=[{"SpecialToken": {"id": "[SEP]", "type_id": 0}}] * 1001),
     "tokenizer.json: single of 1,001 entries", "m", {}),
    (set_in(CONFIG, is_encoder_decoder=True), "config.json: is_encoder_decoder is true", "m", {}),
    (set_in(TOKENIZER, added_tokens_decoder={str(10**12): {"content": "x"}}), "", "m", {}),
    (header("model.safetensors", "{}", 10**12), "cannot load m: model.safetensors: ", "m", {}),
]


@pytest.mark.parametrize(("spoil", "line", "model", "options"), REFUSED)
def test_sizes_that_no_model_has_and_paths_that_lead_out_are_refused(spoil, line, model, options):
    with pytest.raises(EncoderError) as error:
        read_spoilt(model, spoil, **options)
    assert re.search(line, str(error.value)) and "\n" not in str(error.value)


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
