"""How the figures of the simulations look, and how they are written: SVGs that follow the colour scheme of their reader."""

import io
import sys

# Okabe and Ito's colours, which people with any kind of colour vision tell apart, but for black and yellow, of which one is
# lost on a dark page and the other on a light one.
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7"
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)
MARKERS = "os^DvP"

# The colour of text and axes. It stands for a variable of CSS, see save: nothing else in a figure may have it.
INK = "#010203"
GRID = "#888888"
_STYLE = "<style>:root{--ink:#1a1a1a}@media (prefers-color-scheme:dark){:root{--ink:#e6e6e6}}</style>"


def pyplot():
    """matplotlib.pyplot with the look of all figures."""
    try:
        import matplotlib
    except ImportError:
        sys.exit(f"{sys.executable} has no module matplotlib; /usr/bin/python3 has that of Debian's package python3-matplotlib")
    matplotlib.use("svg")
    import matplotlib.pyplot
    matplotlib.pyplot.rcParams.update({
        "savefig.bbox": "tight", "savefig.transparent": True, "svg.fonttype": "none", "svg.hashsalt": "sluice",
        "font.family": "sans-serif", "font.size": 10, "text.color": INK, "legend.labelcolor": INK, "legend.frameon": False,
        "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "xtick.color": INK, "ytick.color": INK,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID,
        "grid.alpha": 0.3, "grid.linewidth": 0.8, "lines.linewidth": 1.8, "lines.markersize": 4,
    })
    return matplotlib.pyplot


def save(figure, path):
    """Without a date, so that the same data make the same file."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue().replace(INK, "var(--ink)")
    begin = svg.index(">", svg.index("<svg")) + 1
    with open(path, "w", encoding="utf-8") as file:
        file.write(svg[:begin] + _STYLE + svg[begin:])
