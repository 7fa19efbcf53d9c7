"""Published energies of operations and memory accesses, and the hardware made from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from snncell.base.arguments.kinds import ExtendedReal, NotNegative
from snncell.base.arguments.shown import nearest, show
from snncell.errors import ArgumentError


class Price(NamedTuple):
    """A published energy of one operation.

    Attributes:
        operation: for example "add" or "access 64 bits, 8 kB SRAM".
        precision: of the operands, for example "int8"; "" if the source names none.
        picojoules: energy of one operation.
        node: technology, for example "45 nm, 0.9 V".
        source: publication.
    """

    operation: str
    precision: str
    picojoules: float
    node: str
    source: str


_HOROWITZ = "M. Horowitz, Computing's energy problem (and what we can do about it), ISSCC 2014, figure 1.1.9"
_DAVIES = "M. Davies et al., Loihi: a neuromorphic manycore processor with on-chip learning, IEEE Micro 38(1), 2018"
_MEROLLA = "P. Merolla et al., A million spiking-neuron integrated circuit, Science 345, 2014"
_FRENKEL = (
    "C. Frenkel et al., A 0.086-mm2 12.7-pJ/SOP 64k-synapse 256-neuron online-learning digital spiking neuromorphic "
    "processor in 28-nm CMOS, IEEE TBioCAS 13(1), 2019"
)


_45_NM, _14_NM = ("45 nm, 0.9 V", _HOROWITZ), ("14 nm, 0.75 V", _DAVIES)

PRICES: tuple[Price, ...] = (
    Price("add", "int8", 0.03, *_45_NM),
    Price("add", "int32", 0.1, *_45_NM),
    Price("add", "float16", 0.4, *_45_NM),
    Price("add", "float32", 0.9, *_45_NM),
    Price("multiply", "int8", 0.2, *_45_NM),
    Price("multiply", "int32", 3.1, *_45_NM),
    Price("multiply", "float16", 1.1, *_45_NM),
    Price("multiply", "float32", 3.7, *_45_NM),
    Price("access 64 bits, 8 kB SRAM", "", 10.0, *_45_NM),
    Price("access 64 bits, 32 kB SRAM", "", 20.0, *_45_NM),
    Price("access 64 bits, 1 MB SRAM", "", 100.0, *_45_NM),
    Price("access 64 bits, DRAM, at least", "", 1300.0, *_45_NM),
    Price("access 64 bits, DRAM, at most", "", 2600.0, *_45_NM),
    Price("synaptic operation, at least", "", 23.6, *_14_NM),
    Price("neuron update, active", "", 81.0, *_14_NM),
    Price("neuron update, inactive", "", 52.0, *_14_NM),
    Price("synaptic event, with all that the chip does", "", 26.0, "28 nm, 0.775 V", _MEROLLA),
    Price("synaptic operation, with the update of its neuron", "", 12.7, "28 nm, 0.55 V", _FRENKEL),
)


def _published_energy(operation: str, precision: str = "") -> float:
    (found,) = [row.picojoules for row in PRICES if (row.operation, row.precision) == (operation, precision)]
    return found


@dataclass(frozen=True)
class Hardware:
    """Energies of operations and memory accesses of a machine, in pJ, for `energy`.

    You can define your own, or change one of `HARDWARE` with `dataclasses.replace`.

    Args:
        name: the name in tables.
        mac: energy of a multiply-accumulate of a product.
        ac: energy of an accumulate: a spike adds a weight.
        multiplication, addition: energies of operations in neuron equations; a comparison counts as an addition.
        update: energy of a whole time step of a neuron, in place of its multiplications and additions.
        memories: pairs (capacity in bytes, pJ per byte read or written), ascending. An array lies in the smallest one
            that holds it, else in the last. Empty if the other figures already include memory accesses.
        weight_bytes, state_bytes, value_bytes, event_bytes: the size of a weight; of a neuron state or a sum; of an
            activation that is not a spike; and of the address of a spike.
        source: publication.
    Example:
        >>> mine = snncell.energy.Hardware("mine", mac=1.2, ac=0.3, update=4.0, weight_bytes=1)
        >>> mine.access(10_000)  # accesses cost nothing extra without memories
        0.0
    """

    name: str
    mac: NotNegative
    ac: NotNegative
    multiplication: NotNegative = 0.0
    addition: NotNegative = 0.0
    update: NotNegative | None = None
    memories: tuple[tuple[ExtendedReal, NotNegative], ...] = ()
    weight_bytes: NotNegative = 4
    state_bytes: NotNegative = 4
    value_bytes: NotNegative = 4
    event_bytes: NotNegative = 4
    source: str = ""

    def __post_init__(self) -> None:
        sizes = [holds for holds, _ in self.memories]
        if any(size <= 0.0 for size in sizes) or sizes != sorted(sizes):
            raise ArgumentError(
                f"Hardware: memories must be pairs (capacity in bytes, pJ per byte), the smallest first, for example "
                f"((8192, 1.25), (math.inf, 160.0)), not {show(self.memories)}."
            )

    def access(self, size: float) -> float:
        """The energy, in pJ, to read or write one byte of an array of `size` bytes."""
        fitting = (energy for holds, energy in self.memories if size <= holds)
        return next(fitting, self.memories[-1][1] if self.memories else 0.0)


_SIZES = {"8 kB SRAM": 8 << 10, "32 kB SRAM": 32 << 10, "1 MB SRAM": 1 << 20, "DRAM, at least": math.inf}
_MEMORIES = tuple((size, _published_energy(f"access 64 bits, {name}") / 8) for name, size in _SIZES.items())


def _digital(name: str, precision: str, sums: str, weight_bytes: int, state_bytes: int) -> Hardware:
    """Hardware with the arithmetic and memories of the 45 nm table: one precision for products, one for sums."""
    add, multiply = _published_energy("add", sums), _published_energy("multiply", sums)
    mac, sizes = _published_energy("multiply", precision) + add, (weight_bytes, state_bytes, weight_bytes)
    return Hardware(name, mac, add, multiply, add, None, _MEMORIES, *sizes, source=_HOROWITZ)


def _chip(name: str, operation: str, source: str, update: float = 0.0) -> Hardware:
    """A chip with one energy for a synaptic operation, memory included."""
    energy = _published_energy(operation)
    return Hardware(name, mac=energy, ac=energy, update=update, source=source)


_MACHINES = (
    _digital("45nm", "float32", "float32", 4, 4),
    _digital("45nm-float16", "float16", "float16", 2, 2),
    _digital("45nm-int8", "int8", "int32", 1, 4),
    _chip("loihi", "synaptic operation, at least", _DAVIES, _published_energy("neuron update, active")),
    _chip("truenorth", "synaptic event, with all that the chip does", _MEROLLA),
    _chip("odin", "synaptic operation, with the update of its neuron", _FRENKEL),
)
HARDWARE: Mapping[str, Hardware] = {each.name: each for each in _MACHINES}


def hardware_of(choice: Any, who: str, name: str = "hardware") -> Hardware:
    """Convert the argument `hardware` of `who`: a `Hardware`, or a name of `HARDWARE`."""
    if isinstance(choice, Hardware):
        return choice
    if not isinstance(choice, str):
        raise ArgumentError(f"{who}: {name} must be a name ({', '.join(HARDWARE)}) or a Hardware, not {show(choice)}.")
    if choice in HARDWARE:
        return HARDWARE[choice]
    meant = f" Did you mean {near!r}?" if (near := nearest(choice, HARDWARE)) else ""
    raise ArgumentError(
        f"{who}: unknown {name} {choice!r}.{meant} Known names are {', '.join(HARDWARE)}. You can also pass your own, "
        f"monitoring.Hardware(...)."
    )
