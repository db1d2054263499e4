// The state of one table on the page, updated with the changes from the server.

import { moment, setNow } from "./format.js";

const NAMES = ["requested", "action", "state", "completion", "owner", "operation", "rebased", "position", "foreign", "rows", "bytes", "files"];

const ENTRIES_KEPT = 2000, CONFLICTS_KEPT = 500;

export class Unauthorised extends Error {}

export async function call(path, options = {}) {
  const reply = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options });
  if (reply.status === 304) return null;
  const body = await reply.json();
  if (reply.ok) return body;
  const told = body.error ?? { message: reply.statusText, hint: "" };
  const text = told.hint ? `${told.message} (${told.hint})` : told.message;
  throw reply.status === 401 || reply.status === 403 ? new Unauthorised(text) : new Error(text);
}

export class TableState {
  constructor(number) {
    this.path = `/api/tables/${number}`;
    this.instants = new Map();
    this.ordered = [];
    this.done = null;
    this.sections = {};
    this.boot = "";
    this.version = 0;
    this.ready = new Promise((done) => { this.loaded = done; });
  }

  // Fetch the changes; return the names of the changed sections.
  async refresh() {
    const found = await call(`${this.path}?boot=${this.boot}&after=${this.version}`);
    if (found === null) return new Set();
    return this.take(found);
  }

  take(found) {
    const { boot, version, now, full, instants, gone, ...sections } = found;
    setNow(now);
    if (full) { this.instants.clear(); this.sections = {}; }
    for (const cells of instants) {
      const row = Object.fromEntries(NAMES.map((name, at) => [name, cells[at]]));
      row.from = moment(row.requested);
      row.until = moment(row.completion);
      row.took = row.until !== null && row.from !== null ? Math.max(0, row.until - row.from) : null;
      this.instants.set(row.requested, row);
    }
    for (const key of gone) this.instants.delete(key);
    const changed = new Set(Object.keys(sections));
    // The server only sends new items of these two.
    if (sections.entries) sections.entries = merged(this.sections.entries, sections.entries, ENTRIES_KEPT);
    if (sections.conflicts) sections.conflicts.shown = merged(this.sections.conflicts?.shown, sections.conflicts.shown, CONFLICTS_KEPT);
    Object.assign(this.sections, sections);
    if (full || instants.length || gone.length) {
      // Newest first.
      this.ordered = [...this.instants.values()].sort((a, b) => (a.requested < b.requested ? 1 : -1));
      this.done = null;
      changed.add("instants");
    }
    this.boot = boot;
    this.version = version;
    this.loaded();
    return changed;
  }

  // Completed writes of users, newest first.
  commits() {
    this.done ??= this.ordered.filter((row) => row.state === "completed" && row.took !== null && row.action !== "clean");
    return this.done;
  }
}

// Items by ledger position, newest first; a new version of an item replaces the old one.
function merged(known = [], fresh, most) {
  const all = new Map([...known, ...fresh].map((each) => [`${each.position}/${each.instant}`, each]));
  return [...all.values()].sort((a, b) => b.position - a.position).slice(0, most);
}

export function percentile(sorted, share) {
  if (!sorted.length) return null;
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}
