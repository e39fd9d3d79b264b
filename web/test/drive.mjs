// Drives the page in Chromium: drive.mjs PAGE.html TRINITY CHROMIUM [digits|use]
//
// First the digits: studies in the page and in the command, every number
// compared. Then the page as a person uses it. Pictures are left beside the
// page. Exits 1 where anything differs, fails or lands on the console.
import { chromium } from "playwright-core";
import { dirname, join } from "node:path";
import { digits } from "./digits.mjs";
import { use } from "./use.mjs";

const [, , page, trinity, executablePath, only] = process.argv;
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
  own.on("request", (request) => !/^(file|blob|data):/.test(request.url()) && own.noise.push(`asked for ${request.url()}`));
  if (options.before) await own.addInitScript(options.before);
  await own.goto(`file://${page}${fragment}`);
  return own;
}

const tools = { tab, promise, trinity, pictures: join(dirname(page)) };
if (only !== "use") await digits(tools);
if (only !== "digits") await use(tools);
await browser.close();
if (failures) {
  console.log(`${failures} promises do not hold`);
  process.exit(1);
}
