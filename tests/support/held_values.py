"""Python values that a traced function reads from places that are hard to find, each with a way to change them.

A maker returns the function, and a second function that changes the value.
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import functools
import sys
import threading
import types
import typing
import weakref
from collections import defaultdict

import numpy as np
import scipy.sparse

from snncell import Parameter, nn, ops, surrogate

SCALE = 1.0


def scale():
    """A number that the methods below read as a global."""
    return SCALE


def set_scale(value):
    globals()["SCALE"] = value


def by_scale(fn):
    set_scale(1.0)
    return fn, set_scale


def attribute(owner, name, fn):
    return fn, lambda value: setattr(owner, name, value)


# --- Cells of the library that are read, not called -------------------------------------------------------------------


def threshold():
    neuron = nn.LIFNode()
    return attribute(neuron, "v_threshold", lambda x: x * neuron.v_threshold)


def training():
    net = nn.SequentialCell(nn.Dense(2, 2))
    return lambda x: x * (2.0 if net.training else 3.0), lambda value: net.set_train(value == 2.0)


def in_cell_list():
    cells = nn.CellList([nn.LIFNode(v_threshold=1.0)])
    return lambda x: x * cells[0].v_threshold, lambda value: cells.__setitem__(0, nn.LIFNode(v_threshold=value))


def length_of_cell_list():
    cells = nn.CellList([nn.ReLU()])
    return lambda x: x * len(cells), lambda value: cells.append(nn.ReLU())


def optimiser():
    sgd = nn.SGD(nn.Dense(1, 1).trainable_params(), 0.1, weight_decay=1.0)
    return attribute(sgd, "weight_decay", lambda x: x * float(sgd.weight_decay))


def of_surrogate():
    spike = surrogate.ATan(1.0)
    return attribute(spike, "alpha", lambda x: x * spike.alpha)


def replaced_weight():
    dense = nn.Dense(2, 2, weight_init="ones", has_bias=False)

    def change(value):
        dense.weight = Parameter(np.full((2, 2), value, np.float32))

    return lambda x: x * dense.weight.sum(), change


def requires_grad():
    weight = Parameter(np.ones(2, np.float32))
    return lambda x: x * (2.0 if weight.requires_grad else 3.0), lambda value: setattr(
        weight, "requires_grad", value == 2.0
    )


def hook():
    weight, factor = Parameter(np.ones(2, np.float32)), [1.0]
    weight.register_hook(lambda grad: grad * factor[0])
    return lambda x: ops.grad(lambda: (weight * x).sum(), None, [weight])()[0], lambda value: factor.__setitem__(
        0, value
    )


# --- objects that the function makes, and their methods ---------------------------------------------------------------


class Callable:
    def __call__(self, x):
        return x * scale()


class Context:
    def __enter__(self):
        return scale()

    def __exit__(self, *_):
        return None


class Numbers(list):
    gain = 1.0

    def scaled(self, x):
        return x * scale() * self.gain


class Table(dict):
    def scaled(self, x):
        return x * scale()


class Array(np.ndarray):
    pass


class Pair(typing.NamedTuple):
    one: float = 1.0

    def scaled(self, x):
        return x * self.one * scale()


class Mode(enum.Enum):
    FAST = 1.0

    def scaled(self, x):
        return x * scale()


class Base:
    g = 1.0

    def scaled(self, x):
        return x * self.g


def entered():
    def fn(x):
        with Context() as value:
            return x * value

    return by_scale(fn)


def subclass_attribute():
    numbers = Numbers()
    return attribute(numbers, "gain", lambda x: x * numbers.gain)


def array_attribute():
    array = np.ones(2).view(Array)
    array.gain = 1.0
    return attribute(array, "gain", lambda x: x * array.gain)


def shadowed_in_a_subclass():
    class Inner(Base):
        pass

    inner = Inner()
    return lambda x: x * inner.g, lambda value: setattr(Inner, "g", value)


def shadowed_method():
    one = Base()
    return one.scaled and (lambda x: one.scaled(x)), lambda value: setattr(one, "scaled", lambda x: x * value)


# --- computed names ---------------------------------------------------------------------------------------------------


def name_of_module():
    module = types.ModuleType("settings_of_a_user")
    module.gain_1 = 1.0
    return attribute(module, "gain_1", lambda x: x * getattr(module, f"gain_{1}"))


def name_of_class():
    kind = type("Settings", (), {"gain_1": 1.0, "__module__": __name__})
    return attribute(kind, "gain_1", lambda x: x * getattr(kind, f"gain_{1}"))


def name_of_slot():
    class Slots:
        __slots__ = ("gain_1",)

    one = Slots()
    one.gain_1 = 1.0
    return attribute(one, "gain_1", lambda x: x * getattr(one, f"gain_{1}"))


def private_slot():
    class Private:
        __slots__ = ("__gain",)

        def __init__(self):
            self.__gain = 1.0

        def put(self, value):
            self.__gain = value

        def scaled(self, x):
            return x * self.__gain

    one = Private()
    return one.scaled, one.put


# --- modules and functions --------------------------------------------------------------------------------------------


def module_named_as_a_standard_one():
    module = types.ModuleType("profile")
    module.__file__ = "/home/user/profile.py"
    exec("gain = 1.0\ndef scaled(x):\n    return x * gain\n", module.__dict__)
    sys.modules["profile"] = module
    return module.scaled, lambda value: setattr(module, "gain", value)


def function_without_a_module():
    there = {}
    exec("gain = 1.0\ndef scaled(x):\n    return x * gain\n", there)
    return there["scaled"], lambda value: there.__setitem__("gain", value)


def global_created_later():
    there = {}
    exec(
        "def scaled(x):\n    global gain\n    if x is None:\n        gain = 1.0\n"
        "    try:\n        return x * gain\n    except NameError:\n        return x\n",
        there,
    )
    return there["scaled"], lambda value: there.__setitem__("gain", value)


def replaced_defaults():
    def scaled(x, gain=1.0):
        return x * gain

    return lambda x: scaled(x), lambda value: setattr(scaled, "__defaults__", (value,))


def changed_keyword_defaults():
    def scaled(x, *, gain=1.0):
        return x * gain

    return lambda x: scaled(x), lambda value: scaled.__kwdefaults__.__setitem__("gain", value)


# --- further containers -----------------------------------------------------------------------------------------------


def default_factory():
    table, values = None, [1.0]
    table = defaultdict(lambda: values[0])
    return lambda x: x * table.default_factory(), lambda value: values.__setitem__(0, value)


def reference():
    one = Base()
    weak = weakref.ref(one)
    return lambda x: x * weak().g, lambda value, one=one: setattr(one, "g", value)


def object_array():
    array = np.array([[1.0], None], object)
    return lambda x: x * array[0][0], lambda value: array[0].__setitem__(0, value)


def sparse_that_replaces_its_arrays():
    matrix = scipy.sparse.csr_array(np.eye(2))

    def change(value):
        matrix.data = np.full(2, value)

    return lambda x: x * float(matrix.sum()), change


def bytes_of_others():
    buffer = bytearray(b"\x01")
    view = memoryview(buffer)
    return lambda x: x * view[0], lambda value: buffer.__setitem__(0, int(value))


def record():
    one = np.zeros(1, [("a", "f4")])[0]
    one["a"] = 1.0
    return lambda x: x * float(one["a"]), lambda value: one.__setitem__("a", value)


def of_c():
    array = (ctypes.c_double * 1)(1.0)
    return lambda x: x * array[0], lambda value: array.__setitem__(0, value)


def of_thread():
    local = threading.local()
    local.gain = 1.0
    return attribute(local, "gain", lambda x: x * local.gain)


def view_of_dict():
    table = {"a": 1.0}
    values = table.values()
    return lambda x: x * sum(values), lambda value: table.__setitem__("a", value)


def proxy():
    one = Base()
    stand_in = weakref.proxy(one)
    return lambda x: x * stand_in.g, lambda value, one=one: setattr(one, "g", value)


def of_metaclass():
    kind = type("Kind", (type,), {"g": 1.0, "__module__": __name__})
    made = kind("Made", (), {"__module__": __name__})
    return attribute(kind, "g", lambda x: x * made.g)


def global_by_its_name():
    return by_scale(lambda x: x * globals()["SCALE"])


def attribute_of_vars():
    one = Base()
    one.a = 1.0
    return lambda x: x * sum(vars(one).values()), lambda value: setattr(one, f"b{value:g}", value)


def partial_method():
    class Partial:
        gains: typing.ClassVar = [1.0]
        scaled = functools.partialmethod(lambda self, x: x * self.gains[0])

    one = Partial()
    return lambda x: one.scaled(x), lambda value: Partial.gains.__setitem__(0, value)


def missing_attribute():
    one = Base()

    def fn(x):
        try:
            return x * one.late
        except AttributeError:
            return x

    return attribute(one, "late", fn)


def default_of_a_module():
    module = types.ModuleType("settings_of_a_user")
    return attribute(module, "late", lambda x: x * getattr(module, "late", 1.0))


# --- arguments --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Frozen:
    one: float = 1.0
    two: float = dataclasses.field(default=1.0, compare=False)


@dataclasses.dataclass(frozen=True)
class Cached:
    one: float
    more: list = dataclasses.field(compare=False)
    cache: np.ndarray = dataclasses.field(compare=False)


HELD = {
    **{made.__name__: made for made in (threshold, training, in_cell_list, length_of_cell_list, optimiser)},
    **{made.__name__: made for made in (of_surrogate, replaced_weight, requires_grad, hook)},
    "made instance": lambda: by_scale(lambda x: Callable()(x)),
    "context": entered,
    "method of a list": lambda: by_scale(Numbers().scaled),
    "method of a dict": lambda: by_scale(Table().scaled),
    "method of a named tuple": lambda: by_scale(Pair().scaled),
    "method of an Enum": lambda: by_scale(lambda x: Mode.FAST.scaled(x)),
    **{made.__name__: made for made in (subclass_attribute, array_attribute, shadowed_in_a_subclass)},
    **{made.__name__: made for made in (shadowed_method, name_of_module, name_of_class, name_of_slot, private_slot)},
    **{made.__name__: made for made in (module_named_as_a_standard_one, function_without_a_module)},
    **{made.__name__: made for made in (global_created_later, replaced_defaults, changed_keyword_defaults)},
    **{made.__name__: made for made in (default_factory, reference, object_array, sparse_that_replaces_its_arrays)},
    **{made.__name__: made for made in (bytes_of_others, record, of_c, of_thread, view_of_dict, proxy, of_metaclass)},
    **{made.__name__: made for made in (global_by_its_name, attribute_of_vars, partial_method, missing_attribute)},
    "default of a module": default_of_a_module,
}
