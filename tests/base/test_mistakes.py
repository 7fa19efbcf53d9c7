"""Mistakes of users: each error or warning names the call, the expected value and the fix."""

from __future__ import annotations

import dataclasses
import re
import warnings
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, encode, jit, nn, ops, plot, surrogate, testing, train
from snncell.errors import (
    ArgumentError,
    ArgumentWarning,
    AssignError,
    CallError,
    CheckpointError,
    DTypeError,
    GradientError,
    ShapeError,
    SnncellError,
    TensorIndexError,
    TraceError,
)

X = np.ones((2, 3), np.float32)


def test_neuron_called_without_its_state_raises_with_a_hint_to_multistep():
    with pytest.raises(CallError, match=r"LIFNode\.construct takes \(x.*v.*\).*missing.*'v'.*nn\.MultiStep"):
        nn.LIFNode()(Tensor(X))


def test_too_many_arguments_raise_and_inner_errors_are_unchanged():
    class Inside(nn.Cell):
        def construct(self, x):
            return len(3)  # an unrelated TypeError

    with pytest.raises(CallError, match=r"ReLU\.construct takes \(x.*2 argument"):
        nn.ReLU()(Tensor(X), Tensor(X))
    with pytest.raises(TypeError, match=r"object of type 'int' has no len") as caught:
        Inside()(Tensor(X))
    assert not isinstance(caught.value, CallError)


def test_cell_with_a_bprop_checks_its_arguments():
    with pytest.raises(CallError, match=r"relusigmoid\.construct takes \(x"):
        surrogate.relusigmoid()(Tensor(X), 1)


def test_numpy_arrays_are_accepted_by_cells_and_keep_their_dtype():
    assert nn.Dense(3, 4)(X).dtype == snncell.float32
    assert nn.CrossEntropyLoss()(ops.ones((2, 3)), np.array([0, 2])).shape == ()
    assert nn.MultiStep(nn.IFNode(fire=False))(np.ones((4, 2, 3))).dtype == snncell.float64


def test_numpy_functions_of_tensors_raise_but_operators_work():
    x = Tensor(X)
    with pytest.raises(DTypeError, match=r"np\.exp takes arrays, not Tensors.*ops\.exp"):
        np.exp(x)
    with pytest.raises(DTypeError, match=r"np\.add"):
        np.add.reduce(x)
    for result in (X * x, X - x, X / x, np.float32(2) ** x, x > X, x == X, X @ ops.ones((3, 2))):
        assert isinstance(result, Tensor)
    gradient = ops.grad(lambda x: (X * 3 * x).sum())(x)
    np.testing.assert_array_equal(gradient.asnumpy(), np.full((2, 3), 3, np.float32))
    array = X.copy()
    with pytest.raises(DTypeError, match=r"np\.add"):
        array += x


@pytest.mark.compiled
def test_numpy_function_on_a_traced_value_raises_with_the_line():
    with pytest.raises(DTypeError, match=r"np\.tanh(.|\n)*at test_mistakes\.py:\d+: .*np\.tanh"):
        snncell.jit(lambda x: np.tanh(x))(Tensor(X))


def test_number_and_type_of_states_are_checked():
    class Two(nn.Cell):
        def construct(self, x, v, w):
            return x, v, w

        def init_state(self, x):
            return ops.zeros_like(x)

    class Floats(Two):
        def init_state(self, x):
            return 0.0, 1.0

    with pytest.raises(ArgumentError, match=r"MultiStep: Two.construct takes the state\(s\) v, w .*but got 1"):
        nn.MultiStep(Two())(ops.ones((3, 2)))
    with pytest.raises(ArgumentError, match=r"a state of Floats is a float, not a Tensor; for example ops\.full"):
        nn.MultiStep(Floats())(ops.ones((3, 2)))
    with pytest.raises(ArgumentError, match=r"LIFNode.construct takes the state\(s\) v .*but got 2"):
        nn.MultiStep(nn.LIFNode())(ops.ones((3, 2)), ops.ones((2,)), ops.ones((2,)))


def test_state_that_changes_its_dtype_raises_with_its_name():
    class Widening(nn.Cell):
        def construct(self, x, v):
            return x, v + np.ones(2)

    with pytest.raises(DTypeError, match=r"MultiStep\(Widening\): state v has dtype Float32 before a step and Float64"):
        nn.MultiStep(Widening())(ops.ones((3, 2)))

    class Fires(nn.Cell):
        def construct(self, x, v):
            return x, v > 1.0

    with pytest.raises(DTypeError, match=r"Bool after it\. Convert it in the step: v\.astype\('float32'\)"):
        nn.MultiStep(Fires())(ops.ones((3, 2)))


def test_output_of_several_tensors_is_stacked_over_time():
    class Recording(nn.Cell):
        def construct(self, x, v):
            v = v * 0.5 + x
            return (ops.greater(v, 1.0).astype("float32"), v), v

    spikes, potentials = nn.MultiStep(Recording())(ops.ones((3, 2)))
    np.testing.assert_array_equal(potentials.asnumpy()[:, 0], [1.0, 1.5, 1.75])
    np.testing.assert_array_equal(spikes.asnumpy()[:, 0], [0.0, 1.0, 1.0])


@pytest.mark.parametrize("value", [3, X, [1.0]], ids=str)
def test_assigning_a_non_parameter_to_a_parameter_attribute_raises(value):
    net = nn.Dense(3, 4)
    with pytest.raises(AssignError, match=r"Dense\.weight is a Parameter; a .* in its place.*set_data"):
        net.weight = value
    net.weight = Parameter(Tensor(X))
    assert net.weight.shape == (2, 3)


@pytest.mark.parametrize("compiled", [False, True])
def test_tensor_assigned_to_a_parameter_attribute_is_its_new_value(compiled):
    class Halving(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = Parameter(Tensor([2.0, 4.0]), name="w")

        def construct(self, x):
            self.w = self.w * 0.5
            return x * self.w

    net = Halving()
    own = net.w
    net.w = Tensor([4.0, 8.0])
    assert net.w is own and own.tolist() == [4.0, 8.0]
    call = snncell.jit(net) if compiled else net
    assert [call(ops.ones(2)).tolist() for _ in range(2)] == [[2.0, 4.0], [1.0, 2.0]]
    assert net.w is own and own.tolist() == [1.0, 2.0]
    for wrong, error in ((Tensor([1.0]), ShapeError), (Tensor([1.0, 2.0], "float64"), DTypeError)):
        with pytest.raises(error, match=r"Halving\.w = tensor: "):
            net.w = wrong
    with pytest.raises(AssignError, match="while a gradient is being recorded"):
        snncell.grad(net)(ops.ones(2))
    assert own.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("layer", "name", "mend"),
    [
        (lambda: nn.Dense(3, 4), "bias", r"Dense\(\.\.\., has_bias=False\)"),
        (lambda: nn.Conv2d(1, 2, 3, has_bias=True), "bias", r"Conv2d\(\.\.\., has_bias=False\)"),
        (lambda: nn.Dense(3, 4), "weight", r"delete it first: del self\.weight"),
    ],
)
def test_none_assigned_to_a_parameter_raises_except_after_delete(layer, name, mend):
    cell = layer()
    before = getattr(cell, name)
    with pytest.raises(AssignError, match=rf"{name} is a Parameter; None in its place would not be trained\. .*{mend}"):
        setattr(cell, name, None)
    assert getattr(cell, name) is before
    delattr(cell, name)
    setattr(cell, name, None)
    assert getattr(cell, name) is None


def test_neuron_constants_of_none_raise():
    with pytest.raises(ArgumentError, match=r"LIFNode: v_threshold is a number, a Tensor or a Parameter, not 'a'"):
        nn.LIFNode(v_threshold="a")
    with pytest.raises(ArgumentError, match=r"LIFNode: tau is a number of steps above 1"):
        nn.LIFNode(tau=1.0)
    with pytest.raises(
        ArgumentError, match=r"IFNode: surrogate_function must be .* surrogate\.ATan\(\), not the class ATan"
    ):
        nn.IFNode(surrogate_function=surrogate.ATan)


def test_embedding_errors_name_the_layer():
    table = nn.Embedding(5, 3)
    for wrong in (-1, 5):
        with pytest.raises(TensorIndexError, match=rf"Embedding: index {wrong} is out of range; .*\[0, 5\)"):
            table(Tensor([wrong]))
    with pytest.raises(DTypeError, match=r"Embedding: index: indices are integers, not Float32.*astype"):
        table(Tensor([1.0]))


def test_weights_can_be_a_generator_but_not_a_cell():
    net = nn.Dense(3, 1)
    gradients = ops.grad(lambda x: net(x).sum(), None, net.get_parameters())
    assert len(gradients(Tensor(X))) == len(gradients(Tensor(X))) == 2
    with pytest.raises(GradientError, match=r"net\.trainable_params\(\)\), not Dense"):
        ops.grad(net, None, net)(Tensor(X))


def test_checkpoint_of_another_net_raises_with_the_file_name(tmp_path):
    snncell.save_checkpoint(nn.Dense(2, 2), tmp_path / "a")
    with pytest.raises(CheckpointError, match=r"load_checkpoint: .*a: .*'weight' is Float32\[2, 2\]"):
        snncell.load_checkpoint(tmp_path / "a", nn.Dense(3, 2))


def test_convolution_checks_its_padding_at_construction():
    with pytest.raises(ArgumentError, match=r'Conv2d: padding=1 needs pad_mode="pad"'):
        nn.Conv2d(1, 4, 3, padding=1)


def test_gradient_checks_accept_numpy_arrays():
    testing.check_bprop(surrogate.ATan(), np.linspace(-1, 1, 5))
    testing.check_grads(ops.tanh, np.linspace(-1, 1, 5))


def test_help_shows_signatures():
    import inspect

    assert list(inspect.signature(ops.maximum).parameters) == ["x", "y"]
    assert list(inspect.signature(Tensor.sum).parameters) == ["x", "axis", "keepdims"]


# --- messages ---------------------------------------------------------------------------------------------------------

NET, LOSS, SAMPLES = nn.Dense(3, 2), nn.CrossEntropyLoss(), (np.ones((8, 3), np.float32), np.zeros(8, np.int64))
ADAM = nn.Adam(NET.trainable_params(), 0.01)
OVER_TIME, LABELS = ops.ones((4, 2, 3)), Tensor([0, -1])


def fit(*given, **options):
    return train.fit(*given, progress=False, **options)


class KeepsItself(nn.Cell):
    """A Cell that stores its state on self."""

    def construct(self, x):
        return x * 2.0


class GivesAState(nn.Cell):
    """A neuron with an initial state of another shape."""

    def init_state(self, x):
        return ops.zeros(7)

    def construct(self, x, v):
        return v * x, v


WORDS = {
    "states in a tuple": (
        lambda: nn.MultiStep(nn.LIFNode())(OVER_TIME, (ops.zeros((2, 3)),)),
        r"states is a Tensor, not a tuple of 1: float32\[2, 3\]\. Give them one by one: \*states\.$",
    ),
    "loss and optimiser": (
        lambda: fit(NET, ADAM, LOSS, SAMPLES, 1),
        "loss and optimiser are swapped: fit.net, loss, opt",
    ),
    "rate and params": (
        lambda: nn.Adam(1e-3, NET.trainable_params()),
        r"The arguments are swapped: write Adam\(params, learning_rate\)\.$",
    ),
    "label, cross entropy": (
        lambda: LOSS(OVER_TIME[0], LABELS),
        r"3 class\(es\), numbered from 0; mark labels to ignore by ignore_index\. Label -1 is out",
    ),
    "label, accuracy": (
        lambda: train.accuracy(OVER_TIME[0], LABELS),
        r"labels to ignore by ignore_index\. Label -1 is out",
    ),
    "label, over time": (
        lambda: nn.CERateLoss()(OVER_TIME, LABELS),
        r"3 class\(es\), numbered from 0; remove samples without a label\. Label -1 is out of range; it must",
    ),
    "label, too high": (
        lambda: LOSS(OVER_TIME[0], LABELS + 4),
        r"make the last layer as wide as there are classes, or mark .*\. Label 4 is out of range; it must",
    ),
    "objects": (
        lambda: Tensor(np.array([[1, 2]], object)),
        r"ndarray of dtype object and shape \(1, 2\) holds no numbers",
    ),
    "objects in fit": (lambda: fit(NET, LOSS, ADAM, (SAMPLES[0].astype(object), SAMPLES[1]), 1), "of dtype object and"),
    "monitor without test": (
        lambda: fit(NET, LOSS, ADAM, SAMPLES, 1, patience=1, monitor="test_accuracy"),
        r"monitor='test_accuracy' is measured on validation data; give validation=\(inputs, target\) too",
    ),
    "betas": (lambda: nn.Adam(NET.trainable_params(), betas=(0.9, 0.99)), r"Did you mean beta1 and beta2\?"),
    "state on self": (
        lambda: nn.MultiStep(KeepsItself())(OVER_TIME),
        r"KeepsItself\.construct takes no state.*construct\(x, v\) -> \(output, v\)\. An attribute of self",
    ),
    "shape of a state": (
        lambda: nn.MultiStep(GivesAState())(OVER_TIME),
        r"GivesAState failed in a step of shape \(2, 3\) with v of shape \(7,\) from init_state: mul: shapes",
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_error_messages_name_the_intended_call(name):
    call, words = WORDS[name]
    with pytest.raises(SnncellError, match=words) as caught:
        call()
    assert "depth" not in str(caught.value)


class Wordy:
    """An object with a multiline repr."""

    def __repr__(self):
        return "Wordy(\n" + "  much,\n" * 20 + ")"


def error_message(call):
    """Return the error message of a call, if it raises."""
    try:
        call()
    except SnncellError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("call", [encode.rate, plot.raster, plot.gradient_flow, plot.surrogate, nn.MultiStep])
@pytest.mark.parametrize(
    "value",
    [Wordy(), (n for n in range(3)), Tensor(3.0), Tensor(X), [Tensor(X)], nn.SequentialCell(nn.Dense(2, 2)), object()],
    ids=lambda value: type(value).__name__,
)
def test_invalid_values_are_shown_in_one_line_without_an_address(call, value):
    text = error_message(lambda: call(value, 3) if call is encode.rate else call(value))
    assert "\n" not in text and " at 0x" not in text
    assert text or isinstance(value, (Tensor, list, nn.Cell))


# --- fit: keywords of other libraries, and unsupported lengths --------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("validation_data", "validation"),
        ("verbose", "progress"),
        ("num_epochs", "epochs"),
        ("max_grad_norm", "clip_norm"),
    ],
)
def test_keywords_of_other_libraries_raise_with_the_name_here(theirs, ours):
    net = nn.Dense(2, 2)
    with pytest.raises(snncell.errors.CallError, match=f"fit has no argument {theirs}. Did you mean {ours}"):
        train.fit(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1), [], 1, **{theirs: 1})


@pytest.mark.parametrize("loss", ["mse", nn.MSELoss])
def test_unsuitable_loss_is_not_reported_as_swapped_arguments(loss):
    net = nn.Dense(2, 2)
    with pytest.raises(snncell.errors.ArgumentError, match="fit: loss is") as told:
        train.fit(net, loss, nn.SGD(net.trainable_params(), 0.1), [], 1)
    assert "swapped" not in str(told.value)


def test_loader_with_unsupported_lengths_raises_with_a_fix():
    net = nn.SequentialCell(nn.Dense(2, 2), nn.MultiStep(nn.LIFNode()))
    samples = [(np.ones((length, 2), np.float32), length % 2) for length in (3, 4)]
    loader = snncell.data.Loader(samples, 2)
    sgd = nn.SGD(net.trainable_params(), 0.1)
    with pytest.raises(
        snncell.errors.CallError, match=r"no argument for the lengths .*data.Loader\(..., lengths=False\)"
    ):
        train.fit(net, nn.CERateLoss(), sgd, loader, 1, progress=False)


def test_distant_names_are_not_suggested():
    with pytest.raises(AttributeError) as told:
        _ = snncell.data.stratified
    assert "Did you mean" not in str(told.value)


class Output(nn.Cell):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.kind = nn.Dense(3, 2), kind

    def construct(self, x):
        return self.kind(scores=self.layer(x))


@pytest.mark.parametrize("kind", [dict, dataclasses.make_dataclass("Scores", ["scores"])])
def test_output_without_a_tensor_first_requires_a_custom_accuracy(kind):
    net = Output(kind)

    def loss(output, target):
        return nn.CrossEntropyLoss()(output["scores"] if kind is dict else output.scores, target)

    data, options = (X, np.array([0, 1])), {"epochs": 1, "progress": False}
    with pytest.raises(ArgumentError, match=r"accuracy: output must be a Tensor.* not a .*accuracy=None"):
        train.fit(net, loss, nn.SGD(net.trainable_params(), 0.1), data, **options)
    train.fit(net, loss, nn.SGD(net.trainable_params(), 0.1), data, accuracy=None, **options)


def test_multistep_inside_a_multistep_raises():
    with pytest.raises(ArgumentError, match=r"the Cell is already a MultiStep of LIFNode"):
        nn.MultiStep(nn.MultiStep(nn.LIFNode()))(ops.ones((2, 3, 4)))


@pytest.mark.parametrize("layer", [nn.LRU(4, 3, state_size=2), nn.PSN(2), nn.LSTM(4, 3)])
def test_multistep_of_a_layer_over_all_steps_raises(layer):
    with pytest.raises(ArgumentError, match=rf"MultiStep: {type(layer).__name__} runs over all .* Call it directly"):
        nn.MultiStep(layer)(ops.ones((2, 3, 4)))


def test_schedule_assigned_to_an_existing_optimiser_raises():
    sgd = nn.SGD(nn.Dense(2, 2).trainable_params(), 0.1)
    with pytest.raises(ArgumentError, match=r"SGD: .* Pass a schedule to the constructor: SGD\(params, CosineDecayLR"):
        sgd.learning_rate = nn.CosineDecayLR(0.1, 0.2, 100)


class Steps(nn.Cell):
    """A neuron that adds the result of a function to its state."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def construct(self, x, v):
        v = v + self.function(x)
        return v, v


def test_numpy_noise_in_a_step_raises_as_a_draw_for_any_dtype():
    noisy = nn.MultiStep(Steps(lambda x: x + np.random.randn(*x.shape)))
    with pytest.raises(TraceError, match=r"^MultiStep\(Steps\) draws from np\.random.*ops\.normal") as caught:
        noisy(ops.ones((2, 3)))
    assert caught.value.__suppress_context__


def test_wrong_shape_in_a_step_raises_with_the_line():
    wrong = nn.MultiStep(Steps(lambda x: x @ ops.ones(5)))
    with pytest.raises(ShapeError, match=r"MultiStep: Steps failed in a step of shape") as caught:
        wrong(ops.ones((2, 3)))
    assert "x @ ops.ones(5)" in str(caught.traceback[-1].statement)


@pytest.mark.parametrize("run", [jit, lambda fn: nn.MultiStep(Steps(fn))])
def test_traced_tensor_stored_in_a_list_raises_when_read(run):
    history = []

    def keep(x):
        history.append(x)
        return x * 2.0

    run(keep)(ops.ones((2, 3)))
    with pytest.raises(
        TraceError, match=r"a step that MultiStep.*for example in a list, but has no value outside\. Return it"
    ):
        history[0].asnumpy()


# --- warnings for arguments that PyTorch defines differently ----------------------------------------------------------

POOLS = [one for name, one in vars(nn).items() if re.fullmatch(r"(Max|Avg|Sum)Pool\dd", name)]
NORMS = {
    "BatchNorm1d": lambda **more: nn.BatchNorm1d(3, **more),
    "BatchNorm2d": lambda **more: nn.BatchNorm2d(3, **more),
    "ThresholdBatchNorm": lambda **more: nn.ThresholdBatchNorm(3, 0.5, 0.7, **more),
    "BatchNormThroughTime": lambda **more: nn.BatchNormThroughTime(3, 2, **more),
    "TemporalEffectiveBatchNorm": lambda **more: nn.TemporalEffectiveBatchNorm(3, 2, **more),
}


@pytest.mark.parametrize("pool", POOLS, ids=lambda one: one.__name__)
def test_pool_without_a_stride_warns_at_the_callers_line_with_both_forms(pool: Any) -> None:
    window = (2, 2) if pool.__name__.endswith("2d") else 2
    for make in (lambda: pool(window), lambda: pool(kernel_size=window), lambda: pool(window, pad_mode="same")):
        with pytest.warns(ArgumentWarning, match="stride is 1 by default") as told:
            made = make()
        assert made.stride == 1 and len(told) == 1 and told[0].filename == __file__
        text = str(told[0].message)
        ways = [part.split(" for ")[0] for part in re.split("write |, or ", text)[1:]]
        assert [eval(way, vars(nn)).stride for way in ways] == [window, 1]
    pool(), pool(1), pool(window, 1), pool(window, stride=window)  # no warning


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.3])
def test_small_momentum_warns_with_both_forms(name: str, momentum: float) -> None:
    with pytest.warns(ArgumentWarning, match=f"PyTorch's momentum={momentum:g} is the opposite") as told:
        layer = NORMS[name](momentum=momentum)
    assert len(told) == 1
    text = str(told[0].message)
    layer.momentum = 0.75
    exec(re.search(r"layer\.momentum = [\d.]+\d|layer\.momentum = \d", text)[0])
    assert layer.momentum == momentum
    assert NORMS[name](momentum=float(re.search(r"write momentum=([\d.]+)", text)[1])).momentum == 1.0 - momentum
    for fine in ({}, {"momentum": 0.5}, {"momentum": 0.9}, {"momentum": 1.0}):
        NORMS[name](**fine)


def test_warning_is_issued_once_per_line() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            nn.MaxPool2d(2)
    assert len(told) == 1
