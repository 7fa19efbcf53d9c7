"""Spiking transformers: spiking self-attention, and the transformer block of Spikformer."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

from snncell.base.arguments.kinds import Count, Own, Positive
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.container import SequentialCell
from snncell.nn.layers.linear import Dense
from snncell.nn.layers.norm import BatchNorm1d
from snncell.nn.neurons.integrate import LIFNode
from snncell.nn.time.axis import check_time_axis
from snncell.nn.time.multistep import MultiStep
from snncell.surrogate import Sigmoid
from snncell.tape.tensor import Tensor

__all__ = ["SpikformerBlock", "SpikingSelfAttention"]


def spikformer_neuron(v_threshold: float) -> LIFNode:
    """The LIF neuron of Spikformer: SpikingJelly's defaults with a detached reset."""
    options: dict[str, Any] = {"reset": "zero", "detach_reset": True, "compare": ">="}
    return LIFNode(2.0, v_threshold, surrogate_function=Sigmoid(4.0), **options)


def make_neurons(neuron: Any, v_threshold: float, who: str) -> MultiStep:
    """The MultiStep of a new neuron, which the user's function `neuron` returns."""
    made = neuron(v_threshold=v_threshold) if _takes_threshold(neuron) else None
    if not isinstance(made, Cell):
        what = f"one that returns {show(made)}" if made is not None else show(neuron)
        raise ArgumentError(
            f"{who}: neuron must be a function of v_threshold that returns a new neuron, not {what}. For example, pass "
            f"functools.partial(nn.LIFNode, 2.0)."
        )
    return MultiStep(made)


def _takes_threshold(neuron: Any) -> bool:
    try:
        inspect.signature(neuron).bind(v_threshold=1.0)
    except (TypeError, ValueError):
        return False
    return not isinstance(neuron, Cell)


class SpikingDense(Cell):
    """Dense layer, batch normalisation over all steps and tokens, and neurons: (T, B, N, inputs) to (T, B, N, D)."""

    def __init__(self, inputs: int, outputs: int, neuron: Any, who: str) -> None:
        super().__init__()
        self.dense = Dense(inputs, outputs, has_bias=False)  # because the normalisation has a bias
        self.norm = BatchNorm1d(outputs)
        self.neurons = make_neurons(neuron, 1.0, who)

    def construct(self, x: Tensor) -> Tensor:
        current = self.dense(x)
        spikes: Tensor = self.neurons(self.norm(current.reshape((-1, current.shape[-1]))).reshape(current.shape))
        return spikes


NUM_HEADS = field(8, meaning="the number of heads, a divisor of D")
NEURON = field(
    spikformer_neuron,
    meaning="a function that returns a new neuron, any Cell of one step, for example functools.partial(nn.LIFNode, "
    "2.0). It is called with v_threshold=1.0, and with 0.5 for the neurons after attention. The default is the paper's "
    'LIF: tau=2, reset="zero", detach_reset=True, compare=">=" and Sigmoid(4)',
    keep=False,
)
SCALE: Any = field(0.125, meaning="the factor of the attention")


@with_fields
class SpikingSelfAttention(Cell):
    """Spiking self-attention (SSA): attention between tokens without softmax; queries, keys and values are spikes.

        q, k, v = LIF(BN(x W))                   three weights; then split into heads of d = D / num_heads features
        a = LIF(scale q k^T v)                   for each head, with a threshold of 0.5
        y = LIF(BN(a W))

    Spikes are not negative, so the scores q k^T are not negative either, and softmax is not needed. Without softmax,
    (q k^T) v = q (k^T v), and the layer computes the cheaper product: for N > d its cost grows with N instead of N^2.
    Sums of products of spikes are whole numbers, so both products give the same bits (up to 2^24).

    The weights of q, k and v are one Parameter, (3 D, D). As in `Dense`, spikes make the products event-driven.
    Inputs: x: (T, B, N, D): N tokens, for example patches of an image; usually spikes or sums of spikes.
    Returns: spikes, (T, B, N, D).
    Raises: ArgumentError if num_heads does not divide D; ShapeError for x of another shape.
    Source: Zhou, Zhu, He, Wang, Yan, Tian and Yuan, "Spikformer: When Spiking Neural Network Meets Transformer", ICLR
    2023; SpikingJelly, SpikingSelfAttention, on (T, B, D, N).
    Example:
        >>> layer = nn.SpikingSelfAttention(32, num_heads=4)
        >>> layer.set_train()(ops.uniform((4, 2, 16, 32))).shape  # (T, B, N, D)
        (4, 2, 16, 32)
    """

    dim: Annotated[Count, field(meaning="D, the number of features of a token")]
    num_heads: Count = NUM_HEADS
    neuron: Annotated[Any, Own()] = NEURON
    scale: Positive = SCALE

    def _complete(self, given: dict[str, Any]) -> None:
        if self.dim % self.num_heads:
            raise ArgumentError(
                f"{type(self).__name__}: num_heads must divide dim, because each head has dim / num_heads features, "
                f"but dim is {self.dim} and num_heads is {self.num_heads}."
            )
        neuron, who = given["neuron"], type(self).__name__
        self.qkv = SpikingDense(self.dim, 3 * self.dim, neuron, who)
        self.attention = make_neurons(neuron, 0.5, who)
        self.projection = SpikingDense(self.dim, self.dim, neuron, who)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The spikes q, k and v of each head, (T, B, num_heads, N, d); for example, q k^T is the attention map."""
        if x.ndim != 4 or x.shape[3] != self.dim:
            raise ShapeError(f"SpikingSelfAttention: x must be (T, B, N, {self.dim}) with N tokens, not {x.shape}.")
        check_time_axis(x, type(self).__name__)
        steps, batch, tokens, _ = x.shape
        spikes = self.qkv(x).reshape((steps, batch, tokens, 3, self.num_heads, self.dim // self.num_heads))
        q, k, v = (spikes[:, :, :, i].transpose((0, 1, 3, 2, 4)) for i in range(3))
        return q, k, v

    def construct(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        turned = k.transpose((0, 1, 2, 4, 3))
        tokens, features = q.shape[3:]
        mixed = (q @ turned) @ v if tokens <= features else q @ (turned @ v)
        a = self.attention(mixed * self.scale)  # scaled last, so that the products are whole numbers
        y: Tensor = self.projection(a.transpose((0, 1, 3, 2, 4)).reshape(x.shape))
        return y

    def extend_repr(self) -> str:
        return f"dim={self.dim}, num_heads={self.num_heads}, scale={self.scale}"


@with_fields
class SpikformerBlock(Cell):
    """Spikformer block: spiking self-attention and a two-layer spiking network (MLP), each with a residual connection.

        x = x + SSA(x)
        y = x + LIF(BN(LIF(BN(x W_1)) W_2))      with mlp_ratio * D hidden neurons per token

    As in `SEWBlock` with connect="ADD", a silent branch passes x on. After L blocks on spikes, y is 0, 1, ..., 2 L + 1.
    Inputs, Returns: x and y: (T, B, N, D), as for `SpikingSelfAttention`.
    Source: as for `SpikingSelfAttention`; SpikingJelly, SpikformerBlock.
    Example:
        >>> net = nn.SequentialCell(nn.SpikformerBlock(32, num_heads=4), nn.SpikformerBlock(32, num_heads=4))
        >>> net.set_train()(ops.ones((4, 2, 16, 32))).shape  # (T, B, N, D)
        (4, 2, 16, 32)
    """

    dim: Annotated[Count, field(meaning="D, the number of features of a token")]
    num_heads: Count = NUM_HEADS
    mlp_ratio: Positive = field(4.0, meaning="hidden neurons per feature of a token", keep=False)
    neuron: Annotated[Any, Own()] = NEURON
    scale: Positive = SCALE

    def _complete(self, given: dict[str, Any]) -> None:
        hidden, neuron, who = int(self.dim * given["mlp_ratio"]), given["neuron"], type(self).__name__
        if not hidden:
            raise ArgumentError(f"{who}: mlp_ratio {given['mlp_ratio']} gives no hidden neuron for dim {self.dim}.")
        self.attention = SpikingSelfAttention(self.dim, self.num_heads, neuron, self.scale)
        self.mlp = SequentialCell(
            SpikingDense(self.dim, hidden, neuron, who), SpikingDense(hidden, self.dim, neuron, who)
        )

    def construct(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        y: Tensor = x + self.mlp(x)
        return y

    def extend_repr(self) -> str:
        return ""
