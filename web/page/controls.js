// The study's controls: what to pick, what to drag, every field.
//
// Everything a control does is an assignment laid over the study, as `--set`
// does it; what may stand there is for the model to say.
import { badge } from "./badges.js";
import { el, grouped } from "./format.js";
import { valueOf, withSet } from "./state.js";

/// What can be swapped for another built-in configuration.
const PICKS = [
  ["cluster", "study.cluster.extends", "clusters/"],
  ["GPU", "study.cluster.gpu.extends", "gpus/"],
  ["NIC", "study.cluster.nic.extends", "nics/"],
  ["codec", "study.cluster.codec.extends", "codecs/"],
  ["model", "study.job.llm.extends", "llms/"],
];

const log2 = { from: (value) => Math.log2(value), to: (place) => Math.round(2 ** place), step: 0.5 };
const plain = (step) => ({ from: (value) => value, to: (place) => Number(place.toFixed(4)), step });

/// What matters enough for a slider: path, name, unit, least and most, how places map to values.
const SLIDERS = [
  ["budget", "budget", "mm2", 2000, 200000, { from: (v) => Math.log10(v), to: (p) => Math.round(10 ** p / 100) * 100, step: 0.005 }],
  ["study.cluster.nic.bandwidth", "link speed", "Gbit/s", 10, 1600, { from: (v) => Math.log2(v), to: (p) => Number((2 ** p).toPrecision(3)), step: 0.05 }],
  ["study.cluster.nics-per-gpu", "NICs a GPU", "", 0.125, 8, { from: (v) => Math.log2(v), to: (p) => 2 ** p, step: 1 }],
  ["study.cluster.codecs-per-gpu", "codecs a GPU", "", 1, 128, { from: (v) => Math.log2(v), to: (p) => Math.round(2 ** p), step: 1 }],
  ["study.job.compression.weights", "bits of a weight", "", 0.5, 16, plain(0.1)],
  ["study.job.compression.weight-gradients", "bits of a weight gradient", "", 0.5, 16, plain(0.1)],
  ["study.job.compression.activations", "bits of an activation", "", 0.5, 16, plain(0.1)],
  ["study.job.compression.activation-gradients", "bits of an activation gradient", "", 0.5, 16, plain(0.1)],
  ["study.job.compression.kv", "bits of the KV cache", "", 0.5, 16, plain(0.1)],
  ["study.job.replica-batch", "batch a rank", "", 1, 64, log2],
  ["study.job.global-batch", "global batch", "", 1, 4096, log2],
  ["study.job.sequence", "sequence", "", 128, 1048576, { ...log2, step: 1 }],
];

/// A text of TOML without the quotes of a string.
export function bare(value) {
  return /^".*"$/s.test(value) ? JSON.parse(value.replace(/\\U([0-9A-Fa-f]{8})/g, (_, hex) => String.fromCodePoint(parseInt(hex, 16)))) : value;
}

function number(text, unit) {
  const found = /^(-?[\d.eE+_]+)\s*(.*)$/.exec(bare(text));
  if (!found) return null;
  const value = Number(found[1].replaceAll("_", ""));
  const factor = { "": 1, "mm2": 1, "mm²": 1, "cm2": 100, "Gbit/s": 1, "Tbit/s": 1000, "Mbit/s": 0.001, "GB/s": 8 }[found[2]];
  return Number.isFinite(value) && (factor !== undefined || found[2] === unit) ? value * (factor ?? 1) : null;
}

export function pickers(catalog, study, change) {
  const rows = PICKS.map(([label, path, folder]) => {
    const names = catalog.configurations.filter((own) => own.name.startsWith(folder));
    const now = valueOf(study, path) ?? "";
    const select = el(
      "select",
      { "aria-label": label, onchange: (event) => change(withSet(study, path, event.target.value || null)) },
      el("option", { value: "" }, "as the study has it"),
      ...names.map((own) => el("option", { value: own.name, selected: own.name === now, title: own.about }, own.name.slice(folder.length))),
    );
    return el("label", { class: "pick" }, el("span", {}, label), select);
  });
  return el("div", { class: "picks" }, ...rows);
}

/// A slider over a field, or over the values of an axis where the path is one.
function slider({ label, min, max, step, place, text, move, settle }) {
  const output = el("output", {}, text(place));
  const input = el("input", {
    type: "range",
    min,
    max,
    step,
    value: place,
    "aria-label": label,
    "aria-valuetext": text(place),
    oninput: (event) => {
      const own = Number(event.target.value);
      output.textContent = text(own);
      event.target.setAttribute("aria-valuetext", text(own));
      move(own);
    },
    onchange: settle,
  });
  return el("label", { class: "slide", "data-slide": label }, el("span", {}, label), input, output);
}

/// The axes of a study out of its fields: their place, path and values; those
/// given as a range have no values to choose from.
export function axesOf(fields) {
  const axes = [];
  for (const field of fields) {
    const found = /^axes\.(\d+)\.(path|values)$/.exec(field.path);
    if (found) (axes[found[1]] ??= { at: Number(found[1]), values: null })[found[2]] = field.value;
  }
  const listed = (text) => {
    try {
      return JSON.parse(text.replaceAll("_", ""));
    } catch {
      return null;
    }
  };
  return axes.filter((axis) => axis?.path).map((axis) => ({ ...axis, path: bare(axis.path), values: axis.values && listed(axis.values) }));
}

export function sliders(study, fields, axes, budget, change, settle) {
  const byPath = new Map(fields.map((field) => [field.path, field]));
  const rows = [];
  for (const [path, label, unit, least, most, map] of SLIDERS) {
    const axis = axes.find((own) => `study.${own.path}` === path);
    if (axis && !axis.values) continue;
    if (axis) {
      const set = `axes.${axis.at}.values`;
      const pinned = valueOf(study, set);
      const at = pinned === null ? 0 : axis.values.findIndex((value) => JSON.stringify([value]) === pinned) + 1;
      const text = (place) => (place === 0 ? "all of the axis" : String(axis.values[place - 1]));
      const move = (place) => change((now) => withSet(now, set, place === 0 ? null : JSON.stringify([axis.values[place - 1]])));
      rows.push(slider({ label, min: 0, max: axis.values.length, step: 1, place: Math.max(at, 0), text, move, settle }));
      continue;
    }
    const field = byPath.get(path);
    const value = path === "budget" ? budget : field && number(field.value, unit);
    if (!value || value < 0) continue;
    const spelled = unit === "mm2" ? "mm²" : unit;
    const exact = (number) => (Number.isInteger(number) ? grouped(number) : String(number));
    const text = (place) => `${exact(map.to(place))} ${spelled}`.trim();
    const move = (place) => change((now) => withSet(now, path, `${map.to(place)}${unit && ` ${unit}`}`));
    rows.push(slider({ label, min: map.from(Math.min(least, value)), max: map.from(Math.max(most, value)), step: map.step, place: map.from(value), text, move, settle }));
  }
  return el("div", { class: "slides" }, ...rows);
}

/// Every value of the study, to read and to write over.
export function fieldTable(study, fields, filter, change) {
  const wanted = filter.toLowerCase();
  const shown = fields.filter((field) => `${field.path} ${field.value} ${field.source ?? ""}`.toLowerCase().includes(wanted));
  const row = (field) => {
    const own = valueOf(study, field.path) !== null;
    const input = el("input", {
      value: bare(field.value),
      "aria-label": field.path,
      spellcheck: "false",
      onchange: (event) => change(withSet(study, field.path, event.target.value)),
    });
    const reset = own && el("button", { type: "button", title: "as the study has it", "aria-label": `reset ${field.path}`, onclick: () => change(withSet(study, field.path, null)) }, "↺");
    return el(
      "tr",
      { class: own ? "own" : "" },
      el("td", { class: "path" }, field.path.replace(/^study\./, "")),
      el("td", {}, input, reset || null),
      el("td", {}, badge(field.origin, field.source)),
      el("td", { class: "source" }, field.source ?? field.place),
    );
  };
  return el("table", { class: "fields" }, el("thead", {}, el("tr", {}, ...["field", "value with its unit", "", "source"].map((head) => el("th", {}, head)))), el("tbody", {}, ...shown.map(row)));
}
