"""A tensor that was cut out of its memory and laid out again is the tensor, whatever its layout."""

from __future__ import annotations

import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from neural_flow.saved_tensors import offload_saved_tensors
from neural_flow.saved_tensors._layouts import CannotStoreError, cut_out, lay_out

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128, torch.complex32]
EIGHTS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
WHOLE = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
DTYPES = [*FLOATS, *COMPLEX, *EIGHTS, *WHOLE, torch.bool]


@st.composite
def tensors(draw, dtypes=DTYPES):
    """Return a view of any stride into memory of random bytes."""
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    kind = draw(st.sampled_from(["dense", "strided"]))
    if kind == "dense":
        order = draw(st.permutations(range(len(shape))))
        stride, step = [0] * len(shape), 1
        for axis in order:
            stride[axis] = step
            step *= max(shape[axis], 1)
    else:
        stride = draw(st.lists(st.integers(0, 7), min_size=len(shape), max_size=len(shape)))
    offset = draw(st.integers(0, 3))
    numel = offset + 1 + sum(max(size - 1, 0) * step for size, step in zip(shape, stride, strict=True))
    numel += draw(st.sampled_from([0, 0, 5, 500]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    high = 2 if dtype is torch.bool else 256
    memory = torch.randint(0, high, (numel * dtype.itemsize,), dtype=torch.uint8, generator=generator).view(dtype)
    tensor = memory.as_strided(shape, stride, offset)
    if dtype.is_complex and draw(st.booleans()):
        tensor = tensor.conj()
    if dtype in (torch.complex64, torch.complex128) and draw(st.booleans()):
        tensor = tensor.conj().imag if draw(st.booleans()) else tensor  # the imaginary part of a conjugate has a sign
    return tensor


def raw_bytes(tensor):
    """Return the bytes of the elements in order, computed by another way than under test."""
    plain = torch.resolve_neg(torch.resolve_conj(tensor))
    flat = torch.empty(tensor.shape, dtype=plain.dtype)
    flat.copy_(plain)
    return flat.reshape(-1).view(torch.uint8).tolist()


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@settings(max_examples=250, deadline=None)
@given(tensors())
def test_strided_tensor_comes_back_with_all_that_it_was(tensor):
    piece, form = cut_out(tensor)
    stream = io.BytesIO()
    torch.save(piece, stream)
    assert len(stream.getvalue()) <= 2500 + tensor.numel() * tensor.element_size()
    stream.seek(0)
    back = lay_out(torch.load(stream, weights_only=True), form)
    assert (back.shape, back.stride(), back.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert (back.is_conj(), back.is_neg()) == (tensor.is_conj(), tensor.is_neg())
    assert raw_bytes(back) == raw_bytes(tensor)


@settings(max_examples=120, deadline=None)
@given(tensors([torch.float32, torch.float64, torch.complex64, torch.complex128]), st.sampled_from(["disk", "cpu"]))
def test_gradient_through_any_view_is_bit_equal(tensor, place):
    tensor = torch.where(tensor.abs() < 1e3, tensor, torch.ones((), dtype=tensor.dtype)) if tensor.numel() else tensor
    leaf = torch.ones(tensor.shape, dtype=tensor.dtype, requires_grad=True)

    def gradient():
        product = leaf * tensor
        return (product * product.conj()).abs().sum()

    expected = torch.autograd.grad(gradient(), leaf)[0]
    with offload_saved_tensors(threshold=1, to=place):
        loss = gradient()
    (found,) = torch.autograd.grad(loss, leaf)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(), expected.nan_to_num())
    assert found.stride() == expected.stride()


def sparse_coo():
    indices = torch.tensor([[0, 0, 1], [1, 1, 2]])
    return torch.sparse_coo_tensor(indices, torch.randn(1000)[5:8], (2, 3), check_invariants=True)


LAYOUTS = {
    "coo, uncoalesced": sparse_coo,
    "coo": lambda: sparse_coo().coalesce(),
    "csr": lambda: torch.randn(4, 6).relu().to_sparse_csr(),
    "csc": lambda: torch.randn(4, 6).relu().to_sparse_csc(),
    "bsr": lambda: torch.randn(4, 6).to_sparse_bsr((2, 3)),
    "bsc": lambda: torch.randn(4, 6).to_sparse_bsc((2, 3)),
}


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
@pytest.mark.parametrize("name", LAYOUTS)
def test_sparse_layouts_come_back(name):
    tensor = LAYOUTS[name]()
    piece, form = cut_out(tensor)
    stream = io.BytesIO()
    torch.save(piece, stream)
    assert len(stream.getvalue()) < 3500
    stream.seek(0)
    back = lay_out(torch.load(stream, weights_only=True), form)
    assert back.layout is tensor.layout
    assert torch.equal(back.to_dense(), tensor.to_dense())
    if tensor.layout is torch.sparse_coo:
        assert back.is_coalesced() is tensor.is_coalesced()
        assert back._nnz() == tensor._nnz()


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
@pytest.mark.parametrize("name", ["coo, uncoalesced", "coo", "csr"])
def test_products_with_sparse_matrices_have_equal_gradients(name):
    matrix = LAYOUTS[name]()
    weight = torch.randn(matrix.shape[1], 4, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.sparse.mm(matrix, weight).square().sum(), weight)
    with offload_saved_tensors(threshold=1) as offload:
        loss = torch.sparse.mm(matrix, weight).square().sum()
    assert offload.num_stored >= 2
    (found,) = torch.autograd.grad(loss, weight)
    assert torch.equal(found, expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_have_equal_gradients(layout):
    rows = [torch.randn(length, 8) for length in (5, 3, 7)]
    leaf = torch.nested.nested_tensor(rows, layout=layout, requires_grad=True)
    weight = torch.randn(8, 8, requires_grad=True)

    def loss():
        product = torch.nn.functional.linear(leaf * 2, weight).relu()
        product = product * product
        return product.values().sum() if layout is torch.jagged else product.to_padded_tensor(0.0).sum()

    expected = torch.autograd.grad(loss(), [leaf, weight])
    with offload_saved_tensors(threshold=10) as offload:
        value = loss()
    assert offload.num_stored >= 2
    found = torch.autograd.grad(value, [leaf, weight])
    assert offload.num_files == 0
    assert torch.equal(found[1], expected[1])
    assert all(torch.equal(one, other) for one, other in zip(found[0].unbind(), expected[0].unbind(), strict=True))


class Scaled(torch.Tensor):
    """A subclass without any way to take it apart."""


def refusable():
    return {
        "mkldnn": torch.randn(4, 4).to_mkldnn(),
        "meta": torch.empty(4, 4, device="meta"),
        "subclass": torch.randn(4, 4).as_subclass(Scaled),
    }


@pytest.mark.parametrize("name", ["mkldnn", "meta", "subclass"])
def test_what_cannot_be_stored_is_refused_by_reason(name):
    with pytest.raises(CannotStoreError):
        cut_out(refusable()[name])


def test_what_cannot_be_stored_stays_in_memory_and_is_counted():
    leaf = torch.randn(4, 4, requires_grad=True)
    factor = torch.randn(4, 4).as_subclass(Scaled)
    with offload_saved_tensors(threshold=1) as offload:
        loss = (leaf * factor).sum()
    assert offload.kept == {"a Scaled is a subclass of Tensor": 1, "parameter": offload.num_kept - 1} or (
        offload.kept == {"a Scaled is a subclass of Tensor": 1}
    )
    assert offload.num_stored == 0
    loss.backward()
    assert torch.equal(leaf.grad, factor.as_subclass(torch.Tensor))
    x = torch.randn(4, 4, requires_grad=True)
    with offload_saved_tensors(threshold=1) as offload:
        y = x.to_mkldnn().relu()
    assert any("opaque" in reason for reason in offload.kept)
    y.to_dense().sum().backward()
    assert torch.equal(x.grad, (x > 0).float())


def test_parameter_object_comes_back_as_a_tensor_of_the_same_values():
    piece, form = cut_out(nn.Parameter(torch.randn(3, 3)).t())
    assert not piece.requires_grad
    assert lay_out(piece, form).stride() == (1, 3)


def test_whole_memory_is_not_copied_and_a_part_is():
    whole = torch.randn(4, 5).t()
    assert cut_out(whole)[0].data_ptr() == whole.data_ptr()
    part = torch.randn(4, 5)[1:]
    assert cut_out(part)[0].data_ptr() != part.data_ptr()
