"""The dashboard without a browser: its API, permissions and protections."""

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
from tests.cli.dashboards import READER, TOKEN, Client, dashboard
from tests.cli.program import Program, end, eventually, start
from tests.cli.scene import HOST, OPTIONS, PARTITION, TABLE_NAME, Scene, create_table, rows, scene
from tidelock.core.system import SystemClock
from tidelock.dashboard import watch as watching
from tidelock.dashboard.app import load_assets
from tidelock.dashboard.watch import TableWatch
from tidelock.storage.uri import open_store


@pytest.fixture(scope="module")
def busy_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("scene") / "orders") as found:
        yield found


@pytest.fixture
def client(busy_table: Scene) -> Iterator[Client]:
    with dashboard(busy_table.uri) as url:
        yield Client(url)


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[tuple[Client, Scene]]:
    with scene(tmp_path / "orders") as found, dashboard(found.uri, acts=True) as url:
        yield Client(url), found


@pytest.fixture
def guarded(busy_table: Scene) -> Iterator[Client]:
    """Return a client with operator rights on the dashboard of a table that does not change."""
    with dashboard(busy_table.uri, acts=True) as url:
        yield Client(url)


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableWatch]:
    monkeypatch.setattr(watching, "REFRESH_EVERY_MS", 0)
    create_table(tmp_path / "t", name="t").close()
    store = open_store(str(tmp_path / "t"), {})
    yield TableWatch(store, SystemClock())
    store.close()


def page(watch: TableWatch, after: int = 0) -> dict[str, Any]:
    watch.refresh()
    found = watch.page(after)
    assert found is not None
    return found


def test_page_shows_all_activity(client: Client, busy_table: Scene) -> None:
    status, found = client.facts("GET", "/api/tables/0")
    assert status == 200
    assert found["table"]["name"] == TABLE_NAME
    by_instant = {row[0]: row for row in found["instants"]}
    assert by_instant[busy_table.running.instant][2] == "inflight"
    assert by_instant[busy_table.clustering][1] == "clustering"
    writers = {each["instant"]: each for each in found["writers"]}
    assert set(writers) == {busy_table.running.instant, busy_table.dead}
    assert writers[busy_table.dead]["host"] == HOST
    assert found["now"] - writers[busy_table.dead]["beat"] > writers[busy_table.dead]["life"]
    assert {plan["instant"] for plan in found["services"]} == {
        busy_table.clustering,
        busy_table.compaction,
    }
    assert found["lock"]["condition"] == "held"
    (conflict,) = found["conflicts"]["shown"]
    assert conflict["ended"] in by_instant
    assert conflict["solved"] == "rebased and committed"
    assert found["entries"][0]["position"] == found["table"]["position"]


def test_client_that_is_up_to_date_receives_no_update(client: Client) -> None:
    first: dict[str, Any] = {}

    def nothing_changed() -> bool:
        first.update(client.facts("GET", "/api/tables/0")[1])
        known = f"/api/tables/0?boot={first['boot']}&after={first['version']}"
        time.sleep(watching.REFRESH_EVERY_MS / 1000)  # the server caches for this long
        return bool(client.facts("GET", known) == (304, None))

    # In between, the scene's writer may beat and its lock may be renewed, and a slow machine may
    # still be loading older entries.
    eventually(nothing_changed)
    _, again = client.facts("GET", f"/api/tables/0?boot=another&after={first['version']}")
    assert again["full"]


def test_writer_waiting_for_the_lock_is_shown_until_it_acquires_it(watch: TableWatch) -> None:
    from tidelock.txn.transaction_manager import TransactionManager

    provider = "tidelock.lock.providers.storage.StorageLockProvider"

    def take() -> None:
        with waiting.lock.held():
            pass

    def shown() -> Any:
        return page(watch)["lock"]["waiting"]

    with TransactionManager(watch.store, {"hoodie.write.lock.provider": provider}) as waiting:
        taker = Thread(target=take)
        with tl.lock(watch.store.uri):
            taker.start()
            eventually(lambda: bool(shown()))
            (found,) = shown()
            assert (found["owner"], found["pid"]) == (waiting.owner, os.getpid())
            assert page(watch)["lock"]["waiters"] == 1
        taker.join(120)
        eventually(lambda: not shown())
        assert page(watch)["lock"]["condition"] == "free"


def test_other_lock_providers_are_queried(tmp_path: Path) -> None:
    create_table(tmp_path / "t", name="t").close()
    provider = "tidelock.lock.providers.inprocess.InProcessLockProvider"
    settings = {"hoodie.write.lock.provider": provider}
    with closing(open_store(str(tmp_path / "t"), {})) as store:
        found = page(TableWatch(store, SystemClock(), settings=settings))["lock"]
        assert (found["provider"], found["condition"]) == ("InProcessLockProvider", "free")
    unknown = {"hoodie.write.lock.provider": "org.apache.hudi.NoSuchProvider"}
    with closing(open_store(str(tmp_path / "t"), {})) as store:
        found = page(TableWatch(store, SystemClock(), settings=unknown))["lock"]
        assert "NoSuchProvider" in found["problem"]


def test_update_contains_only_changes(watch: TableWatch) -> None:
    first = page(watch)
    with tl.Table.open(watch.store.uri, options=OPTIONS) as table:
        report = table.upsert(rows(1, ts=1, day="d"))
    found = page(watch, first["version"])
    assert not found["full"]
    assert [row[0] for row in found["instants"]] == [report.instant]
    assert found["instants"][0][9:] == [1, report.bytes_written, 1]
    assert "lock" not in found


def test_rolled_back_write_stays_on_the_page(watch: TableWatch) -> None:
    from tidelock.hudi.timeline.instant import Action
    from tidelock.txn.transaction_manager import TransactionManager

    with TransactionManager(watch.store, OPTIONS) as transactions:
        begun = transactions.begin(Action.DELTA_COMMIT, "UPSERT")
        first = page(watch)
        assert [w["instant"] for w in first["writers"]] == [begun.instant]
        begun.rollback("changed my mind")
    found = page(watch, first["version"])
    (row,) = found["instants"]
    assert row[:3] == [begun.instant, "deltacommit", "undone"]
    assert found["writers"] == []


def test_archived_instants_are_removed_from_the_page(watch: TableWatch) -> None:
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


def test_unreadable_table_shows_an_error_and_keeps_last_known_state(
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


def test_files_view_shows_size_and_depth_per_partition(client: Client) -> None:
    status, found = client.facts("GET", "/api/tables/0/files")
    assert status == 200
    by_name = {each["partition"]: each for each in found["partitions"]}
    assert set(by_name) == {"d1", "d2", PARTITION}
    assert by_name["d2"]["base_files"] == by_name["d2"]["in_plans"] == 2
    assert by_name["d1"]["log_depth"] >= 1
    assert by_name["d1"]["log_bytes"] > 0


def test_instant_view_shows_full_details(client: Client, busy_table: Scene) -> None:
    _, found = client.facts("GET", f"/api/tables/0/instants/{busy_table.dead}")
    assert found["heartbeat"]["host"] == HOST
    assert [each["state"] for each in found["states"]] == ["inflight", "requested"]
    _, planned = client.facts("GET", f"/api/tables/0/instants/{busy_table.clustering}")
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
def test_unknown_paths_return_404(client: Client, path: str) -> None:
    status, found = client.facts("GET", path)
    assert status == 404
    assert found["error"]["kind"] == "not_found"


def test_every_response_forbids_external_and_inline_code(client: Client) -> None:
    for path in ("/", "/assets/app.js", "/api/tables", "/nothing"):
        answer = client.ask("GET", path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_page_has_no_inline_code_or_external_resources() -> None:
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


def test_unknown_host_name_is_refused(client: Client) -> None:
    status, found = client.facts("GET", "/api/tables", Host="evil.example:80")
    assert status == 403
    assert "is not served here" in found["error"]["message"]


def test_without_a_configured_token_sign_in_and_actions_are_refused(
    client: Client, busy_table: Scene
) -> None:
    assert client.sign_in() == 403
    status, found = client.act("cancel-plan", busy_table.clustering)
    assert status == 403
    assert "sign in" in found["error"]["message"]
    _, who = client.facts("GET", "/api/session")
    assert who["may"] == []


def test_wrong_token_is_refused(guarded: Client) -> None:
    assert guarded.sign_in("guessed") == 401
    assert guarded.facts("GET", "/api/session")[1]["name"] == ""


def test_session_cookie_is_http_only(guarded: Client) -> None:
    cookie = guarded.ask("POST", "/api/session", {"token": TOKEN}).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


def test_action_requires_the_csrf_token(guarded: Client, busy_table: Scene) -> None:
    assert guarded.sign_in() == 200
    for wrong in ("", "guessed"):
        guarded.csrf = wrong
        status, found = guarded.act("cancel-plan", busy_table.clustering)
        assert status == 403
        assert "x-tidelock-csrf" in found["error"]["message"]


def test_cross_site_action_is_refused(guarded: Client, busy_table: Scene) -> None:
    guarded.sign_in()
    guarded.headers["Origin"] = "http://evil.example"
    status, found = guarded.act("cancel-plan", busy_table.clustering)
    assert (status, found["error"]["message"]) == (403, "cross-origin request")


def test_action_requires_confirmation(guarded: Client, busy_table: Scene) -> None:
    guarded.sign_in()
    status, found = guarded.act("cancel-plan", busy_table.clustering, confirm="yes")
    assert status == 400
    assert "not confirmed" in found["error"]["message"]


def test_reader_can_view_but_not_act(guarded: Client, busy_table: Scene) -> None:
    assert guarded.sign_in(READER) == 200
    status, _ = guarded.act("cancel-plan", busy_table.clustering)
    assert status == 403


def test_operator_cancels_a_plan(operator: tuple[Client, Scene]) -> None:
    client, busy_table = operator
    client.sign_in()
    assert client.act("cancel-plan", busy_table.clustering)[0] == 200
    _, found = client.facts("GET", "/api/tables/0")
    assert [plan["instant"] for plan in found["services"]] == [busy_table.compaction]
    status, refused = client.act("cancel-plan", busy_table.compaction)
    assert status == 409
    assert "cannot be removed" in refused["error"]["message"]


def test_operator_releases_the_lock_of_the_displayed_holder(
    operator: tuple[Client, Scene],
) -> None:
    client, _ = operator
    client.sign_in()
    _, found = client.facts("GET", "/api/tables/0")
    assert client.act("force-release", "somebody else")[0] == 409
    assert client.act("force-release", found["lock"]["owner"])[0] == 200
    time.sleep(watching.REFRESH_EVERY_MS / 1000)  # the server caches for this long
    _, after = client.facts("GET", "/api/tables/0")
    assert after["lock"]["condition"] == "free"


def test_operator_runs_a_service(operator: tuple[Client, Scene]) -> None:
    client, busy_table = operator
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
    assert by_instant[busy_table.compaction][2] == "completed"
    assert client.act("run-service", "rm -rf")[0] == 400


def test_sign_out_ends_the_session(guarded: Client, busy_table: Scene) -> None:
    guarded.sign_in()
    guarded.facts("DELETE", "/api/session")
    assert guarded.act("cancel-plan", busy_table.clustering)[0] == 403


def test_private_dashboard_requires_a_token_to_view(busy_table: Scene) -> None:
    with dashboard(busy_table.uri, acts=True, public_reads=False) as url:
        client = Client(url)
        assert client.facts("GET", "/api/tables/0")[0] == 403
        assert client.facts("GET", "/api/session")[1]["must_sign_in"]
        client.sign_in(READER)
        assert client.facts("GET", "/api/tables/0")[0] == 200


def test_oversized_or_non_json_body_is_refused(guarded: Client) -> None:
    assert guarded.facts("POST", "/api/session", {"token": "x" * 70_000})[0] == 400
    assert guarded.ask("POST", "/api/session").status == 401


def test_command_serves_until_stopped(busy_table: Scene) -> None:
    process = start("ui", busy_table.uri, "--port", "0", "--json")
    assert process.stdout is not None
    started = json.loads(process.stdout.readline())
    assert started["acts"] is False
    assert Client(started["url"]).facts("GET", "/api/tables")[1][0]["name"] == TABLE_NAME
    process.terminate()
    assert end(process).code == 0


def test_non_loopback_addresses_require_token_and_tls(busy_table: Scene, tidelock: Program) -> None:
    ended = tidelock("ui", busy_table.uri, "--host", "0.0.0.0", "--json")
    assert ended.code == 2
    assert "--insecure" in ended.facts["error"]["hint"]


def test_missing_table_is_an_immediate_error(tidelock: Program, tmp_path: Path) -> None:
    assert tidelock("ui", str(tmp_path), "--port", "0").code == 8


def test_viewing_changes_nothing(busy_table: Scene) -> None:
    def everything() -> dict[str, int]:
        return {
            str(path): path.stat().st_mtime_ns
            for path in Path(busy_table.uri).rglob("*")
            if path.is_file() and "heartbeat" not in str(path) and ".locks" not in str(path)
        }

    before = everything()
    with dashboard(busy_table.uri) as url:
        client = Client(url)
        for path in ("", "/files", "/entries", "/jobs", f"/instants/{busy_table.dead}"):
            assert client.facts("GET", f"/api/tables/0{path}")[0] == 200
    assert everything() == before != {}


def test_rollback_is_detected_without_listing_the_timeline(
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


def test_table_without_a_ledger_is_shown_from_its_timeline(
    watch: TableWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LIST_EVERY_MS", 0)
    folder = Path(watch.store.local_path(".hoodie/hoodie.properties") or "").parent
    shutil.rmtree(folder / ".tidelock")
    first = page(watch)
    assert [row[1:3] for row in first["instants"]] == [["deltacommit", "completed"]]
    assert first["table"]["position"] == 0
    (folder / "timeline/20300101000000000.deltacommit.requested").touch()
    time.sleep(0.002)  # the next modification time must differ
    found = page(watch, first["version"])
    assert [row[:3] for row in found["instants"]] == [
        ["20300101000000000", "deltacommit", "requested"]
    ]
    assert [writer["beat"] for writer in found["writers"]] == [None]
