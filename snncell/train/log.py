"""Logging: a file with a line for each epoch, a progress bar, TensorBoard."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from tqdm import tqdm

from snncell.base.arguments.kinds import Count, Own
from snncell.base.signals import import_once
from snncell.cell.modes import phases
from snncell.errors import ArgumentError
from snncell.kernels.numba.code import Listener, report_to
from snncell.monitoring import Monitor
from snncell.plot import confusion_matrix, raster, report as report_on
from snncell.plot.pictures import draw_picture
from snncell.plot.reports import png
from snncell.report.probe import leave_untouched, parts
from snncell.train.callbacks import Callback, Record, Training
from snncell.train.state import weights_of

__all__ = ["Log", "TensorBoard"]


class Log(Callback):
    """Log a training to a file, one line for each epoch: CSV with a header (.csv), or JSON lines (.jsonl).

    Numbers can be read back exactly. If an epoch lacks a number that others have, its field in the CSV is empty. A new
    log replaces the file; a resumed one begins with the history. `fit(log=file)` adds this callback.

    Args:
        file: the path.
        records: the lines to begin with.
    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "run.csv")
        >>> snncell.train.Log(path).add({"epoch": 1, "loss": 0.5})
        >>> path.read_text().split()
        ['epoch,loss', '1,0.5']
    """

    order: ClassVar[int] = 3  # after callbacks that add to the record
    first_rank_only: ClassVar[bool] = True

    def __init__(self, file: str | os.PathLike[str], records: list[Record] | None = None) -> None:
        self.path = Path(file)
        self.columns: dict[str, None] = {}  # the columns written so far
        if self.path.suffix not in (".csv", ".jsonl"):
            raise ArgumentError(f"Log: the file log must be named *.csv or *.jsonl, not {self.path.name!r}.")
        if not self.path.parent.is_dir():
            raise ArgumentError(
                f"Log: there is no folder {self.path.parent} to write {self.path.name} into. Create it first."
            )
        if records is not None:
            self._begin(records)

    def _begin(self, records: list[Record]) -> None:
        self.path.write_text("", encoding="utf-8")
        self.columns = {}
        for record in records:
            self.add(record)

    def on_fit_begin(self, training: Training) -> None:
        self._begin(training.history)

    def on_epoch_end(self, training: Training) -> None:
        self.add(training.record)

    def add(self, record: Record) -> None:
        """Write a line; a new column of a CSV file is empty in the other lines."""
        rows: list[Record] = [record]
        if wider := self.path.suffix == ".csv" and not (self.columns and self.columns.keys() >= record.keys()):
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            lines = csv.DictReader(io.StringIO(text, newline=""))
            rows = [*lines, record]
            self.columns = dict.fromkeys([*(lines.fieldnames or ()), *record])
        with self.path.open("w" if wider else "a", encoding="utf-8", newline="") as file:
            if self.path.suffix == ".jsonl":
                file.write(json.dumps(record) + "\n")
                return
            writer = csv.DictWriter(file, list(self.columns), lineterminator="\n")
            if wider:
                writer.writeheader()
            writer.writerows(rows)


# --- progress bar -----------------------------------------------------------------------------------------------------

_PAUSE = 0.2  # seconds between updates, because reading a number waits for the GPU


class Bar(ExitStack):
    """A progress bar of steps. Its time estimate ignores steps that compiled kernels."""

    def __init__(self, total: int | None, initial: int, shown: bool) -> None:
        super().__init__()
        self.bar = tqdm(total=total, initial=initial, unit="step", disable=not shown)
        self.shown = shown
        self._kernels = Listener(self._tell)

    def __enter__(self) -> Bar:
        self.enter_context(self.bar)
        self.enter_context(report_to(self._kernels if self.shown else None))
        return self

    def _tell(self, number: int, count: int, elsewhere: bool) -> None:
        kernels = f"{count} kernel{'s' * (count != 1)} ({number} of {count})"
        self.bar.set_description_str(f"another process compiles {kernels}" if elsewhere else f"compiling {kernels}")

    def show(self, values: dict[str, Any], refresh: bool = False) -> None:
        """Show names and values after the bar."""
        self.bar.set_postfix(values, refresh=refresh)

    def step(self) -> None:
        """Count a step."""
        if not self._kernels.take():
            self.bar.update()
            return
        bar = self.bar
        bar.set_description_str("", refresh=False)
        bar.unpause()  # exclude the time since the bar was last drawn from the estimate
        bar.update()
        bar.initial += bar.n - bar.last_print_n  # and the steps of that time
        bar.last_print_n = bar.n
        bar.refresh()


class Progress(Callback):
    """Progress bar of a training, with the numbers of batches and epochs."""

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

    def _close(self, training: Training, error: BaseException | None = None) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    on_fit_end = on_error = _close


# --- TensorBoard ------------------------------------------------------------------------------------------------------


class TensorBoard(Callback):
    """Log a training for TensorBoard: numbers, histograms, spike rasters and reports for `tensorboard --logdir`.

    After each epoch it writes the record's numbers against the optimiser's step, and pictures of confusion matrices. If
    the folder contains an earlier run, new records hide its records of later steps. The training is not changed.

    Args:
        folder: the folder, which is created if it is missing.
        steps: also write the numbers of every `steps`-th batch, as "batch/loss". A write waits for the training step.
        every: draw histograms and pictures before the first epoch, and after each `every`-th one.
        histograms: whether to write the distribution of each Parameter, as "weights/" and its name.
        batch: (inputs, ..., target), or only inputs, for pictures: a raster of the first sample for each spiking layer.
        report: whether to add the page of `plot.report` on the batch, with its findings and pictures.
    Raises: ArgumentError if the package tensorboardX is missing, the folder cannot be written, a report has no batch,
        or the batch does not fit the net.
    Example:
        >>> import tempfile, pathlib
        >>> folder, net = pathlib.Path(tempfile.mkdtemp()), nn.Dense(2, 1)
        >>> sgd, data = nn.SGD(net.trainable_params(), 0.1), (ops.ones((8, 2)), ops.zeros((8, 1)))
        >>> board = snncell.train.TensorBoard(folder)
        >>> options = {"accuracy": None, "progress": False, "callbacks": [board]}
        >>> _ = snncell.train.fit(net, nn.MSELoss(), sgd, data, 2, **options)
        >>> len([*folder.glob("events.out.tfevents.*")])
        1
    """

    order: ClassVar[int] = 3  # after callbacks that add to the record
    first_rank_only: ClassVar[bool] = True

    def __init__(
        self,
        folder: str | os.PathLike[str],
        steps: Count | None = None,
        every: Count = 1,
        histograms: bool = True,
        batch: Annotated[Any, Own()] = None,
        report: bool = False,
    ) -> None:
        if report and batch is None:
            raise ArgumentError("TensorBoard: report=True needs a batch; pass batch=(inputs, target).")
        self.folder, self.steps, self.every = Path(folder), steps, every
        self.histograms, self.report = histograms, report
        self.batch = None if batch is None else parts(batch)
        _tensorboardx()  # fail now if it is missing, not after the first epoch
        self._writer: Any = None

    def on_fit_begin(self, training: Training) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Purge records of an earlier training after this step. The file name contains the time in seconds. Add
            # nanoseconds, because two trainings may start within a second.
            own = {"purge_step": training.step + 1, "filename_suffix": f".{time.time_ns()}"}
            self._writer = _tensorboardx().SummaryWriter(str(self.folder), **own)
        except OSError as error:
            raise ArgumentError(f"TensorBoard: cannot write into the folder {str(self.folder)!r}: {error}.") from None
        if not training.history and not training.batch:
            self._look(training, report=False)

    def on_step_end(self, training: Training) -> None:
        if self.steps is not None and training.batch % self.steps == 0:
            for name, value in training.measured.items():
                self._number(f"batch/{name}", value.asnumpy(), training.step)

    def on_epoch_end(self, training: Training) -> None:
        for name, value in training.record.items():
            if name not in ("epoch", "step"):
                self._number(name, value, training.step)
        if training.epoch % self.every == 0:
            self._look(training, report=self.report)
        self._writer.flush()

    def _close(self, training: Training, error: BaseException | None = None) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    on_fit_end = on_error = _close

    # --- writing ------------------------------------------------------------------------------------------------------

    def _number(self, name: str, value: Any, step: int) -> None:
        """Write a number, or a confusion matrix as a picture."""
        array = np.asarray(value, np.float64)
        if array.size == 1:
            self._writer.add_scalar(name, array.item(), step)
        elif array.ndim > 1:  # draws nothing unless it is a matrix of shares
            self._picture(name, draw_picture("", lambda ax: confusion_matrix(array, ax=ax), 2.8).figure, step)

    def _look(self, training: Training, report: bool) -> None:
        """Write histograms and pictures of the net in its present state."""
        step = training.step
        if self.histograms:
            for path, parameter in weights_of(training.net, training.loss).items():
                value = parameter.asnumpy()
                values = (np.abs(value) if np.iscomplexobj(value) else value).astype(np.float64).ravel()
                if values.size and np.isfinite(values).all():
                    self._writer.add_histogram(f"weights/{path}", values, step)
        if self.batch is not None:
            for name, figure in self._rasters(training):
                self._picture(f"spikes/{name}", figure, step)
        if report:
            self._report(training)

    def _rasters(self, training: Training) -> Iterator[tuple[str, Any]]:
        assert self.batch is not None
        net = training.net
        with phases(net), leave_untouched(net), Monitor(net, samples=1) as monitor:
            net.set_train(False)
            net(*self.batch[0])
        for name in monitor.layers:
            if monitor.fires(name):
                yield name, draw_picture("", partial(raster, monitor, layer=name)).figure

    def _report(self, training: Training) -> None:
        assert self.batch is not None
        inputs, target = self.batch
        page = self.folder / f"report-{training.epoch}.html"
        batch = (*inputs, *([] if target is None else [target]))
        with phases(training.net, training.loss):
            loss, optimiser = (None, None) if target is None else (training.loss, training.optimiser)
            found = report_on(training.net, batch, loss, optimiser, training.result, page)
        self._writer.add_text("report", str(found).replace("\n", "  \n"), training.step)
        for section in found.sections:
            for number, picture in enumerate(section.pictures):
                if picture.figure is not None:
                    self._picture(f"report/{section.title}/{number}", picture.figure, training.step)

    def _picture(self, name: str, figure: Any, step: int) -> None:
        if figure is not None:
            self._writer.add_image(name, _pixels(figure), step, dataformats="HWC")


def _pixels(figure: Any) -> np.ndarray[Any, Any]:
    image = import_once("PIL.Image").open(io.BytesIO(png(figure)))  # Pillow is a dependency of Matplotlib
    return np.asarray(image.convert("RGB"))


def _tensorboardx() -> Any:
    try:
        return import_once("tensorboardX")
    except ImportError as error:
        raise ArgumentError(
            f'TensorBoard: needs the package tensorboardX: pip install "snncell[tensorboard]" installs it ({error}).'
        ) from None
