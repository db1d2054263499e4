"""The dashboard without a browser: what it tells, to whom, and what it lets nobody do."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import tidelock as tl
from tests.ops.dashboards import READER, TOKEN, Client, dashboard
from tests.ops.program import Program, end, eventually, start
from tests.ops.scene import HOST, OPTIONS, PARTITION, TABLE_NAME, Scene, made, rows, scene
from tidelock.base.clock import SystemClock
from tidelock.ops.ui import watching
from tidelock.ops.ui.answers import load_assets
from tidelock.ops.ui.watching import TableWatch
from tidelock.store.uri import open_store


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("scene") / "orders") as found:
        yield found


@pytest.fixture
def client(staged: Scene) -> Iterator[Client]:
    with dashboard(staged.uri) as url:
        yield Client(url)


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[tuple[Client, Scene]]:
    with scene(tmp_path / "orders") as found, dashboard(found.uri, acts=True) as url:
        yield Client(url), found


@pytest.fixture
def guarded(staged: Scene) -> Iterator[Client]:
    """Return a client of a dashboard where an operator may act, on a table that nobody changes."""
    with dashboard(staged.uri, acts=True) as url:
        yield Client(url)


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableWatch]:
    monkeypatch.setattr(watching, "LOOK_EVERY_MS", 0)
    made(tmp_path / "t", name="t").close()
    store = open_store(str(tmp_path / "t"), {})
    yield TableWatch(store, SystemClock())
    store.close()


def page(watch: TableWatch, after: int = 0) -> dict[str, Any]:
    watch.look()
    found = watch.page(after)
    assert found is not None
    return found


def test_a_page_tells_of_everything_that_goes_on(client: Client, staged: Scene) -> None:
    status, found = client.facts("GET", "/api/tables/0")
    assert status == 200
    assert found["table"]["name"] == TABLE_NAME
    by_instant = {row[0]: row for row in found["instants"]}
    assert by_instant[staged.running.instant][2] == "inflight"
    assert by_instant[staged.clustering][1] == "clustering"
    writers = {each["instant"]: each for each in found["writers"]}
    assert set(writers) == {staged.running.instant, staged.dead}
    assert writers[staged.dead]["host"] == HOST
    assert found["now"] - writers[staged.dead]["beat"] > writers[staged.dead]["life"]
    assert {plan["instant"] for plan in found["services"]} == {staged.clustering, staged.compaction}
    assert found["lock"]["condition"] == "held"
    (met,) = found["conflicts"]["shown"]
    assert met["ended"] in by_instant
    assert met["solved"] == "merged again and committed"
    assert found["entries"][0]["position"] == found["table"]["position"]


def test_who_knows_everything_is_told_nothing(client: Client) -> None:
    _, first = client.facts("GET", "/api/tables/0")
    known = f"/api/tables/0?boot={first['boot']}&after={first['version']}"
    time.sleep(watching.LOOK_EVERY_MS / 1000)
    assert client.facts("GET", known) == (304, None)
    _, again = client.facts("GET", f"/api/tables/0?boot=another&after={first['version']}")
    assert again["full"]


def test_a_writer_that_waits_for_the_lock_is_shown_until_it_has_it(watch: TableWatch) -> None:
    from tidelock.txn.transactions import Transactions

    provider = "tidelock.lockproviders.storage.StorageLockProvider"

    def take() -> None:
        with waiting.lock.held():
            pass

    def shown() -> Any:
        return page(watch)["lock"]["waiting"]

    with Transactions(watch.store, {"hoodie.write.lock.provider": provider}) as waiting:
        taker = Thread(target=take)
        with tl.lock(watch.store.uri):
            taker.start()
            eventually(lambda: bool(shown()), within_s=30)
            (found,) = shown()
            assert (found["owner"], found["pid"]) == (waiting.owner, os.getpid())
            assert page(watch)["lock"]["waiters"] == 1
        taker.join(30)
        eventually(lambda: not shown(), within_s=30)
        assert page(watch)["lock"]["condition"] == "free"


def test_another_lock_is_asked_through_its_provider(tmp_path: Path) -> None:
    made(tmp_path / "t", name="t").close()
    provider = "tidelock.lockproviders.inprocess.InProcessLockProvider"
    settings = {"hoodie.write.lock.provider": provider}
    with closing(open_store(str(tmp_path / "t"), {})) as store:
        found = page(TableWatch(store, SystemClock(), settings=settings))["lock"]
        assert (found["provider"], found["condition"]) == ("InProcessLockProvider", "free")
    unknown = {"hoodie.write.lock.provider": "org.apache.hudi.NoSuchProvider"}
    with closing(open_store(str(tmp_path / "t"), {})) as store:
        found = page(TableWatch(store, SystemClock(), settings=unknown))["lock"]
        assert "NoSuchProvider" in found["problem"]


def test_an_update_has_only_what_changed(watch: TableWatch) -> None:
    first = page(watch)
    with tl.Table.open(watch.store.uri, options=OPTIONS) as table:
        report = table.upsert(rows(1, ts=1, day="d"))
    found = page(watch, first["version"])
    assert not found["full"]
    assert [row[0] for row in found["instants"]] == [report.instant]
    assert found["instants"][0][9:] == [1, report.bytes_written, 1]
    assert "lock" not in found


def test_a_write_that_is_undone_stays_on_the_page(watch: TableWatch) -> None:
    from tidelock.table.timeline.instant import Action
    from tidelock.txn.transactions import Transactions

    with Transactions(watch.store, OPTIONS) as transactions:
        begun = transactions.begin(Action.DELTA_COMMIT, "UPSERT")
        first = page(watch)
        assert [w["instant"] for w in first["writers"]] == [begun.instant]
        begun.rollback("changed my mind")
    found = page(watch, first["version"])
    (row,) = found["instants"]
    assert row[:3] == [begun.instant, "deltacommit", "undone"]
    assert found["writers"] == []


def test_archived_instants_leave_the_page(watch: TableWatch) -> None:
    keep = {"hoodie.clean.commits.retained": "1", "hoodie.keep.min.commits": "2"}
    with tl.Table.open(
        watch.store.uri, options={**OPTIONS, **keep, "hoodie.keep.max.commits": "3"}
    ) as table:
        for ts in range(6):
            table.upsert(rows(1, ts=ts, day="d"))
        first = page(watch)
        table.clean()
        archived = table.archive().instants
    found = page(watch, first["version"])
    assert archived
    assert len(found["gone"]) == archived
    assert set(found["gone"]) <= {row[0] for row in first["instants"]}


def test_a_table_that_cannot_be_read_says_so_and_keeps_what_was_known(
    watch: TableWatch,
) -> None:
    first = page(watch)
    checkpoint = Path(watch.store.local_path(".hoodie/hoodie.properties") or "").parent
    ledger = max((checkpoint / ".tidelock/ledger").iterdir())
    number = int(ledger.stem) + 1
    ledger.with_name(f"{number:020}.json").write_text("no entry")
    found = page(watch, first["version"])
    assert "is no" in found["problem"] or "JSON" in found["problem"]
    assert page(watch)["instants"] == first["instants"]


def test_files_tell_sizes_and_depth_of_every_partition(client: Client) -> None:
    status, found = client.facts("GET", "/api/tables/0/files")
    assert status == 200
    by_name = {each["partition"]: each for each in found["partitions"]}
    assert set(by_name) == {"d1", "d2", PARTITION}
    assert by_name["d2"]["base_files"] == by_name["d2"]["in_plans"] == 2
    assert by_name["d1"]["log_depth"] >= 1
    assert by_name["d1"]["log_bytes"] > 0


def test_an_instant_is_told_in_full(client: Client, staged: Scene) -> None:
    _, found = client.facts("GET", f"/api/tables/0/instants/{staged.dead}")
    assert found["heartbeat"]["host"] == HOST
    assert [each["state"] for each in found["states"]] == ["inflight", "requested"]
    _, planned = client.facts("GET", f"/api/tables/0/instants/{staged.clustering}")
    assert planned["plan"]["problem"] == ""
    assert planned["entries"][0]["kind"] == "plan"
    _, everything = client.facts("GET", "/api/tables/0")
    ended = everything["conflicts"]["shown"][0]["ended"]
    _, merged = client.facts("GET", f"/api/tables/0/instants/{ended}")
    assert merged["wrote"]["files"]
    assert merged["conflicts"][0]["ended"] == ended
    assert merged["entries"][0]["detail"]["rebased"] == 1


@pytest.mark.parametrize(
    "path",
    [
        "/api/tables/7",
        "/api/tables/x",
        "/api/tables/0/instants/20200101000000000",
        "/api/tables/0/instants/..%2F..%2Fetc",
        "/assets/../__init__.py",
        "/assets/%2e%2e/routes.py",
        "/etc/passwd",
    ],
)
def test_there_is_nothing_beside_what_there_is(client: Client, path: str) -> None:
    status, found = client.facts("GET", path)
    assert status == 404
    assert found["error"]["kind"] == "not_found"


def test_every_answer_forbids_foreign_and_inline_code(client: Client) -> None:
    for path in ("/", "/assets/app.js", "/api/tables", "/nothing"):
        answer = client.ask("GET", path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_the_page_has_no_inline_code_and_nothing_from_elsewhere() -> None:
    assets = load_assets()
    html = assets["/"].body.decode()
    assert "<style" not in html
    assert html.count("<script") == html.count('<script type="module" src="/assets/') == 1
    for path, answer in assets.items():
        text = answer.body.decode()
        assert "innerHTML" not in text, path
        elsewhere = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in elsewhere, path
        assert "https://" not in elsewhere, path


def test_a_name_that_is_not_ours_is_refused(client: Client) -> None:
    status, found = client.facts("GET", "/api/tables", Host="evil.example:80")
    assert status == 403
    assert "not called" in found["error"]["message"]


def test_without_a_token_nobody_signs_in_or_acts(client: Client, staged: Scene) -> None:
    assert client.sign_in() == 403
    status, found = client.act("cancel-plan", staged.clustering)
    assert status == 403
    assert "sign in" in found["error"]["message"]
    _, who = client.facts("GET", "/api/session")
    assert who["may"] == []


def test_a_wrong_token_opens_nothing(guarded: Client) -> None:
    assert guarded.sign_in("guessed") == 401
    assert guarded.facts("GET", "/api/session")[1]["name"] == ""


def test_the_cookie_is_for_the_browser_alone(guarded: Client) -> None:
    cookie = guarded.ask("POST", "/api/session", {"token": TOKEN}).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


def test_an_action_needs_the_secret_of_the_page(guarded: Client, staged: Scene) -> None:
    assert guarded.sign_in() == 200
    for wrong in ("", "guessed"):
        guarded.csrf = wrong
        status, found = guarded.act("cancel-plan", staged.clustering)
        assert status == 403
        assert "x-tidelock-csrf" in found["error"]["message"]


def test_another_site_cannot_act(guarded: Client, staged: Scene) -> None:
    guarded.sign_in()
    guarded.headers["Origin"] = "http://evil.example"
    status, found = guarded.act("cancel-plan", staged.clustering)
    assert (status, found["error"]["message"]) == (403, "the request comes from another site")


def test_an_action_must_be_confirmed(guarded: Client, staged: Scene) -> None:
    guarded.sign_in()
    status, found = guarded.act("cancel-plan", staged.clustering, confirm="yes")
    assert status == 400
    assert "not confirmed" in found["error"]["message"]


def test_a_reader_may_look_and_not_act(guarded: Client, staged: Scene) -> None:
    assert guarded.sign_in(READER) == 200
    status, _ = guarded.act("cancel-plan", staged.clustering)
    assert status == 403


def test_an_operator_cancels_a_plan(operator: tuple[Client, Scene]) -> None:
    client, staged = operator
    client.sign_in()
    assert client.act("cancel-plan", staged.clustering)[0] == 200
    _, found = client.facts("GET", "/api/tables/0")
    assert [plan["instant"] for plan in found["services"]] == [staged.compaction]
    status, refused = client.act("cancel-plan", staged.compaction)
    assert status == 409
    assert "cannot be removed" in refused["error"]["message"]


def test_an_operator_releases_the_lock_of_the_holder_shown(
    operator: tuple[Client, Scene],
) -> None:
    client, _ = operator
    client.sign_in()
    _, found = client.facts("GET", "/api/tables/0")
    assert client.act("force-release", "somebody else")[0] == 409
    assert client.act("force-release", found["lock"]["owner"])[0] == 200
    time.sleep(watching.LOOK_EVERY_MS / 1000)
    _, after = client.facts("GET", "/api/tables/0")
    assert after["lock"]["condition"] == "free"


def test_an_operator_runs_a_service(operator: tuple[Client, Scene]) -> None:
    client, staged = operator
    client.sign_in()
    assert client.act("run-service", "compact")[0] == 200
    until = time.monotonic() + 120
    while (jobs := client.facts("GET", "/api/tables/0/jobs")[1])[0]["ended"] is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert not jobs[0]["failed"], jobs
    assert jobs[0]["by"] == "operator"
    _, found = client.facts("GET", "/api/tables/0")
    by_instant = {row[0]: row for row in found["instants"]}
    assert by_instant[staged.compaction][2] == "completed"
    assert client.act("run-service", "rm -rf")[0] == 400


def test_signing_out_ends_the_session(guarded: Client, staged: Scene) -> None:
    guarded.sign_in()
    guarded.facts("DELETE", "/api/session")
    assert guarded.act("cancel-plan", staged.clustering)[0] == 403


def test_where_looking_is_not_free_it_needs_the_token(staged: Scene) -> None:
    with dashboard(staged.uri, acts=True, looks_freely=False) as url:
        client = Client(url)
        assert client.facts("GET", "/api/tables/0")[0] == 403
        assert client.facts("GET", "/api/session")[1]["must_sign_in"]
        client.sign_in(READER)
        assert client.facts("GET", "/api/tables/0")[0] == 200


def test_a_body_that_is_too_large_or_no_json_is_refused(guarded: Client) -> None:
    assert guarded.facts("POST", "/api/session", {"token": "x" * 70_000})[0] == 400
    assert guarded.ask("POST", "/api/session").status == 401


def test_the_command_serves_until_it_is_stopped(staged: Scene) -> None:
    process = start("ui", staged.uri, "--port", "0", "--json")
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert said["acts"] is False
    assert Client(said["url"]).facts("GET", "/api/tables")[1][0]["name"] == TABLE_NAME
    process.terminate()
    assert end(process).code == 0


def test_other_addresses_need_a_token_and_tls(staged: Scene, tidelock: Program) -> None:
    ended = tidelock("ui", staged.uri, "--host", "0.0.0.0", "--json")
    assert ended.code == 2
    assert "--insecure" in ended.facts["error"]["hint"]


def test_a_table_that_is_not_there_is_an_error_at_once(tidelock: Program, tmp_path: Path) -> None:
    assert tidelock("ui", str(tmp_path), "--port", "0").code == 8


def test_looking_changes_nothing(staged: Scene) -> None:
    def everything() -> dict[str, int]:
        return {
            str(path): path.stat().st_mtime_ns
            for path in Path(staged.uri).rglob("*")
            if path.is_file() and "heartbeat" not in str(path) and ".locks" not in str(path)
        }

    before = everything()
    with dashboard(staged.uri) as url:
        client = Client(url)
        for path in ("", "/files", "/entries", "/jobs", f"/instants/{staged.dead}"):
            assert client.facts("GET", f"/api/tables/0{path}")[0] == 200
    assert everything() == before != {}


def test_a_commit_that_is_rolled_back_is_seen_without_listing_the_timeline(
    watch: TableWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    page(watch)
    monkeypatch.setattr(TableWatch, "_list_timeline", None)
    with tl.Table.open(watch.store.uri, options=OPTIONS) as table:
        table.upsert(rows(1, ts=1, day="d"))
        last = table.upsert(rows(1, ts=2, day="d"))
        before = page(watch)
        states = {row[0]: row[2] for row in before["instants"]}
        assert states[last.instant] == "completed"
        table.rollback(last.instant)
    found = page(watch, before["version"])
    states = {row[0]: (row[1], row[2]) for row in found["instants"]}
    assert states.pop(last.instant) == ("deltacommit", "undone")
    assert list(states.values()) == [("rollback", "completed")]


def test_a_table_without_a_ledger_is_shown_from_its_timeline(
    watch: TableWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LIST_EVERY_MS", 0)
    home = Path(watch.store.local_path(".hoodie/hoodie.properties") or "").parent
    shutil.rmtree(home / ".tidelock")
    first = page(watch)
    assert [row[1:3] for row in first["instants"]] == [["deltacommit", "completed"]]
    assert first["table"]["position"] == 0
    (home / "timeline/20300101000000000.deltacommit.requested").touch()
    time.sleep(0.002)
    found = page(watch, first["version"])
    assert [row[:3] for row in found["instants"]] == [
        ["20300101000000000", "deltacommit", "requested"]
    ]
    assert [writer["beat"] for writer in found["writers"]] == [None]
