"""Answers are read to their end, unless they have none."""

import itertools
import math

import pytest

from pulsetrain.answers import EndlessAnswer, read_bounded


def test_an_answer_is_read_whole() -> None:
    assert read_bounded([b"ab", b"", b"cd"], 4, math.inf) == b"abcd"


def test_one_that_is_too_large_is_given_up() -> None:
    with pytest.raises(EndlessAnswer):
        read_bounded(itertools.repeat(b"ab"), 1000, math.inf)


def test_one_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(EndlessAnswer):
        read_bounded(itertools.repeat(b""), 1000, -math.inf)
