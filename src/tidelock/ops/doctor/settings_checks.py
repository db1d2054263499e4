"""What is wrong with how writers are set up: by the settings given, and by what they show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tidelock.base.config import check_values
from tidelock.base.errors import ConfigInvalid, Kind
from tidelock.kernel.lookup import IndexKind
from tidelock.lock.config import PROVIDER, RENEW_S, VALIDITY_S, LockSettings
from tidelock.lock.opening import refuse_unknown
from tidelock.lockproviders.registry import PROVIDERS, STORAGE, place_of, provider_name
from tidelock.operation.settings import WriteSettings
from tidelock.ops.cli.output import duration
from tidelock.ops.doctor.findings import Finding, fine, note, problem
from tidelock.table.properties import TableProperties
from tidelock.table.timeline.instant import parse_time
from tidelock.txn.config import CONCURRENCY_MODE, FAILED_WRITES, FailedWrites, Mode, TxnSettings
from tidelock.txn.entry import Commit, Entry
from tidelock.txn.fold import Fold
from tidelock.txn.heartbeat import Pulse

_WRONG: Final = Kind.INVALID_INPUT.exit_code
_RECENTLY_MS: Final = 3_600_000
_INPROCESS: Final = "InProcessLockProvider"


def check_settings(
    settings: Mapping[str, object], properties: TableProperties
) -> Iterator[Finding]:
    """Judge the settings that a writer would have: each mistake, not only the first."""
    if not settings:
        yield fine("settings", "none were given to judge; --props takes a writer's file")
        return
    wrong = [
        *_refused("settings", lambda: refuse_unknown(settings)),
        *_refused("settings", lambda: check_values(settings)),
        *_refused("lock", lambda: LockSettings.read(settings), _ratio(settings)),
        *_refused("mode", lambda: _txn(settings, properties)),
        *_provider(settings, properties),
    ]
    yield from wrong or [fine("settings", "they go together")]


def _txn(settings: Mapping[str, object], properties: TableProperties) -> None:
    read = TxnSettings.read(settings)
    buckets = WriteSettings.read(settings, properties).index is IndexKind.BUCKET
    read.check_table(properties, simple_buckets=buckets)


def _refused(about: str, check: Callable[[], object], advice: str = "") -> Iterator[Finding]:
    try:
        check()
    except ConfigInvalid as error:
        yield problem(about, error.message, advice or error.hint or "change it", exit_code=_WRONG)


def _ratio(settings: Mapping[str, object]) -> str:
    try:
        validity, renew = VALIDITY_S.required(settings), RENEW_S.required(settings)
    except ConfigInvalid:
        return ""
    if validity >= 10 * renew:
        return ""
    return f"set {RENEW_S.key}={max(1, validity // 10)}, or {VALIDITY_S.key}={10 * renew}"


def _provider(settings: Mapping[str, object], properties: TableProperties) -> Iterator[Finding]:
    name = provider_name(settings)
    if name is None:
        return
    if not _is_provider(name):
        known = ", ".join(sorted(each.rpartition(".")[2] for each in PROVIDERS))
        yield problem(
            "lock", f"{PROVIDER.key} = {name} is no lock provider", f"use {known}", exit_code=_WRONG
        )
    elif name.endswith(_INPROCESS):
        yield problem(
            "lock",
            f"{PROVIDER.key} = {name} locks among the threads of one process only;"
            f" {properties.name} may be written by others",
            "use the storage lock: tidelock.lockproviders.storage.StorageLockProvider",
            exit_code=_WRONG,
        )
    mode = settings.get(CONCURRENCY_MODE.key)
    if mode is None:
        yield note(
            "mode",
            f"a lock provider is set and {CONCURRENCY_MODE.key} is not: Hudi takes no lock then",
            f"set {CONCURRENCY_MODE.key}={Mode.OPTIMISTIC.value}",
        )


def _is_provider(name: str) -> bool:
    try:
        return bool(place_of(name))
    except ConfigInvalid:
        return False


def check_writers(
    settings: Mapping[str, object],
    fold: Fold,
    entries: Sequence[Entry],
    pulses: Mapping[str, Pulse],
    now_epoch_ms: int,
) -> Iterator[Finding]:
    """Judge what writers show of themselves: in heartbeats, and in what they committed."""
    recent = [e for e in entries if now_epoch_ms - parse_time(e.time) < _RECENTLY_MS]
    owners = {entry.owner for entry in recent if isinstance(entry.fact, Commit)}
    wrong = [
        *_locks(pulses),
        *_modes(pulses),
        *_tokens(recent),
        *_epochs(recent),
        *_foreign(settings, fold, recent),
        *_eager(settings, fold, owners),
        *_ahead(fold, now_epoch_ms),
    ]
    yield from wrong or [fine("writers", f"{len(owners)} committed in the last hour, all alike")]


def _locks(pulses: Mapping[str, Pulse]) -> Iterator[Finding]:
    """Writers that take different locks keep nobody out."""
    by_lock: defaultdict[str, list[str]] = defaultdict(list)
    for pulse in pulses.values():
        if pulse.says is not None and pulse.says.mode:
            by_lock[pulse.says.lock or "no lock"].append(_who(pulse))
    if len(by_lock) > 1:
        says = "; ".join(f"{lock}: {', '.join(who[:3])}" for lock, who in sorted(by_lock.items()))
        yield problem(
            "lock",
            f"writers that run now take different locks, which keep nobody out: {says}",
            f"give every writer the same {PROVIDER.key}",
            exit_code=1,
        )


def _modes(pulses: Mapping[str, Pulse]) -> Iterator[Finding]:
    by_mode: defaultdict[str, list[str]] = defaultdict(list)
    for pulse in pulses.values():
        if pulse.says is not None and pulse.says.mode:
            by_mode[pulse.says.mode].append(_who(pulse))
    single = by_mode.get(Mode.SINGLE_WRITER.value, [])
    if single and sum(len(who) for who in by_mode.values()) > 1:
        yield problem(
            "mode",
            f"{', '.join(single[:3])} runs as {Mode.SINGLE_WRITER.value} beside other writers",
            f"set {CONCURRENCY_MODE.key}={Mode.OPTIMISTIC.value} for all of them",
            exit_code=1,
        )


def _tokens(recent: Sequence[Entry]) -> Iterator[Finding]:
    with_token: set[str] = set()
    without: set[str] = set()
    for entry in recent:
        if isinstance(entry.fact, Commit):
            (with_token if entry.fact.token else without).add(entry.owner)
    without -= with_token
    if with_token and without:
        yield note(
            "lock",
            f"{len(with_token)} writers of the last hour took the table's lock, {len(without)} did"
            f" not: {', '.join(sorted(without)[:3])}",
            "among ours the ledger decides all the same; Java writers need everybody to take it",
        )


def _epochs(recent: Sequence[Entry]) -> Iterator[Finding]:
    """Tokens that begin anew come from another lock, or from one that was lost."""
    began: list[Entry] = []
    epoch: int | None = None
    for entry in recent:
        if isinstance(entry.fact, Commit) and entry.fact.token:
            if epoch is not None and entry.fact.epoch > epoch:
                began.append(entry)
            epoch = entry.fact.epoch
    if not began:
        return
    last = began[-1]
    says = (
        f"the tokens of the table's lock began anew {len(began)} times in the last hour, last with"
        f" the commit {last.position} of {last.owner}"
    )
    if len({entry.owner for entry in began}) > 1 and len(began) > 2:
        yield problem(
            "lock",
            f"{says}: writers take turns with different locks, which keep nobody out",
            f"give every writer the same {PROVIDER.key}",
            exit_code=1,
        )
    else:
        yield note(
            "lock",
            f"{says}: the lock is another one since, or its counter was lost",
            "nothing is to be done, unless nobody changed the lock or deleted its files",
        )


def _foreign(
    settings: Mapping[str, object], fold: Fold, recent: Sequence[Entry]
) -> Iterator[Finding]:
    unlocked = [e for e in recent if isinstance(e.fact, Commit) and not e.fact.token]
    if fold.foreign and (unlocked or (settings and provider_name(settings) is None)):
        yield problem(
            "lock",
            "writers that know no ledger (Java) write this table, and ours take no lock against"
            " them: what they complete while a commit of ours is being decided may hide it, or be"
            " hidden by it",
            f"give all of them the storage lock: {PROVIDER.key}={_java(STORAGE)}",
            exit_code=1,
        )


def _java(place: str) -> str:
    return next(name for name, known in PROVIDERS.items() if known == place)


def _eager(settings: Mapping[str, object], fold: Fold, owners: set[str]) -> Iterator[Finding]:
    policy = FAILED_WRITES.value(settings)
    if len(owners) + fold.foreign > 1 and policy is FailedWrites.EAGER:
        yield problem(
            "mode",
            f"{len(owners)} writers committed in the last hour, and {FAILED_WRITES.key} is EAGER:"
            " Java writers then undo what others are writing",
            f"set {FAILED_WRITES.key}={FailedWrites.LAZY.value}",
            exit_code=_WRONG,
        )


def _ahead(fold: Fold, now_epoch_ms: int) -> Iterator[Finding]:
    if not fold.position:
        return
    ahead_ms = parse_time(fold.time) - now_epoch_ms
    if ahead_ms > 1_000:
        yield problem(
            "clock",
            f"the last commit's time is {duration(ahead_ms)} ahead of this machine's clock: one of"
            " the writers' clocks is wrong, and times go on from there",
            "synchronise the writers' clocks; commits stay in order all the same",
            exit_code=1,
        )


def _who(pulse: Pulse) -> str:
    says = pulse.says
    if says is None:
        return pulse.instant
    return f"{says.host}:{says.pid}" if says.host else says.owner
