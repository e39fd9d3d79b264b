// Draws every chart; a failure is written where the chart should have been.
const look = {
  actions: { export: true, source: false, compiled: false, editor: false },
  renderer: "svg",
  config: { background: "white", font: "system-ui, sans-serif", view: { stroke: null }, axis: { labelFontSize: 12, titleFontSize: 12 } },
};
const drawn = specs.map((spec, index) =>
  vegaEmbed("#chart-" + index, spec, look).catch((error) => {
    document.getElementById("chart-" + index).textContent = "This chart could not be drawn: " + error.message;
    console.error(error);
  }));
Promise.all(drawn).then(() => document.body.dataset.drawn = specs.length);
