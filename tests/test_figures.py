from __future__ import annotations

import pytest
import typer.main

from neural_flow.cli.app import app
from neural_flow.errors import SelectionError, UsageError
from neural_flow.figures import _FLAGS, Figure, read_figures


def one(**entry: object) -> Figure:
    return read_figures({"figures": [{"target": "net.py", "outputs": ["a.svg"], **entry}]})[0]


def test_an_entry_becomes_a_command():
    figure = one(
        name="n",
        args={"depth": 50, "norm": "none", "wide": True, "sizes": [1, 2]},
        inputs=["x=1,3,8,8", "t=:int64"],
        weights="w.pt:ema",
        graph="a.json",
        select=["a.*", "b"],
        max_stages=12,
        legend=False,
        train=False,
        strict=True,
        transparent=False,
    )
    assert figure.name == "n"
    assert figure.files == ("a.svg", "a.json")
    assert figure.graph == "a.json"
    assert list(figure.arguments) == [
        "-a", "depth=50", "-a", "norm=none", "-a", "wide=true", "-a", "sizes=[1, 2]",
        "-i", "x=1,3,8,8", "-i", "t=:int64", "--weights", "w.pt:ema",
        "--no-legend", "--max-stages", "12", "--select", "a.*", "--select", "b", "--strict", "--eval",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "options"),
    [
        ("inputs.py:make", ["--inputs", "inputs.py:make"]),
        ("1,3,8,8", ["-i", "1,3,8,8"]),
        ({"x": "1,3", "t": "2:int64"}, ["-i", "x=1,3", "-i", "t=2:int64"]),
        ([], []),
    ],
)
def test_inputs_in_every_form(inputs: object, options: list[str]):
    assert list(one(inputs=inputs).arguments) == options


def test_flags_that_say_no():
    assert one(no_fold=True).arguments == ("--no-fold",)
    assert one(**{"no-fold": False}).arguments == ("--fold",)
    assert one(fold=True).arguments == ("--fold",)


def test_names_and_files():
    assert one(target="sample:unet").name == "unet"
    assert one(target="a/net.py").name == "net"
    assert one(outputs="b.svg", graph="b.svg").files == ("b.svg",)


def test_only_takes_globs():
    table = {"figures": [{"target": f"{name}.py", "outputs": [f"{name}.svg"]} for name in ("unet", "vit", "unet3d")]}
    assert [figure.name for figure in read_figures(table, ["unet*"])] == ["unet", "unet3d"]
    assert [figure.name for figure in read_figures(table, ["vit", "*3d"])] == ["vit", "unet3d"]
    with pytest.raises(SelectionError, match="--only x"):
        read_figures(table, ["x"])


@pytest.mark.parametrize("table", [{"figures": {}}, {"figures": ["a"]}, {"figures": [{"outputs": ["a.svg"]}]}])
def test_malformed_lists(table: dict[str, object]):
    with pytest.raises(UsageError):
        read_figures(table)


def test_flags_are_true_or_false():
    command = typer.main.get_command(app).commands["render"]
    flags = {name for option in command.params if getattr(option, "is_flag", False) for name in option.opts}
    known = {name.removeprefix("--") for name in flags} - {"-q", "quiet", "-v", "verbose", "debug"}
    assert known | {"eval"} == _FLAGS
    for name in ("legend", "no_legend", "strict", "text-as-paths"):
        with pytest.raises(UsageError, match=f"{name} is 'no'") as caught:
            one(**{name: "no"})
        assert caught.value.hint == f"write {name} = true, or {name} = false"


def test_labels_may_be_a_table():
    assert list(one(label={"0": "Stem", "1": "Body"}).arguments) == ["--label", "0=Stem", "--label", "1=Body"]
