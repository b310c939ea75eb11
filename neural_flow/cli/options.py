"""The options that commands share, each written once. Their names are a contract."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

_MODEL = "Model"
_INPUTS = "Inputs"
_WHAT = "What is drawn"
_HOW = "How"

# -- the model -----------------------------------------------------------------------------------------------------

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        show_default=False,
        help="path/to/model.py[:ATTR], package.module:ATTR, sample:NAME, torchvision:NAME, timm:NAME, hf:FOLDER, "
        "file.pt2, or a graph .json",
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Option("-a", "--arg", metavar="NAME=VALUE", rich_help_panel=_MODEL, help="Constructor argument; repeatable."),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="FILE[:KEY]", rich_help_panel=_MODEL, help="Weights: safetensors, or torch with tensors only."
    ),
]
UnsafeLoad = Annotated[
    bool, typer.Option("--unsafe-load", rich_help_panel=_MODEL, help="Trust files that run code when they are read.")
]
AllowDownload = Annotated[
    bool, typer.Option("--allow-download", rich_help_panel=_MODEL, help="Let libraries fetch trained weights.")
]
Seed = Annotated[int, typer.Option(min=0, rich_help_panel=_MODEL, help="Of weights, inputs and dropout.")]
Device = Annotated[
    str | None, typer.Option(metavar="DEVICE", rich_help_panel=_MODEL, help="Where the model runs, such as cuda:0.")
]
Train = Annotated[bool, typer.Option("--train/--eval", rich_help_panel=_MODEL, help="The mode that the model runs in.")]
Autocast = Annotated[bool, typer.Option("--autocast", rich_help_panel=_MODEL, help="Run under torch.autocast.")]

# -- inputs --------------------------------------------------------------------------------------------------------

Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "-i",
        "--input",
        "--input-size",
        metavar="[NAME=]SHAPE[:DTYPE][RANGE]",
        rich_help_panel=_INPUTS,
        help="1,3,224,224 · ids=2,16:int64[0,99) · x=@cell.png:1,1,64,64 · x=@batch.npz; repeatable.",
    ),
]
InputsFunction = Annotated[
    str | None,
    typer.Option(
        "--inputs", metavar="FILE.py[:NAME]", rich_help_panel=_INPUTS, help="A function that returns the inputs."
    ),
]
BatchDim = Annotated[
    str, typer.Option(metavar="auto|N|none", rich_help_panel=_INPUTS, help="Which dimension counts examples.")
]
Sample = Annotated[int, typer.Option(min=0, rich_help_panel=_INPUTS, help="Which example of the batch is shown.")]
Tokens = Annotated[
    str | None, typer.Option(metavar="FILE", rich_help_panel=_INPUTS, help="Words for token axes, one a line.")
]
ClassLabels = Annotated[
    str | None, typer.Option("--labels", metavar="FILE", rich_help_panel=_INPUTS, help="Class names, one a line.")
]

# -- what is drawn -------------------------------------------------------------------------------------------------

Detail = Annotated[
    Literal["auto", "block", "layer", "op"],
    typer.Option(rich_help_panel=_WHAT, help="How fine; auto draws at most 24 cards."),
]
Depth = Annotated[int | None, typer.Option(min=0, rich_help_panel=_WHAT, help="Module depth below the root.")]
Select = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", rich_help_panel=_WHAT, help="Exactly these modules become stages; repeatable."),
]
Exclude = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", rich_help_panel=_WHAT, help="Never these; repeatable.")
]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="CLASS", rich_help_panel=_WHAT, help="Modules of this class; repeatable."),
]
MaxStages = Annotated[int, typer.Option(min=1, metavar="N", rich_help_panel=_WHAT, help="The most cards of auto.")]
Fold = Annotated[bool, typer.Option("--fold/--no-fold", rich_help_panel=_WHAT, help="Draw repeats once, with ×N.")]
Expand = Annotated[
    list[str] | None, typer.Option(metavar="GLOB|CLASS", rich_help_panel=_WHAT, help="Open these; repeatable.")
]
Collapse = Annotated[
    list[str] | None, typer.Option(metavar="GLOB|CLASS", rich_help_panel=_WHAT, help="Keep these shut; repeatable.")
]
TopologySource = Annotated[
    str,
    typer.Option(
        "--topology",
        metavar="auto|dataflow|fx|export|sequential",
        rich_help_panel=_WHAT,
        help="Where the edges come from.",
    ),
]
Tracer = Annotated[
    Literal["auto", "function", "dispatch"], typer.Option(rich_help_panel=_WHAT, help="At which level calls are seen.")
]
CaptureValues = Annotated[
    bool,
    typer.Option("--capture/--no-capture", rich_help_panel=_WHAT, help="Draw real activations, or structure only."),
]
CaptureDevice = Annotated[
    str, typer.Option(metavar="DEVICE", rich_help_panel=_WHAT, help="Where activations are reduced.")
]
Fake = Annotated[bool, typer.Option("--fake", rich_help_panel=_WHAT, help="Run on fake tensors: any size, no values.")]
Attention = Annotated[
    bool, typer.Option("--attention/--no-attention", rich_help_panel=_WHAT, help="Show attention weights.")
]
Heads = Annotated[
    str | None, typer.Option(metavar="PATH:HEADS", rich_help_panel=_WHAT, help="Which heads, such as h.5:0-3.")
]
Gradients = Annotated[bool, typer.Option("--gradients", rich_help_panel=_WHAT, help="Show gradient norms.")]
Saved = Annotated[bool, typer.Option("--saved", rich_help_panel=_WHAT, help="Show what backward keeps in memory.")]
ColorBy = Annotated[
    str | None,
    typer.Option(
        metavar="params|flops|time|memory|saved|gradient", rich_help_panel=_WHAT, help="Tint cards by a number."
    ),
]
Stats = Annotated[
    bool | None,
    typer.Option(
        "--stats/--no-stats", show_default=False, rich_help_panel=_WHAT, help="Write statistics in cards; or nowhere."
    ),
]
Strict = Annotated[bool, typer.Option("--strict", rich_help_panel=_WHAT, help="Refuse fallbacks and missing pictures.")]

# -- how -----------------------------------------------------------------------------------------------------------

LayoutStyle = Annotated[
    str, typer.Option("--layout", metavar="auto|layered|u|wrapped", rich_help_panel=_HOW, help="The arrangement.")
]
Direction = Annotated[
    Literal["auto", "lr", "tb"], typer.Option(rich_help_panel=_HOW, help="Left to right, or top to bottom.")
]
Width = Annotated[
    str | None,
    typer.Option(metavar="LENGTH", rich_help_panel=_HOW, help="516pt, 180mm, 7in, column, page or slide."),
]
ThemeName = Annotated[str, typer.Option("--theme", metavar="light|dark|print", rich_help_panel=_HOW, help="Colours.")]
Transparent = Annotated[bool, typer.Option("--transparent", rich_help_panel=_HOW, help="No background.")]
Cmap = Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=_HOW, help="Colour map of activations.")]
Norm = Annotated[
    Literal["channel", "stage", "global"], typer.Option(rich_help_panel=_HOW, help="What shares one colour scale.")
]
Dpi = Annotated[int | None, typer.Option(min=1, rich_help_panel=_HOW, help="Pixels per inch of PNG.")]
Title = Annotated[str | None, typer.Option(metavar="TEXT", rich_help_panel=_HOW, help="Instead of the model's name.")]
Legend = Annotated[bool, typer.Option("--legend/--no-legend", rich_help_panel=_HOW, help="Explain lines and colours.")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="PATH=TEXT", rich_help_panel=_HOW, help="Rename a card; repeatable."),
]
Highlight = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", rich_help_panel=_HOW, help="Stress these; repeatable.")
]
Shapes = Annotated[bool, typer.Option("--shapes/--no-shapes", rich_help_panel=_HOW, help="Write tensor shapes.")]
Font = Annotated[str | None, typer.Option(metavar="FILE", rich_help_panel=_HOW, help="A TrueType file for all text.")]
TextAsPaths = Annotated[bool, typer.Option("--text-as-paths", rich_help_panel=_HOW, help="Draw letters as outlines.")]

# -- results and the terminal --------------------------------------------------------------------------------------

Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="The suffix picks the format: .svg .png .pdf .html .json .md .txt; repeatable; - is stdout. "
        "A folder takes NAME.svg. Without -o, NAME.svg is written here, NAME being that of the model's file.",
    ),
]
Format = Annotated[str | None, typer.Option("--format", metavar="FORMAT", help="The format of -o -, such as svg.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress and no notes.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say every decision.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Record = Annotated[str | None, typer.Option(hidden=True, help="Where build learns which files a figure read.")]
Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, metavar="N", help="How many figures at a time.")]
