"""Spiking neurons: Cells of one time step, `construct(x, *states) -> (output, *states)`, one file per family."""

from snncell.base.arguments.names import export as _export
from snncell.nn.neurons import presets as presets
from snncell.nn.neurons.base import Neuron as Neuron
from snncell.nn.neurons.constants import Membrane as Membrane
from snncell.nn.neurons.convert import (
    decay_from_euler as decay_from_euler,
    decay_from_lava as decay_from_lava,
    decay_from_rate as decay_from_rate,
    decay_from_tau as decay_from_tau,
    euler_from_decay as euler_from_decay,
    steps_from_seconds as steps_from_seconds,
    tau_from_decay as tau_from_decay,
)
from snncell.nn.neurons.current import (
    AlphaNode as AlphaNode,
    CobaLIFNode as CobaLIFNode,
    CubaLIFNode as CubaLIFNode,
    ShortTermPlasticity as ShortTermPlasticity,
    WithSynapse as WithSynapse,
)
from snncell.nn.neurons.event_dense import EventDense as EventDense
from snncell.nn.neurons.event_driven import (
    EventALIF as EventALIF,
    EventLI as EventLI,
    EventLIF as EventLIF,
    EventNeuron as EventNeuron,
    EventQIF as EventQIF,
)
from snncell.nn.neurons.integrate import (
    IFNode as IFNode,
    LeakyNode as LeakyNode,
    LIFNode as LIFNode,
    LINode as LINode,
    ParametricLIFNode as ParametricLIFNode,
)
from snncell.nn.neurons.nonlinear import (
    AdaptiveQIFNode as AdaptiveQIFNode,
    AdExNode as AdExNode,
    EIFNode as EIFNode,
    IzhikevichNode as IzhikevichNode,
    QIFNode as QIFNode,
)
from snncell.nn.neurons.sequences import PSN as PSN, Readout as Readout, SlidingPSN as SlidingPSN
from snncell.nn.neurons.variants import (
    ALIFNode as ALIFNode,
    BalancedResonateNode as BalancedResonateNode,
    CLIFNode as CLIFNode,
    GLIFNode as GLIFNode,
    ILIFNode as ILIFNode,
    KLIFNode as KLIFNode,
    MultiSpikeLIFNode as MultiSpikeLIFNode,
    RefractoryLIFNode as RefractoryLIFNode,
    ResonateNode as ResonateNode,
    TCLIFNode as TCLIFNode,
)

_export(globals())
