"""The few words of Grafana's dashboard model (schema 39) that our dashboards need.

Everything a reader relies on is asked for by the signatures: no panel without a title, a description and a unit, no
target without a legend. Variables, colours and the data source are the same everywhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

DATASOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}

SELECTOR: Final = 'cluster=~"$cluster",policy=~"$policy"'
"""Matchers that every expression carries."""

# One colour, one meaning; hues after Okabe and Ito.
SEEN: Final = "#56B4E9"
EXPECTED: Final = "#0072B2"
CHANGED: Final = "#E69F00"
KEPT: Final = "#009E73"
UNDONE: Final = "#D55E00"
QUIET: Final = "#8F8F8F"

CYCLES: Final = "10m"
"""Least distance of points of what counts once a cycle: two cycles of five minutes, so that an increase can be seen."""

TICKS: Final = "1m"
"""The same for what counts once a guard tick: a minute holds at least two scrapes and, as a rule, a dozen ticks."""

RUNBOOKS: Final = "docs/runbooks"
"""Where the runbooks lie in a checkout; the variable `runbooks` holds where a site has put them."""

COLUMNS: Final = 24
"""Width of Grafana's grid."""


def series(name: str, /, **labels: str) -> str:
    """Return the selector of one of our series, of the chosen clusters and policies.

    Args:
        name: Without the prefix.
        **labels: Further labels to match.
    """
    further = "".join(f',{label}="{value}"' for label, value in labels.items())
    return f"clocktuner_{name}{{{SELECTOR}{further}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One query of a panel.

    Attributes:
        expression: PromQL, with Grafana's variables.
        legend: Name of its series; may use `{{label}}`.
        colour: Fixed colour; None to take the palette's.
        dashed: Whether the line is dashed.
        band_to: Legend of the series down to which the area is filled; None for a line.
        hidden_legend: Whether the legend leaves it out.
    """

    expression: str
    legend: str
    colour: str | None = None
    dashed: bool = False
    band_to: str | None = None
    hidden_legend: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Thresholds: the colour below the first value, then from each value on."""

    below: str = KEPT
    at: Sequence[tuple[float, str]] = ()

    def json(self) -> Json:
        """Return them as Grafana has them."""
        steps: list[Json] = [{"color": self.below, "value": None}]
        steps += [{"color": colour, "value": value} for value, colour in self.at]
        return {"mode": "absolute", "steps": steps}


def stat(
    title: str,
    description: str,
    target: Target,
    *,
    unit: str,
    steps: Steps,
    words: Mapping[int, tuple[str, str]] | None = None,
    decimals: int | None = None,
) -> Json:
    """Return a tile with one number, or the word that stands for it.

    Args:
        title: What it is.
        description: How to read it, and what to do.
        target: The query.
        unit: Of Grafana's list.
        steps: Colours by value.
        words: Word and colour of each value.
        decimals: Digits after the point; None for Grafana's choice.
    """
    mapping: list[Json] = []
    if words:
        options = {
            str(value): {"text": word, "color": colour, "index": index}
            for index, (value, (word, colour)) in enumerate(words.items())
        }
        mapping = [{"type": "value", "options": options}]
    defaults: Json = {"unit": unit, "thresholds": steps.json(), "mappings": mapping, "color": {"mode": "thresholds"}}
    if decimals is not None:
        defaults["decimals"] = decimals
    panel = _panel("stat", title, description, [target], defaults)
    panel["targets"][0]["instant"] = True
    panel["options"] = {
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "center",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",  # Names the clusters where there are several.
    }
    return panel


def timeseries(
    title: str,
    description: str,
    targets: Sequence[Target],
    *,
    unit: str,
    minimum: float | None = None,
    bars: bool = False,
    steps: bool = False,
    interval: str | None = None,
) -> Json:
    """Return a panel of lines, or of stacked bars.

    Args:
        title: What it is.
        description: How to read it.
        targets: The queries, drawn in this order.
        unit: Of Grafana's list.
        minimum: Lower end of the axis; None for Grafana's choice.
        bars: Whether to stack bars instead of drawing lines.
        steps: Whether values hold until the next, as settings do.
        interval: Least distance of points, for what changes once a cycle.
    """
    custom: Json = {
        "drawStyle": "bars" if bars else "line",
        "fillOpacity": 70 if bars else 0,
        "lineInterpolation": "stepAfter" if steps else "linear",
        "lineWidth": 0 if bars else 2,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if bars else "none", "group": "A"},
    }
    defaults: Json = {"unit": unit, "custom": custom, "color": {"mode": "palette-classic"}}
    if minimum is not None:
        defaults["min"] = minimum
    panel = _panel("timeseries", title, description, targets, defaults)
    overrides = (_override(letter, target) for letter, target in zip(ascii_uppercase, targets, strict=False))
    panel["fieldConfig"]["overrides"] = [override for override in overrides if override["properties"]]
    calcs = ["sum"] if bars else ["lastNotNull", "max"]
    panel["options"] = {
        "legend": {"calcs": calcs, "displayMode": "table", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "none"},
    }
    if interval is not None:
        panel["interval"] = interval
    return panel


def counts(title: str, description: str, targets: Sequence[Target], *, interval: str = CYCLES) -> Json:
    """Return a panel of stacked bars that count what happened; see `timeseries`."""
    return timeseries(title, description, targets, unit="short", minimum=0, bars=True, interval=interval)


def levels(title: str, description: str, targets: Sequence[Target]) -> Json:
    """Return a panel of small numbers that hold until the next, such as states; see `timeseries`."""
    return timeseries(title, description, targets, unit="short", minimum=0, steps=True)


def state(title: str, description: str, expression: str, words: Mapping[int, tuple[str, str]]) -> Json:
    """Return a tile that says a state in words, one a cluster; see `stat`."""
    target = Target(expression=expression, legend="{{cluster}}")
    return stat(title, description, target, unit="short", steps=Steps(below=QUIET), words=words)


def increase(name: str, *, by: str = "") -> str:
    """Return by how much a counter grew between two points, as a sum over all, or over those of a label's value."""
    return f"sum{f' by ({by}) ' if by else ''}(increase({series(name)}[$__rate_interval]))"


def rate(name: str, *, by: str = "") -> str:
    """Return how fast a counter grows a second; as `increase`."""
    return f"sum{f' by ({by}) ' if by else ''}(rate({series(name)}[$__rate_interval]))"


def quantiles(name: str, *named: tuple[float, str, str]) -> list[Target]:
    """Return the targets for quantiles of a histogram: each a level, a legend and a colour."""
    return [
        Target(
            expression=f"histogram_quantile({level}, {rate(f'{name}_bucket', by='le')})", legend=legend, colour=colour
        )
        for level, legend, colour in named
    ]


def runbooks(panel: Json, *alerts: str) -> Json:
    """Return a panel with links to the runbooks of alerts.

    Args:
        panel: As `stat` or `timeseries` returned it.
        *alerts: Names of alerts; each has a file of its name.
    """
    links = [
        {"title": f"Runbook: {alert}", "url": f"${{runbooks}}/{alert}.md", "targetBlank": True} for alert in alerts
    ]
    return {**panel, "links": links}


def _panel(kind: str, title: str, description: str, targets: Sequence[Target], defaults: Json) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": [
            {
                "refId": letter,
                "datasource": DATASOURCE,
                "expr": target.expression,
                "legendFormat": target.legend,
                "range": kind != "stat",
                "instant": False,
            }
            for letter, target in zip(ascii_uppercase, targets, strict=False)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }


def _override(letter: str, target: Target) -> Json:
    """Return what makes the series of a query look as they should, however many clusters answer."""
    properties: list[Json] = []
    if target.colour is not None:
        properties.append({"id": "color", "value": {"mode": "fixed", "fixedColor": target.colour}})
    if target.dashed:
        properties.append({"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}})
    if target.band_to is not None:
        properties.append({"id": "custom.fillBelowTo", "value": target.band_to})
        properties.append({"id": "custom.fillOpacity", "value": 18})
    if target.band_to is not None or target.hidden_legend:
        properties.append({"id": "custom.lineWidth", "value": 0})
    if target.hidden_legend:
        properties.append({"id": "custom.hideFrom", "value": {"legend": True, "tooltip": False, "viz": False}})
    return {"matcher": {"id": "byFrameRefID", "options": letter}, "properties": properties}


@dataclass(slots=True)
class Grid:
    """Places panels from left to right and top to bottom, and numbers them."""

    panels: list[Json] = field(default_factory=list)
    _x: int = 0
    _y: int = 0
    _height: int = 0

    def row(self, title: str) -> None:
        """Begin a section."""
        self._break()
        row = {"type": "row", "title": title, "collapsed": False, "panels": []}
        self._place(row, width=COLUMNS, height=1)
        self._break()

    def add(self, panel: Json, *, width: int, height: int) -> None:
        """Place a panel; where a line is full, the next begins."""
        if self._x + width > COLUMNS:
            self._break()
        self._place(panel, width=width, height=height)

    def _place(self, panel: Json, *, width: int, height: int) -> None:
        position = {"x": self._x, "y": self._y, "w": width, "h": height}
        self.panels.append({"id": len(self.panels) + 1, **panel, "gridPos": position})
        self._x += width
        self._height = max(self._height, height)

    def _break(self) -> None:
        self._x, self._y, self._height = 0, self._y + self._height, 0


def variable(name: str, label: str, query: str) -> Json:
    """Return a variable that lists the values of a label, read anew when the time range changes."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def textbox(name: str, label: str, text: str) -> Json:
    """Return a variable that holds what a site types in, such as an address."""
    option = {"selected": True, "text": text, "value": text}
    return {"type": "textbox", "name": name, "label": label, "query": text, "current": option, "options": [option]}


def annotation(name: str, expression: str, *, colour: str, text: str) -> Json:
    """Return an annotation whose times are the values of a series, in milliseconds."""
    return {
        "name": name,
        "enable": True,
        "hide": False,
        "datasource": DATASOURCE,
        "expr": expression,
        "iconColor": colour,
        "step": "60s",
        "titleFormat": name,
        "textFormat": text,
        "tagKeys": "cluster,policy",
        "useValueForTime": True,
    }


def dashboard(
    *,
    uid: str,
    title: str,
    description: str,
    panels: Sequence[Json],
    annotations: Sequence[Json],
    variables: Sequence[Json],
) -> Json:
    """Return a whole dashboard, in UTC and not to be edited by hand."""
    source = {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
    }
    link = {
        "type": "dashboards",
        "title": "clocktuner",
        "tags": ["clocktuner"],
        "asDropdown": True,
        "keepTime": True,
        "includeVars": True,
        "targetBlank": False,
    }
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["clocktuner"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "timezone": "utc",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "graphTooltip": 1,
        "links": [link],
        "templating": {"list": [source, *variables]},
        "annotations": {"list": list(annotations)},
        "panels": list(panels),
    }


def targets_of(board: Json) -> Iterator[tuple[str, str]]:
    """Yield every query of a dashboard: where it stands, and its expression."""
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for entry in board["annotations"]["list"]:
        yield f"annotation {entry['name']}", entry["expr"]
