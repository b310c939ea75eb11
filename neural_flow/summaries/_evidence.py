"""What an output is, as far as its name, the modules and ops that made it, and its values tell.

A picture is a claim: bars of a softmax say that numbers are scores of classes, colours that channels are red, green and
blue. Shape alone proves neither, so values are shown as they are unless something speaks for more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import torch

from neural_flow.summaries._base import SummaryContext
from neural_flow.summaries._pixels import as_real

Meaning = Literal["classes", "values", "picture"]

_WORDS: dict[Meaning, frozenset[str]] = {
    "classes": frozenset((
        "logit", "class", "classify", "classifier", "classification", "cls", "category", "categorie",
        "prob", "probability", "probabilitie", "softmax", "label", "mask", "seg", "segment", "segmentation",
        "semantic", "tag", "vocab", "lm",
    )),
    "values": frozenset((
        "embed", "embedding", "emb", "feature", "feat", "hidden", "state", "pooled", "pooler", "latent", "mean", "mu",
        "sigma", "std", "variance", "logvar", "box", "bbox", "coord", "coordinate", "keypoint", "landmark",
        "pose", "angle", "rotation", "quat", "quaternion", "offset", "delta", "reg", "regress", "regressor",
        "regression", "value", "reward", "position", "velocity", "depth", "disp", "disparity", "flow", "normal",
        "height", "heat", "heatmap", "density", "distance", "sdf", "noise", "eps", "epsilon", "price", "age",
    )),
    "picture": frozenset((
        "rgb", "rgba", "recon", "reconstruct", "reconstruction", "reconstructed", "denoise", "denoiser", "denoised",
        "restored", "decoded", "generated", "generator", "gan", "autoencoder", "vae", "ae", "colorizer",
    )),
}  # fmt: skip
_NAMES_OF_PICTURES = frozenset((
    "image", "img", "sample", "picture", "photo", "fake", "sr", "hr", "hat", "color", "colour", "texture",
))  # fmt: skip
"""Words that make a picture of an output called so; a module called so may as well take pictures in."""
_HEADS = frozenset(("fc", "head"))
_MIN_HEAD_CLASSES = 10
"""A last layer of so many numbers called head or fc classifies; of fewer, it may as well regress."""
FEATURE_OPS = frozenset((
    "relu", "relu6", "gelu", "silu", "leaky_relu", "elu", "selu", "prelu", "mish", "hardswish", "softplus",
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize", "max_pool2d", "avg_pool2d",
    "adaptive_avg_pool2d",
))  # fmt: skip
SIGMOIDS = frozenset(("sigmoid", "hardsigmoid"))
BOUNDED_OPS = frozenset(("sigmoid", "tanh", "clamp", "clip", "hardtanh", "hardsigmoid"))
PICKING_OPS = frozenset(("max", "amax", "min", "amin", "topk", "sort", "gather", "norm", "vector_norm"))
"""What picks of scores of classes is no longer one a class."""
_SEGMENTERS = frozenset((
    "unet", "vnet", "unetr", "segnet", "segformer", "deeplab", "fcn", "segmenter", "maskformer",
))  # fmt: skip
_LINEAR_OPS = frozenset(("linear", "matmul", "addmm", "mm", "bmm", "einsum", "softmax", "log_softmax", "conv1d"))
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case and singular: ``pred_logits`` and ``AutoEncoder`` are two each."""
    return [_singular(part.lower()) for part in _PARTS.findall(name)]


def _singular(word: str) -> str:
    if word.endswith(("sses", "xes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def meaning_of(context: SummaryContext) -> Meaning | None:
    """Return what the output's own name says, else the nearest name round what made it; None where none says much.

    Where one name says several things, scores of classes come first: ``class_embed`` is a classifier.
    """
    for place, name in enumerate((context.name, *context.makers)):
        words = words_of(name)
        for meaning, known in _WORDS.items():
            if _holds(words, known):
                return meaning
        if place == 0 and not _NAMES_OF_PICTURES.isdisjoint(words):
            return "picture"
    return None


def _holds(words: Sequence[str], known: Set[str]) -> bool:
    """Return whether one of the words is known, or two that follow each other as one: ``U``, ``Net``."""
    return not known.isdisjoint((*words, *(first + second for first, second in pairwise(words))))


def last_op(context: SummaryContext) -> str:
    """Return the bare word of the op that made the output, empty where it is not known."""
    return context.ops[0] if context.ops else ""


def is_made_by_head(context: SummaryContext) -> bool:
    """Return whether a module that people call a head made the output."""
    return any(not _HEADS.isdisjoint(words_of(name)) for name in context.makers[:-1])


def are_class_scores(scores: torch.Tensor, context: SummaryContext) -> bool:
    """Return whether something speaks for the values ``[K]`` being scores of K classes."""
    if len(context.labels) == scores.numel() or are_shares(scores):
        return True
    is_picked = last_op(context) in PICKING_OPS
    meaning = meaning_of(replace(context, makers=()) if is_picked else context)
    if meaning is not None:
        return meaning == "classes"
    is_plain = not is_picked and last_op(context) not in FEATURE_OPS and not _is_normalised(scores)
    return is_plain and scores.numel() >= _MIN_HEAD_CLASSES and is_made_by_head(context)


def are_token_scores(context: SummaryContext) -> bool:
    """Return whether an output T×V is scores of the next token: not the states that a language model works with."""
    meaning = meaning_of(context)
    if meaning is not None:
        return meaning == "classes"
    return not context.ops or last_op(context) in _LINEAR_OPS


def are_pixel_scores(scores: torch.Tensor, context: SummaryContext) -> bool:
    """Return whether maps ``[K, ...]`` as large as the input may be scores of K classes, or of one against the rest.

    The size alone speaks for several classes, unless a name, the last op or the range speaks against them. A single
    map may as well be a depth, a field, a picture: there a name must speak for it, or a sigmoid.
    """
    meaning = meaning_of(context)
    if meaning is not None:
        return meaning == "classes"
    if last_op(context) in FEATURE_OPS and not are_shares(scores):
        return False
    if scores.shape[0] > 1:
        return True
    is_segmenter = any(_holds(words_of(name), _SEGMENTERS) for name in context.makers)
    return is_segmenter or last_op(context) in SIGMOIDS


def are_shares(values: torch.Tensor, dim: int = 0) -> bool:
    """Return whether values are probabilities along ``dim``, or logarithms of such."""
    shares = as_real(values)
    if bool((shares > 1.001).any()):
        return False
    return any(_sums_to_one(found, dim) for found in (shares, shares.exp()))


def _sums_to_one(values: torch.Tensor, dim: int) -> bool:
    return bool((values >= 0).all()) and bool(((values.double().sum(dim=dim) - 1).abs() < 1e-3).all())


def _is_normalised(values: torch.Tensor) -> bool:
    length = float(torch.linalg.vector_norm(as_real(values)))
    return abs(length - 1) < 1e-3 and bool((as_real(values) < 0).any())
