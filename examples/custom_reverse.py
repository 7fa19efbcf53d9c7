"""A Cell with a reverse of its own, for its input and for its weight, checked against the true gradient."""

import numpy as np

from snncell import Parameter, Tensor, nn, ops
from snncell.testing import check_bprop


class ClippedScale(nn.Cell):
    """y = w x, whose gradient with respect to x is limited to [-1, 1]: a brake on exploding gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor([2.0]), name="w")
        self.internal_params = [self.w]  # the Parameters whose gradients bprop gives

    def construct(self, x):
        return self.w * x

    def bprop(self, x, out, dout):
        dx = ops.clip(self.w * dout, -1.0, 1.0)
        return (dx,), {self.w: x * dout}


def main() -> None:
    """Take gradients, then let the check find where the reverse departs from the true one."""
    cell = ClippedScale()
    x = Tensor(np.array([0.1, -3.0, 0.5], np.float32))
    dx, dw = ops.grad(lambda x: (cell(x) ** 2).sum(), 0, cell.w)(x)
    print("gradient of x, limited:", dx)
    print("gradient of w:         ", dw)
    try:
        check_bprop(cell, Tensor([1.0, -3.0, 0.5]))
    except AssertionError as error:
        print("check_bprop:", error)


if __name__ == "__main__":
    main()
