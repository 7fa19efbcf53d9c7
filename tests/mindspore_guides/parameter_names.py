"""Names of Parameters: they are the paths to them, and what Cells say of the Parameters and Cells that are in them."""

import mindspore as ms
from mindspore import Parameter, Tensor, nn


class Inner(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 3)
        self.act = nn.ReLU()

    def construct(self, x):
        return self.act(self.fc(x))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.scale = Parameter(Tensor([1.0], ms.float32), name="scale")
        self.inner = Inner()
        self.head = nn.Dense(3, 2, has_bias=False)

    def construct(self, x):
        return self.head(self.inner(x)) * self.scale


net = Net()
print([p.name for p in net.trainable_params()])
# prints ['scale', 'inner.fc.weight', 'inner.fc.bias', 'head.weight']
print([name for name, _ in net.parameters_and_names()])
# prints ['scale', 'inner.fc.weight', 'inner.fc.bias', 'head.weight']
print([name for name, _ in net.cells_and_names()])
# prints ['', 'inner', 'inner.fc', 'inner.act', 'head']
print(list(net.name_cells()))
# prints ['inner', 'head']
print(sorted(net.parameters_dict()))
# prints ['head.weight', 'inner.fc.bias', 'inner.fc.weight', 'scale']

stack = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 1))
print([p.name for p in stack.trainable_params()])
# prints ['0.weight', '0.bias', '1.weight', '1.bias']
stack.update_parameters_name("left.")
print([p.name for p in stack.trainable_params()][:2])
# prints ['left.0.weight', 'left.0.bias']

print(net.inner)
# prints Inner(
# prints   (fc): Dense(input_channels=4, output_channels=3, has_bias=True)
# prints   (act): ReLU()
# prints )

# --- added later, and applied to all ----------------------------------------------------------------------------------

cell = nn.Cell()
cell.insert_child_to_cell("dense", nn.Dense(2, 2))
cell.insert_param_to_cell("bias", Parameter(Tensor([0.0], ms.float32), name="bias"))
print(sorted(p.name for p in cell.get_parameters()))
# prints ['bias', 'dense.bias', 'dense.weight']


def to_ones(cell):
    if isinstance(cell, nn.Dense):
        cell.weight.set_data(Tensor([[1.0, 1.0], [1.0, 1.0]], ms.float32))


cell.apply(to_ones)
print(cell.dense.weight.asnumpy().sum())
# prints 4.0
