"""Figures are whole SVG."""

from pipeline.offline.compare.figures import critical_difference, curves
from pipeline.offline.compare.stats import rank


def test_figures_are_whole_svg() -> None:
    drawn = curves("a & b", [("DT-GOL", [(1.0, 0.5), (2.0, 0.9)])], shaded=(1.0, 1.5))
    ranking = rank({"a": [0.1, 0.2], "b": [0.2, 0.3], "c": [0.3, 0.1]}, smaller_is_better=True)
    for figure in (drawn, critical_difference("CER", ranking, {"a": "A"})):
        assert figure.startswith("<svg")
        assert figure.endswith("</svg>\n")
    assert "a &amp; b" in drawn
