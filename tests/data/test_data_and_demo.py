"""The digits data set, batches, pictures, and both commands, at a small size."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import snncell
from snncell import Tensor, demo, errors, plot
from snncell.__main__ import main
from snncell.data import batches, digits
from snncell.testing import check_bprop, check_grads


def test_digits_match_the_published_data_set():
    (images, labels), (test_images, test_labels) = digits()
    assert images.shape == (1438, 8, 8)
    assert test_images.shape == (359, 8, 8)
    assert images.dtype == np.float32
    assert labels.dtype == np.int64
    assert images.min() == 0.0
    assert images.max() == 1.0
    counts = np.bincount(np.concatenate([labels, test_labels]))
    np.testing.assert_array_equal(
        counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    )  # from the description of the data set


def test_digits_are_reproducible_and_small():
    first, second = digits(), digits()
    np.testing.assert_array_equal(first[1][0], second[1][0])
    path = os.path.join(os.path.dirname(snncell.__file__), "data", "digits.npz")
    assert os.path.getsize(path) < 100_000


def test_batches_cover_all_samples_once_in_seeded_order():
    x = np.arange(10)
    seen = [batch.asnumpy() for (batch,) in batches(x, batch_size=4)]
    assert [len(batch) for batch in seen] == [4, 4, 2]
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), x)
    snncell.set_seed(3)
    first = np.concatenate([batch.asnumpy() for (batch,) in batches(x, batch_size=4)])
    snncell.set_seed(3)
    again = np.concatenate([batch.asnumpy() for (batch,) in batches(x, batch_size=4)])
    np.testing.assert_array_equal(first, again)
    assert (first != x).any()


def test_batches_keep_pairs_together_and_can_drop_the_last():
    x = np.arange(10)
    for a, b in batches(x, Tensor(x * 2), batch_size=3, drop_last=True):
        assert len(a) == 3
        np.testing.assert_array_equal(a.asnumpy() * 2, b.asnumpy())
    unshuffled = [batch.asnumpy() for (batch,) in batches(x, batch_size=10, shuffle=False)]
    np.testing.assert_array_equal(unshuffled[0], x)


def test_batches_reject_mismatched_arrays():
    with pytest.raises(errors.ShapeError, match=r"different lengths \[2, 3\]"):
        next(batches(np.zeros(3), np.zeros(2), batch_size=1))
    with pytest.raises(errors.ArgumentError, match="at least 1, not 0"):
        next(batches(np.zeros(3), batch_size=0))


def test_demo_surrogate_passes_the_gradient_check():
    x = Tensor(np.array([-2.0, -0.7, -0.1, 0.3, 0.9, 1.5]))
    check_bprop(demo.TriangleSpike(), x)
    check_grads(demo.TriangleSpike().primitive, x, order=2)


@pytest.mark.compiled
def test_demo_learns_and_saves_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--epochs", "3"]) == 0
    printed = capsys.readouterr().out
    assert float(re.search(r"test accuracy (0\.\d{4})", printed)[1]) > 0.85
    for part in ("first epoch", "training", "evaluation", "plots"):
        assert part in printed
    for name in ("raster.png", "membrane.png", "gradient_norms.png"):
        assert (tmp_path / "demo" / name).read_bytes().startswith(b"\x89PNG")  # git ignores demo/


@pytest.mark.slow
@pytest.mark.compiled
def test_demo_is_reproducible(tmp_path):
    first = demo.run(epochs=1, seed=4, folder=tmp_path, progress=False)
    assert demo.run(epochs=1, seed=4, folder=tmp_path, progress=False) == first


def test_info_prints_details_for_a_bug_report(capsys):
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    for word in ("snncell", "numba", "threads", "BLAS", "CUDA", "cache folder"):
        assert word in printed


def test_package_is_a_command():
    command = [sys.executable, "-m", "snncell", "cache"]
    assert "cache size" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_missing_command_is_a_usage_error(capsys):
    with pytest.raises(SystemExit):
        main([])
    assert "required: command" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["0", "-3", "1.5", "many"])
def test_demo_with_zero_epochs_is_a_usage_error(given, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--epochs", given])
    assert caught.value.code == 2
    assert f"argument --epochs: must be an integer of at least 1, not '{given}'" in capsys.readouterr().err


def test_demo_writes_a_report_of_the_trained_network(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(plot, "report", lambda *given, path: seen.append((*given, path)), raising=False)
    net, images = demo.DigitNet(steps=3), np.zeros((3, 64), np.float32)
    assert demo.page(net, images, np.arange(3), tmp_path) == tmp_path / "report.html"
    ((cell, (x, y), loss_fn, path),) = seen
    assert cell is net and x is images and path == tmp_path / "report.html"
    assert loss_fn(net(Tensor(x)), Tensor(y)).shape == ()


def test_demo_plots_an_untrained_network(tmp_path):
    _, (images, labels) = digits()
    net = demo.DigitNet(steps=3)
    assert 0.0 <= demo.accuracy(net, images[:3].reshape(3, 64), labels[:3]) <= 1.0
    written = demo.draw(net, images[:3].reshape(3, 64), labels[:3], tmp_path)
    assert [path.name for path in written] == ["raster.png", "membrane.png", "gradient_norms.png"]
