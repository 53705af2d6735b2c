"""DiffCSE's options and data that go together, and those that are refused, each in one line that names them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.errors import StsbenchError
from stsbench.methods.diffcse.checks import changes, check_options, detects, generates
from stsbench.methods.diffcse.method import DiffCSE
from stsbench.methods.diffcse.options import DiffCSEOptions
from stsbench.training.recipes.method_plan import MethodPlan

ALL = ["replace", "insert", "delete"]
AS_NEGATIVE = {"rtd_weight": 0, "augmented_as": "negative"}
CONDITIONAL = {"task": "conditional_mlm"}
CORRECTIVE = {"task": "corrective_lm"}
OFF = {"rtd_weight": 0}
DELETE = {"operators": ["delete"]}
INSERT = {"operators": ["insert"]}

REFUSED = [
    ({"augmented_as": "positive"}, r"augmented_as positive .* set options\.rtd_weight 0, not 0\.005"),
    ({"contrastive": False, **OFF}, r"contrastive false with options\.rtd_weight 0 leaves no term"),
    ({"contrastive": False, **AS_NEGATIVE}, r"augmented_as negative .* options\.contrastive must be true"),
    ({"contrastive": False, "detach": True}, r"detach true with options\.contrastive false leaves the encoder without"),
    ({"contrastive": False, "condition": "raw"}, r"condition raw .* set options\.projector none"),
    ({"contrastive": False, "temperature": 0.1}, r"temperature 0\.1 has no effect: .*contrastive false; leave it at 0\.05"),
    ({"contrastive": False, "similarity": "dot"}, r"similarity dot has no effect: .*leave it at cosine"),
    ({"contrastive": False, "queue": {"size": 9}}, r"queue \{size: 9, .* start: copy\} has no effect: .*at null"),
    ({"operators": []}, r"operators takes one or more of replace, insert, delete, each once, not \[\]"),
    ({"operators": ["delete", "delete"]}, r"operators takes .* not \[delete, delete\]"),
    ({**CONDITIONAL, **INSERT}, r"task conditional_mlm .* must be \[replace\], not \[insert\]"),
    ({**CORRECTIVE, "operators": ALL}, r"task corrective_lm .* must be \[replace\], not \[replace, insert, delete\]"),
    ({"masked": 0.8, "random": 0.3}, r"masked 0\.8 and options\.random 0\.3 are shares"),
    ({"sentence": "next", "view": "given"}, r"sentence next needs text .* options\.view given"),
    ({"sentence": "same+next", **AS_NEGATIVE}, r"augmented_as negative .* options\.sentence same\+next must be same"),
    ({"operators": ["insert", "delete"], **AS_NEGATIVE}, r"adds one view, .* set options\.combine choice"),
    ({"combine": "choice"}, r"combine choice has no effect: options\.operators has only replace; leave it at sum"),
    ({"projector": "none", "condition": "raw"}, r"condition raw has no effect: .*projector none; leave it at projected"),
    ({**CORRECTIVE, "rtd_mean": "attended"}, r"rtd_mean attended has no effect: options\.task corrective_lm"),
    ({**CONDITIONAL, "rtd_mean": "attended"}, r"rtd_mean attended has no effect: options\.task conditional_mlm"),
    ({"edit_ratio": 0.3}, r"edit_ratio 0\.3 has no effect: it belongs to insert and delete"),
    *[({**INSERT, **one}, rf"{next(iter(one))} \S+ has no effect: it belongs to the operator replace")
      for one in ({"mask_ratio": 0.15}, {"masked": 0.7}, {"random": 0.0}, {"replace": "masked"})],
    *[({**base, **one}, rf"{next(iter(one))} \S+ has no effect: .*leave it at")
      for base in (CONDITIONAL, DELETE, OFF)
      for one in ({"generator": "a/model"}, {"generator_mode": "eval"}, {"replacement": "sampling"}, {"replace": "masked"})],
    *[({**OFF, **one}, rf"{next(iter(one))} .* has no effect: no changed sentence is made with options\.rtd_weight 0")
      for one in ({"task": "corrective_lm"}, {"condition": "raw"}, {"detach": True}, {"rtd_mean": "attended"},
                  {"sentence": "next"}, INSERT, {"mask_ratio": 0.15}, {"masked": 0.7}, {"random": 0.0},
                  {"edit_ratio": 0.3})],
    *[({**AS_NEGATIVE, **one}, rf"{next(iter(one))} \S+ has no effect: there is no discriminator")
      for one in ({"task": "corrective_lm"}, {"condition": "raw"}, {"detach": True}, {"rtd_mean": "attended"})],
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
    with pytest.raises(StsbenchError, match=message) as caught:
        check_options(DiffCSEOptions(**options))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250
    with pytest.raises(StsbenchError, match=message):
        MethodPlan(DiffCSE, DiffCSEOptions(**options)).roles(("sentence",))


@pytest.mark.parametrize("options", ACCEPTED)
def test_what_acts_is_accepted(options):
    check_options(DiffCSEOptions(**options))


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
    options = DiffCSEOptions(**changed)
    try:
        check_options(options)
    except StsbenchError as error:
        assert changed and any(f"options.{name}" in str(error) for name in changed)
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
