"""The other learners of the paper's table, and a control, under the learner's verbs.

``BASELINES`` holds the paper's methods in its order, ``CONTROLS`` what the claims are compared
with. Each class has a `title`, a `reference` and whether it was *reconstructed*.
"""

from dtgol_core.baselines.base import Baseline
from dtgol_core.baselines.controls import Replay
from dtgol_core.baselines.fobos import Fobos
from dtgol_core.baselines.iwms import Iwms
from dtgol_core.baselines.lach import Lach
from dtgol_core.baselines.naive import Naive
from dtgol_core.baselines.olmdisf import OlMdisf
from dtgol_core.baselines.oslmf import Oslmf
from dtgol_core.baselines.ovfm import Ovfm

__all__ = ["BASELINES", "CONTROLS", "Baseline"]

BASELINES: dict[str, type[Baseline]] = {
    "naive": Naive,
    "fobos": Fobos,
    "ovfm": Ovfm,
    "oslmf": Oslmf,
    "iwms": Iwms,
    "ol-mdisf": OlMdisf,
    "lach": Lach,
}
CONTROLS: dict[str, type[Baseline]] = {"replay": Replay}
