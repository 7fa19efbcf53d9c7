"""Python values that a trace reads: each call equals the uncompiled code or raises TraceError.

A case combines a holder of a value (global, closure, attribute, list, array, ...), a way to run the function (jit,
GRAPH_MODE, training, a loop over time, ...), and changes of the value between calls or by the function itself.
"""

import array
import contextlib
import contextvars
import datetime
import functools
import itertools
import os
import random
import re
import secrets
import sys
import threading
import time
import types
import uuid
import weakref
from collections import ChainMap, OrderedDict, UserDict, UserList, deque
from dataclasses import dataclass, field

import held_values
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from held_values import HELD, Cached, Frozen
from interpreting import interpreted as interpreted
from random_cases import random_cases

import snncell
from snncell import Tensor, jit, nn, ops, train
from snncell.compiler.state import python_state, reach
from snncell.errors import TraceError

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setenv("SNNCELL_TEST_GAIN", "1.0")


# --- holders of a value -----------------------------------------------------------------------------------------------

GAIN = 1.0
SETTINGS = {"gain": 1.0, "other": 0.0}
COUNT = 0


class Plain:
    shared = 1.0

    def __init__(self):
        self.gain, self.unread = 1.0, 0.0
        self.inner = types.SimpleNamespace(gain=1.0)
        self.gains = [1.0]

    def method(self, x):
        return x * self.gain

    def through_helper(self, x):
        return x * self._helper()

    def _helper(self):
        return self.inner.gain

    def of_list(self, x):
        return x * self.gains[0]

    def of_class(self, x):
        return x * self.shared

    @property
    def doubled(self):
        return self.gain * 2.0

    def by_property(self, x):
        return x * self.doubled

    def by_name(self, x):
        return x * getattr(self, "ga" + "in")

    def __call__(self, x):
        return x * self.gain


class Slots:
    __slots__ = ("gain",)

    def __init__(self):
        self.gain = 1.0

    def __call__(self, x):
        return x * self.gain


@dataclass
class Record:
    gain: float = 1.0
    gains: dict = field(default_factory=lambda: {"a": 1.0})


class Scaled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.gain, self.record, self.array = 1.0, Record(), np.ones(1, np.float32)

    def construct(self, x):
        return x * self.gain * self.record.gain * Tensor(self.array)


def of_global():
    def change(value):
        global GAIN
        GAIN = value

    change(1.0)
    return (lambda x: x * GAIN), change


def of_global_dict():
    SETTINGS["gain"] = 1.0
    return (lambda x: x * SETTINGS["gain"]), functools.partial(SETTINGS.__setitem__, "gain")


def of_module():
    module = sys.modules[__name__]
    module.GAIN = 1.0
    return (lambda x: x * module.GAIN), functools.partial(setattr, module, "GAIN")


def of_closure():
    gain = 1.0

    def change(value):
        nonlocal gain
        gain = value

    return (lambda x: x * gain), change


def of_inner_function():
    gain = 1.0

    def change(value):
        nonlocal gain
        gain = value

    def scaled(x):
        return (lambda y: y * gain)(x)

    return scaled, change


def of_default():
    def scaled(x, gains=[1.0]):  # noqa: B006 (it is the case)
        return x * gains[0]

    return scaled, functools.partial(scaled.__defaults__[0].__setitem__, 0)


def of_partial():
    record = Record()
    return functools.partial(lambda record, x: x * record.gain, record), functools.partial(setattr, record, "gain")


def of_keywords():
    fn = functools.partial(lambda x, gain: x * gain, gain=1.0)
    return fn, functools.partial(fn.keywords.__setitem__, "gain")


def of_object(read):
    plain = Plain()
    names = {"through_helper": (plain.inner, "gain"), "of_class": (plain, "shared")}
    if read == "of_list":
        return plain.of_list, functools.partial(plain.gains.__setitem__, 0)
    return getattr(plain, read), functools.partial(setattr, *names.get(read, (plain, "gain")))


def of_class_attribute():
    kind = type("Own", (Plain,), {"shared": 1.0, "__module__": __name__})
    return kind().of_class, functools.partial(setattr, kind, "shared")


def of_base_class():
    base = type("Base", (), {"shared": 1.0, "__module__": __name__})
    derived = type("Derived", (base,), {"__module__": __name__})
    return (lambda x: x * derived.shared), functools.partial(setattr, base, "shared")


def of_function_attribute():
    def fn(x):
        return x * fn.gain

    fn.gain = 1.0
    return fn, functools.partial(setattr, fn, "gain")


def of_slots():
    slots = Slots()
    return slots, functools.partial(setattr, slots, "gain")


def of_list_of_records():
    records = [Record(), Record()]
    return (lambda x: x * records[1].gains["a"]), lambda value: records[1].gains.update(a=value)


def of_array(size=1):
    array = np.ones(size, np.float32)
    return (lambda x: x * Tensor(array[:1])), functools.partial(array.__setitem__, slice(None))


def of_wrapped(make, key):
    """A standard container around a list or dict that changes."""
    inner = [1.0] if key == 0 else {key: 1.0}
    container = make(inner)
    below = container.data if isinstance(container, (UserDict, UserList)) else inner
    return (lambda x: x * container[key]), functools.partial(below.__setitem__, key)


def of_numbers(container):
    return (lambda x: x * float(container[0])), lambda value: container.__setitem__(0, int(value))


def of_sparse():
    matrix = scipy.sparse.csr_array(np.ones((1, 1), np.float32))
    return (lambda x: x * Tensor(matrix.toarray()[0])), functools.partial(matrix.data.__setitem__, 0)


def of_context():
    gain = contextvars.ContextVar("gain", default=1.0)
    return (lambda x: x * gain.get()), gain.set


def of_cached_function():
    record = Record()
    cached = functools.lru_cache(lambda: record.gain)

    def change(value):
        record.gain = value
        cached.cache_clear()

    return (lambda x: x * cached()), change


def of_environment(read):
    os.environ["SNNCELL_TEST_GAIN"] = "1.0"
    return (lambda x: x * float(read("SNNCELL_TEST_GAIN"))), lambda v: os.environ.update(SNNCELL_TEST_GAIN=str(v))


def of_module_environment():
    return (lambda x: x * float(os.environ["SNNCELL_TEST_GAIN"])), of_environment(os.getenv)[1]


def of_arguments():
    sys.argv[1:] = ["1.0"]
    return (lambda x: x * float(sys.argv[1])), lambda value: sys.argv.__setitem__(1, str(value))


def of_tensor():
    state = {"t": Tensor([1.0])}
    return (lambda x: x * state["t"]), lambda value: state.update(t=Tensor([value]))


def of_function():
    known = {1.0: lambda x: x, 2.0: lambda x: x * 2.0, 3.0: lambda x: x * 3.0}
    held = types.SimpleNamespace(fn=known[1.0])
    return (lambda x: held.fn(x)), lambda value: setattr(held, "fn", known[value])


def of_cell(name):
    cell = Scaled()
    if name == "array":
        return cell, functools.partial(cell.array.__setitem__, 0)
    return cell, functools.partial(setattr, cell.record if name == "record" else cell, "gain")


def of_uncalled_cell():
    cell = Scaled()
    return (lambda x: x * cell.gain), functools.partial(setattr, cell, "gain")


def of_gradient():
    record = Record()
    fn = snncell.grad(lambda x: (x * x * record.gain * 0.5).sum())
    return fn, functools.partial(setattr, record, "gain")


HOLDERS = {
    "global": of_global,
    "global dict": of_global_dict,
    "module": of_module,
    "closure": of_closure,
    "inner function": of_inner_function,
    "default": of_default,
    "partial": of_partial,
    "keywords": of_keywords,
    **{name: functools.partial(of_object, name) for name in ("method", "through_helper", "of_list", "of_class")},
    **{name: functools.partial(of_object, name) for name in ("by_property", "by_name", "__call__")},
    "class attribute": of_class_attribute,
    "attribute of a base class": of_base_class,
    "attribute of a function": of_function_attribute,
    "slots": of_slots,
    "list of records": of_list_of_records,
    "array": of_array,
    "large array": functools.partial(of_array, 1 << 20),
    "Tensor": of_tensor,
    "function": of_function,
    **{f"Cell {name}": functools.partial(of_cell, name) for name in ("gain", "record", "array")},
    "UserDict": functools.partial(of_wrapped, UserDict, "a"),
    "UserList": functools.partial(of_wrapped, UserList, 0),
    "ChainMap": functools.partial(of_wrapped, lambda inner: ChainMap({}, inner), "a"),
    "MappingProxyType": functools.partial(of_wrapped, types.MappingProxyType, "a"),
    "array.array": lambda: of_numbers(array.array("d", [1.0])),
    "bytearray": lambda: of_numbers(bytearray([1])),
    "sparse array": of_sparse,
    "ContextVar": of_context,
    "lru_cache": of_cached_function,
    "os.getenv": lambda: of_environment(os.getenv),
    "os.environ": of_module_environment,
    "environ.get": lambda: of_environment(os.environ.get),
    "sys.argv": of_arguments,
    "uncalled Cell": of_uncalled_cell,
    "gradient": of_gradient,
}

# --- ways to run a function -------------------------------------------------------------------------------------------

X = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32)


class Layer(nn.Cell):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def construct(self, x):
        return self.fn(x)


class Neuron(nn.Cell):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def construct(self, x, v):
        v = v + self.fn(x)
        return v, v


def in_graph_mode(fn):
    layer = Layer(fn)

    def run():
        snncell.set_context(mode=snncell.GRAPH_MODE)
        try:
            return layer(Tensor(X))
        finally:
            snncell.set_context(mode=snncell.PYNATIVE_MODE)

    return run


def in_training(fn):
    net = nn.Dense(2, 2, weight_init="ones", has_bias=False)
    step = train.training_step(net, lambda y, t: (fn(y) - t).sum(), nn.SGD(net.trainable_params(), 0.01))
    return lambda: step(X, X)["loss"]


def in_fit(fn):
    net = nn.Dense(2, 2, weight_init="ones", has_bias=False)
    sgd = nn.SGD(net.trainable_params(), 0.01)

    def run():
        result = train.fit(net, lambda y, t: fn(y).sum(), sgd, [(X, X)], 1, progress=False, accuracy=None)
        return Tensor(result.history[-1]["loss"])

    return run


def of_jitted_gradient(fn):
    gradient = snncell.grad(jit(lambda x: (fn(x) * x).sum()))
    return lambda: gradient(Tensor(X))


def in_multistep(fn):
    net = nn.MultiStep(Neuron(fn))
    return lambda: net(Tensor(X))


MODES = {
    "jit": lambda fn: functools.partial(jit(fn), Tensor(X)),
    "jit of a loop": lambda fn: functools.partial(jit(in_multistep(fn))),
    "jitted gradient": of_jitted_gradient,
    "graph mode": in_graph_mode,
    "training step": in_training,
    "MultiStep": in_multistep,
    "vmap": lambda fn: functools.partial(snncell.vmap(fn), Tensor(X)),
    "jitted vmap": lambda fn: functools.partial(jit(snncell.vmap(fn)), Tensor(X)),
    "scan": lambda fn: lambda: ops.scan(lambda c, x: (c + fn(x), c), ops.zeros(2), Tensor(X))[0],
    "fit": in_fit,
}
CHEAP = [mode for mode in MODES if mode != "fit"]


def outcomes(make, mode, changes, plain):
    """Return the results of calls between which the value changes, and whether the last call raised."""
    fn, change = make()
    run = MODES[mode](fn)
    found = []
    for value in changes:
        if value is not None and change is not None:
            change(value)
        try:
            if plain:
                with snncell.testing.unfused():
                    found.append(run().asnumpy().tolist())
            else:
                found.append(run().asnumpy().tolist())
        except TraceError:
            if plain:
                raise
            return found, True
    return found, False


def compare(make, mode, changes, refused=False):
    """Check a case; `refused` means that an error replaces any result that would differ."""
    expected, _ = outcomes(make, mode, changes, plain=True)
    found, error = outcomes(make, mode, changes, plain=False)
    assert error is False or refused
    np.testing.assert_allclose(found, expected[: len(found)], rtol=1e-6)
    return error


@pytest.mark.sampled(75)
@random_cases(120)
def test_value_changed_between_calls_is_used(seed):
    rng = random.Random(seed)
    holder = rng.choice(list(HOLDERS))
    mode = rng.choice(CHEAP if seed % 20 else list(MODES))
    changes = [rng.choice([None, 2.0, 3.0]) for _ in range(rng.randint(2, 4))]
    compare(HOLDERS[holder], mode, [None, *changes, 3.0])


@pytest.mark.parametrize("holder", HOLDERS)
def test_jit_follows_each_holder(holder):
    compare(HOLDERS[holder], "jit", [None, None, 2.0, 2.0, 3.0])


@pytest.mark.parametrize("holder", HELD)
def test_jit_follows_values_that_are_hard_to_find(holder, monkeypatch):
    monkeypatch.setattr(held_values, "SCALE", 1.0)
    monkeypatch.setitem(sys.modules, "profile", None)
    compare(HELD[holder], "jit", [None, 2.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Frozen(1.0, 1.0), Frozen(1.0, 2.0)),
        (Frozen(0.0), Frozen(-0.0)),
        (Frozen(1.0), Frozen(True)),
        (frozenset({1}), frozenset({1.0})),
    ],
)
def test_equal_but_distinguishable_arguments_are_traced_separately(one, other):
    seen = []

    def fn(x, setting):
        seen.append(setting)
        return x

    fn = jit(fn)
    for setting in (one, other, one, other):
        fn(Tensor(X), setting)
    assert len(seen) == 2


@pytest.mark.parametrize("make", [lambda: np.ones(2), lambda: {1}, lambda: bytearray(b"a"), lambda: deque([1])])
def test_changing_a_returned_container_does_not_affect_later_calls(make):
    fn = jit(lambda x: (x, [make()]))
    first, expected = fn(Tensor(X))[1][0], repr(make())
    first.fill(5) if isinstance(first, np.ndarray) else first.clear()
    assert repr(fn(Tensor(X))[1][0]) == expected


@pytest.mark.parametrize(
    "draw",
    [
        lambda torch, x: torch.bernoulli(torch.full((2,), 0.5)),
        lambda torch, x: torch.empty(2).uniform_(),
        lambda torch, x: torch.nn.functional.dropout(torch.ones(2)),
    ],
)
def test_random_numbers_of_pytorch_raise(draw, torch):
    with pytest.raises(TraceError, match=r"draws from (PyTorch's random numbers|torch\.\w+).* while it is traced"):
        jit(lambda x: x * Tensor(draw(torch, x).numpy()))(Tensor(X))


def test_frozen_dataclass_with_a_cache_is_one_argument():
    seen = []

    def fn(x, setting):
        seen.append(setting)
        return x * setting.one

    fn, cache = jit(fn), np.zeros(2)
    for setting in (Cached(1.0, [1], cache), Cached(1.0, [1], cache), Cached(1.0, [2], cache), Cached(2.0, [2], cache)):
        fn(Tensor(X), setting)
    assert len(seen) == 3


def test_dead_weak_proxy_does_not_break_tracing():
    one = Record()
    proxy = weakref.proxy(one)
    del one
    fn = jit(lambda x: x * float(proxy is not None))
    assert fn(Tensor(X)).shape == X.shape


def test_pytorch_draws_in_another_thread_do_not_break_tracing(torch):
    stop = threading.Event()

    def draw():
        while not stop.is_set():
            torch.rand(1)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for n in range(5):
            jit(lambda x, n=n: x * n)(Tensor(X))
    finally:
        stop.set()
        thread.join()


def test_ctrl_c_leaves_no_loader_thread_paused(monkeypatch):
    lock = threading.RLock()
    monkeypatch.setitem(python_state.LOADING, -1, lock)
    for interrupted in (False, True):
        with contextlib.suppress(KeyboardInterrupt), python_state.pause_loading() as paused:
            assert paused and lock._is_owned()
            with python_state.pause_loading():  # of a nested trace
                assert lock._is_owned()
            assert lock._is_owned()
            if interrupted:
                raise KeyboardInterrupt
        assert not lock._is_owned()


def test_bfloat16_tensor_of_pytorch_is_followed(torch):
    held = torch.ones(2, dtype=torch.bfloat16)
    fn = jit(lambda x: x * float(held.sum()))
    found = [fn(Tensor(X)).asnumpy()[0, 0]]
    held[0] = 3.0
    assert [*found, fn(Tensor(X)).asnumpy()[0, 0]] == [2.0, 4.0]


# --- values that the function itself changes --------------------------------------------------------------------------


class Counting:
    total = 0

    def __init__(self):
        self.calls, self.sum = 0, Tensor([0.0, 0.0])
        self.array, self.seen, self.mask = np.zeros(1, np.float32), {}, None

    def attribute(self, x):
        self.calls += 1
        return x * self.calls

    def tensor(self, x):
        self.sum = self.sum + x
        return self.sum

    def of_class(self, x):
        type(self).total += 1
        return x * self.total

    def in_array(self, x):
        self.array[0] += 1
        return x * float(self.array[0])

    def in_dict(self, x):
        self.seen["n"] = self.seen.get("n", 0) + 1
        return x * self.seen["n"]

    def missing(self, x):
        self.later = getattr(self, "later", 0) + 1
        return x * self.later

    def first(self, x):
        if self.mask is None:
            self.mask = 5.0
            return x
        return x * self.mask

    def cache(self, x):
        if self.mask is None:
            self.mask = 5.0
        return x * self.mask

    def toggle(self, x):
        self.calls = 1 - self.calls
        return x * self.calls


class CountingCell(nn.Cell):
    def __init__(self):
        super().__init__()
        self.calls, self.log = 0, [1.0]

    def construct(self, x):
        self.calls += 1
        return x * self.calls


def count_global(x):
    global COUNT
    COUNT += 1
    return x * COUNT


def count_closure():
    count = 0

    def counted(x):
        nonlocal count
        count += 1
        return x * count

    return counted


def count_list():
    log = []

    def counted(x):
        log.append(1.0)
        return x * sum(log)

    return counted


SELF_CHANGING = {
    **{
        name: functools.partial(lambda name: getattr(Counting(), name), name)
        for name, method in vars(Counting).items()
        if isinstance(method, types.FunctionType) and not name.startswith("_")
    },
    "Cell": CountingCell,
    "global": lambda: count_global,
    "closure": count_closure,
    "list": count_list,
}


@pytest.mark.filterwarnings("ignore:.*is changed inside a function that is traced:RuntimeWarning")
@pytest.mark.parametrize("mode", CHEAP)
@pytest.mark.parametrize("kind", SELF_CHANGING)
def test_value_changed_by_the_function_is_correct_or_raises(kind, mode):
    def make():
        global COUNT
        COUNT = Counting.total = 0
        return SELF_CHANGING[kind](), None

    refused = compare(make, mode, [None] * 4, refused=True)
    assert refused or kind in ("cache", "first")  # these change once


def test_append_only_list_is_not_a_dependency():
    log, shapes = [], {}

    def logged(x):
        log.append(x.shape)
        shapes["x"] = x.shape
        return x * 2.0

    fn = jit(logged)
    for _ in range(3):
        fn(ops.ones(2))
    assert log == [(2,)]


def test_attribute_computed_from_arguments_is_not_a_counter():
    class Net(nn.Cell):
        def construct(self, x):
            self.shape = x.shape
            return x.reshape((-1,)) * self._factor()

        def _factor(self):
            return float(self.shape[0])

    fn = jit(Net())
    for _ in range(3):
        for size in (2, 3):
            assert fn(ops.ones((size, 2))).asnumpy().tolist() == [float(size)] * 2 * size


@pytest.mark.parametrize("name", ["unread", "other"])
def test_unread_values_may_change(name):
    plain, traces = Plain(), []

    def scaled(x):
        traces.append(1)
        return plain.method(x)

    fn = jit(scaled)
    for value in range(3):
        setattr(plain, name, float(value))
        SETTINGS["other"] = float(value)
        fn(ops.ones(2))
    plain.gain = float("1.0")  # an equal number
    fn(ops.ones(2))
    assert len(traces) == 1


def test_storing_a_traced_tensor_raises_and_restores_the_attribute():
    for counting, name in ((Counting(), "sum"), (Counting(), "missing")):
        before = counting.__dict__.get(name)

        def keep(x, counting=counting, name=name):
            setattr(counting, name, x * 2.0 + (counting.sum if name == "sum" else 0.0))
            return x

        if name == "sum":
            with pytest.raises(TraceError, match=r"Counting\.sum is set to a Tensor inside a function that is traced"):
                jit(counting.tensor)(ops.ones(2))
        else:
            with pytest.raises(TraceError, match=r"Counting\.missing is set to a Tensor"):
                jit(keep)(ops.ones(2))
        assert counting.__dict__.get(name) is before


LEAK = {"share": 0.5}


class Leaking(nn.Neuron):
    def charge(self, x, v):
        return v * LEAK["share"] + x


def test_a_global_that_only_charge_reads_is_watched(monkeypatch):
    run = jit(nn.MultiStep(Leaking({})))
    x = ops.full((3, 1), 0.6, "float32")
    assert run(x).asnumpy().sum() == 1.0
    monkeypatch.setitem(LEAK, "share", 0.0)
    assert run(x).asnumpy().sum() == 0.0


def test_storing_a_traced_tensor_in_a_class_raises_and_removes_the_attribute():
    class Holder:
        pass

    def keep(x):
        Holder.last = x * 2.0
        return x + Holder.last

    with pytest.raises(TraceError, match=r"Holder\.last is set to a Tensor inside a function that is traced"):
        jit(keep)(ops.ones(2))
    assert not hasattr(Holder, "last")


# --- random numbers ---------------------------------------------------------------------------------------------------

GENERATOR = np.random.default_rng(0)
normal = np.random.normal


class Noisy(nn.Cell):
    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    def construct(self, x):
        return x + self.rng.normal()


def of_attribute():
    held = types.SimpleNamespace(state=np.random.RandomState(0))
    return lambda x: x + held.state.randn()


def of_bound_method():
    draw = random.Random(0).random
    return lambda x: x + draw()


def of_module_in_closure():
    import uuid as identifiers

    return lambda x: x * (identifiers.uuid4().int % 2)


def of_imported():
    def noisy(x):
        from random import gauss

        return x + gauss(0.0, 1.0)

    return noisy


DRAWS = {
    "unseeded": lambda: lambda x: x + np.random.default_rng().normal(),
    "unseeded of Python": lambda: lambda x: x + random.Random().random(),
    "np.random": lambda: lambda x: x + np.random.normal(),
    "np.random of a shape": lambda: lambda x: x + Tensor(np.random.rand(*x.shape).astype(np.float32)),
    "imported": lambda: lambda x: x + normal(),
    "random": lambda: lambda x: x * random.random(),
    "imported inside": of_imported,
    "global generator": lambda: lambda x: x + GENERATOR.random(),
    "attribute": of_attribute,
    "bound method": of_bound_method,
    "Cell": Noisy,
    "choice": lambda: lambda x: x * random.choice([1.0, 2.0]),
    "os.urandom": lambda: lambda x: x * os.urandom(1)[0],
    "uuid": lambda: lambda x: x * (uuid.uuid4().int % 2),
    "imported by the enclosing function": of_module_in_closure,
    "of SciPy": lambda: lambda x: x * scipy.stats.norm.rvs(),
    "secrets": lambda: lambda x: x * secrets.choice([1.0, 2.0]),
    "secret bits": lambda: lambda x: x * secrets.randbits(2),
    "shuffled": lambda: lambda x: x[:, np.random.permutation(2)] if x.ndim == 2 else x[np.random.permutation(2)],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("draw", DRAWS)
def test_random_numbers_of_numpy_and_python_in_a_trace_raise(draw, mode):
    run = MODES[mode](DRAWS[draw]())
    with pytest.raises(TraceError, match=r"draws from .* while it is traced.*ops\.normal\(x\.shape.*ops\.uniform"):
        run()


def test_cached_normals_of_numpy_are_detected():
    np.random.seed(0)
    np.random.normal()  # NumPy draws two and caches the second
    with pytest.raises(TraceError, match=r"draws from np\.random"):
        jit(DRAWS["np.random"]())(Tensor(X))


def test_draws_of_other_threads_do_not_break_tracing():
    stop = threading.Event()

    def draw():
        while not stop.is_set():
            np.random.normal()
            random.random()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for n in range(5):
            jit(lambda x, n=n: x * n)(Tensor(X))
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("wait", [0.0, 0.02])
def test_library_noise_raises_while_other_threads_live(wait):
    """Threads of Jupyter and tqdm stay alive; Loader threads draw, and pause during tracing."""

    def noisy(row):
        time.sleep(wait)
        return row * np.float32(np.random.normal())

    stop = threading.Event()
    idle = threading.Thread(target=stop.wait)
    idle.start()
    try:
        data = [(row, n % 2) for n, row in enumerate(np.ones((16, 2), np.float32))]
        loader = snncell.data.Loader(data, 2, transform=noisy, workers=2, sequences=())
        net = nn.Dense(2, 2)
        for n, (x, _) in enumerate(loader):
            jit(lambda x, n=n: net(x) * n)(Tensor(x))  # the Loader's threads draw, but this function does not
            with pytest.raises(TraceError, match=r"draws from np\.random"):
                jit(lambda x: x * scipy.stats.norm.rvs())(Tensor(x))
    finally:
        stop.set()
        idle.join()


def test_seeded_generator_inside_equals_uncompiled_code():
    fn = jit(lambda x: x + np.random.default_rng(3).normal())
    expected = np.float32(np.random.default_rng(3).normal())
    np.testing.assert_allclose([fn(Tensor(0.0)).item() for _ in range(2)], expected)


def test_object_with_custom_getattr_is_followed():
    class Own:
        def __init__(self):
            self.known = {"gain": 1.0}

        def __getattr__(self, name):
            return self.known[name]  # a KeyError for all other names

    own = Own()
    fn = jit(lambda x: x * own.gain)
    found = [fn(Tensor(1.0)).item()]
    own.known["gain"] = 2.0
    assert [*found, fn(Tensor(1.0)).item()] == [1.0, 2.0]


def test_too_many_objects_are_reported(monkeypatch):
    monkeypatch.setattr(reach, "MOST", 50)
    records = [Record() for _ in range(60)]
    with pytest.warns(RuntimeWarning, match=r"can read more than .* Python objects.*Pass the values that it reads"):
        jit(lambda x: x * records[59].gain)(Tensor(X))


def test_draws_outside_the_trace_are_allowed():
    fn = jit(lambda x, noise: x + noise)
    assert fn(0.0 * Tensor(X), np.random.normal(size=X.shape)).shape == X.shape
    rng = np.random.default_rng(0)
    net = nn.Dense(2, 2)
    step = train.training_step(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
    for _ in range(2):
        step(rng.random((3, 2), np.float32), rng.random((3, 2), np.float32))


@pytest.mark.parametrize("make", [itertools.count, lambda: iter([1.0, 2.0]), lambda: (float(n) for n in range(9))])
def test_iterator_raises(make):
    items = make()
    with pytest.raises(TraceError, match=r"reads items, which is an iterator.*next\(items\)"):
        jit(lambda x: x * next(items))(Tensor(X))


# --- gradients --------------------------------------------------------------------------------------------------------


class Reversed(nn.Cell):
    """A neuron with a gradient that reads, draws or counts."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.record, self.calls, self.factor = kind, Record(), 0, None

    def construct(self, x, v):
        return v + x, v + x

    def bprop(self, x, v, out, dout):
        d = dout[0] + dout[1]
        if self.kind == "draw":
            d = d * random.random()
        elif self.kind == "count":
            self.calls += 1
            d = d * self.calls
        elif self.kind == "cache":
            if self.factor is None:
                self.factor = 3.0
            d = d * self.factor
        return d * self.record.gain, d


@pytest.mark.filterwarnings("ignore:.*is changed inside a function that is traced:RuntimeWarning")
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
@pytest.mark.parametrize("kind", ["read", "draw", "count", "cache"])
def test_custom_gradient_is_checked_like_the_function(kind, wrap):
    def gradients(wrap):
        cell = Reversed(kind)
        net = nn.MultiStep(cell)
        gradient = wrap(snncell.grad(lambda x: (net(x) * x).sum()))
        for gain in (1.0, 2.0, 2.0):
            cell.record.gain = gain
            yield gradient(Tensor(X)).asnumpy().tolist()

    if kind in ("draw", "count"):
        with pytest.raises(
            TraceError, match=r"draws from Python's random|Reversed\.calls is read and changed by a step"
        ):
            list(gradients(wrap))
        return
    with snncell.testing.unfused():
        expected = list(gradients(lambda f: f))
    np.testing.assert_allclose(list(gradients(wrap)), expected)


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    first: object
    second: object = 3


@dataclass(frozen=True, slots=True)
class Frozen:
    first: object


class Holding:
    def __init__(self, x):
        self.x = x


RESULTS = {
    "dataclass": lambda x: Pair(x * 2.0),
    "nested": lambda x: [Pair(Frozen(x + 1.0), (x, "a"))],
    "frozen": lambda x: Frozen(x * 2.0),
    "dict": lambda x: OrderedDict(b=x, a=x * 2.0),
    "keys": lambda x: {"a": x}.keys(),
    "values": lambda x: {"a": x * 2.0, "b": 1}.values(),
    "items": lambda x: {"a": x * 2.0}.items(),
}
REFUSED = {
    "generator": (lambda x: (y for y in [x]), "list"),
    "map": (lambda x: map(abs, [x]), "list"),
    "zip": (lambda x: zip([x], [x], strict=True), "list"),
    "iterator": (lambda x: {"a": [iter([1])]}, "list"),
    "object": (lambda x: Holding([x]), "tuple"),
    "set": (lambda x: {x}, "tuple"),
    "function": (lambda x: lambda: x, "tuple"),
    "partial": (lambda x: functools.partial(ops.exp, x), "tuple"),
    "method": (lambda x: (x * 2.0).sum, "tuple"),
}


def plain(result):
    """Return the result in a form that == compares."""
    if isinstance(result, Tensor):
        return result.asnumpy().tolist()
    if isinstance(result, (Pair, Frozen)):
        return type(result), [plain(getattr(result, name)) for name in type(result).__dataclass_fields__]
    if isinstance(result, dict):
        return type(result), [plain(item) for item in result.items()]
    if isinstance(result, (list, tuple)) or type(result).__name__.startswith("dict_"):
        return type(result), [plain(item) for item in result]
    return result


@pytest.mark.parametrize("taped", [False, True])
@pytest.mark.parametrize("kind", RESULTS)
def test_result_belongs_to_its_call(kind, taped):
    fn = RESULTS[kind]
    jitted = jit(fn)

    def run(x):
        if not taped:
            return jitted(x)
        return ops.value_and_grad(lambda x: (x.sum(), jitted(x)), has_aux=True)(x)[0][1]

    for value in (1.0, 2.0):
        assert plain(run(Tensor([value]))) == plain(fn(Tensor([value])))


@pytest.mark.parametrize("kind", REFUSED)
def test_result_that_would_never_change_raises(kind):
    fn, mend = REFUSED[kind]
    with pytest.raises(TraceError, match=rf"jit\(<lambda>\): returned a .*every call would return .*Return.*{mend}"):
        jit(fn)(Tensor([1.0]))


def test_dataclass_argument_is_treated_as_a_tuple():
    fn = jit(lambda pair: pair.first * pair.second)
    assert [fn(Pair(Tensor([value]), factor)).item() for value, factor in ((1.0, 2), (3.0, 2), (3.0, 5))] == [2, 6, 15]
    gradient = snncell.grad(lambda pair: (pair.first * pair.first).sum())(Pair(Tensor([3.0])))
    assert gradient.first.item() == 6.0 and gradient.second == 3


def test_large_array_is_named_in_a_warning():
    big = np.ones(1 << 23, np.float32)
    fn = jit(lambda x: x * float(big[-3]))
    with pytest.warns(RuntimeWarning, match=r"reads an array of 32 MB \(big\). Each call compares it") as seen:
        fn(Tensor(X))
    assert seen[0].filename == __file__
    big[-3] = 5.0
    with pytest.warns(RuntimeWarning, match="32 MB"):
        np.testing.assert_array_equal(fn(Tensor(X)).asnumpy(), X * 5.0)


# --- clocks, files, arrays of other libraries -------------------------------------------------------------------------


def of_local_clock():
    def timed(x):
        from time import perf_counter

        return x * perf_counter()

    return timed


OUTSIDE = {
    "time.time()": lambda: lambda x: x * time.time(),
    "time.perf_counter()": of_local_clock,
    "time.monotonic_ns()": lambda: functools.partial(lambda clock, x: x * clock(), time.monotonic_ns),
    "datetime.datetime.now()": lambda: lambda x: x * datetime.datetime.now().microsecond,
    "datetime.date.today()": lambda: lambda x: x * datetime.date.today().day,
    "open()": lambda: lambda x: x * float(open(os.devnull).read() or 1.0),  # noqa: SIM115
    "numpy.fromfile()": lambda: lambda x: x * (1.0 + np.fromfile(os.devnull).size),
}


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("mode", ["jit", "MultiStep", "training step", "vmap"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_clocks_and_files_in_a_trace_warn(name, mode):
    run = MODES[mode](OUTSIDE[name]())
    with pytest.warns(RuntimeWarning, match=rf"{re.escape(name)} is called inside a function that is traced.*outside"):
        run()


def test_attribute_named_like_a_clock_does_not_warn():
    clock = types.SimpleNamespace(time=lambda: 2.0, now=lambda: 1.0)
    assert jit(lambda x: x * clock.time() * clock.now())(Tensor(1.0)).item() == 2.0


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["tensor", "module"])
def test_tensors_of_pytorch_are_followed(kind):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def make():
        if kind == "tensor":
            weight = torch.ones(1, requires_grad=True)
            return (lambda x: x * Tensor(weight.detach())), functools.partial(weight.data.fill_)
        layer = torch.nn.Linear(1, 1)
        layer.weight.data.fill_(1.0)
        return (lambda x: x * Tensor(layer.weight.detach()[0])), functools.partial(layer.weight.data.fill_)

    compare(make, "jit", [None, None, 2.0, 2.0, 3.0])
