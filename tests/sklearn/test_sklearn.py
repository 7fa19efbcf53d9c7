"""scikit-learn estimators: scikit-learn's own checks, and behaviour that these checks do not cover."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import snncell
from snncell import Tensor, encode, nn, ops, surrogate, train
from snncell.errors import ArgumentError

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install '.[sklearn]'")

import joblib
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from snncell.sklearn import SNNClassifier, SNNRegressor

# --- scikit-learn's checks --------------------------------------------------------------------------------------------

QUICK = {"steps": 4, "epochs": 15, "learning_rate": 0.02, "random_state": 0}


@pytest.mark.sampled(13)
@pytest.mark.compiled
@pytest.mark.filterwarnings("default")  # those of the checks themselves
@parametrize_with_checks([SNNClassifier(16, **QUICK), SNNRegressor(16, **QUICK)])
def test_estimator_passes_scikit_learn_checks(estimator, check):
    check(estimator)


# --- data -------------------------------------------------------------------------------------------------------------


def classes(n=60, features=3, seed=0):
    """Three classes, by which of three numbers is the largest."""
    x = np.random.default_rng(seed).normal(size=(n, features))
    return x, x[:, :3].argmax(1)


def small(**settings):
    return SNNClassifier(**{"hidden": 8, "steps": 3, "epochs": 4, "batch_size": 16, "random_state": 0, **settings})


def regressor(**settings):
    return SNNRegressor(**{"hidden": 8, "steps": 3, "epochs": 4, "batch_size": 16, "random_state": 0, **settings})


X, Y = classes()
UNIT = MinMaxScaler().fit_transform(X)


def losses(model):
    return [record["loss"] for record in model.history_]


# --- training ---------------------------------------------------------------------------------------------------------


def test_estimator_equals_train_fit_bit_for_bit():
    model = small().fit(X, Y)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    snncell.set_seed(seed)
    layers = nn.SequentialCell(nn.Dense(3, 8), nn.MultiStep(nn.LIFNode()), nn.Dense(8, 3))

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def construct(self, x):
            return self.layers(encode.current(x, 3)).mean(0)

    net = Net()
    adam = nn.Adam(net.trainable_params(), 5e-3)
    result = train.fit(net, nn.CrossEntropyLoss(), adam, (X.astype(np.float32), Y), 4, batch_size=16, progress=False)
    assert result.history == model.history_
    scores = np.float64(net(Tensor(X.astype(np.float32))).asnumpy())
    assert np.array_equal(model.predict(X), scores.argmax(1))
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert np.allclose(model.predict_proba(X), shares, rtol=1e-5)


@pytest.mark.parametrize("encoder", ["current", "rate"])
def test_random_state_is_local_to_estimator(encoder):
    def drawn_after(seed, fit):
        snncell.set_seed(seed)
        first = ops.uniform((2,)).asnumpy()
        models = small(encoder=encoder).fit(UNIT, Y) if fit else None
        found = models.predict_proba(UNIT) if fit else None
        return np.concatenate([first, ops.uniform((2,)).asnumpy()]), found, models and losses(models)

    without, _, _ = drawn_after(1, False)
    one, found, history = drawn_after(1, True)
    other, again, same = drawn_after(2, True)
    assert np.array_equal(without, one) and not np.array_equal(one, other)
    assert np.array_equal(found, again) and history == same
    assert losses(small(encoder=encoder, random_state=1).fit(UNIT, Y)) != history


LABELS = {
    "str": np.array(["no", "yes", "perhaps"]),
    "object": np.array(["b", "a", "c"], dtype=object),
    "negative": np.array([-5, 0, 7], dtype=np.int8),
    "unsigned": np.array([200, 3, 90], dtype=np.uint8),
    "float": np.array([1.0, -1.0, 3.0]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_can_have_any_dtype(kind):
    labels = LABELS[kind]
    model = small(learning_rate=0.02, epochs=25).fit(X, labels[Y])
    assert np.array_equal(model.classes_, np.unique(labels)) and model.predict(X).dtype == labels.dtype
    assert model.score(X, labels[Y]) > 0.8
    assert np.array_equal(model.classes_[model.predict_proba(X).argmax(1)], model.predict(X))


def test_boolean_labels_are_two_classes():
    model = small(epochs=20, learning_rate=0.02).fit(X, Y == 0)
    assert model.predict(X).dtype == bool and model.score(X, Y == 0) > 0.8


class Own(nn.Neuron):
    """A neuron with a leak of a third."""

    def __init__(self, **options):
        super().__init__({"leak": 1 / 3}, **options)

    def charge(self, x, v):
        return v - self.leak * v + x


def dense(features, outputs):
    """A network for (B, F), without time."""
    return nn.SequentialCell(nn.Dense(features, 12), nn.ReLU(), nn.Dense(12, outputs))


def streaming(features, outputs):
    """A network that keeps its states between calls."""
    return nn.SequentialCell(nn.Dense(features, 12), nn.Stateful(nn.LIFNode()), nn.Dense(12, outputs))


def over_time(features, outputs):
    return nn.SequentialCell(nn.Dense(features, 12), nn.MultiStep(nn.IFNode()), nn.Dense(12, outputs))


SETTINGS = {
    "several layers": {"hidden": (8, 6)},
    "an array of sizes": {"hidden": np.array([8, 6])},
    "no layer": {"hidden": ()},
    "neuron by name": {"neuron": "IFNode", "surrogate": "ATan"},
    "neuron by class": {"neuron": Own, "surrogate": surrogate.Sigmoid},
    "neuron by function": {"neuron": lambda: nn.ParametricLIFNode(2.0)},
    "neuron to copy": {"neuron": nn.LIFNode(3.0), "surrogate": surrogate.ATan(alpha=3.0)},
    "rate": {"encoder": "rate"},
    "latency": {"encoder": "latency", "steps": 6},
    "phase": {"encoder": "phase"},
    "population": {"encoder": lambda x, steps: encode.population(x, 4, steps)},
    "network": {"network": over_time},
    "network without time": {"network": dense, "encoder": None},
    "network that goes on": {"network": streaming, "encoder": None, "batch_size": 20},
    "AdamW": {"optimizer": "AdamW", "weight_decay": 0.1},
    "optimiser by class": {"optimizer": nn.RMSProp, "learning_rate": 0.01},
    "optimiser by function": {"optimizer": lambda p, rate: nn.Momentum(p, rate, 0.9), "learning_rate": 0.02},
    "schedule": {"learning_rate": nn.CosineDecayLR(0.0, 0.05, 40)},
    "early stopping": {"early_stopping": True, "validation_fraction": 0.2},
    "limits": {"fit_options": {"clip_norm": 1.0, "accumulate": 2}},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SETTINGS)
def test_estimator_with_settings_trains_and_can_be_cloned(name):
    settings = {"learning_rate": 0.02, "epochs": 12, **SETTINGS[name]}
    model = small(**settings).fit(UNIT, Y)
    assert losses(model)[-1] < losses(model)[0]
    assert set(clone(model).get_params()) == set(model.get_params())
    # Another one with copies of the settings does the same; so does each sample, whatever is beside it.
    again = clone(model).fit(UNIT, Y)
    assert again.history_ == model.history_
    found = model.predict_proba(UNIT)
    assert np.array_equal(again.predict_proba(UNIT), found)
    if settings.get("encoder") != "rate":
        assert np.array_equal(np.concatenate([model.predict_proba(UNIT[n : n + 1]) for n in range(20)]), found[:20])
    assert model.net_.training is False
    target = np.column_stack([UNIT.sum(1), 1000 * UNIT[:, 0]])
    regressed = regressor(**settings).fit(UNIT, target)
    assert losses(regressed)[-1] < losses(regressed)[0] and regressed.predict(UNIT).shape == (60, 2)


def test_estimator_keeps_weights_of_best_epoch():
    model = small(epochs=60, early_stopping=True, patience=2, learning_rate=0.2, validation_fraction=0.4).fit(X, Y)
    tested = [record["test_loss"] for record in model.history_]
    assert model.n_iter_ == len(tested) == np.argmin(tested) + 3 < 60
    # Of each class the same share is set apart.
    from sklearn.model_selection import train_test_split

    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    _, x, _, y = train_test_split(X, Y, test_size=0.4, random_state=seed, stratify=Y)
    right = model.predict_proba(x)[np.arange(len(y)), y]
    assert np.isclose(-np.log(right).mean(), min(tested), rtol=1e-5)


@pytest.mark.compiled  # two trainings of 40 epochs
def test_regressor_predicts_in_units_of_targets():
    x = np.linspace(-1.5, 1.5, 80)[:, np.newaxis]
    one = SNNRegressor(24, epochs=40, random_state=0).fit(x, x[:, 0] ** 2)
    other = SNNRegressor(24, epochs=40, random_state=0).fit(x, 1e6 * x[:, 0] ** 2 + 1e7)
    assert one.score(x, x[:, 0] ** 2) > 0.8 and one.predict(x).shape == (80,)
    assert np.allclose(other.predict(x), 1e6 * one.predict(x) + 1e7, rtol=1e-3)
    assert np.allclose(regressor(epochs=1).fit(x, np.full(80, 3.0)).target_scale_, 1.0)  # no division by 0


def test_multi_output_equals_meta_estimators():
    two = np.column_stack([Y, Y == 1])
    assert MultiOutputClassifier(small()).fit(X, two).predict(X).shape == (60, 2)


class Note(train.Callback):
    """Record the epochs."""

    def __init__(self):
        self.epochs = []

    def on_epoch_end(self, training):
        self.epochs.append(training.epoch)


def test_callbacks_are_called():
    note = Note()
    model = small(callbacks=[note, train.EMA(0.5)]).fit(X, Y)
    assert note.epochs == [1, 2, 3, 4] and model.get_params()["callbacks"][0] is note


# --- continued training -----------------------------------------------------------------------------------------------


def test_warm_start_continues_training():
    model = small(warm_start=True).fit(X, Y)
    first, weights = losses(model), model.net_.network[0].weight
    assert losses(model.fit(X, Y))[:4] == first and model.n_iter_ == 8
    assert model.net_.network[0].weight is weights and model.optimiser_.global_step.item() == 8 * 4
    assert [record["epoch"] for record in model.history_] == [*range(1, 9)]
    assert losses(model)[4] < first[0]
    assert small().fit(X, Y).fit(X, Y).n_iter_ == 4
    with pytest.raises(ArgumentError, match=r"y has labels that are not among the 3 classes .*: .*9"):
        model.fit(X, np.where(Y == 2, 9, Y))
    with pytest.raises(ValueError, match="features"):
        model.fit(X[:, :2], Y)


def test_network_in_training_phase_predicts_in_prediction_phase():
    def network(n_features, n_outputs):
        return nn.SequentialCell(nn.Dense(n_features, n_outputs), nn.Dropout(p=0.5)).set_train()

    estimator = SNNClassifier(network=network, encoder=None, epochs=1, random_state=0).fit(X, Y)
    assert not any(cell.training for _, cell in estimator.net_.cells_and_names())
    assert (estimator.predict_proba(X) == estimator.predict_proba(X)).all()


def test_failed_fit_leaves_no_untrained_network():
    class Failing(train.Callback):
        def on_step_begin(self, training):
            raise OSError("no more")

    estimator = small().fit(X, Y)
    with pytest.raises(OSError, match="no more"):
        estimator.set_params(callbacks=[Failing()]).fit(X, Y)
    with pytest.raises(NotFittedError):
        estimator.predict(X)


def test_partial_fit_trains_by_batches():
    model = small()
    for part in range(3):
        chosen = part != Y  # none has all classes
        model.partial_fit(X[chosen], Y[chosen], classes=[2, 0, 1])
    assert model.n_iter_ == 3 and model.predict_proba(X).shape == (60, 3)
    with pytest.raises(ArgumentError, match=r"classes were .* and are .* now"):
        model.partial_fit(X, Y, classes=[0, 1])
    with pytest.raises(ArgumentError, match="y had 2 columns before, and has 1 now"):
        regressor().partial_fit(X, X[:, :2]).partial_fit(X, X[:, 0])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("make", [small, regressor])
def test_copy_continues_like_original(make, copied):
    model = make(early_stopping=True, encoder="rate", callbacks=[snncell.train.EMA(0.5)]).fit(UNIT, Y)
    other = copied(model)
    assert np.array_equal(other.predict(UNIT), model.predict(UNIT))
    assert other.net_.network[0].weight is not model.net_.network[0].weight
    before = model.predict(UNIT)
    assert other.partial_fit(UNIT, Y).history_ == copied(model).partial_fit(UNIT, Y).history_
    assert np.array_equal(model.predict(UNIT), before)
    assert other.history_ == model.partial_fit(UNIT, Y).history_
    assert np.array_equal(other.predict(UNIT), model.predict(UNIT))


# --- integration with scikit-learn ------------------------------------------------------------------------------------


def search(**options):
    grid = {"snnclassifier__hidden": [(4,), (8, 4)], "snnclassifier__learning_rate": [1e-3, 0.02]}
    pipeline = make_pipeline(StandardScaler(), small())
    return GridSearchCV(pipeline, grid, cv=2, **options).fit(X, Y)


def test_search_in_threads_equals_serial_search():
    alone = search()
    with joblib.parallel_config("threading", n_jobs=3):
        beside = search()
    assert np.array_equal(alone.cv_results_["mean_test_score"], beside.cv_results_["mean_test_score"])
    assert np.array_equal(alone.predict_proba(X), beside.predict_proba(X))


@pytest.mark.slow
@pytest.mark.compiled
def test_search_in_processes_equals_serial_search():
    assert np.array_equal(search().cv_results_["mean_test_score"], search(n_jobs=2).cv_results_["mean_test_score"])


def test_folds_are_trained_independently():
    scores = cross_val_score(small(epochs=15, learning_rate=0.02), X, Y, cv=3)
    assert scores.shape == (3,) and scores.min() > 0.5


# --- errors -----------------------------------------------------------------------------------------------------------

WRONG = {
    "steps is an integer of at least 1, not 0": {"steps": 0},
    "hidden is .* not 'many'": {"hidden": "many"},
    "hidden is .* not 0": {"hidden": 0},
    "early_stopping is True or False, not 'yes'": {"early_stopping": "yes"},
    r"validation_fraction is a finite number in \(0, 1\), not 1.5": {"validation_fraction": 1.5},
    r"encoder is .*, not 'rates'": {"encoder": "rates"},
    "encoder=None gives no time steps": {"encoder": None},
    "neuron must be one of .*LIFNode.*, not 'LIF'": {"neuron": "LIF"},
    "neuron must be one of .*, not 'leaky_node'. Did you mean LeakyNode": {"neuron": "leaky_node"},
    r"neuron is called as a function \(\).*, but the function .* does not take": {"neuron": lambda n: nn.LIFNode()},
    r"network must be a function \(n_features, n_outputs\) that makes one for each fit, not a Dense": {
        "network": nn.Dense(4, 3)
    },
    r"network is called as a function \(n_features, n_outputs\), but .* does not take": {"network": lambda f: None},
    r"neuron must be the name of a class in snncell.nn, .* or a Neuron, not": {"neuron": nn.ReLU()},
    "surrogate must be one of .*ATan.*, not 'Atan'": {"surrogate": "Atan"},
    "optimizer must be one of .*Adam.*, not 'adam'": {"optimizer": "adam"},
    "optimizer must be a class of nn, its name, or a function": {"optimizer": lambda p, rate: p},
    r"network must be a function \(n_features, n_outputs\) that returns a Cell": {"network": lambda f, c: None},
    r"the network must return .* one sample the mean had the shape \(1, 5\)": {"network": lambda f, c: nn.Dense(f, 5)},
    "fit_options must be further arguments of train.fit; the estimator sets 'batch_size'": {
        "fit_options": {"batch_size": 3}
    },
    "fit has no argument clip": {"fit_options": {"clip": 1.0}},
    "callbacks must be train.Callback": {"callbacks": [print]},
    r"encoder='rate' takes values in \[0, 1\].*MinMaxScaler\(clip=True\)": {"encoder": "rate"},
}


@pytest.mark.parametrize("words", WRONG)
def test_invalid_setting_raises_in_fit(words):
    model = small().set_params(**WRONG[words])
    with pytest.raises((ArgumentError, snncell.errors.CallError), match=words):
        model.fit(X, Y)
    assert not hasattr(model, "n_iter_")


def test_prediction_input_out_of_range_raises():
    model = small(encoder="latency").fit(UNIT, Y)
    with pytest.raises(ArgumentError, match=r"X has values in \[0, 2\]"):
        model.predict(2 * UNIT)


def test_latency_encoding_gives_one_spike_per_input():
    x = np.concatenate([UNIT, np.geomspace(1e-6, 1.0, 30).reshape(-1, 3)])  # the smallest would fire last
    spikes = small(encoder="latency", steps=5).fit(x, [*Y, *[0] * 10]).net_.encode(Tensor(x.astype(np.float32)))
    assert np.array_equal(np.unique(spikes.asnumpy().sum(0)), [1.0])


def test_single_class_raises():
    with pytest.raises(ArgumentError, match=r"at least two classes, but y has one class, \[7\]"):
        small().fit(X, np.full(60, 7))


# --- without scikit-learn ---------------------------------------------------------------------------------------------

WITHOUT = """
import sys
sys.modules["sklearn"] = None
import snncell
from snncell import *
from snncell.errors import PackageError
for attempt in ("import snncell.sklearn", "snncell.sklearn", "from snncell.sklearn import SNNClassifier"):
    try:
        exec(attempt)
    except ImportError as error:
        assert isinstance(error, PackageError)
        print(error)
"""


def test_missing_scikit_learn_raises_with_install_command():
    done = subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        assert line.startswith(
            'snncell.sklearn: needs the package scikit-learn. Install it with pip install "snncell[sklearn]"'
        )
    assert len(done.stdout.splitlines()) == 3
