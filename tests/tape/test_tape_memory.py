"""The lifetime of things that the tape keeps, how its work grows, and several threads."""

import gc
import threading
import weakref

import numpy as np
import pytest

from snncell import Tensor, nn, ops
from snncell.tape.state import RECORDING, Entry


def f64(value):
    return Tensor(np.array(value, np.float64))


class Twisted(nn.Cell):
    """x, whose reverse says sin(x): which order is which can be told apart."""

    def construct(self, x):
        return x * 1.0

    def bprop(self, x, out, dout):
        return (dout * ops.sin(x),)


@pytest.fixture
def entries(monkeypatch):
    """All entries that operations put on a tape, weakly."""
    found = []
    make = Entry.__init__

    def noting(self, op, *rest):
        make(self, op, *rest)
        if op is not None:  # not a source
            found.append(weakref.ref(self))

    monkeypatch.setattr(Entry, "__init__", noting)
    return found


def alive(entries):
    return sum(reference() is not None for reference in entries)


def test_a_kept_result_does_not_keep_the_graph(entries):
    gc.disable()  # references alone must do it: a graph that waits for the collector fills the memory
    try:
        value, found = ops.value_and_grad(lambda a: ops.exp(ops.sin(a * a)).sum())(f64([1.0, 2.0]))
        assert len(entries) == 4
        assert alive(entries) <= 1  # the one of the value itself
        value_entry = value._entry
        assert value_entry.parents == [] and value_entry.outputs is None and not value_entry.inputs
        del value, value_entry, found
        assert alive(entries) == 0
    finally:
        gc.enable()


def test_a_tensor_stored_during_recording_does_not_keep_the_graph(entries):
    kept = []

    def fn(a):
        b = ops.exp(a)
        c = b * b
        kept.append(c)
        return ops.sin(c).sum()

    ops.grad(fn)(f64([1.0, 2.0]))
    gc.collect()
    assert alive(entries) <= 1
    assert kept[0]._entry is None or kept[0]._entry.parents == []
    assert ops.grad(lambda z: (z * kept[0]).sum())(f64([1.0, 1.0])).asnumpy().tolist() == kept[0].asnumpy().tolist()


def test_what_leads_nowhere_is_freed_while_recording(entries):
    counts = []

    def fn(a):
        for _ in range(50):
            ops.exp(a) * 2.0  # thrown away
            counts.append(alive(entries))
        return a * 2.0

    ops.grad(fn)(f64([1.0]))
    assert max(counts) == 0  # the result is gone as soon as its statement is


def test_arrays_that_no_reverse_asks_for_are_freed_while_recording():
    freed = []

    def fn(a):
        b = a + 1.0  # the reverse of an addition needs no values
        weakref.finalize(b._data, freed.append, "b")
        c = b + 2.0
        del b
        freed.append("next")
        return c

    ops.grad(fn)(f64(np.ones(1000)))
    assert freed[:2] == ["b", "next"]


def test_arrays_that_a_reverse_asks_for_live_until_the_sweep():
    freed = []

    def fn(a):
        b = ops.exp(a)
        weakref.finalize(b._data, freed.append, "b")
        c = b * b
        del b
        freed.append("next")
        return c

    ops.grad(fn)(f64(np.ones(1000)))
    assert freed == ["next", "b"]


def test_no_cycles_are_made():
    gc.collect()
    gc.disable()
    try:
        net = nn.SequentialCell(nn.Dense(4, 4), Twisted())
        x = Tensor(np.ones((2, 4), np.float32))
        for _ in range(3):
            ops.grad(net, 0, net.trainable_params())(x)
        before = sum(type(o) is Entry for o in gc.get_objects())
        for _ in range(20):
            ops.grad(net, 0, net.trainable_params())(x)
        assert sum(type(o) is Entry for o in gc.get_objects()) == before
    finally:
        gc.enable()


# --- long chains -----------------------------------------------------------------------------------------------------


def chain(length):
    def fn(x):
        for _ in range(length):
            x = x + 1.0
        return x

    return fn


def test_ten_thousand_operations_neither_overflow_nor_recurse():
    assert ops.grad(chain(10_000))(f64(1.0)).item() == 1.0
    out, pull = ops.vjp(chain(10_000), f64(1.0))
    assert pull(f64(1.0))[0].item() == 1.0
    del out, pull  # taking a graph of ten thousand apart must not recurse either


def test_a_chain_that_is_dropped_unpulled_does_not_overflow():
    out, _ = ops.vjp(chain(20_000), f64(1.0))
    del out, _
    gc.collect()


def test_work_grows_linearly_with_the_length(entries, monkeypatch):
    from snncell.tape.primitive import Primitive

    pulls = []
    pull = Primitive.pull
    monkeypatch.setattr(Primitive, "pull", lambda self, *rest: pulls.append(self.name) or pull(self, *rest))
    counted = {}
    for length in (100, 1000):
        entries.clear()
        pulls.clear()
        ops.grad(chain(length))(f64(1.0))
        counted[length] = (len(entries), len(pulls))
    assert counted == {100: (100, 100), 1000: (1000, 1000)}


def test_a_shared_intermediate_is_pulled_once(monkeypatch):
    from snncell.tape.primitive import Primitive

    pulls = []
    pull = Primitive.pull
    monkeypatch.setattr(Primitive, "pull", lambda self, *rest: pulls.append(self.name) or pull(self, *rest))

    def doubling(x):
        for _ in range(20):
            x = x + x  # 2^20 paths, 20 entries
        return x

    assert ops.grad(doubling)(f64(1.0)).item() == 2.0**20
    assert len(pulls) == 20


# --- threads ---------------------------------------------------------------------------------------------------------


def test_two_threads_take_gradients_at_once():
    rounds, failures = 40, []
    meet = threading.Barrier(2, timeout=60)

    def work(power):
        def fn(x):
            meet.wait()  # both are inside of a recording at the same time
            y = x
            for _ in range(power - 1):
                y = y * x
            meet.wait()
            return y

        try:
            for _ in range(rounds):
                found = ops.grad(fn)(f64(2.0)).item()
                assert found == power * 2.0 ** (power - 1)
        except BaseException as error:  # an assertion in a thread would otherwise be lost
            failures.append(error)
            meet.abort()

    threads = [threading.Thread(target=work, args=(power,)) for power in (3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_two_threads_share_a_cell_and_its_weights():
    net = nn.SequentialCell(nn.Dense(3, 3), Twisted())
    x = Tensor(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3))
    gradient = ops.grad(net, 0, net.trainable_params())
    expected = gradient(x)
    results, start = {}, threading.Barrier(2, timeout=60)

    def work(name):
        start.wait()
        results[name] = [gradient(x) for _ in range(50)]

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in results["a"] + results["b"]:
        np.testing.assert_array_equal(found[0].asnumpy(), expected[0].asnumpy())
        for mine, theirs in zip(found[1], expected[1], strict=True):
            np.testing.assert_array_equal(mine.asnumpy(), theirs.asnumpy())
    assert len(results["a"]) == len(results["b"]) == 50


def test_another_thread_does_not_record_on_our_tape(entries):
    def elsewhere():
        assert RECORDING.tape is None
        ops.exp(f64(1.0))

    def fn(x):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return x * 2.0

    ops.grad(fn)(f64(1.0))
    assert len(entries) == 1
