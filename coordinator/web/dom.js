// Making elements. What comes from models, workers and users only ever becomes text nodes.

export const byId = (id) => document.getElementById(id);

// `children`: nodes, or what becomes text.
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

// An element that shows a problem, or is hidden where there is none.
export function showProblem(element, text) {
  element.textContent = text || "";
  element.hidden = !text;
}

export function rowsTable(head, rows) {
  const row = (cells, kind) => make("tr", {}, ...cells.map((cell) => make(kind, {}, cell)));
  return make("div", { class: "scrolled" },
      make("table", {}, make("thead", {}, row(head, "th")), make("tbody", {}, ...rows.map((cells) => row(cells, "td")))));
}

export function bytesText(bytes) {
  let value = Number(bytes || 0);
  for (const unit of ["B", "KB", "MB", "GB", "TB"]) {
    if (value < 1000 || unit === "TB") return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1000;
  }
}
