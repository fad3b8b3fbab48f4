"""A sliced dict is a dict, and its copies stay what they were."""

from __future__ import annotations

import random

from pipeline.evaluation.sliced import SLICES, SlicedDict


def test_it_holds_what_a_dict_holds_and_copies_do_not_change() -> None:
    chance = random.Random(5)
    sliced: SlicedDict[int] = SlicedDict()
    plain: dict[int, int] = {}
    copies: list[tuple[SlicedDict[int], dict[int, int]]] = []
    for step in range(20_000):
        number = chance.randrange(-2_000, 2_000)
        if number in plain and chance.random() < 0.4:
            assert sliced.pop(number) == plain.pop(number)
        else:
            sliced[number] = plain[number] = step
        if step % 2_500 == 0:
            copies.append((sliced.copy(), dict(plain)))
    copies.append((sliced, plain))
    for kept, as_it_was in copies:
        assert {each: kept[each] for each in kept} == as_it_was
        assert len(kept) == len(as_it_was)
        assert list(kept.in_order()) == sorted(as_it_was)
        assert all((each in kept) == (each in as_it_was) for each in range(-2_000, 2_000))
        assert kept.get(5_000) is None


def test_a_copy_copies_nothing_until_a_slice_is_changed() -> None:
    sliced: SlicedDict[str] = SlicedDict()
    for number in range(10 * SLICES):
        sliced[number] = "a"
    copy = sliced.copy()
    sliced[3] = "b"
    shared = [a is b for a, b in zip(sliced._slices, copy._slices, strict=True)]
    assert shared.count(False) == 1
    copy[4] = "c"
    assert (sliced[3], copy[3], sliced[4], copy[4]) == ("b", "a", "a", "c")


def test_what_has_nothing_in_it_is_in_order() -> None:
    assert list(SlicedDict[int]().in_order()) == []
