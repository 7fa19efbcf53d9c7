"""Fields: one declaration per constant gives signature, checks, docstring and repr of a class."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import typing
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, nn, ops, surrogate
from snncell.cell.fields import fields_of
from snncell.errors import ArgumentError, CallError
from snncell.nn.dataflow import kind_of

KINDS = [kind for kind in vars(nn).values() if isinstance(kind, type) and fields_of(kind)]


@nn.with_fields
class Cubic(nn.Neuron):
    """h = v - steepness v^3 + x"""

    steepness: Any = nn.field(0.5, nn.Range(0.0), "pull on a high potential")
    centre: Any = nn.field(None, nn.Range(), "where nothing is pulled", follows="v_reset")
    mode: str = nn.field("odd", ("odd", "even"), "power")
    reset = nn.field("zero")

    def charge(self, x, v):
        return v - self.steepness * v * v * v + self.gained(x)


@nn.with_fields(by_place="exponent")
class Power(nn.Cell):
    """x to a power.

    Args:
        exponent: written by hand.

    Source: none.
    """

    scale: float = nn.field(1.0, nn.Range(0.0), "factor")
    exponent: Annotated[float, nn.field(meaning="the power")]
    hidden: float = nn.field(1.0, keep=False)
    loud: bool = nn.field(False, quiet=True)

    def construct(self, x):
        return self.scale * x**self.exponent


def test_signature_lists_the_fields():
    parameters = inspect.signature(Cubic).parameters
    assert list(parameters)[:4] == ["steepness", "centre", "mode", "v_threshold"]
    assert [p.kind is p.KEYWORD_ONLY for p in parameters.values()][:4] == [False, False, False, True]
    assert parameters["reset"].default == "zero" and parameters["compare"].default == ">"
    assert list(inspect.signature(nn.Neuron).parameters)[:2] == ["constants", "v_threshold"]
    assert str(inspect.signature(Power)).startswith("(exponent: 'float', *, scale")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_type_checkers_see_the_arguments_of_a_neuron_in_order(kind):
    tree = ast.parse(Path(inspect.getsourcefile(kind)).read_text(encoding="utf-8"))
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
    stub = [node for one in body if isinstance(one, ast.If) for node in one.body if isinstance(node, ast.FunctionDef)]
    parameters = inspect.signature(kind).parameters.values()
    by_place = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if stub:
        arguments = stub[0].args.args[1:]
        assert [one.arg for one in arguments] == by_place
        given = {p.name: p.annotation for p in parameters}
        assert [ast.unparse(one.annotation) for one in arguments] == [given[name] for name in by_place]
    elif getattr(kind.__init__, "made_of_fields", False):
        assert by_place == of_a_dataclass(kind)[: len(by_place)]


def of_a_dataclass(kind):
    """Return the fields that a type checker accepts by position, in order: those of bases first, as in a dataclass."""
    names = {}
    for one in reversed([one for one in kind.__mro__ if "__fields__" in vars(one)]):
        own = [name for name in inspect.get_annotations(one) if name in fields_of(one)]
        names |= {name: fields_of(one)[name] for name in own if name not in names}
    return [name for name, one in names.items() if not one.kw_only and fields_of(kind)[name].init]


def test_constants_are_checked_when_created_and_when_set():
    for wrong in (lambda: Cubic(-1.0), lambda: setattr(Cubic(), "steepness", -1.0)):
        with pytest.raises(ArgumentError, match=r"Cubic: steepness is a number above 0.0, not -1.0"):
            wrong()
    with pytest.raises(ArgumentError, match='Cubic: mode is "odd" or "even", not \'none\''):
        Cubic(mode="none")
    with pytest.raises(ArgumentError, match=r"Power: scale is a number above 0.0, not -1.0"):
        Power(2.0, scale=-1.0)


def test_unknown_arguments_raise_with_the_class_name():
    with pytest.raises(CallError, match=r"Cubic has no option 'tau'. Its options are steepness, centre, mode, v_thr"):
        Cubic(tau=2.0)
    with pytest.raises(CallError, match=r"Power has no argument scael. Did you mean scale\?"):
        Power(2.0, scael=1.0)
    for call in (lambda: Power(), lambda: Power(2.0, 1.0), lambda: Power(2.0, exponent=1.0)):
        with pytest.raises(TypeError):
            call()


def test_docstring_lists_each_field_with_its_range_and_default():
    assert "Args:\n    steepness: pull on a high potential, a number above 0.0. Default: 0.5.\n" in Cubic.__doc__
    assert '    mode: power: "odd" or "even". Default: "odd".\n' in Cubic.__doc__
    assert "    centre: where nothing is pulled. Default: v_reset.\n" in Cubic.__doc__
    assert "surrogate_function, compare, delay" in Cubic.__doc__ and ": see `Neuron`." in Cubic.__doc__
    assert "Args:\n    exponent: the power.\n    scale: factor, a number above 0.0. Default: 1.0.\n" in Power.__doc__
    assert Power.__doc__.endswith("    exponent: written by hand.\n\nSource: none.")
    for kind in KINDS:
        said = inspect.getdoc(kind)
        assert all(name in said for name in inspect.signature(kind).parameters), kind


def test_repr_shows_constants_and_options():
    assert repr(Power(2.0)) == "Power(exponent=2.0, scale=1.0)"
    assert repr(nn.GroupNorm(1, 2, np.float64(0.5))) == "GroupNorm(num_groups=1, num_channels=2, eps=0.5)"
    assert repr(Power(3.0, loud=True)) == "Power(exponent=3.0, scale=1.0, loud=True)"
    assert "steepness=0.25, centre=0.0, v_threshold=1.0" in repr(Cubic(0.25))
    assert "reset='zero'" in repr(Cubic()) and "delay" not in repr(Cubic())
    assert "delay='spike'" in repr(Cubic(delay="spike")) and "steepness=Parameter()" in repr(
        Cubic(learnable="steepness")
    )


def test_field_defaults_to_another_learnable_field():
    node = Cubic(learnable="v_reset", v_reset=0.25)
    assert node.centre is node.v_reset and isinstance(node.centre, Parameter)
    assert Cubic(v_reset=0.25).centre == 0.25 and Cubic(centre=0.5, v_reset=0.25).centre == 0.5


def test_object_can_be_copied_and_pickled():
    x = Tensor(np.full((5, 2), 0.6, np.float32))
    node = Cubic(0.25, v_threshold=0.9, learnable="steepness")
    expected = nn.MultiStep(node)(x).asnumpy().tolist()
    for other in (copy.deepcopy(node), copy.copy(node), pickle.loads(pickle.dumps(node))):
        assert nn.MultiStep(other)(x).asnumpy().tolist() == expected
        assert repr(other) == repr(node)
    assert Power(2.0)(Tensor([3.0])).item() == 9.0


def test_field_without_annotation_is_a_field_and_an_unknown_hint_is_not():
    @nn.with_fields
    class Plain(nn.Cell):
        factor = nn.field(2.0, nn.Range(0.0))
        other: Missing  # noqa: F821
        count: Annotated[int, "nothing"] = nn.field(1)

        def construct(self, x):
            return x * self.factor

    assert list(fields_of(Plain)) == ["count", "factor"] and Plain(factor=3.0)(Tensor([1.0])).item() == 3.0


def test_spike_function_can_have_fields():
    @nn.with_fields
    class Box(surrogate.Surrogate):
        width: Any = nn.field(0.5, nn.Range(0.0), "half width")

        def bprop(self, x, out, dout):
            return self.gradients(x, dout, dout * (ops.abs(x) < self.width).astype(x.dtype))

        def primitive(self, x):
            return ops.clip(x, -self.width, self.width)

    assert repr(Box(0.25)) == "Box(width=0.25)" and snncell.grad(Box(0.25))(Tensor([0.1, 0.3])).tolist() == [1.0, 0.0]
    with pytest.raises(ArgumentError, match=r"Box: width is a number above 0.0, not -1.0; leave it out for 0.5"):
        Box(-1.0)


def test_subclass_with_an_init_passes_options_on():
    class Halved(Cubic):
        def __init__(self, half, **options):
            super().__init__(**options)
            self.half = half

        def charge(self, x, v):
            return super().charge(x, v) * self.half

    node = Halved(0.5, steepness=0.1, learnable="steepness")
    assert node.steepness.item() == pytest.approx(0.1) and node.half == 0.5
    assert node(ops.ones(2), ops.zeros(2))[1].tolist() == [0.5, 0.5]
    with pytest.raises(CallError, match=r"Halved has no option 'other'. Its options are half, steepness, centre"):
        Halved(0.5, other=1)


def test_fields_of_bases_reach_a_custom_init_as_options():
    class Written(Cubic):
        def __init__(self, **options):
            super().__init__(**options)

    @nn.with_fields
    class Wide(Written):
        width: Any = nn.field(2.0, nn.Range(0.0), "width")

    node = Wide(0.1, width=3.0, learnable="steepness", delay="spike")
    assert node.width == 3.0 and isinstance(node.steepness, Parameter) and node.delay == "spike"


def test_library_neuron_with_another_default_computes_as_before():
    @nn.with_fields
    class Slow(nn.LIFNode):
        tau = nn.field(20.0)

        def _complete(self, given):
            assert given["tau"] == self.tau

    assert kind_of(Slow()) is nn.LIFNode and Slow().tau == 20.0 and Slow(3.0).tau == 3.0
    assert str(inspect.signature(Slow)).startswith("(tau: 'Any' = 20.0, v_threshold: 'Any' = 1.0, v_reset")


def test_type_hints_are_resolved_to_objects():
    hints = typing.get_type_hints(nn.LIFNode.__init__)
    assert hints["decay_input"] is bool and hints["reset"] == (str | None) and hints["return"] is type(None)


def test_field_added_by_a_subclass_does_not_change_its_base():
    @nn.with_fields
    class Named(nn.LeakyReLU):
        label: str = nn.field("", meaning="a name")

    @nn.with_fields
    class NamedLoss(nn.HuberLoss):
        label: str = nn.field("", meaning="a name")

    x = Tensor([-1.0, 2.0])
    assert Named(0.5)(x).tolist() == [-0.5, 2.0]
    assert NamedLoss()(x, x).item() == 0.0
