"""Numbers with their nouns and units, durations, and the first names of long lists."""

from __future__ import annotations

from collections.abc import Sequence

METRIC = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def counted(number: int, noun: str) -> str:
    """A number with its noun, which has an s in the plural.

    >>> counted(1, "row"), counted(2000, "step")
    ('1 row', '2,000 steps')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def first_of(names: Sequence[str], most: int, between: str = ", ") -> str:
    """The first names of a list, and the number of the others.

    >>> first_of(["a", "b", "c"], 3), first_of(["a", "b", "c", "d"], 2)
    ('a, b, c', 'a, b and 2 more')
    """
    return between.join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def short(value: float, between: str = "") -> str:
    """Three significant digits, with k, M, G or T from a thousand on; `between` comes before the letter.

    >>> [short(value) for value in (0.5, 12, 38214, 40e6, 999_600)]
    ['0.5', '12', '38.2k', '40M', '1M']
    """
    return _in_units(value, METRIC, 3, between)


def short_parameters(count: int) -> str:
    """A number of parameters with three significant digits, in the letters of the field: B for a billion.

    >>> short_parameters(1_343_700_000), short_parameters(1_720_112)
    ('1.34B', '1.72M')
    """
    return short(count).replace("G", "B")


def size(count: float, digits: int = 2) -> str:
    """A number of bytes with significant digits and its unit.

    >>> size(734), size(1_115_394), size(81_999), size(3.25e9), size(3.25e9, 3)
    ('730 bytes', '1.1 MB', '82 kB', '3.2 GB', '3.25 GB')
    """
    return _in_units(count, BYTES, digits, " ")


def _in_units(value: float, units: Sequence[tuple[float, str]], digits: int, between: str) -> str:
    """The rounded value in the largest unit that it reaches, or in the smallest unit."""
    rounded = abs(float(f"{value:.{digits}g}"))
    factor, unit = next((found for found in units if rounded >= found[0]), units[-1])
    return f"{float(f'{value / factor:.{digits}g}'):,g}{between if unit else ''}{unit}"


def duration(seconds: float) -> str:
    """A measured duration in its two largest units, of seconds, minutes and hours.

    >>> duration(4.26), duration(100), duration(3725), duration(200000)
    ('4.3 s', '1 min 40 s', '1 h 2 min', '55 h 33 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


def estimated_duration(seconds: float) -> str:
    """An estimated duration in whole units: from two minutes on without seconds, which an estimate does not know.

    >>> [estimated_duration(value) for value in (0.2, 90, 425, 18360, 273600)]
    ['1 s', '90 s', '7 min', '5 h 6 min', '3 d 4 h']
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    days, hours = divmod(minutes // 60, 24)
    if days:
        return f"{days:,} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def clock(seconds: float) -> str:
    """A remaining time, short enough for a line of progress: hours if there are any, minutes and seconds.

    >>> clock(123), clock(3723)
    ('2:03', '1:02:03')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
