"""Cached samples: a disk cache under a fingerprint of the data set and its transforms."""

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
from snncell.data.samples import View, check_dataset, first_entry, with_entry
from snncell.errors import ArgumentError, DTypeError
from snncell.kernels.numba import files
from snncell.tape.structure import is_array, on_host
from snncell.tape.tensor import Tensor

__all__ = ["Cached"]

# --- fingerprint: functions with their code, settings, arrays, files by size and time ---------------------------------

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, range, slice, type(Ellipsis))


class _Digest:
    """A digest of objects, the same in another process as long as they are made of the same.

    Each object is added once, and then by its number. Files in the folder `apart` are not part of it.
    """

    def __init__(self, who: str, apart: Path) -> None:
        self.who, self.apart = who, apart.resolve()
        self.sum = hashlib.sha256()
        self.known: dict[int, tuple[int, Any]] = {}  # the object too, so that no other one gets its id

    def add(self, thing: Any) -> None:
        """Add an object, and what it is made of; an ArgumentError for what cannot be told apart, as an open file."""
        if isinstance(thing, _PLAIN):
            # Python writes no integers of more than some thousand digits in decimal.
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
        """Add words, each with its length, so that none runs into the next."""
        for word in words:
            self.sum.update(f"{len(word)}:{word}".encode("utf-8", "surrogatepass"))

    def add_file(self, path: str | os.PathLike[str]) -> None:
        """Add the state of a file, or of those in a folder, if the words are the path of one."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return
        if not stat.S_ISDIR(status.st_mode):
            self.say("file", str(status.st_size), str(status.st_mtime_ns))
            return
        for folder, inner, names in os.walk(path):
            # The cache may lie in the folder that it is made of.
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
        """Add a function: its code, its defaults, and what it refers to outside of it."""
        function = getattr(function, "__wrapped__", function)
        if not isinstance(function, types.FunctionType):
            self.add(function)
            return
        version = _version(function.__module__)
        self.say("function", str(function.__module__), function.__qualname__, version)
        if version:  # a package that is installed changes with its version
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
        """Add the code of a function, without its place in a file."""
        self.say("code", code.co_code.hex(), *code.co_names, *code.co_varnames)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.add_code(constant)
            elif isinstance(constant, str):  # no path, most likely
                self.say(constant)
            else:
                self.add(constant)

    def add_builtin(self, function: Any) -> None:
        """Add a function of C, and what it is a method of."""
        self.say("builtin", str(getattr(function, "__module__", "")), function.__qualname__)
        owner = getattr(function, "__self__", None)
        if not isinstance(owner, (types.ModuleType, type)):
            self.add(owner)

    def add_class(self, kind: type) -> None:
        """Add a class: its functions, and those of its base classes."""
        version = _version(kind.__module__)
        self.say("class", kind.__module__, kind.__qualname__, version)
        if version:
            return
        for name, value in vars(kind).items():
            if name not in ("__dict__", "__weakref__", "__doc__", "__module__") and not name.startswith("_abc_"):
                if isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType)):
                    continue
                self.say("attribute", name)
                inner = getattr(value, "__func__", value)  # of a static method
                self.add(inner.fget if isinstance(inner, property) else inner)
        self.add_several(kind.__bases__)

    def add_object(self, thing: Any) -> None:
        """Add an object by its class and what a pickle of it would hold."""
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception as error:
            raise ArgumentError(
                f"{self.who}: nothing can be said of a {type(thing).__name__} that would tell it from another one "
                f"({error}). Give key=, words that you change whenever what the samples are made of changes."
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
    """The array with zeros in the padding bytes of its records, which NumPy leaves uninitialized."""
    if array.dtype.names is None:
        return array
    clean = np.zeros(array.shape, array.dtype)
    for name in array.dtype.names:
        clean[name] = without_padding(np.asarray(array)[name])
    return clean


def _names_in(code: types.CodeType) -> list[str]:
    """The names that a function and those inside of it may look up outside."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return sorted({*code.co_names, *(name for each in inner for name in _names_in(each))})


@functools.cache
def _version(module: str | None) -> str:
    """The version of the installed package that a module is of; "" of one's own files."""
    package = (module or "").partition(".")[0]
    if package in sys.stdlib_module_names and package != "__main__":
        return "Python " + sys.version.split()[0]
    if package == "snncell":
        return str(getattr(sys.modules["snncell"], "__version__", "snncell"))
    # A package that is installed to be edited, as one's own project may be, has its files elsewhere.
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

# --- cached samples ---------------------------------------------------------------------------------------------------

_PER_FOLDER = 1000  # files, because larger folders are slow on some file systems


class Cached(View):
    """Disk cache for the samples of a data set: written when they are first asked for, and read from there afterwards.

    They lie in a folder of their own for each digest of what they are made of: the code, settings and arrays of the
    data set and its transform, what these refer to, files that they name by size and time, and the versions of
    packages. With another transform, or another source, none of the old ones are read. What a digest does not see: a
    file that is named nowhere in the data set, or that is changed with its size and time as they were.

    A file is there whole or not at all, whoever is ended in the middle of writing it; several threads and processes may
    use a folder at once. One that is damaged is made again, with a warning (RuntimeWarning) that names it.

    A transform that draws random numbers belongs behind this, into `transform`: what is kept is drawn once.

    Args:
        dataset: anything with `len` and `[i]`. Samples are made of arrays, events, numbers, strings and None, in
            tuples, lists and dicts; arrays of other frameworks come back as NumPy's.
        folder: where; it is made if it is not there.
        key: a string, a number, or a tuple of them, in the place of the digest: for data of which it cannot be made,
            or takes long. You must change it whenever what the samples are made of changes.
        transform: a function of a sample's first entry after it was read; what it gives is not kept.

    Raises:
        ArgumentError: for data of which no digest can be made, or a folder that cannot be made.
        DTypeError: for samples that cannot be kept.
        OSError: from `[i]`, for a sample that cannot be written.

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
            raise ArgumentError(f"Cached: key is a string, a number, or a tuple of them, not a {type(key).__name__}.")
        self.dataset, self.transform = dataset, transform
        digest = _Digest("Cached", Path(folder))
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
        sample = self._sample(self._number(index))
        if self.transform is None:
            return sample
        name, value = first_entry(sample)
        return with_entry(sample, name, self.transform(value))

    def _sample(self, index: int) -> Any:
        path = self.folder / str(index // _PER_FOLDER) / f"{index % _PER_FOLDER}.sample"
        key = self._digest + str(index).encode()
        there = path.exists()  # asked first: another process may write it in between
        content = files.read_sealed(path, key)
        if content is None:
            if there:
                warnings.warn(
                    f"Cached: {path} is damaged, or another user's; sample {index} is made again.",
                    RuntimeWarning,
                    stacklevel=3,
                )
            # A sample as bytes: its structure as JSON, and its arrays one after another.
            stream = io.BytesIO()
            words = json.dumps(_structure(self.dataset[index], stream, index)).encode()
            content = len(words).to_bytes(8, "little") + words + stream.getvalue()
            path.parent.mkdir(exist_ok=True)
            files.write(path, files.seal(key, content))
        # A sample that was just made is unpacked too, so that it is as it will be read from now on.
        length = int.from_bytes(content[:8], "little")
        return _restore_entry(json.loads(content[8 : 8 + length]), io.BytesIO(content[8 + length :]))


def _is_key(key: Any) -> bool:
    return all(map(_is_key, key)) if isinstance(key, tuple) else isinstance(key, (str, int, float))


def _structure(thing: Any, stream: io.BytesIO, index: int) -> Any:
    """A part of a sample as JSON can say it; arrays go into the stream."""
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
        f"Cached: sample {index} has a {type(thing).__name__}, which is not kept; samples are arrays, events, numbers, "
        f"strings and None, in tuples, lists and dicts."
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
    if kind == "number":
        return array[()]
    if value is None:
        return array
    events = array.view(Events)
    events.sensor_size = tuple(value)
    return events
