"""What can be trained, and is kept in a file of weights."""

from ssm.models.backbone import LanguageModel
from ssm.models.foreign import ForeignModel

TrainableModel = LanguageModel | ForeignModel
