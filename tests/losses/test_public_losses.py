"""What every public loss keeps: examples, defaults, arguments without a meaning refused (what does not belong together:
tests/refusals/losses.yaml), and 0 of no row."""

import doctest
import inspect
import math
import pkgutil
from importlib import import_module

import pytest
import torch

from stsbench import losses, registry
from stsbench.training.recipes.methods import GROUP, find_method, options_class

FOLDERS = {find_method(name).folder.name: name for name in registry.names(GROUP)}
OF_METHODS = {name: "sbert" if name == "triplet" else name.partition("_")[0]
              for name in losses.__all__ if name != "cosent_of_similarities"}
OF_METHODS = {name: folder for name, folder in OF_METHODS.items() if folder in FOLDERS}


def test_what_there_is_is_listed():
    assert {*losses.__all__} == {word for word in dir(losses) if not word.startswith("_")}
    modules = {module.name for module in pkgutil.iter_modules(losses.__path__)}
    assert not modules & {*losses.__all__}  # an imported module would hide a function of its name
    assert {*FOLDERS} - {*OF_METHODS.values()} == {"cmlm", "mlm", "tsdae"}  # guess words: masked_lm
    with pytest.raises(AttributeError, match=r"^module 'stsbench\.losses' has no attribute 'simsce'$"):
        _ = losses.simsce


@pytest.mark.parametrize("name", OF_METHODS)
def test_defaults_are_those_of_the_options(name):
    fields = options_class(FOLDERS[OF_METHODS[name]]).model_fields
    parameters = inspect.signature(getattr(losses, name)).parameters.values()
    named = {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    shared = named.keys() & fields.keys()
    assert {key: fields[key].default for key in shared} == {key: named[key] for key in shared}
    assert named.keys() - shared <= {"all_layers", "start"}


PARTS = {"stsbench.methods.whitenedcse.method": 2, "stsbench.methods.tsdae.method": 2,  # of methods, with examples
         "stsbench.methods.sncse.method": 2, "stsbench.methods.sncse.verbs": 1}


@pytest.mark.parametrize("module", [*sorted({getattr(losses, name).__module__ for name in OF_METHODS}), *PARTS])
def test_the_examples_of_the_docstrings_run(module):
    results = doctest.testmod(import_module(module), extraglobs={"torch": torch})
    assert results.failed == 0 and results.attempted >= PARTS.get(module, 4)


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def arguments(loss, n):
    """Tensors of n rows for a public loss, by the names of its parameters."""
    shapes = {"tokens": (n, 4, 6), "weight": (3, 18), "bias": (3,), "layers": (n, 3, 6)}
    chosen = {}
    for seed, (name, parameter) in enumerate(inspect.signature(loss).parameters.items()):
        if parameter.default is not inspect.Parameter.empty:
            continue
        if name in ("scores", "labels"):
            chosen[name] = torch.arange(n) % 2 if name == "labels" else (torch.arange(n) % 2).double()
        elif name in ("views", "blocks"):
            chosen[name] = [vectors(n, 6, seed=seed + at) for at in range(3)]
        elif name == "real":
            chosen[name] = torch.ones(n, 4)
        elif name == "teacher" and loss is losses.rankcse:
            chosen[name] = vectors(n, n, seed=seed)
        else:
            chosen[name] = vectors(*shapes.get(name, (n, 6)), seed=seed)
    return chosen


@pytest.mark.parametrize("name", OF_METHODS)
def test_a_public_loss_refuses_numbers_without_a_meaning(name):
    """What is divided by is above 0; a weight may be 0; whatever is compared, and not added up, is finite."""
    loss = getattr(losses, name)
    for number, parameter in inspect.signature(loss).parameters.items():
        if isinstance(parameter.default, float):
            may_be_0 = number.endswith("weight") or number == "eps" or loss is losses.sncse
            below = [] if loss is losses.sncse and number in ("alpha", "beta") else [-1.0]
            for value in (math.nan, math.inf, -math.inf, *below, *([] if may_be_0 and number != "temperature" else [0.0])):
                with pytest.raises(ValueError, match=number):
                    loss(**arguments(loss, 4), **{number: value})
    for number in {"scores", "labels", "teacher"} & arguments(loss, 4).keys():
        for value in (math.nan, math.inf):
            chosen = arguments(loss, 4)
            chosen[number] = chosen[number].detach().double()
            chosen[number].view(-1)[1] = value
            with pytest.raises(ValueError, match=number):
                loss(**chosen)


@pytest.mark.parametrize("name", OF_METHODS)
def test_a_public_loss_of_no_row_or_of_one_is_a_number_with_a_gradient(name):
    loss = getattr(losses, name)
    for n in (0, 1):
        chosen = arguments(loss, n)
        value = loss(**chosen)
        assert value.shape == () and math.isfinite(value.item()) and (n > 0 or value.item() == 0)
        value.backward()
        tensors = [tensor for each in chosen.values() for tensor in (each if isinstance(each, list) else [each])]
        assert all(tensor.grad is None or torch.isfinite(tensor.grad).all() for tensor in tensors)
        assert any(tensor.grad is not None for tensor in tensors)


@pytest.mark.parametrize("name", OF_METHODS)
def test_a_public_loss_is_of_float32_under_autocast_and_of_half_precision(name):
    """A cosine in bfloat16 over a temperature of 0.05 is off by up to 0.08."""
    loss, dtype = getattr(losses, name), torch.bfloat16
    halved = {key: [each.detach().to(dtype).requires_grad_() for each in value] if isinstance(value, list)
              else value.detach().to(dtype).requires_grad_() if value.requires_grad else value
              for key, value in arguments(loss, 8).items()}
    exact = loss(**{key: [each.double() for each in value] if isinstance(value, list)
                    else value.double() if value.is_floating_point() else value for key, value in halved.items()})
    for enabled in (True, False):
        with torch.autocast("cpu", dtype, enabled=enabled):
            value = loss(**halved)
        gradients = torch.autograd.grad(value, [each for each in halved.values() if getattr(each, "requires_grad", False)]
                                        or halved["views"])
        assert value.dtype.itemsize >= 4 and value.item() == pytest.approx(exact.item(), rel=1e-3)
        assert all(each.isfinite().all() for each in gradients)


def test_where_a_gpu_is_not_waited_for_the_loss_is_nan(monkeypatch):
    """Compiling stands in for it: nothing is looked at, and the comparison with NaN does not pass for an answer."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for scores in ([0.0, math.nan, 1.0], [0.0, math.inf, 1.0]):
        assert losses.cosent(vectors(3, 6), vectors(3, 6, seed=1), torch.tensor(scores)).isnan()
        assert losses.rankcse(vectors(3, 6), vectors(3, 6, seed=1), torch.tensor([scores] * 3)).isnan()
