// Drives the page in Chromium: drive.mjs PAGE.html|served TRINITY CHROMIUM few|all PICTURES
//
// First the digits: studies in the page and in the command, every number
// compared. Then the page as a person uses it, from a file or as the command
// serves it. Pictures are left in a folder. Exits 1 where anything differs, fails
// or lands on the console.
import { chromium } from "playwright-core";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { digits } from "./digits.mjs";
import { use } from "./use.mjs";

const [, , page, trinity, executablePath, studies, pictures] = process.argv;
const served = page === "served";
const serving = served && spawn(trinity, ["web", "--no-open", "--port", "0", "-q"], { stdio: ["ignore", "pipe", "inherit"] });
const address = served ? (await createInterface({ input: serving.stdout })[Symbol.asyncIterator]().next()).value : `file://${page}`;
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
let failures = 0;

/// Runs one promise; what it throws is printed, and the rest goes on.
async function promise(name, act) {
  const start = performance.now();
  try {
    const said = await act();
    console.log(`ok     ${name}${said ? `: ${said}` : ""} (${((performance.now() - start) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failures++;
    console.log(`FAILED ${name}: ${error.message}`);
  }
}

/// A tab on the page; its console must stay empty and it may ask nobody for anything.
async function tab(fragment = "", options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options.context });
  const own = await context.newPage();
  // Machines that run tests have other things to do, too.
  own.setDefaultTimeout(120000);
  own.noise = [];
  own.on("console", (message) => ["error", "warning"].includes(message.type()) && own.noise.push(message.text()));
  own.on("pageerror", (error) => own.noise.push(error.message));
  const ours = (url) => /^(file|blob|data):/.test(url) || (served && url.startsWith(address));
  own.on("request", (request) => !ours(request.url()) && own.noise.push(`asked for ${request.url()}`));
  if (options.before) await own.addInitScript(options.before);
  await own.goto(`${address}${fragment}`);
  return own;
}

const tools = { tab, promise, trinity, pictures, served, few: studies === "few" };
await digits(tools);
await use(tools);
await browser.close();
if (serving) serving.kill("SIGINT");
if (failures) {
  console.log(`${failures} promises do not hold`);
  process.exit(1);
}
