// The overview of a table.

import { actionButton } from "./actions.js";
import { fill, h, panel, tableOf } from "./dom.js";
import { ago, bytes, counted, duration, kind, moment, now, number, owner, stamp } from "./format.js";
import { Gantt } from "./gantt.js";
import { bars, latencies } from "./plots.js";
import { percentile } from "./state.js";

export function overview(context) {
  const { state, open, session } = context;
  const head = h("div", { class: "head" }), tiles = h("dl", { class: "tiles" });
  const gantt = new Gantt({ height: "342px", onchoose: open, isLost: (instant) => isLost(state, instant) });
  const recent = panel("Latest instants", "w8");
  fill(recent.body, gantt.node).className = "fills";
  const writers = panel("Live writers", "w4"), lock = panel("Table lock", "w4");
  const rate = panel("Throughput", "w4"), speed = panel("Commit latency", "w4");
  const services = panel("Pending services", "w4"), ledger = panel("Ledger tail", "w4"), conflicts = panel("Conflicts", "w4");
  const side = h("div", { class: "w4 stack" }, writers.node, lock.node);
  const nodes = [head, tiles, recent.node, side, rate.node, speed.node, services.node, ledger.node, conflicts.node];
  const measure = measureChoice(() => plots(state, rate, speed, measure.value));
  rate.more.append(measure);
  side.style.setProperty("align-content", "start");
  ledger.node.className = "panel w6";
  conflicts.node.className = "panel w6";

  const draw = {
    table: () => fill(head, ...heading(state)),
    instants: () => { gantt.show(state.ordered.slice(0, 200)); plots(state, rate, speed, measure.value); },
    writers: () => drawWriters(writers, state, open),
    lock: () => fill(lock.body, lockNode(state.sections.lock, session(), context)),
    services: () => { fill(services.body, serviceList(state, open)); services.more.textContent = ""; },
    entries: () => { fill(ledger.body, ledgerTable((state.sections.entries ?? []).slice(0, 10), open, { brief: true })).className = "flush"; },
    conflicts: () => { fill(conflicts.body, conflictTable((state.sections.conflicts?.shown ?? []).slice(0, 10), open)).className = "flush"; },
  };
  const summed = ["instants", "writers", "lock", "services", "conflicts"];
  return {
    nodes,
    update(changed) {
      for (const [name, act] of Object.entries(draw)) if (changed.has(name)) act();
      if (summed.some((name) => changed.has(name))) fill(tiles, tileNodes(state));
    },
    tick() { gantt.later(); drawWriters(writers, state, open); fill(tiles, tileNodes(state)); const soon = state.sections.lock; if (soon?.valid_until) fill(lock.body, lockNode(soon, session(), context)); },
  };
}

function heading(state) {
  const table = state.sections.table;
  if (!table) return [];
  const facts = [table.type === "MERGE_ON_READ" ? "merge-on-read" : "copy-on-write", `version ${table.version}`,
    table.key.length ? `key ${table.key.join(", ")}` : "no key", table.partitioned_by.length ? `partitioned by ${table.partitioned_by.join(", ")}` : "not partitioned"];
  return [h("h1", {}, table.name), h("code", { class: "muted wrap" }, table.uri), h("span", { class: "muted" }, facts.join(" · ")),
    table.foreign && h("span", { class: "pill" }, "also written by Java")];
}

function tileNodes(state) {
  const commits = state.commits(), recently = commits.filter((row) => row.until > now() - 300_000);
  const times = commits.slice(0, 200).map((row) => row.took).sort((a, b) => a - b);
  const writers = state.sections.writers ?? [], alive = writers.filter(isAlive), plans = state.sections.services ?? [];
  const conflicts = state.sections.conflicts ?? { count: 0, shown: [] }, rebased = conflicts.shown.filter((each) => each.ended).length;
  const lock = state.sections.lock;
  const last = commits[0];
  return [
    tile("Commits, last 5 min", number(recently.length), last ? ["last ", ago(last.until)] : "none yet", recently.length ? `${(recently.length / 5).toFixed(1)}/min` : ""),
    tile("Commit latency, median", times.length ? duration(percentile(times, 0.5)) : "–", times.length ? `95 % within ${duration(percentile(times, 0.95))}` : "of the last 200"),
    tile("Live writers", String(alive.length), writers.length > alive.length ? `${writers.length - alive.length} without a heartbeat` : writers.length ? "all with a heartbeat" : "no active writers"),
    tile("Table lock", lock ? (lock.exists ? lock.condition : "unused") : "–", lock?.waiters ? `${number(lock.waiters)} waiting` : lock?.exists ? lock.meaning : "not needed: commits go through the ledger"),
    tile("Plans pending", String(plans.length), plans.length ? `${plans.filter(isAlive).length} being executed` : "none pending"),
    tile("Conflicts", number(conflicts.count), conflicts.count ? `${rebased} of the last ${conflicts.shown.length} rebased` : "none"),
  ];
}

function tile(name, value, below, unit = "") {
  return h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value, unit && [" ", h("small", {}, unit)]), h("p", { class: "cut" }, below));
}

// An unfinished write without a live heartbeat.
export function isLost(state, instant) {
  return (state.sections.writers ?? []).some((writer) => writer.instant === instant && !isAlive(writer));
}

export function isAlive(each) {
  return each.beat !== null && now() - each.beat <= each.life;
}

function drawWriters(view, state, open) {
  const writers = (state.sections.writers ?? []).slice().reverse();
  view.more.textContent = writers.length ? `${writers.length}` : "";
  fill(view.body, writers.length ? writers.slice(0, 8).map((writer) => writerNode(writer, open)) : h("p", { class: "empty" }, "No active writers.")).className = "body stack";
}

function writerNode(writer, open) {
  const alive = isAlive(writer), age = writer.beat === null ? null : now() - writer.beat;
  const share = age === null || !writer.life ? 1 : Math.min(1, age / writer.life);
  const level = !alive ? "bad" : share > 0.5 ? "warn" : "";
  return h("div", {},
    h("div", { class: "row" }, h("button", { type: "button", class: "plain mono", onclick: () => open(writer.instant) }, writer.instant.slice(8, 14).replace(/(..)(..)(..)/, "$1:$2:$3")),
      kind(writer.action, writer.state), h("span", { class: "muted cut" }, writer.operation.toLowerCase()), owner(writer.owner),
      h("span", { class: `pill ${alive ? "good" : "bad"}` }, alive ? "alive" : "no heartbeat")),
    h("div", { class: "muted cut" }, writer.host ? `${writer.host} pid ${writer.pid} · ` : "", writer.beat === null ? "no heartbeat file" : ["heartbeat ", ago(writer.beat)],
      writer.group_count ? ` · ${counted(writer.group_count, "file group")}` : ""),
    h("div", { class: "meter", title: "age of the heartbeat, relative to its lifetime" }, h("i", { class: level, style: { width: `${share * 100}%` } })));
}

export function lockNode(lock, session, context) {
  if (!lock || !lock.exists) return h("p", { class: "empty" }, "The storage lock was never acquired. Commits go through the ledger.");
  if (lock.problem) return h("p", { class: "wrap" }, lock.problem);
  const left = lock.valid_until === null ? null : lock.valid_until - now(), stored = lock.provider === "storage";
  const level = { held: "good", free: "", lapsed: "warn", dead: "warn", unreadable: "bad" }[lock.condition] ?? "";
  const holder = lock.owner ? [h("dt", {}, lock.condition === "held" ? "Holder" : "Last holder"), h("dd", {}, owner(lock.owner), lock.java ? " a Java writer" : "")] : null;
  return h("div", { class: "stack" },
    h("div", { class: "row" }, h("span", { class: `pill ${level}` }, lock.condition), h("span", { class: "muted" }, stored ? lock.meaning : `${lock.provider}: ${lock.meaning}`)),
    h("dl", { class: "facts" }, holder, lock.token ? [h("dt", {}, "Token"), h("dd", {}, number(lock.token))] : null,
      lock.written !== null ? [h("dt", {}, stored ? "Written" : "Since"), h("dd", {}, ago(lock.written))] : null,
      left !== null ? [h("dt", {}, "Lease"), h("dd", {}, left > 0 ? `${duration(left)} left` : `expired ${duration(left)} ago`)] : null,
      h("dt", {}, "Waiting"), h("dd", { class: "waiting" }, waitingNode(lock))),
    stored && lock.valid_until !== null && session.may.includes("force-release") ? actionButton(context, "Force release…", "force-release", lock.owner, "The holder notices at its next renewal. Until then, it may still assume that it holds the lock.") : null);
}

// Locks without a queue: Tidelock writers announce that they wait, Java writers do not.
function waitingNode(lock) {
  if (!lock.waiters) return h("span", { class: "muted", title: "for a second or longer; for a lock without a queue, waiting Java writers are not known" }, "none known");
  if (!lock.waiting.length) return number(lock.waiters);
  return lock.waiting.map((each) => h("div", {}, owner(each.owner), h("span", { class: "muted" }, ` for ${duration(now() - each.since)} · ${each.host} pid ${each.pid}`)));
}

export function serviceList(state, open) {
  const plans = state.sections.services ?? [];
  if (!plans.length) return h("p", { class: "empty" }, "No pending plans.");
  return h("div", { class: "stack" }, plans.slice(0, 6).map((plan) => h("div", {},
    h("div", { class: "row" }, kind(plan.action, plan.state), h("button", { type: "button", class: "plain mono", onclick: () => open(plan.instant) }, plan.instant)),
    h("div", { class: "muted" }, plan.next_step, ` · ${counted(plan.group_count, "file group")}`, plan.meets.length ? ` · conflicts with ${plan.meets.length} running writes` : ""))));
}

export function ledgerTable(entries, open, { brief = false } = {}) {
  return tableOf([{ text: "#", props: { class: "num" } }, "Time", "Entry", "What", "Writer"], entries.map((entry) => h("tr", { class: "link", onclick: () => entry.instant && open(entry.instant) },
    h("td", { class: "num mono" }, entry.position), h("td", { class: "mono" }, entry.time.slice(8, 14).replace(/(..)(..)(..)/, "$1:$2:$3")),
    h("td", {}, entry.kind), h("td", { class: "wrap", title: brief ? entry.what : null }, brief && entry.what.length > 60 ? `${entry.what.slice(0, 58)}…` : entry.what), h("td", {}, owner(entry.owner)))), "The ledger is empty.");
}

export function conflictTable(conflicts, open) {
  return tableOf(["Time", "Write", "Conflicted with", "Resolution"], conflicts.map((each) => h("tr", { class: "link", onclick: () => open(each.instant) },
    h("td", { class: "mono", title: stamp(moment(each.time)) }, each.time.slice(8, 14).replace(/(..)(..)(..)/, "$1:$2:$3")), h("td", {}, owner(each.owner)),
    h("td", {}, each.rivals.length ? each.rivals.map((name) => [owner(name), " "]) : h("span", { class: "faint" }, each.overtaken_by.length ? "see the instant" : "–")),
    h("td", {}, h("span", { class: `pill ${each.ended ? "good" : each.overtaken_by.length ? "warn" : ""}` }, each.solved)))), "No conflicts.");
}

const MEASURES = { commits: ["Commits", () => 1, number], rows: ["Rows", (point) => point.rows, number], bytes: ["Bytes", (point) => point.bytes, bytes] };

function measureChoice(onchange) {
  return h("select", { "aria-label": "Measure", onchange }, Object.entries(MEASURES).map(([name, [text]]) => h("option", { value: name }, text.toLowerCase())));
}

function plots(state, rate, speed, measure) {
  const commits = state.commits().slice(0, 2000);
  if (!commits.length) { for (const view of [rate, speed]) fill(view.body, h("p", { class: "empty" }, "No commits yet.")); return; }
  const until = Math.max(...commits.slice(0, 50).map((row) => row.until)), from = Math.min(...commits.slice(0, 1000).map((row) => row.from));
  const points = commits.map((row) => ({ at: row.until, took: row.took, kind: row.action, rows: row.rows ?? 0, bytes: row.bytes ?? 0 }));
  const undone = state.ordered.slice(0, 2000).filter((row) => row.state === "undone" && row.until !== null).map((row) => ({ at: row.until, kind: "undone", rows: 0, bytes: 0 }));
  const [, value, show] = MEASURES[measure];
  fill(rate.body, bars("Throughput", [...points, ...undone], { from, until, width: rate.body.clientWidth - 28, value, show }));
  fill(speed.body, latencies("Commit latency", points, { from, until, width: speed.body.clientWidth - 28 }));
  speed.more.textContent = `the last ${number(commits.length)}, with the median`;
}
