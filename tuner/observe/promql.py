"""PromQL as text: several expressions fused into one, and the age of what an expression reads."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

VALUE_LABEL: Final = "clocktuner_series"
"""Label that names the expression which a series of a fused answer belongs to."""

NEWEST_LABEL: Final = "clocktuner_newest"
"""The same, for series whose value is the time of the newest sample that the expression reads."""

OR: Final = " or "
"""What joins rows: it keeps all series of both sides, for no two rows have the same labels."""

LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    |(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
    |(?P<number>\d[\w.]*)
    |(?P<name>[a-zA-Z_:][\w:]*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_GROUPINGS: Final = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS: Final = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan", "atan2"})


def fuse_row(name: str, expression: str, *, age: bool = False) -> str:
    """Return an expression whose series carry a name under `VALUE_LABEL`, to be joined to others with `OR`.

    Args:
        name: The name; no quotes or backslashes.
        expression: An expression that gives a vector.
        age: Whether to ask for the time of the newest sample that it reads as well, under `NEWEST_LABEL`.
    """
    row = _labelled(expression, label=VALUE_LABEL, name=name)
    newest = newest_at(expression) if age else None
    return row if newest is None else row + OR + _labelled(newest, label=NEWEST_LABEL, name=name)


def newest_at(expression: str) -> str | None:
    """Return an expression for the time of the newest sample that another one reads; None where it reads none.

    Where it reads several metrics, the one that stopped first counts: the expression is as old as its oldest input.
    `timestamp()` of the expression itself would not do, for it is the evaluation time of all but plain selectors, and
    a `rate()` goes on for its whole window after the last sample.
    """
    parts = [
        _labelled(f"max(timestamp({selector}))", label="input", name=str(index))
        for index, selector in enumerate(selectors(expression))
    ]
    return f"min({OR.join(parts)})" if parts else None


def selectors(expression: str) -> tuple[str, ...]:
    """Return the vector selectors of an expression, without ranges and offsets, each once.

    It splits text rather than parses it: for a dialect beyond PromQL it may return what is not a selector, so that the
    expression which is built from it is refused.
    """
    tokens = [match for match in _TOKEN.finditer(expression) if match.lastgroup != "space"]
    return tuple(dict.fromkeys(expression[start:end] for start, end in _spans(tokens)))


def _spans(tokens: Sequence[re.Match[str]]) -> Iterator[tuple[int, int]]:
    """Yield where each selector begins and ends."""
    index = 0
    while index < len(tokens):
        token = tokens[index]
        following = tokens[index + 1].group() if index + 1 < len(tokens) else ""
        if token.group() == "[":
            index = _closing(tokens, index, "]")
        elif token.group() == "{":
            index = _closing(tokens, index, "}")
            yield token.start(), tokens[index].end()
        elif token.lastgroup == "name" and token.group().lower() in _GROUPINGS:
            index = _closing(tokens, index, ")") if following == "(" else index
        elif token.lastgroup == "name" and following == "{":
            index = _closing(tokens, index, "}")
            yield token.start(), tokens[index].end()
        elif token.lastgroup == "name" and token.group().lower() not in _WORDS and not _operates(following):
            yield token.start(), token.end()
        index += 1


def _operates(following: str) -> bool:
    """Say whether the name before is a function or an aggregation, by what follows it."""
    return following == "(" or following.lower() in {"by", "without"}


def _closing(tokens: Sequence[re.Match[str]], index: int, sign: str) -> int:
    """Return the index of the next closing sign; the last token where there is none."""
    return next((at for at in range(index, len(tokens)) if tokens[at].group() == sign), len(tokens) - 1)


def _labelled(expression: str, *, label: str, name: str) -> str:
    # The line break ends a comment that the expression may end with.
    return f'label_replace(({expression}\n), "{label}", "{name}", "", "")'
