// Tables that are sorted by a click on a heading, and heat maps with a chooser of the metric.

// Numbers by their size, words by the alphabet, what is missing last, whichever way it goes.
function rank(cell) {
  const text = cell.textContent.trim();
  const value = Number.parseFloat((cell.dataset.value ?? text).replaceAll(",", "").replace("−", "-"));
  return Number.isNaN(value) ? { text, missing: /^(diverged|never|-|–|unknown|)$/.test(text) } : { value };
}

function before(a, b) {
  if ("value" in a && "value" in b) return a.value - b.value;
  return (a.text ?? "").localeCompare(b.text ?? "", "en", { numeric: true });
}

function sortBy(table, column, heading) {
  const down = heading.getAttribute("aria-sort") === "ascending";
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, key: rank(row.cells[column]) }));
  const missing = (r) => Number(r.key.missing ?? false);
  rows.sort((a, b) => missing(a) - missing(b) || (down ? -1 : 1) * before(a.key, b.key));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  table.tBodies[0].append(...rows.map(({ row }) => row));
}

function sortable(table) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = element("button", { type: "button", className: "sort" });
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sortBy(table, column, heading));
  });
}

function heatMap(place) {
  const maps = [...place.querySelectorAll("[data-metric]")];
  const bar = element("div", { className: "controls" });
  const options = Object.fromEntries(maps.map((map) => [map.dataset.metric, map.dataset.label]));
  const metric = chooser(bar, "metric", options, "heat");
  const choose = () => {
    for (const map of maps) map.hidden = map.dataset.metric !== metric.value;
  };
  metric.addEventListener("change", choose);
  place.prepend(bar);
  choose();
}
