"""What editors see of an encoder's options, and what functions take, is what the dataclasses and the commands declare."""

from dataclasses import fields
from inspect import Parameter, signature
from typing import get_type_hints

import pytest

import stsbench
from stsbench.encoders.options import CacheOptions, EncoderOptions, ProcessOptions
from stsbench.evaluation.own_data import data_protocols
from stsbench.extensions.arguments import EncoderArguments, EvaluateArguments
from stsbench.extensions.jobs.command import run, sweep
from stsbench.extensions.parity.options import ParityOptions
from stsbench.extensions.smaller_copies.options import VariantOptions
from stsbench.extensions.smaller_copies.variants import measure_variants
from stsbench.extensions.stores.options import NearestOptions, StoreOptions


def test_options_of_encoders_are_typed_as_arguments_and_editors_see_every_protocol_of_own_data():
    hints = get_type_hints(EncoderOptions)
    assert get_type_hints(EncoderArguments) == {entry.name: hints[entry.name] for entry in fields(EncoderOptions)
                                                if entry.name != "model"}
    assert set(data_protocols()) <= EvaluateArguments.__annotations__.keys()


@pytest.mark.parametrize(("function", "groups", "of_its_own"), [
    (stsbench.encode, (EncoderOptions, StoreOptions, ProcessOptions), None),
    (stsbench.neighbours, (EncoderOptions, CacheOptions, NearestOptions), None),
    (stsbench.fit, (EncoderOptions, CacheOptions), {"post", "data", "output", "settings"}),
    (stsbench.parity, (ParityOptions,), None), (measure_variants, (VariantOptions,), None)])
def test_names_and_defaults_are_those_of_the_options(function, groups, of_its_own):
    expected = {entry.name: entry.default for group in groups for entry in fields(group) if entry.name != "model"}
    parameters = signature(function).parameters
    assert of_its_own is None or set(parameters) - {"model"} == set(expected) | of_its_own
    assert {key: parameters[key].default for key in expected} == expected
    assert all(parameters[key].kind is Parameter.KEYWORD_ONLY for key in expected)


@pytest.mark.parametrize(("command", "function", "renamed"), [
    (run, stsbench.run_plan, {"plan_file": "plan"}), (sweep, stsbench.sweep, {"sets": "settings"})])
def test_every_option_of_a_command_is_a_keyword(command, function, renamed):
    options = {renamed.get(option.name, option.name): option for option in command.params}
    keywords = signature(function).parameters
    assert set(options) == set(keywords) - {"dev"}
    for name in set(options) - {"method", "plan"}:
        default = options[name].default if isinstance(options[name].default, int | str | tuple) else None
        assert (keywords[name].default or None) == (default or None), name
