"""The learner with River's two verbs, for code that was written for River's classifiers."""

from dtgol_core.learner import Learner
from dtgol_core.types import FeatureValues, RejectedError, Rejection


class RiverClassifier:
    """A `Learner` as River's pipelines call one.

    `predict_proba_one` answers without changing anything; `learn_one` observes the record and gives
    its label at once. So a label is never late here: with late labels use `Learner` itself, whose
    `observe` gives a record its id. Not a subclass of River's base class: River is not needed. What
    asks for one, such as River's progressive validation, takes
    ``class Model(RiverClassifier, river.base.Classifier): pass``.

    Parameters
    ----------
    learner
        What learns; one with the default settings if not given.

    Notes
    -----
    Cost: both verbs run a step of the learner, so twice its cost per record.

    >>> model = RiverClassifier()
    >>> model.predict_proba_one({"temperature": 38.9})
    {False: 0.5, True: 0.5}
    >>> for temperature in (36.5, 39.1, 36.7, 38.8):
    ...     model.learn_one({"temperature": temperature}, temperature > 38)
    >>> model.predict_one({"temperature": 39.0})
    True
    """

    def __init__(self, learner: Learner | None = None) -> None:
        self.learner = learner or Learner()

    def predict_proba_one(self, x: FeatureValues) -> dict[bool, float]:
        """The probabilities of both labels; raises `RejectedError` for a record that is refused."""
        forecast = self.learner.peek(x)
        if isinstance(forecast, Rejection):
            raise RejectedError(forecast)
        return {False: 1.0 - forecast.p, True: forecast.p}

    def predict_one(self, x: FeatureValues) -> bool:
        """The more probable label."""
        return self.predict_proba_one(x)[True] > 0.5

    def learn_one(self, x: FeatureValues, y: bool) -> None:
        """Learn one labelled record; raises `RejectedError` for one that is refused."""
        id = str(self.learner.step)
        forecast = self.learner.observe(id, x)
        if isinstance(forecast, Rejection):
            raise RejectedError(forecast)
        self.learner.learn(id, int(y))
