"""`snncell.torch.fused` before it needs PyTorch: its options, and the error without PyTorch."""

import sys

import pytest

from snncell import nn, ops
from snncell.errors import ArgumentError, PackageError
from snncell.torch import fused


class Buffered(nn.Cell):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", ops.ones((1,)))


REFUSED = [
    (nn.LIFNode(), {"states": "some"}, 'states is "initial" or "returned" or "kept", not \'some\''),
    (nn.Dense(2, 3), {"over_time": False}, r"fused\(Dense\): over_time and states are for neurons"),
    (nn.MultiStep(nn.LIFNode()), {"states": "kept"}, r"fused\(MultiStep\): over_time and states are for neurons"),
    (nn.LIFNode(), {"over_time": False, "states": "initial"}, "states must be 'returned' or 'kept'"),
    (nn.Stateful(nn.LIFNode()), {}, "Pass the neuron with states='kept'"),
    (Buffered(), {}, r"fused\(Buffered\): the Cell has buffers"),
]


@pytest.mark.parametrize(("cell", "options", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_options_that_do_not_fit_the_cell_raise(cell, options, words):
    with pytest.raises(ArgumentError, match=words):
        fused(cell, **options)


@pytest.mark.parametrize("cell", [nn.LIFNode(), nn.Recurrent(nn.LIFNode(), nn.Dense(3, 3)), nn.Dense(2, 3)])
def test_missing_pytorch_names_the_command(monkeypatch, cell):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(PackageError, match=r'pip install "snncell\[torch\]"'):
        fused(cell)
