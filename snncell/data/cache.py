"""Disk cache for samples, keyed by a fingerprint of the data set and its transforms."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import stat
import sys
import types
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Own
from snncell.data.events import Events
from snncell.data.samples import View, check_dataset, first_entry, position_of, with_entry
from snncell.errors import ArgumentError, DTypeError
from snncell.kernels.numba import files
from snncell.tape.structure import is_array, on_host
from snncell.tape.tensor import Tensor

__all__ = ["Cached"]

# --- Fingerprint: code of functions, settings, arrays, size and time of files -----------------------------------------

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, range, slice, type(Ellipsis))


class _Digest:
    """Fingerprint of Python objects; objects with equal contents have the same one in every process."""

    def __init__(self, apart: Path) -> None:
        self.apart = apart.resolve()  # files in this folder are ignored
        self.sum = hashlib.sha256()
        # Later references to an object add only its number. This keeps the object alive, so that its id is not reused.
        self.known: dict[int, tuple[int, Any]] = {}

    def add(self, thing: Any) -> None:
        """Hash an object and its contents, or raise ArgumentError, for example for an open file."""
        if isinstance(thing, _PLAIN):
            # In hex, because Python refuses to write very long integers in decimal.
            self.say(type(thing).__name__, hex(thing) if type(thing) is int else repr(thing))
            if isinstance(thing, str):
                self.add_file(thing)
            return
        if id(thing) in self.known:
            self.say("known", str(self.known[id(thing)][0]))
            return
        self.known[id(thing)] = len(self.known), thing
        next(add for kind, add in _KINDS if isinstance(thing, kind))(self, thing)

    def say(self, *words: str) -> None:
        """Hash words, each with its length, so that ("ab", "c") and ("a", "bc") differ."""
        for word in words:
            self.sum.update(f"{len(word)}:{word}".encode("utf-8", "surrogatepass"))

    def add_file(self, path: str | os.PathLike[str]) -> None:
        """Hash size and time of a file, or of all files of a folder, if `path` is the path of one."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return
        if not stat.S_ISDIR(status.st_mode):
            self.say("file", str(status.st_size), str(status.st_mtime_ns))
            return
        for folder, inner, names in os.walk(path):
            # The cache itself may lie in the folder of the data set.
            inner[:] = sorted(name for name in inner if Path(folder, name).resolve() != self.apart)
            for name in sorted(names):
                self.say(os.path.relpath(os.path.join(folder, name), path))
                self.add_file(os.path.join(folder, name))

    def add_several(self, things: Any) -> None:
        self.say(type(things).__qualname__, str(len(things)))
        for thing in things:
            self.add(thing)

    def add_mapping(self, things: dict[Any, Any]) -> None:
        self.say("dict", str(len(things)))
        for name, thing in things.items():
            self.say(repr(name))
            self.add(thing)

    def add_array(self, array: np.ndarray[Any, Any]) -> None:
        if array.dtype.hasobject:
            self.add_several(array.ravel().tolist())
            return
        self.say(type(array).__name__, str(array.dtype.descr), str(array.shape))
        self.sum.update(np.ascontiguousarray(without_padding(array)).tobytes())
        self.add(getattr(array, "sensor_size", None))

    def add_path(self, path: Path) -> None:
        self.say("path", str(path))
        self.add_file(path)

    def add_partial(self, one: functools.partial[Any]) -> None:
        self.say("partial")
        self.add_several([one.func, one.args, one.keywords])

    def add_module(self, module: types.ModuleType) -> None:
        self.say("module", module.__name__, _version(module.__name__))
        if not _version(module.__name__) and getattr(module, "__file__", None):
            self.add_file(str(module.__file__))

    def add_function(self, function: Any) -> None:
        """Hash a function: its code, its defaults, and the globals and closure variables that it uses."""
        function = getattr(function, "__wrapped__", function)
        if not isinstance(function, types.FunctionType):
            self.add(function)
            return
        version = _version(function.__module__)
        self.say("function", str(function.__module__), function.__qualname__, version)
        if version:  # the code of an installed package changes with its version only
            return
        self.add_code(function.__code__)
        self.add_several([function.__defaults__, function.__kwdefaults__])
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:  # not set yet
                self.say("empty")
        for name in _names_in(function.__code__):
            if name in function.__globals__:
                self.say("global", name)
                self.add(function.__globals__[name])

    def add_code(self, code: types.CodeType) -> None:
        """Hash the code of a function, without its file name and line numbers."""
        self.say("code", code.co_code.hex(), *code.co_names, *code.co_varnames)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.add_code(constant)
            elif isinstance(constant, str):  # not `add`, because it is hardly ever a path
                self.say(constant)
            else:
                self.add(constant)

    def add_builtin(self, function: Any) -> None:
        """Hash a C function, and the object that it is bound to."""
        self.say("builtin", str(getattr(function, "__module__", "")), function.__qualname__)
        owner = getattr(function, "__self__", None)
        if not isinstance(owner, (types.ModuleType, type)):
            self.add(owner)

    def add_class(self, kind: type) -> None:
        """Hash a class: its attributes, methods and base classes."""
        version = _version(kind.__module__)
        self.say("class", kind.__module__, kind.__qualname__, version)
        if version:
            return
        for name, value in vars(kind).items():
            if name not in ("__dict__", "__weakref__", "__doc__", "__module__") and not name.startswith("_abc_"):
                if isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType)):
                    continue
                self.say("attribute", name)
                inner = getattr(value, "__func__", value)  # unwrap static methods
                self.add(inner.fget if isinstance(inner, property) else inner)
        self.add_several(kind.__bases__)

    def add_object(self, thing: Any) -> None:
        """Hash any other object: its class, and its state as pickle would save it."""
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception as error:
            raise ArgumentError(
                f"Cached: the fingerprint of the data set cannot include a {type(thing).__name__}, because it "
                f"cannot be pickled ({error}). Pass key=, for example key='v1', and change it when the samples change."
            ) from None
        self.say("object")
        self.add(type(thing))
        if isinstance(reduced, str):
            self.say(reduced)
            return
        build, arguments, *state = reduced
        parts = [list(part) if hasattr(part, "__next__") else part for part in state]
        self.add_several([build, list(arguments), *parts])


def without_padding(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with zeros in the padding bytes of its records, because NumPy leaves these uninitialised."""
    if array.dtype.names is None:
        return array
    clean = np.zeros(array.shape, array.dtype)
    for name in array.dtype.names:
        clean[name] = without_padding(np.asarray(array)[name])
    return clean


def _names_in(code: types.CodeType) -> list[str]:
    """The names that a function and its nested functions may look up in its globals."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return sorted({*code.co_names, *(name for each in inner for name in _names_in(each))})


@functools.cache
def _version(module: str | None) -> str:
    """The version of the installed package that contains a module, or "" for a file of the user's project."""
    package = (module or "").partition(".")[0]
    if package in sys.stdlib_module_names and package != "__main__":
        return "Python " + sys.version.split()[0]
    if package == "snncell":
        return str(getattr(sys.modules["snncell"], "__version__", "snncell"))
    # A package in editable mode, such as the user's own project, has its files outside of site-packages.
    if "site-packages" not in (getattr(sys.modules.get(package), "__file__", None) or ""):
        return ""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return f"installed as {package}"


_KINDS: list[tuple[Any, Callable[[_Digest, Any], None]]] = [
    ((tuple, list), _Digest.add_several),
    (dict, _Digest.add_mapping),
    ((set, frozenset), lambda digest, things: digest.say("set", str(len(things)), *sorted(map(repr, things)))),
    (np.ndarray, _Digest.add_array),
    (Path, _Digest.add_path),
    (functools.partial, _Digest.add_partial),
    (np.ufunc, lambda digest, ufunc: digest.say("ufunc", ufunc.__name__, np.__version__)),
    (types.ModuleType, _Digest.add_module),
    (types.MethodType, lambda digest, method: digest.add_several([method.__func__, method.__self__])),
    (types.FunctionType, _Digest.add_function),
    ((types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType), _Digest.add_builtin),
    ((types.MethodDescriptorType, types.ClassMethodDescriptorType), _Digest.add_builtin),
    (type, _Digest.add_class),
    (object, _Digest.add_object),
]

_PER_FOLDER = 1000  # larger folders are slow on some file systems


class Cached(View):
    """Disk cache for the samples of a data set.

    You can wrap any data set with samples that are slow to read or to transform. A sample is computed when you first
    ask for it, written to disk, and read from there afterwards.

    Samples lie in a subfolder that is named after a fingerprint of the data set and its transform. The fingerprint
    covers their code and settings, the arrays and functions that they refer to, the size and time of files that they
    name, and the versions of packages. If you change the transform, for example, all samples are computed again. A
    changed file is not noticed if its path is not stored in the data set, or if its size and time are as before.

    Several threads and processes can use the same folder at once, and an interrupted write leaves no partial file. A
    damaged file is written again, with a RuntimeWarning that names it.

    Args:
        dataset: any object with `len` and `[i]`. Samples may consist of arrays, events, numbers, strings and None, in
            tuples, lists and dicts. Arrays of other frameworks come back as NumPy arrays.
        folder: the folder of the cache. It is created if it is missing.
        key: a string, a number, or a tuple of strings and numbers, to replace a fingerprint that takes too long or
            cannot be computed (ArgumentError). You must change the key whenever the samples change.
        transform: a function of the first entry of a sample, applied after reading. You should pass a random transform
            here, because inside of `dataset` it would give the same random numbers in every epoch.
    Example:
        >>> import numpy as np
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> cached = snncell.data.Cached([(np.arange(3), "a"), (np.arange(5), "b")], folder.name)
        >>> cached[1], len(cached)
        ((array([0, 1, 2, 3, 4]), 'b'), 2)
        >>> folder.cleanup()
    """

    def __init__(
        self,
        dataset: Annotated[Any, Own()],
        folder: str | os.PathLike[str],
        *,
        key: Annotated[Any, Own()] = None,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        check_dataset("Cached", dataset)
        if key is not None and not _is_key(key):
            raise ArgumentError(
                f"Cached: key must be a string, a number, or a tuple of them, not a {type(key).__name__}."
            )
        self.dataset, self.transform = dataset, transform
        digest = _Digest(Path(folder))
        digest.add({"dataset": dataset} if key is None else {"key": key})
        name = digest.sum.hexdigest()
        self.folder = Path(folder) / name[:16]
        self._digest = name.encode()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise ArgumentError(f"Cached: folder {str(folder)!r:.200} cannot be made: {error!s:.200}.") from None
        for part in self.folder.glob("*"):
            files.remove_abandoned(part)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        sample = self._sample(position_of(self, index))
        if self.transform is None:
            return sample
        name, value = first_entry(sample)
        return with_entry(sample, name, self.transform(value))

    def _sample(self, index: int) -> Any:
        path = self.folder / str(index // _PER_FOLDER) / f"{index % _PER_FOLDER}.sample"
        key = self._digest + str(index).encode()
        there = path.exists()  # checked before reading, because another process may write it in between
        content = files.read_sealed(path, key)
        if content is None:
            if there:
                warnings.warn(
                    f"Cached: {path} is damaged or belongs to another user. Sample {index} is computed again.",
                    RuntimeWarning,
                    stacklevel=3,
                )
            # File format: the length of the JSON, the sample's structure as JSON, then its arrays.
            stream = io.BytesIO()
            words = json.dumps(_structure(self.dataset[index], stream, index)).encode()
            content = len(words).to_bytes(8, "little") + words + stream.getvalue()
            path.parent.mkdir(exist_ok=True)
            files.write(path, files.seal(key, content))
        # Unpack a new sample too, so that the first access returns the same types as later ones.
        length = int.from_bytes(content[:8], "little")
        return _restore_entry(json.loads(content[8 : 8 + length]), io.BytesIO(content[8 + length :]))


def _is_key(key: Any) -> bool:
    return all(map(_is_key, key)) if isinstance(key, tuple) else isinstance(key, (str, int, float))


def _structure(thing: Any, stream: io.BytesIO, index: int) -> Any:
    """A part of a sample as JSON; its arrays are written to `stream`."""
    if thing is None or type(thing) in (bool, int, str):
        return thing
    if type(thing) is float:
        return {"float": thing.hex()}
    if isinstance(thing, dict):
        return {"dict": [[_structure(each, stream, index) for each in item] for item in thing.items()]}
    if type(thing) in (tuple, list):
        return {type(thing).__name__: [_structure(each, stream, index) for each in thing]}
    if is_array(thing) or isinstance(thing, (Tensor, np.generic)):
        array = np.asarray(thing) if isinstance(thing, (np.ndarray, np.generic)) else on_host(thing)
        if array.dtype.kind != "O" and (array.dtype.names or np.dtype(array.dtype.str) == array.dtype):
            np.lib.format.write_array(stream, without_padding(np.asarray(array)), allow_pickle=False)
            return {"number": 0} if isinstance(thing, np.generic) else {"array": getattr(thing, "sensor_size", None)}
    raise DTypeError(
        f"Cached: sample {index} contains a {type(thing).__name__}, which cannot be saved. Samples may consist of "
        f"arrays, events, numbers, strings and None, in tuples, lists and dicts."
    )


def _restore_entry(words: Any, stream: io.BytesIO) -> Any:
    if not isinstance(words, dict):
        return words
    ((kind, value),) = words.items()
    if kind == "float":
        return float.fromhex(value)
    if kind == "dict":
        return {_restore_entry(name, stream): _restore_entry(each, stream) for name, each in value}
    if kind in ("tuple", "list"):
        items = [_restore_entry(each, stream) for each in value]
        return tuple(items) if kind == "tuple" else items
    array = np.lib.format.read_array(stream, allow_pickle=False)
    if kind == "number" or value is None:
        return array[()] if kind == "number" else array
    events = array.view(Events)
    events.sensor_size = tuple(value)
    return events
