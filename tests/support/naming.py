"""Reference model of Parameter naming, in plain Python, to compare Cells with."""

from __future__ import annotations

import copy


class P:
    """A Parameter: its name ("" for none) and the attributes that hold it."""

    def __init__(self, value, name=""):
        self.value, self.name, self.holders, self.home = value, name, [], None


class C:
    """A Cell: its attributes in order, each a single object or a list."""

    def __init__(self):
        self.attrs, self.prefix, self.holders, self.home = {}, "", [], None

    def members(self):
        for key, value in self.attrs.items():
            if isinstance(value, list):
                yield from ((f"{key}.{n}", item) for n, item in enumerate(value))
            else:
                yield key, value

    def has(self, key, member):
        return any(place == key and one is member for place, one in self.members())

    def set(self, key, value):
        old = self.attrs.get(key, [])
        self.attrs[key] = value
        for n, member in enumerate(value if isinstance(value, list) else [value]):
            held(self, f"{key}.{n}" if isinstance(value, list) else key, member)
            elect(member)
        released(old)

    def delete(self, key):
        released(self.attrs.pop(key))

    def named_below(self, prefix):
        self.prefix = prefix
        for key, member in self.members():
            held(self, key, member)
            if member.home != (self, key):
                elect(member)
            elif isinstance(member, P):
                member.name = prefix + key
            else:
                member.named_below(f"{prefix}{key}.")

    def line(self):
        """The Cell, and the ancestors that determine its name."""
        return [self] if self.home is None else [self, *self.home[0].line()]

    def paths(self):
        """Each Parameter once, with its path: those of the Cell itself, then those of its children."""
        found = {}
        for cell, prefix in self.cells().items():
            for key, member in cell.members():
                if isinstance(member, P):
                    found.setdefault(member, prefix + key)
        return [(path, p) for p, path in found.items()]

    def cells(self):
        """Each Cell once, with its path and a dot, depth first."""
        found = {}

        def visit(cell, prefix):
            if cell not in found:
                found[cell] = prefix
                for key, member in cell.members():
                    if isinstance(member, C):
                        visit(member, f"{prefix}{key}.")

        visit(self, "")
        return found

    def rename(self, prefix):
        for path, p in self.paths():
            p.name = prefix + path
        for cell, path in self.cells().items():
            cell.prefix = prefix + path

    def copied(self):
        """A copy without a parent, with the names of the original."""
        inside = [*self.cells(), *(p for _, p in self.paths())]
        before = [(one, one.holders, one.home) for one in inside]
        for one in inside:
            one.holders, one.home = [], None
        twin = copy.deepcopy(self)
        for one, holders, home in before:
            one.holders, one.home = holders, home
        for cell in twin.cells():
            for key, member in cell.members():
                held(cell, key, member)
                elect(member, rename=False)
        return twin


def released(old):
    """Let the next attribute that holds a released object name it, and move it forward if both hold something."""
    for member in old if isinstance(old, list) else [old]:
        elect(member)
        if isinstance(member, C) and member.home is None:
            for _, below in member.members():
                below.holders = [one for one in below.holders if one[0] is not member] + [
                    one for one in below.holders if one[0] is member
                ]
                elect(below)


def held(cell, key, member):
    if (cell, key) not in member.holders:
        member.holders.append((cell, key))


def elect(member, rename=True):
    """Choose the first attribute that still holds the object and is not itself named through it."""
    before, member.home = member.home, None
    member.holders = [(cell, key) for cell, key in member.holders if cell.has(key, member)]
    member.home = next(((cell, key) for cell, key in member.holders if member not in cell.line()), None)
    if member.home is None or member.home == before or not rename:
        return
    cell, key = member.home
    if isinstance(member, C):
        member.named_below(f"{cell.prefix}{key}.")
    elif cell.prefix or not member.name:
        member.name = cell.prefix + key
