// One instance of the model: a request in, an answer out.
//
// Runs in a worker, or in the page itself where there are no workers. A trap
// leaves linear memory as it was in the middle of something, so the instance
// is thrown away and the next request gets a fresh one.

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function server(module) {
  let instance;

  function put(bytes) {
    const at = instance.input(bytes.length);
    new Uint8Array(instance.memory.buffer, at, bytes.length).set(bytes);
  }

  return function serve(request, file) {
    try {
      instance ??= new WebAssembly.Instance(module, {}).exports;
      if (file) {
        put(new Uint8Array(file));
        instance.keep();
      }
      put(encoder.encode(JSON.stringify(request)));
      const length = instance.call();
      const answer = new Uint8Array(instance.memory.buffer, instance.output(), length);
      return JSON.parse(decoder.decode(answer));
    } catch (error) {
      instance = undefined;
      const large = file && error instanceof RangeError;
      return {
        refused: {
          error: large ? "the file does not fit the memory a page may have" : `the model stopped: ${error.message}`,
          help: large ? "the command reads files of any size" : "please report this with the link of this page",
        },
      };
    }
  };
}
