// The other views: the whole timeline, services, conflicts, files and the ledger.

import { actionButton } from "./actions.js";
import { fill, h, panel, tableOf } from "./dom.js";
import { ago, bytes, clock, counted, duration, kind, moment, now, number, owner, stamp } from "./format.js";
import { Gantt } from "./gantt.js";
import { conflictTable, isAlive, isLost, ledgerTable } from "./overview.js";
import { bars } from "./plots.js";
import { call } from "./state.js";

export function timeline({ state, open }) {
  const view = panel("Timeline", "w12");
  const gantt = new Gantt({ height: "max(320px, calc(100vh - 196px))", onchoose: open, minimap: true, isLost: (instant) => isLost(state, instant) });
  const words = h("input", { type: "search", placeholder: "instant, writer, operation…", "aria-label": "Filter", oninput: () => draw() });
  const which = h("select", { "aria-label": "State", onchange: () => draw() }, [["", "all states"], ["running", "running"], ["completed", "completed"], ["undone", "rolled back"]].map(([value, text]) => h("option", { value }, text)));
  const action = h("select", { "aria-label": "Action", onchange: () => draw() }, h("option", { value: "" }, "all actions"));
  view.node.querySelector("header").append(words, which, action);
  fill(view.body, h("div", { class: "body" }, gantt.map), gantt.node).className = "flush";

  function draw() {
    const text = words.value.trim().toLowerCase();
    const rows = state.ordered.filter((row) =>
      (!which.value || (which.value === "running" ? row.state === "requested" || row.state === "inflight" : row.state === which.value)) &&
      (!action.value || row.action === action.value) &&
      (!text || [row.requested, row.owner, row.operation, row.action].some((part) => part.toLowerCase().includes(text))));
    gantt.show(rows);
    const unread = state.sections.history?.unread ?? 0;
    view.more.textContent = `${number(rows.length)} of ${number(state.ordered.length)} instants${unread ? `, details of ${number(unread)} not loaded yet` : ""}`;
  }

  function actions() {
    const known = new Set([...action.options].map((option) => option.value));
    for (const name of new Set(state.ordered.map((row) => row.action))) if (name && !known.has(name)) action.append(h("option", { value: name }, name));
  }
  return { nodes: [view.node], update(changed) { if (changed.has("instants") || changed.has("history")) { actions(); draw(); } }, tick: () => gantt.later(), choose: (instant) => gantt.choose(instant) };
}

export function services(context) {
  const { state, open, session } = context;
  const plans = panel("Pending plans", "w12"), turns = panel("Priority tickets", "w6"), jobs = panel("Service runs", "w6");
  let known = "";

  function drawPlans() {
    const found = state.sections.services ?? [];
    fill(plans.body, tableOf(["Plan", "Service", "Age", "Executor", "State", "Blocks", ""], found.map((plan) => h("tr", {},
      h("td", {}, h("button", { type: "button", class: "plain mono", onclick: () => open(plan.instant) }, plan.instant)), h("td", {}, kind(plan.action, plan.state)), h("td", { class: "nowrap" }, ago(moment(plan.instant))),
      h("td", {}, owner(plan.owner), plan.host ? h("div", { class: "muted" }, `${plan.host} pid ${plan.pid}`) : null),
      h("td", {}, h("span", { class: `pill ${isAlive(plan) ? "good" : "warn"}` }, plan.next_step), plan.attempt > 1 ? h("div", { class: "muted" }, `attempt ${plan.attempt}`) : null, plan.beat !== null ? h("div", { class: "muted" }, "heartbeat ", ago(plan.beat)) : null),
      h("td", {}, blocks(plan)),
      h("td", { class: "num" }, plan.removable && plan.ours && session().may.includes("cancel-plan") ? actionButton(context, "Cancel…", "cancel-plan", plan.instant, "Its files are removed. The next run schedules a new plan.") : null))), "No pending plans.")).className = "flush";
  }

  function drawTurns() {
    fill(turns.body, tableOf(["Ledger entry", "Write", "Writer", "File groups"], (state.sections.turns ?? []).map((turn) => h("tr", { class: "link", onclick: () => open(turn.instant) },
      h("td", {}, number(turn.position)), h("td", { class: "mono" }, turn.instant), h("td", {}, owner(turn.owner)), h("td", {}, groupNames(turn)))), "No waiting writers.")).className = "flush";
  }

  async function drawJobs() {
    const found = await call(`${state.path}/jobs`);
    const text = JSON.stringify([found, session().may]);
    if (text === known) return;
    known = text;
    const buttons = session().may.includes("run-service") ? h("div", { class: "body row" }, session().services.map((name) => actionButton(context, `Run ${name}…`, "run-service", name, "The service runs in the dashboard process."))) : h("p", { class: "body empty" }, "Sign in with a token to run a service.");
    fill(jobs.body, buttons, found.length ? tableOf(["Service", "Started", "Took", "Result"], found.map((job) => h("tr", {}, h("td", {}, job.service, h("div", { class: "muted" }, job.by)), h("td", {}, ago(job.started)),
      h("td", {}, job.ended === null ? "…" : duration(job.ended - job.started)), h("td", { class: "wrap" }, h("span", { class: `pill ${job.ended === null ? "warn" : job.failed ? "bad" : "good"}` }, job.ended === null ? "running" : job.failed ? "failed" : "done"), " ", job.ended === null ? "" : job.says))), "") : null).className = "flush";
  }
  return {
    nodes: [plans.node, turns.node, jobs.node],
    update(changed) { if (changed.has("services") || changed.has("session")) drawPlans(); if (changed.has("turns")) drawTurns(); drawJobs().catch(() => {}); },
    tick: () => drawJobs().catch(() => {}),
  };
}

function blocks(plan) {
  const lines = [h("div", {}, `${counted(plan.group_count, "file group")} excluded from other plans and from cleaning; later instants are not archived`)];
  if (plan.meets.length) lines.push(h("div", {}, "Running writes on the same file groups: ", plan.meets.map((each) => [owner(each.owner), ` ${each.operation} `])));
  return [...lines, groupNames(plan)];
}

export function groupNames({ groups, group_count: count }, most = 8) {
  if (!groups.length) return null;
  const more = count > most ? h("span", { class: "muted", title: groups.join("\n") }, `and ${number(count - most)} more`) : null;
  return h("div", { class: "groups" }, groups.slice(0, most).map((name) => h("code", {}, name)), more);
}

export function conflicts({ state, open }) {
  const plot = panel("Conflicts over time", "w12"), list = panel("Conflicts", "w12");
  return {
    nodes: [plot.node, list.node],
    update(changed) {
      if (!changed.has("conflicts")) return;
      const { count, shown } = state.sections.conflicts;
      list.more.textContent = count > shown.length ? `the last ${number(shown.length)} of ${number(count)}` : `${number(count)}`;
      const points = shown.map((each) => ({ at: moment(each.time), kind: each.ended ? "commit" : "undone" }));
      fill(plot.body, points.length ? bars("Conflicts over time", points, { from: Math.min(...points.map((p) => p.at), state.ordered.at(-1)?.from ?? Infinity), until: Math.max(...points.map((p) => p.at), state.ordered[0]?.from ?? 0) + 1, width: plot.body.clientWidth - 28 }) : h("p", { class: "empty" }, "No conflicts."));
      plot.more.replaceChildren(h("span", { class: "legend" }, h("span", { class: "kind k-commit" }, h("i", { class: "dot" }), "rebased"), h("span", { class: "kind s-undone" }, h("i", { class: "dot" }), "aborted, rolled back or waiting")));
      fill(list.body, tableOf(["Time", "Write", "Writer", "Conflicted with", "Resolution", "Committed as", "File groups", "Reason"], shown.map((each) => h("tr", { class: "link", onclick: () => open(each.instant) },
        h("td", { class: "mono" }, clock(moment(each.time) ?? 0)), h("td", { class: "mono" }, each.instant), h("td", {}, owner(each.owner)),
        h("td", {}, each.overtaken_by.map((by, at) => h("div", { class: "mono" }, by, " ", each.rivals[at] ? owner(each.rivals[at]) : null))),
        h("td", {}, h("span", { class: `pill ${each.ended ? "good" : each.overtaken_by.length ? "warn" : ""}` }, each.solved)),
        h("td", { class: "mono" }, each.ended || "–"), h("td", {}, groupNames(each, 2)), h("td", { class: "wrap muted", title: each.reason }, each.reason.split(": ").at(-1)))), "No conflicts.")).className = "flush";
    },
  };
}

export { conflictTable };

export function files({ state }) {
  const depth = panel("Log files per file group", "w4"), space = panel("Bytes by partition", "w8"), list = panel("Partitions", "w12");
  let sort = "partition", order = 1, found = null, position = -1;
  space.more.replaceChildren(h("span", { class: "legend" }, h("span", { class: "kind k-commit" }, h("i", { class: "dot" }), "base files"), h("span", { class: "kind k-compaction" }, h("i", { class: "dot" }), "log files")));

  async function load() {
    const at = state.sections.table?.position ?? 0;
    if (at === position) return;
    position = at;
    found = await call(`${state.path}/files`);
    draw();
  }

  function draw() {
    const most = Math.max(1, ...found.partitions.map((each) => each.base_bytes + each.log_bytes));
    list.more.textContent = `${number(found.partition_count)} partitions, as of entry ${number(found.position)}`;
    const rows = found.partitions.slice().sort((a, b) => (a[sort] < b[sort] ? -order : a[sort] > b[sort] ? order : 0));
    const heads = [["partition", "Partition"], ["groups", "File groups"], ["base_files", "Base files"], ["base_bytes", "Base bytes"], ["smallest", "Smallest"], ["largest", "Largest"], ["small_files", "Small files"], ["log_files", "Log files"], ["log_bytes", "Log bytes"], ["log_depth", "Most logs per group"], ["in_plans", "In plans"]];
    fill(list.body, tableOf(heads.map(([name, text]) => ({ text: sort === name ? `${text} ${order > 0 ? "↑" : "↓"}` : text, props: { "data-sort": name, class: name === "partition" ? "" : "num", onclick: () => { order = sort === name ? -order : name === "partition" ? 1 : -1; sort = name; draw(); } } })),
      rows.slice(0, 500).map((each) => h("tr", {}, h("td", { class: "wrap" }, each.partition || h("span", { class: "faint" }, "(not partitioned)")), ...heads.slice(1).map(([name]) => h("td", { class: "num" }, /bytes|est$/.test(name) ? bytes(each[name]) : name === "log_depth" && each[name] > 10 ? h("span", { class: "pill warn" }, each[name]) : number(each[name]))))), "The table has no files.")).className = "flush";
    const largest = found.partitions.slice().sort((a, b) => b.base_bytes + b.log_bytes - a.base_bytes - a.log_bytes).slice(0, 8);
    fill(space.body, largest.length ? h("div", { class: "stack" }, largest.map((each) => h("div", {}, h("div", { class: "row" }, h("span", { class: "cut" }, each.partition || "(not partitioned)"), h("span", { class: "muted" }, `${bytes(each.base_bytes)} base, ${bytes(each.log_bytes)} log`)),
      h("div", { class: "meter" }, h("i", { class: "base", style: { width: `${(each.base_bytes / most) * 100}%` } }), h("i", { class: "log", style: { width: `${(each.log_bytes / most) * 100}%` } }))))) : h("p", { class: "empty" }, "The table has no files."));
    const ranges = depthRanges(found.depths), top = Math.max(1, ...ranges.map(([, groups]) => groups));
    fill(depth.body, h("div", { class: "stack" }, ranges.map(([name, groups, deep]) => h("div", {}, h("div", { class: "row" }, h("span", {}, name), h("span", { class: "muted" }, counted(groups, "file group"))),
      h("div", { class: "meter" }, h("i", { class: deep ? "warn" : "", style: { width: `${(groups / top) * 100}%` } }))))));
  }
  const failed = (error) => fill(list.body, h("p", { class: "empty wrap" }, error.message));
  return { nodes: [depth.node, space.node, list.node], update: () => load().catch(failed) };
}

const DEPTHS = [[0, 0], [1, 1], [2, 4], [5, 9], [10, 19], [20, 49], [50, 99], [100, Infinity]];

function depthRanges(depths) {
  return DEPTHS.map(([low, high]) => {
    const groups = depths.filter(([logs]) => logs >= low && logs <= high).reduce((sum, [, count]) => sum + count, 0);
    const name = low === 0 ? "no log files" : low === high ? `${low} log file` : high === Infinity ? `${low} or more` : `${low} to ${high}`;
    return [name, groups, low >= 10];
  }).filter(([, groups]) => groups);
}

export function ledger({ state, open }) {
  const list = panel("Ledger, newest first", "w12");
  let older = [];
  const more = h("button", { type: "button", onclick: () => load().catch((error) => { more.textContent = error.message; }) }, "Older entries");

  async function load() {
    const shown = [...(state.sections.entries ?? []), ...older];
    const next = await call(`${state.path}/entries?before=${shown.at(-1)?.position ?? 0}`);
    older = [...older, ...next];
    if (!next.length) more.hidden = true;
    draw();
  }

  function draw() {
    const tail = state.sections.entries ?? [], last = tail.at(-1)?.position ?? 0;
    const shown = [...tail, ...older.filter((entry) => entry.position < last)];
    list.more.textContent = `${number(shown.length)} of ${number(state.sections.table?.position)} entries`;
    fill(list.body, ledgerTable(shown, open), h("div", { class: "body" }, more)).className = "flush";
  }
  return { nodes: [list.node], update(changed) { if (changed.has("entries") || changed.has("table")) draw(); } };
}
