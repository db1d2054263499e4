// The timeline as bars. Only visible rows are in the document, however many rows there are.

import { fill, h, svg } from "./dom.js";
import { clock, day, duration, kind, now, owner, safe } from "./format.js";

const ROW = 24, AXIS = 24;

export class Gantt {
  constructor({ height, onchoose, minimap = false, isLost = () => false }) {
    this.isLost = isLost;
    this.rows = [];
    this.pool = new Map();
    this.onchoose = onchoose;
    this.axis = h("div", { class: "axis" });
    this.space = h("div", { class: "space" });
    this.node = h("div", { class: "gantt", tabindex: "0", role: "list", "aria-label": "Instants", style: { "--gantt-height": height } }, this.axis, this.space);
    this.node.addEventListener("scroll", () => this.later(), { passive: true });
    this.map = minimap ? svg("svg", { class: "minimap", viewBox: "0 0 1000 44", preserveAspectRatio: "none", role: "img", "aria-label": "All instants over time" }) : null;
    this.map?.addEventListener("click", (event) => this.jump(event));
    new ResizeObserver(() => this.later()).observe(this.node);
  }

  show(rows) {
    // Keep the visible rows in place for a reader who has scrolled down: newer rows are added above.
    const anchor = this.node.scrollTop > ROW ? this.rows[Math.floor(this.node.scrollTop / ROW)]?.requested : null;
    this.rows = rows;
    this.space.style.setProperty("height", `${rows.length * ROW}px`);
    if (anchor) {
      const at = rows.findIndex((row) => row.requested === anchor);
      if (at >= 0) this.node.scrollTop = at * ROW + (this.node.scrollTop % ROW);
    }
    this.draw();
    if (this.map) this.drawMap();
  }

  choose(requested) {
    this.chosen = requested;
    this.later();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); this.drawWindow(); });
  }

  visible() {
    const first = Math.max(0, Math.floor(this.node.scrollTop / ROW));
    const count = Math.ceil((this.node.clientHeight - AXIS) / ROW) + 1;
    return [first, Math.min(this.rows.length, first + count)];
  }

  draw() {
    const [first, last] = this.visible();
    const shown = this.rows.slice(first, last);
    const until = Math.max(...shown.map((row) => row.until ?? now()), 0), from = Math.min(...shown.map((row) => row.from ?? until), until);
    const pad = Math.max(1, (until - from) * 0.02);
    this.scale = { from: from - pad, until: until + pad * 5 };
    const kept = new Map();
    shown.forEach((row, at) => {
      const node = this.pool.get(row.requested) ?? this.rowNode();
      this.fillRow(node, row, first + at);
      kept.set(row.requested, node);
    });
    for (const [key, node] of this.pool) if (!kept.has(key)) node.remove();
    for (const node of kept.values()) if (!node.isConnected) this.space.append(node);
    this.pool = kept;
    this.drawAxis();
  }

  rowNode() {
    const bar = h("i", { class: "bar" }), took = h("span", { class: "took" });
    const parts = { time: h("span", { class: "mono" }), kind: h("span", { class: "cut" }), op: h("span", { class: "op cut muted" }), who: h("span", { class: "who cut" }) };
    const node = h("button", { type: "button", class: "bar-row", onclick: () => this.onchoose(node.dataset.instant) },
      h("span", { class: "label" }, parts.time, parts.kind, parts.op, parts.who), h("span", { class: "track" }, bar, took));
    Object.assign(node, { bar, took, parts });
    return node;
  }

  fillRow(node, row, at) {
    node.style.setProperty("transform", `translateY(${at * ROW}px)`);
    const lost = row.until === null && this.isLost(row.requested);
    node.className = `bar-row k-${safe(row.action)} s-${safe(row.state)}${lost ? " lost" : ""}${row.requested === this.chosen ? " chosen" : ""}`;
    node.dataset.instant = row.requested;
    if (node.seen !== row || node.lost !== lost) {
      node.seen = row;
      node.lost = lost;
      node.parts.time.textContent = row.from === null ? row.requested : clock(row.from);
      fill(node.parts.kind, kind(row.action, row.state));
      node.parts.op.textContent = lost ? "no heartbeat" : operation(row);
      fill(node.parts.who, owner(row.owner));
      node.title = `${row.requested} ${row.action} ${row.state}${row.rebased ? `, rebased ${row.rebased} times` : ""}`;
    }
    const { from, until } = this.scale, whole = until - from || 1;
    const left = ((row.from ?? from) - from) / whole, right = ((row.until ?? now()) - from) / whole;
    node.bar.style.setProperty("left", `${left * 100}%`);
    node.bar.style.setProperty("width", `${Math.max(0, right - left) * 100}%`);
    const tail = right > 0.86;
    node.took.style.setProperty("left", tail ? "auto" : `calc(${right * 100}% + 2px)`);
    node.took.style.setProperty("right", tail ? `calc(${(1 - left) * 100}% + 6px)` : "auto");
    node.took.textContent = duration(row.took ?? now() - (row.from ?? now()));
  }

  drawAxis() {
    const { from, until } = this.scale, label = this.pool.values().next().value?.firstChild.offsetWidth ?? 0;
    const wide = until - from, width = this.node.clientWidth - label;
    const count = Math.max(1, Math.min(6, Math.floor(width / 130)));
    fill(this.axis, Array.from({ length: count }, (_, at) => {
      const ms = from + (wide * at) / count;
      const text = wide > 2 * 86_400_000 ? day(ms) : clock(ms, { millis: wide < 20_000 });
      return h("span", { style: { left: `${label + (width * at) / count}px` } }, text);
    }));
    this.space.style.setProperty("--ticks", `${width / count}px`);
    this.space.style.setProperty("--first", `${label}px`);
  }

  drawMap() {
    const timed = this.rows.filter((row) => row.from !== null);
    if (!timed.length) return fill(this.map);
    const until = timed[0].from, from = timed.at(-1).from, wide = until - from || 1;
    const held = new Array(200).fill(0);
    for (const row of timed) held[Math.min(199, Math.floor(((row.from - from) / wide) * 200))] += 1;
    const most = Math.max(...held);
    this.window = svg("rect", { class: "window", y: 0, height: 44, x: 0, width: 0 });
    fill(this.map, held.map((count, at) => count && svg("rect", { class: "mark", x: at * 5, width: 4, y: 44 - (40 * count) / most, height: (40 * count) / most })), this.window);
    this.range = { from, wide };
    this.drawWindow();
  }

  drawWindow() {
    if (!this.map || !this.window) return;
    const [first, last] = this.visible();
    const shown = this.rows.slice(first, last).map((row) => row.from).filter((from) => from !== null);
    if (!shown.length) return;
    const share = (ms) => ((ms - this.range.from) / this.range.wide) * 1000;
    const left = share(Math.min(...shown)), right = share(Math.max(...shown));
    this.window.setAttribute("x", Math.min(992, left));
    this.window.setAttribute("width", Math.max(8, right - left));
  }

  jump(event) {
    const box = this.map.getBoundingClientRect();
    const ms = this.range.from + this.range.wide * ((event.clientX - box.left) / box.width);
    const at = this.rows.findIndex((row) => row.from !== null && row.from <= ms);
    this.node.scrollTop = Math.max(0, at) * ROW;
  }
}

function operation(row) {
  const words = [row.operation.toLowerCase() || row.state];
  if (row.rebased) words.push(`↻${row.rebased}`);
  if (row.state === "undone" && row.operation !== "conflicted") words.push("· rolled back");
  if (row.foreign) words.push("· external");
  return words.join(" ");
}
