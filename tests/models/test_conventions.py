from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from neural_flow.errors import SampleInputError
from neural_flow.models.conventions import class_names, loss_function, token_words
from neural_flow.models.target import load_target

Write = Callable[[str, str], Path]
MODEL = "from torch import nn\nmodel = nn.Identity()\n"


def test_lists_and_functions(write: Write) -> None:
    write("net.py", MODEL + "neural_flow_labels = ['a', 2]\ndef neural_flow_tokens(): return ('x', 'y')\n")
    loaded = load_target("net.py")
    assert class_names(loaded) == ("a", "2")
    assert token_words(loaded) == ("x", "y")
    assert loss_function(loaded) is None


def test_files_come_first(write: Write) -> None:
    write("net.py", MODEL + "neural_flow_labels = ['a']\ndef neural_flow_loss(y, x): return y\n")
    write("names.txt", "cat\ndog\n")
    write("names.json", '["cat", "dog"]')
    write("numbered.json", '{"10": "k", "0": "a", "2": "c"}')
    loaded = load_target("net.py")
    assert class_names(loaded, "names.txt") == class_names(loaded, "names.json") == ("cat", "dog")
    assert class_names(loaded, "numbered.json") == ("a", "c", "k")
    assert loss_function(loaded) is loaded.namespace["neural_flow_loss"]


@pytest.mark.parametrize(
    "body", ["def neural_flow_tokens(): raise KeyError(1)", "neural_flow_tokens = 3", "neural_flow_tokens = 'text'"]
)
def test_what_is_no_list_of_texts_is_refused(write: Write, body: str) -> None:
    write("net.py", MODEL + body)
    with pytest.raises(SampleInputError, match="neural_flow_tokens"):
        token_words(load_target("net.py"))


def test_a_file_that_cannot_be_read(write: Write) -> None:
    write("net.py", MODEL)
    write("bad.json", "{")
    for name in ("absent.txt", "bad.json"):
        with pytest.raises(SampleInputError, match=name):
            token_words(load_target("net.py"), name)


CONFIGURED = """
from types import SimpleNamespace
from torch import nn
model = nn.Identity()
model.config = SimpleNamespace(id2label={names})
"""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("{2: 'dog', 0: 'cat', 10: 'owl'}", ("cat", "dog", "owl")),
        ("{'0': 'cat', '1': 'LABEL_1'}", ("cat", "LABEL_1")),
        ("{0: 'LABEL_0', 1: 'LABEL_1'}", None),
        ("{}", None),
        ("None", None),
    ],
)
def test_a_configuration_names_classes_unless_it_only_numbers_them(
    write: Write, names: str, expected: tuple[str, ...] | None
) -> None:
    write("net.py", CONFIGURED.replace("{names}", names))
    assert class_names(load_target("net.py")) == expected


def test_the_file_says_more_than_the_configuration(write: Write) -> None:
    write("net.py", CONFIGURED.replace("{names}", "{0: 'cat'}") + "neural_flow_labels = ['mouse']\n")
    assert class_names(load_target("net.py")) == ("mouse",)
