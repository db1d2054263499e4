"""XXH64 of the base path: the lock name of Hudi's providers with implicit keys. Pure."""

from __future__ import annotations

from typing import Final

SEED: Final = 0xFFFFFFFFDABADABA
"""Java's int 0xdabadaba as a sign-extended long."""

_MASK: Final = 0xFFFFFFFFFFFFFFFF
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def hash_of_base_path(base_path: str) -> str:
    """Return the hash as 16 upper-case hex digits. `s3a` is treated as `s3`, as in Hudi."""
    if base_path[:6].lower() == "s3a://":
        base_path = f"s3://{base_path[6:]}"
    return f"{xxh64(base_path.encode()):016X}"


def xxh64(data: bytes, seed: int = SEED) -> int:
    """Return the 64-bit xxHash of `data`."""
    length, position = len(data), 0
    if length >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while position <= length - 32:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], _word(data, position + 8 * lane, 8))
            position += 32
        digest = sum(
            _rotated(lane & _MASK, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)
        )
        for lane in lanes:
            digest = ((digest ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        digest = seed + _P5
    digest = (digest + length) & _MASK
    while position <= length - 8:
        digest ^= _round(0, _word(data, position, 8))
        digest = (_rotated(digest, 27) * _P1 + _P4) & _MASK
        position += 8
    if position <= length - 4:
        digest ^= _word(data, position, 4) * _P1 & _MASK
        digest = (_rotated(digest, 23) * _P2 + _P3) & _MASK
        position += 4
    for byte in data[position:]:
        digest ^= byte * _P5 & _MASK
        digest = _rotated(digest, 11) * _P1 & _MASK
    return _mixed(digest)


def _mixed(digest: int) -> int:
    digest = (digest ^ digest >> 33) * _P2 & _MASK
    digest = (digest ^ digest >> 29) * _P3 & _MASK
    return digest ^ digest >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _word(data: bytes, start: int, size: int) -> int:
    return int.from_bytes(data[start : start + size], "little")
