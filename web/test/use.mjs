// The page as a person uses it.
import assert from "node:assert/strict";
import { join } from "node:path";

/// A small npy of f32: rows of neighbouring values that resemble each other.
function npy(rows, columns) {
  const header = `{'descr': '<f4', 'fortran_order': False, 'shape': (${rows}, ${columns}), }\n`;
  const bytes = Buffer.alloc(10 + header.length + rows * columns * 4);
  bytes.write("\x93NUMPY\x01\x00", "latin1");
  bytes.writeUInt16LE(header.length, 8);
  bytes.write(header, 10, "latin1");
  let random = 12345;
  for (let at = 0; at < rows * columns; at++) {
    random = (Math.imul(random, 1103515245) + 12345) >>> 0;
    bytes.writeFloatLE(0.02 * (random / 2 ** 32 + Math.sin(at / 9) - 0.5), 10 + header.length + 4 * at);
  }
  return bytes;
}

/// Drops a file on the page.
function drop(page, name, bytes) {
  return page.evaluate(
    ([name, base64]) => {
      const content = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const transfer = new DataTransfer();
      transfer.items.add(new File([content], name));
      document.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
    },
    [name, Buffer.from(bytes).toString("base64")],
  );
}

const answered = (page) => page.waitForFunction(() => document.body.dataset.answers && document.body.dataset.point && document.body.dataset.tornado);
const silent = (page) => assert.deepEqual(page.noise, [], "the console is not empty");

export async function use({ tab, promise, pictures, served, few }) {
  const shot = (page, name) => page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
  const page = await tab();

  await promise("the page opens and answers", async () => {
    await answered(page);
    const first = await page.evaluate(() => Number(document.body.dataset.first));
    assert.match(await page.textContent("#answer"), /× as fast as uncompressed/);
    assert.match(await page.textContent("#cluster"), /rtx3090.*cx5.*llama-2-7b.*sequences/);
    for (const part of ["#fronts", "#split svg", "#point svg", "#energy svg", "#memory svg", "#tornado svg", "table.lines"]) assert.ok(await page.$(part), `no ${part}`);
    assert.ok((await page.$$("#point .badge.estimated")).length > 5);
    silent(page);
    await shot(page, "study");
    return `first answer after ${first} ms`;
  });

  await promise("a dragged slider redraws without stalling the page", async () => {
    const before = await page.textContent("#answer");
    const answers = await page.evaluate(() => Number(document.body.dataset.answers));
    const dimmed = page.evaluate(() => new Promise((done) => {
      const watch = new MutationObserver(() => document.getElementById("answer").classList.contains("stale") && done(true));
      watch.observe(document.getElementById("answer"), { attributes: true });
      setTimeout(() => done(false), 20000);
    }));
    await page.evaluate(() => {
      globalThis.longest = 0;
      let last = performance.now();
      const tick = () => {
        const now = performance.now();
        globalThis.longest = Math.max(globalThis.longest, now - last);
        last = now;
        requestAnimationFrame(tick);
      };
      requestAnimationFrame(tick);
    });
    const slide = await page.$('[data-slide="link speed"] input');
    const box = await slide.boundingBox();
    await page.mouse.move(box.x + box.width * 0.3, box.y + box.height / 2);
    await page.mouse.down();
    for (let at = 3; at <= 9; at++) {
      await page.mouse.move(box.x + (box.width * at) / 10, box.y + box.height / 2);
      await page.waitForTimeout(60);
    }
    await page.mouse.up();
    await page.waitForFunction((had) => Number(document.body.dataset.answers) >= had + 3, answers);
    assert.notEqual(await page.textContent("#answer"), before);
    assert.ok(await dimmed, "an answer that is being computed anew is not dimmed");
    assert.match(page.url(), /set=study\.cluster\.nic\.bandwidth=/);
    silent(page);
    const longest = await page.evaluate(() => globalThis.longest);
    return `longest pause of the page ${longest.toFixed(0)} ms`;
  });

  await promise("a click on a point explains it, and the address brings it back", async () => {
    const marks = await page.$$("#fronts .mark");
    const mark = marks[Math.floor(marks.length / 3)];
    const index = await mark.getAttribute("data-index");
    await mark.dispatchEvent("click");
    await page.waitForFunction((own) => document.body.dataset.point === own, index);
    assert.match(await page.textContent("#point h3"), new RegExp(`Point ${index}:`));
    const said = [await page.textContent("#answer"), await page.textContent("#point")];
    const again = await tab(new URL(page.url()).hash);
    await again.waitForFunction((own) => document.body.dataset.point === own, index);
    assert.deepEqual([await again.textContent("#answer"), await again.textContent("#point")], said);
    await page.focus("#fronts");
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction((own) => document.body.dataset.point !== own, index);
    assert.match(await page.textContent("#status"), /tokens\/s/);
    silent(again);
    silent(page);
    await again.context().close();
  });

  await promise("two studies stand side by side with their difference", async () => {
    const own = await tab("#sweep=sweeps/llama-7b&set=study.cluster.nic.bandwidth=400 Gbit/s&b=sweeps/llama-7b");
    await answered(own);
    await own.waitForSelector("#difference table");
    const ratios = await own.$$eval("#difference td.ratio", (cells) => cells.map((cell) => cell.textContent));
    assert.ok(ratios.length >= 9 && ratios.some((ratio) => ratio !== "1.000×"), ratios.join());
    silent(own);
    await shot(own, "two-studies");
    await own.context().close();
  });

  const lengths = few ? 32 : 256;
  await promise(`${(392 * lengths).toLocaleString("en")} points`, async () => {
    const values = Array.from({ length: lengths }, (_, at) => at + 1).join(",");
    const own = await tab(`#sweep=sweeps/llama-7b&set=axes.0.values=[${values}]`);
    await answered(own);
    const ms = await own.evaluate(async () => {
      const slide = document.querySelector('[data-slide="link speed"] input');
      const times = [];
      for (let turn = 0; turn < 3; turn++) {
        const had = Number(document.body.dataset.answers);
        slide.value = Number(slide.value) + 0.5;
        slide.dispatchEvent(new Event("input", { bubbles: true }));
        while (Number(document.body.dataset.answers) === had) await new Promise((resolve) => setTimeout(resolve, 10));
        times.push(Number(document.body.dataset.ms));
      }
      return Math.min(...times);
    });
    silent(own);
    await own.context().close();
    return `${ms} ms`;
  });

  await promise("a field can be written over, and nonsense is refused with a way back", async () => {
    const own = await tab();
    await answered(own);
    await own.click("#all-fields summary");
    await own.fill("#filter", "nic.area");
    await own.waitForSelector("table.fields .badge.measured, table.fields .badge.paper");
    const field = 'input[aria-label="study.cluster.nic.area"]';
    await own.fill(field, "300 apples");
    await own.press(field, "Tab");
    await own.waitForSelector("#alert strong");
    assert.match(await own.textContent("#alert"), /apples/);
    for (const id of ["#answer", "#cluster", "#odds"]) assert.equal(await own.textContent(id), "", `the last study's ${id} stands beside an error`);
    await own.click('#alert button:has-text("undo")');
    await own.waitForFunction(() => document.getElementById("alert").hidden);
    silent(own);
    await own.context().close();
  });

  await promise("a dropped tensor is measured and coded, and its bits flow into the study", async () => {
    await drop(page, "layer.k_proj.weight.npy", npy(64, 96));
    await page.waitForSelector("#tensors .facts");
    await page.waitForFunction(() => document.getElementById("tensors").dataset.complete, null, { timeout: 60000 });
    const codecs = await page.$$eval("#tensors table button.use", (buttons) => buttons.length);
    assert.ok(codecs > 20, `${codecs} rates`);
    assert.equal((await page.$$("#tensors .heat canvas")).length, 7);
    await shot(page, "tensors");
    await page.evaluate(() => document.querySelector("#tensors button.use").click());
    await page.waitForFunction(() => location.hash.includes("study.job.compression.weights="));
    silent(page);
  });

  await promise("a malformed file gets a sentence", async () => {
    for (const [name, text] of [["broken.safetensors", "\x09\x00\x00\x00\x00\x00\x00\x00{\"a\": 1}x"], ["broken.gguf", "GGUFnonsense"], ["empty.npy", ""], ["notes.txt", "hello"]]) {
      await drop(page, name, Buffer.from(text, "latin1"));
      await page.waitForFunction((own) => document.querySelector("#tensors .refused strong")?.textContent.startsWith(own), name);
    }
    await drop(page, "config.json", Buffer.from("{}"));
    await page.waitForFunction(() => document.querySelector("#alert strong")?.textContent.includes("num_hidden_layers"));
    await drop(page, "points.csv", Buffer.from("a,b\n1,2\n"));
    await page.waitForFunction(() => document.querySelector("#alert strong")?.textContent.includes("holds no points"));
    silent(page);
  });

  await promise("a model's config.json becomes the LLM; points.csv lies beneath the fronts", async () => {
    const own = await tab();
    await answered(own);
    const points = await own.evaluate(() => globalThis.trinity.ask({ do: "points", study: { sweep: "sweeps/llama-7b", sets: [] } }));
    await drop(own, "points.csv", Buffer.from(points));
    await own.waitForFunction(() => document.getElementById("status").textContent.includes("7,644 points"));
    const config = { model_type: "llama", hidden_size: 2048, num_hidden_layers: 16, num_attention_heads: 32, num_key_value_heads: 8, intermediate_size: 8192, vocab_size: 128256 };
    await drop(own, "config.json", Buffer.from(JSON.stringify(config)));
    await own.waitForFunction(() => location.hash.includes("study.job.llm.hidden=2048"));
    silent(own);
    await own.context().close();
  });

  await promise("a link with nonsense, a cut page and a browser without WebAssembly get a sentence", async () => {
    for (const fragment of ["#sweep=sweeps/lama&set=x", "#%%%", "#sweep=sweeps/llama-7b&set=&point=-3&fly=1", "#sweep=sweeps/serving-kv", "#sweep=sweeps/llama-7b-wide"]) {
      const own = await tab(fragment);
      await own.waitForFunction(() => document.body.dataset.answers || !document.getElementById("alert").hidden);
      const said = (await own.textContent("#alert")) + (await own.textContent("#status"));
      assert.ok(said.length > 20, `${fragment}: ${said}`);
      silent(own);
      await own.context().close();
    }
    // A page that the command answers needs neither.
    if (served) return;
    const without = await tab("", { before: "delete globalThis.WebAssembly" });
    await without.waitForFunction(() => !document.getElementById("alert").hidden);
    assert.match(await without.textContent("#alert"), /WebAssembly/);
    await without.context().close();
    const alone = await tab("", { before: "globalThis.Worker = class { constructor() { throw new Error('no workers here'); } }" });
    await answered(alone);
    await alone.context().close();
  });

  await promise("dark and small", async () => {
    const own = await tab("#theme=dark", { context: { viewport: { width: 390, height: 800 }, colorScheme: "dark" } });
    await answered(own);
    const wide = await own.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 391, `the page is ${wide} wide`);
    const tops = await own.evaluate(() => ["#cluster", "#answer", "#slides", "#front"].map((id) => document.querySelector(id).getBoundingClientRect().top));
    assert.deepEqual([...tops].sort((a, b) => a - b), tops, `cluster, answer, sliders and fronts at ${tops}`);
    const unnamed = await own.$$eval("button, select, input", (all) => all.filter((one) => !one.hidden && !one.textContent.trim() && !one.getAttribute("aria-label") && !one.labels?.length).map((one) => one.outerHTML.slice(0, 80)));
    assert.deepEqual(unnamed, []);
    silent(own);
    await shot(own, "small-dark");
    await own.context().close();
  });
  await page.context().close();
}
