"""The style of the simulations' figures, and how to write them: SVGs that follow the colour scheme of their reader."""

import io
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools/sluice_plan"))

import plan_plot
from plan_plot import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION

COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)
MARKERS = "os^DvP"

# The colour of text and axes. save replaces it by a CSS variable, so no other part of a figure may have this colour.
INK = "#010203"
GRID = "#888888"
_STYLE = "<style>:root{--ink:#1a1a1a}@media (prefers-color-scheme:dark){:root{--ink:#e6e6e6}}</style>"


def pyplot():
    """Returns matplotlib.pyplot with the style of plan_plot, except for the background, which comes from the
    reader's page."""
    plot = plan_plot.pyplot()
    plot.rcParams.update({
        "savefig.transparent": True, "text.color": INK, "legend.labelcolor": INK, "axes.edgecolor": INK, "axes.labelcolor": INK,
        "axes.titlecolor": INK, "xtick.color": INK, "ytick.color": INK, "grid.color": GRID, "grid.alpha": 0.3,
        "grid.linewidth": 0.8,
    })
    return plot


def save(figure, path):
    """Writes without a date, so that the same data give the same file. A tag is one line, and coordinates have two decimals."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue().replace(INK, "var(--ink)")
    svg = re.sub(r"(?s) *<!--.*?-->\n| *<metadata>.*?</metadata>\n", "", svg)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"\s*\n\s*", " ", tag[0]), svg)
    svg = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), svg)
    begin = svg.index(">", svg.index("<svg")) + 1
    with open(path, "w", encoding="utf-8") as file:
        file.write(svg[:begin] + _STYLE + svg[begin:])
