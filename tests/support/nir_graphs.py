"""Random NIR graphs, and an interpreter of NIR in plain NumPy, node by node.

The interpreter runs step by step in float64 and uses no code of snncell.
"""

from __future__ import annotations

from typing import Any

import nir
import numpy as np

NEURONS = ("I", "IF", "LI", "LIF", "CubaLI", "CubaLIF")


# --- the definition ---------------------------------------------------------------------------------------------------


def flat(graph: Any, path: str = "") -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """All nodes by path, and the edges between them."""
    nodes: dict[str, Any] = {}
    edges: list[tuple[str, str]] = []

    def door(name: str, kind: type) -> str:
        node = graph.nodes[name]
        if not isinstance(node, nir.NIRGraph):
            return path + name
        (inner,) = [key for key, one in node.nodes.items() if isinstance(one, kind)]
        return f"{path}{name}.{inner}"

    for source, target in graph.edges:
        edges.append((door(source, nir.Output), door(target, nir.Input)))
    for name in dict.fromkeys([*(name for edge in graph.edges for name in edge), *graph.nodes]):
        node = graph.nodes[name]
        if isinstance(node, nir.NIRGraph):
            inner_nodes, inner_edges = flat(node, f"{path}{name}.")
            nodes |= inner_nodes
            edges += inner_edges
        else:
            nodes[path + name] = node
    return nodes, edges


def reaches(edges: list[tuple[str, str]], start: str, goal: str) -> bool:
    """True if there is a path from one node to another, or if they are the same node."""
    seen, pending = set(), [start]
    while pending:
        name = pending.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            pending += [b for a, b in edges if a == name]
    return False


def order_of(nodes: dict[str, Any], edges: list[tuple[str, str]], dt: float) -> tuple[list[str], set[tuple[str, str]]]:
    """The order of nodes in a step, and the edges that carry values of the previous step because they close a cycle.

    In a cycle, a delay of at least one step already carries previous values, so its output does not wait for its input.
    """

    def waits(edge: tuple[str, str]) -> bool:
        node = nodes[edge[1]]
        late = isinstance(node, nir.Delay) and (np.round(node.delay / dt) >= 1).all()
        return not (late and reaches(edges, edge[1], edge[0]))

    used = [edge for edge in edges if waits(edge)]
    state: dict[str, int] = {}
    done: list[str] = []
    late: set[tuple[str, str]] = set()

    def visit(name: str) -> None:
        state[name] = 1
        for source, target in used:
            if source == name and state.get(target, 0) == 0:
                visit(target)
            elif source == name and state[target] == 1:
                late.add((source, target))
        state[name] = 2
        done.append(name)

    for name in [*(n for n, node in nodes.items() if isinstance(node, nir.Input) and "." not in n), *nodes]:
        if name not in state:
            visit(name)
    return done[::-1], late


def windows(image: Any, size: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """All windows of (C, *S), as (C, *positions, *size)."""
    padded = np.pad(image, [(0, 0), *[(p, p) if np.ndim(p) == 0 else p for p in padding]])
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(1, image.ndim)))
    axes = len(size)
    places = tuple(slice(None, None, s) for s in stride)
    inside = tuple(slice(None, None, d) for d in dilation)
    return view[(slice(None), *places, *inside)] if axes else view


def pairs(value: Any, axes: int) -> list[int]:
    return [int(n) for n in np.broadcast_to(np.asarray(value), (axes,))]


def layer(node: Any, x: Any) -> Any:
    """A node without state."""
    kind = type(node).__name__
    if kind in ("Input", "Output"):
        return x
    if kind == "Affine":
        return node.weight @ x + node.bias
    if kind == "Linear":
        return node.weight @ x
    if kind == "Scale":
        return x * node.scale
    if kind == "Threshold":
        return (x > node.threshold) * 1.0
    if kind == "Flatten":
        first, last = node.start_dim % x.ndim, node.end_dim % x.ndim
        return x.reshape(*x.shape[:first], -1, *x.shape[last + 1 :])
    if "Pool" in kind:
        view = windows(x, pairs(node.kernel_size, 2), pairs(node.stride, 2), pairs(node.padding, 2), (1, 1))
        return view.sum((-1, -2)) if kind == "SumPool2d" else view.mean((-1, -2))
    axes = x.ndim - 1
    size, dilation = node.weight.shape[2:], pairs(node.dilation, axes)
    if isinstance(node.padding, str):
        spans = [(k - 1) * d for k, d in zip(size, dilation, strict=True)]
        padding = [(s // 2, s - s // 2) if node.padding == "same" else (0, 0) for s in spans]
    else:
        padding = [(p, p) for p in pairs(node.padding, axes)]
    view = windows(x, size, pairs(node.stride, axes), padding, dilation)
    groups = int(node.groups)
    parts = []
    for inputs, weight in zip(np.split(view, groups), np.split(node.weight, groups), strict=True):
        letters = "yz"[:axes], "kl"[:axes]
        parts.append(np.einsum(f"c{letters[0]}{letters[1]},oc{letters[1]}->o{letters[0]}", inputs, weight))
    return np.concatenate(parts) + node.bias.reshape(-1, *(1,) * axes)


class Interpreter:
    """Run a graph step by step."""

    def __init__(self, graph: Any, dt: float, method: str = "euler") -> None:
        self.nodes, self.edges = flat(graph)
        self.dt, self.method = dt, method
        self.order, self.late = order_of(self.nodes, self.edges, dt)
        self.margin = np.inf  # how near a potential came to its threshold

    def rate(self, tau: Any) -> Any:
        return self.dt / tau if self.method == "euler" else 1.0 - np.exp(-self.dt / tau)

    def silent(self, shapes: dict[str, Any]) -> dict[str, Any]:
        """The outputs of nodes before the first step: zero for neurons, the response to it for layers."""
        gives: dict[str, Any] = {}
        for name in self.order:
            node, zeros = self.nodes[name], np.zeros(shapes[name])
            if type(node).__name__ in (*NEURONS, "Delay") or self.is_input(name):
                gives[name] = zeros
                continue
            sources = [a for a, b in self.edges if b == name]
            known = [
                gives[a] for a in sources if a in gives and (a, name) not in self.late and reaches(self.edges, name, a)
            ]
            gives[name] = layer(node, sum(known) if known else np.zeros(shapes[sources[0]]))
        return gives

    def run(self, x: Any) -> Any:
        """Map (T, ...) to (T, ...) for one sample."""
        shapes = self.shapes(x.shape[1:])
        before = self.silent(shapes)
        memory: dict[str, Any] = {}
        results = []
        (out,) = [n for n, node in self.nodes.items() if isinstance(node, nir.Output) and "." not in n]
        for now in np.asarray(x, np.float64):
            gives: dict[str, Any] = {}

            def incoming(name: str, gives: dict[str, Any] = gives, before: dict[str, Any] = before) -> Any:
                return sum(before[a] if (a, name) in self.late else gives[a] for a, b in self.edges if b == name)

            waiting = []
            for name in self.order:
                node = self.nodes[name]
                if self.is_input(name):
                    gives[name] = now
                elif isinstance(node, nir.Delay):
                    steps = np.round(node.delay / self.dt).astype(int)
                    past = memory.setdefault(name, np.zeros((steps.max() + 1, *steps.shape)))
                    if all(a in gives or (a, name) in self.late for a, b in self.edges if b == name):
                        past[:] = np.concatenate([incoming(name)[None], past[:-1]])
                        gives[name] = np.take_along_axis(past, steps[None], 0)[0]
                    else:
                        gives[name] = np.take_along_axis(past, steps[None] - 1, 0)[0]
                        waiting.append(name)
                elif type(node).__name__ in NEURONS:
                    gives[name] = self.neuron(name, node, incoming(name), memory)
                else:
                    gives[name] = layer(node, incoming(name))
            for name in waiting:
                memory[name][:] = np.concatenate([incoming(name)[None], memory[name][:-1]])
            before = gives
            results.append(gives[out])
        return np.stack(results)

    def shapes(self, shape: Any) -> dict[str, Any]:
        found: dict[str, Any] = {name: tuple(shape) for name, node in self.nodes.items() if self.is_input(name)}
        while len(found) < len(self.nodes):
            for name, node in self.nodes.items():
                known = [found[a] for a, b in self.edges if b == name and a in found]
                if name not in found and known:
                    same = type(node).__name__ in (*NEURONS, "Delay", "Scale", "Threshold", "Input", "Output")
                    found[name] = known[0] if same else layer(node, np.zeros(known[0])).shape
        return found

    def is_input(self, name: str) -> bool:
        return isinstance(self.nodes[name], nir.Input) and "." not in name

    def neuron(self, name: str, node: Any, x: Any, memory: dict[str, Any]) -> Any:
        kind, dt = type(node).__name__, self.dt
        leak = getattr(node, "v_leak", getattr(node, "v_reset", 0.0))
        v, i = memory.get(name, (np.zeros(x.shape) + leak, np.zeros(x.shape)))
        if kind in ("I", "IF"):
            v = v + dt * node.r * x
        elif kind in ("LI", "LIF"):
            v = v + self.rate(node.tau) * (node.v_leak - v + node.r * x)
        else:
            i = i + self.rate(node.tau_syn) * (node.w_in * x - i)
            v = v + self.rate(node.tau_mem) * (node.v_leak - v + node.r * i)
        if kind in ("I", "LI", "CubaLI"):
            memory[name] = v, i
            return v
        compare = node.metadata.get("compare", ">")
        z = v > node.v_threshold if compare == ">" else v >= node.v_threshold
        self.margin = min(self.margin, np.abs(v - node.v_threshold).min())
        if node.metadata.get("reset", "value") == "subtract":
            v = v - z * node.v_threshold
        else:
            v = np.where(z, node.v_reset, v)
        memory[name] = v, i
        return z * 1.0


# --- random graphs ----------------------------------------------------------------------------------------------------


class Maker:
    """Random graphs: a chain of nodes of every type, with branches, skip connections, cycles and subgraphs."""

    def __init__(self, seed: int, dt: float, dtype: Any = np.float32) -> None:
        self.rng = np.random.default_rng(seed)
        self.dt, self.dtype = dt, dtype

    def numbers(self, shape: Any, low: float, high: float) -> Any:
        """Random numbers; in one of three cases they are all equal."""
        alike = self.rng.random() < 0.3
        return (
            np.full(shape, self.rng.uniform(low, high), self.dtype)
            if alike
            else self.rng.uniform(low, high, shape).astype(self.dtype)
        )

    def weights(self, *shape: int) -> Any:
        return (self.rng.normal(0.3, 1.0, shape) / np.sqrt(np.prod(shape[1:]))).astype(self.dtype)

    def neuron(self, kind: str, shape: Any, spiking_metadata: bool = True) -> Any:
        n, dt = self.numbers, self.dt
        given = {"r": n(shape, 0.8, 2.0) / (dt if kind in ("I", "IF") else 1.0)}
        given["r"] = given["r"].astype(self.dtype)
        if kind in ("LI", "LIF"):
            given["tau"] = n(shape, 3 * dt, 30 * dt)
        if "Cuba" in kind:
            given |= {"tau_mem": n(shape, 3 * dt, 30 * dt), "tau_syn": n(shape, 3 * dt, 30 * dt)}
            given["w_in"] = n(shape, 2.0, 6.0)
        if kind not in ("I", "IF"):
            given["v_leak"] = n(shape, -0.05, 0.05)
        if kind.endswith("IF"):
            given |= {"v_threshold": n(shape, 0.2, 0.6), "v_reset": n(shape, -0.2, 0.1)}
        metadata = {}
        if kind.endswith("IF") and spiking_metadata and self.rng.random() < 0.4:
            metadata = {
                "reset": str(self.rng.choice(["value", "subtract"])),
                "compare": str(self.rng.choice([">", ">="])),
            }
        return getattr(nir, kind)(**given, metadata=metadata)

    def node(self, shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        """A node for a signal of this shape, and the shape of its output."""
        rng = self.rng
        kinds = [*NEURONS, "Scale", "Threshold", "Delay"]
        kinds += {
            1: ["Affine", "Linear"] * 3,
            2: ["Conv1d", "Flatten"] * 3,
            3: ["Conv2d", "SumPool2d", "AvgPool2d", "Flatten"] * 2,
        }[len(shape)]
        kind = str(rng.choice(kinds))
        if kind in NEURONS:
            return self.neuron(kind, shape), shape
        if kind == "Scale":
            return nir.Scale(self.numbers(shape, 0.5, 1.5)), shape
        if kind == "Threshold":
            return nir.Threshold(self.numbers(shape, -0.1, 0.5)), shape
        if kind == "Delay":
            return nir.Delay((rng.integers(0, 5, shape) * self.dt).astype(self.dtype)), shape
        if kind in ("Affine", "Linear"):
            out = int(rng.integers(1, 6))
            weight = self.weights(out, shape[0])
            return (nir.Affine(weight, self.weights(out)) if kind == "Affine" else nir.Linear(weight)), (out,)
        if kind == "Flatten":
            first = int(rng.integers(0, len(shape) - 1))
            last = -1 if rng.random() < 0.5 else int(rng.integers(first, len(shape)))
            made = nir.Flatten({"input": np.array(shape)}, first, last)
            return made, tuple(int(n) for n in made.output_type["output"])
        axes = len(shape) - 1
        size = tuple(int(rng.integers(1, min(3, n) + 1)) for n in shape[1:])
        stride = tuple(int(rng.integers(1, 3)) for _ in size)
        padding = tuple(int(rng.integers(0, k)) for k in size)
        if kind in ("SumPool2d", "AvgPool2d"):
            made = getattr(nir, kind)(np.array(size), np.array(stride), np.array(padding))
            return made, layer(made, np.zeros(shape)).shape
        groups = int(rng.choice([g for g in (1, 2, 3) if shape[0] % g == 0]))
        out = groups * int(rng.integers(1, 3))
        dilation = (1,) * axes
        if rng.random() < 0.2:
            padding, stride = str(rng.choice(["same", "valid"])), (1,) * axes
        one = (lambda value: value if isinstance(value, str) else value[0]) if axes == 1 else (lambda value: value)
        made = getattr(nir, kind)(
            input_shape=None if rng.random() < 0.5 else (shape[1] if axes == 1 else tuple(shape[1:])),
            weight=self.weights(out, shape[0] // groups, *size),
            stride=one(stride),
            padding=one(padding),
            dilation=one(dilation),
            groups=groups,
            bias=self.weights(out),
        )
        return made, layer(made, np.zeros(shape)).shape

    def graph(self, shape: tuple[int, ...], length: int, depth: int = 0) -> tuple[Any, tuple[int, ...]]:
        """A graph with input `shape`, and the shape of its output."""
        rng = self.rng
        nodes: dict[str, Any] = {"input": nir.Input({"input": np.array(shape)})}
        edges: list[tuple[str, str]] = []
        last, given = "input", {"input": shape}
        for number in range(length):
            name = f"{rng.choice(['n', 'layer', 'x'])}{number}"
            if depth < 2 and rng.random() < 0.15:
                nodes[name], out = self.graph(given[last], int(rng.integers(1, 4)), depth + 1)
            else:
                nodes[name], out = self.node(given[last])
            edges.append((last, name))
            twins = [other for other in given if other != last and given[other] == given[last]]
            if twins and rng.random() < 0.3:  # a skip
                edges.append((str(rng.choice(twins)), name))
            given[name] = out
            if rng.random() < 0.35 and len(out) == 1:  # a cycle, through weights or a delay
                self.cycle(nodes, edges, name, given)
            last = name
        nodes["output"] = nir.Output({"output": np.array(given[last])})
        edges.append((last, "output"))
        return nir.NIRGraph(nodes, edges, {}, type_check=False), given[last]

    def cycle(self, nodes: dict[str, Any], edges: list[Any], name: str, given: dict[str, Any]) -> None:
        """Feed the output of a node back to itself or to an earlier node, if the shapes allow it."""
        rng, n = self.rng, given[name][0]
        earlier = [b for a, b in edges if b in given and len(given.get(a, ())) == 1]
        target = str(rng.choice(earlier)) if earlier and rng.random() < 0.4 else name
        source = next(a for a, b in edges if b == target and a in given)
        if len(given[source]) != 1:
            return
        back = f"back_{name}"
        weight = 0.3 * self.weights(given[source][0], n)
        nodes[back] = (
            nir.Linear(weight) if rng.random() < 0.5 else nir.Affine(weight, 0.1 * self.weights(given[source][0]))
        )
        edges.append((name, back))
        if rng.random() < 0.3:
            nodes[f"{back}_late"] = nir.Delay((rng.integers(1, 4, given[source]) * self.dt).astype(self.dtype))
            edges.extend([(back, f"{back}_late"), (f"{back}_late", target)])
        else:
            edges.append((back, target))


def random_graph(seed: int, dt: float = 1e-3, dtype: Any = np.float32) -> tuple[Any, tuple[int, ...]]:
    """A random graph, and the shape of a sample for it."""
    maker = Maker(seed, dt, dtype)
    shape = [(4,), (3, 6), (2, 6, 5)][int(maker.rng.integers(0, 3))]
    graph, _ = maker.graph(shape, int(maker.rng.integers(1, 8)))
    return graph, shape
