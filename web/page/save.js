// Taking things along: files out of the page, files into it.

export function download(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/// A drawing of the page as a file of its own: colours that the page's style
/// gives are written into it.
export function drawing(root) {
  const copy = root.cloneNode(true);
  const [own, copies] = [root.querySelectorAll("*"), copy.querySelectorAll("*")];
  own.forEach((element, at) => {
    const style = getComputedStyle(element);
    for (const key of ["fill", "stroke", "stroke-width", "font-size", "font-family", "opacity", "stroke-linecap"]) {
      copies[at].style.setProperty(key, style.getPropertyValue(key));
    }
  });
  const [, , width, height] = root.getAttribute("viewBox").split(" ").map(Number);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

export async function png(root) {
  const { text, width, height } = drawing(root);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * 2;
  canvas.height = height * 2;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/// The rows of a CSV as objects; numbers as numbers.
export function parseCsv(text) {
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    const letter = text[at];
    if (quoted) {
      if (letter === '"' && text[at + 1] === '"') cell += text[++at];
      else if (letter === '"') quoted = false;
      else cell += letter;
    } else if (letter === '"') quoted = true;
    else if (letter === ",") {
      row.push(cell);
      cell = "";
    } else if (letter === "\n") {
      row.push(cell.replace(/\r$/, ""));
      rows.push(row);
      row = [];
      cell = "";
    } else cell += letter;
  }
  if (cell || row.length) rows.push([...row, cell]);
  const [heads = [], ...rest] = rows;
  return rest.map((cells) => Object.fromEntries(heads.map((head, at) => [head, cells[at] !== "" && Number.isFinite(Number(cells[at])) ? Number(cells[at]) : cells[at]])));
}

/// The points that a file of the command holds: points.csv, pareto.csv, or what
/// `trinity sweep --json` printed.
export function pointsOf(name, text) {
  const points = name.endsWith(".json")
    ? (JSON.parse(text).fronts ?? []).flatMap((front) => front.front)
    : parseCsv(text).filter((row) => row.status === undefined || row.status === "ok");
  const known = points.filter((point) => point && "scenario" in point && "index" in point && Number.isFinite(point.area_mm2 ?? point.tokens_per_s));
  if (!known.length) throw new Error(`${name} holds no points: expected points.csv or pareto.csv of \`trinity sweep\`, or what its --json prints`);
  return known;
}
