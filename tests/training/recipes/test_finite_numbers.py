"""No number of a recipe, of a method's options, a protocol's or a post-processing's settings is NaN or infinite."""

import math
import typing

import pytest
from pydantic import BaseModel, ValidationError

from stsbench import registry
from stsbench.encoders.post.chain import GROUP as POSTS
from stsbench.training.recipes.methods import GROUP, options_class
from stsbench.training.recipes.recipe import Recipe


def parts(annotation):
    """A type and all that it is made of."""
    yield annotation
    for inner in typing.get_args(annotation):
        yield from parts(inner)


def models(model):
    """A model, and those inside it."""
    models_inside, waiting = [], [model]
    while waiting:
        models_inside.append(one := waiting.pop())
        inner = [part for field in one.model_fields.values() for part in parts(field.annotation)
                 if isinstance(part, type) and issubclass(part, BaseModel)]
        waiting += [part for part in inner if part not in (*models_inside, *waiting)]
    return models_inside


OPTIONS = [Recipe, *(options_class(name) for name in registry.names(GROUP))]
OPTIONS += [registry.resolve("stsbench.protocols", name).Settings for name in registry.names("stsbench.protocols")]
OPTIONS += [registry.resolve(POSTS, name).Options for name in registry.names(POSTS)]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.__name__)
def test_no_number_is_nan_or_infinite(options):
    for model in models(options):
        for name, field in model.model_fields.items():
            if float not in parts(field.annotation):
                continue
            for value in (math.nan, math.inf, -math.inf):
                for written in (value, [value], [0.5, value], {"a": value}):
                    with pytest.raises(ValidationError) as caught:
                        model.__pydantic_validator__.validate_assignment(model.model_construct(), name, written)
                    assert any(error["loc"][0] == name for error in caught.value.errors()), (model.__name__, name, written)
