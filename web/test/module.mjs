// The module beside the command, without a browser: module.mjs MODEL.wasm TRINITY
//
// What the page asks, asked in Node; every number of a few studies compared.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";
import { server } from "../page/serve.js";
import { FEW, STUDIES } from "./digits.mjs";

const [, , model, trinity] = process.argv;
const serve = server(new WebAssembly.Module(readFileSync(model)));
const folder = mkdtempSync(join(tmpdir(), "trinity-module-"));
const command = (args) => JSON.parse(execFileSync(trinity, [...args, "--json", "-q"], { cwd: folder, maxBuffer: 1 << 28 }));
const ask = (request) => {
  const { answer, refused } = serve(request);
  assert.equal(refused, undefined);
  return answer;
};
for (const [sweep, ...sets] of FEW.map((at) => STUDIES[at])) {
  const study = { sweep, sets };
  const laid = sets.flatMap((set) => ["--set", set]);
  const { outcome } = ask({ do: "sweep", study });
  assert.deepEqual(outcome, command(["sweep", sweep, ...laid, "--points", "none", "--force", "--out", "run"]), sweep);
  const front = outcome.fronts.find((own) => own.front.length)?.front ?? [];
  const index = front[front.length >> 1].index;
  const { explanation } = ask({ do: "explain", study, index });
  assert.deepEqual(explanation, command(["sweep", "explain", String(index), sweep, ...laid]), sweep);
  console.log(`ok     the module's digits of ${[sweep, ...sets].join(" ")}`);
}
const wrong = serve({ do: "sweep", study: { sweep: "sweeps/llama-7b", sets: ["budget=3 apples"] } });
assert.match(wrong.refused.error, /apples/);
rmSync(folder, { recursive: true });
