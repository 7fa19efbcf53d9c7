"""Export a network with quantisers as integers or as a C99 file, with the same spikes to the bit."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import numpy as np

from snncell import nn, ops
from snncell.base.arguments.guard import ours
from snncell.base.arguments.kinds import Count, Lengths, Path
from snncell.cell.cell import Cell
from snncell.dtype import float64
from snncell.errors import ArgumentError
from snncell.nn.dataflow import DataFlow, Sources, kind_of, name_of_cell, refuse_hooks, refuse_replacement
from snncell.nn.layers.norm import BatchStatistics
from snncell.quantise import integer
from snncell.quantise.c_layers import FLOAT, LayerWriter, block, loop
from snncell.quantise.grids import Uniform
from snncell.quantise.integer import IntegerNet
from snncell.quantise.lowering import (
    FEWER_BITS,
    ExportedCell,
    IntegerSignal,
    bits_behind_point,
    integer_neuron,
    per_axis,
    product_of,
)
from snncell.quantise.prepare import StateGrids, WeightGrids

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.TimeFixedDropout, nn.TimeFixedDropout2d)
SUPPORTED = (
    "use only nn.SequentialCell, Dense, Conv1d, Conv2d, pools, Flatten, Dropout, AxonalDelay, TimeDistributed, "
    "MultiStep and Readout, or export the part of the network that consists of these"
)


class _Exporter(DataFlow):
    """The layers of a network in the order of their calls. Each layer takes the output of the previous one."""

    def __init__(self, net: Cell, largest_input: int) -> None:
        super().__init__(net, _error, "that a chain of layers cannot express (it may call Cells one after the other)")
        wide = any(p.dtype is float64 for p in net.get_parameters())
        self.limit = 2.0 ** (30 if wide else 24)  # float64 is exact beyond the range of int32
        self.layers: list[integer.IntegerLayer] = []
        self.signal = IntegerSignal(0, float(largest_input), True)

    def export(self) -> tuple[integer.IntegerLayer, ...]:
        self._refuse_branch(self.net, "", self.run((0,)), "returns")
        return tuple(self.layers)

    def add(self, layer: Any, signal: IntegerSignal, place: ExportedCell) -> None:
        """Append a layer and the bounds of its results."""
        if signal.bound >= 2.0**31:
            place.refuse(f"its sums reach {signal.bound:.3g}, which does not fit into int32", FEWER_BITS)
        self.layers.append(integer.OverTime(layer.exponent, layer) if place.over_time else layer)
        self.signal = signal

    def place(self, cell: Any, kind: type, path: str, sources: Sources) -> Sources | None:
        if not ours(kind) or kind is nn.SequentialCell:
            return None
        refuse_replacement(cell, path, _error, "so it has no integer layer")
        self._refuse_branch(cell, path, sources, "takes")
        place = ExportedCell(path, cell, self.axes == 1)
        if cell.compute_dtype is not None:
            place.refuse(f"it computes in {cell.compute_dtype}", 'undo this with amp.auto_mixed_precision(net, "O0")')
        if kind is nn.MultiStep:
            self._steps(cell, place)
        elif kind in (nn.Dense, nn.Conv1d, nn.Conv2d):
            self._product(cell, place)
        elif kind in (nn.MaxPool2d, nn.AvgPool2d, nn.SumPool2d):
            self._pool(cell, place)
        elif kind is nn.Flatten:
            self.add(integer.IntegerFlatten(self.signal.exponent, cell.start_dim, cell.end_dim), self.signal, place)
        elif kind is nn.AxonalDelay:
            self._delay(cell, place)
        elif kind is nn.Readout:
            self._readout(cell, place)
        elif kind not in DROPOUTS:
            return None
        return (len(self.layers),)

    def _refuse_branch(self, cell: Cell, path: str, sources: Sources, verb: str) -> None:
        """Raise unless `sources` is the output of the last layer alone."""
        if sources != (len(self.layers),):
            signal = "a sum of signals" if len(sources) > 1 else "a signal other than the last layer's output"
            raise _error(
                f"{name_of_cell(path, cell)} {verb} {signal}, for example because of a skip connection, but the layers "
                f"of an IntegerNet must follow one another. Export the parts of the network without it."
            )

    def unknown(self, cell: Any, path: str) -> Exception:
        place = ExportedCell(path, cell)
        if isinstance(cell, BatchStatistics):
            return place.error(
                "it multiplies by numbers that are not on a grid",
                "fold it into the layer before it, net = quantise.fold(net), train this further, and export it",
            )
        return place.error("there is no integer layer for it", SUPPORTED)

    def _product(self, cell: Any, place: ExportedCell) -> None:
        grids = cell.quantisers
        if not isinstance(grids, WeightGrids) or grids.weight is None:
            place.refuse(
                "its weights are not quantised", "call quantise.prepare(net, weights=quantise.Uniform(8)) and train on"
            )
        if grids.activation is not None:
            self._requantise(grids.activation, place)
        self.add(*product_of(cell, self.signal, place, self.limit), place)

    def _requantise(self, quantiser: Any, place: ExportedCell) -> None:
        scale = getattr(quantiser, "scale", None)
        if not isinstance(quantiser, Uniform) or not (scale == "moving" or isinstance(scale, float)):
            place.refuse(
                f"the grid of its inputs, {quantiser!r}, depends on the inputs",
                'use activations=quantise.FixedPoint(8, 6), or quantise.Uniform(8, "moving")',
            )
        if scale == "moving" and not quantiser.maximum.asnumpy().any():
            place.refuse("its moving scale has seen no inputs", "call the network in training mode, net.set_train()(x)")
        step = quantiser.step(ops.zeros(()))
        unit = step if isinstance(step, float) else step.item()
        most = float(max(-quantiser.low, quantiser.high))
        if self.signal.real:
            bits = bits_behind_point(unit)
            multiplier = int(math.ldexp(unit, bits))
            encode = integer.Encode(-bits, unit, float(quantiser.low), float(quantiser.high), multiplier)
            self.add(encode, IntegerSignal(-bits, most * multiplier), ExportedCell(place.path, place.cell))
            return
        if math.frexp(unit)[0] != 0.5:
            place.refuse(
                f"its inputs are integers, but their grid has the step {unit:g}, which is not a power of two",
                "use activations=quantise.FixedPoint(8, 6)",
            )
        exponent = math.frexp(unit)[1] - 1
        before = self.signal
        bound = min(most, math.ldexp(before.bound, before.exponent - exponent) + 1.0)
        layer = integer.Requantise(exponent, exponent - before.exponent, quantiser.low, quantiser.high)
        self.add(layer, IntegerSignal(exponent, bound), ExportedCell(place.path, place.cell))

    def _steps(self, cell: Any, place: ExportedCell) -> None:
        inner, path = cell.cell, f"{place.path}.cell" if place.path else "cell"
        if cell.return_states:
            place.refuse("it also returns its states", "set return_states=False")
        feedback: Any = None
        if kind_of(inner) is nn.Recurrent:
            feedback, inner, path = inner.feedback, inner.cell, f"{path}.cell"
        inside = ExportedCell(path, inner)
        if not isinstance(inner.quantisers, StateGrids):
            inside.refuse(
                "its states are not quantised",
                "call quantise.prepare(net, ..., states=quantise.FixedPoint(12, 8)) and train on",
            )
        if feedback is None:
            neuron, signal = integer_neuron(inner, self.signal, inside, self.limit)
            self.add(integer.IntegerSteps(signal.exponent, neuron), signal, place)
        else:
            self._recurrent(inner, feedback, inside, place)

    def _recurrent(self, cell: Any, feedback: Any, inside: ExportedCell, place: ExportedCell) -> None:
        at = ExportedCell(f"{place.path}.cell.feedback" if place.path else "cell.feedback", feedback)
        grids = feedback.quantisers if kind_of(feedback) is nn.Dense else None
        if not isinstance(grids, WeightGrids) or grids.weight is None or grids.activation is not None:
            at.refuse(
                "the feedback of a neuron must be a Dense with quantised weights, and without activations",
                "use nn.Dense, and prepare it with weights=quantise.Uniform(8)",
            )
        _, out = integer_neuron(cell, self.signal, inside, self.limit)  # only for the bounds of its output
        product, back = product_of(feedback, out, at, self.limit)
        exponent = min(self.signal.exponent, back.exponent)
        shifts = self.signal.exponent - exponent, back.exponent - exponent
        both = IntegerSignal(exponent, math.ldexp(self.signal.bound, shifts[0]) + math.ldexp(back.bound, shifts[1]))
        if both.bound > self.limit:
            inside.refuse(f"its inputs and feedback reach {both.bound:.3g} units", FEWER_BITS)
        neuron, signal = integer_neuron(cell, both, inside, self.limit)
        self.add(integer.IntegerSteps(signal.exponent, neuron, product, *shifts), signal, place)

    def _pool(self, cell: Any, place: ExportedCell) -> None:
        size, stride = per_axis(cell.kernel_size, 2), per_axis(cell.stride, 2)
        if cell.options.get("ceil_mode") or cell.options.get("divisor_override") is not None:
            place.refuse("it has ceil_mode or divisor_override", "leave both out")
        left = ("pad_mode", "count_include_pad", "ceil_mode", "divisor_override")
        options = {name: value for name, value in cell.options.items() if name not in left}
        if cell.options["pad_mode"] != "valid" or any(x not in (0, 1, (0, 0), (1, 1)) for x in options.values()):
            place.refuse("it pads or dilates its input", 'use pad_mode="valid", without dilation')
        count, signal = size[0] * size[1], self.signal
        if kind_of(cell) is nn.MaxPool2d:
            self.add(integer.IntegerPool(signal.exponent, "max", size, stride), signal, place)
            return
        exponent = signal.exponent
        if kind_of(cell) is nn.AvgPool2d:
            if count & (count - 1):
                place.refuse(
                    f"a mean of {count} is not a shift, because {count} is not a power of two",
                    "use windows of 2 x 2 or 4 x 4, or nn.SumPool2d",
                )
            exponent -= count.bit_length() - 1
        bound = signal.bound * count
        if bound > self.limit:
            place.refuse(f"its sums reach {bound:.3g} units", FEWER_BITS)
        self.add(integer.IntegerPool(exponent, "sum", size, stride), IntegerSignal(exponent, bound), place)

    def _delay(self, cell: Any, place: ExportedCell) -> None:
        delay = np.clip(cell.delay.asnumpy(), 0.0, float(cell.max_delay))
        if np.any(delay != np.rint(delay)):
            place.refuse(
                "its delays are not whole steps",
                "round them, cell.delay.set_data(ops.round(cell.delay)), and train the other Parameters further",
            )
        self.add(integer.IntegerDelay(self.signal.exponent, delay.astype(np.int32)), self.signal, place)

    def _readout(self, cell: Any, place: ExportedCell) -> None:
        if cell.how not in ("last", "max", "sum"):
            place.refuse(f"{cell.how!r} is not a sum of integers", 'use nn.Readout("sum"), "max" or "last"')
        self.add(integer.IntegerReadout(self.signal.exponent, cell.how, self.signal.bound), self.signal, place)


def export(net: Cell, *, largest_input: Count = 1) -> IntegerNet:
    """Export a prepared network as integers that give the same predictions to the bit.

    Use it to deploy on a chip, a microcontroller or an FPGA, or as a reference for one. Weights become int8 or int16,
    sums, states, thresholds and resets int32, scales short multipliers, and decays multipliers and shifts.

    Both networks agree for all inputs, because float32 is exact for integers times a unit, up to 2^24 units. `export`
    computes the largest possible value of each sum and potential, and refuses a network that exceeds this bound. Only
    sums of `Readout("sum")` grow with the number of steps; above 2^24 units they are exact here, but not in float32.

    Args:
        net: calls its Cells one after the other, as SequentialCell does. All layers with weights and all neurons must
            be prepared. Supported are TimeDistributed, Dense, Conv1d, Conv2d, pools, Flatten, Dropout, AxonalDelay with
            whole steps, Readout ("last", "max", "sum"), and MultiStep of a neuron, or of a Recurrent with a Dense.
            Neurons need a linear equation of h: IFNode, LIFNode, LeakyNode, CubaLIFNode, LINode, and subclasses of
            nn.Neuron with a linear `charge`.
        largest_input: inputs are integers up to this magnitude, 1 for spikes, unless the first layer quantises them.
    Raises: ArgumentError with the layer, the problem, and a fix.
    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LeakyNode(0.9)))
        >>> net = snncell.quantise.prepare(net, snncell.quantise.Uniform(4), snncell.quantise.FixedPoint(12, 8))
        >>> whole, x = snncell.quantise.export(net), ops.ones((5, 2, 3))
        >>> bool((whole.run(x.asnumpy()) == net(x).asnumpy()).all()), whole.layers[0].weight.dtype
        (True, dtype('int8'))
    """
    refuse_hooks(net, _error, "and would be lost")
    return IntegerNet(_Exporter(net, largest_input).export(), largest_input)


def _error(text: str) -> ArgumentError:
    return ArgumentError(f"export: {text}")


class CMemory(NamedTuple):
    """Memory of a C program of `export_c` in bytes, without its code: `flash` for constants, `ram` for variables."""

    flash: int
    ram: int


ENCODE = """
/* x / step, rounded to the nearest integer, halves to even, in [low, high]. NaN counts as low. */
static int32_t encode(float x, float step, float low, float high)
{
    const float level = x / step;
    const float limited = level > low ? (level < high ? level : high) : low;
    const int32_t whole = (int32_t)limited;
    const float rest = limited - (float)whole;
    const int32_t up = rest > 0.5f || (rest == 0.5f && (whole & 1) != 0);
    const int32_t down = rest < -0.5f || (rest == -0.5f && (whole & 1) != 0);
    return whole + up - down;
}
"""
FILE = """\
/* {name}: a spiking network in integers, written by quantise.export_c of snncell.

   Call {name}_reset() before each sample, and {name}_step(input, output) for each of its time steps.

   input    {input.c_type}[{input.count}], shape {input.shape}: {takes}
   output   int32_t[{output.count}], shape {output.shape}: {gives}
   flash    {memory.flash} bytes of weights and other constants, without code
   RAM      {memory.ram} bytes: {states} of states, {buffers} of buffers; without input and output

   All sums and states fit into int32_t for every input in the range. Other inputs may overflow. The statements of a
   neuron are those of IntegerNeuron.step in snncell/quantise/integer.py.
   The file needs C99, and no library. To try it, compile it with a main function, which reads samples as text:

       cc -std=c99 -O2 -DSNNCELL_MAIN {name}.c -o {name}

   A sample is the number of its time steps, then the inputs of each step. Each step prints a line of outputs. */

#include <stdint.h>

void {name}_reset(void);
void {name}_step(const {input.c_type} *input, int32_t *output);

{data}

void {name}_reset(void)
{reset}

void {name}_step(const {input.c_type} *input, int32_t *output)
{step}

#ifdef SNNCELL_MAIN
#include <stdio.h>

int main(void)
{{
    static {input.c_type} input[{input.count}];
    static int32_t output[{output.count}];
    long steps;
    while (scanf("%ld", &steps) == 1) {{
        {name}_reset();
        for (; steps > 0; steps--) {{
            for (int32_t n = 0; n < {input.count}; n++) {{
                {number} value;
                if (scanf("{scan}", &value) != 1) return 1;
                input[n] = ({input.c_type})value;
            }}
            {name}_step(input, output);
            for (int32_t n = 0; n < {output.count}; n++) printf("%ld ", (long)output[n]);
            printf("\\n");
        }}
    }}
    return 0;
}}
#endif
"""


def export_c(net: IntegerNet | Cell, path: Path, *, input_shape: Lengths | None = None) -> CMemory:
    """Export an integer network as one C99 file, for a microcontroller. It gives the spikes of the network to the bit.

    The file needs `stdint.h` only, and allocates nothing. For "digits.c" you must call `void digits_reset(void)` before
    each sample, and `void digits_step(const int8_t *input, int32_t *output)` for each time step. Layers with weights
    skip inputs that are 0. A comment at the beginning of the file describes input, output and memory.

    All layers of `quantise.export` are supported. A network whose values could leave int32 is refused.

    Args:
        net: the result of `quantise.export`, or a prepared network, which is exported first.
        path: a file "NAME.c". NAME must be a C identifier, because it is the prefix of the functions.
        input_shape: shape of one time step of one sample, (N,) or (C, H, W). If a Dense comes first, you can omit it.
    Returns: The size of constants (`flash`) and variables (`ram`) in bytes, without code, input and output.
    Raises: ArgumentError for a path or network that C cannot express; ShapeError if `input_shape` does not fit.
    Example:
        >>> import pathlib, tempfile
        >>> net = nn.SequentialCell(nn.Dense(3, 4, has_bias=False), nn.MultiStep(nn.LINode()))
        >>> net = snncell.quantise.prepare(net, snncell.quantise.Uniform(4), snncell.quantise.FixedPoint(12, 8))
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "small.c"
        >>> snncell.quantise.export_c(net, path)  # 12 weights; 4 potentials and 4 sums
        CMemory(flash=12, ram=24)
    """
    target = FilePath(path)
    if target.suffix != ".c" or not re.fullmatch(r"[A-Za-z]\w*", target.stem, re.ASCII):
        raise ArgumentError(
            f'export_c: path must end with a C identifier and ".c", for example "digits.c", not {target.name!r}.'
        )
    whole = net if isinstance(net, IntegerNet) else export(net)
    writer = LayerWriter(whole, _input_shape(whole, input_shape))
    writer.write()
    declared, states, buffers = writer.variables()
    memory, real = CMemory(writer.flash, states + buffers), writer.input.dtype == FLOAT
    readouts = [layer.how for layer in whole.layers if isinstance(layer, integer.IntegerReadout)]
    over = f", {readouts[-1]} of all steps since the reset" if readouts else ""
    starts = (loop("n", one.count, [f"{one.text}[n] = {start};"]) for one, start in writer.states.items())
    text = FILE.format(
        name=target.stem,
        input=writer.input,
        output=writer.signal,
        takes="any values" if real else f"integers from {writer.input.low} to {writer.input.high}",
        gives=f"one unit is {whole.step:g}{over}",
        memory=memory,
        states=states,
        buffers=buffers,
        data="\n".join([ENCODE] * real + writer.constants + declared),
        reset="\n".join(block("", itertools.chain(*starts))),
        step="\n".join(block("", writer.body[1:])),
        number="float" if real else "long",
        scan="%f" if real else "%ld",
    )
    try:
        target.write_text(text, "ascii")
    except OSError as error:
        raise ArgumentError(f"export_c: path {target} cannot be written: {error}.") from None
    return memory


def _input_shape(net: IntegerNet, shape: Lengths | None) -> tuple[int, ...]:
    if shape is None:
        kinds = (integer.Encode, integer.Requantise)
        first: Any = next((getattr(one, "layer", one) for one in net.layers if not isinstance(one, kinds)), None)
        if getattr(first, "kind", None) == "dense":
            return (first.weight.shape[1],)
        raise ArgumentError(
            "export_c: input_shape is missing, and the first layer takes inputs of any size. Give the shape of one "
            "time step of one sample, for example input_shape=(2, 34, 34)."
        )
    return tuple(shape) if isinstance(shape, Sequence) else (shape,)
