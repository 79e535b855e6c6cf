"""Models of transformers that ssm does not convert. It uses their own forward pass to read, train and write them."""

from ssm.models.foreign.load import build_foreign, load_foreign
from ssm.models.foreign.model import ForeignModel, ReadingMode
from ssm.models.foreign.write import check_unchanged, export_foreign, round_a_logs, write_weights

__all__ = [
    "ForeignModel",
    "ReadingMode",
    "build_foreign",
    "check_unchanged",
    "export_foreign",
    "load_foreign",
    "round_a_logs",
    "write_weights",
]
