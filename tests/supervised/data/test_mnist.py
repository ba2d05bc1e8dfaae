"""MNIST's files, and the two tasks that read them."""

import gzip
import hashlib
import struct

import numpy as np
import pytest
import torch

from rims_rl.common.errors import UserError
from rims_rl.supervised.data import mnist as module
from rims_rl.supervised.data.mnist import FILES, mnist
from rims_rl.supervised.task import load
from rims_rl.supervised.tasks.moving_mnist import ROOM, MovingMnist, clips, paths
from rims_rl.supervised.tasks.sequential_mnist import SequentialMnist, measures, pixels
from tests.helpers.verbs import user_error


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files as MNIST's, of 40 and 20 random pictures, with their checksums; labels plain, pictures packed."""
    sums = {}
    for name in FILES:
        count = 40 if name.startswith("train") else 20
        random = np.random.default_rng(count)
        if "images" in name:
            data = (
                struct.pack(">4i", 2051, count, 28, 28)
                + random.integers(256, size=(count, 28, 28), dtype=np.uint8).tobytes()
            )
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            data = struct.pack(">2i", 2049, count) + random.integers(10, size=count, dtype=np.uint8).tobytes()
            (tmp_path / name).write_bytes(data)
        sums[name] = hashlib.sha256(data).hexdigest()
    monkeypatch.setattr(module, "FILES", sums)
    return tmp_path


def test_files_are_read_packed_and_plain(folder):
    images, labels = mnist("train", folder)
    assert images.shape == (40, 28, 28) and images.dtype == torch.uint8 and labels.shape == (40,)
    assert labels.max() < 10 and len(mnist("t10k", folder)[0]) == 20


def test_a_damaged_file_is_named(folder):
    path = folder / "train-images-idx3-ubyte.gz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte.gz is not MNIST's .* checksum is wrong; remove it"):
        mnist("train", folder)


@pytest.mark.parametrize("task", [SequentialMnist, MovingMnist])
@pytest.mark.parametrize("name", ["t10k-labels-idx1-ubyte", "train-images-idx3-ubyte"])
def test_a_missing_file_is_named(folder, task, name):
    for path in folder.glob(f"{name}*"):
        path.unlink()
    with user_error(rf"has no {name}.gz, .*; put it there, or leave out --data-dir"):
        task(load(task), folder).network()


def test_a_batch_of_more_than_all_images_is_one_sentence(folder):
    with pytest.raises(UserError, match="batch_size must be at most 40, all images, got 41"):
        SequentialMnist(load(SequentialMnist, ["batch_size=41"]), folder).network()


def test_neither_cache_nor_network_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "URL", "http://127.0.0.1:9/")  # nobody listens there
    with pytest.raises(
        UserError, match=r"is not in .*rims-rl/mnist and cannot be downloaded \(.*refused\); put train-"
    ):
        mnist("train")


def test_what_is_downloaded_is_checked_and_kept(folder, tmp_path, monkeypatch):
    for name in module.FILES:
        if (folder / name).exists():
            (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    monkeypatch.setattr(module, "URL", f"file://{folder}/")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mnist.cache_clear()
    first = mnist("t10k")[0]
    monkeypatch.setattr(module, "URL", "http://127.0.0.1:9/")
    mnist.cache_clear()
    assert torch.equal(first, mnist("t10k")[0])
    mnist.cache_clear()


def test_pixels_are_the_nearest_ones_in_the_order_of_reading():
    image = torch.zeros(1, 28, 28, dtype=torch.uint8)
    image[0, 2, 4], image[0, 3, 6], image[0, 4, 0] = 255, 255, 127  # the second is between rows, the third too dark
    found = pixels(image, 14)
    assert found.shape == (196, 1) and found.flatten().nonzero().flatten().tolist() == [1 * 14 + 2]
    assert torch.equal(pixels(image, 28).flatten().nonzero().flatten(), torch.tensor([2 * 28 + 4, 3 * 28 + 6]))


def test_measures_of_digits_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.5 - 1e-9], [0.25, 0.75]]))
    found = measures(logits, torch.tensor([0, 0]))
    assert found["accuracy"] == 0.5 and found["cross entropy"] == pytest.approx((np.log(2) + np.log(4)) / 2, rel=1e-4)


def test_an_epoch_has_every_image_once(folder):
    task = SequentialMnist(load(SequentialMnist, ["batch_size=8", "hidden_size=12", "test_sides=[14,16]"]), folder)
    seen = torch.cat([task.batch(0, index)[0].T for index in range(5)])
    assert len({tuple(image.tolist()) for image in seen}) == 40
    assert not torch.equal(task.batch(0, 0)[0], task.batch(0, 5)[0])
    with torch.no_grad():
        assert list(task.tests(task.network().eval(), 10)) == ["14 x 14", "16 x 16"]


def test_digits_bounce_off_walls_and_keep_their_course_between_them():
    corners = paths(50, 2, 40, np.random.default_rng(0))
    assert corners.min() == 0 and corners.max() == ROOM
    step = np.diff(corners, axis=0)
    away = (corners > 0) & (corners < ROOM)
    free = away.all(-1)[1:-1] & away.all(-1)[2:]  # neither at a wall now nor after the next step
    assert (step[1:][free] == step[:-1][free]).all() and abs(step).max() <= 4
    for wall in (0, ROOM):
        arrived = (step[:-2] != 0) & (corners[1:-2] == wall)
        left = (corners[2:-1] != wall) | (corners[3:] != wall)
        assert left[arrived].mean() > 0.9  # all but those which met the other wall just then, and have no speed now


def test_moving_digits_are_drawn_where_they_are():
    images = np.full((1, 28, 28), 200, np.uint8)
    frames = clips(images, 1, 1, 3, np.random.default_rng(3))
    assert (frames > 0).sum((2, 3)).flatten().tolist() == [784] * 3
    assert frames.max() == pytest.approx(200 / 255)
    assert clips(images, 2, 20, 3, np.random.default_rng(3)).max() == 1.0  # overlaps are cut at 1


def test_masking_rims_one_by_one(folder):
    torch.manual_seed(0)
    settings = ["num_rims=3", "num_active=2", "hidden_size=12", "frames=6", "fed=2", "batch_size=2"]
    task = MovingMnist(load(MovingMnist, settings), folder)
    network = task.network().eval()
    with torch.no_grad():
        found, record = task.tests(network, 2), task.record(network)
    assert list(found) == ["whole", "without RIM 0", "without RIM 1", "without RIM 2"]
    assert len({each["cross entropy rolled out"] for each in found.values()}) == 4
    assert list(record["film"]) == ["truth", *found] and all(len(frame) == 32 * 32 for frame in record["film"]["truth"])
