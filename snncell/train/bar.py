"""The bar that shows how far a training is, and which kernels it waits for."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from tqdm import tqdm

from snncell.kernels.progress import Listener, telling


class Bar:
    """A bar of steps, whose estimate leaves out the steps that kernels were compiled in."""

    def __init__(self, total: int | None, initial: int, shown: bool) -> None:
        self.bar = tqdm(total=total, initial=initial, unit="step", disable=not shown)
        self.shown = shown
        self._kernels = Listener(self._tell)
        self._telling = telling(self._kernels if shown else None)

    def __enter__(self) -> Bar:
        self.bar.__enter__()
        self._telling.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._telling.__exit__(kind, error, trace)
        self.bar.__exit__(kind, error, trace)

    def _tell(self, number: int, count: int, elsewhere: bool) -> None:
        kernels = f"{count} kernel{'s' * (count != 1)} ({number} of {count})"
        self.bar.set_description_str(f"another process compiles {kernels}" if elsewhere else f"compiling {kernels}")

    def show(self, values: dict[str, Any], refresh: bool = False) -> None:
        """Put names and values behind the bar."""
        self.bar.set_postfix(values, refresh=refresh)

    def step(self) -> None:
        """Count a step."""
        if not self._kernels.take():
            self.bar.update()
            return
        bar = self.bar
        bar.set_description_str("", refresh=False)
        bar.unpause()  # the time since the bar was last drawn counts for nothing
        bar.update()
        bar.initial += bar.n - bar.last_print_n  # nor do the steps of that time
        bar.last_print_n = bar.n
        bar.refresh()
