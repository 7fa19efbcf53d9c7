"""Hyperparameter search with Optuna, in two processes that share the trials and the cache of compiled kernels.

Only the first trial compiles. The other trials, with other sizes, rates and time constants, compile nothing.
Needs `pip install "snncell[sklearn]" optuna`.
"""

import os
import sys
from pathlib import Path

import joblib
import matplotlib.pyplot as plt
import optuna
from optuna.storages import JournalStorage, journal

from snncell import nn, train
from snncell.data import digits
from snncell.sklearn import SNNClassifier


class Prune(train.Callback):
    """Report the test loss of each epoch, and stop the training if Optuna prunes the trial."""

    def __init__(self, trial):
        self.trial = trial

    def on_evaluation_end(self, training):
        self.trial.report(training.record["test_loss"], training.epoch)
        if self.trial.should_prune():
            training.stop("given up")


def objective(trial):
    (x, y), _ = digits()
    fixed = {"epochs": 8, "early_stopping": True, "callbacks": [Prune(trial)], "random_state": 0}
    model = SNNClassifier(
        hidden=trial.suggest_int("hidden", 16, 96),
        neuron=nn.LIFNode(trial.suggest_float("tau", 1.2, 8.0)),
        learning_rate=trial.suggest_float("learning_rate", 1e-4, 0.1, log=True),
        steps=trial.suggest_int("steps", 4, 12),
        **fixed,
    ).fit(x.reshape(len(x), -1) * 4.0 - 1.0, y)
    if model.n_iter_ < 8:
        raise optuna.TrialPruned
    return min(record["test_loss"] for record in model.history_)


def study_of(folder):
    """Return the study that all processes share."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(journal.JournalFileBackend(str(folder / "trials.log")))
    return optuna.create_study(study_name="digits", storage=storage, load_if_exists=True)


def work(folder, trials):
    """Run some trials in a separate process. Return the number of kernels in the cache afterwards."""
    os.environ["SNNCELL_CACHE_DIR"] = str(folder / "kernels")
    study_of(folder).optimize(objective, n_trials=trials)
    return len([*(folder / "kernels").glob("*.nbc")])


def main(trials=10, folder="."):
    folder = Path(folder).resolve()
    with joblib.Parallel(n_jobs=2) as parallel:
        counts = parallel(
            [joblib.delayed(work)(folder, 1)]
        )  # so that the two processes do not wait for each other's compilation
        counts += parallel([joblib.delayed(work)(folder, trials // 2)] * 2)
    study = study_of(folder)
    print(f"kernels after the first trial: {counts[0]}, after {len(study.trials)}: {max(counts)}; {study.best_params}")
    told = [(t.params["learning_rate"], t.value, t.params["tau"]) for t in study.trials if t.value is not None]
    rates, losses, taus = zip(*told, strict=True)
    figure, axes = plt.subplots(figsize=(4.6, 3.2), layout="constrained")
    figure.colorbar(axes.scatter(rates, losses, c=taus, cmap="cividis"), label="time constant")
    axes.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="loss of samples set apart")
    figure.savefig(folder / "optuna_sweep.png")
    return counts, study


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
