"""Every colour, size and gap of the figure. Lengths and font sizes are points; colours are ``#rrggbb``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType

from neural_flow.errors import UnknownNameError

_FAMILIES = MappingProxyType(
    {
        "convolution": "#5B8FC7",
        "linear": "#7A6FB8",
        "attention": "#C9695B",
        "normalisation": "#A3ADB8",
        "recurrent": "#3F9C8C",
        "embedding": "#C08A2D",
        "data": "#8C98A4",
        "other": "#7A8A72",
    }
)
_FAMILIES_DARK = MappingProxyType(
    {
        "convolution": "#6FA3DB",
        "linear": "#9A8FD6",
        "attention": "#E08A7B",
        "normalisation": "#8795A3",
        "recurrent": "#55B8A6",
        "embedding": "#D9A84E",
        "data": "#7B8894",
        "other": "#93A38B",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """The look of a figure. The defaults are the light theme."""

    name: str = "light"
    is_dark: bool = False

    paper: str = "#FFFFFF"
    ink: str = "#1F2933"
    sub: str = "#66727F"
    hair: str = "#C9D1DA"
    trunk: str = "#36414C"
    skip: str = "#0072B2"
    merge: str = "#00795A"
    branch: str = "#D55E00"
    inferred: str = "#8A94A0"
    failure: str = "#C8102E"
    highlight: str = "#F2C14E"
    group_fill: str = "#F5F7F9"
    group_edge: str = "#DDE3E9"
    plane_separator: str = "#FFFFFF"
    frame: str = "#1F2933"
    fold_fill: str = "#FFFFFF"
    plate: str = "#FFFFFF"
    plate_edge: str = "#AEB8C2"
    dead: str = "#E4E7EB"
    not_a_number: str = "#39FF14"
    families: MappingProxyType[str, str] = field(default_factory=lambda: _FAMILIES)
    tint_fraction: float = 0.42
    """How much of a family colour the front plane of a card without activation shows; the rest is paper."""

    sequential_map: str = "magma"
    signed_map: str = "RdBu_r"

    title_size: float = 8.0
    facts_size: float = 5.6
    name_size: float = 5.8
    shape_size: float = 5.2
    edge_label_size: float = 5.2
    legend_size: float = 5.6
    group_size: float = 6.0
    badge_size: float = 5.4
    ring_glyph_size: float = 5.8
    min_size: float = 5.0

    margin: float = 8.0
    header_baseline: float = 12.6
    header_height: float = 19.6

    map_side: float = 56.0
    map_shrink: float = 0.8
    """Side of the next map when the resolution halves, as a fraction."""
    min_map_side: float = 18.0
    max_map_side: float = 64.0
    picture_side: float = 46.0
    plane_offset: float = 2.3
    min_planes: int = 2
    max_planes: int = 6
    separator_width: float = 0.6
    frame_width: float = 0.55
    plate_padding: float = 4.0
    plate_offset: float = 2.3

    edge_width: float = 1.05
    head_length: float = 4.6
    head_width: float = 3.4
    head_notch: float = 0.9
    line_stop: float = 3.6
    clearance: float = 1.4
    corner_radius: float = 6.0
    dash: tuple[float, float] = (2.2, 1.6)
    """Dash and gap of inferred edges, in line widths."""
    tap_radius: float = 1.1
    ring_radius: float = 5.2
    ring_width: float = 1.0

    group_radius: float = 5.0
    group_width: float = 0.5
    group_padding: float = 9.0
    plate_head: float = 10.5
    """Room above the face of a folded card, for its count."""
    label_first: float = 5.2
    """First baseline of a label, below the top of its box."""
    label_gap: float = 6.0
    """From one baseline of a label to the next."""
    label_pad: float = 1.0
    """Height of a label's box beyond its lines."""
    badge_pad: float = 2.2

    legend_row: float = 11.0
    legend_sample: float = 16.0
    color_bar_width: float = 84.0
    color_bar_height: float = 4.6

    def __post_init__(self) -> None:
        if min(self.name_size, self.shape_size, self.edge_label_size, self.legend_size) < self.min_size:
            raise ValueError(f"no text of a figure may be smaller than {self.min_size} pt")


_LIGHT = Theme()
_DARK = Theme(
    name="dark",
    is_dark=True,
    paper="#0F161C",
    ink="#E6EAEE",
    sub="#9AA5B1",
    hair="#3E4C59",
    trunk="#CBD2D9",
    skip="#56B4E9",
    merge="#3ECF9B",
    branch="#F0975A",
    inferred="#7B8794",
    failure="#FF6B6B",
    highlight="#F2C14E",
    group_fill="#182129",
    group_edge="#2B3743",
    plane_separator="#52606D",
    frame="#9AA5B1",
    fold_fill="#141C23",
    plate="#141C23",
    plate_edge="#52606D",
    dead="#2A343D",
    families=_FAMILIES_DARK,
    tint_fraction=0.5,
    signed_map="berlin",
)
# On paper without colour, kinds of edges must still differ: darker inks, white groups with a visible border.
_PRINT = replace(
    _LIGHT,
    name="print",
    ink="#000000",
    sub="#3F4852",
    trunk="#1B222A",
    skip="#005A8C",
    merge="#00593F",
    branch="#B24E00",
    inferred="#6B7580",
    group_fill="#FFFFFF",
    group_edge="#9AA5B1",
    frame="#000000",
    sequential_map="viridis",
)

THEMES = MappingProxyType({theme.name: theme for theme in (_LIGHT, _DARK, _PRINT)})


def get_theme(name: str) -> Theme:
    """Return the ready theme called ``name``.

    Raises:
        UnknownNameError: no such theme; lists the choices.
    """
    if name not in THEMES:
        raise UnknownNameError("theme", name, THEMES)
    return THEMES[name]


def mix(first: str, second: str, fraction: float) -> str:
    """Return ``fraction`` of ``first`` over ``second``, both ``#rrggbb``."""
    pairs = zip(rgb(first), rgb(second), strict=True)
    return "#" + "".join(f"{round(a * fraction + b * (1 - fraction)):02X}" for a, b in pairs)


def rgb(color: str) -> tuple[int, int, int]:
    """Return red, green and blue of ``#rrggbb`` or ``#rrggbbaa``, 0-255 each."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def luminance(color: str) -> float:
    """Return the relative luminance of ``color`` as WCAG 2 defines it, 0 (black) to 1 (white)."""
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (channel / 255 for channel in rgb(color))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours as WCAG 2 defines it, 1 to 21."""
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
