// Formats times, durations, sizes and names.

import { h } from "./dom.js";

const PARTS = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d{3})?$/;
const parsed = new Map();

// The time of an instant in milliseconds since the epoch; null if it is not a time.
export function moment(time) {
  if (!time) return null;
  let ms = parsed.get(time);
  if (ms === undefined) {
    const found = PARTS.exec(time);
    ms = found ? Date.UTC(+found[1], +found[2] - 1, +found[3], +found[4], +found[5], +found[6], +(found[7] ?? 999)) : null;
    if (parsed.size > 50000) parsed.clear();
    parsed.set(time, ms);
  }
  return ms;
}

const two = (n) => String(n).padStart(2, "0");

export function clock(ms, { millis = true } = {}) {
  const at = new Date(ms);
  const text = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
  return millis ? `${text}.${String(at.getUTCMilliseconds()).padStart(3, "0")}` : text;
}

export function day(ms) {
  const at = new Date(ms);
  return `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
}

export function stamp(ms) {
  return ms === null ? "–" : `${day(ms)} ${clock(ms)} UTC`;
}

export function duration(ms) {
  const left = Math.abs(ms);
  if (left < 1000) return `${Math.round(left)} ms`;
  if (left < 60_000) return `${(left / 1000).toFixed(left < 10_000 ? 2 : 1)} s`;
  const seconds = Math.round(left / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let value = count, unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function number(count) {
  return count === null || count === undefined ? "–" : count.toLocaleString("en-GB");
}

export function counted(count, thing) {
  return `${number(count)} ${thing}${count === 1 ? "" : "s"}`;
}

// Owners are UUIDs: the first part is shown, the tooltip has the rest.
export function owner(name) {
  if (!name) return h("span", { class: "faint" }, "–");
  return h("code", { title: name }, /^[0-9a-f]{8}-[0-9a-f]{4}-/.test(name) ? name.slice(0, 8) : name.slice(0, 60));
}

export function kind(action, state = "") {
  return h("span", { class: `kind k-${safe(action)} s-${safe(state)}` }, h("i", { class: "dot" }), action || stateName("undone"));
}

export function stateName(state) {
  return state === "undone" ? "rolled back" : state;
}

export function safe(word) {
  return /^[a-z]+$/.test(word) ? word : "";
}

// `skew` is the server's clock minus the browser's.
let skew = 0;

export function setNow(serverMs) {
  skew = serverMs - Date.now();
}

export function now() {
  return Date.now() + skew;
}

export function ago(ms, { life = null } = {}) {
  const node = h("span", { "data-ago": ms, "data-life": life });
  tickOne(node);
  return node;
}

function tickOne(node) {
  const age = now() - Number(node.dataset.ago);
  node.textContent = age >= 0 ? `${duration(age)} ago` : `in ${duration(age)}`;
  if (node.dataset.life) node.classList.toggle("late", age > Number(node.dataset.life));
}

export function tick() {
  for (const node of document.querySelectorAll("[data-ago]")) tickOne(node);
}
