"""Report: planted faults are found, healthy nets get no alarm, the net stays unchanged, and the page is valid."""

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

import snncell
from snncell import Tensor, errors, nn, ops, plot, surrogate, testing
from snncell.data import digits
from snncell.demo import DigitNet
from snncell.ops.random import present_key
from snncell.plot.pictures import _weights
from snncell.report.facts import Facts
from snncell.report.probe import examine
from snncell.report.rules import diagnose

pytestmark = pytest.mark.compiled
T, B, INPUTS, CLASSES = 50, 16, 12, 5


class Net(nn.Cell):
    """Two spiking layers and a readout of potentials; `lif2` receives the planted fault."""

    def __init__(self, recurrent=False, **options):
        super().__init__()
        self.dense1, self.dense2, self.dense3 = nn.Dense(INPUTS, 24), nn.Dense(24, 24), nn.Dense(24, CLASSES)
        self.lif1 = nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=0.3))
        second = nn.LIFNode(**{"tau": 2.0, "v_threshold": 0.3, **options})
        self.lif2 = nn.MultiStep(nn.Recurrent(second, nn.Dense(24, 24)) if recurrent else second)
        self.readout = nn.MultiStep(nn.LINode(tau=5.0))

    def construct(self, x):
        spikes = self.lif2(self.current2(self.lif1(self.current1(x))))
        return self.readout(self.dense3(spikes)).mean(0)

    def current1(self, x):
        return self.dense1(x)

    def current2(self, spikes):
        return self.dense2(spikes)


class NanAt37(Net):
    def current2(self, spikes):
        harm = np.zeros((T, 1, 24), np.float32)
        harm[37, 0, 4:7] = np.nan
        return self.dense2(spikes) + Tensor(harm)


class CutOff(Net):
    def current1(self, x):
        return ops.stop_gradient(self.dense1(x)) + self.dense1.bias


def batch(seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(B) % CLASSES
    centres = rng.random((CLASSES, INPUTS))
    x = centres[labels] * 1.5 + 0.3 * rng.random((T, B, INPUTS))
    return x.astype(np.float32), labels


def made(kind=Net, **options):
    snncell.set_seed(3)
    return kind(**options)


def found(net, loss=None, optimiser=None, given=None):
    """The findings of a report without figures, because drawing takes most of its time."""
    return diagnose(examine(net, given or batch(), loss or nn.CrossEntropyLoss(), optimiser)[0])


def text(findings):
    return "\n".join(map(str, findings))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """A complete report of a healthy net."""
    net, (x, y) = made(), batch()
    log = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0}]
    path = tmp_path_factory.mktemp("healthy") / "report.html"
    return plot.report(net, (x, y), nn.CrossEntropyLoss(), adam_of(net), log, path, "After <b>two</b> & a half epochs")


@pytest.fixture(scope="module")
def sick(tmp_path_factory):
    """A report of a net with a dead layer and a summed loss."""
    path = tmp_path_factory.mktemp("sick") / "report.html"
    return plot.report(dead()[0], batch(), nn.CrossEntropyLoss(reduction="sum"), path=path)


def bad(report):
    """The findings more severe than notes."""
    return {(finding.kind, finding.layer) for finding in report if finding.severity != "note"}


# --- planted faults ---------------------------------------------------------------------------------------------------


def dead():
    return made(v_threshold=60.0), {}, ("dead", "lif2"), set()


def saturated():
    net = made()
    net.dense1.bias.set_data(net.dense1.bias + 10.0)
    return net, {}, ("saturated", "lif1"), {("equal outputs", ""), ("large potentials", "lif1")}


def exploding_recurrence():
    net = made(recurrent=True)
    net.lif2.cell.feedback.weight.set_data(net.lif2.cell.feedback.weight * 12.0)
    return net, {}, ("exploding recurrence", "lif2"), {("saturated", "lif2")}


def narrow():
    return made(surrogate_function=surrogate.Triangle(width=0.002)), {}, ("narrow surrogate", "lif2"), set()


def summed():
    return made(), {"loss": nn.CrossEntropyLoss(reduction="sum")}, ("mis-scaled loss", ""), set()


def fast():
    net = made()
    return net, {"optimiser": nn.Adam(net.trainable_params(), 1.0)}, ("learning rate", "dense2.weight"), set()


def nan_at_37():
    return made(NanAt37), {}, ("not finite", "lif2"), set()


def cut_off():
    return made(CutOff), {}, ("no gradient", "dense1.weight"), set()


PLANTED = [dead, saturated, exploding_recurrence, narrow, summed, fast, nan_at_37, cut_off]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_fault_is_found_and_no_other(plant):
    net, options, expected, consequences = plant()
    findings = found(net, **options)
    assert expected in bad(findings), text(findings)
    assert bad(findings) <= {expected, *consequences}, text(findings)


def test_dead_layer_is_described(sick):
    (finding,) = [f for f in sick.of("dead") if f.severity == "alarm"]
    words = (
        "lif2: 100 % of 24 neurons never fired in 16 samples of 50 steps; the derivative of their surrogate is below "
        "0.001 of its peak"
    )
    assert words in str(finding) and words[6:] in sick.path.read_text(encoding="utf-8")


def test_origin_of_nan_is_described():
    (finding,) = [f for f in found(nan_at_37()[0]) if f.kind == "not finite"]
    assert "its potential is NaN from step 37 on, in 48 of 384 entries at that step" in finding.text


# --- healthy nets -----------------------------------------------------------------------------------------------------


def adam_of(net):
    return nn.Adam(net.trainable_params(), 2e-3)


def trained(net):
    """The net after about forty eager updates on the batch, because compilation would take longer."""
    x, y = (Tensor(array) for array in batch())
    adam, loss = adam_of(net), nn.CrossEntropyLoss()
    step = snncell.value_and_grad(lambda x: loss(net(x), y), None, net.trainable_params())
    for _ in range(40):
        adam(step(x)[1])
    return net, adam


class Convolutional(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 6, 3, pad_mode="same"), nn.BatchNorm2d(6)
        self.lif, self.pool = nn.MultiStep(nn.LIFNode(v_threshold=0.5)), nn.TimeDistributed(nn.AvgPool2d(2, 2))
        self.dense = nn.Dense(6 * 16, 10)
        self.first = nn.TimeDistributed(nn.SequentialCell(self.conv, self.norm))

    def construct(self, images):
        current = self.first(ops.broadcast_to(images.expand_dims(1), (6, len(images), 1, 8, 8)))
        return self.dense(self.pool(self.lif(current)).reshape((6, len(images), -1))).mean(0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", [{}, {"recurrent": True}, {"surrogate_function": surrogate.ATan()}, {"tau": 10.0}])
def test_healthy_net_gets_no_alarm(options):
    net = made(**options)
    findings = found(net, optimiser=adam_of(net))
    assert bad(findings) == set(), text(findings)
    net, adam = trained(net)
    findings = found(net, optimiser=adam)
    assert bad(findings) == set(), text(findings)


def test_demo_and_convolutional_net_get_no_alarm():
    (images, labels), _ = digits()
    snncell.set_seed(0)
    net = DigitNet()
    given = images[:32].reshape(-1, 64), labels[:32]
    findings = found(net, optimiser=nn.AdamW(net.trainable_params(), 3e-3), given=given)
    assert bad(findings) == set(), text(findings)
    net = Convolutional()
    for training in (False, True):
        net.set_train(training)
        findings = found(net, optimiser=adam_of(net), given=(images[:32], labels[:32]))
        assert bad(findings) == set(), text(findings)


# --- no side effects --------------------------------------------------------------------------------------------------


def snapshot(net, optimiser):
    cells = (net, optimiser)
    values = [p.asnumpy().tobytes() for cell in cells for p in cell.get_parameters()]
    kept = [s.asnumpy().tobytes() for _, c in net.cells_and_names() if isinstance(c, nn.Stateful) for s in c.states]
    training = [cell.training for _, cell in net.cells_and_names()]
    return values, kept, training, present_key().asnumpy().tolist()


class Streaming(nn.Cell):
    """A net with everything that could leak: kept states, statistics, random numbers."""

    def __init__(self):
        super().__init__()
        self.dense, self.norm, self.drop = nn.Dense(INPUTS, 8), nn.TimeDistributed(nn.BatchNorm1d(8)), nn.Dropout(p=0.3)
        self.lif = nn.Stateful(nn.MultiStep(nn.LIFNode(v_threshold=0.3)))
        self.out = nn.Dense(8, CLASSES)

    def construct(self, x):
        return self.out(self.drop(self.lif(self.norm(self.dense(x))))).mean(0)


def failing(scores, labels):
    raise errors.ShapeError("planted")


def test_report_changes_no_bit_of_net_and_random_state(tmp_path):
    snncell.set_seed(1)
    net = Streaming()
    net.set_train()
    adam = adam_of(net)
    x, y = batch()
    loss = nn.CrossEntropyLoss()
    adam(snncell.grad(lambda x: loss(net(x), Tensor(y)), None, net.trainable_params())(Tensor(x)))
    before = snapshot(net, adam)
    assert before[1] and any(before[2])
    given = (x[:, :6], y[:6])  # another batch size than the states that are kept
    report = plot.report(net, given, loss, adam, path=tmp_path / "report.html")
    assert snapshot(net, adam) == before
    assert report.facts.updates == 1 and all(weight.update.any() for weight in report.facts.weights)
    with pytest.raises(errors.ShapeError, match="planted"):
        plot.report(net, given, failing, adam, path=tmp_path / "report.html")
    assert snapshot(net, adam) == before
    vars(adam)["beta1"] = None  # an error within the update itself, past the check of settings
    with pytest.raises(TypeError):
        plot.report(net, given, loss, adam, path=tmp_path / "report.html")
    assert snapshot(net, adam) == before


def test_repeated_report_finds_the_same():
    net = made()
    adam = adam_of(net)
    assert found(net, optimiser=adam) == found(net, optimiser=adam)


# --- facts ------------------------------------------------------------------------------------------------------------


def test_facts_of_net_are_measured():
    net = made(recurrent=True, tau=4.0, detach_reset=True)
    facts, _ = examine(net, batch(), nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1))
    first, second, readout = facts.layers
    assert [layer.name for layer in facts.layers] == ["lif1", "lif2", "readout"]
    assert [layer.spiking for layer in facts.layers] == [True, True, False]
    assert [layer.recurrent for layer in facts.layers] == [False, True, False]
    assert [layer.detached for layer in facts.layers] == [False, True, False]
    assert [layer.leak for layer in facts.layers] == pytest.approx([0.5, 0.75, 0.8], rel=1e-4)
    assert (first.drop, second.drop, readout.threshold) == (0.3, 0.0, None)
    matrix = net.lif2.cell.feedback.weight.asnumpy()
    assert second.radius == pytest.approx(np.abs(np.linalg.eigvals(matrix)).max(), rel=1e-3)
    assert first.slope.name == "relusigmoid" and first.slope.peak.item() == pytest.approx(1.25)
    by_name = {weight.name: weight for weight in facts.weights}
    update = by_name["dense1.weight"]
    np.testing.assert_allclose(update.update, -0.1 * update.grad, atol=1e-7)
    np.testing.assert_array_equal(update.value, net.dense1.weight.asnumpy())
    x, y = batch()
    loss = nn.CrossEntropyLoss()
    assert facts.loss == pytest.approx(loss(net(Tensor(x)), Tensor(y)).item(), rel=1e-6)
    halves = [loss(net(Tensor(x[:, some])), Tensor(y[some])).item() for some in (slice(0, 8), slice(8, 16))]
    assert facts.halves == pytest.approx(np.mean(halves), rel=1e-6)
    assert facts.costs["dense1"].macs == T * B * INPUTS * 24


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (nn.CrossEntropyLoss(), np.log(CLASSES)),
        (nn.CrossEntropyLoss(label_smoothing=0.1), np.log(CLASSES)),
        (nn.CrossEntropyLoss(reduction="sum"), None),
        (lambda out, y: ops.square(out - y.reshape(-1, 1)).mean(), None),
        (None, None),
    ],
)
def test_loss_of_guessing_is_known_for_classification(loss, expected):
    assert examine(made(), batch(), loss)[0].guessing == expected


def test_silent_layer_is_a_fault_after_training():
    net, (x, y) = made(), batch()
    given = 0.01 * x, y
    net.dense1.bias.set_data(net.dense1.bias * 0.0)
    log = [{"epoch": n, "loss": 1.6094, "accuracy": 0.2} for n in (1, 2)]
    before, after = (diagnose(examine(net, given, nn.CrossEntropyLoss(), log=each)[0]) for each in (None, log))
    assert bad(before) <= {("dead", "lif1")} and all(f.severity != "alarm" for f in before), text(before)
    assert [(f.kind, f.layer) for f in after if f.severity == "alarm"] == [("dead", "lif1")], text(after)
    assert [f.kind for f in after if f.severity == "warning"] == ["equal outputs"], text(after)


def test_report_without_loss_omits_gradients_and_says_so(tmp_path):
    report = plot.report(made(), batch()[0], path=tmp_path / "bare.html")
    page = report.path.read_text(encoding="utf-8")
    assert "There are no gradients, because no loss was given" in page and "no loss was given" in page
    assert report.facts.loss is None and all(layer.grad is None for layer in report.facts.layers)
    assert bad(report) == set()


def test_loss_without_labels_and_frozen_net_are_reported():
    facts, _ = examine(made(), batch()[0], lambda out: ops.square(out).mean())
    assert facts.loss > 0 and facts.layers[0].grad.any()
    frozen = made()
    frozen.set_grad(False)
    facts, _ = examine(frozen, batch(), nn.CrossEntropyLoss())
    assert facts.weights == [] and facts.layers[0].grad.any()


class Own(nn.Cell):
    """A neuron without named threshold and kept values, with the potential as its second state."""

    spike = surrogate.ATan()

    def __init__(self, keeps=0.9):
        super().__init__()
        self.keeps = keeps

    def construct(self, x, i, v):
        i = 0.7 * i + x
        h = self.keeps * v + 0.2 * i
        s = self.spike(h - 1.5)
        return s, i, h - s


def layer_without_input(neuron):
    """The facts of a layer of this neuron without input."""
    with testing.unfused():  # compiling each would take longer than all the rest
        (found,) = examine(nn.SequentialCell(nn.MultiStep(neuron)), np.zeros((9, 2, 3), np.float32))[0].layers
    return found


@pytest.mark.parametrize(
    ("neuron", "reach"),
    [
        (lambda: nn.IFNode(v_threshold=0.7), 0.7),
        (lambda: nn.LIFNode(v_threshold=-50.0, v_reset=-65.0, reset="value"), 15.0),
        (lambda: nn.MultiSpikeLIFNode(v_threshold=3.0), 1.0),  # its spike function sees thresholds
        (lambda: nn.LeakyNode(v_threshold=0.4, delay="reset"), 0.4),
        (lambda: nn.ALIFNode(v_threshold=2.0), 2.0),
        (Own, 1.5),
        (nn.LINode, None),
    ],
)
def test_distance_to_threshold_is_known_for_any_neuron(neuron, reach):
    found = layer_without_input(neuron())
    assert found.reach == (None if reach is None else pytest.approx(reach, rel=1e-6))
    assert reach is None or np.abs(found.heights).max() == pytest.approx(0.0, abs=1e-6)


def test_potentials_are_measured_from_rest_in_thresholds():
    net = nn.SequentialCell(nn.MultiStep(nn.LeakyNode(1.0, v_threshold=-50.0, v_reset=-65.0, reset="value")))
    (found,) = examine(net, np.full((4, 1, 1), 3.0, np.float32))[0].layers
    np.testing.assert_allclose(found.heights[:, 0, 0], np.arange(1, 5) * 3.0 / 15.0, rtol=1e-5)


def test_neuron_with_growing_state_is_named():
    assert not any(f.kind == "constant out of range" for f in diagnose(Facts([layer_without_input(Own())])))
    (finding,) = [f for f in diagnose(Facts([layer_without_input(Own(1.02))])) if f.kind == "constant out of range"]
    assert finding.severity == "warning"
    assert "a step of the Own multiplies a small change of the potential by 1.02" in finding.text


def test_constants_come_from_neuron_and_its_spike_function():
    class Told(Own):
        decay = SimpleNamespace(low=0.0, high=1.0, closed="both", text="is what a step keeps, from 0 to 1")

        @property
        def constants_and_ranges(self):
            return (SimpleNamespace(name="keeps", value=np.array(1.5), range=self.decay, learned=True),)

    neuron = Told()
    neuron.spike_function = Told()
    layer = layer_without_input(neuron)
    named = {constant.name: constant for constant in layer.constants}
    assert {"keeps", "spike_function.keeps"} <= named.keys()
    assert named["keeps"].outside.all() and named["keeps"].furthest == 1.5
    (finding, *_) = [f for f in diagnose(Facts([layer])) if f.kind == "constant out of range"]
    assert finding.text == "keeps of the Told is 1.5; keeps is what a step keeps, from 0 to 1."
    assert finding.mend.startswith("The constant is learned")


def test_parameters_missing_from_optimiser_are_named():
    net = made()
    adam = nn.Adam([p for p in net.trainable_params() if p is not net.dense2.weight])
    assert ("not trained", "dense2.weight") in bad(found(net, optimiser=adam))


def test_layers_are_measured_before_trial_update():
    net = made(recurrent=True, learnable=("v_threshold", "tau"))
    with testing.unfused():
        alone, tried = (
            examine(net, batch(), nn.CrossEntropyLoss(), optimiser)[0].layers[1]
            for optimiser in (None, nn.SGD(net.trainable_params(), 10.0))
        )
    assert alone.threshold == pytest.approx(0.3)
    for name in ("threshold", "reach", "leak", "drop", "radius"):
        assert getattr(alone, name) == getattr(tried, name), name


def test_report_adds_no_parameters_to_net():
    net = made()
    before = [p.name for p in net.get_parameters()], list(net.parameters_dict())
    examine(net, batch(), nn.CrossEntropyLoss())
    assert before == ([p.name for p in net.get_parameters()], list(net.parameters_dict()))


# --- page -------------------------------------------------------------------------------------------------------------


class Outline(HTMLParser):
    """The content of a page: titles, figures, addresses, table cells; checks that every tag is closed."""

    EMPTY = {"meta", "img", "br"}  # noqa: RUF012

    def __init__(self, page):
        super().__init__()
        self.open, self.titles, self.cells, self.sources, self.text = [], [], [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        self.text += "" if inside == "style" else data
        if inside == "h2":
            self.titles.append(data)
        if inside == "td":
            self.cells.append(data)


def test_page_is_self_contained_and_shows_all_sections(healthy):
    page = healthy.path.read_text(encoding="utf-8")
    outline = Outline(page)
    assert outline.open == []
    titles = [
        "Findings",
        "Layers",
        "Operations",
        "Spikes",
        "Potentials and surrogates",
        "Gradients",
        "Weights",
        "Results",
    ]
    assert outline.titles == titles
    assert len(outline.sources) == 15 and all(s.startswith("data:image/png;base64,iVBOR") for s in outline.sources)
    assert "Nothing alarming was found" in outline.text
    assert {"lif1", "LIFNode", "24", "dense3"} <= set(outline.cells)
    assert "<th>late</th><th>thresholds</th>" in page
    assert "Not drawn" not in page and "http" not in page
    assert len(page) < 3e6


def test_log_can_be_a_file(tmp_path):
    snncell.train.Log(tmp_path / "run.csv", [{"epoch": 1, "loss": 0.5, "test_loss": 0.4}]).add(
        {"epoch": 2, "loss": 1.5}
    )
    (rises,) = [
        f for f in diagnose(examine(made(), batch(), log=str(tmp_path / "run.csv"))[0]) if f.kind == "loss curve"
    ]
    assert "rises from 0.5 in epoch 1 to 1.5 in epoch 2" in rises.text


def test_names_are_escaped_in_html(healthy):
    page = healthy.path.read_text(encoding="utf-8")
    assert "<b>" not in page and "After &lt;b&gt;two&lt;/b&gt; &amp; a half epochs" in page


def test_findings_are_on_page_in_order(sick):
    text = Outline(sick.path.read_text(encoding="utf-8")).text
    assert "1 alarm, 1 warning" in text
    for finding in sick:
        _, there, text = text.partition(finding.text)
        assert there


def test_report_is_a_sequence_and_prints_as_text(sick):
    assert sick[0].kind == "dead" and len(sick) == len(list(sick)) and sick[:1] == (sick[0],)
    assert sick.of("dead")[0] is sick[0]
    lines = str(sick).splitlines()
    assert lines[0].startswith("Report on Net: 3 layers of neurons, ") and "16 samples of 50 steps, loss " in lines[0]
    assert lines[2] == f"- {sick[0]}" and lines[-1] == f"The page is {sick.path}."
    assert repr(sick).startswith("Report('1 alarm")


@pytest.mark.uncompiled
@pytest.mark.slow
def test_path_with_pdf_suffix_writes_pdf(tmp_path):
    import matplotlib.pyplot as plt

    report = plot.report(made(), batch(), nn.CrossEntropyLoss(), path=str(tmp_path / "report.pdf"))
    data = report.path.read_bytes()
    pages = len(re.findall(rb"/Type /Page\b", data))
    assert data.startswith(b"%PDF") and pages >= 3
    assert plt.get_fignums() == []  # nothing is left open


def test_wide_table_is_continued_below():
    from snncell.plot.reports import _LETTERS, _columns

    head = ["layer", *(f"column {n}" for n in range(20))]
    lines = _columns((head, [["a" * 30, *("1" * n for n in range(20))]]))
    assert max(map(len, lines)) <= _LETTERS
    assert sorted(set(" ".join(lines).replace("column ", "column").split())) == sorted(
        {"layer", "a" * 30, *(f"column{n}" for n in range(20)), *("1" * n for n in range(1, 20))}
    )
    assert _columns((["layer", "b"], [["x", "1"]])) == ["layer  b", "x      1"]


def test_missing_figure_is_replaced_by_reason():
    from snncell.plot.pictures import draw_picture

    def refuse(ax):
        raise errors.ArgumentError("there is nothing.")

    picture = draw_picture("A picture.", refuse)
    assert picture.figure is None and picture.caption == "A picture. Not drawn: there is nothing."


def test_gradients_of_layers_with_weights_in_step_are_shown(tmp_path):
    class Weighted(nn.Cell):
        """A neuron with weights in its step: its input is narrower than its output."""

        def __init__(self):
            super().__init__()
            self.dense, self.lif = nn.Dense(INPUTS, 6), nn.LIFNode(surrogate_function=surrogate.ATan())

        def construct(self, x, v):
            return self.lif(self.dense(x), v)

        def init_state(self, x):
            return ops.zeros((x.shape[0], 6))

    path = tmp_path / "r.html"
    plot.report(nn.MultiStep(Weighted()), batch(), nn.CERateLoss(), path=path)
    assert "No gradient came to any layer" not in path.read_text()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("given", [True, False])
def test_usual_update_size_is_stated_if_there_are_updates(given, tmp_path):
    net = made()
    optimiser = nn.Adam(net.trainable_params(), 1e-3) if given else None
    path = tmp_path / "r.html"
    found = plot.report(net, batch(), nn.CrossEntropyLoss(), optimiser, path=path)
    (picture,) = [p for p in _weights(found.facts).pictures if "logarithmic" in p.caption]
    assert ("Usually one update changes a Parameter by about 0.001 of its norm" in picture.caption) is given
    axes = picture.figure.axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(axes.patches) == given
    assert labels == ["gradient / weight", *(["update / weight", "usual update"] if given else [])]
    assert len([label for label in axes.get_xticklabels() if label.get_text()]) >= 2
    assert not any(label.get_text() for label in axes.get_xticklabels(minor=True))  # they lie over each other


def test_spike_function_of_neuron_can_have_any_name(tmp_path):
    class Bent(nn.Cell):
        def construct(self, x):
            return (x > 0).astype(x.dtype)

        def bprop(self, x, out, dout):
            return (dout / (1.0 + 10.0 * ops.abs(x)) ** 2,)

    class Own(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fire = Bent()

        def construct(self, x, v):
            v = 0.9 * v + x
            s = self.fire(v - 1.0)
            return s, v - s

        def init_state(self, x):
            return ops.zeros_like(x)

    net = nn.SequentialCell(nn.Dense(INPUTS, 6), nn.MultiStep(Own()))
    path = tmp_path / "r.html"
    found = plot.report(net, batch(), nn.CERateLoss(), path=path)
    assert found.facts.layers[0].slope.name == "Bent"
    assert "the derivative of Bent" in path.read_text() and "Not drawn" not in path.read_text()


# --- errors -----------------------------------------------------------------------------------------------------------


def refused(match, kind=errors.ArgumentError, **changes):
    return kind, match, changes


MISTAKES = {
    "no net": refused("^report: net is a Cell, not 3", net=lambda: 3),
    "no neurons": refused("^report: Dense has no neurons", net=lambda: nn.Dense(INPUTS, 2)),
    "nothing ran": refused("no neuron of Idle ran when it was called. Run its neurons over time", net=lambda: Idle()),
    "another width": refused(
        r"the batch with inputs Float32\[50, 16, 7\] and target .* does not fit the Net or the loss: .* x or \(x, y\)",
        errors.ShapeError,
        batch=lambda: (np.ones((T, B, 7), np.float32), batch()[1]),
    ),
    "an empty batch": refused(
        "the batch is empty", batch=lambda: (np.ones((T, 0, INPUTS), np.float32), np.zeros(0, int))
    ),
    "no batch at all": refused("the batch is empty: nothing", batch=lambda: ()),
    "no array": refused("the batch must be x or .x, y., arrays or Tensors", batch=lambda: object()),
    "no loss": refused("^report: loss is a function, not 3", loss=lambda: 3),
    "losses of samples": refused(
        "The loss must be one number, not of shape",
        errors.ShapeError,
        loss=lambda: nn.CrossEntropyLoss(reduction="none"),
    ),
    "no optimiser": refused("^report: optimiser is an Optimizer, not 0.1", optimiser=lambda: 0.1),
    "an optimiser of another net": refused(
        "trains Parameter 'weight' of shape .* not in the Net", optimiser=lambda: adam_of(nn.Dense(2, 2))
    ),
    "no labels": refused(
        r"^report: the loss CrossEntropyLoss takes \(logits, labels\), and the batch is x alone. .* \(x, y\)",
        errors.CallError,
        batch=lambda: batch()[0],
    ),
    "labels for a loss that takes none": refused(
        r"^report: the loss <lambda> takes \(out\), and the batch is \(x, y\). .* x alone",
        errors.CallError,
        loss=lambda: lambda out: ops.square(out).mean(),
    ),
    "one input too many": refused(
        "^report: the batch with inputs .* does not fit the Net or the loss: ",
        errors.CallError,
        batch=lambda: (batch()[0], *batch()),
    ),
    "a log that is missing": refused("^report: log: there is no file 'nolog.csv'. Pass", log=lambda: "nolog.csv"),
    "a file that is no log": refused("^report: log: .*test_report.py' is not a log", log=lambda: __file__),
    "no log": refused("log must be the result of train.fit", log=lambda: 3),
    "another ending": refused(
        r"path must be a file named \*.html or \*.pdf, not 'report.docx'", path=lambda: "report.docx"
    ),
    "no folder": refused("the folder 'nowhere' for 'r.html' does not exist", path=lambda: "nowhere/r.html"),
    "no path": refused("^report: path is a str or a PathLike, not 3", path=lambda: 3),
}


class Idle(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense, self.lif = nn.Dense(INPUTS, CLASSES), nn.MultiStep(nn.LIFNode())

    def construct(self, x):
        return self.dense(x).mean(0)


@pytest.mark.parametrize("name", MISTAKES)
def test_invalid_arguments_raise_with_fix(name, tmp_path):
    kind, match, changes = MISTAKES[name]
    given = {
        "net": made,
        "batch": batch,
        "loss": nn.CrossEntropyLoss,
        "path": lambda: tmp_path / "r.html",
        **changes,
    }
    with pytest.raises(kind, match=match):
        plot.report(**{argument: make() for argument, make in given.items()})
    assert not (tmp_path / "r.html").exists()


def test_optimiser_without_loss_raises(tmp_path):
    net = made()
    with pytest.raises(errors.ArgumentError, match="optimiser needs a loss too, because its update"):
        plot.report(net, batch(), optimiser=adam_of(net), path=tmp_path / "r.html")


def test_report_inside_monitor_raises(tmp_path):
    net = made()
    with (
        snncell.monitor(net),
        pytest.raises(errors.ArgumentError, match=r"^report: another monitor is already recording"),
    ):
        plot.report(net, batch(), path=tmp_path / "r.html")
