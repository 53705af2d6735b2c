"""Every shipped recipe: complete, with the scores of the row that it stands for, and the settings of its paper or code.
stsbench.methods: every method by its paper's name, which is its options.

What only repeats a recipe is not tested: tests/methods/test_method_contract.py trains each method, and its options."""

import json
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError
from shipped_recipes import EVERY, METHODS, changed, held, printed, publications, recipe, rows_of, settings, ways

import stsbench
from stsbench import methods, registry
from stsbench.encoders.prompt.modules import check_head
from stsbench.errors import StsbenchError
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.methods import GROUP, card, find_method, load_method, method_name, options, options_class
from stsbench.training.recipes.recipe import resolved_yaml
from stsbench.training.recipes.recipes import default_recipe, find_recipe, recipe_names

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "published"
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")


@pytest.mark.parametrize("method", METHODS)
def test_a_recipe_is_complete_says_where_it_comes_from_and_the_default_one_round_trips(method, tmp_path):
    for name in recipe_names(method):
        shipped = recipe(name, method)
        assert (shipped.name, shipped.method) == (name, method) and shipped.description
        assert shipped.source and (shipped.published or shipped.source.note), name
        assert shipped.options == options_class(method)(**shipped.options).model_dump(mode="json")  # complete
    shipped, raw = find_recipe(method, default_recipe(method))
    assert "extends" not in raw
    path = tmp_path / f"{shipped.name}.yaml"
    path.write_text(resolved_yaml(shipped), "utf-8")
    assert find_recipe(method, str(path))[0] == shipped
    flat = yaml.safe_load(path.read_text("utf-8"))  # another reader of YAML finds the same numbers
    assert flat == json.loads(shipped.model_dump_json())


@pytest.mark.parametrize("method", METHODS)
def test_the_options_of_every_recipe_go_together_and_fit_its_data(method):
    for name in recipe_names(method):
        shipped = recipe(name, method)
        plan = load_plan(shipped)
        checks = f"{plan.kind.__module__.rpartition('.')[0]}.checks"
        if find_spec(checks) and hasattr(module := import_module(checks), "check_options"):
            module.check_options(plan.options)
        assert set(shipped.stages) <= set(plan.stages), name
        assert (shipped.labelled is not None) == ({plan.labelled(stage) for stage in plan.stages} != {"none"}), name
        assert shipped.training.batch_size % plan.needs.group_size == 0, name
        if shipped.data.columns or str(shipped.data.file).endswith((".txt", "-texts")):  # else a file's header says them
            given = tuple(shipped.data.columns) or ("sentence",)
            assert set(plan.roles(given)) == set(given), name


# what the default recipe has otherwise: a model that has to be named, or a paper's setting beside its code's defaults
NOT_DEFAULT = {"angle": {"format", "ibn_weight", "angle_weight", "test_pooler"}, "diffcse": {"generator"},
               "distil": {"teachers"}, "rankcse": {"teachers"}, "mirror-bert": {"test_length"}}


@pytest.mark.parametrize("method", METHODS)
def test_what_is_read_without_torch_is_what_the_class_says_and_the_default_recipe_has_the_defaults(method):
    loaded = registry.resolve(GROUP, method)
    assert default_recipe(method) == loaded.Options.default_recipe in recipe_names(method)
    assert options_class(method) is loaded.Options
    assert [option.name for option in options(method)] == list(loaded.Options.model_fields)
    shipped = recipe(loaded.Options.default_recipe, method)
    defaults = loaded.Options.model_construct().model_dump(mode="json")
    assert {name for name, value in shipped.options.items() if value != defaults[name]} == NOT_DEFAULT.get(method, set())


DEV, U = ("sts-b dev", "spearman", "STS-B"), "unsup-bert-base"
IN_TEXT = {  # scores outside the tables of the board: ConSERT's figure, Table 6 of SBERT
    "consert": {(f"{U}-{name}", "sts:all", "spearman", "Avg", score) for name, score in {
        "none": 63.84, "batch-16": 72.63, "batch-48": 72.60, "batch-192": 72.86, "batch-288": 72.98}.items()},
    "sbert": {(name, *DEV, score) for name, score in {
        "nli-bert-base": 80.78, "nli-bert-base-max": 79.07, "nli-bert-base-cls": 79.80, "stsb-bert-base": 87.44,
        "stsb-bert-base-max": 69.92, "stsb-bert-base-cls": 86.62, "nli-bert-base-u-v": 66.04,
        "nli-bert-base-difference": 69.78, "nli-bert-base-product": 70.54, "nli-bert-base-difference-product": 78.37,
        "nli-bert-base-u-v-product": 77.44, "nli-bert-base-u-v-difference-product": 80.44}.items()}}


@pytest.mark.parametrize("method", METHODS)
def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others(method):
    rows = printed(method) | IN_TEXT.get(method, set())
    assert rows <= held(method)
    beyond = {name for name, *_ in held(method) - rows if not name.startswith("llm2vec")}  # in test_llm2vec.py
    assert all("second hand" in recipe(name, method).source.note for name in beyond)
    assert not beyond or method in ("infocse", "pcl", "rankcse", "sncse")


def test_scores_at_second_hand_are_those_of_the_list_that_they_were_read_from():
    if not (SHARED / "second_hand.tsv").exists():
        pytest.skip("the list of scores at second hand is not beside the checkout")
    lines = [line.split("\t") for line in (SHARED / "second_hand.tsv").read_text("utf-8").splitlines()]
    listed = {re.sub("[_ ]", "-", f"{label} {backbone}".lower()): cells[2:10] for label, backbone, *cells in lines[1:]}
    count = 0
    for method in ("infocse", "pcl", "rankcse", "sncse"):
        for name in {name for name, *_ in held(method) - printed(method)}:
            expected = map(float, listed[f"{method}-{name.removeprefix('released-')}"])
            assert {(name, "sts:all", "spearman", *pair) for pair in zip(TASKS, expected, strict=True)} <= held(method)
            count += 1
    assert count == 17


def test_the_rows_of_a_paper_are_trained_by_recipes():
    stated = pytest.importorskip("stsbench.leaderboard.reproduce.ways").resolve(publications(), ways())
    for papers, pattern, count in (  # papers, what their rows of a method are called, how many of them no recipe trains
        ("simcse simcse-readme", "SimCSE", 0), ("diffaug promptbert-readme", "^Prompt", 0), ("esimcse-readme", "", 0),
        ("diffaug diffaug-readme", "^DiffAug", 0), ("sarcse", "SARCSE", 0), ("diffcse", "SG-OPT", 0), ("pcl-readme", "", 0),
        ("consert consert-readme diffaug", "^ConSERT", 0), ("mirror-bert-readme promcse-readme", "^Mirror-BERT", 0),
        ("consert simcse diffcse ct-readme sentence-transformers", "^CT|-CT$", 0), ("simcse diffcse", "^IS-BERT", 0),
        ("declutr simcse diffcse sarcse", "^DeCLUTR", 4), ("angle-readme", "", 2), ("infocse-readme", "", 1),
        ("whitenedcse-readme", "", 1),
    ):
        rows = rows_of(papers.split(), lambda row, named=pattern: re.search(named, row.method))
        assert rows and sum(not stated[row.id].recipes for row in rows) == count, (papers, pattern)


# printed average -> mean of the columns: of ten runs; SBERT's own
OTHER_MEANS = {
    ("promptbert", "unsup-promptbert-base", 78.54): 78.52, ("sbert", "nli-bert-base", 74.89): 74.86,
    ("consert", "joint-bert-large", 79.44): 79.45, ("consert", "unsup-bert-large-released", 76.45): 76.44,
    ("mirror-bert", "bert-base", 74.4): 74.386}


def test_a_printed_average_is_the_mean_of_its_scores_and_stands_in_the_card():
    for method, name in EVERY:
        for row in recipe(name, method).published:
            *scores, last = row.scores.items()
            if last[0] == "Avg" and scores:
                expected = OTHER_MEANS.get((method, name, last[1]), last[1])
                assert len(scores) == 7 and abs(sum(score for _, score in scores) / 7 - expected) <= 0.0051, (name, row)
            if last[0] == "Avg" and row.protocol == "sts:all":
                assert re.search(rf"\b{last[1]:.2f}\b|\b{last[1]:.1f}\b", card(method)), (name, row)


def test_consert_s_rows_are_transductive_where_sts_is_the_text():
    rows = rows_of(("consert", "consert-readme", "diffaug"), lambda row: row.method.startswith("ConSERT"))
    assert len(rows) == 21
    for row in rows:
        shipped = recipe(ways()[row.id].recipe.removeprefix("consert/"), "consert")
        transductive = shipped.data.file == "sts-texts" and "unsup" in load_plan(shipped).stages
        assert ("transductive" in row.flags) == transductive, row.id


TRAINER = {"schedule": "linear", "warmup": 0, "weight_decay": 0, "betas": (0.9, 0.999), "epsilon": 1e-8,
           "adam": "transformers", "clip": 1, "accumulate": 1, "drop_last": False, "order": "random"}
FIT = {**TRAINER, "warmup": 0.1, "weight_decay": 0.01, "epsilon": 1e-6, "adam": "uncorrected"}
FORKS = {  # of SimCSE's code, which trains by transformers' Trainer; of sentence-transformers' `fit`
    **dict.fromkeys(("diffaug", "diffcse", "esimcse", "infocse", "pcl", "promptbert", "rankcse", "sarcse", "simcse", "sncse",
                     "whitenedcse"), TRAINER),
    "consert": FIT, "sbert": FIT, "distil": {**FIT, "warmup": 1000}, "is-bert": {**FIT, "epsilon": 1e-7}}


@pytest.mark.parametrize("method", FORKS)
def test_a_fork_optimises_as_the_code_that_it_is_of(method):
    for name in recipe_names(method):
        if name.startswith(("cse-sfp", "llm2vec", "prompteol", "static")):  # of another code
            continue
        values, expected = settings(recipe(name, method)), FORKS[method]
        if method == "sbert" and name.endswith("-whitening"):  # a Keras port of BERT's own optimiser
            expected = {**expected, "adam": "transformers", "clip": None}
        assert {key: values[f"training.{key}"] for key in expected} == expected, name
        if FORKS[method] is TRAINER:
            assert "temperature" in name or values["options.temperature"] == 0.05, name
            assert values["backbone.max_length"] == (34 if method in ("diffaug", "promptbert") else 32), name
            pairs = values["data.columns"] or "documents" in values["data.file"]
            assert pairs or values["data.file"] == "wiki1m_for_simcse.txt", name


# A name that ends in a number changes that setting, and nothing else, of the recipe that it was made from
NUMBERS = {"batch": "training.batch_size", "dropout": "backbone.dropout", "temperature": "options.temperature",
           "lambda": "options.rtd_weight", "mask": "options.mask_ratio", "theta": "options.theta",
           "mlm": "options.mlm_weight", "prefix-length": "options.prefix_length", "alpha": "options.alpha",
           "crop": "options.rate", "delete-words": "options.rate"}
BASES = {"diffcse": "bert-base-sts", "sarcse": "roberta-base", "diffaug": "bert-base-semi"}
NUMBERED = [(method, name, *match.groups()) for method, name in EVERY
            if (match := re.fullmatch(rf"(?:(.*)-)?({'|'.join(NUMBERS)})-([\d.]+)", name)) and name != "mlm-15"]


def test_a_recipe_named_by_a_number_changes_that_setting_alone():
    assert len(NUMBERED) > 50
    for method, name, base, kind, number in NUMBERED:
        key, value, base = NUMBERS[kind], float(number), base or BASES[method]
        if (method, kind) == ("diffaug", "alpha"):
            key, base = "options.aux_weight", f"{base}-aux"
        expected = {key: value}
        if key == "options.rate":
            expected = {key: value / 100, "options.view": kind.replace("-", "_")}
        assert changed(base, name, method) == expected, name


def test_the_head_or_pooler_of_a_recipe_fits_and_diffaug_s_stages_are_as_long_as_they_say():
    for method, name in EVERY:
        shipped = recipe(name, method)
        if method in ("simcse", "esimcse", "pcl", "rankcse"):
            check_head(shipped.options["head"], shipped.backbone.pooler)
        assert load_plan(shipped).kind.trained_pooler in (None, shipped.backbone.pooler)
        if method == "mirror-bert":
            assert (shipped.options["drophead"] > 0) == (shipped.backbone.dropout == 0)
        if method == "diffaug":  # however few rows there are
            prefix = shipped.stage_training("prefix")
            assert prefix.max_steps is not None and prefix.epochs >= prefix.max_steps
            assert not shipped.data.columns or (shipped.data.file, shipped.data.share) == (
                shipped.labelled.file, shipped.labelled.share)


# What an old sentence-transformers added to a limit: up to 0.2.4, models/BERT.py, the special tokens; to 0.3.9,
# models/Transformer.py, three tokens. BERT's own code and Keras ports count the special tokens.
FIRST, LATER, PORT = 2, 3, 0


@pytest.mark.parametrize("method", ["sbert", "sg-opt", "is-bert", "consert"])
def test_a_long_text_is_cut_where_the_code_cut_it(method):
    for name in recipe_names(method):
        if method != "sbert":
            limit = LATER + (128 if method != "consert" else 40 if "large-released" in name else 64)
        elif "consert" in name:
            limit = LATER + 64
        else:
            limit = PORT + 64 if "flow" in name or "whitening" in name else FIRST + 128
        assert recipe(name, method).backbone.max_length == limit, name


def test_the_names_are_those_of_all_methods_and_an_editor_sees_them():
    classes = {find_method(name).attribute for name in METHODS}
    assert len(METHODS) == len([*(ROOT / "methods").glob("*/method.py")]) == 24
    assert {*methods.__all__} == classes == {name for name in dir(methods) if not name.startswith("_")}
    assert stsbench.methods is methods and "methods" in dir(stsbench)
    with pytest.raises(AttributeError, match=r"^module 'stsbench\.methods' has no attribute 'SimCES'$"):
        _ = methods.SimCES
    block = re.search(r"^if TYPE_CHECKING:.*?\n\n", Path(methods.__file__).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert sorted(re.findall(r" import \w+ as (\w+)", block[0])) == sorted(methods.__all__)


def test_a_paper_s_name_is_the_class_of_its_options_and_other_options_are_refused():
    for method in METHODS:
        kind = getattr(methods, find_method(method).attribute)
        assert kind is options_class(method) is load_method(method).Options
        assert method_name(kind.model_construct()) == method  # unchecked: teachers have no default

    class SimCSEOptions(methods.SimCSE):
        pass

    with pytest.raises(ValidationError):
        methods.SimCSE(no_such_option=1)
    SimCSEOptions.__module__ = methods.SimCSE.__module__
    with pytest.raises(StsbenchError, match=r"^SimCSEOptions of stsbench\.methods\.simcse\.options is not the options of"):
        method_name(SimCSEOptions())
