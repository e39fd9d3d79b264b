// Draws every chart; a failure is written where the chart should have been.
// On a phone the legend goes below, so that the chart keeps its width.
const narrow = window.innerWidth < 600;
const look = {
  actions: { export: true, source: false, compiled: false, editor: false },
  renderer: "svg",
  config: { background: "white", font: "system-ui, sans-serif", view: { stroke: null }, axis: { labelFontSize: 12, titleFontSize: 12 },
            legend: narrow ? { orient: "bottom", columns: 2, labelLimit: 140 } : {} },
};
const drawn = specs.map((spec, index) =>
  vegaEmbed("#chart-" + index, spec, look).catch((error) => {
    document.getElementById("chart-" + index).textContent = "This chart could not be drawn: " + error.message;
    console.error(error);
  }));
Promise.all(drawn).then(() => document.body.dataset.drawn = specs.length);
