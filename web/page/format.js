// Numbers and elements as the page writes them.

/// Three significant digits, as the command's tables have them.
export function sig3(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  if (magnitude >= -4 && magnitude <= 2) return value.toFixed(Math.max(2 - magnitude, 0));
  if (magnitude >= 3 && magnitude <= 9) {
    const unit = 10 ** (magnitude - 2);
    return grouped(Math.round(value / unit) * unit);
  }
  return value.toExponential(2);
}

export function grouped(number) {
  return String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/// An element: attributes, then children (texts or elements).
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/// Metrics as the answers name them, and in words with their unit.
export const METRICS = {
  area_mm2: "silicon, mm²",
  tokens_per_s: "tokens/s",
  energy_j_per_token: "J/token",
  iteration_s: "iteration, s",
  memory_gb: "memory a GPU, GB",
  gpu_mm2: "GPU, mm²",
  nic_mm2: "NIC, mm²",
  codec_mm2: "codec, mm²",
  power_w: "power, W",
  normalized_performance: "performance",
};
export const AXIS_METRICS = ["area_mm2", "tokens_per_s", "energy_j_per_token", "iteration_s", "memory_gb", "power_w", "normalized_performance"];

/// Okabe and Ito's colours, which colour-blind readers tell apart; shapes say
/// the same once more.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7500", "#6a51a3"];
const NEUTRAL = "#7a828c";
export const SHAPES = ["circle", "square", "diamond", "triangle", "cross", "down"];

/// The colour and shape of each scenario or codec of a list.
export function looks(names) {
  let next = 0;
  return new Map(
    names.map((name, at) => {
      const plain = ["uncompressed", "none", "raw", "fp16"].includes(name);
      return [name, { colour: plain ? NEUTRAL : COLOURS[next++ % COLOURS.length], shape: SHAPES[at % SHAPES.length] }];
    }),
  );
}
