"""DiffCSE's options and data that go together, and those that are refused, each in one line that names them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.methods.diffcse.method import DiffCSE
from stsbench.methods.diffcse.options import DiffCSEOptions, changes, detects, generates
from stsbench.training.recipes.method_plan import MethodPlan

ALL = ["replace", "insert", "delete"]
AS_NEGATIVE = {"rtd_weight": 0, "augmented_as": "negative"}
CONDITIONAL = {"task": "conditional_mlm"}
CORRECTIVE = {"task": "corrective_lm"}
OFF = {"rtd_weight": 0}
DELETE = {"operators": ["delete"]}
INSERT = {"operators": ["insert"]}

UNCHANGED = r"has no effect without rtd_weight above 0, or augmented_as; leave it at"

REFUSED = [
    ({"augmented_as": "positive"}, r"augmented_as positive and rtd_weight 0\.005 exclude each other: .* set rtd_weight 0"),
    ({"contrastive": False, **OFF}, r"contrastive false and rtd_weight 0 exclude each other: no term is left"),
    ({"contrastive": False, **AS_NEGATIVE}, r"contrastive false and rtd_weight 0 exclude each other: no term is left"),
    ({"contrastive": False, "augmented_as": "negative"}, r"augmented_as negative has no effect with contrastive false"),
    ({"contrastive": False, "detach": True}, r"detach true and contrastive false .* left without a gradient"),
    ({"contrastive": False, "condition": "raw"}, r"condition raw and contrastive false .*; set projector none"),
    ({"contrastive": False, "temperature": 0.1}, r"temperature 0\.1 has no effect with contrastive false.*at 0\.05"),
    ({"contrastive": False, "similarity": "dot"}, r"similarity dot has no effect with contrastive false.*at cosine"),
    ({"contrastive": False, "queue": {"size": 9}}, r"queue \{size: 9, .* start: copy\} has no effect with .*at null"),
    ({"similarity": "dot", "temperature": 0.1}, r"temperature 0\.1 has no effect with similarity dot"),
    ({"operators": []}, r"operators takes one or more of replace, insert, delete, each once, not \[\]"),
    ({"operators": ["delete", "delete"]}, r"operators takes .* not \[delete, delete\]"),
    ({**CONDITIONAL, **INSERT}, r"task conditional_mlm and operators \[insert\] exclude .* must be \[replace\]"),
    ({**CORRECTIVE, "operators": ALL}, r"task corrective_lm and operators \[replace, insert, delete\] exclude each other"),
    ({"masked": 0.8, "random": 0.3}, r"masked 0\.8 and random 0\.3 are shares"),
    ({"sentence": "next", "view": "given"}, r"sentence next and view given exclude each other"),
    ({"sentence": "same+next", **AS_NEGATIVE}, r"sentence same\+next has no effect with rtd_weight 0"),
    ({"operators": ["insert", "delete"], **AS_NEGATIVE}, r"augmented_as negative adds one view, .* set combine choice"),
    ({"combine": "choice"}, r"combine choice has no effect with operators \[replace\].*leave it at sum"),
    ({"projector": "none", "condition": "raw"}, r"condition raw has no effect with projector none.*leave it at projected"),
    ({**CORRECTIVE, "rtd_mean": "attended"}, r"rtd_mean attended has no effect: task corrective_lm"),
    ({**CONDITIONAL, "rtd_mean": "attended"}, r"rtd_mean attended has no effect with task conditional_mlm"),
    ({"edit_ratio": 0.3}, r"edit_ratio 0\.3 has no effect with operators \[replace\]: .* with insert or delete"),
    *[({**INSERT, **one}, rf"{next(iter(one))} \S+ has no effect with operators \[insert\]: it goes with .* with replace")
      for one in ({"mask_ratio": 0.15}, {"masked": 0.7}, {"random": 0.0}, {"replace": "masked"})],
    *[({**base, **one}, rf"{next(iter(one))} \S+ has no effect {why}")
      for base, why in ((CONDITIONAL, "with task cond"), (DELETE, r"with operators \[delete\]"), (OFF, "without rtd_weight"))
      for one in ({"generator": "a/model"}, {"generator_mode": "eval"}, {"replacement": "sampling"}, {"replace": "masked"})],
    *[({**OFF, **one}, rf"{next(iter(one))} .* {UNCHANGED}") for one in (
        INSERT, {"mask_ratio": 0.15}, {"masked": 0.7}, {"random": 0.0})],
    ({**OFF, "edit_ratio": 0.3}, r"edit_ratio 0\.3 has no effect"),
    *[({**base, **one}, rf"{next(iter(one))} \S+ has no effect with rtd_weight 0: it goes with rtd_weight above 0")
      for base in (OFF, AS_NEGATIVE)
      for one in ({"task": "corrective_lm"}, {"condition": "raw"}, {"detach": True}, {"rtd_mean": "attended"},
                  {"sentence": "next"})],
]

ACCEPTED = [
    {},
    OFF,
    {**OFF, "projector": "tanh"},
    {"contrastive": False},
    {"contrastive": False, "projector": "none"},
    {"sentence": "next"},
    {"sentence": "same+next", **CONDITIONAL},
    {**CONDITIONAL, "mask_ratio": 0.15, "detach": True, "condition": "raw"},
    {**CORRECTIVE, "replace": "masked", "rtd_mean": "attended_without_specials", "generator_mode": "eval"},
    {**INSERT, "edit_ratio": 0.3, "replacement": "sampling", "generator": "some/model"},
    {**DELETE, "edit_ratio": 0.3, "rtd_mean": "attended"},
    {"operators": ALL, "edit_ratio": 0.3, "mask_ratio": 0.15, "replace": "masked"},
    {"operators": ALL, "combine": "choice"},
    {**AS_NEGATIVE, "mask_ratio": 0.15, "generator": "some/model"},
    {**AS_NEGATIVE, **DELETE},
    {**AS_NEGATIVE, "operators": ALL, "combine": "choice"},
    {"projector": "none"},
    {"masked": 0.7, "random": 0.3, "rtd_weight": 0.05, "similarity": "dot"},
    {"view": "given"},
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_has_no_meaning_is_refused(options, message):
    with pytest.raises(StsbenchError, match=rf"^recipe: options\.{message}") as caught:
        validate(DiffCSEOptions, options, "recipe", "options.")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250


@pytest.mark.parametrize("options", ACCEPTED)
def test_what_acts_is_accepted(options):
    validate(DiffCSEOptions, options, "recipe", "options.")


CHOICES = {
    "view": ["dropout", "given"], "similarity": ["cosine", "dot"], "temperature": [0.05, 0.1], "contrastive": [True, False],
    "projector": ["batchnorm", "tanh", "none"], "rtd_weight": [0.005, 0.0],
    "task": ["rtd", "conditional_mlm", "corrective_lm"],
    "sentence": ["same", "next", "same+next"],
    "operators": [["replace"], ["insert"], ["delete"], ["replace", "delete"], ALL],
    "combine": ["sum", "choice"], "augmented_as": [None, "positive", "negative"], "mask_ratio": [0.3, 0.15],
    "masked": [0.8, 1.0], "random": [0.1, 0.0], "edit_ratio": [0.15, 0.3], "generator": [None, "some/model"],
    "generator_mode": ["train", "eval"], "replacement": ["argmax", "sampling"], "replace": ["all", "masked"],
    "condition": ["projected", "raw"], "detach": [False, True],
    "rtd_mean": ["all", "attended", "attended_without_specials"], "repeat": [None, {}], "queue": [None, {}],
}


def test_every_option_is_drawn_below():
    assert set(CHOICES) == set(DiffCSEOptions.model_fields)
    assert all(DiffCSEOptions(**{name: values[0]}) == DiffCSEOptions() for name, values in CHOICES.items())


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_accepted_options_leave_nothing_idle(data):
    """Of a few options away from their defaults, those accepted each have somebody who reads them."""
    names = data.draw(st.lists(st.sampled_from(sorted(CHOICES)), max_size=5, unique=True))
    changed = {name: data.draw(st.sampled_from(CHOICES[name][1:])) for name in names}
    try:
        options = validate(DiffCSEOptions, changed, "recipe", "options.")
    except StsbenchError as error:
        assert changed and any(name in str(error) for name in changed)
        return
    rtd, views = options.rtd_weight > 0, options.rtd_weight > 0 or options.augmented_as is not None
    words = views and options.task != "conditional_mlm" and set(options.operators) != {"delete"}
    readers = {
        "task": rtd, "detach": rtd, "condition": rtd and options.projector != "none", "sentence": rtd,
        "rtd_mean": rtd and options.task != "conditional_mlm", "operators": views,
        "combine": views and len(options.operators) > 1,
        "edit_ratio": views and {"insert", "delete"} & set(options.operators),
        **dict.fromkeys(("mask_ratio", "masked", "random"), views and "replace" in options.operators),
        **dict.fromkeys(("generator", "generator_mode", "replacement"), words),
        "replace": words and "replace" in options.operators,
        **dict.fromkeys(("similarity", "temperature", "augmented_as", "queue"), options.contrastive),
    }
    assert all(readers.get(name, True) for name in changed)
    assert options.contrastive or (rtd and not options.detach)
    assert (changes(options), generates(options)) == (views, bool(words))
    assert detects(options) == (rtd and options.task == "rtd")


def test_roles():
    given = DiffCSEOptions(view="given")
    assert MethodPlan(DiffCSE, DiffCSEOptions()).roles(("label", "sentence")) == ("sentence",)
    assert MethodPlan(DiffCSE, given).roles(("negative", "positive", "anchor")) == ("anchor", "positive", "negative")
    four = ("anchor", "positive", "negative", "negative2")
    assert MethodPlan(DiffCSE, given).roles(four) == four
    for options, roles, message in [
        (DiffCSEOptions(), ("sentence", "anchor"), "the data give both sentence and anchor"),
        (DiffCSEOptions(), ("label",), r"needs the column sentence, .* \(the data give label\)"),
        (DiffCSEOptions(), (), r"the data give no column"),
        (given, ("sentence",), r"set options\.view dropout"),
        (given, ("anchor", "negative"), "needs the column positive beside anchor"),
        (given, ("positive",), "needs the column anchor beside positive"),
        (given, ("anchor", "positive", "negative2"), "negative2 without negative"),
        (DiffCSEOptions(), ("anchor", "positive"), r"set options\.view given"),
    ]:
        with pytest.raises(StsbenchError, match=message):
            MethodPlan(DiffCSE, options).roles(roles)
