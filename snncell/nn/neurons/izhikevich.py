"""Izhikevich's simple model, which has the firing patterns of many kinds of cortical cells."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Unpack

from snncell.arguments.kinds import Own
from snncell.common.ranges import POSITIVE, Range, one_of
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Firing, Neuron
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


class IzhikevichNode(Neuron):
    """Izhikevich's neuron of 2003, in mV and ms.

    dv/dt = 0.04 v^2 + 5 v + 140 - u + x
    du/dt = a (b v - u)
    where v >= 30: a spike, v = c, u = u + d

    One step is `substeps` Euler steps of v, then one of u, as in the paper's program; the spike and the reset are at
    its end. The surrogate sees (v - 30) / scale.

    Args:
        a: rate of the recovery u, 1 / ms.
        b: how strongly the recovery follows the potential.
        c: where a spike puts v, mV.
        d: what a spike adds to u.
        dt: ms of a step.
        substeps: of v in a step; the paper has 2 of 0.5 ms.
        order: "in turn" computes u from the new v, as the paper's program; "together" from the old one (Norse).
        scale: mV that the surrogate counts as 1.
        options: v_threshold (30), detach_reset, surrogate_function, compare (">="), input_gain, learnable.

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

    a: Any
    b: Any
    d: Any
    ranges: ClassVar = {
        "dt": POSITIVE,
        "scale": POSITIVE,
        "substeps": Range(1, 1000, "both", "is a number from 1 on", whole=True),  # each is a part of the program
    }
    resets = ("value",)
    delays = (None,)
    one_at_most = True

    def __init__(
        self,
        a: Any = 0.02,
        b: Any = 0.2,
        c: Any = -65.0,
        d: Any = 8.0,
        dt: Annotated[float, Own()] = 1.0,
        substeps: Annotated[int, Own()] = 2,
        scale: Annotated[float, Own()] = 1.0,
        order: str = "in turn",
        **options: Unpack[Firing],
    ) -> None:
        who = type(self).__name__
        defaults: Firing = {"v_threshold": 30.0, "compare": ">=", "reset": "value", "v_reset": c, **options}
        super().__init__({"a": a, "b": b, "d": d}, **defaults)
        one_of(self.max_spikes, (1,), who, "max_spikes")
        self.order = one_of(order, ("in turn", "together"), who, "order")
        self.declare("dt", "scale", "substeps")
        self.dt, self.scale, self.substeps = dt, scale, substeps

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
