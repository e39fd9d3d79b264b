// Tensors: a dropped file, its statistics, and codecs on a piece of it.
//
// The file stays in the page; the codecs are the command's own.
import { el, grouped, looks, sig3, svg } from "./format.js";
import { histogramPlot, mark, ratePlot } from "./plot.js";
import { refusal } from "./answers.js";

const BITS = [2, 2.5, 3, 3.5, 4];
const SAMPLES = [4096, 16384, 65536, 262144];

/// Which bits of the study a class of tensor speaks of.
const FIELDS = {
  weight: "study.job.compression.weights",
  "kv-cache": "study.job.compression.kv",
  activation: "study.job.compression.activations",
  "weight-gradient": "study.job.compression.weight-gradients",
  "activation-gradient": "study.job.compression.activation-gradients",
};

/// The view. `ask` is the slow lane, `use(path, bits)` lays bits over the study.
export function tensorView({ ask, use, announce }) {
  const root = el("section", { id: "tensors", class: "view" });
  const body = el("div", { id: "tensor-body" });
  const state = { list: null, tensor: null, rates: [], sample: 16384, run: 0, bits: 3, codec: "trinity", class: null };

  const fail = (error) => {
    body.replaceChildren(el("div", { role: "alert", class: "refused" }, ...refusal(error.refused ?? { error: error.message })));
    announce(error.message);
  };

  async function open(file) {
    state.run++;
    body.replaceChildren(el("p", {}, `Reading ${file.name} …`));
    try {
      const bytes = await file.arrayBuffer();
      const { answer } = await ask({ do: "open", name: file.name }, bytes);
      state.list = answer;
      const first = answer.tensors.find((own) => !own.carried && own.shape.length >= 2 && own.values > 0) ?? answer.tensors.find((own) => own.values > 0);
      if (!first) throw new Error(`${file.name} holds no tensor with values`);
      await choose(first.tensor);
    } catch (error) {
      fail(error);
    }
  }

  async function choose(name) {
    const run = ++state.run;
    state.tensor = state.list.tensors.find((own) => own.tensor === name);
    state.class = state.tensor.class === "other" ? "weight" : state.tensor.class;
    state.rates = [];
    state.statistics = null;
    state.block = null;
    state.way = undefined;
    draw();
    try {
      state.statistics = (await ask({ do: "statistics", tensor: name })).answer;
      if (run !== state.run) return;
      draw();
      await picture(run);
      state.way = (await ask({ do: "way", tensor: name, nmse: 0.01, sample: 16384 })).answer;
      if (run !== state.run) return;
      draw();
      for (const codec of state.list.codecs) {
        const { answer } = await ask({ do: "rates", tensor: name, codec, bits: BITS, sample: state.sample });
        if (run !== state.run) return;
        state.rates.push(...answer);
        draw();
      }
      announce(`rate–distortion of ${name} is complete`);
      root.dataset.complete = name;
    } catch (error) {
      if (run === state.run) fail(error);
    }
  }

  async function picture(run = state.run) {
    try {
      const { answer } = await ask({ do: "block", tensor: state.tensor.tensor, codec: state.codec, bits: [state.bits], sample: 4096 });
      if (run !== state.run) return;
      state.block = answer;
    } catch (error) {
      state.block = { missed: error.message };
    }
    draw();
  }

  function heat(values, rows, columns, most, caption) {
    const canvas = el("canvas", { width: columns, height: rows, role: "img", "aria-label": caption });
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    values.forEach((value, at) => {
      // Blue below zero, orange above, as far from grey as the value is from zero.
      const share = Math.max(-1, Math.min(1, value / (most || 1)));
      const [r, g, b] = share < 0 ? [0, 114, 178] : [230, 159, 0];
      const weight = Math.abs(share);
      [r, g, b].forEach((own, k) => (image.data[4 * at + k] = 245 + (own - 245) * weight));
      image.data[4 * at + 3] = 255;
    });
    context.putImageData(image, 0, 0);
    return el("figure", { class: "heat" }, canvas, el("figcaption", {}, caption));
  }

  function blockFigure() {
    const block = state.block;
    const codec = el("select", { "aria-label": "codec of the picture", onchange: (event) => ((state.codec = event.target.value), picture()) }, ...state.list.codecs.map((name) => el("option", { selected: name === state.codec }, name)));
    const bits = el("input", { type: "range", min: 1, max: 8, step: 0.25, value: state.bits, "aria-label": "bits per value of the picture", onchange: (event) => ((state.bits = Number(event.target.value)), picture()) });
    const head = el("p", {}, codec, " at ", bits, ` ${state.bits} bits per value`);
    if (!block) return el("div", {}, head, el("p", { class: "hint" }, "coding …"));
    if (block.missed) return el("div", {}, head, el("p", { role: "alert" }, block.missed));
    const most = Math.max(...block.original.map(Math.abs)) / 2;
    const lost = block.original.map((value, at) => value - block.decoded[at]);
    const stages = block.stages.map((stage) => el("tr", {}, el("td", {}, stage.stage), el("td", {}, stage.choice), el("td", { class: "number" }, stage.bits_per_value.toFixed(3)), el("td", { class: "number" }, sig3(stage.operations_per_value))));
    return el(
      "div",
      {},
      head,
      el("p", {}, `${block.rows} × ${block.columns} values from the middle: ${block.bits_per_value.toFixed(3)} bits per value with everything counted, ${block.snr_db?.toFixed(2) ?? "∞"} dB.`),
      el("div", { class: "heats" }, heat(block.original, block.rows, block.columns, most, "as it was"), heat(block.decoded, block.rows, block.columns, most, "as it came back"), heat(lost, block.rows, block.columns, most / 4, "what was lost, four times as strong")),
      stages.length ? el("table", {}, el("thead", {}, el("tr", {}, ...["stage", "choice", "bits per value", "operations per value"].map((head) => el("th", {}, head)))), el("tbody", {}, ...stages)) : null,
    );
  }

  function wayFigure() {
    const way = state.way;
    if (way === undefined) return el("p", { class: "hint" }, "coding …");
    if (way === null) return el("p", { class: "hint" }, "only zeros here");
    const most = (values) => Math.max(...values.map(Math.abs)) / 2;
    const own = most(way.values);
    const picture = (values, top, caption) => {
      const figure = heat(values, way.rows, way.columns, top, caption);
      const lines = way.blocks.map(([x, y, size]) => svg("rect", { x, y, width: size, height: size }));
      const grid = svg("svg", { viewBox: `0 0 ${way.columns} ${way.rows}`, class: "partition", "aria-hidden": "true" }, ...lines);
      figure.prepend(el("div", { class: "over" }, figure.querySelector("canvas"), grid));
      return figure;
    };
    const [values, coefficients] = way.spreads;
    return el(
      "div",
      {},
      el("p", {}, `Around the largest value, at an error of 1 %: ${way.bits_per_value.toFixed(3)} bits per value. The largest value lies ${sig3(values.largest)} deviations out, the largest coefficient ${sig3(coefficients.largest)}; excess kurtosis ${sig3(values.excess_kurtosis)} before, ${sig3(coefficients.excess_kurtosis)} after an 8×8 transform.`),
      el("div", { class: "heats" }, picture(way.values, own, "values, partitioned"), picture(way.prediction, own, "predicted"), picture(way.residual, own, "residual"), picture(way.levels, most(way.levels), "levels after transform and quantization")),
    );
  }

  function ratesFigure() {
    if (!state.rates.length) return el("p", { class: "hint" }, "coding …");
    const names = [...new Set(state.rates.map((rate) => rate.codec))];
    const own = looks(names);
    const curves = names.map((codec) => ({ codec, ...own.get(codec), points: state.rates.filter((rate) => rate.codec === codec && rate.snr_db !== null && rate.bits_per_value !== null && rate.bits_per_value < 9).map((rate) => ({ bits: rate.bits_per_value, db: rate.snr_db })).sort((a, b) => a.bits - b.bits) }));
    const legend = el("div", { class: "keys" }, ...curves.map((curve) => el("span", {}, svg("svg", { viewBox: "-8 -8 16 16", width: 14, height: 14 }, svg("path", { d: mark(curve.shape, 5), fill: curve.colour })), curve.codec)));
    const rows = state.rates.map((rate) =>
      el("tr", {}, el("td", {}, rate.codec), el("td", {}, rate.target), el("td", { class: "number" }, rate.bits_per_value?.toFixed(3) ?? "–"), el("td", { class: "number" }, rate.snr_db?.toFixed(2) ?? "–"), el("td", {}, rate.missed ?? el("button", { type: "button", class: "use", onclick: () => use(FIELDS[state.class], Number(rate.bits_per_value.toFixed(3)), state.class) }, `use for ${state.class}s`))),
    );
    const running = names.length < state.list.codecs.length ? el("p", { class: "hint" }, `${names.length} of ${state.list.codecs.length} codecs done …`) : null;
    return el("div", {}, running, legend, ratePlot(curves, "decibels over bits per value, by codec"), el("details", {}, el("summary", {}, "every rate, and what to use in the study"), el("table", {}, el("thead", {}, el("tr", {}, ...["codec", "asked", "bits per value", "SNR, dB", ""].map((head) => el("th", {}, head)))), el("tbody", {}, ...rows))));
  }

  function statisticsFigure() {
    const line = state.statistics;
    if (!line) return el("p", { class: "hint" }, "measuring …");
    const law = line.law?.name ?? line.law;
    const shown = [["mean", line.mean], ["standard deviation", line.std], ["largest over deviation", line.absmax_over_std], ["excess kurtosis", line.excess_kurtosis], ["spread of row scales", line.row_scale_spread], ["spread of column scales", line.column_scale_spread], ["correlation along rows", line.row_autocorrelation], ["correlation along columns", line.column_autocorrelation], ["spectral flatness", line.spectral_flatness], ["entropy at 8 bits", line.entropy_8bit_bits], ["Gaussian bound, bits", line.gaussian_bound_bits]];
    const pairs = shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, sig3(value))));
    return el("div", {}, el("dl", { class: "facts" }, el("div", {}, el("dt", {}, "law"), el("dd", {}, String(law ?? "–"))), ...pairs), line.pictures.histogram.length ? histogramPlot(line.pictures.histogram, line.min, line.max, "histogram of the values, square-root scale") : null);
  }

  function draw() {
    const { list, tensor } = state;
    const select = el("select", { "aria-label": "tensor", onchange: (event) => choose(event.target.value) }, ...list.tensors.filter((own) => own.values > 0).map((own) => el("option", { value: own.tensor, selected: own.tensor === tensor.tensor }, `${own.tensor} ${own.dtype} ${own.shape.join("×")}`)));
    const classes = el("select", { "aria-label": "class of the tensor", onchange: (event) => ((state.class = event.target.value), draw()) }, ...Object.keys(FIELDS).map((name) => el("option", { selected: name === state.class }, name)));
    const sample = el("select", { "aria-label": "values of the sample", onchange: (event) => ((state.sample = Number(event.target.value)), choose(tensor.tensor)) }, ...SAMPLES.map((own) => el("option", { value: own, selected: own === state.sample }, grouped(own))));
    body.replaceChildren(
      el("p", {}, `${list.file}: ${list.format}, ${list.tensors.length} tensors. `, select, " as ", classes, ", at most ", sample, " values of it"),
      el("h3", {}, "Statistics"), statisticsFigure(),
      el("h3", {}, "Bits and error"), ratesFigure(),
      el("h3", {}, "A block, coded and decoded"), blockFigure(),
      el("h3", {}, "Through the stages of H.265 (the paper's Figures 3 and 4)"), wayFigure(),
    );
  }

  const input = el("input", { type: "file", id: "tensor-file", "aria-label": "a file of tensors", accept: ".safetensors,.npy,.npz,.gguf,.pt,.tri", onchange: (event) => event.target.files[0] && open(event.target.files[0]) });
  root.append(
    el("p", {}, "Drop a .safetensors, .npy or .gguf anywhere on this page, or choose one: ", input),
    el("p", { class: "hint" }, "Nothing is uploaded: the file is read, measured and coded in this page, by the same codecs as the command's."),
    body,
  );
  return { root, open };
}
