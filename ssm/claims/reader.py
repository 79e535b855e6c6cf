"""The base of quantities and plots: which measurements they read, and by which names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ssm.base.discovery import RegistryError, file_of
from ssm.base.errors import nearest
from ssm.claims.families import Member
from ssm.specs.base import Name, Setting, Spec
from ssm.specs.measurements import SPECS


class Reader(Spec):
    """A spec that reads tables of measurements."""

    reads: ClassVar[tuple[str, ...]]  # kinds of the measurements, the main one first; empty: any kind
    of_figure: ClassVar[bool] = False  # whether it may read a measurement of the figure, which belongs to no arm
    kind: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Raises `RegistryError`: `reads` is no tuple of kinds of measurements."""
        reads = getattr(cls, "reads", ())
        if not isinstance(reads, tuple):
            right = 'a tuple such as ("position_loss",)'
            raise RegistryError(f"{file_of(cls.__module__)}: {cls.__name__}: reads: expected {right}")
        for kind in reads:
            if kind not in SPECS:
                hint = nearest(kind, SPECS)
                raise RegistryError(f"{file_of(cls.__module__)}: {cls.__name__}: reads: unknown kind '{kind}'; {hint}")
        super().__pydantic_init_subclass__(**kwargs)

    @property
    def measurement_names(self) -> tuple[str, ...]:
        """The names of the measurements that it reads of a series."""
        return ()

    @property
    def own_measurement_names(self) -> tuple[str, ...]:
        """Those that the measured arm itself must have. Another arm can have the others."""
        return self.measurement_names

    def nested_readers(self) -> dict[str, Reader]:
        """Field -> the reader that is written there, such as a quantity `of` which a plot is made."""
        return {}

    def named_measurements(self) -> dict[str, tuple[str, str | None]]:
        """Field -> (name, kind) of the measurement that the field names; kind None: any kind."""
        return {
            f"{key}.{field}": named
            for key, reader in self.nested_readers().items()
            for field, named in reader.named_measurements().items()
        }

    def named_columns(self) -> dict[str, tuple[str, str]]:
        """Field -> (name of the measurement, column of its table that the field names)."""
        return {
            f"{key}.{field}": named
            for key, reader in self.nested_readers().items()
            for field, named in reader.named_columns().items()
        }

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        """Check the names of arms, families and axes against the figure's grids.

        Args:
            families: the members of each family, by name; an empty family does not exist at this scale.
            arms: the names of all arms.

        Raises:
            ValueError: a name is unknown. The message has the nearest valid name.
        """


class SeriesReader(Reader):
    """Reads measurements of the figure's series, by their names.

    The field `measurement` names the measurement of the first kind in `reads`. A field with the name of another kind
    names the measurement of that kind. By default, a measurement has the name of its kind.
    """

    measurement: Name | None = None  # name of the measurement that is read; none: the name of its kind

    def measurement_name(self, kind: str) -> str:
        """The name of the measurement of this kind."""
        return getattr(self, "measurement" if kind == self.reads[0] else kind, None) or kind

    @property
    def measurement_names(self) -> tuple[str, ...]:
        return tuple(map(self.measurement_name, self.reads))

    def named_measurements(self) -> dict[str, tuple[str, str | None]]:
        given = {field: getattr(self, field) for field in self.measurement_fields()}
        kinds = dict(zip(self.measurement_fields(), self.reads, strict=False))
        return {field: (name, kinds.get(field)) for field, name in given.items() if name is not None}

    @classmethod
    def measurement_fields(cls) -> tuple[str, ...]:
        """The fields that name measurements."""
        return ("measurement", *cls.reads[1:])

    @classmethod
    def later_fields(cls) -> frozenset[str]:
        """Fields excluded from the hash while they have their default: also the optional names of measurements."""
        optional = {name for name in cls.measurement_fields() if cls.model_fields[name].default is None}
        return super().later_fields() | optional


class ColumnReader(SeriesReader):
    """Reads one column of the table of any measurement."""

    reads: ClassVar[tuple[str, ...]] = ()  # any measurement
    measurement: Name  # name of the measurement that is read
    column: Name  # column of its table
    where: dict[Name, Setting] = {}  # read only rows with these values, such as {depth: 0.5}

    @property
    def measurement_names(self) -> tuple[str, ...]:
        return (self.measurement,)

    def named_columns(self) -> dict[str, tuple[str, str]]:
        rows = {f"where.{column}": (self.measurement, column) for column in self.where}
        return {"column": (self.measurement, self.column)} | rows
