"""The blocks that sections of the report are built of."""

from tuner.record.html import Markup, tag


def section(anchor: str, step: str, title: str, *content: Markup | None) -> Markup:
    """Return a section of the page under its step and title; None is skipped."""
    header = tag("header", tag("div", step, class_="step"), tag("h2", title))
    return tag("section", header, *content, id=anchor)


def figure(title: str, detail: str, drawing: str) -> Markup:
    """Return a drawing under its title and a line of detail."""
    return tag("figure", tag("figcaption", tag("b", title), tag("small", detail)), Markup(drawing))


def legend(*entries: tuple[str, str, str]) -> Markup:
    """Return a legend of (class, sign, text)."""
    return tag(
        "ul", *(tag("li", tag("i", sign, class_=colour), text) for colour, sign, text in entries), class_="legend"
    )
