// How sure a number is: one word beside it, the sentence behind it.
import { el } from "./format.js";

const WORDS = {
  measured: ["measured", "measured on a device"],
  synthesized: ["synthesized", "by a synthesis tool"],
  paper: ["paper", "from a paper, a standard or a datasheet"],
  estimated: ["estimated", "somebody's judgement"],
  chosen: ["chosen", "true because it is asked"],
  unsaid: ["unsaid", "nobody says where it comes from"],
};

export function badge(origin, source) {
  const [word, means] = WORDS[origin] ?? WORDS.unsaid;
  return el("span", { class: `badge ${origin}`, title: source ? `${means}: ${source}` : means }, word);
}

/// Which link of the chain a line of an explanation belongs to, where one does.
function linkOf(part, line) {
  if (part === "time" || line === "tokens a second") return "time of an iteration";
  if ((part === "area" && ["GPUs", "total"].includes(line)) || part === "die") return "area of a GPU";
  return undefined;
}

/// The badge of a result: estimated, and how far such estimates were off.
export function resultBadge(part, line, certainty) {
  const link = certainty.find((own) => own.link === linkOf(part, line));
  if (!link) return el("span", { class: "badge estimated", title: "the model's; no set of `trinity validate` speaks of it alone" }, "estimated");
  const error = `±${(link.error * 100).toFixed(1)} %`;
  return el("span", { class: "badge estimated", title: `${link.link}: ${error} over ${link.basis} (trinity validate, ${link.set})` }, `estimated ${error}`);
}
