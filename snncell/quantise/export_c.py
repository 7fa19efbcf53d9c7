"""Export an integer network as a C99 file, for a microcontroller."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from snncell.base.arguments.kinds import Lengths, Path
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.quantise import integer
from snncell.quantise.c_layers import FLOAT, LayerWriter, block, loop
from snncell.quantise.export import export
from snncell.quantise.integer import IntegerNet


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
        input_shape: shape of one time step of one sample, (N,) or (C, H, W). You can omit it if the first layer with a
            size is a Dense on vectors.
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
    starts = (loop("n", one.count, [f"{one.text}[n] = {start};"]) for one, start in writer.states.items())
    text = FILE.format(
        name=target.stem,
        input=writer.input,
        output=writer.signal,
        takes="any values" if real else f"integers from {writer.input.low} to {writer.input.high}",
        gives=_output_text(whole),
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


def _input_shape(net: IntegerNet, given: Lengths | None) -> tuple[int, ...]:
    if given is None:
        kinds = (integer.Encode, integer.Requantise)
        first: Any = next((getattr(one, "layer", one) for one in net.layers if not isinstance(one, kinds)), None)
        if getattr(first, "kind", None) == "dense":
            return (first.weight.shape[1],)
        raise ArgumentError(
            "export_c: input_shape is missing, and the first layer takes inputs of any size. Give the shape of one "
            "time step of one sample, for example input_shape=(2, 34, 34)."
        )
    return tuple(given) if isinstance(given, Sequence) else (given,)


def _output_text(net: IntegerNet) -> str:
    readouts = [layer.how for layer in net.layers if isinstance(layer, integer.IntegerReadout)]
    over = f", {readouts[-1]} of all steps since the reset" if readouts else ""
    return f"one unit is {net.step:g}{over}"
