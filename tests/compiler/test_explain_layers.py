"""`explain`: the table of layers and its other details."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
from interpreting import interpreted  # noqa: F401

import snncell
from snncell import Tensor, nn, ops
from snncell.errors import ArgumentError

STEPS, BATCH = 8, 4


class Competing(nn.Cell):
    """A neuron with a step that is not elementwise, because the largest potential of a sample inhibits the others."""

    def construct(self, x: Tensor, v: Tensor) -> Any:
        h = v * 0.9 + x
        spike = (h >= h.max(axis=1, keepdims=True)).astype(snncell.float32)
        return spike, h - spike


def training_step() -> tuple[Any, Tensor, Tensor]:
    """A training step of two spiking layers with Adam, and its inputs."""
    net = nn.SequentialCell(
        nn.Dense(20, 10), nn.MultiStep(nn.LIFNode()), nn.Dense(10, 3), nn.MultiStep(nn.LIFNode())
    ).set_train()
    optimiser = nn.Adam(net.trainable_params(), 1e-3)
    gradients = snncell.value_and_grad(
        lambda x, y: ops.cross_entropy(net(x).mean(axis=0), y), None, optimiser.parameters
    )

    @snncell.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss, slopes = gradients(x, y)
        optimiser(slopes)
        return loss

    return step, ops.ones((STEPS, BATCH, 20)), Tensor([0, 1, 2, 0])


def rows_of(text: str) -> dict[str, dict[str, str]]:
    """Map each layer of the table to its facts by column title."""
    rows: dict[str, dict[str, str]] = {}
    for line in re.sub(r"\n {14}", " ", text).splitlines()[2:]:
        if not line:
            return rows
        if line.startswith("    "):
            title, fact = line.split(maxsplit=1)
            rows[list(rows)[-1]][title] = fact
        else:
            rows[re.sub(r"  +.*", "", line)] = {}
    return rows


@pytest.mark.usefixtures("interpreted")
def test_training_step_has_one_row_per_layer_and_fits_on_a_screen() -> None:
    text = snncell.explain(*training_step())
    rows = rows_of(text)
    layers = ["0 Dense", "1 MultiStep(LIFNode)", "2 Dense", "3 MultiStep(LIFNode)", "outside of layers", "Adam"]
    assert list(rows) == layers
    assert len(text.splitlines()) <= 40 and max(map(len, text.splitlines())) <= 118
    for layer in ("1 MultiStep(LIFNode)", "3 MultiStep(LIFNode)"):
        assert rows[layer]["forward"].startswith("fused: one kernel, one thread, 8 steps")
        assert rows[layer]["backward"].startswith("fused: one kernel, one thread, 8 steps")
        assert "slow" not in rows[layer]
    assert f"float32[{STEPS}, {BATCH}, 10]" in rows["1 MultiStep(LIFNode)"]["stored"]
    assert rows["0 Dense"]["forward"].startswith("matmul by BLAS; fused into 1: add")
    assert rows["Adam"].keys() == {"update"}
    assert 'detail="launches"' in text and "kB stored" in text.split("total: ")[1]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("net", [nn.Stateful(nn.LIFNode(tau=2.0)), nn.BatchNorm1d(3).set_train()])
def test_layer_that_writes_states_or_statistics_is_no_update(net: nn.Cell) -> None:
    (row,) = rows_of(snncell.explain(net, ops.ones((BATCH, 3)))).values()
    assert row.keys() == {"forward"}


@pytest.mark.usefixtures("interpreted")
def test_loop_without_kernel_is_marked_slow_with_its_reason() -> None:
    net = nn.SequentialCell(nn.Dense(3, 5), nn.MultiStep(Competing()))
    row = rows_of(snncell.explain(net, ops.ones((STEPS, BATCH, 3))))["1 MultiStep(Competing)"]
    assert row["forward"].startswith("not fused: 8 steps one by one")
    assert "max" in row["slow"] and "h.max(axis=1, keepdims=True)" in row["slow"]


@pytest.mark.usefixtures("interpreted")
def test_layers_inside_a_cell_are_named_by_their_path() -> None:
    class Block(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm((3,))
            self.act = nn.Tanh()

        def construct(self, x: Tensor) -> Any:
            return x + self.act(self.norm(x))

    net = nn.SequentialCell(Block(), Block())
    rows = rows_of(snncell.explain(net, ops.ones((BATCH, 3))))
    assert {"0.norm LayerNorm", "1.norm LayerNorm"} <= rows.keys() <= {
        f"{n}{path}" for n in (0, 1) for path in (" Block", ".norm LayerNorm", ".act Tanh")
    }  # fmt: skip


@pytest.mark.usefixtures("interpreted")
def test_custom_gradient_is_listed_under_its_layer() -> None:
    class Doubled(nn.Cell):
        def construct(self, x: Tensor) -> Any:
            return ops.sort(x)[0]

        def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
            return (ops.sort(dout)[0],)

    net = nn.SequentialCell(nn.Tanh(), Doubled())
    rows = rows_of(snncell.explain(snncell.grad(lambda x: (net(x) * x).sum()), ops.ones((BATCH, 3))))
    assert "argsort" in rows["1 Doubled"]["forward"] and "argsort" in rows["1 Doubled"]["backward"]


@pytest.mark.usefixtures("interpreted")
def test_details_are_plain_text_in_consoles_and_notebooks() -> None:
    x = ops.ones((2, 3))
    texts = {detail: snncell.explain(nn.Dense(3, 2), x, detail=detail) for detail in ("layers", "launches", "program")}
    assert texts["layers"].startswith("Dense, compiled for the CPU")
    assert "launches:" in texts["launches"] and "program(" not in texts["launches"]
    assert texts["program"].startswith("program(%0:float32[2,3])")
    for text in texts.values():
        assert repr(text) == str(text)
        for same in (pickle.loads(pickle.dumps(text)), copy.deepcopy(text)):
            assert same == text and same._repr_html_()
    assert "<table>" in texts["layers"]._repr_html_()
    assert texts["program"]._repr_html_().startswith("<pre>program(%0") and "&#x27;" not in texts["launches"]
    passes = snncell.explain_passes(nn.Dense(3, 2), x)
    assert repr(passes) == str(passes) and "<pre>" in passes._repr_html_()


def test_unknown_detail_raises() -> None:
    with pytest.raises(ArgumentError, match=r'detail is "layers", "launches" or "program", not \'kernels\''):
        snncell.explain(nn.Dense(3, 2), ops.ones((2, 3)), detail="kernels")
