"""Display of Cells, Tensors and optimisers: HTML for notebooks, and the text of optimisers."""

from html.parser import HTMLParser

import numpy as np
import pytest
from interpreting import interpreted  # noqa: F401

import snncell
from snncell import Parameter, Tensor, nn, ops, train
from snncell.base.arguments.shown import ROWS

VOID = {"br"}
KNOWN = {"div", "b", "pre", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "br"}
NASTY = '<script src="http://x">alert(1)</script> & \' " </td>'


class Page(HTMLParser):
    """Parse a piece of HTML: its elements, which must be closed in order, and its text."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.rows, self.inside = [], [], "", [], []
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert tag in KNOWN and {name for name, _ in attributes} <= {"style", "open"}
        assert not any("url" in (value or "") for _, value in attributes)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.inside.append([])
            self.rows.append(self.inside[-1])
        if tag in ("td", "th"):
            self.inside[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        parents = {"td": "tr", "th": "tr", "tr": ("thead", "tbody"), "summary": "details"}
        assert tag not in parents or self.open[-1] in parents[tag]
        if tag == "tr":
            self.inside.pop()

    def handle_data(self, text):
        self.text += text
        if self.inside:
            self.inside[-1][-1] += text


def html_of(one):
    return Page(one._repr_html_())


# --- Tensors ----------------------------------------------------------------------------------------------------------

TENSORS = {
    "float": (np.array([[1.5, -2.0], [0.25, 4.0]], np.float32), "float32 · shape (2, 2) · on the CPU", "from -2 to 4"),
    "int": (np.arange(3), "int64 · shape (3,)", "from 0 to 2, mean 1"),
    "uint8": (np.array([200, 100], np.uint8), "uint8 · shape (2,)", "mean 150"),
    "bool": (np.array([True, False]), "bool · shape (2,)", "mean 0.5"),
    "half": (np.array([60000, 60000], np.float16), "float16 · shape (2,)", "mean 6e+04"),
    "number": (np.float64(2.5), "float64 · shape ()", "2.5"),
    "complex": (np.array([1 + 2j]), "complex128 · shape (1,)", "1.+2.j"),
    "empty": (np.zeros((0, 3)), "float64 · shape (0, 3)", "[]"),
    "not finite": (np.array([np.nan, np.inf, 1.0]), "from 1 to 1, mean 1 · not finite: 2", "nan"),
    "nothing finite": (np.array([np.nan]), "shape (1,) · on the CPU · not finite: 1", "nan"),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_tensor_shows_shape_dtype_and_some_values(kind):
    value, *words = TENSORS[kind]
    page = html_of(Tensor(value))
    assert page.text.startswith("Tensor · ") and all(word in page.text for word in words), page.text


def test_bfloat16_tensor_is_shown():
    assert (
        "bfloat16 · shape (2,) · on the CPU · from 1 to 2, mean 1.5"
        in html_of(Tensor([1.0, 2.0]).astype(snncell.bfloat16)).text
    )


def test_large_tensor_shows_some_values_and_keeps_numpy_print_settings():
    before = np.get_printoptions()
    page = html_of(ops.ones((1000, 1000)))
    assert len(page.text) < 400 and "..." in page.text
    assert np.get_printoptions() == before


def test_parameter_shows_its_name():
    assert html_of(Parameter(Tensor([1.0]), name=NASTY)).text.startswith(f"Parameter · name {NASTY} · float32")
    assert "without gradient" in html_of(Parameter(Tensor([1.0]), name="p", requires_grad=False)).text


def test_traced_tensor_without_a_value_is_shown():
    pages = []

    @snncell.jit
    def traced(x):
        pages.append(html_of(x * 2))
        return x

    traced(Tensor([1.0]))
    assert "traced: no value yet" in pages[0].text


# --- Cells ------------------------------------------------------------------------------------------------------------


class Named(nn.Cell):
    """A Cell with user-defined settings."""

    def __init__(self, words, inner=None):
        super().__init__()
        self.words, self.inner = words, inner
        self.gain = Parameter(np.ones((2, 3)), requires_grad=False)

    def extend_repr(self):
        return self.words


def net():
    return nn.SequentialCell(
        nn.Dense(3, 4), nn.MultiStep(nn.ParametricLIFNode(3.0)), nn.SequentialCell(nn.Dense(4, 2), nn.BatchNorm1d(2))
    )


def test_net_is_shown_as_a_table_of_layers():
    page = html_of(net())
    head, first, run, *_ = page.rows
    assert head == ["", "layer", "Parameters", "number"]
    dense = "Dense input_channels=3, output_channels=4, has_bias=True"
    assert first == ["0", dense, "weight (4, 3) float32bias (4,) float32", "16"]
    assert run[0] == "1" and run[3] == "1"
    assert run[1].startswith("MultiStep: ParametricLIFNode") and "v_threshold=1.0" in run[1]
    assert page.rows[-1] == ["1", page.rows[-1][1], page.rows[-1][2], "8"]
    assert "moving_mean (2,) float32, not trained" in page.rows[-1][2]
    numbers = [p.size for p in net().get_parameters()]
    trained = sum(p.size for p in net().trainable_params())
    count = f"{sum(numbers)} numbers in {len(numbers)} Parameters, {trained} of them trained, on the CPU"
    assert page.text.startswith(f"SequentialCell: {count}")
    assert page.tags.count("details") == sum(bool(cell.cells()) for _, cell in net().cells_and_names())
    assert net()._repr_html_().count("<details open>") == 1


def test_user_text_is_escaped():
    page = html_of(Named(NASTY, Named("<b>", nn.ReLU())))
    assert NASTY in page.text and "Named <b>" in page.text and "script" not in page.tags
    assert "gain (2, 3) float64, not trained" in page.text
    assert "12 numbers in 2 Parameters, 0 of them trained" in page.text


def test_cell_without_layers_has_no_table():
    assert html_of(nn.ReLU()).text == "ReLU: 0 numbers in 0 Parameters"
    assert html_of(nn.Dense(2, 1)).tags == ["div", "details", "summary", "b", "div", "br"]


def test_shared_layer_is_shown_and_counted_once():
    layer = nn.SequentialCell(nn.Dense(2, 2))
    page = html_of(nn.SequentialCell(layer, layer))
    # A layer of a SequentialCell is also an attribute, so it has two paths.
    assert "6 numbers in 2 Parameters" in page.text and page.text.count("Dense") == 1
    assert "the same as above" in page.text


def test_many_and_deeply_nested_layers_stay_readable():
    page = html_of(nn.SequentialCell(*(nn.Dense(1, 1) for _ in range(200))))
    assert len(page.rows) == 62 and page.rows[-1] == ["", "and 140 more", "", "280"]
    deep = nn.ReLU()
    for _ in range(100):
        deep = nn.SequentialCell(deep)
    assert html_of(deep).tags.count("table") <= 41


# --- optimisers -------------------------------------------------------------------------------------------------------


def make_grouped_optimiser(layers):
    schedule = nn.WarmUpLR(nn.CosineDecayLR(0.0, 0.5, 100), 4)
    groups = [
        {"params": layers[0].trainable_params(), "lr": schedule},
        {"params": layers[2].trainable_params(), "weight_decay": 0.125},
    ]
    return nn.SGD(groups, 0.25)


def test_optimiser_shows_learning_rates_weight_decays_and_its_step():
    layers = net()
    adam = nn.AdamW(layers.trainable_params(), 3e-3)
    count = len(adam.parameters)
    assert repr(adam).startswith(f"AdamW(\n  {count} Parameters, step=0, learning_rate=0.003\n")
    assert "weight_decay=0.01" in repr(adam)
    adam([ops.zeros_like(p) for p in adam.parameters])
    adam.set_learning_rate(0.5)
    assert repr(adam).startswith(f"AdamW(\n  {count} Parameters, step=1, learning_rate=0.5\n")

    sgd = make_grouped_optimiser(layers)
    for step, rate in enumerate(["0", "0.124969"]):
        assert f"step={step}, learning_rate=[{rate}, 0.25]" in repr(sgd)
        sgd([ops.zeros_like(p) for p in sgd.parameters])
    assert "(schedule): WarmUpLR(\n        warmup_steps=4\n" in repr(sgd)
    assert "CosineDecayLR(min_lr=0.0, max_lr=0.5, decay_steps=100)" in repr(sgd)
    assert "weight_decay=0.125" in repr(sgd)

    page = html_of(sgd)
    assert page.rows[0] == ["group", "Parameters", "schedule", "learning rate", "weight decay"]
    assert page.rows[1][0] == "0" and page.rows[1][3:] == ["0.249753", "0"] and "WarmUpLR" in page.rows[1][2]
    assert page.rows[2][3:] == ["0.25", "0.125"] and "bias" in page.rows[2][1]


def test_optimiser_can_be_shown_while_its_step_is_traced():
    layers, texts = net(), []
    sgd = nn.SGD(layers.trainable_params(), 0.1)

    @snncell.jit
    def step():
        texts.extend([repr(sgd), html_of(sgd).text])
        sgd([ops.ones_like(p) for p in sgd.parameters])
        texts.append(repr(sgd))

    step()
    assert texts[0].startswith(f"SGD(\n  {len(sgd.parameters)} Parameters\n")
    assert repr(sgd).startswith(f"SGD(\n  {len(sgd.parameters)} Parameters, step=1, ")


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interpreted")
def test_results_are_shown_as_tables(tmp_path):
    layers = nn.SequentialCell(nn.Dense(2, 3), nn.MultiStep(nn.LIFNode()))
    x, y = ops.ones((4, 2, 2)), Tensor([0, 1])

    def loss(out, target):
        return ops.cross_entropy(out.mean(0), target)

    with snncell.monitor(layers, v=True) as monitor:
        layers(x)
    history = train.History()
    history.epoch["epoch"], history.history = [1, 2], {"net_output": [0.5, 0.25]}
    fitted = train.Result([{"epoch": n, "loss": 1.0 / n} for n in range(1, 50)], {"loss": 0.02})
    report = snncell.plot.report(layers, (x, y), loss, path=tmp_path / "report.html", title="<a net>")
    for one, words in (
        (monitor, ["1", "LIFNode", "spikes, v"]),
        (history, ["2", "0.25"]),
        (fitted, ["49", "0.02041"]),
        (snncell.energy.energy(layers, x), ["0 (Dense)", "MACs", "without spikes, one pass"]),
        (report, ["severity", "<a net>", report[0].text]),
    ):
        page = html_of(one)
        assert all(word in page.text for word in words), page.text
        assert len(page.rows) <= ROWS + 2 and len(repr(one).splitlines()) <= ROWS + 5


def test_epochs_without_evaluation_have_empty_cells():
    history = train.History()
    history.epoch["epoch"], history.history = [1, 2, 3], {"net_output": [0.5, 0.25, 0.1], "eval_loss": [None, 0.7, 0.6]}
    assert html_of(history).rows[-3:] == [["1", "0.5", ""], ["2", "0.25", "0.7"], ["3", "0.1", "0.6"]]
    fitted = train.Result(
        [{"epoch": 1, "loss": 1.0}, {"epoch": 2, "loss": 0.5, "test_loss": 2.0}, {"epoch": 3, "loss": 0.2}]
    )
    assert html_of(fitted).rows[-3:] == [["1", "1", ""], ["2", "0.5", "2"], ["3", "0.2", ""]]
