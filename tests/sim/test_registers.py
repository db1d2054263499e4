"""The protected registers of the simulator: fenced and unfenced updates."""

from __future__ import annotations

from testkit.sim.registers import RegisterAccess, Registers, RegisterValues


def test_an_update_of_the_value_read_is_not_lost() -> None:
    registers = Registers()
    values = registers.access(RegisterAccess(1))
    assert registers.access(RegisterAccess(1, values)) == RegisterValues(1, 1)
    assert (registers.acknowledged, registers.fenced_lost, registers.unfenced_lost) == (1, 0, 0)


def test_a_smaller_token_is_rejected_and_only_the_unfenced_register_loses_an_update() -> None:
    registers = Registers()
    old = registers.access(RegisterAccess(1))
    new = registers.access(RegisterAccess(2))
    assert registers.access(RegisterAccess(1, old)).fenced is None
    registers.access(RegisterAccess(2, new))
    assert (registers.acknowledged, registers.fenced_lost, registers.unfenced_lost) == (1, 0, 1)


def test_a_reader_with_a_smaller_token_is_rejected() -> None:
    registers = Registers()
    registers.access(RegisterAccess(2))
    assert registers.access(RegisterAccess(1)).fenced is None
    assert registers.refused == 1


def test_two_owners_of_one_token_lose_an_update() -> None:
    registers = Registers()
    one, other = registers.access(RegisterAccess(5)), registers.access(RegisterAccess(5))
    registers.access(RegisterAccess(5, one))
    registers.access(RegisterAccess(5, other))
    assert registers.fenced_lost == 1
