// What a study says: the sentence, the split, the point, the difference.
import { resultBadge } from "./badges.js";
import { el, grouped, sig3 } from "./format.js";
import { barRows, KIND_COLOURS, timelinePlot } from "./plot.js";

const PARTS = [
  ["gpu_mm2", "GPU", "#0072b2"],
  ["nic_mm2", "NIC", "#e69f00"],
  ["codec_mm2", "codec", "#009e73"],
];

/// The headline in a sentence, else the best point within the budget.
export function sentence(found) {
  const { headline, points, feasible } = found.outcome;
  const counted = `${grouped(points)} points, ${grouped(feasible)} can run.`;
  if (headline) {
    const budget = `Within ${grouped(headline.budget_mm2)} mm²`;
    const speed = headline.speedup === null ? `${budget}, ${headline.candidate} and ${headline.baseline} do not both have a point` : `${budget}, ${headline.candidate} is ${headline.speedup.toFixed(2)}× as fast as ${headline.baseline}`;
    const area = headline.area_saving === null ? `; ${headline.performance}× performance is not reached` : `, and ${headline.area_saving.toFixed(2)}× smaller at ${headline.performance}× performance`;
    const paper = headline.paper_speedup ? ` The paper has ${headline.paper_speedup}× and ${headline.paper_area_saving}×.` : "";
    return [`${speed}${area}.`, `${counted}${paper}`];
  }
  const best = found.outcome.top[0];
  return [best ? `Best: ${best.scenario}, ${sig3(best.tokens_per_s)} tokens/s on ${sig3(best.area_mm2)} mm², ${sig3(best.energy_j_per_token)} J/token.` : "No point is best.", counted];
}

export function keys(list) {
  return el("div", { class: "keys" }, ...list.map(([name, colour]) => el("span", {}, el("i", { style: `background:${colour}` }), name)));
}

/// The silicon of each scenario's best point, as bars.
export function split(found) {
  const best = found.best.filter(Boolean);
  if (!best.length) return el("p", { class: "hint" }, "No scenario has a point within the budget.");
  const most = Math.max(...best.map((point) => point.area_mm2));
  const rows = best.map((point) => ({
    label: point.scenario,
    text: `${sig3(point.tokens_per_s)} tokens/s on ${sig3(point.area_mm2)} mm²`,
    parts: PARTS.map(([key, name, colour]) => ({ share: point[key] / most, colour, title: `${name}: ${sig3(point[key])} mm², ${((point[key] / point.area_mm2) * 100).toFixed(2)} %` })),
  }));
  return el("div", {}, keys(PARTS.map(([, name, colour]) => [name, colour])), barRows(rows, "silicon by kind of the best point of each scenario"));
}

const PALETTE = ["#0072b2", "#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#7a828c"];
const NAMES = {
  compute_j: "compute", gpu_idle_j: "GPUs idle", wire_j: "wires", nic_idle_j: "NICs idle", codec_j: "codec", codec_idle_j: "codecs idle",
  weights_bytes: "weights", gradients_bytes: "gradients", optimizer_bytes: "optimizer", activations_bytes: "activations", kv_bytes: "KV cache", buffers_bytes: "buffers", codec_staging_bytes: "codec staging",
};

function byKind(title, parts, text) {
  const list = Object.entries(parts).map(([key, value], at) => ({ name: NAMES[key] ?? key, value, colour: PALETTE[at % PALETTE.length] }));
  const total = list.reduce((sum, part) => sum + part.value, 0);
  if (!(total > 0)) return null;
  const row = { label: title, text: text(total), parts: list.map((part) => ({ share: part.value / total, colour: part.colour, title: `${part.name}: ${text(part.value)}, ${((part.value / total) * 100).toFixed(1)} %` })) };
  return el("div", {}, barRows([row], title), keys(list.filter((part) => part.value > 0).map((part) => [`${part.name} ${((part.value / total) * 100).toFixed(1)} %`, part.colour])));
}

/// One point: its axes, its step, its kinds, its lines with their formulas.
export function pointPanel(found, certainty, side) {
  const { explanation, estimate, timeline } = found;
  const axes = Object.entries(explanation.axes).filter(([, value]) => value !== null);
  const lines = explanation.lines.map((line) =>
    el("tr", {}, el("td", {}, line.part), el("td", {}, line.line), el("td", { class: "number" }, sig3(line.value)), el("td", {}, line.unit), el("td", {}, resultBadge(line.part, line.line, certainty)), el("td", { class: "formula" }, line.formula)),
  );
  return el(
    "div",
    {},
    el("h3", {}, `Point ${explanation.index}${side === "b" ? " of the second study" : ""}: ${explanation.scenario}`),
    el("p", {}, axes.map(([path, value]) => `${path} ${value}`).join(", ")),
    el("p", {}, `${sig3(estimate.tokens_per_s)} tokens/s, `, resultBadge("time", "iteration", certainty), ` ${sig3(estimate.area_mm2)} mm², `, resultBadge("area", "total", certainty), ` ${sig3(estimate.energy_j_per_token)} J/token `, resultBadge("energy", "total", certainty)),
    timeline && el("figure", {}, el("figcaption", {}, `One step, as events: ${sig3(timeline.iteration_s)} s simulated, ${sig3(estimate.iteration_s)} s in closed form`), keys(Object.entries(KIND_COLOURS).filter(([kind]) => timeline.spans.some((span) => span[1] === kind))), timelinePlot(timeline, "timeline of one step")),
    el("figure", { id: "energy" }, byKind("energy of one step", estimate.energy, (joules) => `${sig3(joules)} J`)),
    el("figure", { id: "memory" }, byKind("memory of the fullest GPU", estimate.memory, (bytes) => `${sig3(bytes / 1e9)} GB`)),
    el("div", { class: "wide" }, el("table", { class: "lines" }, el("thead", {}, el("tr", {}, ...["part", "line", "value", "unit", "", "formula"].map((head) => el("th", {}, head)))), el("tbody", {}, ...lines))),
  );
}

/// Two studies: the best point of each scenario, and the second over the first.
export function difference(a, b) {
  const columns = [["tokens_per_s", "tokens/s"], ["area_mm2", "mm²"], ["energy_j_per_token", "J/token"]];
  const best = (found) => new Map(found.best.filter(Boolean).map((point) => [point.scenario, point]));
  const [first, second] = [best(a), best(b)];
  const names = [...new Set([...first.keys(), ...second.keys()])];
  const cell = (point, key) => el("td", { class: "number" }, point ? sig3(point[key]) : "–");
  const rows = names.map((name) => {
    const [one, two] = [first.get(name), second.get(name)];
    return el("tr", {}, el("td", {}, name), ...columns.flatMap(([key]) => [cell(one, key), cell(two, key), el("td", { class: "number ratio" }, one && two ? `${(two[key] / one[key]).toFixed(3)}×` : "–")]));
  });
  const heads = columns.flatMap(([, name]) => [`A ${name}`, `B ${name}`, "B over A"]);
  const [ha, hb] = [a.outcome.headline, b.outcome.headline];
  const headline = ha && hb ? el("p", {}, `Speed-up ${ha.speedup?.toFixed(3) ?? "–"}× in A, ${hb.speedup?.toFixed(3) ?? "–"}× in B; area saving ${ha.area_saving?.toFixed(3) ?? "–"}× in A, ${hb.area_saving?.toFixed(3) ?? "–"}× in B.`) : null;
  return el("div", {}, headline, el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "best within the budget"), ...heads.map((head) => el("th", {}, head)))), el("tbody", {}, ...rows))));
}

/// What is wrong, as the command says it.
export function refusal(refused) {
  const one = (own) =>
    el("p", {}, el("strong", {}, own.error), own.place ? ` (${own.place.file}:${own.place.line}:${own.place.column})` : "", own.help ? el("span", {}, ` ${own.help}`) : null);
  return [one(refused), ...(refused.others ?? []).map(one)];
}
