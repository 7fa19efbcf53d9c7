"""Tracebacks end at the user's line without frames of the package. Internal errors keep these frames."""

import pickle
import traceback

import numpy as np
import pytest

import snncell
from snncell import Tensor, data, nn, ops, train
from snncell.base.frames import PACKAGE
from snncell.errors import ArgumentError, BpropError, ShapeError, SnncellError
from snncell.tape import transforms

X = Tensor(np.ones((6, 2, 4), np.float32))
Y = Tensor(np.zeros(2, np.int32))


def wrong_operation(x):
    return x.reshape((7, 7, 7))


def wrong_python(x):
    raise ZeroDivisionError("of the user's")


FAULTS = {"an operation": wrong_operation, "Python": wrong_python}


class Layer(nn.Cell):
    """A layer with an error in one of its methods."""

    def __init__(self, **methods):
        super().__init__()
        for name, method in methods.items():
            self.__dict__[name] = method

    def construct(self, x):
        return self.__dict__["forward"](x) if "forward" in self.__dict__ else (x > 0).astype(x.dtype)

    def bprop(self, x, out, dout):
        return self.__dict__["backward"](dout) if "backward" in self.__dict__ else (dout,)


class Told(train.Callback):
    """A callback with an error."""

    def __init__(self, fault):
        self.fault = fault

    def on_epoch_end(self, *_):
        self.fault(X)


def net_with(layer):
    return nn.SequentialCell(nn.Dense(4, 5), nn.MultiStep(nn.LIFNode(surrogate_function=layer)), nn.Dense(5, 2))


def entropy(out, y):
    return nn.CrossEntropyLoss()(out.sum(0), y)


def run_fit(net=None, loss=entropy, batches=None, **options):
    net = net_with(Layer()) if net is None else net
    optimiser = nn.Adam(net.trainable_params(), 0.1)
    return train.fit(
        net, loss, optimiser, [(X, Y)] if batches is None else batches, epochs=1, progress=False, **options
    )


def run_with_hook(fault):
    dense = nn.Dense(4, 5)
    dense.register_forward_hook(lambda cell, x, out: fault(out))
    return dense


def faulty_loss(fault):
    return lambda out, y: fault(out)


def in_loader(fault):
    samples = [(np.ones(4, np.float32), 0)] * 4
    return data.Loader(samples, 2, collate=lambda chosen: fault(Tensor(np.ones(3))))


PLACES = {
    "construct": lambda fault: nn.SequentialCell(nn.Dense(4, 5), Layer(forward=fault))(X),
    "construct in a loop": lambda fault: net_with(Layer(forward=fault))(X),
    "construct, jitted": lambda fault: snncell.jit(net_with(Layer(forward=fault)))(X),
    "construct in fit": lambda fault: run_fit(net_with(Layer(forward=fault))),
    "bprop": lambda fault: snncell.grad(lambda x: Layer(backward=fault)(x).sum())(X),
    "bprop in a loop": lambda fault: snncell.grad(lambda x: net_with(Layer(backward=fault))(x).sum())(X),
    "bprop in fit": lambda fault: run_fit(net_with(Layer(backward=fault))),
    "loss in fit": lambda fault: run_fit(loss=faulty_loss(fault)),
    "loss in a step": lambda fault: train.training_step(
        nn.Dense(4, 2), faulty_loss(fault), nn.SGD(nn.Dense(4, 2).trainable_params(), 0.1)
    )(X, Y),
    "hook": lambda fault: run_with_hook(fault)(X),
    "callback in fit": lambda fault: run_fit(callbacks=[Told(fault)]),
    "collate in a Loader": lambda fault: list(in_loader(fault)),
    "collate in fit": lambda fault: run_fit(batches=in_loader(fault)),
    "vmap": lambda fault: snncell.vmap(fault)(X),
    "scan": lambda fault: ops.scan(lambda carry, x: (carry, fault(x)), X[0], X),
    "vjp": lambda fault: snncell.vjp(fault, X),
    "check_grads": lambda fault: snncell.testing.check_grads(fault, X),
    "explain": lambda fault: snncell.explain(fault, X),
    "profile": lambda fault: snncell.profile(fault, X),
}


def frames_of(error):
    return list(traceback.extract_tb(error.__traceback__))


@pytest.mark.sampled(18)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", PLACES)
def test_error_in_user_code_ends_at_its_line(place, fault):
    with pytest.raises((ShapeError, ZeroDivisionError)) as caught:
        PLACES[place](FAULTS[fault])
    frames = frames_of(caught.value)
    assert not [frame for frame in frames if frame.filename.startswith(PACKAGE)], place
    assert frames[-1].name == FAULTS[fault].__name__
    assert len(frames) <= 6, frames


def one_return(dout):
    return dout


@pytest.mark.parametrize("run", ["bprop", "bprop in a loop", "bprop in fit"])
def test_invalid_result_of_a_bprop_ends_at_its_return(run):
    with pytest.raises(BpropError, match="returned a Tensor; it must return a tuple") as caught:
        PLACES[run](one_return)
    frame = frames_of(caught.value)[-1]
    assert (frame.filename, frame.name) == (__file__, "bprop")
    assert frame.line.startswith("return self.__dict__") and len(frames_of(caught.value)) <= 4


def test_bprop_with_several_returns_is_shown_by_its_first_line():
    class Several(nn.Cell):
        def construct(self, x):
            return x * 2.0

        def bprop(self, x, out, dout):
            if x.ndim == 7:
                return (dout,)
            return dout, dout

    with pytest.raises(BpropError, match=r"returned 2 gradient\(s\) for 1 input") as caught:
        snncell.grad(Several())(X)
    assert frames_of(caught.value)[-1].line == "def bprop(self, x, out, dout):"


def test_wrong_call_ends_at_the_line_of_the_call():
    for call in (lambda: nn.Dense(-1, 2), lambda: nn.Dense(4, 5)(X[..., :3]), lambda: ops.reshape(X, (7, 7))):
        with pytest.raises(SnncellError) as caught:
            call()
        assert [frame.filename for frame in frames_of(caught.value)] == [__file__, __file__]


def test_all_frames_are_shown_on_request():
    snncell.set_context(full_traceback=True)
    try:
        with pytest.raises(ShapeError) as caught:
            PLACES["bprop in fit"](wrong_operation)
    finally:
        snncell.set_context(full_traceback=False)
    assert any(frame.filename.startswith(PACKAGE) for frame in frames_of(caught.value))
    assert not snncell.get_context("full_traceback")
    with pytest.raises(ArgumentError, match="set_context: full_traceback is True or False, not 1"):
        snncell.set_context(full_traceback=1)


def test_internal_error_keeps_its_frames(monkeypatch):
    monkeypatch.setattr(transforms, "pullback", {}.__getitem__)
    with pytest.raises(TypeError, match="__getitem__") as caught:
        snncell.grad(lambda x: x.sum())(X)
    assert any(frame.filename.startswith(PACKAGE) for frame in frames_of(caught.value))


def test_notes_causes_and_pickles_are_preserved():
    def caused(x):
        try:
            wrong_operation(x)
        except ShapeError as error:
            raise ArgumentError("of the user's") from error

    with pytest.raises(ArgumentError, match="of the user's") as caught:
        PLACES["bprop in fit"](caused)
    error = caught.value
    assert any("raised in the bprop of Layer" in note for note in error.__notes__)
    assert isinstance(error.__cause__, ShapeError)
    assert [frame.name for frame in frames_of(error.__cause__)] == ["caused", "wrong_operation"]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "".join(traceback.format_exception(error)).count("File") <= 8
