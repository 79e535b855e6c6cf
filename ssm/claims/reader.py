"""What quantities and plots share: which measurements they read, and by which names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from ssm.claims.families import Member
from ssm.specs.base import Name, Setting, Spec


class Reader(Spec):
    """Reads tables of the kinds that it says."""

    reads: ClassVar[tuple[str, ...]]  # kinds of measurements, the one that it is about first
    of_figure: ClassVar[bool] = False  # whether it may name one of the figure's own, which belong to no arm
    kind: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the measurements of a series that it reads."""
        return ()

    def named(self) -> dict[str, tuple[str, str | None]]:
        """Field -> the measurement that it names, which a figure must have, and its kind; None: any."""
        return {}

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        """Whether the figure's grids have what it names of them.

        Args:
            arms: the names of all arms.
            families: the members of each family, by name; none, where it does not exist at this scale.

        Raises:
            ValueError: an unknown family or axis, with the nearest valid name.
        """


class SeriesReader(Reader):
    """Reads measurements of a figure's series, by their names.

    `measurement` is the name of the one of the first kind; of another kind, the field that is called like the kind.
    Without, it is the measurement that is called like its kind.
    """

    measurement: Name | None = None  # the name of the measurement that is read; none: the one called like its kind

    def name_of(self, kind: str) -> str:
        """The name of the measurement of this kind that is read."""
        return getattr(self, "measurement" if kind == self.reads[0] else kind, None) or kind

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(self.name_of, self.reads))

    def named(self) -> dict[str, tuple[str, str | None]]:
        given = {field: getattr(self, field) for field in self.naming()}
        kinds = dict(zip(self.naming(), self.reads, strict=False))
        return {field: (name, kinds.get(field)) for field, name in given.items() if name is not None}

    @classmethod
    def naming(cls) -> tuple[str, ...]:
        """The fields that hold names of measurements."""
        return ("measurement", *cls.reads[1:])

    @classmethod
    def later_fields(cls) -> frozenset[str]:
        """These, and the names of measurements that may be left out."""
        optional = {name for name in cls.naming() if cls.model_fields[name].default is None}
        return super().later_fields() | optional


class ColumnReader(SeriesReader):
    """Reads one column of the table of any measurement, which is found by its name."""

    reads: ClassVar[tuple[str, ...]] = ()  # any
    measurement: Name  # the name of the measurement that is read
    column: Name  # of its table
    where: dict[Name, Setting] = {}  # rows of these settings alone, such as {depth: 0.5}

    @property
    def names(self) -> tuple[str, ...]:
        return (self.measurement,)
