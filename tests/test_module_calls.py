"""The module call stack and the paths of modules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_globals

from neural_flow.module_calls import CallFrame, ModuleCallStack, all_modules, clean_path, module_paths, module_tree


@pytest.fixture(autouse=True)
def no_hooks_left() -> Iterator[None]:
    yield
    left = {
        name: dict(value)
        for name, value in vars(module_globals).items()
        if name.startswith("_global_") and isinstance(value, dict) and value
    }
    assert not left


class Log:
    """What the callbacks of a stack were told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def enter(self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        self.events.append(("enter", frame.path, frame.call_index, kwargs))

    def exit(self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        self.events.append(("exit", frame.path, frame.call_index, kwargs))

    def raised(
        self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any], error: BaseException | None
    ) -> None:
        self.events.append(("raise", frame.path, frame.call_index, error))

    def stack(self, model: nn.Module, **options: Any) -> ModuleCallStack:
        return ModuleCallStack(model, on_enter=self.enter, on_exit=self.exit, on_raise=self.raised, **options)


class Parent(nn.Module):
    def __init__(self, code: Callable[[nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        self.child = nn.Linear(2, 2)
        self.code = code

    def forward(self, x: torch.Tensor) -> Any:
        return self.code(self.child, x)


def test_calls_are_told_in_order_with_their_keywords() -> None:
    log, model = Log(), Parent(lambda child, x: child(input=child(x)))
    with log.stack(model) as stack:
        model(torch.ones(1, 2))
        assert stack.current is None
    kinds = [(kind, path, index) for kind, path, index, _ in log.events]
    assert kinds == [
        ("enter", "", 0), ("enter", "child", 0), ("exit", "child", 0), ("enter", "child", 1), ("exit", "child", 1),
        ("exit", "", 0),
    ]  # fmt: skip
    assert log.events[1][3] == {}
    assert list(log.events[3][3]) == list(log.events[4][3]) == ["input"]


def test_parents_and_ids_follow_the_order_of_entering() -> None:
    frames: list[CallFrame] = []
    model = nn.Sequential(nn.Sequential(nn.Identity()), nn.Identity())
    with ModuleCallStack(model, on_enter=lambda frame, *_: frames.append(frame)):
        model(torch.ones(1))
    assert [(frame.call_id, frame.path, frame.parent and frame.parent.call_id) for frame in frames] == [
        (0, "", None), (1, "0", 0), (2, "0.0", 1), (3, "1", 0),
    ]  # fmt: skip


def test_a_call_that_raises_and_is_caught_leaves_the_stack() -> None:
    def code(child: nn.Module, x: torch.Tensor) -> str:
        with pytest.raises(RuntimeError):
            child(x[:, :1])
        assert stack.current is not None
        return stack.current.path

    log = Log()
    model = Parent(code)
    with log.stack(model) as stack:
        assert model(torch.ones(1, 2)) == ""
    assert [event[0] for event in log.events] == ["enter", "enter", "raise", "exit"]
    assert isinstance(log.events[2][3], RuntimeError)


def test_a_call_inside_an_except_block_has_not_raised() -> None:
    def code(child: nn.Module, x: torch.Tensor) -> Any:
        try:
            raise ValueError
        except ValueError:
            return child(x)

    log, model = Log(), Parent(code)
    with log.stack(model):
        model(torch.ones(1, 2))
    assert [event[0] for event in log.events] == ["enter", "enter", "exit", "exit"]


def test_an_interrupt_leaves_no_dead_frame_for_later_calls() -> None:
    def code(child: nn.Module, x: torch.Tensor) -> Any:
        raise KeyboardInterrupt

    log = Log()
    model = nn.ModuleDict({"bad": Parent(code), "good": nn.Identity()})
    with log.stack(model) as stack:
        with pytest.raises(KeyboardInterrupt):
            model["bad"](torch.ones(1, 2))
        model["good"](torch.ones(1))
    assert stack.current is None
    assert log.events[-1][:2] == ("exit", "good")


def test_a_result_of_on_exit_replaces_the_output() -> None:
    with ModuleCallStack(model := nn.Identity(), on_exit=lambda *_: "replaced"):
        assert model(1) == "replaced"


def test_modules_of_others_and_threads_are_not_told() -> None:
    foreign: list[nn.Module] = []
    other = nn.Identity()
    log, model = Log(), Parent(lambda child, x: other(x))
    with log.stack(model, on_foreign=foreign.append):
        model(torch.ones(1))
        thread = threading.Thread(target=lambda: model(torch.ones(1)))
        thread.start()
        thread.join()
    assert foreign == [other]
    assert [event[:2] for event in log.events] == [("enter", ""), ("exit", "")]


def test_an_exception_in_the_context_removes_the_hooks() -> None:
    with pytest.raises(ValueError, match="stop"), ModuleCallStack(nn.Identity()):
        raise ValueError("stop")


def test_paths_of_modules() -> None:
    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Linear(1, 1)
            self.again = self.shared
            self.steps = [nn.Linear(1, 1), (nn.Linear(1, 1),)]
            self.heads = {"a": nn.Linear(1, 1)}
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(1, 1))
            self.parametrizations_of_mine = nn.Linear(1, 1)

    model = Tree()
    assert list(module_paths(model).values()) == [
        "", "shared", "normed", "parametrizations_of_mine", "steps.0", "steps.1.0", "heads.a",
    ]  # fmt: skip
    assert len(all_modules(model)) > len(module_paths(model))


def test_wrappers_leave_no_part_in_a_path() -> None:
    inner = nn.Linear(1, 1)
    model = nn.Sequential(nn.ModuleDict({"_checkpoint_wrapped_module": nn.Sequential(inner)}))
    paths = module_paths(model)
    assert paths[inner] == "0.0"
    assert model[0] not in paths
    assert clean_path("a._orig_mod.b._fsdp_wrapped_module.c") == "a.b.c"


def test_a_model_that_holds_itself_is_walked_once() -> None:
    model = nn.Sequential(nn.Identity())
    model.__dict__["owner"] = [model]
    assert list(module_paths(model).values()) == ["", "0"]


def test_the_tree_names_the_attributes_in_which_more_than_numbers_can_be() -> None:
    model = nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 1, 3))
    model.__dict__ |= {"scale": 2.0, "sizes": (1, "a"), "seen": [], "kept": torch.ones(1), "pair": (1, torch.ones(1))}
    tree = module_tree(nn.Sequential(model))
    assert set(tree.held[model]) == {"seen", "kept", "pair"}
    assert len(tree.held) > len(tree.paths) == 2
    assert {id(value) for value in tree.held_values()} >= {id(vars(model)[name]) for name in ("seen", "kept", "pair")}
