"""Nests of tensors: named leaves, rebuilding, structural copies."""

from __future__ import annotations

import dataclasses
import enum
from collections import OrderedDict, defaultdict, deque, namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from neural_flow.nested import copy_nest, every_tensor, map_tensors, tensor_leaves

Pair = namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any
    name: str = "n"


@dataclasses.dataclass(slots=True)
class Slotted:
    value: Any
    missing: Any = dataclasses.field(init=False)


class Output(OrderedDict[str, Any]):
    """A mapping whose items are attributes too, as model libraries return it."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Color(enum.Enum):
    RED = 1


def nests() -> st.SearchStrategy[Any]:
    leaves = st.one_of(st.builds(lambda: torch.zeros(1)), st.none(), st.integers(), st.text(max_size=3))
    return st.recursive(
        leaves,
        lambda children: st.one_of(
            st.lists(children, max_size=3),
            st.lists(children, max_size=3).map(tuple),
            st.dictionaries(st.text("ab", max_size=2), children, max_size=3),
            st.builds(Pair, children, children),
            st.builds(Frozen, children),
        ),
        max_leaves=8,
    )


def plain(value: Any) -> Any:
    """The structure of a nest, with tensors as a word."""
    if isinstance(value, torch.Tensor):
        return "tensor"
    if dataclasses.is_dataclass(value):
        return (type(value), plain(vars(value)))
    if isinstance(value, dict):
        return (type(value), [(key, plain(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value), [plain(item) for item in value])
    return value


@given(nests())
def test_mapping_keeps_structure_and_order(nest: Any) -> None:
    leaves = tensor_leaves(nest)
    mapped = map_tensors(nest, lambda tensor: tensor + 1)
    assert plain(mapped) == plain(nest)
    assert [name for name, _ in tensor_leaves(mapped)] == [name for name, _ in leaves]
    assert all(leaf.item() == 1 for _, leaf in tensor_leaves(mapped))
    assert all(leaf.item() == 0 for _, leaf in leaves)
    assert map_tensors(nest, lambda tensor: tensor) is nest


@given(nests())
def test_a_copy_shares_no_container_and_no_tensor(nest: Any) -> None:
    copied = copy_nest(nest, torch.clone)
    assert plain(copied) == plain(nest)

    def mutable(value: Any) -> list[int]:
        items = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else ()
        if dataclasses.is_dataclass(value):
            items = vars(value).values()
        own = [id(value)] if isinstance(value, list | dict | torch.Tensor) else []
        return own + [one for item in items for one in mutable(item)]

    assert not set(mutable(copied)) & set(mutable(nest))


@given(nests())
def test_every_tensor_is_what_a_copy_meets(nest: Any) -> None:
    met: list[torch.Tensor] = []
    copy_nest(nest, lambda tensor: (met.append(tensor), tensor)[1])
    assert sorted(map(id, every_tensor(nest))) == sorted(map(id, met))


def test_every_tensor_looks_into_objects() -> None:
    x = torch.zeros(1)
    deep = SimpleNamespace(layers=[SimpleNamespace(keys=x)], table={"a": (x,)})
    assert every_tensor([deep, x, nn.Linear(1, 1)]) == [x, x, x]
    assert [name for name, _ in tensor_leaves(deep, "d")] == []


def test_leaves_are_named_as_users_write_them() -> None:
    x = torch.zeros(1)
    nest = {"a": [x, (x, None)], "b": Pair(x, "s"), "c": Frozen(x), 3: {x}, "d": SimpleNamespace(u=x, v=[x])}
    names = [name for name, _ in tensor_leaves(nest, "batch")]
    assert names == ["batch.a[0]", "batch.a[1][0]", "batch.b.left", "batch.c.value", "batch.3[0]", "batch.d.u"]
    assert tensor_leaves(x, "x")[0][0] == "x"


@pytest.mark.parametrize(
    "value", [None, 3, "s", b"b", torch.Size([1]), torch.float32, nn.Linear(1, 1), Color.RED, len, int]
)
def test_what_is_no_container_has_no_leaves_and_is_handed_on(value: Any) -> None:
    assert tensor_leaves(value) == []
    assert map_tensors(value, lambda tensor: tensor + 1) is value
    assert copy_nest(value, torch.clone) is value


def test_nests_that_hold_themselves_end() -> None:
    loop: list[Any] = [torch.zeros(1)]
    loop.append(loop)
    assert len(tensor_leaves(loop)) == 1
    copied = copy_nest(loop, torch.clone)
    assert copied[1] is copied
    assert copied[0] is not loop[0]


@pytest.mark.parametrize(
    "container",
    [
        OrderedDict(a=torch.zeros(1)),
        defaultdict(list, a=torch.zeros(1)),
        Output(a=torch.zeros(1)),
        Pair(torch.zeros(1), 1),
        Frozen(torch.zeros(1)),
        Slotted(torch.zeros(1)),
        SimpleNamespace(a=torch.zeros(1)),
        torch.distributions.Normal(torch.zeros(1), torch.ones(1)),
    ],
)
def test_containers_of_every_sort_are_rebuilt_as_they_are(container: Any) -> None:
    for rebuild in (map_tensors, copy_nest):
        rebuilt = rebuild(container, lambda tensor: tensor + 1)
        assert type(rebuilt) is type(container)
        assert rebuilt is not container
        before = [leaf.item() for _, leaf in tensor_leaves(container)]
        assert [leaf.item() for _, leaf in tensor_leaves(rebuilt)] == [value + 1 for value in before]


def test_items_that_are_attributes_too_stay_one_value() -> None:
    rebuilt: Any = map_tensors(Output(a=torch.zeros(1)), lambda tensor: tensor + 1)
    assert rebuilt["a"] is rebuilt.a


def test_packed_sequences_keep_their_data_and_lengths() -> None:
    packed = pack_padded_sequence(torch.rand(2, 3, 4), torch.tensor([3, 1]), batch_first=True)
    assert [name for name, _ in tensor_leaves(packed, "p")] == ["p.data", "p.batch_sizes"]
    mapped = map_tensors(packed, lambda tensor: tensor * 1)
    assert isinstance(mapped, PackedSequence)
    assert torch.equal(mapped.data, packed.data)
    assert torch.equal(mapped.batch_sizes, packed.batch_sizes)


def test_a_container_met_twice_is_one_container_in_the_copy() -> None:
    shared = [torch.zeros(1)]
    copied = copy_nest({"a": shared, "b": (shared, 1)}, torch.clone)
    assert copied["a"] is copied["b"][0]


def test_objects_that_refuse_to_be_copied_are_handed_on() -> None:
    class Stubborn:
        def __init__(self) -> None:
            self.tensor = torch.zeros(1)

        def __copy__(self) -> Stubborn:
            raise RuntimeError("no")

    stubborn = Stubborn()
    assert copy_nest([stubborn], torch.clone)[0] is stubborn


def test_queues_are_copied_with_their_length() -> None:
    queue = deque([torch.zeros(1)], maxlen=2)
    copied = copy_nest(SimpleNamespace(queue=queue), torch.clone).queue
    assert copied is not queue
    assert copied.maxlen == 2
