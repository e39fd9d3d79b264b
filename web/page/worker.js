// The worker: instances of the model, away from the page's own thread.
import { server } from "./serve.js";

let serve;

self.onmessage = ({ data }) => {
  if (data.module) {
    serve = server(data.module);
    return;
  }
  const start = performance.now();
  const reply = serve(data.request, data.file);
  self.postMessage({ id: data.id, reply, ms: performance.now() - start });
};
