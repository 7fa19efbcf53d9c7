"""The bar that shows how far a training is, and which kernels it waits for."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, ClassVar

from tqdm import tqdm

from snncell.kernels.numba.progress import Listener, telling
from snncell.train.callbacks import Callback, Training

_PAUSE = 0.2  # seconds: to read a number, a step that a card is still busy with must be waited for


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


class Progress(Callback):
    """Shows a training as a bar, with the numbers of its batches and epochs."""

    order: ClassVar[int] = 4

    def __init__(self, shown: bool) -> None:
        self.shown = shown
        self.last = 0.0
        self.bar: Bar | None = None

    def on_fit_begin(self, training: Training) -> None:
        per_epoch = training.batches
        done = (per_epoch or 0) * len(training.history) + training.batch
        self.bar = Bar(None if per_epoch is None else training.epochs * per_epoch, done, self.shown)
        self.bar.__enter__()

    def on_step_end(self, training: Training) -> None:
        assert self.bar is not None
        if self.shown and time.perf_counter() - self.last > _PAUSE:
            self._show(training.epoch, training.measured)
            self.last = time.perf_counter()
        self.bar.step()

    def on_epoch_end(self, training: Training) -> None:
        told = {name: x for name, x in training.record.items() if name not in ("epoch", "step")}
        self._show(training.epoch, {name: x for name, x in told.items() if "learning_rate" not in name}, True)

    def _show(self, epoch: int, numbers: dict[str, Any], refresh: bool = False) -> None:
        assert self.bar is not None
        single = {name: x for name, x in numbers.items() if not getattr(x, "ndim", isinstance(x, list))}
        self.bar.show({"epoch": epoch, **{name: f"{float(x):.4f}" for name, x in single.items()}}, refresh)

    def on_fit_end(self, training: Training) -> None:
        self._close()

    def on_error(self, training: Training, error: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.__exit__(None, None, None)
            self.bar = None
