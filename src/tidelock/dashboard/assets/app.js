// The page: selects the table and the view, and polls for changes.

import { signIn } from "./actions.js";
import { fill, h } from "./dom.js";
import { show } from "./drawer.js";
import { tick } from "./format.js";
import { overview } from "./overview.js";
import { TableState, Unauthorised, call } from "./state.js";
import { conflicts, files, ledger, services, timeline } from "./views.js";

const VIEWS = { overview: ["Overview", overview], timeline: ["Timeline", timeline], services: ["Services", services], conflicts: ["Conflicts", conflicts], files: ["Files", files], ledger: ["Ledger", ledger] };
const ALL = new Set(["table", "instants", "writers", "services", "lock", "turns", "entries", "conflicts", "history", "session"]);
const POLL_MS = 1000, SLOW_MS = 5000;
const [main, drawer, live, problem] = ["main", "drawer", "live", "problem"].map((id) => document.getElementById(id));

let tables = [], session = { name: "", csrf: "", may: [], services: [] };
let state = null, view = null, place = {}, answered = 0, timer = 0;
const states = new Map();

function route() {
  const [, table = "0", name = "overview", instant = ""] = /^#\/(\d+)?\/?([a-z]+)?\/?(\d+)?$/.exec(location.hash) ?? [];
  return { table: Number(table) < tables.length ? Number(table) : 0, name: name in VIEWS ? name : "overview", instant };
}

const link = (table, name, instant = "") => `#/${table}/${name}${instant ? `/${instant}` : ""}`;
const open = (instant) => { location.hash = link(place.table, place.name, instant); };
const close = () => { location.hash = link(place.table, place.name); };

function go() {
  const before = place;
  place = route();
  if (!states.has(place.table)) states.set(place.table, new TableState(place.table));
  state = states.get(place.table);
  if (before.table !== place.table || before.name !== place.name) mount();
  view.choose?.(place.instant);
  if (place.instant) show(drawer, state, place.instant, { open, close });
  else drawer.hidden = true;
  document.title = `${tables[place.table]?.name ?? ""} · tidelock`;
}

function mount() {
  view = VIEWS[place.name][1]({ state, open, session: () => session, say });
  fill(main, view.nodes);
  if (state.version) update(ALL);
  drawNav();
  poll();
}

function drawNav() {
  const plans = state.sections.services?.length, count = state.sections.conflicts?.count;
  const badges = { services: plans ? h("span", { class: "badge warn" }, plans) : null, conflicts: count ? h("span", { class: "badge" }, count) : null };
  fill(document.getElementById("views"), Object.entries(VIEWS).map(([name, [title]]) => h("a", { href: link(place.table, name), "aria-current": name === place.name ? "page" : null }, title, badges[name] ?? null)));
  const names = tables.map((table, at) => h("option", { value: at, selected: at === place.table }, table.name));
  if (document.activeElement?.tagName === "SELECT" && document.activeElement.parentElement?.id === "tables") return;
  fill(document.getElementById("tables"), tables.length > 1 ? h("select", { "aria-label": "Table", onchange: (event) => { location.hash = link(event.target.value, place.name); } }, names) : h("strong", { class: "cut" }, tables[0]?.name ?? ""));
}

function drawWho() {
  const act = session.name ? [h("span", { class: "pill good" }, session.name), " ", h("button", { type: "button", class: "plain", onclick: signOut }, "Sign out")]
    : session.may_sign_in ? h("button", { type: "button", onclick: () => signIn(signedIn) }, "Sign in") : h("span", { class: "pill", title: "started without a token: actions are disabled" }, "read-only");
  fill(document.getElementById("who"), act);
}

function signedIn(found) {
  session = found;
  drawWho();
  if (tables.length) { update(ALL); poll(); } else start();
}

async function signOut() {
  signedIn(await call("/api/session", { method: "DELETE" }));
}

function say(text) {
  live.textContent = text;
  clearTimeout(timer);
  timer = setTimeout(poll, 300);
}

function update(changed) {
  view.update(changed);
  if (changed.has("services") || changed.has("conflicts")) drawNav();
  if (changed.has("problem")) { problem.hidden = !state.sections.problem; problem.textContent = state.sections.problem; }
}

async function poll() {
  clearTimeout(timer);
  const polled = state;
  try {
    const began = performance.now();
    const changed = await polled.refresh();
    if (polled === state && changed.size) {
      update(changed);
      performance.measure("update", { start: began });
    }
    answered = Date.now();
    live.className = "live";
    live.textContent = "live";
  } catch (error) {
    live.className = `live ${Date.now() - answered > 15_000 ? "dead" : "stale"}`;
    live.textContent = "offline";
    live.title = error.message;
    if (error instanceof Unauthorised) signIn(signedIn);
  }
  // A hidden page is refreshed less often.
  timer = setTimeout(poll, document.hidden ? SLOW_MS : POLL_MS);
}

function theme() {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const label = () => { button.textContent = dark() ? "☾" : "☀"; };
  const stored = localStorage.getItem("tidelock-theme");
  if (stored === "light" || stored === "dark") root.dataset.theme = stored;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; localStorage.setItem("tidelock-theme", root.dataset.theme); label(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();
}

async function start() {
  session = await call("/api/session");
  drawWho();
  if (session.must_sign_in) { signIn(signedIn); return; }
  tables = await call("/api/tables");
  go();
}

theme();
addEventListener("hashchange", go);
addEventListener("keydown", (event) => { if (event.key === "Escape" && place.instant && !document.getElementById("dialog").open) close(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && state) poll(); });
setInterval(() => { if (view && !document.hidden) { tick(); view.tick?.(); } }, 1000);
start().catch((error) => { problem.hidden = false; problem.textContent = error.message; });
