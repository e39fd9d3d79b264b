// What a page can do: draw, fold, sort, download, explain. No network, no storage.
const narrow = window.innerWidth < 600;
const look = {
  actions: { export: true, source: false, compiled: false, editor: false },
  renderer: "svg",
  config: { background: "transparent", font: "system-ui, sans-serif", view: { stroke: null },
            axis: { labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" },
            // On a phone the legend goes below, so that the chart keeps its width.
            legend: narrow ? { orient: "bottom", columns: 2, labelLimit: 140 } : { labelLimit: 260 } },
};
const make = (tag, text, inside) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (inside) inside.append(element);
  return element;
};

// One point, line by line, where a chart was clicked.
const shown = (value) => {
  if (value === 0 || !isFinite(value)) return String(value);
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e7 ? String(Number(value.toPrecision(4))) : value.toExponential(3);
};
const explain = (point, after) => {
  document.getElementById("explain")?.remove();
  const panel = make("aside");
  panel.id = "explain";
  const known = typeof explanations === "undefined" ? undefined : explanations[point.index];
  make("strong", `point ${point.index}: ${point.scenario}`, panel);
  if (!known) {
    make("p", `\`trinity sweep explain ${point.index}\` breaks this point down.`, panel);
  } else {
    make("p", known.axes.map(([path, value]) => `${path} = ${value}`).join(", "), panel);
    const body = make("tbody", undefined, make("table", undefined, panel));
    let group = "";
    for (const [part, name, value, unit, formula] of known.lines) {
      const row = make("tr", undefined, body);
      make("td", part === group ? "" : part, row);
      make("td", name, row);
      make("td", `${shown(value)} ${unit}`, row).className = "number";
      make("td", formula, row).className = "formula";
      group = part;
    }
  }
  make("button", "close", panel).onclick = () => panel.remove();
  after.append(panel);
};

// Every place in a specification that encodes a channel.
const channels = (spec, channel, found = []) => {
  if (spec && typeof spec === "object") {
    if (spec.encoding?.[channel]?.type === "quantitative") found.push(spec.encoding[channel]);
    Object.values(spec).forEach((inner) => channels(inner, channel, found));
  }
  return found;
};
const turn = (spec, channel, type) => channels(spec, channel).forEach((own) => {
  own.scale = { ...own.scale, type };
  const domain = own.scale.domain;
  // A logarithm has no zero; where a range begins there, the chart says where to begin instead.
  if (Array.isArray(domain)) own.scale.domain = type === "log" ? spec.usermeta.log[channel] ?? domain : spec.usermeta.linear[channel] ?? domain;
});

const draw = (spec, index) => {
  const place = document.getElementById("chart-" + index);
  return vegaEmbed(place, spec, look).then(({ view }) => {
    if (spec.usermeta?.explain) view.addEventListener("click", (event, item) => {
      if (item?.datum?.index !== undefined) explain(item.datum, place.parentElement);
    });
    return view;
  }).catch((error) => {
    place.textContent = "This chart could not be drawn: " + error.message;
    console.error(error);
  });
};
const tools = (spec, index) => {
  const usermeta = spec.usermeta;
  if (!usermeta) return;
  const place = document.getElementById("chart-" + index);
  const bar = make("div");
  bar.className = "tools";
  for (const channel of usermeta.scales ?? []) {
    const button = make("button", "", bar);
    const say = () => {
      const now = channels(spec, channel)[0]?.scale?.type ?? "linear";
      button.textContent = `${channel}: ${now}`;
      return now;
    };
    say();
    button.onclick = () => { turn(spec, channel, say() === "log" ? "linear" : "log"); say(); draw(spec, index); };
  }
  if (usermeta.hint) make("span", usermeta.hint, bar).className = "hint";
  place.before(bar);
};
if (typeof specs !== "undefined") {
  specs.forEach(tools);
  Promise.all(specs.map(draw)).then(() => document.body.dataset.drawn = specs.length);
}

// Tables: a click on a head sorts, a button downloads.
const number = (text) => {
  const value = parseFloat(text.replace(/[,\s]/g, "").replace("−", "-"));
  return isNaN(value) ? undefined : value;
};
for (const table of document.querySelectorAll("details.table table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.onclick = () => {
    const falling = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    const text = (row) => row.cells[column]?.textContent ?? "";
    rows.sort((a, b) => {
      const [left, right] = [number(text(a)), number(text(b))];
      const order = left !== undefined && right !== undefined ? left - right : text(a).localeCompare(text(b));
      return falling ? -order : order;
    });
    table.tBodies[0].append(...rows);
  });
  const bar = make("div");
  bar.className = "tools";
  make("button", "download CSV", bar).onclick = () => {
    const cell = (own) => /[",\n]/.test(own) ? `"${own.replaceAll('"', '""')}"` : own;
    const lines = [...table.rows].map((row) => [...row.cells].map((own) => cell(own.textContent)).join(","));
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = table.closest("details").querySelector("summary").textContent.slice(0, 40).replace(/[^\w]+/g, "-") + ".csv";
    link.click();
  };
  table.parentElement.prepend(bar);
}
// On paper everything is open.
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => one.open = true));
