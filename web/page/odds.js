// What to build, and how surely: the answer of `trinity explore`, its odds and
// its map. Draws; every number is the command's.
import { el, sig3, svg } from "./format.js";

/// Gains and their colours, as the command's map has them.
const COLOURS = [[0, "#d9dde2"], [0.99, "#eef0f2"], [1.01, "#d6ecd2"], [1.1, "#a6d8a0"], [1.5, "#66bd63"], [2, "#2b8f4a"], [4, "#0b5d2c"]];
const colour = (gain) => COLOURS.findLast(([from]) => gain >= from)?.[1] ?? "#ffffff";
const FRAME = { left: 64, right: 560, top: 8, bottom: 300 };

function places(ruler, from, to) {
  const count = ruler.values.length;
  const cell = (to - from) / count;
  const [first, last] = [ruler.values[0], ruler.values[count - 1]];
  return { cell, at: (value) => from + cell / 2 + (Math.log(value / first) / Math.log(last / first)) * cell * (count - 1) };
}

function powers(ruler) {
  const all = Array.from({ length: 16 }, (_, k) => 10 ** (k - 6));
  return all.filter((value) => value >= ruler.values[0] * 0.99 && value <= ruler.values.at(-1) * 1.01);
}

const short = (value) => (value >= 1e6 ? `${value / 1e6}M` : value >= 1e3 ? `${value / 1e3}k` : String(value));

/// The map: gains as colours, clusters as numbers, this one as a diamond.
export function regimePlot(regime) {
  const x = places(regime.x, FRAME.left, FRAME.right);
  const y = places(regime.y, FRAME.bottom, FRAME.top);
  const cells = regime.gains.flatMap((row, j) =>
    row.map((gain, i) => {
      const cell = svg("rect", { x: x.at(regime.x.values[i]) - x.cell / 2, y: y.at(regime.y.values[j]) + y.cell / 2, width: x.cell + 0.3, height: -y.cell + 0.3, fill: gain === null ? "#ffffff" : colour(gain) });
      cell.append(svg("title", {}, gain === null ? "cannot run" : `${sig3(gain)}×`));
      return cell;
    }),
  );
  const within = (value, low, high) => Math.max(low, Math.min(high, value));
  const place = (mark) => [within(x.at(mark.x), FRAME.left, FRAME.right), within(y.at(mark.y), FRAME.top, FRAME.bottom)];
  const marks = regime.marks.flatMap((mark, at) => {
    const [cx, cy] = place(mark);
    return [svg("circle", { cx, cy, r: 8, fill: "#ffffff", stroke: "#1b1f24" }), svg("text", { x: cx, y: cy + 3.5, "text-anchor": "middle", "font-size": 10, fill: "#1b1f24" }, String(at + 1))];
  });
  const [hx, hy] = place(regime.here);
  const ticks = [
    ...powers(regime.x).map((value) => svg("text", { x: x.at(value), y: FRAME.bottom + 15, class: "tick", "text-anchor": "middle" }, short(value))),
    ...powers(regime.y).map((value) => svg("text", { x: FRAME.left - 6, y: y.at(value) + 4, class: "tick", "text-anchor": "end" }, short(value))),
    svg("text", { x: (FRAME.left + FRAME.right) / 2, y: FRAME.bottom + 32, class: "title", "text-anchor": "middle" }, `${regime.x.name}, ${regime.x.unit}`),
    svg("text", { transform: `translate(14 ${(FRAME.top + FRAME.bottom) / 2}) rotate(-90)`, class: "title", "text-anchor": "middle" }, `${regime.y.name}, ${regime.y.unit}`),
  ];
  const here = svg("path", { d: `M${hx} ${hy - 8}l8 8-8 8-8-8z`, fill: "#b3261e", stroke: "#ffffff" });
  return svg("svg", { viewBox: "0 0 580 340", class: "plot", role: "img", "aria-label": `gain of ${regime.candidate} over ${regime.x.name} and ${regime.y.name}` }, ...cells, ...ticks, ...marks, here);
}

/// Sentences, odds and map of an exploration.
export function oddsPanel(found) {
  const gain = (mark) => (mark.gain === null ? "cannot run" : `${sig3(mark.gain)}×`);
  const chances = (found.odds?.chances ?? []).map((one) =>
    el("tr", {}, el("td", {}, one.scenario), el("td", { class: "number" }, `${sig3(one.best * 100)} %`), ...[one.gain.median, one.gain.low, one.gain.high].map((value) => el("td", { class: "number" }, `${value.toFixed(3)}×`))),
  );
  return [
    ...found.answer.map((text) => el("p", {}, text)),
    ...(chances.length
      ? [el("table", {}, el("thead", {}, el("tr", {}, ...["codec", "best in", "gain, median", "5 %", "95 %"].map((text) => el("th", {}, text)))), el("tbody", {}, ...chances))]
      : []),
    ...(found.regime
      ? [el("figure", {}, regimePlot(found.regime), el("figcaption", {}, `◆ this cluster: ${gain(found.regime.here)}; `, ...found.regime.marks.map((mark, at) => `${at + 1} ${mark.name}: ${gain(mark)}; `)))]
      : []),
  ];
}
