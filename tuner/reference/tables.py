"""Tables of a trace: columns of a CSV or parquet file, checked value by value.

Whatever is wrong becomes a `TraceError` that names file, line, field and value, and says what would be right. Files
that end in `.gz` are unpacked while they are read; `.parquet` files number their rows from 1 instead of lines.
"""

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

import numpy as np
from numpy.typing import NDArray

from tuner.errors import TraceError

REMEDY: Final = "correct the row or leave it out"
"""What can be done about one bad row."""

BLANKS: Final = frozenset({"", "nan", "None"})
"""How a missing value looks: empty in CSV, not a number or null in parquet."""


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a text file, packed with gzip or not.

    Raises:
        TraceError: The file is missing, not readable, not gzip although its name says so, or not UTF-8; also where
            that only shows while it is read.
    """
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8", newline="") as file
        ):
            yield file
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{path}: is not UTF-8 text at byte {error.start}; check the format and the packing"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be read ({error}); check the path and that the file is whole") from error


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of one file.

    Attributes:
        path: Where it was read from; used in messages.
        columns: Raw values by name: text from CSV, numbers from parquet; all of one length.
        lines: Line or row number of each row, for messages.
        unit: What `lines` count: `line` or `row`.
    """

    path: Path
    columns: Mapping[str, Sequence[object] | NDArray[np.generic]]
    lines: Sequence[int]
    unit: str = "line"

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lines)

    def __contains__(self, field: object) -> bool:
        """Say whether there is a column of that name."""
        return field in self.columns

    def error(self, row: int, field: str, wanted: str) -> TraceError:
        """Return the error for one value: file, line, field, value, and what would be right."""
        return TraceError(
            f"{self.path}: {self.unit} {self.lines[row]}: {field} is {self.columns[field][row]!r}, must be {wanted}; "
            f"{REMEDY}"
        )

    def require(self, *fields: str) -> None:
        """Check that columns exist.

        Raises:
            TraceError: A column is missing, or there is no row at all.
        """
        missing = [field for field in fields if field not in self.columns]
        if missing:
            found = ", ".join(self.columns) or "none"
            raise TraceError(
                f"{self.path}: column {', '.join(missing)} is missing (found: {found}); "
                "name the columns in the first line, or give the right format"
            )
        if not len(self):
            raise TraceError(f"{self.path}: holds no row; give a trace with at least one")

    def numbers(
        self,
        field: str,
        *,
        low: float,
        high: float = math.inf,
        whole: bool = False,
        above: bool = False,
        empty: float | None = None,
    ) -> NDArray[np.float64]:
        """Return a column as finite numbers, shape (rows,).

        Args:
            field: Name of the column, which must exist.
            low: Smallest value allowed.
            high: Largest value allowed.
            whole: Whether fractions are refused.
            above: Whether `low` itself is refused.
            empty: What an empty field stands for; None refuses empty fields.

        Raises:
            TraceError: A value is no such number.
        """
        raw = self.columns[field]
        values = _as_floats(raw)
        with np.errstate(invalid="ignore"):
            good = np.isfinite(values) & (values >= low) & (values <= high)
            if above:
                good &= values > low
            if whole:
                good &= values == np.round(values)
        if empty is not None:
            blank = np.isnan(values) & np.array([str(value) in BLANKS for value in raw], dtype=bool)
            values, good = np.where(blank, empty, values), good | blank
        if not good.all():
            raise self.error(int(np.argmin(good)), field, _wanted(low, high, whole=whole, above=above))
        return values

    def words(self, field: str, meaning: Mapping[str, int]) -> NDArray[np.int64]:
        """Return a column of words as the numbers that they stand for.

        Raises:
            TraceError: A word is none of them.
        """
        raw = self.columns[field]
        try:
            return np.array([meaning[str(word)] for word in raw], dtype=np.int64)
        except KeyError:
            row = next(index for index, word in enumerate(raw) if str(word) not in meaning)
            raise self.error(row, field, f"one of {', '.join(repr(word) for word in meaning)}") from None

    def texts(self, field: str) -> NDArray[np.str_]:
        """Return a column as text, shape (rows,)."""
        return np.array([str(value) for value in self.columns[field]], dtype=np.str_)

    def timestamps(self, field: str) -> NDArray[np.float64]:
        """Return a column of ISO timestamps as Unix seconds, taken as UTC where they name no zone.

        Raises:
            TraceError: A value is no timestamp.
        """
        return self.parse(field, _unix_seconds, "a timestamp such as 2023-11-16 18:15:46.680")

    def parse(self, field: str, convert: Callable[[str], float], wanted: str) -> NDArray[np.float64]:
        """Return a column converted value by value.

        Raises:
            TraceError: `convert` raises ValueError for a value; the message says that it must be `wanted`.
        """
        values = np.empty(len(self))
        for row, value in enumerate(self.columns[field]):
            try:
                values[row] = convert(str(value))
            except ValueError:
                raise self.error(row, field, wanted) from None
        return values

    def where(self, keep: NDArray[np.bool_]) -> "Table":
        """Return the rows that a mask keeps, with their line numbers."""
        chosen = np.flatnonzero(keep).tolist()
        columns = {
            name: column[keep] if isinstance(column, np.ndarray) else [column[row] for row in chosen]
            for name, column in self.columns.items()
        }
        return Table(self.path, columns, [self.lines[row] for row in chosen], self.unit)


def read_table(path: Path) -> Table:
    """Read a `.csv`, `.csv.gz` or `.parquet` file with named columns.

    Raises:
        TraceError: The file cannot be read, or a row has another number of fields than the first line.
    """
    return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)


def read_names(path: Path) -> tuple[str, ...]:
    """Return the names of the columns without reading the rows.

    Raises:
        TraceError: The file cannot be read.
    """
    if path.suffix == ".parquet":
        return tuple(_read_parquet(path).columns)
    with open_text(path) as file:
        return tuple(name.strip() for name in file.readline().split(","))


def _read_csv(path: Path) -> Table:
    with open_text(path) as file:
        reader = csv.reader(file, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            rows, lines = _read_rows(path, reader, len(header))
        except csv.Error as error:
            raise TraceError(f"{path}: line {reader.line_num}: is not CSV ({error}); {REMEDY}") from None
    if len(set(header)) != len(header):
        raise TraceError(f"{path}: a column name stands twice in the first line; rename one")
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    return Table(path, dict(zip(header, columns, strict=True)), lines)


def _read_rows(path: Path, reader: "csv._reader", width: int) -> tuple[list[list[str]], list[int]]:  # type: ignore[name-defined]
    rows, lines = [], []
    for row in reader:
        if not row:
            continue
        if len(row) != width:
            raise TraceError(f"{path}: line {reader.line_num}: has {len(row)} fields, must have {width}; {REMEDY}")
        rows.append(row)
        lines.append(reader.line_num)
    return rows, lines


def _read_parquet(path: Path) -> Table:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise TraceError(f"{path}: cannot be read as parquet ({error}); check the path and the format") from error
    columns = {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    return Table(path, columns, range(1, table.num_rows + 1), "row")


def _as_floats(raw: Sequence[object] | NDArray[np.generic]) -> NDArray[np.float64]:
    """Return values as floats, NaN where one is no number."""
    try:
        return np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array([_as_float(value) for value in raw])


def _as_float(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def _wanted(low: float, high: float, *, whole: bool, above: bool) -> str:
    kind = "a whole number" if whole else "a number"
    if high < math.inf:
        return f"{kind} {'over' if above else 'from'} {low:g} to {high:g}"
    return f"{kind} {'over' if above else 'of at least'} {low:g}"


def _unix_seconds(text: str) -> float:
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
