// The page: state in, drawings out.
//
// Everything shown follows from the state (which the address holds) and the
// model's answers to it. A change of state asks anew; an answer draws anew.
import { difference, pointPanel, refusal, sentence, split } from "./answers.js";
import { axesOf, fieldTable, pickers, sliders } from "./controls.js";
import { engine, latest, remote } from "./engine.js";
import { AXIS_METRICS, el, grouped, looks, METRICS, sig3, svg } from "./format.js";
import { oddsPanel } from "./odds.js";
import { frontPlot, mark, tornadoPlot } from "./plot.js";
import { download, drawing, png, pointsOf } from "./save.js";
import { FIRST, read, valueOf, withSet, written } from "./state.js";
import { tensorView } from "./tensors.js";

const byId = (id) => document.getElementById(id);
const began = performance.now();
let { state, complaints } = read(location.hash);
let model;
let catalog;
/// The newest answers, by side.
const found = { a: null, b: null };
/// The fields of the study without what the page laid over it, and with.
let fields = [];
let axes = [];
let dots = [];
let tornadoTimer;

function announce(text) {
  byId("status").textContent = text;
}

function alarm(refused) {
  const box = byId("alert");
  box.hidden = !refused;
  if (!refused) return;
  const again = el("button", { type: "button", onclick: () => change({ ...state, a: { sweep: FIRST, sets: [] }, b: null, point: null }) }, `open ${FIRST} as it is`);
  const back = state.a.sets.length ? el("button", { type: "button", onclick: () => change({ ...state, a: { ...state.a, sets: state.a.sets.slice(0, -1) } }) }, "undo the last change") : null;
  box.replaceChildren(...refusal(refused), el("p", {}, back, " ", again));
}

/// What the last study said is no answer to this one.
function cleared() {
  found.a = null;
  for (const id of ["cluster", "answer", "front", "difference", "split", "point", "tornado", "odds"]) byId(id)?.replaceChildren();
  delete byId("odds")?.dataset.of;
  stale(false);
}

function failed(error) {
  cleared();
  alarm(error.refused ?? { error: error.message });
}

/// Dims what is shown while a newer question is computed.
function stale(waits) {
  for (const id of ["cluster", "answer", "front", "split", "point", "tornado", "odds"]) byId(id)?.classList.toggle("stale", waits);
  byId("answer")?.setAttribute("aria-busy", String(waits));
}

const ask = {
  a: latest((request) => model.quick(request), ({ answer, ms }) => answered("a", answer, ms), failed),
  b: latest((request) => model.quick(request), ({ answer, ms }) => answered("b", answer, ms), (error) => alarm(error.refused ?? { error: error.message })),
  point: latest((request) => model.quick(request), ({ answer }) => drawPoint(answer), () => byId("point").replaceChildren(el("p", { class: "hint" }, "This point cannot run in the study as it is now; click another."))),
  fields: latest((request) => model.quick(request), ({ answer }) => took(answer), () => {}),
  odds: latest((request) => model.slow(request), ({ answer }) => drawOdds(answer), (error) => drawOdds(null, error.refused?.error ?? error.message)),
  tornado: latest((request) => model.slow(request), ({ answer }) => drawTornado(answer), () => {}),
};

/// Takes a new state: the address, the questions, the controls.
function change(next, { quiet = false } = {}) {
  const otherSweep = next.a.sweep !== state.a.sweep || next.a.text !== state.a.text;
  if (otherSweep) next = { ...next, point: null, x: null, y: null };
  state = next;
  history.replaceState(null, "", `#${written(state)}`);
  show();
  asked(quiet);
}

/// While a slider moves only the answers are drawn anew, not the slider itself.
function drag(update) {
  change({ ...state, a: update(state.a) }, { quiet: true });
}

function asked(quiet) {
  stale(true);
  ask.a(() => ({ do: "sweep", study: state.a }));
  if (state.b) ask.b(() => ({ do: "sweep", study: state.b }));
  if (!quiet) ask.fields(() => ({ do: "fields", study: state.a }));
  clearTimeout(tornadoTimer);
  tornadoTimer = setTimeout(() => ask.tornado(() => ({ do: "tornado", study: state.a })), 400);
}

function answered(side, answer, ms) {
  if (side === "b" && !state.b) return;
  found[side] = answer;
  alarm(null);
  if (side === "a") stale(false);
  draw();
  byId("timing").textContent = `${grouped(answer.outcome.points)} points in ${ms.toFixed(0)} ms.`;
  document.body.dataset.ms = ms.toFixed(1);
  document.body.dataset.answers = Number(document.body.dataset.answers ?? 0) + 1;
  if (!document.body.dataset.first) {
    document.body.dataset.first = (performance.now() - began).toFixed(0);
    announce(`First answer after ${document.body.dataset.first} ms.`);
  }
  if (complaints.length) {
    announce(`${complaints.join("; ")}.`);
    complaints = [];
  }
}

function took(answer) {
  fields = answer;
  const known = axesOf(fields);
  // A pinned axis has one value left; its others are those it had before.
  axes = known.map((axis) => (valueOf(state.a, `axes.${axis.at}.values`) ? axes.find((own) => own.path === axis.path) ?? axis : axis));
  drawControls();
}

function chosen() {
  if (state.point) return state.point;
  const best = found.a?.best ?? [];
  const headline = found.a?.outcome.headline;
  const own = best.find((point) => point && point.scenario === headline?.candidate) ?? best.filter(Boolean).at(-1);
  return own ? { side: "a", index: own.index } : null;
}

function metrics(answer) {
  const wanted = answer.objectives.map((objective) => objective.split(" ")[1].replaceAll("-", "_")).filter((key) => AXIS_METRICS.includes(key));
  const x = wanted.includes("area_mm2") ? "area_mm2" : wanted[1] ?? "area_mm2";
  const y = wanted.find((key) => key !== x) ?? "tokens_per_s";
  const valid = (key, otherwise) => (AXIS_METRICS.includes(key) ? key : otherwise);
  return { x: valid(state.x, x), y: valid(state.y, y) };
}

function draw() {
  const answer = found.a;
  if (!answer) return;
  byId("cluster").textContent = answer.setting;
  drawAsk();
  byId("answer").replaceChildren(...sentence(answer).map((text) => el("p", {}, text)), ...answer.outcome.warnings.map((text) => el("p", { class: "hint" }, text)));
  const names = [...new Set([...answer.outcome.fronts, ...(state.b && found.b ? found.b.outcome.fronts : [])].map((front) => front.scenario))];
  const own = looks(names);
  const fronts = (side, dashed) => (found[side]?.outcome.fronts ?? []).map((front) => ({ name: front.scenario, points: front.front, side, dashed, ...own.get(front.scenario) }));
  const { x, y } = metrics(answer);
  const point = chosen();
  const shown = [...fronts("a", false), ...(state.b ? fronts("b", true) : [])];
  const plot = frontPlot({ fronts: shown, dots, xKey: x, yKey: y, log: state.log, budget: answer.budget_mm2, chosen: point, open, label: `Pareto fronts: ${METRICS[y]} over ${METRICS[x]}` });
  plot.id = "fronts";
  plot.setAttribute("tabindex", "0");
  plot.addEventListener("keydown", (event) => step(event, shown, x));
  const legend = el("div", { class: "keys" }, ...names.map((name) => el("span", {}, svg("svg", { viewBox: "-8 -8 16 16", width: 14, height: 14, "aria-hidden": "true" }, svg("path", { d: mark(own.get(name).shape, 5), fill: own.get(name).colour })), name)), state.b ? el("span", {}, "dashed: second study") : null, dots.length ? el("span", {}, `dots: ${grouped(dots.length)} points of a file`) : null);
  const focused = document.activeElement?.id === "fronts";
  byId("front").replaceChildren(legend, plot);
  if (focused) plot.focus();
  byId("split").replaceChildren(split(answer));
  byId("difference").replaceChildren(...(state.b && found.b ? [el("h2", {}, "Second study over the first"), difference(answer, found.b)] : []));
  if (point) ask.point(() => ({ do: "explain", study: state[point.side] ?? state.a, index: point.index }));
  else byId("point").replaceChildren();
  drawAxes(x, y);
}

/// Arrow keys walk along the fronts; home and end go to the ends.
function step(event, fronts, x) {
  const order = fronts.flatMap((front) => [...front.points].sort((a, b) => a[x] - b[x]).map((point) => ({ side: front.side, index: point.index, name: front.name, point })));
  const now = chosen();
  const at = order.findIndex((own) => own.side === now?.side && own.index === now?.index);
  const next = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: order.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const own = order[Math.max(0, Math.min(order.length - 1, next))];
  open(own.side, own.index);
  announce(`${own.name}, point ${own.index}: ${sig3(own.point.area_mm2)} mm², ${sig3(own.point.tokens_per_s)} tokens/s, ${sig3(own.point.energy_j_per_token)} J/token`);
}

function open(side, index) {
  state = { ...state, point: { side, index } };
  history.replaceState(null, "", `#${written(state)}`);
  draw();
}

function drawPoint(answer) {
  byId("point").replaceChildren(pointPanel(answer, catalog.certainty, chosen()?.side));
  document.body.dataset.point = answer.explanation.index;
}

/// The question that takes longer: what to build, with everything uncertain.
function drawAsk() {
  const key = JSON.stringify([state.a.sweep, state.a.sets]);
  if (byId("odds").dataset.of === key) return;
  byId("odds").dataset.of = key;
  const button = el("button", { type: "button", id: "ask-odds", onclick: askOdds }, "what to build, and how surely?");
  byId("odds").replaceChildren(el("p", {}, button, " ", el("span", { class: "hint" }, "trinity explore on the built-in tensors: codes them, searches every codec, draws all assumptions together")));
}

function askOdds() {
  byId("odds").replaceChildren(el("p", { class: "hint", role: "status" }, "Coding, searching and drawing; this takes a minute …"));
  ask.odds(() => ({ do: "odds", study: { sweep: state.a.sweep, ...(state.a.text ? { text: state.a.text } : {}), sets: state.a.sets } }));
}

function drawOdds(answer, error) {
  byId("odds").replaceChildren(...(answer ? [el("h2", {}, "What to build, and how surely"), ...oddsPanel(answer)] : [el("p", { class: "refused" }, error)]));
  document.body.dataset.odds = answer ? answer.best : "refused";
}

function drawTornado(lines) {
  const base = found.a?.outcome.headline?.speedup;
  const some = lines.some((line) => line.low[0] !== null && line.high[0] !== null);
  byId("tornado").replaceChildren(
    ...(lines.length && base && some
      ? [el("h2", {}, "What the headline rests on"), el("p", { class: "hint" }, "Speed-up with one assumption at its low (blue) and its high end (orange), all others as they are"), tornadoPlot(lines, base, "speed-up with each assumption at either end")]
      : []),
  );
  document.body.dataset.tornado = lines.length;
}

function drawAxes(x, y) {
  const pick = (name, now) =>
    el("select", { "aria-label": `${name} axis`, onchange: (event) => change({ ...state, [name]: event.target.value }, { quiet: true }) }, ...AXIS_METRICS.map((key) => el("option", { value: key, selected: key === now }, METRICS[key])));
  const log = el("button", { type: "button", "aria-pressed": String(state.log), onclick: () => change({ ...state, log: !state.log }, { quiet: true }) }, "logarithmic");
  byId("axes").replaceChildren("x ", pick("x", x), " y ", pick("y", y), " ", log);
}

/// The study's budget; where it has none, the widest of its points.
function budget() {
  const widest = () => Math.max(...found.a.outcome.fronts.flatMap((front) => front.front.map((point) => point.area_mm2)));
  return found.a && (found.a.budget_mm2 ?? widest());
}

function drawControls() {
  const held = document.activeElement?.closest?.("#slides, #picks, #fields") && document.activeElement.getAttribute("aria-label");
  const sweeps = catalog.configurations.filter((own) => own.name.startsWith("sweeps/"));
  const own = state.a.text ? [el("option", { value: "", selected: true }, state.a.sweep)] : [];
  const study = el("select", { "aria-label": "study", onchange: (event) => event.target.value && change({ ...state, a: { sweep: event.target.value, sets: [] } }) }, ...own, ...sweeps.map((sweep) => el("option", { value: sweep.name, selected: sweep.name === state.a.sweep && !state.a.text, title: sweep.about }, sweep.name.slice(7))));
  const about = catalog.configurations.find((one) => one.name === state.a.sweep)?.about ?? "";
  byId("picks").replaceChildren(el("label", { class: "pick" }, el("span", {}, "study"), study), el("p", { class: "hint" }, about), pickers(catalog, state.a, (next) => change({ ...state, a: next })));
  byId("slides").replaceChildren(sliders(state.a, fields, axes, budget(), drag, () => change(state)));
  const changed = state.a.sets.length;
  byId("changed").replaceChildren(
    changed ? `${changed} ${changed === 1 ? "value differs" : "values differ"} from the study. ` : "As the study has it. ",
    changed ? el("button", { type: "button", onclick: () => change({ ...state, a: { ...state.a, sets: [] } }) }, "as it was") : "",
    " ",
    state.b
      ? el("button", { type: "button", onclick: () => change({ ...state, b: null, point: null }) }, "close the second study")
      : el("button", { type: "button", id: "second", onclick: () => change({ ...state, b: { sweep: state.a.sweep, sets: state.a.sets } }) }, "keep as second study"),
  );
  drawFields();
  // Who was on a control stays on it, though it was drawn anew.
  if (held) document.querySelector(`main [aria-label="${CSS.escape(held)}"]`)?.focus();
}

function drawFields() {
  const filter = byId("filter")?.value ?? "";
  byId("fields").replaceChildren(fieldTable(state.a, fields, filter, (next) => change({ ...state, a: next })));
}

/// The outline of the page, once.
function build() {
  const tensors = tensorView({
    ask: (request, file) => model.slow(request, file),
    announce,
    use: (path, bits, kind) => {
      change({ ...state, view: "study", a: withSet(state.a, path, bits) });
      announce(`the study now has ${bits} bits for ${kind}s, as measured`);
    },
  });
  const filter = el("input", { id: "filter", type: "search", placeholder: "find a field", "aria-label": "find a field", oninput: drawFields });
  byId("main").append(
    el("aside", { "data-of": "study", "aria-label": "the study" }, el("div", { id: "picks" }), el("h2", {}, "What if"), el("div", { id: "slides" }), el("p", { id: "changed", class: "hint" })),
    el(
      "section",
      { "data-of": "study", "aria-label": "the answer" },
      el("p", { id: "cluster", class: "hint" }),
      el("div", { id: "answer", tabindex: "-1", "aria-live": "polite" }),
      el("div", { id: "odds" }),
      el("h2", {}, "Pareto fronts"),
      el("div", { id: "axes", class: "tools" }),
      el("figure", { id: "front" }),
      el("p", { class: "hint" }, "A click on a point, or the arrow keys, open it below."),
      el("div", { id: "difference" }),
      el("h2", {}, "The split of silicon at the budget"),
      el("figure", { id: "split" }),
      el("div", { id: "point" }),
      el("figure", { id: "tornado" }),
      el("details", { id: "all-fields" }, el("summary", {}, "Every field, its source and its unit"), filter, el("div", { id: "fields", class: "wide" })),
    ),
    el("div", { "data-of": "tensors", class: "view" }, tensors.root),
  );
  byId("main").hidden = false;
  tools();
  for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", () => change({ ...state, view: button.dataset.view }, { quiet: true }));
  dropping(tensors);
}

function show() {
  for (const part of document.querySelectorAll("[data-of]")) part.hidden = part.dataset.of !== state.view;
  for (const button of document.querySelectorAll("[data-view]")) {
    if (button.dataset.view === state.view) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  else delete document.documentElement.dataset.theme;
}

function tools() {
  const name = () => state.a.sweep.split("/").pop().replace(/\.toml$/, "");
  const save = (kind, ending, type) => async () => {
    try {
      const { answer } = await model.slow({ do: kind, study: state.a });
      download(`${kind === "toml" ? name() : kind}.${ending}`, answer, type);
    } catch (error) {
      failed(error);
    }
  };
  const button = (text, title, act) => el("button", { type: "button", title, onclick: act }, text);
  const file = el("input", { type: "file", id: "open-file", hidden: true, "aria-label": "a file to open", onchange: (event) => event.target.files[0] && opened(event.target.files[0]) });
  byId("tools").append(
    button("link", "copy a link to this study", async () => {
      await navigator.clipboard?.writeText(location.href).catch(() => {});
      announce("the address of this page is the link");
    }),
    button("TOML", "the study as a file that `trinity sweep` reads", save("toml", "toml", "application/toml")),
    button("fronts CSV", "pareto.csv", save("pareto", "csv", "text/csv")),
    button("points CSV", "points.csv: every point", save("points", "csv", "text/csv")),
    button("SVG", "the fronts as a drawing", () => download("fronts.svg", drawing(byId("fronts")).text, "image/svg+xml")),
    button("PNG", "the fronts as a picture", async () => download("fronts.png", await png(byId("fronts")), "image/png")),
    button("open", "a study (.toml), points.csv, config.json of a model, or tensors", () => file.click()),
    button("light or dark", "change the colours of the page", () => {
      const dark = (state.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
      change({ ...state, theme: dark ? "light" : "dark" }, { quiet: true });
    }),
    file,
  );
}

let openTensors;

/// A file that was dropped or chosen: what it is, its name says.
async function opened(file) {
  try {
    if (/\.toml$/.test(file.name)) {
      change({ ...state, view: "study", a: { sweep: file.name, text: await file.text(), sets: [] } });
    } else if (/config.*\.json$/.test(file.name)) {
      const { answer } = await model.slow({ do: "shape", text: await file.text() });
      const study = answer.sets.reduce((own, set) => withSet(own, set.slice(0, set.indexOf("=")), set.slice(set.indexOf("=") + 1)), state.a);
      change({ ...state, view: "study", a: study });
      announce(`the model of the study now has the shape of ${answer.model}`);
    } else if (/\.(csv|json)$/.test(file.name)) {
      dots = pointsOf(file.name, await file.text());
      state = { ...state, view: "study" };
      show();
      draw();
      announce(`${grouped(dots.length)} points of ${file.name} lie beneath the fronts`);
    } else {
      change({ ...state, view: "tensors" }, { quiet: true });
      await openTensors(file);
    }
  } catch (error) {
    failed(error);
  }
}

function dropping(tensors) {
  openTensors = tensors.open;
  const over = (on) => (event) => {
    event.preventDefault();
    document.body.classList.toggle("dropping", on);
  };
  document.addEventListener("dragover", over(true));
  document.addEventListener("dragleave", over(false));
  document.addEventListener("drop", (event) => {
    over(false)(event);
    const file = event.dataTransfer?.files[0];
    if (file) opened(file);
  });
}

async function start() {
  // A page without a model was served by the command, which is one.
  const packed = byId("model").textContent;
  if (packed && (typeof WebAssembly !== "object" || typeof DecompressionStream !== "function")) {
    announce("");
    alarm({ error: "this browser cannot run the model: it has no WebAssembly or cannot unpack it", help: "Chromium 80, Firefox 113, Safari 16.4 or newer can; `trinity sweep` gives the same answers" });
    return;
  }
  try {
    model = packed ? await engine(packed, WORKER) : remote();
    catalog = (await model.quick({ do: "catalog" })).answer;
  } catch (error) {
    announce("");
    alarm({ error: `the model could not be started: ${error.message}`, help: packed ? "the page may have been cut off on its way: write it again with `trinity web -o`" : "start `trinity web` again and reload the page" });
    return;
  }
  // For who wants to ask from the console what the page asks.
  globalThis.trinity = { ask: async (request, file) => (await model.slow(request, file)).answer };
  // By a handler: the address is the study's, not a place on the page.
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("answer").focus();
  });
  build();
  show();
  drawControls();
  asked(false);
  addEventListener("hashchange", () => {
    const next = read(location.hash);
    if (written(next.state) === written(state)) return;
    complaints = next.complaints;
    change(next.state);
  });
}

start();
