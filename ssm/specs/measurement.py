"""One measurement with the weights that it is made on. It makes one table."""

from __future__ import annotations

from pydantic import model_validator

from ssm.specs.base import Spec, slug
from ssm.specs.data import Data
from ssm.specs.measurements import MeasurementSpec
from ssm.specs.measurements.base import OfFigure, OfRun, OfTask
from ssm.specs.training import RunSpec


class MeasurementTask(Spec):
    """A measurement of the final weights of a run, of a snapshot, or of models or data that a figure names."""

    measurement: MeasurementSpec
    run: RunSpec | None = None
    snapshot: float | None = None  # a fraction of the run's steps; None: the final weights

    @model_validator(mode="after")
    def _weights_exist(self) -> MeasurementTask:
        if (self.run is None) != isinstance(self.measurement, OfFigure):
            raise ValueError(f"'{self.measurement.kind}' {'needs a run' if self.run is None else 'takes no run'}")
        if self.snapshot is not None and (self.run is None or self.snapshot not in self.run.training.snapshots):
            raise ValueError(f"the run keeps no snapshot at {self.snapshot}")
        return self

    @property
    def data(self) -> Data | None:
        """The text or task whose token store is read. None: no token store is read."""
        if isinstance(self.measurement, OfTask):
            return self.measurement.task
        if self.run is None or not isinstance(self.measurement, OfRun):
            return None
        return self.measurement.data(self.run)

    @property
    def id(self) -> str:
        """Readable words and the hash of the content: the name of the table."""
        run = self.run.id.rsplit("-", 1)[0] if self.run else ""
        at = f"at{self.snapshot:g}" if self.snapshot is not None else ""
        return slug(self.measurement.kind, run, at) + f"-{self.content_hash}"
