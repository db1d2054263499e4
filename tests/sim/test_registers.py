"""What the lock protects in the simulator: fenced and unfenced updates."""

from __future__ import annotations

from tidelock.testing.sim.registers import Bases, Registers, Touch


def test_an_update_on_top_of_what_was_read_is_not_lost() -> None:
    registers = Registers()
    bases = registers.touch(Touch(1))
    assert registers.touch(Touch(1, bases)) == Bases(1, 1)
    assert (registers.acknowledged, registers.fenced_lost, registers.unfenced_lost) == (1, 0, 0)


def test_a_smaller_token_is_refused_and_only_the_unfenced_register_suffers() -> None:
    registers = Registers()
    old = registers.touch(Touch(1))
    new = registers.touch(Touch(2))
    assert registers.touch(Touch(1, old)).fenced is None
    registers.touch(Touch(2, new))
    assert (registers.acknowledged, registers.fenced_lost, registers.unfenced_lost) == (1, 0, 1)


def test_a_reader_with_a_smaller_token_is_refused() -> None:
    registers = Registers()
    registers.touch(Touch(2))
    assert registers.touch(Touch(1)).fenced is None
    assert registers.refused == 1


def test_two_owners_of_one_token_lose_an_update() -> None:
    registers = Registers()
    one, other = registers.touch(Touch(5)), registers.touch(Touch(5))
    registers.touch(Touch(5, one))
    registers.touch(Touch(5, other))
    assert registers.fenced_lost == 1
