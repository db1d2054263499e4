// Small plots in SVG: bars over time, and points over time on a logarithmic scale.

import { svg } from "./dom.js";
import { clock, day, duration, number, safe } from "./format.js";

const HEIGHT = 150, LEFT = 52, RIGHT = 6, TOP = 8, BOTTOM = 20;
const y = (share) => HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
const across = (width) => (share) => LEFT + share * (width - LEFT - RIGHT);

// Drawn at the displayed width, so that text is not scaled.
function frame(label, from, until, width) {
  const x = across(width), count = Math.max(1, Math.min(5, Math.floor((width - LEFT) / (until - from < 5000 ? 170 : 110))));
  const ticks = Array.from({ length: count + 1 }, (_, at) => at / count).map((share) => {
    const at = from + (until - from) * share;
    const text = until - from > 2 * 86_400_000 ? day(at) : clock(at, { millis: until - from < 5000 });
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    return svg("text", { x: x(share), y: HEIGHT - 5, "text-anchor": anchor }, text);
  });
  return svg("svg", { class: "plot", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label },
    svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(0), y2: y(0) }), ticks);
}

function rule(plot, share, text, width) {
  plot.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(share), y2: y(share) }));
  plot.append(svg("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, text));
}

// Counts per bucket, stacked by kind.
export function bars(label, points, { from, until, width: wide = 480, value = () => 1, show = number }) {
  const plot = frame(label, from, until, wide), x = across(wide), buckets = Math.max(10, Math.floor((wide - LEFT) / 9));
  const width = (until - from) / buckets || 1;
  const sums = Array.from({ length: buckets }, () => new Map());
  for (const point of points) {
    const at = Math.min(buckets - 1, Math.floor((point.at - from) / width));
    if (at >= 0) sums[at].set(point.kind, (sums[at].get(point.kind) ?? 0) + value(point));
  }
  const most = Math.max(1, ...sums.map((sum) => [...sum.values()].reduce((a, b) => a + b, 0)));
  for (const share of most > 1 ? [0.5, 1] : [1]) rule(plot, share, show(Math.round(most * share)), wide);
  sums.forEach((sum, at) => {
    let base = 0;
    for (const [kind, count] of [...sum].sort()) {
      const top = y((base + count) / most), bottom = y(base / most);
      const left = x(at / buckets), breadth = Math.max(1, x(1 / buckets) - x(0) - 1);
      plot.append(svg("rect", { class: `mark k-${safe(kind)} s-${kind === "undone" ? "undone" : ""}`, x: left, y: top, width: breadth, height: Math.max(0, bottom - top) },
        svg("title", {}, `${show(count)} ${kind}, ${clock(from + at * width, { millis: false })}`)));
      base += count;
    }
  });
  return plot;
}

// Durations on a logarithmic scale, with a moving median.
export function latencies(label, points, { from, until, width: wide = 480 }) {
  const plot = frame(label, from, until, wide), x = across(wide);
  const times = points.map((point) => Math.max(1, point.took));
  const low = Math.floor(Math.log10(Math.min(...times, 10))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...times, 10))));
  const rise = (ms) => (Math.log10(Math.max(1, ms)) - low) / (high - low);
  for (let power = low; power <= high; power += 1) rule(plot, rise(10 ** power), power >= 3 && power < 5 ? `${10 ** (power - 3)} s` : duration(10 ** power), wide);
  const step = Math.max(1, Math.ceil(points.length / 700));
  // One path of dots for each kind: fewer elements are faster to draw.
  const dots = new Map();
  points.forEach((point, at) => {
    if (at % step) return;
    const share = (point.at - from) / (until - from || 1);
    dots.set(point.kind, `${dots.get(point.kind) ?? ""}M${x(share).toFixed(1)} ${y(rise(point.took)).toFixed(1)}h0`);
  });
  for (const [kind, d] of dots) plot.append(svg("path", { class: `dots k-${safe(kind)}`, d }));
  const path = medians(points, from, until).map(([share, ms], at) => `${at ? "L" : "M"}${x(share).toFixed(1)} ${y(rise(ms)).toFixed(1)}`);
  if (path.length > 1) plot.append(svg("path", { class: "median", d: path.join(" ") }));
  return plot;
}

function medians(points, from, until, parts = 24) {
  const held = Array.from({ length: parts }, () => []);
  for (const point of points) held[Math.min(parts - 1, Math.max(0, Math.floor(((point.at - from) / (until - from || 1)) * parts)))].push(point.took);
  return held.flatMap((times, at) => (times.length ? [[(at + 0.5) / parts, times.sort((a, b) => a - b)[times.length >> 1]]] : []));
}
