// The state of the page as the fragment of its address: a link is a study.
//
// Readable on purpose: `#sweep=sweeps/llama-7b&set=budget=40000 mm2&point=7`.

export const FIRST = "sweeps/llama-7b";
const KNOWN = ["sweep", "set", "text", "point", "side", "b", "b.set", "view", "x", "y", "log", "theme"];

/// The sets of a study with one more; an assignment of the same path goes.
export function withSet(study, path, value) {
  const sets = study.sets.filter((set) => !set.startsWith(`${path}=`));
  if (value !== null) sets.push(`${path}=${value}`);
  return { ...study, sets };
}

export function valueOf(study, path) {
  const found = study.sets.find((set) => set.startsWith(`${path}=`));
  return found === undefined ? null : found.slice(path.length + 1);
}

export function written(state) {
  const fields = new URLSearchParams();
  fields.set("sweep", state.a.sweep);
  for (const set of state.a.sets) fields.append("set", set);
  if (state.a.text) fields.set("text", state.a.text);
  if (state.b) {
    fields.set("b", state.b.sweep);
    for (const set of state.b.sets) fields.append("b.set", set);
  }
  if (state.point) {
    fields.set("point", state.point.index);
    if (state.point.side !== "a") fields.set("side", state.point.side);
  }
  if (state.view !== "study") fields.set("view", state.view);
  for (const key of ["x", "y"]) if (state[key]) fields.set(key, state[key]);
  if (!state.log) fields.set("log", "0");
  if (state.theme) fields.set("theme", state.theme);
  return fields.toString().replaceAll("%2F", "/").replaceAll("%3D", "=").replaceAll("%2C", ",");
}

/// The state that a fragment tells, and what in it is nonsense.
export function read(fragment) {
  const state = {
    a: { sweep: FIRST, sets: [] },
    b: null,
    point: null,
    view: "study",
    x: null,
    y: null,
    log: true,
    theme: "",
  };
  const complaints = [];
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  for (const key of new Set(fields.keys()))
    if (!KNOWN.includes(key)) complaints.push(`the link speaks of \`${key.slice(0, 40)}\`, which nobody here knows`);
  if (fields.has("sweep")) state.a.sweep = fields.get("sweep");
  state.a.sets = fields.getAll("set");
  if (fields.has("text")) state.a.text = fields.get("text");
  if (fields.has("b")) state.b = { sweep: fields.get("b"), sets: fields.getAll("b.set") };
  if (fields.has("point")) {
    const index = Number(fields.get("point"));
    if (Number.isSafeInteger(index) && index >= 0) state.point = { side: fields.get("side") === "b" && state.b ? "b" : "a", index };
    else complaints.push(`the link's point \`${fields.get("point").slice(0, 40)}\` is no index`);
  }
  for (const key of ["x", "y"]) if (fields.has(key)) state[key] = fields.get(key);
  if (["study", "tensors"].includes(fields.get("view"))) state.view = fields.get("view");
  state.log = fields.get("log") !== "0";
  if (["light", "dark"].includes(fields.get("theme"))) state.theme = fields.get("theme");
  return { state, complaints };
}
