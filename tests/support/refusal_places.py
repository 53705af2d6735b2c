"""What the tables of refusals may ask for: folders made once a session and copied into the working folder of a case."""

import shutil
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path

from clirun import SAMPLE

import stsbench


@cache
def _made(build):
    return build(Path(tempfile.mkdtemp(prefix="stsbench-refusals-")))


def _copied(build):
    return lambda place: shutil.copytree(_made(build), place, dirs_exist_ok=True)


def _model(name, function, *options, **named):
    """A folder of this name that a function of one of the modules of tests/support writes."""

    def build(folder):
        module, _, of_module = function.partition(".")
        getattr(import_module(module), of_module)(folder / name, *options, **named)
        return folder

    return _copied(build)


def _run(folder):
    stsbench.evaluate("lexical:token-set", sample=True, tasks="STS-B", resamples=0, output=folder / "run")
    return folder


def _static(folder):
    from model_folder_kinds import declare, static

    declare(folder / "static", static(6), first=None)
    return folder


def _trainings(folder):
    import method_runs
    import tiny_models

    tiny_models.build(folder / "bare", pooler=False)  # no masked-LM head
    tiny_models.build(folder / "roberta", "roberta")  # another vocabulary
    return method_runs.make_place(folder)


def _tables_of_vectors(place):
    import numpy as np

    for name, texts, vectors in (
        ("right", ["a", "b b"], np.eye(2)), ("two-vectors-of-a-text", ["a", "a"], np.eye(2)), ("no-vectors", ["a"], None),
        ("no-texts", None, np.eye(1)), ("objects", np.array(["a"], dtype=object), np.eye(1)), ("bytes", [b"a"], np.eye(1)),
        ("table-of-texts", [["a"]], np.eye(1)), ("one-axis", ["a"], np.ones(1)), ("letters", ["a"], [["x"]]),
        ("too-few", ["a", "b"], np.ones((1, 1))), ("nan", ["a", "b"], [[1.0], [np.nan]]),
        ("too-large", ["a", "b"], [[1.0], [1e300]]),
    ):
        arrays = {"texts": texts, "vectors": vectors}
        np.savez(place / f"{name}.npz", **{key: array for key, array in arrays.items() if array is not None})
    np.save(place / "array.npy", np.eye(2))
    (place / "cut.npz").write_bytes((place / "right.npz").read_bytes()[:-40])


def file_of(name, content):
    """A file in the working folder with these bytes, which may be of no encoding or longer than a table can show."""
    Path(name).write_bytes(content)
    return Path(name)


def parquet_of(**columns):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), "a.parquet")
    return Path("a.parquet")


def _cross_encoders(folder):
    import tiny_models
    import torch
    from safetensors.torch import load_file, save_file
    from sentence_transformers import CrossEncoder

    bare = tiny_models.build(folder / "bare")
    for name, labels in (("one", 1), ("three", 3)):
        torch.manual_seed(labels)
        CrossEncoder(str(bare), num_labels=labels, device="cpu").save_pretrained(str(folder / name))
    for name in ("lacking", "calling", "older"):
        shutil.copytree(folder / "one", folder / name)
    without = {key: value for key, value in load_file(folder / "one/model.safetensors").items() if "classifier" not in key}
    save_file(without, folder / "lacking/model.safetensors", {"format": "pt"})
    settings = folder / "calling/config_sentence_transformers.json"
    settings.write_text(settings.read_text().replace("torch.nn.modules.activation.Sigmoid", "torch.hub.help"))
    (folder / "older/config_sentence_transformers.json").unlink()
    settings = folder / "older/config.json"
    settings.write_text(settings.read_text().replace("{", '{"sbert_ce_default_activation_function": "my.Activation",', 1))
    return folder


def _multi_vectors(folder):
    import tiny_models
    from safetensors.torch import load_file, save_file
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(str(tiny_models.build(folder / "bare")), device="cpu")
    model[0].document_length = 9
    model.save_pretrained(str(folder / "many"))
    for name in ("lacking", "unmade"):
        shutil.copytree(folder / "many", folder / name)
    weights = load_file(folder / "many/model.safetensors")
    del weights["embeddings.word_embeddings.weight"]
    save_file(weights, folder / "lacking/model.safetensors", {"format": "pt"})
    (folder / "unmade/modules.json").unlink()
    return folder


# name -> what makes it in a folder
PLACES = {
    "model": _model("model", "tiny_models.build"),  # of transformers, without modules.json: nothing says how to pool
    "data": lambda place: shutil.copytree(SAMPLE, place / "data"),  # the sample as a data folder
    "run": _copied(_run),  # the token set's run of STS-B
    "lm": _model("lm", "tiny_models.masked_lm"),  # a masked BERT of two layers and 64 positions
    "distilbert": _model("distilbert", "tiny_models.build", "distilbert"),  # of another family
    "wide": _model("wide", "tiny_models.build", width=64),  # a masked BERT of another width
    "roberta": _model("roberta", "tiny_models.masked_lm", "roberta", spaced=True),  # of another vocabulary
    "headless": _model("headless", "tiny_models.build", pooler=False),  # neither a pooler nor a masked-LM head
    "static": _copied(_static),  # a table of tokens' vectors
    "decoder": _model("decoder", "tiny_decoders.decoder_folder"),  # a causal model of four layers
    "trainings": _copied(_trainings),
    "tables of vectors": _tables_of_vectors,  # each of a .npz file's faults
    # a classifier of one label, of three, one without its last layer, two that name code; and a bare BERT
    "cross-encoders": _copied(_cross_encoders),
    "multi-vectors": _copied(_multi_vectors),
}
