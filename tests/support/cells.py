"""Cells that several tests use, and a form of Tensor values that compares exactly."""

from snncell import Parameter, Tensor, nn, ops


def bits(tensor):
    """The elements as nested lists, for exact comparison."""
    return tensor.asnumpy().tolist()


def values(grads):
    return [None if g is None else g.asnumpy().tolist() for g in grads]


class Leaf(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor([1.0, 2.0]))
        self.b = Parameter(Tensor([0.0]), requires_grad=False)

    def construct(self, x):
        return x * self.w + self.b


class Spy(nn.Cell):
    """Double the input; `bprop` records its calls and returns 10 dout."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def construct(self, x):
        return x * 2.0

    def bprop(self, x, out, dout):
        self.calls.append((x, out, dout))
        return (dout * 10.0,)


class Wrong(nn.Cell):
    """sin(x) y, with first and second derivatives with respect to x that are off by given fractions."""

    def __init__(self, first=0.0, second=0.0, of_y=0.0):
        super().__init__()
        self.first, self.of_y = first, of_y
        self.slope = WrongSlope(second)

    def construct(self, x, y):
        return ops.sin(x) * y

    def bprop(self, x, y, out, dout):
        return dout * self.slope(x) * y * (1.0 + self.first), dout * ops.sin(x) * (1.0 + self.of_y)


class WrongSlope(nn.Cell):
    """cos(x), with a derivative that is off by a fraction."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def construct(self, x):
        return ops.cos(x)

    def bprop(self, x, out, dout):
        return (-dout * ops.sin(x) * (1.0 + self.error),)
