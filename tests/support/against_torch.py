"""Comparison of layers with PyTorch: the same weights, forward values and gradients."""

import numpy as np

from snncell import Tensor, ops


def filled(cell, rng):
    """Fill the Parameters of a Cell with random float64 numbers, so that no default value hides a mistake."""
    for path, p in cell.parameters_dict().items():
        low = 0.5 if "variance" in path or "gamma" in path else -1.0
        p.set_data(Tensor(rng.uniform(low, 1.5, p.shape)))
    return cell


def assert_like(torch, cell, module, x, names):
    """Compare forward values and gradients of input and Parameters with a torch module; `names` = {theirs: ours}."""
    module = module.double()
    for theirs, ours in names.items():
        getattr(module, theirs).data = torch.tensor(np.array(getattr(cell, ours).asnumpy()))
    theirs_x = torch.tensor(x, requires_grad=True)
    theirs_out = module(theirs_x)
    dout = np.random.default_rng(9).standard_normal(theirs_out.shape)
    theirs_out.backward(torch.tensor(dout))
    weights = [getattr(cell, ours) for ours in names.values()]
    out, pull = ops.vjp(cell, Tensor(x), weights=weights)
    (of_x,), of_weights = pull(Tensor(dout))
    np.testing.assert_allclose(out.asnumpy(), theirs_out.detach().numpy(), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(of_x.asnumpy(), theirs_x.grad.numpy(), rtol=1e-9, atol=1e-10)
    for theirs, found in zip(names, of_weights, strict=True):
        expected = getattr(module, theirs).grad.numpy()
        np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-9, atol=1e-10, err_msg=theirs)
