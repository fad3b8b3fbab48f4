"""OSLMF: online semi-supervised learning with mixed, incomplete features.

OVFM's two learners, and pseudo-labels from density peaks: every record teaches them twice, once
with the label that travelled to it along the graph, and again when the true one comes.
*Reconstructed* from the public code.
"""

import numpy as np

from dtgol_core.baselines.base import Answer
from dtgol_core.baselines.hardlabels import hard_labels
from dtgol_core.baselines.ovfm import Ovfm
from dtgol_core.config import Config
from dtgol_core.geometry import Geometry
from dtgol_core.types import Instance, Vectors


class Oslmf(Ovfm):
    """OVFM with hard pseudo-labels.

    Notes
    -----
    Written for labels that never come; here they come late, so a pseudo-label is made on arrival,
    once, after the record has been answered. Differs from the public code, besides what `Ovfm`
    lists: the graph is the learner's (the public one skips a neighbour and is rebuilt per batch),
    and a logistic classifier that starts from the latent learner travels in place of a linear SVM.
    No pseudo-label is made before both classes have been verified: an SVM could not be fitted
    either. Cost: O(n·d) per frontier over n nodes.

    References
    ----------
    Wu, Zhuo, Wang, Chen and He (2023), Online semi-supervised learning with mix-typed streaming
    features, AAAI; github.com/wudi1989/OSLMF.
    """

    title = "OSLMF"
    reference = "Wu et al., AAAI 2023; public code"

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.geometry = Geometry(config.graph)

    def _widen(self, columns: int) -> None:
        super()._widen(columns)
        self.geometry.grow(columns)

    def _teach(self, instance: Instance, label: int) -> None:
        super()._teach(instance, label)
        self.geometry.verify(instance.step, instance.vectors, label)

    def _answer(self, vectors: Vectors) -> Answer:
        answer = super()._answer(vectors)
        slot = self.geometry.enter(self.step, vectors)
        if self._both_classes():
            labels = hard_labels(self.geometry, self.latent.weights)
            self._train(vectors, int(labels[slot]))
        self.geometry.join(slot)
        return answer

    def _forget(self, step: int) -> None:
        self.geometry.forget(step)

    def _both_classes(self) -> bool:
        buffer = self.geometry.buffer
        return len({int(buffer.label[slot]) for slot in buffer.verified}) == 2
