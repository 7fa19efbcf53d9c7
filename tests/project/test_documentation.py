"""Documentation: docstring examples, the README's code and examples/ run and print the stated output."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks.started import launcher, run as run_on_ranks

import snncell

ROOT = Path(__file__).parents[2]
NAMES = {
    name: getattr(snncell, name)
    for name in (
        *("Tensor", "Parameter", "ParameterTuple", "nn", "ops", "grad", "value_and_grad"),
        *("jit", "explain", "explain_passes"),
    )
} | {"snncell": snncell, "GradOperation": snncell.ops.GradOperation}
MODULES = sorted(m.name for m in pkgutil.walk_packages(snncell.__path__, "snncell.") if not m.name.endswith("__main__"))

JOBS = {"snncell.distributed", "snncell.distributed.gradients", "snncell.distributed.job"}  # examples that join one


NEEDS_TORCH = ("snncell.torch.calls", "snncell.torch.module")


def examples(module: str) -> list[doctest.DocTest]:
    if module in NEEDS_TORCH:  # they have no examples, and PyTorch may be missing
        return []
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module), globs=dict(NAMES))
    return [test for test in found if test.examples]


PACKAGES = "nn|ops|train|data|snncell|surrogate|quantise|nir|plot|encode|testing|distributed|monitoring"
NAME = re.compile(rf"(?<![\w.])(?:{PACKAGES})(?:\.[A-Za-z]\w*)+")
FILES = (".py", ".h5", ".ptx")  # train.py is a file


def names_in(source: str) -> set[str]:
    """The snncell names in the string constants of a source: messages, docstrings, tables of advice."""
    texts = [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return {name for text in texts for name in NAME.findall(text) if not name.endswith(FILES)}


def exists(name: str) -> bool:
    """True if a dotted name leads to an attribute or a module of snncell, or of the package `nir`."""
    first, *rest = name.split(".")
    homes = [snncell if first == "snncell" else getattr(snncell, first)]
    if first == "nir" and importlib.util.find_spec("nir"):
        homes.append(importlib.import_module("nir"))
    return any(_leads_on(home, rest) for home in homes)


def _leads_on(place, rest):
    for number, name in enumerate(rest):
        try:
            if (found := getattr(place, name, None)) is None:
                path = f"{place.__name__}.{name}"
                if number == len(rest) - 1:  # not imported, because other tests look at what has not been imported
                    return importlib.util.find_spec(path) is not None
                found = importlib.import_module(path)
            place = found
        except (AttributeError, ImportError):  # a name that snncell does not have raises an error with the equivalent
            return False
    return True


def test_every_snncell_name_in_messages_and_docstrings_exists():
    assert not exists("nn.RateRegulariser")
    assert names_in("f'use nn.ReLU or {x}'; 'not torch.nn.ReLU'; 'run train.py'") == {"nn.ReLU"}
    sources = sorted((ROOT / "snncell").rglob("*.py"))
    places = {name: str(p.relative_to(ROOT)) for p in sources for name in names_in(p.read_text("utf-8"))}
    if not importlib.util.find_spec("nir"):
        places = {name: path for name, path in places.items() if not name.startswith("nir.")}
    assert len(places) > 300
    assert not {name: path for name, path in places.items() if not exists(name)}


def test_docstrings_have_examples():
    assert sum(len(examples(module)) for module in MODULES) >= 7


@pytest.mark.sampled(16)
@pytest.mark.compiled
@pytest.mark.parametrize("module", [module for module in MODULES if examples(module)])
def test_docstring_examples_print_stated_output(module):
    if module in JOBS:
        pytest.importorskip("mpi4py", reason="the extra 'mpi' brings mpi4py, and it is not installed")
    if module.startswith("snncell.torch"):
        pytest.importorskip("torch", reason="the extra 'torch' brings PyTorch, and it is not installed")
    for test in examples(module):
        report: list[str] = []
        doctest.DocTestRunner(verbose=False).run(test, out=report.append)
        assert not report, "".join(report)


@pytest.mark.compiled
def test_readme_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 2
    exec(compile("\n".join(blocks), "README.md", "exec"), {})
    (result,) = capsys.readouterr().out.splitlines()
    assert float(re.search(r"accuracy=([\d.]+)", result)[1]) > 0.94  # "about 96 %"
    assert (tmp_path / "raster.png").read_bytes().startswith(b"\x89PNG")


def links(page: Path) -> list[str]:
    """The relative links and pictures of a page, outside of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"`[^`]*`", "", text))


@pytest.mark.parametrize("pattern", ["*.md", "llms.txt", "docs/**/*.md", "benchmarks/results/*.md"])
def test_relative_links_and_pictures_exist_in_a_clone(pattern):
    found = [(page, link) for page in sorted(ROOT.glob(pattern)) for link in links(page)]
    assert found
    dead = [f"{page.relative_to(ROOT)}: {link}" for page, link in found if not (page.parent / link).exists()]
    assert not dead, "\n".join(dead)


def test_first_readme_block_has_install_and_test_commands():
    kind, block = re.search(r"```(\w*)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S).groups()
    assert kind == "bash"
    assert block.splitlines() == ["pip install . && python -m snncell demo", 'pip install ".[test]" && pytest']


def load(name: str):
    specification = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.compiled
def test_example_custom_bprop(capsys):
    accuracies = load("custom_gradient").main(epochs=3)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "gradient of a step: [0. 0. 0. 0.]"
    assert printed[1].startswith("FirstTry: The bprop of FirstTry gives ")
    assert printed[1].endswith("found / expected is 0.25 in all entries.")
    assert printed[2].startswith("SecondTry: The bprop of SecondTry gives no gradient of Parameter 'slope'")
    assert printed[3] == "Spike passes"
    assert accuracies["Spike"] > accuracies["Step"] + 0.1


@pytest.mark.compiled
def test_example_network_without_spikes(capsys):
    assert load("non_spiking").main(epochs=2, channels=8) > 0.8
    printed = capsys.readouterr().out
    assert "ChannelDropout: its gradient is correct\nGain: its gradient is correct\n" in printed


@pytest.mark.slow
@pytest.mark.compiled
def test_example_dead_network(tmp_path):
    found = load("dead_network").main(epochs=3, folder=str(tmp_path))
    (dead, first), (_, second), (mended, last) = found.values()
    assert dead < 0.2 and mended > 0.85
    assert (first[0].kind, first[0].layer, first[0].severity) == ("dead", "lif1", "alarm")
    assert {finding.layer for finding in second.of("dead")} == {"lif1", "lif2"}
    assert all(finding.severity == "note" for finding in last)
    assert len(list(tmp_path.glob("*.html"))) == 3


@pytest.mark.compiled
def test_example_jitted_training():
    assert load("jitted_training").main(epochs=8) > 0.9


@pytest.mark.slow
@pytest.mark.compiled
def test_example_energy(tmp_path, capsys):
    found = load("energy").main(epochs=5, folder=str(tmp_path))
    assert min(right for right, _ in found.values()) > 0.75
    currents, rate, latency = (energy for _, energy in found.values())
    assert latency.joules < 0.5 * rate.joules < 0.5 * currents.joules
    assert latency.joules < latency.dense / 5 and rate.joules > rate.one_pass
    assert [line for line in capsys.readouterr().out.splitlines() if ": test accuracy " in line]
    assert (tmp_path / "energy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.compiled
def test_example_callbacks(tmp_path, capsys):
    history = load("callbacks").main(epochs=6, folder=str(tmp_path))
    assert "seen enough" in capsys.readouterr().out and len(history) == 6
    assert history[-1]["test_accuracy"] > 0.85 and history[-1]["test_energy"] > 0.0
    assert {"best.ckpt", "last.ckpt", "callbacks.png", "runs"} <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "runs" / "report-5.html").is_file()


@pytest.mark.slow
@pytest.mark.compiled
def test_example_distributed_training(tmp_path):
    launcher()  # or skip
    file = ROOT / "examples" / "distributed.py"
    alone = subprocess.run([sys.executable, file], capture_output=True, text=True, cwd=tmp_path)
    words, digest = alone.stdout.rsplit(", ", 1)
    assert alone.returncode == 0 and words.startswith("1 rank: test accuracy 0.9"), alone.stderr
    found = run_on_ranks(2, str(file), cwd=tmp_path)
    assert found.startswith("2 ranks: ") and found.endswith(digest)


@pytest.mark.slow
@pytest.mark.compiled
def test_example_scikit_learn(tmp_path, capsys):
    pytest.importorskip("sklearn", reason="the extra 'sklearn' brings scikit-learn, and it is not installed")
    search = load("scikit_learn").main(epochs=6, samples=300, folder=str(tmp_path), n_jobs=1)
    assert search.best_score_ > 0.75
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["no spikes", "currents", "first spikes", "recurrent"]
    assert (tmp_path / "scikit_learn.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.compiled
def test_example_sweep_with_joblib(tmp_path, capsys):
    pytest.importorskip("joblib", reason="joblib comes with the extra 'sklearn', and it is not installed")
    table = load("joblib_sweep").main(epochs=3, seeds=1, folder=str(tmp_path), alphas=(2.0, 32.0), rates=(1e-2,))
    assert table.shape == (2, 1, 1) and table[0, 0, 0] > 0.85 > table[1, 0, 0]  # too narrow a surrogate learns nothing
    assert capsys.readouterr().out.startswith("learning rate 0.01: {2.0: 0.")
    assert (tmp_path / "joblib_sweep.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.compiled
def test_example_sweep_with_optuna(tmp_path, capsys):
    pytest.importorskip("sklearn", reason="the extra 'sklearn' brings scikit-learn, and it is not installed")
    pytest.importorskip("optuna", reason="Optuna is not installed: pip install optuna")
    joblib = pytest.importorskip("joblib")
    joblib.externals.loky.get_reusable_executor().shutdown()  # processes of other tests have kernels in memory
    counts, study = load("optuna_sweep").main(trials=6, folder=str(tmp_path))
    assert len(study.trials) == 7 and study.best_value < 1.5
    assert counts[0] > 5 and counts == [counts[0]] * 3  # of kernels: what comes later compiles nothing
    assert "kernels after the first trial" in capsys.readouterr().out
    assert (tmp_path / "optuna_sweep.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.compiled
def test_example_mindspore_model_script(capsys):
    assert load("mindspore_model").main(epochs=4) > 0.9
    printed = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"epoch: 1 step: 23, loss is \d\.\d+", printed[0])
    assert printed[2].startswith("Eval result: epoch 1, metrics: {'accuracy': 0.")
    assert re.fullmatch(r"Train epoch time: \d+\.\d{3} ms, per step time: \d+\.\d{3} ms", printed[3])


@pytest.mark.slow
@pytest.mark.compiled
def test_example_mixed_precision(capsys):
    found = load("mixed_precision").main(epochs=3)
    assert found["float16"] > 0.9 and abs(found["float16"] - found["float32"]) < 0.04
    assert "skipped steps per epoch: [" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.compiled
def test_example_integer_network(capsys):
    found = load("quantised").main(epochs=3, tuning=1)
    assert found["float32"] > 0.9 and found["whole numbers"] == found["int4, trained on"] > 0.9
    assert "identical potentials: True" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.compiled
def test_example_ann_to_snn(capsys):
    found = load("ann_to_snn").main(epochs=5)
    for name, (first, *_, last, ann) in found.items():
        assert ann > 0.94 and abs(last - ann) < 0.015 and first < last, name
    assert "layer 1: " in capsys.readouterr().out


@pytest.mark.compiled
def test_example_temporal_task(tmp_path):
    assert load("pulse_order").main(steps=150, picture=str(tmp_path / "potentials.png")) > 0.7
    assert (tmp_path / "potentials.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.compiled
def test_example_synaptic_delays(tmp_path):
    file = tmp_path / "training.png"
    learned, without = load("synaptic_delays").main(epochs=12, count=512, classes=4, hidden=24, picture=str(file))
    assert learned > 0.7 and without < 0.4  # chance is 0.25
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.compiled
def test_example_sparse_weights(tmp_path):
    file = tmp_path / "synapses.png"
    found = load("sparse_weights").main(epochs=10, picture=str(file))
    assert found["fixed"] < found["DEEP R"] < found["RigL"] and found["RigL"] > 0.6  # chance is 0.1
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.compiled
def test_example_spikformer(tmp_path):
    file = tmp_path / "maps.png"
    assert load("spikformer").main(epochs=3, picture=str(file)) > 0.5  # chance is 0.1
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.compiled
def test_example_synaptic_depression(tmp_path):
    file = tmp_path / "drive.png"
    found = load("synaptic_depression").main(picture=str(file))
    rises = {name: [found[name, group][0] for group in ("slow", "fast")] for name in ("constant", "depressing")}
    assert rises["constant"][1] > 4.0 * rises["constant"][0]
    assert 0.6 < rises["depressing"][1] / rises["depressing"][0] < 1.4
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.compiled
def test_example_two_compartments(tmp_path):
    file = tmp_path / "accuracies.png"
    found = load("two_compartments").main(picture=str(file))
    assert found["LIF, tau 2"] < 0.4 and found["TC-LIF"] > found["LIF, tau 50"] + 0.2  # chance is 0.25
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.compiled
def test_example_conv_lstm(tmp_path):
    file = tmp_path / "frames.png"
    found = load("conv_lstm").main(updates=150, picture=str(file))
    assert found["ConvLSTM"] < 0.6 * found["repeat"]
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.compiled
def test_example_online_learning():
    accuracies = load("online_learning").main(updates=60, steps=30, neurons=30)
    assert list(accuracies) == ["e-prop", "OTTT", "SLTT"]
    assert accuracies["e-prop"] > 0.9 and max(accuracies["OTTT"], accuracies["SLTT"]) < 0.8


@pytest.mark.slow
@pytest.mark.compiled
def test_example_long_memory():
    found = load("long_memory").main(delay=60, count=512, epochs=(8, 6))
    for name in ("resonators", "LRU"):
        recalled, read = found[name]
        assert recalled > 0.9 and found["LIF"][0] < 0.3  # chance is 0.125
        assert read > found["LIF"][1] + 0.2


@pytest.mark.compiled
def test_example_long_stream():
    losses, (first, second) = load("long_stream").main(chunks=100)
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    assert second < first + 200_000  # 50 more chunks hold 50 times the Tensors of one


@pytest.mark.compiled
def test_example_data_loading(capsys):
    assert load("loading").main(samples=160, epochs=3) > 0.6
    assert "x (80, 32, 1, 32) UInt8" in capsys.readouterr().out


@pytest.mark.compiled
def test_example_event_files(capsys):
    assert load("event_files").main(samples=40, epochs=6) > 0.7
    assert capsys.readouterr().out.startswith("EventFolder: 80 samples of 2 classes, sensor_size (16, 16, 2)")


@pytest.mark.slow
@pytest.mark.compiled
def test_example_from_words_to_graph(tmp_path):
    pytest.importorskip("h5py", reason="the extra 'events' brings h5py, and it is not installed")
    nir = pytest.importorskip("nir", reason="the extra 'nir' brings nir, and it is not installed")
    assert load("words_to_nir").main(folder=str(tmp_path), samples=300, epochs=8) > 0.5
    assert (tmp_path / "words.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "NIRGraph" in {type(node).__name__ for node in nir.read(tmp_path / "words.nir").nodes.values()}


@pytest.mark.slow
@pytest.mark.compiled
def test_example_three_encoders():
    accuracies = load("digits_by_encoder").main(epochs=3, steps=8, neurons=64)
    assert list(accuracies) == ["rate", "latency", "population"]
    assert min(accuracies.values()) > 0.6


@pytest.mark.slow
@pytest.mark.compiled
def test_example_convolutional_network():
    assert load("convolutional").main(epochs=2, channels=8) > 0.6


@pytest.mark.slow
@pytest.mark.compiled
def test_example_random_manifolds():
    assert load("manifolds").main(epochs=20, samples=100, neurons=32, steps=30) > 0.7


@pytest.mark.slow
@pytest.mark.compiled
def test_example_synthetic_words():
    by_counts, by_times = load("made_words").main(epochs=8, samples=400, classes=4, neurons=48)
    assert by_counts < 0.4  # chance is 0.25 +- 0.025
    assert by_times > 0.7


@pytest.mark.slow
@pytest.mark.compiled
def test_example_learned_time_constants():
    found = load("time_constants").main(updates=150, steps=40, neurons=16)
    assert found["learned"] > found["fixed"] + 0.08
    assert found["longest"] > 10.0  # from 2


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("options", [{}, {"spikes": 10, "t_max": 1000.0}], ids=["one spike", "many spikes"])
def test_example_yin_yang(options):
    found = load("yin_yang").main(epochs=3, **options)
    assert found[0] > 0.7 and found[2] > 0.88


@pytest.mark.slow
@pytest.mark.compiled
def test_example_yin_yang_is_stable_for_ten_seeds():
    last = [load("yin_yang").main(epochs=60, seed=seed)[-10:] for seed in range(10)]
    assert np.mean(last) > 0.97 and np.min(last) > 0.95


@pytest.mark.compiled
def test_example_hidden_connections():
    of_times, of_weights = load("hidden_connections").main(updates=500)
    assert of_times < 0.2 and of_weights < 0.2


@pytest.mark.compiled
def test_example_exact_spike_times():
    assert load("exact_spike_times").main(updates=300, patterns=3, lines=20, hidden=20, outputs=2) < 0.5


@pytest.mark.compiled
def test_example_custom_neuron(capsys):
    assert load("own_neuron").main(updates=60, steps=50) < 0.25
    assert "MultiStep(TwoSigned): one kernel" in capsys.readouterr().out


@pytest.mark.compiled
def test_example_snntorch_network():
    assert load("from_snntorch").main()


@pytest.mark.compiled
def test_example_snntorch_network_without_snntorch(monkeypatch, capsys):
    example = load("from_snntorch")
    monkeypatch.setattr(example.importlib.util, "find_spec", lambda name: None)
    assert example.main()
    assert "snnTorch is not installed" in capsys.readouterr().out
    example.SPIKES = (2105, 341)
    assert not example.main()


@pytest.mark.compiled
def test_example_torch_modules(torch):
    for package in ("spikingjelly", "snntorch"):
        pytest.importorskip(package, reason=f"the example compares with {package}: pip install {package}")
    assert load("torch_module").main(steps=2, samples=16)


@pytest.mark.slow
@pytest.mark.compiled
def test_example_nir(capsys):
    pytest.importorskip("nir")
    found = load("nir_exchange").main(steps=20)
    assert capsys.readouterr().out.startswith("net.nir: ")
    assert found["difference"] < 1e-5
    assert found["after"] > 0.7


# --- MindSpore's names ------------------------------------------------------------------------------------------------

OF_MINDSPORE = {
    "Cell": (
        "param_prefix compiled update_cell_prefix phase cls_name register_buffer get_buffer named_buffers buffers "
        "get_sub_cell extend_repr set_inputs get_inputs compile insert_param_to_cell insert_child_to_cell "
        "parameters_dict update_parameters_name trainable_params untrainable_params get_parameters "
        "check_names_and_refresh_name check_names parameters_and_names cells_and_names cells name_cells apply to "
        "add_flags add_flags_recursive get_flags to_float set_grad set_train set_jit_config "
        "register_forward_pre_hook register_forward_hook register_backward_pre_hook register_backward_hook "
        "get_extra_state set_extra_state register_state_dict_post_hook register_state_dict_pre_hook state_dict "
        "register_load_state_dict_pre_hook register_load_state_dict_post_hook load_state_dict recompute "
        "init_parameters_data"
    ),
    "SequentialCell": "append insert extend",
    "CellList": "append insert extend",
    "CellDict": "clear pop keys values items update",
}
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py")))


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, row in OF_MINDSPORE.items() for name in row.split()])
def test_mindspore_names_exist_with_docstring_and_test(kind, name):
    member = inspect.getattr_static(getattr(snncell.nn, kind), name)
    assert inspect.getdoc(member.fget if isinstance(member, property) else member)
    assert re.search(rf"\.{name}\b", TESTS) or f"def {name}(" in TESTS


def test_cell_has_mindspore_attributes():
    cell = snncell.nn.Cell()
    assert (cell.training, cell.phase, cell.requires_grad, cell.bprop_debug) == (False, "predict", False, False)
