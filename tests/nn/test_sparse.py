"""SparseDense against a masked dense layer: random patterns, places in loops over time, dtypes, threads and errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse
from thread_counts import on_threads

import snncell
from snncell import Parameter, Tensor, nn, ops, testing
from snncell.errors import ArgumentError, DTypeError, ShapeError, TensorIndexError
from snncell.kernels.products import sparse as kernels
from snncell.kernels.products.csr import Rows
from snncell.nn.layers.sparse import draw_places, on_pattern, pointers

# Shares of synapses and of nonzero inputs, and sizes: with empty rows and columns, several strips of samples, several
# groups of synapses, and inputs of one row or of one element.
SIZES = [(1, 1, 1), (5, 7, 3), (70, 40, 9), (3, 300, 200), (129, 33, 64)]  # samples, inputs, outputs


def case(sizes, density, rate, dtype=np.float64):
    """Rows x and y, and a matrix M with at least one element, as an array and as rows."""
    samples, inputs, outputs = sizes
    rng = np.random.default_rng([*sizes, int(100 * density), int(100 * rate)])
    there = rng.random((inputs, outputs)) < density
    there[rng.integers(inputs), rng.integers(outputs)] = True
    m = rng.normal(size=(inputs, outputs)) * there
    x = rng.normal(size=(samples, inputs)) * (rng.random((samples, inputs)) < rate)
    x, y, m = (each.astype(dtype) for each in (x, rng.normal(size=(samples, outputs)), m))
    starts, places = pointers(np.flatnonzero(there), m.shape)
    return x, y, m, there, Rows(starts, places, m[there], m.shape)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("sizes", SIZES)
def test_products_equal_dense_products_and_have_the_same_bits_on_two_threads(sizes, dtype, monkeypatch):
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 0)
    for density, rate in itertools.product([0.02, 0.3, 1.0], [0.0, 0.02, 0.5, 1.0]):
        x, y, m, there, rows = case(sizes, density, rate, dtype)
        found = []
        for number in (1, 2):
            with on_threads(number):
                results = kernels.product(rows, x, False), kernels.product(rows, y, True)
                found.append([*results, kernels.product_on_pattern(rows.starts, rows.places, x, y)])
        for one, two, dense in zip(*found, (x @ m, y @ m.T, (x.T @ y)[there]), strict=True):
            np.testing.assert_array_equal(one, two)
            tight = 1e-13 if dtype == np.float64 else 1e-5
            np.testing.assert_allclose(one, dense, rtol=tight, atol=tight * 10)


class Masked(nn.Cell):
    """The dense layer of a sparse one."""

    def __init__(self, layer):
        super().__init__()
        self.weight = Parameter(layer.to_scipy().toarray())
        self.mask, self.bias = Tensor((self.weight.asnumpy() != 0).astype(np.float64)), layer.bias

    def construct(self, x):
        return ops.matmul(x, (self.weight * self.mask).T) + self.bias


class Neurons(nn.Cell):
    """LIF neurons with a layer inside of their time step."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.lif = layer, nn.LIFNode(tau=2.0, v_threshold=0.2)

    def construct(self, x, v):
        return self.lif(self.layer(x), v)


def over_time(make):
    """Around a layer: nothing, a loop with neurons after it, and a recurrent loop, in which it runs step by step."""
    return {
        "alone": make,
        "loop": lambda layer: nn.MultiStep(Neurons(make(layer))),
        "recurrent": lambda layer: nn.MultiStep(nn.Recurrent(nn.LIFNode(tau=2.0, v_threshold=0.2), make(layer))),
    }


@pytest.mark.parametrize("place", ["alone", "loop", "recurrent"])
def test_layer_and_gradients_equal_masked_dense_layer(run, rng, place):
    snncell.set_seed(2)
    layer = nn.SparseDense(6, 6, density=0.3, dtype="float64")
    x = Tensor(rng.normal(size=(5, 3, 6)) * (rng.random((5, 3, 6)) < 0.6))
    results = []
    for make in (lambda layer: layer, Masked):
        net = over_time(make)[place](layer)
        own = next(cell for cell in net.cells_and_names() if type(cell[1]) in (nn.SparseDense, Masked))[1]
        loss = lambda x, net=net: (net(x) * Tensor(np.arange(90.0).reshape(5, 3, 6))).sum()  # noqa: E731
        value, (of_x, of_weights) = run(snncell.value_and_grad(loss, 0, [own.weight, own.bias]))(x)
        results.append([each.asnumpy() for each in (value, of_x, *of_weights)])
    sparse, dense = results
    dense[2] = dense[2].T[layer.to_scipy().toarray().T != 0]
    for mine, theirs in zip(sparse, dense, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)


def test_gradients_of_first_and_second_order_agree_with_differences(run, rng):
    layer, x = nn.SparseDense(7, 5, density=0.4, dtype="float64"), Tensor(rng.normal(size=(2, 3, 7)))
    testing.check_grads(run(layer), x, weights=[layer.weight, layer.bias])

    def penalty(x):
        of_x, of_w = ops.grad(lambda x: (layer(x) ** 3).sum(), 0, [layer.weight])(x)
        return ops.square(of_x).sum() + ops.square(of_w[0]).sum()

    testing.check_grads(run(penalty), x, weights=[layer.weight])


def test_summed_gradients_of_constant_operands_equal_those_of_repeated_ones(rng):
    x, y, _, _, rows = case((4, 6, 5), 0.4, 1.0)
    for varying in ([True, True], [True, False], [False, True]):
        given = [np.stack([z, 2 * z, z]) if v else z for z, v in zip((x, y), varying, strict=True)]
        every = [z if v else np.stack([z] * 3) for z, v in zip(given, varying, strict=True)]
        found = on_pattern.summed([rows.starts, rows.places, *given], [False, False, *varying], {})
        steps = on_pattern.over_time([rows.starts, rows.places, *every], [False, False, True, True], {})
        np.testing.assert_allclose(found, steps.sum(0), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_initial_scale_and_copies(dtype, tmp_path):
    snncell.set_seed(0)
    pattern = scipy.sparse.random_array((40, 300), density=0.1, format="csr", rng=np.random.default_rng(0))
    pattern.data[pattern.indptr[3] : pattern.indptr[4]] = 0.0
    pattern.eliminate_zeros()
    layer = nn.SparseDense(300, 40, pattern=pattern, dtype=dtype)
    w = layer.to_scipy()
    assert (w.toarray() != 0).sum() == pattern.nnz and not ((w.toarray() != 0) & (pattern.toarray() == 0)).any()
    fan_in = np.maximum(pattern.count_nonzero(axis=1), 1)
    scaled = np.abs(w.toarray()) * np.sqrt(fan_in)[:, None]
    assert 0.9 < scaled.max() < 1.01 and abs(scaled.sum() / pattern.nnz - 0.5) < 0.05
    out = layer(ops.ones((2, 300), dtype))
    assert out.dtype.name == dtype and (out[:, 3].asnumpy() == layer.bias[3].asnumpy()).all()
    snncell.save_checkpoint(layer, tmp_path / "layer.ckpt")
    other = nn.SparseDense(300, 40, density=pattern.nnz / 12000, dtype=dtype)
    snncell.load_checkpoint(tmp_path / "layer.ckpt", other)
    np.testing.assert_array_equal(other(ops.ones((2, 300), dtype)).asnumpy(), out.asnumpy())
    assert f"{pattern.nnz} synapses (9.8 %)" in repr(layer)


@pytest.mark.parametrize(("number", "total", "taken"), [(0, 9, 3), (40, 1000, 900), (100, 1000, 0), (1000, 1000, 0)])
def test_drawn_places_are_new_different_and_spread(number, total, taken):
    before = np.sort(np.random.default_rng(1).permutation(total)[:taken])
    found = draw_places(number, total, before)
    assert len(set(found.tolist())) == len(found) == number and not np.isin(found, before).any()
    assert number == 0 or abs(found.mean() - total / 2) < total / 5


def test_a_damaged_pattern_is_refused():
    layer = nn.SparseDense(4, 3, density=0.5)
    layer.indices[...] = Tensor(np.full(6, 7, np.int32))
    with pytest.raises(TensorIndexError, match=r"row 0 of .* must ascend and be from 0 to 2"):
        layer(ops.ones((2, 4)))


def test_a_pattern_that_is_written_in_place_is_noticed(rng):
    layer, x = nn.SparseDense(4, 3, pattern=np.eye(3, 4), dtype="float64"), Tensor(rng.normal(size=(5, 4)))
    layer(x)
    layer.indices._data[...] = [2, 0, 1]  # as PyTorch does
    expected = x.asnumpy() @ layer.to_scipy().toarray().T + layer.bias.asnumpy()
    np.testing.assert_allclose(layer(x).asnumpy(), expected, rtol=1e-12)


@pytest.mark.compiled
def test_explain_names_the_synapses():
    layer = nn.SparseDense(100, 50, density=0.1)
    words = snncell.explain(snncell.jit(layer), ops.ones((4, 100)))
    assert "sparse_product of 500 synapses, event-driven below 7 % of non-zero elements" in " ".join(words.split())


def sparse(**options):
    return nn.SparseDense(3, 2, **options)


REFUSED = [
    (lambda: sparse(), ArgumentError, r"either density or pattern, not neither; for example nn.SparseDense\(3, 2, den"),
    (lambda: sparse(density=0.5, pattern=np.eye(2, 3)), ArgumentError, "either density or pattern, not both"),
    (lambda: sparse(density=0.0), ArgumentError, r"density is .* in \(0, 1\]"),
    (lambda: sparse(density=0.01), ArgumentError, "at least one synapse, but density=0.01 of 3 x 2 is none"),
    (lambda: sparse(pattern=np.zeros((2, 3))), ArgumentError, "at least one synapse, but the pattern has none"),
    (lambda: sparse(pattern=np.eye(3, 2)), ShapeError, r"\(out_channels, in_channels\) = \(2, 3\). Transpose it"),
    (lambda: sparse(pattern=np.eye(4)), ShapeError, r"pattern has shape \(4, 4\), but must be .* = \(2, 3\)\.$"),
    (lambda: sparse(pattern="dense"), ArgumentError, "a matrix of scipy.sparse or a NumPy array, not a str"),
    (
        lambda: sparse(pattern=scipy.sparse.coo_array(([1, 1], ([1, 1], [2, 2])), (2, 3))),
        ArgumentError,
        r"several elements in row 1, column 2. Call pattern.sum_duplicates\(\)",
    ),
    (
        lambda: sparse(density=0.5)(ops.ones((4, 2))),
        ShapeError,
        r"has shape \(4, 2\); its last axis .* in_channels = 3",
    ),
    (lambda: sparse(density=0.5)(Tensor([[1j, 0.0, 1.0]])), DTypeError, "x is Complex64.* real and imaginary parts"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED, ids=[row[2][:40] for row in REFUSED])
def test_invalid_arguments_raise(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
