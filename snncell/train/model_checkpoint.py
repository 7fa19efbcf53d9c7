"""MindSpore's checkpoints of a training: the network's Parameters after steps, in files numbered by epoch and step."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Annotated, Any, ClassVar

from snncell.base.arguments.kinds import NotNegative, Own, Size
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, CheckpointError
from snncell.io.checkpoint import save_checkpoint
from snncell.train.callbacks import Callback
from snncell.train.run_context import RunContext


class CheckpointConfig:
    """When `ModelCheckpoint` writes, and how many files it keeps.

    Args:
        save_checkpoint_steps: after every so many batches; 0 to go by seconds.
        save_checkpoint_seconds: after the first batch that ends so long after the last file; 0 to go by batches.
        keep_checkpoint_max: how many files are kept; older ones that it has written are deleted. 0 for all.
        saved_network: what is saved, in the place of the network that is trained.

    Raises:
        ArgumentError: for 0 batches and 0 seconds.

    Example:
        >>> snncell.train.CheckpointConfig(save_checkpoint_steps=32).keep_checkpoint_max
        5
    """

    def __init__(
        self,
        save_checkpoint_steps: Size = 1,
        save_checkpoint_seconds: NotNegative = 0,
        keep_checkpoint_max: Size = 5,
        saved_network: Annotated[Cell | None, Own()] = None,
    ) -> None:
        if not save_checkpoint_steps and not save_checkpoint_seconds:
            raise ArgumentError("CheckpointConfig: save_checkpoint_steps or save_checkpoint_seconds is above 0.")
        if saved_network is not None and not isinstance(saved_network, Cell):
            raise ArgumentError(f"CheckpointConfig: saved_network is a Cell, not {came(saved_network)}.")
        self.save_checkpoint_steps, self.save_checkpoint_seconds = save_checkpoint_steps, save_checkpoint_seconds
        self.keep_checkpoint_max, self.saved_network = keep_checkpoint_max, saved_network


class ModelCheckpoint(Callback):
    """Writes the network's Parameters to files "PREFIX-EPOCH_STEP.ckpt", which `load_checkpoint` reads.

    A folder that has files of this prefix already gets others beside them, of the prefix "PREFIX_1" and so on. For
    files from which a training goes on to the bit see `train.Checkpoint`.

    Args:
        prefix: what the names begin with.
        directory: the folder, which is made where it is not there; left out, the present one.
        config: when it writes; left out, `CheckpointConfig()`.

    Raises:
        ArgumentError: for a prefix that is no part of a file's name.
        CheckpointError: if a file cannot be written.

    Example:
        >>> import os, tempfile
        >>> net, folder = nn.Dense(1, 1), tempfile.mkdtemp()
        >>> model = snncell.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.25))
        >>> _ = model.train(3, [(ops.ones((4, 1)), ops.ones((4, 1)))], snncell.train.ModelCheckpoint("own", folder))
        >>> sorted(os.listdir(folder))
        ['own-1_1.ckpt', 'own-2_1.ckpt', 'own-3_1.ckpt']
    """

    order: ClassVar[int] = 5  # after all that may still change a Parameter
    first_rank_only: ClassVar[bool] = True

    def __init__(
        self,
        prefix: str = "CKP",
        directory: str | os.PathLike[str] | None = None,
        config: Annotated[CheckpointConfig | None, Own()] = None,
    ) -> None:
        if not prefix or Path(prefix).name != prefix:
            raise ArgumentError(f"ModelCheckpoint: prefix is what names of files begin with, not {prefix!r}.")
        if config is not None and not isinstance(config, CheckpointConfig):
            raise ArgumentError(f"ModelCheckpoint: config is a CheckpointConfig, not {came(config)}.")
        self.prefix, self.directory = prefix, Path(directory or ".")
        self.config = config or CheckpointConfig()
        self.written: list[Path] = []
        self.last_step, self.last_time = 0, 0.0

    @property
    def latest_ckpt_file_name(self) -> str:
        """The path of the last file; "" before the first one."""
        return str(self.written[-1]) if self.written else ""

    def on_train_begin(self, run_context: RunContext) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"ModelCheckpoint: no folder {str(self.directory)!r} can be made: {error}.") from None
        self.prefix, self.written = self._free_prefix(), []
        self.last_step, self.last_time = run_context.original_args().cur_step_num, time.monotonic()

    def _free_prefix(self) -> str:
        """The prefix, or one with a number behind it, of which there are no files yet."""
        base = re.sub(r"_\d+$", "", self.prefix) if self.written else self.prefix
        names, number, prefix = os.listdir(self.directory), 0, base
        while any(re.fullmatch(rf"{re.escape(prefix)}-\d+_\d+\.ckpt", name) for name in names):
            number += 1
            prefix = f"{base}_{number}"
        return prefix

    def on_train_step_end(self, run_context: RunContext) -> None:
        step, config = run_context.original_args().cur_step_num, self.config
        by_time = config.save_checkpoint_seconds
        if by_time:
            due = time.monotonic() - self.last_time >= by_time
        else:
            due = step - self.last_step >= config.save_checkpoint_steps
        if due:
            self._write(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        if run_context.original_args().cur_step_num != self.last_step:
            self._write(run_context)

    def _write(self, run_context: RunContext) -> None:
        args: Any = run_context.original_args()
        step = (args.cur_step_num - 1) % max(args.batch_num, 1) + 1
        file = self.directory / f"{self.prefix}-{args.cur_epoch_num}_{step}.ckpt"
        save_checkpoint(self.config.saved_network or args.network, file)
        self.last_step, self.last_time = args.cur_step_num, time.monotonic()
        self.written.append(file)
        while self.config.keep_checkpoint_max and len(self.written) > self.config.keep_checkpoint_max:
            self.written.pop(0).unlink(missing_ok=True)
