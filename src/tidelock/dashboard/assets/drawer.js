// All details of one instant: its timeline files, heartbeat, ledger entries and written files.

import { fill, h, tableOf } from "./dom.js";
import { ago, bytes, clock, counted, duration, kind, moment, number, owner, stamp, stateName } from "./format.js";
import { conflictTable } from "./overview.js";
import { call } from "./state.js";

export async function show(drawer, state, requested, { open, close }) {
  drawer.hidden = false;
  drawer.dataset.instant = requested;
  const what = h("span", {});
  const head = h("header", {}, h("h2", { class: "mono" }, requested), what, h("button", { type: "button", class: "plain", style: { "margin-left": "auto" }, onclick: close, "aria-label": "Close" }, "✕"));
  fill(drawer, head, h("p", { class: "empty" }, "Loading…"));
  let found;
  try {
    found = await call(`${state.path}/instants/${requested}`);
    // A link to an instant opens it before the table is loaded.
    await state.ready;
  } catch (error) {
    fill(drawer, head, h("p", { class: "wrap" }, error.message));
    return;
  }
  if (drawer.dataset.instant !== requested) return;
  const row = state.instants.get(requested);
  if (row) fill(what, kind(row.action, row.state));
  fill(drawer, head, summary(row, found), states(found), heartbeat(found), plan(found), wrote(found), ledger(found, open), conflicts(found, open), writing(found));
}

function part(title, ...body) {
  return [h("h3", {}, title), ...body];
}

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function summary(row, found) {
  if (!row) return null;
  return facts([
    ["State", stateName(row.state)], ["Operation", row.operation.toLowerCase()], ["Writer", row.owner ? h("code", {}, row.owner) : "–"],
    ["Requested", stamp(row.from)], [row.state === "undone" ? "Rolled back" : "Completed", row.until === null ? "not yet" : stamp(row.until)],
    ["Took", row.took === null ? null : duration(row.took)], ["Rebased", row.rebased ? counted(row.rebased, "time") : null],
    ["Ledger entry", row.position || null], ["Wrote", row.files === null ? null : `${number(row.rows)} rows, ${number(row.files)} files, ${bytes(row.bytes)}`],
    ["Origin", row.foreign ? "an external writer (not through the ledger)" : null],
  ]);
}

function states(found) {
  return part("On the timeline", tableOf(["File", "State", "Bytes", "Written"], found.states.map((each) => h("tr", {}, h("td", { class: "mono wrap" }, each.file), h("td", {}, each.state), h("td", { class: "num" }, bytes(each.bytes)), h("td", { class: "mono" }, clock(each.written)))), "No files on the timeline."));
}

function heartbeat({ heartbeat: beat }) {
  if (!beat) return null;
  return part("Heartbeat", facts([["Last", ago(beat.beat)], ["From", beat.java ? "a Java writer" : `${beat.host} pid ${beat.pid}`], ["Every", beat.interval ? duration(beat.interval) : null], ["Dead after", beat.life ? duration(beat.life) : null], ["Owner", beat.owner ? h("code", {}, beat.owner) : null]]));
}

function plan({ plan: found }) {
  if (!found) return null;
  return part("Plan", found.problem ? h("p", { class: "wrap" }, h("span", { class: "pill bad" }, "unreadable"), " ", found.problem) : h("p", { class: "muted" }, `readable, ${bytes(found.bytes)}`));
}

function wrote({ wrote: found }) {
  if (!found) return null;
  if (found.problem) return part("Wrote", h("p", { class: "wrap" }, found.problem));
  const extra = Object.entries(found.extra);
  return [
    ...part(`Wrote ${number(found.file_count)} files`, h("div", { class: "flush" }, tableOf(["Partition", "File", { text: "Rows", props: { class: "num" } }, { text: "New", props: { class: "num" } }, { text: "Changed", props: { class: "num" } }, { text: "Bytes", props: { class: "num" } }],
      found.files.map((file) => h("tr", {}, h("td", { class: "wrap" }, file.partition || "–"), h("td", { class: "mono wrap" }, file.file), h("td", { class: "num" }, number(file.rows)), h("td", { class: "num" }, number(file.inserts)), h("td", { class: "num" }, number(file.updates)), h("td", { class: "num" }, bytes(file.bytes)))), "No files."))),
    ...(extra.length ? part("Extra metadata", facts(extra)) : []),
  ];
}

function ledger({ entries }, open) {
  return part("In the ledger", entries.length ? entries.map((entry) => h("div", {}, h("div", { class: "row" }, h("code", {}, `#${entry.position}`), h("strong", {}, entry.kind), h("span", { class: "wrap" }, entry.what), owner(entry.owner), h("span", { class: "muted" }, stamp(moment(entry.time)))), detail(entry.detail))) : h("p", { class: "empty" }, "No ledger entries are loaded."));
}

function detail(found) {
  const groups = found.groups ?? [];
  return [
    found.base !== undefined ? h("p", { class: "muted" }, `based on entry ${found.base}${found.token ? `, lock token ${found.token}` : ""}`) : null,
    groups.length ? h("div", { class: "groups" }, groups.map((name) => h("code", {}, name))) : null,
    found.replaced?.length ? [h("p", { class: "muted" }, "replaced"), h("div", { class: "groups" }, found.replaced.map((name) => h("code", {}, name)))] : null,
  ];
}

function conflicts({ conflicts: found }, open) {
  return found.length ? part("Conflicts", h("div", { class: "flush" }, conflictTable(found, open))) : null;
}

function writing({ writing: groups }) {
  return groups.length ? part("Writing now", h("div", { class: "groups" }, groups.map((name) => h("code", {}, name)))) : null;
}
