"""Izhikevich's simple model, which has the firing patterns of many kinds of cortical cells."""

from __future__ import annotations

from typing import Annotated, Any

from snncell.base.arguments.kinds import Own
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import FINITE, POSITIVE, Range
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Neuron
from snncell.tape.tensor import Tensor

KINDS = {  # a, b, c, d of the paper's figure 2
    "RS": (0.02, 0.2, -65.0, 8.0),
    "IB": (0.02, 0.2, -55.0, 4.0),
    "CH": (0.02, 0.2, -50.0, 2.0),
    "FS": (0.1, 0.2, -65.0, 2.0),
    "TC": (0.02, 0.25, -65.0, 0.05),
    "RZ": (0.1, 0.26, -65.0, 2.0),
    "LTS": (0.02, 0.25, -65.0, 2.0),
}


SUBSTEPS = Range(1, 1000, "both", "is a number from 1 on", whole=True)  # each is a part of the program


@with_fields
class IzhikevichNode(Neuron):
    """Izhikevich's neuron of 2003, in mV and ms.

    dv/dt = 0.04 v^2 + 5 v + 140 - u + x
    du/dt = a (b v - u)
    where v >= 30: a spike, v = c, u = u + d

    One step is `substeps` Euler steps of v, then one of u, as in the paper's program; the spike and the reset are at
    its end. The surrogate sees (v - 30) / scale.

    Inputs:
        x, v, u: the input, the potential in mV, and the recovery, of one shape.

    Returns:
        (s, v, u).

    Raises:
        ArgumentError: for dt, scale or substeps that are not positive, or an unknown kind of cell.

    Source: Izhikevich, "Simple Model of Spiking Neurons", IEEE Trans. Neural Networks 2003.

    Example:
        >>> node = nn.IzhikevichNode.named("RS")  # regular spiking; also IB, CH, FS, LTS, TC, RZ
        >>> print(nn.MultiStep(node)(ops.ones((200, 1)) * 10.0).sum())  # 10 for 200 ms
        5.0
    """

    a: Any = field(0.02, FINITE, "rate of the recovery u, 1 / ms")
    b: Any = field(0.2, FINITE, "strength with which the recovery follows the potential")
    c: Any = field(-65.0, None, "potential after a spike, mV", keep=False)
    d: Any = field(8.0, FINITE, "rise of u with a spike")
    dt: Annotated[float, Own()] = field(1.0, POSITIVE, "ms of a step", learned="never")
    substeps: Annotated[int, Own()] = field(
        2, SUBSTEPS, "steps of v in a step; the paper has 2 of 0.5 ms", learned="never"
    )
    scale: Annotated[float, Own()] = field(1.0, POSITIVE, "mV that the surrogate counts as 1", learned="never")
    order: str = field(
        "in turn", ("in turn", "together"), "u from the new v, as the paper's program, or from the old one (Norse)"
    )
    v_threshold = field(30.0)
    v_reset = field(None, follows="c")
    reset = field("value")
    compare = field(">=")
    resets = ("value",)
    delays = (None,)
    one_at_most = True

    @classmethod
    def named(cls, kind: str, **options: Any) -> IzhikevichNode:
        """One of the paper's cells.

        Args:
            kind: "RS" regular spiking, "IB" intrinsically bursting, "CH" chattering, "FS" fast spiking, "TC"
                thalamo-cortical, "RZ" resonator, "LTS" low-threshold spiking.
            options: as for the class.

        Raises:
            ArgumentError: for another name.
        """
        if kind not in KINDS:
            raise ArgumentError(f"IzhikevichNode.named: no kind {kind!r}; there are {', '.join(KINDS)}.")
        return cls(*KINDS[kind], **options)

    def construct(self, x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, before = self.gained(x), v
        for _ in range(self.substeps):
            v = v + (0.04 * v * v + 5.0 * v + 140.0 - u + x) * (self.dt / self.substeps)
        u = u + self.dt * self.a * (self.b * (v if self.order == "in turn" else before) - u)
        s = self.fire_at((v - self.v_threshold) / self.scale)
        return s, self.after_reset(v, s), u + self.d * s

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The paper's: v = -65 mV, u = b v."""
        return self.filled(x, -65.0), self.filled(x, self.b) * -65.0
