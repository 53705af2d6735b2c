"""What editors see of an encoder's options is what the dataclasses declare."""

from dataclasses import fields
from typing import get_type_hints

from stsbench.encoders.options import EncoderOptions
from stsbench.extensions.arguments import EncoderArguments


def test_options_of_encoders_are_typed_as_arguments():
    hints = get_type_hints(EncoderOptions)
    assert get_type_hints(EncoderArguments) == {entry.name: hints[entry.name] for entry in fields(EncoderOptions)
                                                if entry.name != "model"}
