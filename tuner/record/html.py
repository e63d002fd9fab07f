"""HTML that is safe by construction: every text is escaped unless it was made here."""

import re
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The page loads nothing and runs nothing, and browsers are told so."""

_UNIT: Final = re.compile(r"(\d) (ms|s|min|h|%|/s|W|°C)(?!\w)")
"""A number and its unit, which belong on one line."""

_VOID: Final = frozenset({"br", "col", "hr", "meta"})


class Markup(str):
    """HTML that need not be escaped."""

    __slots__ = ()


def tag(name: str, *children: str | None, **attributes: str | int | None) -> Markup:
    """Return an element.

    Args:
        name: Of the element.
        *children: Texts, which are escaped, or `Markup`; None is skipped.
        **attributes: Values are escaped, None is skipped; a trailing underscore is dropped (`class_`), others are
            dashes (`aria_label`).
    """
    opened = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{opened}>")
    return Markup(f"<{name}{opened}>{join(children)}</{name}>")


def join(parts: Iterable[str | None]) -> Markup:
    """Return parts one after the other; texts are escaped, `Markup` is not, None is skipped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts if part is not None))


def words(text: str) -> Markup:
    """Return a cell of running text, which may break and begins at the left; other cells hold figures."""
    return tag("span", _UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text), class_="words")


def table(head: Iterable[str], rows: Iterable[Iterable[str]], *, caption: str) -> Markup:
    """Return a table that scrolls by itself where the screen is narrow; the first cell of a row is its heading."""
    header = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = [
        tag("tr", *(tag("td", cell) if index else tag("th", cell, scope="row") for index, cell in enumerate(row)))
        for row in rows
    ]
    element = tag("table", tag("caption", caption), tag("thead", header), tag("tbody", *body))
    return tag("div", element, class_="scroll", tabindex=0, role="region", aria_label=caption)


def page(*content: Markup, title: str) -> str:
    """Return a whole page that needs nothing but itself."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(style())),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', *content), lang='en')}\n"


@cache
def style() -> str:
    """Return the style sheet."""
    return files("tuner.record").joinpath("report.css").read_text(encoding="utf-8")
