"""Structure: import layers, one module that uses Numba, documented public names, file sizes, a light import."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import snncell
from snncell import Tensor, errors, ops
from snncell.compiler import passes
from snncell.compiler.passes.simplify import canonicalise
from snncell.train import Callback

ROOT = Path(snncell.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


@cache
def trees() -> dict[Path, ast.Module]:
    """The syntax trees of all files; parsed on first use, because each test process imports this file."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


@cache
def nodes() -> dict[Path, list[ast.AST]]:
    """All nodes of the syntax tree of each file."""
    return {path: list(ast.walk(tree)) for path, tree in trees().items()}


def module_of(path: Path) -> str:
    """ "ops.base" for snncell/ops/base.py, "ops" for snncell/ops/__init__.py, "" for snncell/__init__.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}

# --- imports ----------------------------------------------------------------------------------------------------------

# From the ground up. What stands in one row may not import another member of the row, unless it is one package.
FLOORS: list[set[str]] = [
    {"errors"},
    {"dtype"},
    {"base"},
    {"kernels"},
    {"tape"},
    {"compiler"},
    {"ops"},
    {"testing", "common"},
    {"cell"},
    {"surrogate"},
    {"nn"},
    {"monitoring", "amp"},
    {"report"},
    {"io", "data", "encode", "nir", "plot"},
    {"energy", "quantise"},
    {"train"},  # writes checkpoints, draws batches
    {"distributed", "mindspore", "sklearn", "torch"},
    {""},  # the face
    {"demo"},  # a program like a user's
    {"__main__"},
]
FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}

# Imports inside functions, each for a reason. They are arrows like any others, but for circles at import time.
LOCAL: dict[tuple[str, str], str] = {
    ("__main__", "demo"): "`snncell info` must not import what the demo needs",
    ("plot.training", "plot.cells"): "its classes are Matplotlib's, which is imported when something is drawn",
    ("demo", "plot"): "matplotlib is needed when the training is over, if at all",
    ("torch.fusing", "torch.module"): "PyTorch is imported when a module is made, so that its error names the command",
}


# The same inside packages: what stands in one row may not import another member of the row.
INNER_FLOORS: dict[str, list[set[str]]] = {
    "kernels": [
        {"arrays"},
        {"sums"},
        {"loops"},
        {"intrinsics"},
        {"scalar", "numba", "windows"},
        {"cuda", "pooling"},
        {"space"},
        {"products", "eventprop"},
        {"conv", "limits"},
    ],
    "kernels.intrinsics": [{"builtins"}, {"array_types"}, {"elements"}, {"broadcast", "panels"}, {"rows"}],
    "kernels.numba": [
        {"files", "lowering", "native", "syntax"},
        {"passes"},
        {"policy", "store"},
        {"code", "threads"},
        {"build"},
    ],
    "kernels.products": [
        {"blas", "device"},
        {"matmul"},
        {"csr", "delays", "gathers"},
        {"sparse"},
    ],
    "kernels.conv": [
        {"event_lists", "im2col", "planes", "taps", "transforms"},
        {"depthwise", "pointwise", "tiles"},
        {"winograd"},
        {"events"},
        {"direct"},
    ],
    "kernels.eventprop": [
        {"spike_times"},
        {"adjoint", "solver"},
        {"cuda", "recurrent", "solver_adjoint"},
        {"recurrent_solver"},
    ],
    "kernels.cuda": [
        {"base"},
        {"libraries", "simulated"},
        {"runtime"},
        {"build"},
        {"arrays"},
        {"exchange", "functions", "indexing"},
        {"philox"},
    ],
    "compiler": [
        {"ir", "state"},
        {"passes"},
        {"fuse"},
        {"schedule"},
        {"backends"},
        {"runtime"},
        {"linearise", "nan_replay"},
        {"explain"},
        {"scan"},
        {"clock", "compiled"},
        {"jit"},
        {"profile"},
    ],
    "compiler.ir": [{"program"}, {"operations"}, {"product", "windows"}],
    "compiler.passes": [
        {"simplify"},
        {"loop_bodies", "push_reductions", "separate_steps"},
        {"fuse_into_loops"},
        {"narrow", "pool_in_loops", "products"},
    ],
    "compiler.backends": [
        {"event_flow", "expressions"},
        {"event_neuron", "groups", "tile"},
        {"event_products", "pools"},
        {"cpu_loop", "cuda_loop"},
    ],
    "compiler.runtime": [{"launches"}, {"plan"}, {"loop_run"}],
    "compiler.state": [{"values"}, {"reach"}, {"python_state"}],
    "base": [{"config", "signals"}, {"frames"}, {"arguments"}],
    "base.arguments": [{"elsewhere", "shown"}, {"kinds", "names"}, {"guard"}],
    "tape": [
        {"state"},
        {"tensor"},
        {"backward", "parameter", "structure"},
        {"primitive"},
        {"event_lists", "finite", "hooks", "tracing", "transforms"},
        {"recompute"},
    ],
    "cell": [{"calls", "hooks", "ranges", "tree"}, {"fields", "modes", "state"}, {"cell", "constants"}],
    "ops": [
        {"base"},
        {"shape"},
        {"arithmetic", "event_lists", "fft"},
        {"control", "gathering", "transcendental"},
        {"jacobians", "padding", "reduce", "sorting"},
        {"activation", "linalg", "norms", "random"},
        {"indexing", "loss"},
        {"conv"},
        {"methods", "pool"},
    ],
    "surrogate": [{"base"}, {"curves", "pieces"}],
    "testing": [
        {"problem"},
        {"bprops"},
        {"search"},
        {"gradients"},
        {"through_time"},
        {"frameworks"},
        {"audit"},
    ],
    "nn": [
        {"container", "settings"},
        {"optim", "time"},
        {"layers"},
        {"losses", "rules"},
        {"neurons"},
        {"attention", "dataflow"},
    ],
    "nn.layers": [
        {"activations", "norm", "reshaping", "rnn", "spiking"},
        {"linear"},
        {"conv", "delays", "norm_over_time", "sparse", "state_space"},
    ],
    "nn.losses": [{"standard"}, {"spikes"}, {"spike_times"}],
    "nn.optim": [{"schedules"}, {"optimizer"}, {"algorithms"}],
    "nn.rules": [{"stdp", "traced_step"}, {"eligibility"}, {"online"}, {"eventprop"}],
    "nn.time": [{"axis"}, {"multistep"}, {"states"}],
    "common": [{"initializer"}],
    "nn.neurons": [
        {"convert"},
        {"constants"},
        {"base"},
        {"current", "event_driven", "integrate", "sequences"},
        {"event_dense", "nonlinear", "variants"},
        {"presets"},
    ],
    "nn.neurons.presets": [{"nir", "norse", "sinabs", "snntorch", "spikingjelly"}],
    "report": [{"facts", "findings"}, {"training"}, {"activity", "probe"}, {"rules"}],
    "plot": [
        {"axes", "sources"},
        {"cells"},
        {"gradients", "membranes", "rates", "spikes", "training"},
        {"pictures"},
        {"reports"},
    ],
    "distributed": [{"ranks"}, {"job", "sharding"}, {"gradients"}, {"training"}],
    "energy": [{"counts", "hardware"}, {"estimate"}],
    "monitoring": [{"layers"}, {"recorder"}, {"monitor"}],
    "data": [
        {"binning", "workers"},
        {"events"},
        {"formats", "frames"},
        {"samples"},
        {"transforms"},
        {"cache", "datasets", "loader", "made"},
    ],
    "data.formats": [
        {"reading"},
        {"aedat", "binary", "hdf5", "tables"},
    ],
    "data.made": [{"camera", "classification", "shd_like"}, {"memory"}],
    "data.transforms": [{"coordinates", "selection"}],
    "quantise": [
        {"quantiser", "integer"},
        {"grids", "lowering"},
        {"c_layers", "prepare"},
        {"export", "spiking"},
    ],
    "train": [
        {"callbacks", "metrics", "state"},
        {"batches", "log", "measures", "stopping"},
        {"checkpoints", "finite", "rewiring"},
        {"steps"},
        {"passes"},
        {"fit"},
        {"rate_finder"},
    ],
    "torch": [{"calls"}, {"module"}, {"fusing"}],
    "mindspore": [{"callbacks", "context", "metrics", "primitives", "training_cells"}, {"model"}],
    "nir": [
        {"graph"},
        {"interchange", "neurons"},
        {"layers"},
        {"reading"},
        {"writing"},
    ],
}


# Packages that show names of a side product and import it when one is used: under TYPE_CHECKING they say so to mypy.
LAZY = {"monitoring", "nn", "ops", "plot", "train"}


def imported(module: str, *, inside_functions: bool) -> list[str]:
    """The snncell modules that a module imports; imports under TYPE_CHECKING count as well."""
    return [target for target, inside in imports_of(module) if inside == inside_functions]


@cache
def imports_of(module: str) -> list[tuple[str, bool]]:
    """The snncell modules that a module imports, and whether it does so inside a function."""
    return list(_imports_of(module))


def _imports_of(module: str) -> Iterator[tuple[str, bool]]:
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    pending: list[tuple[ast.AST, bool]] = [(trees()[path], False)]
    while pending:
        node, inside = pending.pop()
        if module in LAZY and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        pending += [(child, inside) for child in ast.iter_child_nodes(node)]
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "snncell":
                    yield alias.name.partition(".")[2], inside
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise AssertionError(f"{module}: relative import in {package}")
            if (node.module or "").split(".")[0] == "snncell":
                base = (node.module or "").partition(".")[2]
                for alias in node.names:
                    name = f"{base}.{alias.name}".lstrip(".")
                    yield name if name in MODULES else base, inside


def room_of(module: str) -> str:
    return module if module in FLOOR else module.split(".")[0]


def test_every_module_is_in_a_layer() -> None:
    assert {room_of(module) for module in MODULES} <= FLOOR.keys()


def test_imports_only_go_to_lower_layers() -> None:
    for module in MODULES:
        for target in imported(module, inside_functions=False):
            assert target in MODULES, f"{module} imports {target}"
            own, other = room_of(module), room_of(target)
            assert own == other or FLOOR[other] < FLOOR[own], f"{module} imports {target}, which is not below it"


@pytest.mark.parametrize("package", INNER_FLOORS)
def test_imports_inside_a_package_only_go_to_lower_layers(package: str) -> None:
    inside = {
        module: module.removeprefix(f"{package}.").split(".")[0]
        for module in MODULES
        if module.startswith(f"{package}.")
    }
    floor = {room: number for number, rooms in enumerate(INNER_FLOORS[package]) for room in rooms}
    assert set(inside.values()) == floor.keys()
    for module, own in inside.items():
        for target in imported(module, inside_functions=False):
            other = inside.get(target)
            if other is not None and other != own:
                assert floor[other] < floor[own], f"{module} imports {target}, which is not below it"


def test_modules_have_no_import_cycle() -> None:
    graph = {module: set(imported(module, inside_functions=False)) - {module} for module in MODULES}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def test_imports_inside_functions_are_listed_with_reason() -> None:
    found = {(module, target) for module in MODULES for target in imported(module, inside_functions=True)}
    assert found == LOCAL.keys()


# Packages beside the core: a user imports them, or the core asks for one of their classes by `names.plugin`.
SIDE_PRODUCTS = {"mindspore", "nir", "quantise", "energy", "distributed", "sklearn", "torch"}
PROGRAMS = {"", "demo", "__main__"}  # the face shows everything, and the others are programs like a user's


def test_core_imports_no_side_product() -> None:
    for module in MODULES:
        if room_of(module) in SIDE_PRODUCTS | PROGRAMS:
            continue
        for target in [*imported(module, inside_functions=False), *imported(module, inside_functions=True)]:
            assert room_of(target) not in SIDE_PRODUCTS, (
                f"{module} imports {target}; see plugin in base/arguments/names.py"
            )


def test_import_search_finds_each_kind() -> None:
    assert "tape.state" in set(imported("tape.primitive", inside_functions=False))
    assert "dtype" in set(imported("tape.tensor", inside_functions=False))  # from snncell import dtype as dtypes
    assert "nn" in set(imported("", inside_functions=False))  # under TYPE_CHECKING


def test_only_one_file_inspects_frames() -> None:
    readers = {
        module_of(path)
        for path, found in nodes().items()
        for node in found
        if isinstance(node, ast.Attribute) and node.attr == "f_locals"
    }
    assert readers == {"base.frames"}  # functions say there what theirs mean


IMPORTS = """
import sys
import snncell
heavy = {"numba", "matplotlib", "scipy", "tqdm", "safetensors", "torch", "jax", "llvmlite", "sklearn"}
print("heavy", *sorted(heavy & {name.split(".")[0] for name in sys.modules}))
assert "snncell.mindspore" not in sys.modules
from snncell import *
Tensor, plot, monitor
print("starred", "matplotlib" in sys.modules)
for package in (snncell.nn, snncell.ops, snncell.train):
    names = set(package.__all__)
    exec("from " + package.__name__ + " import *", found := {})
    assert names <= found.keys() and names <= set(dir(package))
assert snncell.nn.TrainOneStepCell is snncell.mindspore.TrainOneStepCell
assert snncell.Model is snncell.train.Model is snncell.mindspore.Model
assert snncell.context is snncell.mindspore.context
print(snncell.nn.Missing)
"""


@pytest.fixture(scope="module")
def imports() -> subprocess.CompletedProcess[str]:
    """The output of a process that imports all of the package step by step."""
    return subprocess.run([sys.executable, "-W", "error", "-c", IMPORTS], capture_output=True, text=True, check=False)


def test_import_loads_no_heavy_package(imports: subprocess.CompletedProcess[str]) -> None:
    assert imports.stdout.splitlines()[0] == "heavy"


def test_star_import_works(imports: subprocess.CompletedProcess[str]) -> None:
    assert imports.stdout.splitlines()[1] == "starred False"


def test_mindspore_names_are_imported_lazily(imports: subprocess.CompletedProcess[str]) -> None:
    assert imports.stderr.strip().splitlines()[-1].startswith("snncell.errors.MissingNameError"), imports.stderr


# --- compiler passes --------------------------------------------------------------------------------------------------

LISTED = {each.run for each in (*passes.PROGRAM_PASSES, *passes.BODY_PASSES)}


def is_pass(function: Any) -> bool:
    """True for a public function Program -> Program."""
    public = inspect.isfunction(function) and not function.__name__.startswith("_")
    return public and function.__annotations__ == {"program": "Program", "return": "Program"}


def test_each_compiler_pass_is_in_one_of_two_lists() -> None:
    modules = [name for name in MODULES if name.startswith("compiler.passes.")]
    found = {
        function
        for name in modules
        for function in vars(sys.modules[f"snncell.{name}"]).values()
        if is_pass(function) and function.__module__ == f"snncell.{name}"
    }
    assert found - {canonicalise} == LISTED  # it runs a part of both lists
    assert {function.__module__.removeprefix("snncell.") for function in LISTED} == set(modules)


def test_one_function_runs_passes_of_both_lists() -> None:
    """Other code calls no pass, except for passes that remove their own dead code."""
    names = {function.__name__ for function in LISTED} - {"eliminate_dead_code"}
    callers = {
        (module, node.func.id)
        for module, path in MODULES.items()
        for node in nodes()[path]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    }
    assert callers == set()
    runs = [
        node
        for node in nodes()[MODULES["compiler.passes.simplify"]]
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "each.run"
    ]
    assert len(runs) == 1


def test_explain_passes_names_all_passes_for_a_loop() -> None:
    def total(x: Tensor) -> Tensor:
        return ops.scan(lambda c, row: (c * 0.5 + row, ops.tanh(c)), ops.zeros((2,)), x)[1].sum()

    text = snncell.explain_passes(snncell.grad(total), ops.ones((3, 2)))
    _, *bodies = text.split("\n--- a step of ")
    assert [body.splitlines()[0].split(",")[0] for body in bodies] == ["scan", "backward of scan"]
    heads = [line for line in text.splitlines() if line.endswith((":", ": no change")) and line[0] != " "]
    names = [head.split(":")[0] for head in heads]
    wanted = [each.name for each in passes.PROGRAM_PASSES]
    assert names[: len(wanted) + 1] == ["traced", *wanted]
    wanted = [each.name for each in passes.BODY_PASSES]
    assert names[-len(wanted) - 1 :] == ["traced", *wanted] == names[-2 * len(wanted) - 2 : -len(wanted) - 1]
    assert "  # in the loop:" in bodies[0] and "  # in the loop:" in bodies[1]
    assert all(each.leaves for each in (*passes.PROGRAM_PASSES, *passes.BODY_PASSES))


# --- Numba ------------------------------------------------------------------------------------------------------------


COMPILERS = {"numba.njit", "numba.jit", "numba.vectorize", "numba.guvectorize", "cuda.jit", "numba.cuda.jit"}


def test_only_one_file_compiles_with_numba() -> None:
    homes = set()
    for path, found in nodes().items():
        for node in found:
            if isinstance(node, ast.Attribute) and ast.unparse(node) in COMPILERS:
                homes.add(module_of(path))
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numba":
                assert module_of(path).startswith("kernels."), f"{path.name} imports from {node.module}"
                assert not {"njit", "jit"} & {alias.name for alias in node.names}
    assert homes == {"kernels.numba.policy"}


def test_numba_is_never_imported_at_module_level() -> None:
    for path, tree in trees().items():
        for node in tree.body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "numba" for name in names), module_of(path)


def test_package_all_lists_every_name() -> None:
    names = {alias.asname for node in trees()[ROOT / "__init__.py"].body for alias in getattr(node, "names", [])}
    shown = {name for name in names if name and not name.startswith("_")} | {
        *snncell._LAZY,
        "monitor",
        "errors",
        "profile",
    }
    assert set(snncell.__all__) == shown
    assert len(snncell.__all__) == len(shown) and set(snncell.__all__) <= set(dir(snncell))
    assert all(hasattr(snncell, name) for name in snncell.__all__)


@pytest.mark.parametrize("face", [snncell.nn, snncell.nn.neurons, snncell.surrogate], ids=lambda face: face.__name__)
def test_subpackage_exports_and_lists_its_imports(face: Any) -> None:
    body = trees()[Path(face.__file__)].body
    lazy = [node for block in body if isinstance(block, ast.If) for node in block.body]  # for type checkers
    imports = [node for node in [*body, *lazy] if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names if alias.asname == alias.name} - {"presets"}
    for node in imports:
        names |= set(import_module(str(node.module)).__all__) if node.names[0].name == "*" else set()
    assert sorted(names) == face.__all__
    assert names <= set(re.findall(r"\w+", face.__doc__))
    assert names <= set(dir(face)) and all(hasattr(face, name) for name in names)
    assert set(snncell.nn.neurons.__all__) <= set(snncell.nn.__all__)


# --- documentation ----------------------------------------------------------------------------------------------------

# What subclasses override says nothing new in each of them.
# Methods that a class of the project calls and documents: Cell and neurons; quantisers; callbacks of a training; its
# steps; layers of an integer network.
EXEMPT = {"construct", "charge", "bprop", "primitive", "abstract", "updated", "decayed", "extend_repr"}
EXEMPT |= {"dynamics", "spike_condition", "input_spike", "reset"}  # of an EventNeuron
EXEMPT |= {"grid", "rounded", "settle", "smooth", "passes", "measured", "result", "adjusted"}
EXEMPT |= {"range_of", "check_constant", "shared_axes", "statistics_shape"}
EXEMPT |= {name for name in dir(Callback) if name.startswith("on_")} | {"state", "resume", "finish", "run"}


def undocumented(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.If):  # TYPE_CHECKING, versions
            continue
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
        if ast.get_docstring(node) is None and node.name not in EXEMPT and not {"setter", "overload"} & decorators:
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node.body, f"{prefix}{node.name}.")


def inherits_docstring(module: str, name: str) -> bool:
    """True for a method of a class that users do not see, if the method that it overrides has a docstring."""
    kind, _, method = name.partition(".")
    packages = ("compiler.", "kernels.", "ops.", "distributed.", "nn.neurons.presets.", "nn.rules.eligibility")
    if not method or not module.startswith(packages):
        return False
    return inspect.getdoc(getattr(getattr(import_module(f"snncell.{module}"), kind), method)) is not None


def test_every_module_and_public_name_has_docstring() -> None:
    for module, path in MODULES.items():
        tree = trees()[path]
        if tree.body:
            assert ast.get_docstring(tree), f"{module} has no docstring"
        assert [name for name in undocumented(tree.body, "") if not inherits_docstring(module, name)] == [], module


# --- names ------------------------------------------------------------------------------------------------------------

# Names that users know from elsewhere for two things.
CLASSES_DEFINED_TWICE = {
    "Dropout": "MindSpore has nn.Dropout and ops.Dropout",
    "LeakyReLU": "the activation, and the surrogate with its derivative",
    "Sigmoid": "the activation, and the surrogate with its derivative",
    "Tanh": "the activation, and the surrogate with its derivative",
    "Identity": "PyTorch's layer, and MindSpore's initializer",
    "Uniform": "the quantiser, and MindSpore's initializer",
    "Constant": "the constant of a neuron, nn.Constant, and MindSpore's initializer",
}


def test_class_names_are_unique_in_package() -> None:
    homes: dict[str, set[str]] = {}
    for path, found in nodes().items():
        for node in found:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(module_of(path))
    assert {name for name, modules in homes.items() if len(modules) > 1} == CLASSES_DEFINED_TWICE.keys()


# --- size -------------------------------------------------------------------------------------------------------------

LONG_MODULES = {}
LONG_FUNCTIONS = {
    "compiler.jit.jit": "most of it says what each argument means",
    "compiler.profile.profile": "most of it says what is measured, and what each argument means",
    "base.config.set_context": "two thirds of it say what each setting means",
    "ops.conv.conv": "a third of it says what each argument means",
    "data.made.classification.poisson_patterns": "two thirds of it say what each argument means",
    "kernels.conv.taps.contraction": "a kernel twice: in the words of NumPy, and in the instructions of LLVM",
    "kernels.conv.tiles.correlate_tiles": "a quarter of it reads the geometry",
    "kernels.conv.tiles.contract_tiles": "a quarter of it reads the geometry",
    "kernels.conv.transforms._between_grids": "a kernel twice: in the words of NumPy, and in the instructions of LLVM",
    "kernels.intrinsics.panels._row_tile": "a kernel twice: in the words of NumPy, and in the instructions of LLVM",
    "data.made.classification.randman": "two thirds of it say what each argument means",
    "data.formats.read_events": "most of it is the table of formats, and what each argument means",
    "encode.latency": "two thirds of it say what each argument means, in two conventions",
    "testing.gradients.check_grads": "two thirds of it say what is compared, and what each argument means",
    "testing.through_time.check_through_time": "two thirds of it say what is compared, and what each argument means",
    "quantise.prepare.prepare": "three quarters of it say what is rounded, and what each argument means",
    "quantise.export.export_c": "half of it says what the file contains, and what each argument means",
    "quantise.spiking.to_spiking": "two thirds of it say what is converted, and what each argument means",
    "nir.reading.from_nir": "two thirds of it say what each argument means",
    "nir.writing.to_nir": "half of it says what each argument means",
    "train.rate_finder.find_learning_rate": "two thirds of it say what is searched, and what each argument means",
    "train.fit.fit": "most of it says what each argument means",
}


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    return (node for node in nodes()[path] if isinstance(node, ast.FunctionDef))


def test_modules_over_500_lines_are_listed() -> None:
    long = {module for module, path in MODULES.items() if len(path.read_text(encoding="utf-8").splitlines()) > 500}
    assert long <= LONG_MODULES.keys()
    assert LONG_MODULES.keys() <= long, "no longer long: take them off the list"


def test_functions_over_50_lines_are_listed() -> None:
    long = {
        f"{module}.{node.name}"
        for module, path in MODULES.items()
        for node in functions(path)
        if (node.end_lineno or 0) - node.lineno + 1 > 50
    }
    assert long <= LONG_FUNCTIONS.keys()
    assert LONG_FUNCTIONS.keys() <= long, "no longer long: take them off the list"


def test_backward_sweep_is_under_30_lines() -> None:
    (sweep,) = [node for node in functions(MODULES["tape.backward"]) if node.name == "sweep"]
    assert sweep.end_lineno is not None
    code = sweep.end_lineno - sweep.body[1].lineno + 1  # after the docstring
    assert code < 30


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind is not errors.SnncellError]


@cache
def names_that_are_read() -> dict[str, set[str]]:
    """The names that each module reads."""
    return {
        module_of(path): {node.id for node in found if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        for path, found in nodes().items()
    }


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_derives_from_snncell_and_builtin_error_and_is_used(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.SnncellError)
    own = {value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert set(kind.__mro__) & (own - {Exception, BaseException})
    # Raised, or made by a function that gives the error to raise, or named in a table of them.
    assert {module for module, names in names_that_are_read().items() if kind.__name__ in names} - {"errors"}


def test_no_builtin_error_is_raised_directly() -> None:
    # NotImplementedError marks a method that subclasses give; AttributeError is what __getattr__ must raise.
    allowed = {"NotImplementedError", "AttributeError"}
    for path, found in nodes().items():
        for node in found:
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
                name = node.exc.func.id
                assert not hasattr(builtins, name) or name in allowed, f"{module_of(path)}:{node.lineno} raises {name}"
