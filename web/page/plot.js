// Small plots of our own: fast enough to draw anew on every move of a slider,
// and plain SVG, so that what is seen is what is saved.
import { METRICS, sig3, svg } from "./format.js";

/// Narrower on a small screen, so that letters stay readable there.
const WIDTH = innerWidth < 600 ? 420 : 720;
const MARGIN = { left: 64, right: 16, top: 12, bottom: 44 };

/// A scale from values to places, with its ticks.
function scale(values, from, to, log, fromZero = true) {
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  if (log && low > 0) {
    const [a, b] = [Math.log10(low) - 0.03, Math.log10(high) + 0.03];
    const span = b - a || 1;
    const at = (value) => from + ((Math.log10(value) - a) / span) * (to - from);
    const ticks = [];
    const steps = span > 4 ? [1] : span > 1.5 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
    for (let power = Math.floor(a); power <= Math.ceil(b); power++)
      for (const step of steps) {
        const tick = step * 10 ** power;
        if (Math.log10(tick) >= a && Math.log10(tick) <= b) ticks.push(tick);
      }
    return { at, ticks };
  }
  if (fromZero && low > 0 && low < high * 0.6) low = 0;
  if (!fromZero) low -= (high - low) * 0.05;
  const span = high - low || Math.abs(high) || 1;
  const raw = span / 5;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * unit).find((k) => k >= raw);
  high = low + span * 1.03;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(Number(tick.toPrecision(12)));
  return { at: (value) => from + ((value - low) / (high - low)) * (to - from), ticks };
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)} G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)} k`;
  return String(+value.toPrecision(3));
}

function frame(height, label, x, y, xTitle, yTitle) {
  const bottom = height - MARGIN.bottom;
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "plot", role: "img", "aria-label": label });
  for (const tick of x.ticks) {
    root.append(svg("line", { x1: x.at(tick), x2: x.at(tick), y1: MARGIN.top, y2: bottom, class: "grid" }));
    root.append(svg("text", { x: x.at(tick), y: bottom + 16, "text-anchor": "middle", class: "tick" }, short(tick)));
  }
  for (const tick of y.ticks) {
    root.append(svg("line", { x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: y.at(tick), y2: y.at(tick), class: "grid" }));
    root.append(svg("text", { x: MARGIN.left - 6, y: y.at(tick) + 4, "text-anchor": "end", class: "tick" }, short(tick)));
  }
  root.append(svg("text", { x: (MARGIN.left + WIDTH) / 2, y: height - 8, "text-anchor": "middle", class: "title" }, xTitle));
  const turn = `rotate(-90) translate(${-(MARGIN.top + bottom) / 2} 14)`;
  root.append(svg("text", { transform: turn, "text-anchor": "middle", class: "title" }, yTitle));
  return root;
}

/// The mark of a point: a path around the origin.
export function mark(shape, size = 4) {
  const s = size;
  return {
    circle: `M${-s},0a${s},${s} 0 1,0 ${2 * s},0a${s},${s} 0 1,0 ${-2 * s},0`,
    square: `M${-s},${-s}h${2 * s}v${2 * s}h${-2 * s}z`,
    diamond: `M0,${-1.3 * s}L${1.3 * s},0L0,${1.3 * s}L${-1.3 * s},0z`,
    triangle: `M0,${-1.2 * s}L${1.2 * s},${s}L${-1.2 * s},${s}z`,
    down: `M0,${1.2 * s}L${1.2 * s},${-s}L${-1.2 * s},${-s}z`,
    cross: `M${-s},${-s / 3}h${s - s / 3}v${-s + s / 3}h${(2 * s) / 3}v${s - s / 3}h${s - s / 3}v${(2 * s) / 3}h${-s + s / 3}v${s - s / 3}h${(-2 * s) / 3}v${-s + s / 3}h${-s + s / 3}z`,
  }[shape];
}

/// Fronts: a line of steps and marks for each, the budget, what is chosen.
/// `fronts`: name, points, colour, shape, dashed, side. `dots`: points of a file.
export function frontPlot({ fronts, dots = [], xKey, yKey, log, budget, chosen, open, label }) {
  const height = 400;
  const shown = (point) => Number.isFinite(point[xKey]) && Number.isFinite(point[yKey]) && (!log || (point[xKey] > 0 && point[yKey] > 0));
  const all = [...fronts.flatMap((front) => front.points), ...dots].filter(shown);
  const onBudget = budget && xKey === "area_mm2";
  const x = scale([...all.map((point) => point[xKey]), ...(onBudget ? [budget] : [])], MARGIN.left, WIDTH - MARGIN.right, log);
  const y = scale(all.map((point) => point[yKey]), height - MARGIN.bottom, MARGIN.top, log);
  const root = frame(height, label, x, y, METRICS[xKey], METRICS[yKey]);
  const dotted = dots.filter(shown).map((point) => `M${x.at(point[xKey]).toFixed(1)},${y.at(point[yKey]).toFixed(1)}h0`);
  root.append(svg("path", { d: dotted.join(""), class: "dots" }));
  if (onBudget) {
    root.append(svg("line", { x1: x.at(budget), x2: x.at(budget), y1: MARGIN.top, y2: height - MARGIN.bottom, class: "budget" }));
    root.append(svg("text", { x: x.at(budget) - 5, y: MARGIN.top + 12, "text-anchor": "end", class: "tick" }, `budget ${short(budget)} mm²`));
  }
  for (const front of fronts) {
    const points = front.points.filter(shown).sort((a, b) => a[xKey] - b[xKey]);
    const line = points.map((point, at) => {
      const [px, py] = [x.at(point[xKey]).toFixed(1), y.at(point[yKey]).toFixed(1)];
      return at ? `H${px}V${py}` : `M${px},${py}`;
    });
    root.append(svg("path", { d: line.join(""), class: "front", stroke: front.colour, "stroke-dasharray": front.dashed ? "5 4" : undefined }));
    for (const point of points) {
      const isChosen = chosen && chosen.side === front.side && chosen.index === point.index;
      root.append(
        svg(
          "path",
          {
            d: mark(front.shape, isChosen ? 7 : 3.5),
            transform: `translate(${x.at(point[xKey]).toFixed(1)} ${y.at(point[yKey]).toFixed(1)})`,
            fill: front.dashed ? "var(--paper)" : front.colour,
            stroke: front.colour,
            class: isChosen ? "mark chosen" : "mark",
            "data-index": point.index,
            onclick: () => open(front.side, point.index),
          },
          svg("title", {}, `${front.name}, point ${point.index}: ${sig3(point[xKey])} ${METRICS[xKey]}, ${sig3(point[yKey])} ${METRICS[yKey]}`),
        ),
      );
    }
  }
  return root;
}

/// Rows of bars in parts: label, parts (share of the widest, colour, title), text.
export function barRows(rows, label) {
  const height = rows.length * 34 + 8;
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "plot", role: "img", "aria-label": label });
  rows.forEach((row, at) => {
    const top = at * 34 + 4;
    root.append(svg("text", { x: 0, y: top + 10, class: "tick" }, row.label));
    root.append(svg("text", { x: WIDTH, y: top + 10, "text-anchor": "end", class: "tick" }, row.text));
    let left = 0;
    for (const part of row.parts) {
      const width = Math.max(part.share * WIDTH, part.share > 0 ? 1 : 0);
      root.append(svg("rect", { x: left, y: top + 14, width, height: 12, fill: part.colour }, svg("title", {}, part.title)));
      left += width;
    }
  });
  return root;
}

export const KIND_COLOURS = {
  compute: "#0072b2",
  encode: "#e69f00",
  wire: "#d55e00",
  decode: "#009e73",
  reduce: "#cc79a7",
  optimizer: "#7a828c",
};

/// A step: one band a track, spans by kind.
export function timelinePlot(timeline, label) {
  const band = 16;
  const left = 110;
  const height = timeline.tracks.length * band + 26;
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "plot", role: "img", "aria-label": label });
  const at = (seconds) => left + (seconds / timeline.iteration_s) * (WIDTH - left - 4);
  timeline.tracks.forEach((track, row) => {
    root.append(svg("text", { x: left - 6, y: row * band + 12, "text-anchor": "end", class: "tick" }, track));
    root.append(svg("line", { x1: left, x2: WIDTH, y1: row * band + 15.5, y2: row * band + 15.5, class: "grid" }));
  });
  const kinds = new Map();
  for (const [track, kind, start, end] of timeline.spans) {
    const d = `M${at(start).toFixed(2)},${track * band + 2}h${Math.max(at(end) - at(start), 0.4).toFixed(2)}v11h${-Math.max(at(end) - at(start), 0.4).toFixed(2)}z`;
    kinds.set(kind, (kinds.get(kind) ?? "") + d);
  }
  for (const [kind, d] of kinds) root.append(svg("path", { d, fill: KIND_COLOURS[kind] ?? "#7a828c" }, svg("title", {}, kind)));
  root.append(svg("text", { x: left, y: height - 6, class: "tick" }, "0"));
  root.append(svg("text", { x: WIDTH - 4, y: height - 6, "text-anchor": "end", class: "tick" }, `${sig3(timeline.iteration_s)} s`));
  return root;
}

/// A tornado: each assumption from its low to its high end, the widest first.
export function tornadoPlot(lines, base, label) {
  const ends = lines
    .map((line) => ({ line, low: line.low[0], high: line.high[0] }))
    .filter((own) => own.low !== null && own.high !== null)
    .sort((a, b) => Math.abs(b.high - b.low) - Math.abs(a.high - a.low));
  const rowHeight = 30;
  const height = ends.length * rowHeight + 30;
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "plot", role: "img", "aria-label": label });
  const values = [...ends.flatMap((own) => [own.low, own.high]), base];
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const at = (value) => 60 + ((value - least) / (most - least || 1)) * (WIDTH - 120);
  ends.forEach(({ line, low, high }, row) => {
    const top = row * rowHeight;
    const { name, low: lowValue, high: highValue } = line.assumption;
    root.append(svg("text", { x: 0, y: top + 10, class: "tick" }, `${name}: ${lowValue} … ${highValue}`));
    for (const [value, colour] of [[low, "#56b4e9"], [high, "#e69f00"]]) {
      const [from, to] = [Math.min(at(value), at(base)), Math.max(at(value), at(base))];
      root.append(svg("rect", { x: from, y: top + 14, width: Math.max(to - from, 1), height: 9, fill: colour }, svg("title", {}, `${value.toFixed(3)}×`)));
      // Where an end changes nothing, the line in the middle says so.
      if (value.toFixed(2) === base.toFixed(2)) continue;
      const left = value < base;
      root.append(svg("text", { x: left ? from - 4 : to + 4, y: top + 22, "text-anchor": left ? "end" : "start", class: "tick" }, `${value.toFixed(2)}×`));
    }
  });
  root.append(svg("line", { x1: at(base), x2: at(base), y1: 12, y2: height - 18, class: "budget" }));
  root.append(svg("text", { x: at(base), y: height - 4, "text-anchor": "middle", class: "tick" }, `${base.toFixed(2)}×`));
  return root;
}

/// Curves of decibels over bits per value, one for each codec.
export function ratePlot(curves, label) {
  const height = 360;
  const all = curves.flatMap((curve) => curve.points);
  const x = scale(all.map((point) => point.bits), MARGIN.left, WIDTH - MARGIN.right, false, false);
  const y = scale(all.map((point) => point.db), height - MARGIN.bottom, MARGIN.top, false);
  const root = frame(height, label, x, y, "bits per value", "SNR, dB");
  for (const curve of curves) {
    const places = curve.points.map((point) => [x.at(point.bits).toFixed(1), y.at(point.db).toFixed(1)]);
    if (places.length > 1) root.append(svg("path", { d: `M${places.join("L")}`, class: "front", stroke: curve.colour }));
    curve.points.forEach((point, at) => {
      root.append(
        svg("path", { d: mark(curve.shape, 4), transform: `translate(${places[at].join(" ")})`, fill: curve.colour, class: "mark" },
          svg("title", {}, `${curve.codec}: ${point.bits.toFixed(3)} bits per value, ${point.db.toFixed(2)} dB`)),
      );
    });
  }
  return root;
}

/// A histogram of 256 levels.
export function histogramPlot(counts, low, high, label) {
  const height = 110;
  const most = Math.max(...counts, 1);
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "plot", role: "img", "aria-label": label });
  const step = WIDTH / counts.length;
  const d = counts.map((count, at) => `M${(at * step).toFixed(1)},90v${(-Math.sqrt(count / most) * 84).toFixed(1)}h${step.toFixed(2)}V90z`);
  root.append(svg("path", { d: d.join(""), fill: "#0072b2" }));
  root.append(svg("text", { x: 0, y: 106, class: "tick" }, sig3(low)));
  root.append(svg("text", { x: WIDTH, y: 106, "text-anchor": "end", class: "tick" }, sig3(high)));
  return root;
}
