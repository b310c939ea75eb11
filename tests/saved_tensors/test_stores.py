"""Files that cannot be written or read are clear errors, and never a wrong gradient."""

from __future__ import annotations

import os
import shutil

import pytest
import torch

from neural_flow.saved_tensors import _folders, _stores, offload_saved_tensors


@pytest.fixture
def step(tmp_path):
    """Yield (leaf, loss, its one file) of a graph that has one tensor on disk."""
    x = torch.randn(3000, requires_grad=True)
    with offload_saved_tensors(folder=tmp_path) as offload:
        loss = x.exp().sum()
    (file,) = offload.folder.glob("*.pt")
    yield x, loss, file
    for key in [key for key in _folders._folders if key[1] == tmp_path]:
        os.close(_folders._folders.pop(key)[1])


def refused(x, loss, words):
    with pytest.raises(RuntimeError, match=words) as caught:
        loss.backward()
    assert x.grad is None
    assert "run the forward again" in str(caught.value).lower()


def test_missing_file(step):
    x, loss, file = step
    file.unlink()
    refused(x, loss, "cannot be read.*No such file.*folder=")


def test_missing_folder(step):
    x, loss, file = step
    shutil.rmtree(file.parent)
    refused(x, loss, "cannot be read.*No such file")


@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_one_changed_byte(step, place):
    x, loss, file = step
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1
    file.write_bytes(content)
    refused(x, loss, f"damaged: {file}")


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b""])
def test_other_length(step, change):
    x, loss, file = step
    file.write_bytes(change(file.read_bytes()))
    refused(x, loss, "damaged")


def test_file_of_another_tensor(step, tmp_path):
    x, loss, file = step
    with offload_saved_tensors(folder=tmp_path) as offload:
        other = torch.randn(3000, requires_grad=True).exp()
        (other_file,) = set(offload.folder.glob("*.pt")) - {file}
    shutil.copy(other_file, file)
    refused(x, loss, "damaged")
    del other


def test_folder_gone_while_the_context_is_open(tmp_path):
    x = torch.randn(3000, requires_grad=True)
    with offload_saved_tensors(folder=tmp_path) as offload:
        shutil.rmtree(offload.folder)
        with pytest.raises(FileNotFoundError, match=r"cannot write 0\.0 MB: No such file.*folder="):
            x.exp()
    with offload_saved_tensors(folder=tmp_path) as offload:
        loss = x.exp().sum()
        assert offload.num_files == 1
    loss.backward()
    assert torch.equal(x.grad, x.exp())
    for key in [key for key in _folders._folders if key[1] == tmp_path]:
        os.close(_folders._folders.pop(key)[1])


def test_missing_base_folder(tmp_path):
    with pytest.raises(FileNotFoundError), offload_saved_tensors(folder=tmp_path / "none"):
        pass
    assert torch.ones(2, requires_grad=True).exp().grad_fn._raw_saved_result.unpack_hook is None


@pytest.fixture
def small_files():
    """Let no file of this process grow beyond 50 kB, as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_is_an_error_in_forward_and_leaves_no_half_file(tmp_path, small_files):
    small, big = torch.randn(2000, requires_grad=True), torch.randn(100_000, requires_grad=True)
    with offload_saved_tensors(folder=tmp_path) as offload:
        kept = small.exp()
        with pytest.raises(OSError, match=r"cannot write 0\.4 MB: File too large; free space"):
            big.exp()
        assert len(list(offload.folder.glob("*.pt"))) == offload.num_files == 1
    kept.sum().backward()
    assert torch.equal(small.grad, small.exp())
    assert big.grad is None
    assert offload.num_files == 0
    for key in [key for key in _folders._folders if key[1] == tmp_path]:
        os.close(_folders._folders.pop(key)[1])


def test_pieces_are_loaded_without_running_code(step, monkeypatch):
    x, loss, _ = step
    seen = []
    load = torch.load

    def watched(*args, **kwargs):
        seen.append(kwargs["weights_only"])
        return load(*args, **kwargs)

    monkeypatch.setattr(torch, "load", watched)
    loss.backward()
    assert seen == [True]
    assert torch.equal(x.grad, x.exp())


@pytest.mark.parametrize("make", [_stores.CpuStore, lambda: _stores.CallableStore(lambda piece: piece.clone().clone)])
def test_what_is_loaded_is_nobody_elses(make):
    piece = torch.arange(10.0)
    stored = make().put(piece)
    stored.load().zero_()
    piece.zero_()
    assert stored.load().tolist() == list(range(10))
    assert not stored.is_same(piece)
    assert stored.is_same(torch.arange(10.0))
