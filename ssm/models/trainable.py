"""The models that can be trained, and saved in a file of weights."""

from ssm.models.backbone import LanguageModel
from ssm.models.foreign import ForeignModel

TrainableModel = LanguageModel | ForeignModel
