"""Recurrent weights of event-driven layers: the option and the matrix that `EventPropLIF` and `EventDense` share."""

from __future__ import annotations

from snncell import ops
from snncell.cell.fields import field
from snncell.tape.tensor import Tensor

RECURRENT_INIT = field(
    None,
    meaning="if given, each spike of a neuron also arrives at all neurons of the layer, with the weight "
    "recurrent_weight (out_channels, out_channels), of which this is the initial value. A neuron is silent after its "
    "K-th spike, so choose `spikes` large enough: a neuron whose last time is not inf may have sent too few spikes",
    keep=False,
)


def columns(of_inputs: Tensor, of_neurons: Tensor | None) -> Tensor:
    """The weights or delays of a layer with a column per neuron, (N_in, N), or (N_in + N, N) with recurrent ones."""
    return of_inputs.T if of_neurons is None else ops.concat([of_inputs.T, of_neurons.T])
