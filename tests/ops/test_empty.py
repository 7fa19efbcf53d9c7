"""Axes of length 0 and sums of squares equal to 0: every row of the table of operations, forward and backward."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gradient_table import TABLE, Row, Spec
from test_ops_gradients import leaves, several, tensors

import snncell as ms
from snncell import Tensor, nn, ops, train
from snncell.errors import GradientError, ShapeError, SnncellError

Shapes = tuple[tuple[int, ...], ...]

# Rows for which PyTorch returns a result and snncell raises, or returns another shape.
OTHERWISE = {
    "squeeze": "NumPy too has no axis of length 1 in an axis of length 0",
    "rfft": "there is no spectrum of no samples",
    "irfft": "there are no samples of no spectrum",
    "conj": "the table adds the real and the imaginary part, whose shapes must fit",
    "median": "there is no middle of nothing, where PyTorch has NaN",
    "conv1d": "without input channels a sum of nothing is 0; PyTorch leaves the output channels out as well",
    "conv2d": "the same, and windows of length 0 are refused",
    "adaptive_avg_pool1d": "a window has pixels, where PyTorch has NaN of none",
    "adaptive_avg_pool2d": "the same",
    "associative_scan": "the elements need one length, which the loop in PyTorch does not compare",
}


def shapes_of(r: Row) -> Shapes:
    return tuple(tuple(x.shape) if isinstance(x, (Spec, np.ndarray)) else tuple(x) for x in r.inputs)


def empty_shapes(shapes: Shapes) -> Iterator[Shapes]:
    """Shapes with each axis empty, each length empty wherever it occurs, and the first axes empty together."""
    for where, shape in enumerate(shapes):
        for axis in range(len(shape)):
            yield tuple(
                tuple(0 if (i, a) == (where, axis) else n for a, n in enumerate(s)) for i, s in enumerate(shapes)
            )
    for length in sorted({n for shape in shapes for n in shape}):
        yield tuple(tuple(0 if n == length else n for n in shape) for shape in shapes)
    yield tuple((0, *shape[1:]) if shape else () for shape in shapes)


def rows_with_empty_axes(r: Row) -> list[Row]:
    found = []
    for shapes in dict.fromkeys(empty_shapes(shapes_of(r))):
        if any(0 in shape for shape in shapes):
            arrays = tuple(np.random.default_rng(i).uniform(0.5, 1.5, shape) for i, shape in enumerate(shapes))
            found.append(r._replace(inputs=arrays, case=f"{r.case} {shapes}"))
    return found


def forward(r: Row) -> list[Tensor] | None:
    """The results, or None if the operation raises an error of this library."""
    try:
        return leaves(r.fn(*tensors(r)))
    except SnncellError:
        return None


@pytest.mark.sampled(156)
@pytest.mark.parametrize("r", [r for r in TABLE if rows_with_empty_axes(r)], ids=repr)
def test_results_of_empty_axes_have_gradients(r: Row) -> None:
    def squared(*xs: Tensor) -> Tensor:
        out, pull = ops.vjp(empty.fn, *xs)
        return sum((ops.square(g).sum() for g in leaves(pull(*map(ops.ones_like, leaves(out))))), ops.zeros((), out_of))

    for empty in rows_with_empty_axes(r):
        outs = forward(empty)
        if not outs or not empty.order:
            continue
        xs, out_of = tensors(empty), "float64"
        out, pull = ops.vjp(empty.fn, *xs)
        grads = leaves(pull(*map(ops.ones_like, leaves(out))))
        again = leaves(ms.grad(squared, tuple(range(len(xs))))(*xs))
        for found in (grads, again):
            assert [g.shape for g in found] == [x.shape for x in xs], empty


@pytest.mark.sampled(280)
@pytest.mark.peer
@pytest.mark.filterwarnings("ignore:.*degrees of freedom:UserWarning", "ignore:.*zero-element:UserWarning")
@pytest.mark.parametrize("r", [r for r in TABLE if r.torch and rows_with_empty_axes(r)], ids=repr)
def test_empty_axes_equal_torch(r: Row, torch: Any) -> None:
    for empty in rows_with_empty_axes(r):
        theirs = [torch.tensor(x, requires_grad=bool(r.order)) for x in empty.inputs]
        try:
            their_outs = empty.torch(torch, *theirs)
            their_outs = list(their_outs) if isinstance(their_outs, (tuple, list)) else [their_outs]
            ones = [torch.ones_like(x) for x in their_outs]
            options = {"allow_unused": True, "materialize_grads": True}
            their_grads = torch.autograd.grad(their_outs, theirs, ones, **options) if r.order else ()
        except (RuntimeError, IndexError, ValueError, UserWarning):
            continue  # PyTorch raises, or broadcasts with a warning
        expected = [x.detach().resolve_conj().numpy() for x in (*their_outs, *their_grads)]
        try:
            out, pull = ops.vjp(empty.fn, *tensors(empty)) if r.order else (empty.fn(*tensors(empty)), None)
            found = [*leaves(out), *(leaves(pull(*map(ops.ones_like, leaves(out)))) if pull else [])]
        except GradientError:
            assert r.name == "unstack"  # the gradient of an empty result is empty
            continue
        except ShapeError:
            assert r.name in OTHERWISE, empty
            continue
        if [x.shape for x in found] != [x.shape for x in expected]:
            assert r.name in OTHERWISE, empty
            continue
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine.asnumpy(), other, rtol=1e-12, err_msg=repr(empty))


# For each row, the first case that can be computed.
COMPUTED = [
    next((empty for empty in rows_with_empty_axes(r) if forward(empty) is not None), None) for r in TABLE if r.jit
]
COMPUTED = [r for r in COMPUTED if r is not None and leaves(r.fn(*tensors(r)))]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("start", range(0, len(COMPUTED), 80))
def test_empty_axes_compiled_equal_eager(start: int) -> None:
    together, given = several(COMPUTED[start : start + 80])
    eager, compiled = leaves(together(*given)), leaves(ms.jit(together)(*given))
    for mine, other in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(mine.asnumpy(), other.asnumpy(), rtol=1e-12)
        assert mine.dtype == other.dtype


def test_reductions_of_empty_arrays() -> None:
    nothing = ops.zeros((2, 0))
    assert ops.logsumexp(nothing, 1).tolist() == [-np.inf, -np.inf]  # log 0
    assert ops.logsumexp(ops.zeros((0,))).item() == -np.inf
    assert ops.softmax(nothing, 1).shape == ops.log_softmax(nothing, 1).shape == (2, 0)
    for reduction in (ops.max, ops.min, ops.argmax, ops.argmin):
        with pytest.raises(ShapeError, match=r"there is nothing along axis 1 of a Tensor of shape \(2, 0\)"):
            reduction(nothing, 1)


@pytest.mark.parametrize(("n", "ddof"), list(itertools.product((0, 1, 2, 3), (0, 1, 2, 5, 1.5))))
def test_variance_is_never_negative(n: int, ddof: float) -> None:
    x = np.arange(float(n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from a division by 0
        expected = x.var(ddof=ddof)
    for reduction, value in ((ops.var, expected), (ops.std, np.sqrt(expected))):
        np.testing.assert_allclose(reduction(Tensor(x), ddof=ddof).item(), value, rtol=1e-14)


# --- images -----------------------------------------------------------------------------------------------------------

ENLARGED = list(itertools.product((1, 2, 3), (1, 2, 4), (1, 3), (0, 1), (0, 1, 3), (0, 2), (1, 2)))


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_output_padding_up_to_the_dilation_has_gradients(stride: int, torch: Any) -> None:
    for step, dilation, size, padding, more, batch, groups in ENLARGED:
        if step != stride or more >= max(stride, dilation):
            continue
        rng = np.random.default_rng(0)
        x, w = rng.standard_normal((batch, 2 * groups, 3, 3)), rng.standard_normal((2 * groups, 2, size, size))
        options = {"stride": stride, "padding": padding, "output_padding": more, "dilation": dilation, "groups": groups}
        theirs = [torch.tensor(a, requires_grad=True) for a in (x, w)]
        their_out = torch.nn.functional.conv_transpose2d(*theirs, **options)
        out, pull = ops.vjp(
            lambda x, w, o=options: ops.conv_transpose2d(x, w, pad_mode="pad", **o), Tensor(x), Tensor(w)
        )
        dout = rng.standard_normal(out.shape)
        their_grads = torch.autograd.grad(their_out, theirs, torch.tensor(dout))
        for mine, other in zip((out, *pull(Tensor(dout))), (their_out, *their_grads), strict=True):
            np.testing.assert_allclose(
                mine.asnumpy(), other.detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=str(options)
            )


def test_transposed_layers_have_gradients_of_every_order() -> None:
    layer = nn.Conv2dTranspose(1, 1, 2, 1, "pad", output_padding=2, dilation=3, dtype="float64")
    ms.testing.check_grads(layer, ops.normal((1, 1, 2, 2)).astype("float64"), order=2)
    assert layer(ops.zeros((0, 1, 2, 2), "float64")).shape == (0, 1, 7, 7)


def test_empty_windows_and_images_raise() -> None:
    x, w = ops.zeros((1, 1, 4, 4)), ops.zeros((1, 1, 0, 2))
    for function in (ops.conv2d, ops.conv_transpose2d):
        with pytest.raises(ShapeError, match=r"\(1, 1, 0, 2\) has lengths \(0, 2\); each must be at least 1"):
            function(x, w)
    with pytest.raises(ShapeError, match=r"an input of shape \(1, 1, 0, 4\) has lengths \(0, 4\)"):
        ops.conv_transpose2d(x[:, :, :0], ops.zeros((1, 1, 2, 2)))


def test_layers_accept_an_empty_batch() -> None:
    delay = nn.AxonalDelay(3, 4)
    assert ms.grad(lambda x: delay(x).sum())(ops.zeros((5, 0, 3))).shape == (5, 0, 3)
    with pytest.raises(ShapeError, match="has no value per channel"):
        nn.BatchNorm1d(3).set_train()(ops.zeros((0, 3)))


# --- sums of squares equal to 0 ---------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize("how", ["eager", pytest.param("jit", marks=pytest.mark.compiled)])
@pytest.mark.parametrize(
    "options", [{}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"ddof": 1}, {"ddof": 1.5}], ids=str
)
def test_standard_deviation_of_equal_values_has_zero_gradient(how: str, options: dict[str, Any]) -> None:
    def total(x: Tensor) -> Tensor:
        return ops.std(x, **options).sum()

    def second(x: Tensor) -> Tensor:
        return ops.square(ms.grad(total)(x)).sum()

    x = Tensor(np.full((3, 4), 0.25))
    for function in (total, second):
        gradient = ms.grad(function)
        assert (ms.jit(gradient) if how == "jit" else gradient)(x).tolist() == np.zeros((3, 4)).tolist()
    mixed = Tensor(np.stack([np.full(4, 0.25), np.arange(4.0)]))
    gradient = ms.grad(lambda x: ops.std(x, -1).sum())(mixed).asnumpy()
    np.testing.assert_allclose(gradient, [np.zeros(4), (np.arange(4.0) - 1.5) / (4 * np.arange(4.0).std())], atol=1e-15)
    assert np.isnan(ms.grad(total)(Tensor(np.full((3, 4), np.nan))).asnumpy()).all()  # invalid values still give NaN


def test_global_norm_of_zeros_has_a_finite_gradient() -> None:
    def clipped(x: Tensor) -> Tensor:
        return train.clip_by_global_norm([x, x * 2.0], 1.0)[0].sum()

    assert ms.grad(clipped)(ops.zeros((3,))).tolist() == [1.0, 1.0, 1.0]
