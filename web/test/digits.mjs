// The same digits as the command: twenty studies, every number.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";

export const STUDIES = [
  ["sweeps/llama-7b"],
  ["sweeps/llama-7b", "budget=30000 mm2"],
  ["sweeps/llama-7b", "study.cluster.nic.bandwidth=200 Gbit/s"],
  ["sweeps/llama-7b", "study.cluster.gpu.extends=gpus/h100", "axes.1.values=[2, 4]"],
  ["sweeps/llama-7b", "study.job.compression.weight-gradients=1.37"],
  ["sweeps/llama-7b", "study.job.sequence=4096", "study.job.recompute=full"],
  ["sweeps/llama-7b", "study.job.llm.extends=llms/llama-3-8b", "study.job.recompute=full"],
  ["sweeps/llama-7b", "axes.3.values=[1]", "study.cluster.nic.extends=nics/cx7"],
  ["sweeps/five-codecs"],
  ["sweeps/five-codecs", "study.job.replica-batch=8"],
  ["sweeps/figure-15"],
  ["sweeps/figure-16b"],
  ["sweeps/figure-16b-bound"],
  ["sweeps/kv-spill"],
  ["sweeps/kv-spill", "study.job.sequence=65536"],
  ["sweeps/slow-wires"],
  ["sweeps/llama-3-70b-edge"],
  ["sweeps/codec-or-stack"],
  ["sweeps/die-h100", "axes.0.range.to=68"],
  ["sweeps/die-h100", "axes.0.range.to=60", "axes.1.values=[\"50 MiB\"]", "study.job.sequence=16384"],
];

/// A training cluster, a serving one, a die.
export const FEW = [0, 13, 19];

export async function digits({ tab, promise, trinity, few }) {
  const folder = mkdtempSync(join(tmpdir(), "trinity-web-"));
  const page = await tab();
  await page.waitForFunction(() => globalThis.trinity);
  const ask = (request) => page.evaluate((own) => globalThis.trinity.ask(own), request);
  const command = (args) => JSON.parse(execFileSync(trinity, [...args, "--json", "-q"], { cwd: folder, maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "pipe"] }));
  let numbers = 0;
  const count = (value) => {
    if (typeof value === "number") numbers++;
    else if (value && typeof value === "object") Object.values(value).forEach(count);
  };
  let turn = 0;
  for (const [sweep, ...sets] of few ? FEW.map((at) => STUDIES[at]) : STUDIES) {
    await promise(`digits of ${[sweep, ...sets].join(" ")}`, async () => {
      const laid = sets.flatMap((set) => ["--set", set]);
      const study = { sweep, sets };
      const { outcome } = await ask({ do: "sweep", study });
      const told = command(["sweep", sweep, ...laid, "--points", "none", "--out", `run-${turn++}`]);
      assert.deepEqual(outcome, told);
      const front = outcome.fronts.find((own) => own.front.length)?.front ?? [];
      const index = front[front.length >> 1].index;
      const { explanation } = await ask({ do: "explain", study, index });
      assert.deepEqual(explanation, command(["sweep", "explain", String(index), sweep, ...laid]));
      count(outcome);
      count(explanation);
    });
  }
  await promise("what to build, its odds and its map are the command's, on the page as well", async () => {
    const own = await tab("#sweep=sweeps/kv-spill");
    await own.click("#ask-odds", { timeout: 60000 });
    await own.waitForFunction(() => document.body.dataset.odds, null, { timeout: 300000 });
    const found = await own.evaluate(() => globalThis.trinity.ask({ do: "odds", study: { sweep: "sweeps/kv-spill", sets: [] } }));
    const told = command(["explore", "--study", "sweeps/kv-spill", "--out", `odds-${turn++}`]);
    assert.deepEqual(found, told);
    assert.equal(told.odds.draws, 1021);
    count(found);
    const shown = await own.$$eval("#odds > p", (all) => all.map((one) => one.textContent));
    assert.deepEqual(shown, told.answer);
    const medians = await own.$$eval("#odds tbody tr", (rows) => rows.map((row) => row.cells[2].textContent));
    assert.deepEqual(medians, told.odds.chances.map((one) => `${one.gain.median.toFixed(3)}×`));
    assert.equal((await own.$$("#odds figure svg circle")).length, told.regime.marks.length);
    await own.context().close();
  });
  await promise("a study exported as TOML is the same study to the command", async () => {
    for (const [sweep, ...sets] of STUDIES.filter((_, at) => (few ? [3] : [3, 9, 14, 18]).includes(at))) {
      const study = { sweep, sets };
      writeFileSync(join(folder, "study.toml"), await ask({ do: "toml", study }));
      const told = command(["sweep", "study.toml", "--points", "none", "--out", `toml-${turn++}`]);
      const { outcome } = await ask({ do: "sweep", study });
      // A study that names itself the paper's is the paper's under any name.
      assert.deepEqual(outcome, told, sweep);
    }
  });
  await promise("what is wrong is said as the command says it", async () => {
    for (const set of ["study.cluster.nic.bandwith=1 Gbit/s", "study.cluster.nic.bandwidth=fast", "axes.0.values=[-1]", "budget=3 apples"]) {
      const said = await page.evaluate((own) => globalThis.trinity.ask(own).then(() => null, (error) => error.refused), { do: "sweep", study: { sweep: "sweeps/llama-7b", sets: [set] } });
      let told;
      try {
        command(["sweep", "sweeps/llama-7b", "--set", set, "--points", "none", "--out", `wrong-${turn++}`]);
      } catch (error) {
        told = JSON.parse(error.stderr);
      }
      assert.deepEqual(said, told, set);
    }
  });
  console.log(`       ${numbers} numbers compared`);
  rmSync(folder, { recursive: true });
  await page.context().close();
}
