"""The canvas of the report's drawings: matplotlib's figures as SVG that follows the page's colours, light or dark.

matplotlib draws in stand-in colours, which are then replaced by CSS variables, so that one drawing serves both themes;
its text stays text, so that it can be selected, searched and read aloud. Equal input gives equal bytes.
"""

import hashlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins: colours that nothing else has, each replaced by the variable of its name in the page's style sheet.
# The hues behind them are those of Okabe and Ito, which people with any common colour blindness can tell apart.
INK: Final = "#010101"
MUTED: Final = "#020202"
GRID: Final = "#030303"
MAIN: Final = "#040404"
GOOD: Final = "#050505"
BAD: Final = "#060606"
TRIAL: Final = "#070707"
OTHER: Final = "#080808"
SURFACE: Final = "#090909"
_VARIABLES: Final = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    MAIN: "main",
    GOOD: "good",
    BAD: "bad",
    TRIAL: "trial",
    OTHER: "other",
    SURFACE: "surface",
}

_STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "clocktuner",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "figure.facecolor": "none",
    "text.parse_math": False,
}


@contextmanager
def canvas(size: tuple[float, float], *, left: float, bottom: float) -> Iterator[tuple["Figure", "Axes"]]:
    """Yield axes with fixed margins in inches, so that panels below each other align."""
    # Imported late: it takes half a second and forty megabytes, and only the report draws.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Defaults first, so that a matplotlibrc of the machine does not change the report.
    with mpl.rc_context(cast("Any", {**mpl.rcParamsDefault, **_STYLE})):
        figure = Figure(figsize=size)
        width, height = size
        box = (left / width, bottom / height, 1 - (left + 0.22) / width, 1 - (bottom + 0.14) / height)
        yield figure, figure.add_axes(box)


def svg(figure: "Figure", *, title: str, description: str) -> str:
    """Return a figure as an element for the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return themed(buffer.getvalue(), title=title, description=description)


def themed(drawing: str, *, title: str, description: str) -> str:
    """Return matplotlib's SVG as an element for the page: themed, accessible, and with ids of its own."""
    key = hashlib.sha256((drawing + title).encode()).hexdigest()[:8]
    body = drawing[drawing.index("<svg") :]
    view = re.search(r'viewBox="([^"]+)"', body)
    body = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = body[body.index(">") + 1 :]
    # Drawings on one page must not share ids: only those that are referred to stay, under names of their own.
    body = re.sub(r' id="(?![mp][0-9a-f]{10}")[^"]*"', "", body)
    body = re.sub(r'\bid="', f'id="{key}-', body)
    body = re.sub(r'(?:xlink:)?(href="|url\()#', rf"\1#{key}-", body)
    for stand_in, variable in _VARIABLES.items():
        body = body.replace(stand_in, f"var(--{variable})")
    # The page has its own type face and size; matplotlib only places the text.
    body = re.sub(r"font-(?:size|family): [^;\"]*; ", "", body)
    # A hundredth of a point is finer than any screen.
    body = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", body)
    body = re.sub(r"\s*\n\s*", " ", body)
    return (
        f'<svg class="plot" role="img" viewBox="{view[1] if view else "0 0 1 1"}" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{escape(title)}</title><desc id="{key}-d">{escape(description)}</desc>{body}'
    )
