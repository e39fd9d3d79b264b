// The model as the page sees it: questions and promises of answers.
//
// Two lanes: one answers what a hand waits for, one does what takes long. A page
// that is one file carries the model, and its lanes are workers; where a browser
// refuses workers made of text, both are the page's own thread. A page that the
// command serves asks the command.
import { server } from "./serve.js";

export class Refused extends Error {
  constructor(refused) {
    super(refused.error);
    this.refused = refused;
  }
}

async function unpacked(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function lane(module, source) {
  const waiting = new Map();
  let next = 0;
  let post;
  const settle = ({ id, reply, ms }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (reply.refused) reject(new Refused(reply.refused));
    else resolve({ answer: reply.answer, ms });
  };
  const inPage = () => {
    const serve = server(module);
    return (message) =>
      setTimeout(() => {
        const start = performance.now();
        const reply = serve(message.request, message.file);
        settle({ id: message.id, reply, ms: performance.now() - start });
      });
  };
  try {
    const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    worker.onmessage = ({ data }) => settle(data);
    worker.onerror = (event) => {
      // The browser lets no worker start from here: the same answers, in the page.
      event.preventDefault();
      post = inPage();
      for (const message of [...waiting.values()].map((own) => own.message)) post(message);
    };
    worker.postMessage({ module });
    post = (message) => worker.postMessage(message);
  } catch {
    post = inPage();
  }
  return (request, file) =>
    new Promise((resolve, reject) => {
      const message = { id: next++, request, file };
      waiting.set(message.id, { resolve, reject, message });
      post(message);
    });
}

/// A lane of the command that served this page: the question, then the file.
function served(lane) {
  return async (request, file) => {
    const start = performance.now();
    const asked = new TextEncoder().encode(JSON.stringify(request));
    let reply;
    try {
      const headers = { "Trinity-Lane": lane, "Trinity-Request": String(asked.length) };
      const response = await fetch("answer", { method: "POST", headers, body: new Blob(file ? [asked, file] : [asked]) });
      if (!response.ok) throw new Error(await response.text());
      reply = await response.json();
    } catch (error) {
      throw new Refused({ error: `the command that answers this page does not: ${error.message}`, help: "start `trinity web` again and reload the page" });
    }
    if (reply.refused) throw new Refused(reply.refused);
    return { answer: reply.answer, ms: performance.now() - start };
  };
}

/// Both lanes of the command.
export function remote() {
  const page = Math.random().toString(36).slice(2);
  return { quick: served(`${page}-quick`), slow: served(`${page}-slow`) };
}

/// Both lanes, once the module is compiled.
export async function engine(base64, source) {
  const module = await WebAssembly.compile(await unpacked(base64));
  return { quick: lane(module, source), slow: lane(module, source) };
}

/// Asks with the newest of many requests alone: while one is answered, the last
/// that came waits and those before it are forgotten.
export function latest(ask, done, failed) {
  let busy = false;
  let pending;
  async function turn(make) {
    busy = true;
    try {
      const request = make();
      done(await ask(request), request);
    } catch (error) {
      failed(error);
    }
    busy = false;
    if (pending) {
      const make = pending;
      pending = undefined;
      turn(make);
    }
  }
  return (make) => {
    if (busy) pending = make;
    else turn(make);
  };
}
