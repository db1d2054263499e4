"""The dashboard's page in a real browser: every view, live updates, actions, and hostile names.

What was seen is kept as pictures below `.cache/screenshots/`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelock as tl
from tests.ops.dashboards import TOKEN, dashboard
from tests.ops.scene import HOST, OPTIONS, PARTITION, TABLE_NAME, Scene, rows, scene
from tests.ops.timelines import long_timeline
from tidelock.testing.browser import Page

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("browser")]

PICTURES = Path(__file__).parents[2] / ".cache" / "screenshots"


@pytest.fixture
def page(browser_page: Page) -> Iterator[Page]:
    browser_page.errors.clear()
    browser_page.resize(1440, 900)
    browser_page.prefer("light")
    yield browser_page
    # Nothing that a name says was run, and nothing was blocked or failed.
    assert browser_page.run("window.hacked ?? null") is None
    assert browser_page.errors == []


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("scene") / "orders", commits=12) as found:
        yield found


@pytest.fixture(scope="module")
def url(staged: Scene) -> Iterator[str]:
    with dashboard(staged.uri) as found:
        yield found


def opened(page: Page, url: str, view: str = "overview") -> None:
    page.open(f"{url}#/0/{view}")
    page.until("document.querySelectorAll('main .panel').length > 0")


def shows(page: Page, selector: str, *texts: str) -> None:
    for text in texts:
        page.until(f"document.querySelector({selector!r})?.innerText.includes({text!r})")


def test_the_overview_shows_the_table_at_one_glance(page: Page, url: str, staged: Scene) -> None:
    opened(page, url)
    shows(page, ".head", TABLE_NAME, "merge-on-read", "key id", "partitioned by day")
    shows(page, ".tiles", "Live writers", "1 without a heartbeat", "held", "Plans pending")
    shows(
        page, "[aria-label='Live writers']", "writer-1", "alive", "writer-2", "no heartbeat", HOST
    )
    shows(page, "[aria-label='Table lock']", "held", "Token", "Waiting", "nobody of ours")
    shows(page, "[aria-label='Pending services']", staged.clustering, staged.compaction)
    shows(page, "[aria-label='Ledger tail']", "plan", "clustering, 2 file groups")
    shows(page, "main [aria-label='Conflicts']", "merged again and committed")
    page.until("document.querySelectorAll('[aria-label=\"Throughput\"] rect').length > 3")
    dots = "[...document.querySelectorAll('[aria-label=\"Commit latency\"] .dots')]"
    page.until(f"{dots}.map((path) => path.getAttribute('d')).join('').split('M').length > 4")
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        page.screenshot(PICTURES / f"overview-{scheme}.png")


def test_the_timeline_shows_every_instant_and_one_in_full(
    page: Page, url: str, staged: Scene
) -> None:
    opened(page, url, "timeline")
    page.until(
        f"!!document.querySelector('[data-instant=\"{staged.running.instant}\"].s-inflight')"
    )
    page.until(f"!!document.querySelector('[data-instant=\"{staged.clustering}\"].s-requested')")
    page.until("!!document.querySelector('.bar-row.s-undone')")
    # Whose writer is not heard of any more is told from who is at work.
    page.until(f"!!document.querySelector('[data-instant=\"{staged.dead}\"].lost')")
    assert page.run("document.querySelectorAll('.bar-row.lost').length") == 1
    page.screenshot(PICTURES / "timeline.png")
    page.click("input[type=search]")
    page.type("writer-2")
    page.until("document.querySelectorAll('.bar-row').length === 1")
    page.click(f"[data-instant='{staged.dead}']")
    shows(page, "#drawer", staged.dead, "Heartbeat", HOST, "On the timeline", ".requested")
    page.screenshot(PICTURES / "instant.png")
    page.press("Escape")
    page.until("document.getElementById('drawer').hidden")


def test_a_link_to_an_instant_shows_all_of_it(page: Page, url: str, staged: Scene) -> None:
    page.open(f"{url}#/0/timeline/{staged.dead}")
    shows(page, "#drawer", "State", "inflight", "Operation", "insert", "Requested", "not yet")
    shows(page, "#drawer header", staged.dead, "deltacommit")


def test_a_committed_instant_tells_what_it_wrote(page: Page, url: str) -> None:
    opened(page, url, "conflicts")
    page.click("main tbody tr")
    shows(page, "#drawer", "Conflicts", "In the ledger", "undone")
    page.run(
        "location.hash = location.hash.replace(/\\d+$/, "
        "document.querySelector('main tbody td:nth-child(6)').textContent)"
    )
    shows(page, "#drawer", "Wrote", "On the timeline", "completed", "1 times, on top of others")


def test_services_say_what_they_block(page: Page, url: str, staged: Scene) -> None:
    opened(page, url, "services")
    shows(page, "main", staged.clustering, staged.compaction, "anybody may execute it")
    shows(page, "main", "in no other plan", PARTITION, "Nobody waits.")
    shows(page, "main", "Sign in with a token")
    assert page.run("document.querySelectorAll('main button.danger').length") == 0
    page.screenshot(PICTURES / "services.png")


def test_conflicts_tell_who_met_whom_and_how_it_ended(page: Page, url: str) -> None:
    opened(page, url, "conflicts")
    shows(page, "main", "merged again and committed", "both changed these file groups")
    page.until("document.querySelectorAll('main .plot rect').length === 1")
    page.screenshot(PICTURES / "conflicts.png")


def test_files_show_sizes_and_depth_by_partition(page: Page, url: str) -> None:
    opened(page, url, "files")
    shows(page, "main", PARTITION, "d1", "d2", "Log files per file group", "Bytes by partition")
    page.click("th[data-sort=in_plans]")
    page.until("document.querySelector('main tbody td').innerText === 'd2'")
    page.screenshot(PICTURES / "files.png")


def test_the_ledger_can_be_read_back(page: Page, url: str) -> None:
    opened(page, url, "ledger")
    shows(page, "main", "commit", "rollback", "plan")
    page.until("document.querySelectorAll('main tbody tr').length > 15")
    page.screenshot(PICTURES / "ledger.png")


def test_a_narrow_window_shows_the_same(page: Page, url: str) -> None:
    page.resize(420, 900)
    opened(page, url)
    shows(page, ".tiles", "Live writers")
    assert page.run("document.documentElement.scrollWidth") <= 420
    page.screenshot(PICTURES / "narrow.png")


def test_names_stay_text(page: Page, url: str) -> None:
    opened(page, url)
    shows(page, ".head", TABLE_NAME)
    for view in ("overview", "services", "files"):
        page.run(f"location.hash = '#/0/{view}'")
        page.until("document.querySelectorAll('main .panel').length > 0")
        assert page.run("document.querySelectorAll('main img, main script, main b').length") == 0
    page.until("window.hacked === undefined")


def test_what_happens_is_seen_without_a_reload(page: Page, url: str, staged: Scene) -> None:
    opened(page, url)
    page.run("window.same = true")
    with tl.Table.open(staged.uri, options=OPTIONS) as table:
        instant = table.upsert(rows(5, ts=99, day="d3")).instant
    page.until(f"!!document.querySelector('[data-instant=\"{instant}\"].s-completed')")
    assert page.run("window.same") is True


def test_the_button_changes_light_and_dark_and_it_is_kept(page: Page, url: str) -> None:
    opened(page, url)
    color = "getComputedStyle(document.body).backgroundColor"
    before = page.run(color)
    page.click("#theme")
    page.until(f"{color} !== {before!r}")
    page.reload()
    page.until(f"{color} !== {before!r}")
    page.run("localStorage.clear()")


def test_an_operator_signs_in_confirms_and_cancels_a_plan(page: Page, tmp_path: Path) -> None:
    with scene(tmp_path / "t", commits=2) as found, dashboard(found.uri, acts=True) as url:
        opened(page, url, "services")
        page.click("#who button")
        page.until("document.getElementById('dialog').open")
        page.type(TOKEN)
        page.press("Enter")
        shows(page, "#who", "operator")
        page.click("main button.danger")
        page.until("document.getElementById('dialog').open")
        page.screenshot(PICTURES / "confirm.png")
        assert page.run("document.querySelector('#dialog [type=submit]').disabled") is True
        page.type(found.clustering)
        page.click("#dialog [type=submit]")
        page.until(f"!document.querySelector('main').innerText.includes('{found.clustering}')")
        page.open("about:blank")


def test_five_thousand_instants_load_at_once_and_scroll(page: Page, tmp_path: Path) -> None:
    long_timeline(tmp_path / "t", 5_000)
    with dashboard(str(tmp_path / "t")) as url:
        began = time.monotonic()
        page.open(f"{url}#/0/timeline")
        shows(page, "main", "5,000 of 5,000 instants")
        page.until("document.querySelectorAll('.bar-row').length > 10")
        took_s = time.monotonic() - began
        assert page.run("document.querySelectorAll('.bar-row').length") < 100
        page.run("document.querySelector('.gantt').scrollTop = 60000")
        page.until(
            "[...document.querySelectorAll('.bar-row')].every("
            "row => row.dataset.instant < '20260101015000000')"
        )
        page.screenshot(PICTURES / "timeline-5000.png")
        (PICTURES / "timeline-5000.txt").write_text(f"loaded in {took_s:.2f} s\n")
        page.open("about:blank")
