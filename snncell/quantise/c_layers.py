"""Write the layers of an integer network as C statements for one time step, with bounds of all values.

`integer.IntegerNeuron.step` and `integer.Requantise.run` compute with NumPy arrays. Called with a `CValue` instead of
an array, they return the same computation as C. So the rules of rounding, saturation and reset exist only once.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from snncell.errors import ArgumentError, ShapeError
from snncell.ops.conv import padding_widths
from snncell.quantise import integer
from snncell.quantise.integer import IntegerNet
from snncell.quantise.lowering import FEWER_BITS, narrowest

MOST = 2**31 - 1  # the largest magnitude of a value; -2^31 is excluded, so that every value can be negated

# C99 does not define the right shift of a negative number. So add 2^31, shift, and subtract 2^31 / 2^bits.
RIGHT_SHIFT = "(int32_t)(((uint32_t){0} + 2147483648u) >> {1}) - {2}"

TEXTS: dict[Callable[..., Any], str] = {
    np.add: "{0} + {1}",
    np.subtract: "{0} - {1}",
    np.multiply: "{0} * {1}",
    np.negative: "-{0}",
    np.floor_divide: "{0} / {1} - ({0} % {1} < 0)",  # for positive divisors, because C rounds towards 0
    np.minimum: "{0} < {1} ? {0} : {1}",
    np.maximum: "{0} > {1} ? {0} : {1}",
    np.greater: "{0} > {1}",
    np.greater_equal: "{0} >= {1}",
    np.equal: "{0} == {1}",
    np.bitwise_and: "{0} & {1}",
    np.bitwise_or: "{0} | {1}",
}
# Operations with the result 0 or 1. The operands of & and | are such results, or one of them is the number 1.
TRUTHS = {np.greater, np.greater_equal, np.equal, np.bitwise_and, np.bitwise_or}
NEUTRAL = {np.add: "0", np.multiply: "1"}  # operands that change nothing


class CValue(np.lib.mixins.NDArrayOperatorsMixin):
    """An integer of the C program in [low, high]: a constant, a loaded element, or the result of an operation.

    `text` is C code with a place for each of the operands, `parents`. Constants are `inline`: they need no variable.
    `context` is the LayerWriter, which makes constants, and refuses values beyond MOST.
    """

    def __init__(
        self, context: Any, text: str, low: int, high: int, parents: Sequence[CValue] = (), inline: bool = False
    ) -> None:
        if max(-low, high) > MOST:
            context.refuse(f"a value reaches {max(-low, high)}, which does not fit into int32", FEWER_BITS)
        self.context, self.text, self.low, self.high = context, text, low, high
        self.parents, self.inline = parents, inline

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        values = [one if isinstance(one, CValue) else self.context.constant(one) for one in operands]
        first, last = values[0], values[-1]
        if ufunc is np.left_shift:
            return first * (1 << last.low)
        if ufunc is np.right_shift:
            if last.low > 30:
                self.context.refuse(f"it rounds by {last.low} bits, of 30 at most", FEWER_BITS)
            text = RIGHT_SHIFT.format("{0}", last.low, 2 ** (31 - last.low))
            return CValue(self.context, text, first.low >> last.low, first.high >> last.low, [first])
        if ufunc is np.floor_divide and last.low < 1:
            self.context.refuse("a threshold is not above 0", "use states with more bits after the point")
        for one, other in ((first, last), (last, first)):
            if one.inline and one.text == NEUTRAL.get(ufunc):
                return other
        if (ufunc is np.minimum and first.high <= last.low) or (ufunc is np.maximum and first.low >= last.high):
            return first
        ends = itertools.product(*((np.int64(one.low), np.int64(one.high)) for one in values))
        bounds = [0, 1] if ufunc in TRUTHS else [int(ufunc(*corner)) for corner in ends]
        return CValue(self.context, TEXTS[ufunc], min(bounds), max(bounds), values)

    def clip(self, low: int, high: int, **options: Any) -> Any:
        """`np.clip` of this value."""
        value: Any = self
        return np.minimum(np.maximum(value, low), high)

    def astype(self, dtype: Any) -> CValue:
        """The value itself, because all values are int32."""
        return self


def statements(results: Sequence[CValue]) -> tuple[list[str], list[str]]:
    """The statements that compute some values, and the name of each of these values."""
    lines: list[str] = []
    names: dict[int, str] = {}

    def name(value: CValue) -> str:
        if value.inline:
            return value.text
        if id(value) not in names:
            text = value.text.format(*(name(parent) for parent in value.parents))
            names[id(value)] = f"t{len(names)}"
            lines.append(f"const int32_t {names[id(value)]} = {text};")
        return names[id(value)]

    return lines, [name(one) for one in results]


Array = np.ndarray[Any, Any]
INT32, INT64, FLOAT = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float32)


@dataclass(frozen=True)
class CArray:
    """An array of the C program: values of one time step of one sample, in [low, high]."""

    text: str
    shape: tuple[int, ...]
    low: int
    high: int
    dtype: Any

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.count * int(self.dtype.itemsize)

    @property
    def c_type(self) -> str:
        """The C type of an element."""
        return "float" if self.dtype == FLOAT else f"{self.dtype.name}_t"

    def store(self, value: str, index: str = "n") -> str:
        """The assignment of an int32 value to an element."""
        cast = "" if self.dtype in (INT32, FLOAT) else f"({self.c_type})"
        return f"{self.text}[{index}] = {cast}{value};"


def loop(variable: str, count: int, body: Iterable[str]) -> list[str]:
    """A loop over [0, count)."""
    return block(f"for (int32_t {variable} = 0; {variable} < {count}; {variable}++) ", body)


def block(head: str, body: Iterable[str]) -> list[str]:
    """Statements in braces."""
    return [head + "{", *("    " + line if line else "" for line in body), "}"]


class LayerWriter:
    """Write the layers of an IntegerNet one after the other, and count their memory."""

    def __init__(self, net: IntegerNet, shape: tuple[int, ...]) -> None:
        self.net, self.place, self.written = net, 0, 0
        self.tables: dict[tuple[str, bytes], str] = {}
        self.constants: list[str] = []  # definitions of the tables
        self.flash = 0
        self.states: dict[CArray, str] = {}  # with the first value of element n
        self.buffers: tuple[dict[str, CArray], dict[str, CArray]] = ({}, {})  # members of two unions, used in turn
        self.body: list[str] = []
        self.lead: tuple[int, ...] = (2, 3)  # axes of time and batch, with lengths that tell them apart
        for layer in net.layers:
            if isinstance(layer, integer.IntegerReadout):
                break
            if getattr(layer, "kind", None) == "conv" or getattr(layer, "first", None) == 1:
                self.lead = (2,)  # one axis before the channels: samples without time, or a sequence without batch
        inner = [getattr(layer, "layer", layer) for layer in net.layers]
        self.last = max((place for place, layer in enumerate(inner) if not _passes(layer)), default=-1)
        dtype = FLOAT if any(isinstance(layer, integer.Encode) for layer in inner) else None
        self.input = self.signal = CArray("input", shape, *self._symmetric(net.largest_input, dtype))

    def write(self) -> None:
        """Write all layers."""
        if self.last < 0:
            raise ArgumentError("export_c: the network computes nothing. Export a network with neurons or weights.")
        for place, layer in enumerate(self.net.layers):
            self.place = place
            inner = getattr(layer, "layer", layer)
            method = WRITERS.get(type(inner))
            if method is None or (inner is not layer and not isinstance(inner, FOLDED)):
                self.refuse("it has no form in C", "use a network that quantise.export returns")
            if self.signal.dtype == FLOAT and not isinstance(inner, BEFORE_ENCODE):
                self.refuse("its inputs are not rounded yet", "use a network that quantise.export returns")
            shape, start = self._shape_after(layer), len(self.body)
            self.signal = method(self, inner, shape)
            if len(self.body) > start:
                self.body[start:] = ["", f"/* {self.where} */", *block("", self.body[start:])]

    @property
    def where(self) -> str:
        """The current layer in words."""
        return repr(self.net).splitlines()[1 + self.place].strip()

    def refuse(self, why: str, fix: str) -> NoReturn:
        """Raise an ArgumentError that names the current layer."""
        raise ArgumentError(f"export_c: layer {self.where}: {why}. To fix it: {fix}.")

    def _shape_after(self, layer: Any) -> tuple[int, ...]:
        """The shape of a layer's result for one time step of one sample, from a run of the layer on zeros."""
        x = self.signal
        kind = type(layer)
        lead = {integer.IntegerSteps: ((2, 3), (2,)), integer.IntegerDelay: ((2, 3),)}.get(kind, (self.lead,))
        if self.lead not in lead:
            self.refuse("its inputs are not (T, B, ...)", "use TimeDistributed for layers of images, and Readout last")
        try:
            after = layer.run(np.zeros((*self.lead, *x.shape), FLOAT if x.dtype == FLOAT else INT32)).shape
        except (ValueError, IndexError) as error:
            raise ShapeError(
                f"export_c: layer {self.where} does not take the shape {x.shape}: {error} Set input_shape to the shape "
                f"of one time step of one sample, instead of {self.input.shape}."
            ) from None
        if kind is integer.IntegerReadout:
            self.lead = self.lead[1:]
        if after[: len(self.lead)] != self.lead:
            self.refuse("it joins the axes of time or batch with others", "use TimeDistributed, or nn.Flatten(2)")
        if 0 in after:
            self.refuse("its result has no elements", "use a larger input_shape, or smaller windows")
        return tuple(after[len(self.lead) :])

    # --- constants and variables --------------------------------------------------------------------------------------

    def constant(self, array: Any) -> CValue:
        """A number, or element n of a table if it differs between the elements of the current signal."""
        array = np.asarray(array)
        return self._element(np.broadcast_to(array, (1, *self.signal.shape)) if array.ndim else array, "n")

    def _element(self, array: Array, index: str) -> CValue:
        low, high = int(array.min()), int(array.max())
        text = str(low) if low == high else f"{self._table(array)}[{index}]"
        return CValue(self, text, low, high, inline=True)

    def _table(self, array: Array) -> str:
        values = array.astype(narrowest(int(array.min()), int(array.max()))).ravel()
        key = values.dtype.name, values.tobytes()
        if key not in self.tables:
            name = self.tables[key] = f"k{len(self.tables)}"
            numbers = textwrap.wrap(", ".join(map(str, values.tolist())), 112, break_on_hyphens=False)
            head = f"static const {values.dtype.name}_t {name}[{values.size}] = "
            self.constants += [*block(head, numbers)[:-1], "};"]
            self.flash += values.nbytes
        return self.tables[key]

    def _symmetric(self, most: int, dtype: Any = None) -> tuple[int, int, Any]:
        """Low, high and dtype of an array of magnitudes up to `most`."""
        return -most, most, dtype or narrowest(-most, most)

    def _state(self, name: str, shape: tuple[int, ...], low: int, high: int, dtype: Any = None) -> CArray:
        """A variable that keeps its values between time steps."""
        array = CArray(f"{name}{self.place}", shape, low, high, dtype or narrowest(low, high))
        self.states[array] = "0"
        return array

    def _result(self, shape: tuple[int, ...], low: int, high: int, dtype: Any = None) -> CArray:
        """The array for the results of a layer: `output` for the last layer, otherwise the buffers in turn."""
        if max(-low, high) > MOST:
            self.refuse(f"its sums reach {max(-low, high)}, which does not fit into int32", FEWER_BITS)
        if self.place == self.last:
            return CArray("output", shape, low, high, INT32)
        dtype, side = dtype or narrowest(low, high), self.written % 2
        self.written += 1
        member = f"{dtype.kind}{8 * dtype.itemsize}"
        array = CArray(f"{'ab'[side]}.{member}", shape, low, high, dtype)
        self.buffers[side][member] = max(array, self.buffers[side].get(member, array), key=lambda one: one.count)
        return array

    def variables(self) -> tuple[list[str], int, int]:
        """Definitions of the states and buffers, and their bytes."""
        lines, size = [f"static {one.c_type} {one.text}[{one.count}];" for one in self.states], 0
        for name, members in zip("ab", self.buffers, strict=True):
            if members:
                inside = [f"{one.c_type} {member}[{one.count}];" for member, one in members.items()]
                lines += [*block("static union ", inside)[:-1], f"}} {name};"]
                align = max(one.dtype.itemsize for one in members.values())
                size += -(-max(one.nbytes for one in members.values()) // align) * align
        return lines, sum(one.nbytes for one in self.states), size

    def _load(self, array: CArray) -> CValue:
        return CValue(self, f"{array.text}[n]", array.low, array.high)

    # --- layers: each method appends its statements to `body`, and returns the array of its results -------------------

    def encode(self, layer: integer.Encode, shape: tuple[int, ...]) -> CArray:
        """Round floats to a grid."""
        grid = ", ".join(f"{float(np.float32(one)).hex()}f" for one in (layer.step, layer.low, layer.high))
        level = CValue(self, f"encode({self.signal.text}[n], {grid})", int(layer.low), int(layer.high))
        return self._elementwise(level * layer.multiplier, shape)

    def requantise(self, layer: integer.Requantise, shape: tuple[int, ...]) -> CArray:
        """Round to a coarser grid."""
        return self._elementwise(layer.run(self._load(self.signal)), shape)

    def _elementwise(self, value: Any, shape: tuple[int, ...]) -> CArray:
        out = self._result(shape, value.low, value.high)
        lines, (name,) = statements([value])
        self.body += loop("n", out.count, [*lines, out.store(name)])
        return out

    def product(self, layer: integer.IntegerProduct, shape: tuple[int, ...]) -> CArray:
        """Dense or convolution."""
        out = self._result(shape, *self._symmetric(self._bound(layer, self.signal), INT32))
        self.body += self._sums(layer, self.signal, out)
        return out

    def _bound(self, layer: integer.IntegerProduct, x: CArray) -> int:
        """The largest magnitude of the results of a product."""
        bias = 0.0 if layer.bias is None else np.abs(layer.bias.astype(float))
        sums = np.abs(layer.weight.astype(float)).sum(tuple(range(1, layer.weight.ndim))) * max(-x.low, x.high) + bias
        bound = float(np.max(sums * np.maximum(np.abs(layer.multiplier), 1), initial=0.0))
        if bound > MOST:
            self.refuse(f"its sums reach {bound:.4g}, which does not fit into int32", FEWER_BITS)
        return int(bound)

    def _sums(self, layer: integer.IntegerProduct, x: CArray, out: CArray) -> list[str]:
        """Add the weights of each input other than 0, so that the time depends on the number of spikes."""
        outputs = layer.weight.shape[0]
        area = out.count // outputs if layer.kind == "conv" else 1
        channel = f"n / {area}" if area > 1 else "n" if out.count == outputs else f"n % {outputs}"
        bias = "0" if layer.bias is None else self._element(layer.bias, channel).text
        factor = self._element(layer.multiplier, channel).text
        lines = loop("n", out.count, [f"{out.text}[n] = {bias};"])
        lines += self._conv(layer, x, out) if layer.kind == "conv" else self._dense(layer, x, out)
        return lines + (loop("n", out.count, [f"{out.text}[n] *= {factor};"]) if factor != "1" else [])

    def _dense(self, layer: integer.IntegerProduct, x: CArray, out: CArray) -> list[str]:
        outputs, inputs = layer.weight.shape
        rows = x.count // inputs
        source, target = (f"r * {inputs} + i", f"r * {outputs} + o") if rows > 1 else ("i", "o")
        add = f"{out.text}[{target}] += {self._table(layer.weight.T)}[i * {outputs} + o]{_factor(x)};"
        lines = loop("i", inputs, _unless_zero(x, source, loop("o", outputs, [add])))
        return loop("r", rows, lines) if rows > 1 else lines

    def _conv(self, layer: integer.IntegerProduct, x: CArray, out: CArray) -> list[str]:
        lengths: tuple[int, ...] = x.shape[1:]
        size: tuple[int, ...] = layer.weight.shape[2:]
        pads = padding_widths(lengths, size, layer.stride, layer.dilation, layer.pad_mode, layer.padding, "export_c")
        rest: tuple[int, ...] = (1,) * (2 - len(size))  # one-dimensional images have one row
        before = (*(0 for _ in rest), *(low for low, _ in pads))
        (height, width), (tall, wide), (rows, columns) = (*rest, *lengths), (*rest, *size), (*rest, *out.shape[1:])
        stride, dilation = (*rest, *layer.stride), (*rest, *layer.dilation)
        outputs, inputs = layer.weight.shape[:2]
        share = outputs // layer.groups
        weight = layer.weight.reshape(layer.groups, share, inputs, tall, wide).transpose(0, 2, 3, 4, 1)
        channel = f"(c / {inputs} * {share} + o)" if layer.groups > 1 else "o"
        target = f"({channel} * {rows} + {_over('y', stride[0])}) * {columns} + {_over('x', stride[1])}"
        tap = f"((c * {tall} + p) * {wide} + q) * {share} + o"
        lines = loop("o", share, [f"{out.text}[{target}] += {self._table(weight)}[{tap}]{_factor(x)};"])
        lines = loop("q", wide, [*_along("x", f"j + {before[1]} - q * {dilation[1]}", stride[1], columns), *lines])
        lines = loop("p", tall, [*_along("y", f"i + {before[0]} - p * {dilation[0]}", stride[0], rows), *lines])
        lines = _unless_zero(x, f"(c * {height} + i) * {width} + j", lines)
        return loop("c", x.shape[0], loop("i", height, loop("j", width, lines)))

    def pool(self, layer: integer.IntegerPool, shape: tuple[int, ...]) -> CArray:
        """The sum or the maximum of each window."""
        x, sums = self.signal, layer.kind == "sum"
        count = math.prod(layer.size) if sums else 1
        out = self._result(shape, x.low * count, x.high * count, None if sums else x.dtype)
        (height, width), (rows, columns) = x.shape[-2:], shape[-2:]
        first = f"(c * {height} + y * {layer.stride[0]}) * {width} + x * {layer.stride[1]}"
        kind = "float" if x.dtype == FLOAT else "int32_t"
        lines = [f"const {kind} s = {x.text}[{first} + p * {width} + q];"]
        lines += ["best += s;" if sums else "best = s > best ? s : best;"]
        lines = loop("p", layer.size[0], loop("q", layer.size[1], lines))
        lines = [f"{kind} best = {'0' if sums else f'{x.text}[{first}]'};", *lines]
        lines += [out.store("best", f"(c * {rows} + y) * {columns} + x")]
        self.body += loop("c", math.prod(shape[:-2]), loop("y", rows, loop("x", columns, lines)))
        return out

    def flatten(self, layer: integer.IntegerFlatten, shape: tuple[int, ...]) -> CArray:
        """Change the shape only."""
        x = self.signal
        return CArray(x.text, shape, x.low, x.high, x.dtype)

    def delay(self, layer: integer.IntegerDelay, shape: tuple[int, ...]) -> CArray:
        """Keep the inputs of the last steps in a ring."""
        x, steps, inner = self.signal, max(int(layer.delay.max()), 1), self.signal.count // len(layer.delay)
        low, high = min(x.low, 0), max(x.high, 0)
        out = self._result(shape, low, high, x.dtype)
        ring, at = self._state("d", (steps, x.count), low, high, x.dtype), self._state("at", (1,), 0, MOST)
        late = self._element(layer.delay, f"n / {inner}" if inner > 1 else "n").text
        past = f"{ring.text}[({at.text}[0] + {steps} - {late}) % {steps} * {x.count} + n]"
        lines = [f"const {x.c_type} now = {x.text}[n], past = {past};"]
        lines += [f"if ({late} == 0) {out.text}[n] = now;", f"else {out.text}[n] = past;"]
        lines += [f"{ring.text}[{at.text}[0] * {x.count} + n] = now;"]
        self.body += [*loop("n", out.count, lines), f"{at.text}[0] = ({at.text}[0] + 1) % {steps};"]
        return out

    def steps(self, layer: integer.IntegerSteps, shape: tuple[int, ...]) -> CArray:
        """A neuron, with its feedback if it is recurrent."""
        neuron, x = layer.neuron, self._load(self.signal)
        resets = neuron.reset_to.ravel().tolist() if neuron.reset == "value" else []
        # A reset keeps a potential in these bounds, because the thresholds that it subtracts are at most the potential.
        ends = [neuron.low, neuron.high, *resets, *neuron.start.ravel().tolist()]
        states = [self._state("v", shape, min(ends), max(ends))]
        self.states[states[0]] = self.constant(neuron.start).text
        if neuron.v_from_i is not None:
            states.append(self._state("i", shape, neuron.low, neuron.high))
        loads, current, feedback = [self._load(one) for one in states], layer.join_inputs(x), []
        if layer.feedback is not None:
            value = neuron.step(current, *loads)[0]  # only for its bounds, which do not depend on the input
            states.append(self._state("s", shape, min(value.low, 0), max(value.high, 0)))
            back = self._state("f", shape, *self._symmetric(self._bound(layer.feedback, states[-1]), INT32))
            feedback = self._sums(layer.feedback, states[-1], back)
            current = layer.join_inputs(x, self._load(back))
        value, *after = neuron.step(current, *loads)
        out = self._result(shape, value.low, value.high)
        lines, names = statements([value, *after, *([value] if feedback else [])])
        stores = [one.store(name) for one, name in zip([out, *states], names, strict=True)]
        self.body += [*feedback, *loop("n", out.count, [*lines, *stores])]
        return out

    def readout(self, layer: integer.IntegerReadout, shape: tuple[int, ...]) -> CArray:
        """The last value, the maximum or the sum of the steps since the reset."""
        x, sums = self.signal, layer.how == "sum"
        if layer.how == "last":
            return x
        # Sums are exact up to int32. Beyond, IntegerNet.run raises, and the program saturates.
        out = self._result(shape, *self._symmetric(MOST)[:2]) if sums else self._result(shape, x.low, x.high)
        state = self._state("m", shape, x.low, x.high, INT64 if sums else x.dtype)
        total, now = f"{state.text}[n]", f"{x.text}[n]"
        if sums:
            lines = [f"{total} += {now};"]
            value = f"(int32_t)({total} > INT32_MAX ? INT32_MAX : {total} < -INT32_MAX ? -INT32_MAX : {total})"
        else:
            self.states[state] = str(x.low)
            lines, value = [f"if ({now} > {total}) {total} = {now};"], total
        self.body += loop("n", out.count, [*lines, out.store(value)])
        return out


def _passes(layer: Any) -> bool:
    """True for layers that compute nothing in a time step."""
    return isinstance(layer, integer.IntegerFlatten) or getattr(layer, "how", None) == "last"


def _factor(x: CArray) -> str:
    return "" if (x.low, x.high) == (0, 1) else " * s"


def _unless_zero(x: CArray, index: str, body: list[str]) -> list[str]:
    """Statements for an element other than 0, which they call `s`."""
    if not _factor(x):
        return block(f"if ({x.text}[{index}] != 0) ", body)
    return [f"const int32_t s = {x.text}[{index}];", *block("if (s != 0) ", body)]


def _over(variable: str, stride: int) -> str:
    return f"{variable} / {stride}" if stride > 1 else variable


def _along(variable: str, value: str, stride: int, count: int) -> list[str]:
    """Statements that compute a result's place along an axis, times the stride, and skip a tap without a result."""
    between = f"{variable} % {stride} != 0 || " if stride > 1 else ""
    return [
        f"const int32_t {variable} = {value};",
        f"if ({variable} < 0 || {between}{variable} >= {count * stride}) continue;",
    ]


FOLDED = (integer.IntegerProduct, integer.IntegerPool, integer.IntegerFlatten)  # layers that OverTime may contain
# Layers that may take floats:
BEFORE_ENCODE = (integer.Encode, integer.IntegerPool, integer.IntegerFlatten, integer.IntegerDelay)
WRITERS: dict[type, Callable[..., CArray]] = {
    integer.Encode: LayerWriter.encode,
    integer.Requantise: LayerWriter.requantise,
    integer.IntegerProduct: LayerWriter.product,
    integer.IntegerPool: LayerWriter.pool,
    integer.IntegerFlatten: LayerWriter.flatten,
    integer.IntegerDelay: LayerWriter.delay,
    integer.IntegerSteps: LayerWriter.steps,
    integer.IntegerReadout: LayerWriter.readout,
}
