// Puts the page together: build.mjs MODEL.wasm OUT.html
//
// The module is compressed and written into the page as text; the worker is a
// text inside the script, because a page opened from a file may load nothing.
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { server } from "./page/serve.js";

/// What the page may weigh, as it is and on its way.
const MOST_BYTES = 3e6;
const MOST_PACKED = 1.5e6;

const [, , model, out] = process.argv;
const path = (name) => new URL(`./page/${name}`, import.meta.url).pathname;
const bundle = async (entry, define = {}) => {
  const result = await build({ entryPoints: [path(entry)], bundle: true, minify: true, format: "iife", target: ["es2022"], charset: "utf8", legalComments: "none", write: false, define });
  return result.outputFiles[0].text;
};
const worker = await bundle("worker.js");
const script = (await bundle("main.js", { WORKER: JSON.stringify(worker) })).replaceAll("</script", "<\\/script");
const style = (await build({ entryPoints: [path("style.css")], minify: true, write: false })).outputFiles[0].text;
const bytes = await readFile(model);
// The module says itself what it was made of; the command compares.
const { answer, refused } = server(new WebAssembly.Module(bytes))({ do: "catalog" });
if (refused) throw new Error(`the module does not run: ${refused.error}`);
const packed = gzipSync(bytes, { level: 9 });
const parts = { STYLE: style.trim(), MODEL: packed.toString("base64"), SCRIPT: script, SOURCES: answer.sources };
const html = (await readFile(path("index.html"), "utf8")).replace(/\/\*(STYLE|MODEL|SCRIPT|SOURCES)\*\//g, (_, name) => parts[name]);
const size = Buffer.byteLength(html);
const sent = gzipSync(html, { level: 9 }).length;
console.log(`page ${size} bytes, ${sent} compressed; module ${bytes.length} bytes, ${packed.length} compressed`);
if (size > MOST_BYTES || sent > MOST_PACKED) throw new Error(`the page may weigh ${MOST_BYTES} bytes, ${MOST_PACKED} compressed`);
await writeFile(out, html);
