"""Copies of Parameters: with the same values, or begun anew."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor

p = Parameter(Tensor(np.array([1.0, 2.0]), ms.float32), name="p")
same, zeros, sevens = p.clone(), p.clone("zeros"), p.clone(7.0)
print(same, same.asnumpy(), zeros.asnumpy(), sevens.asnumpy())
# prints Parameter (name=p, shape=(2,), dtype=Float32, requires_grad=True) [1. 2.] [0. 0.] [7. 7.]

moments = ParameterTuple((p,)).clone("moment", init="zeros")
print(moments[0].name, moments[0].asnumpy())
# prints moment.p [0. 0.]

p[0] = 5.0
print(p.asnumpy(), same.asnumpy())
# prints [5. 2.] [1. 2.]
