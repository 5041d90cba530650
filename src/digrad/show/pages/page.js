// What the page does: charts, tables, the theme and the printer.

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const charts = [];

// A colour of page.css as it is now: light-dark() is only resolved where it is used.
function colour(name, alpha = 1) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  root.append(probe);
  const [r, g, b] = getComputedStyle(probe).color.match(/[\d.]+/g);
  probe.remove();
  return `rgba(${r}, ${g}, ${b}, ${alpha})`;
}

function isDark() {
  return root.style.colorScheme ? root.style.colorScheme === "dark" : dark.matches;
}

function element(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

function labelled(text, control) {
  const label = element("label", { textContent: text });
  label.append(control);
  return label;
}

function chooser(bar, name, options, control = name) {
  const select = element("select");
  select.dataset.control = control;
  bar.append(labelled(name, select));
  fill(select, options);
  return select;
}

function fill(select, options) {
  select.replaceChildren(...Object.entries(options).map(([value, text]) => new Option(text, value)));
  select.parentElement.hidden = select.options.length < 2;
}

// plotly.js lies in the page compressed. Its hash is in the policy of the page.
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = element("script", { textContent: await new Response(stream).text() });
  document.head.append(script);
}

function followTheme() {
  const button = document.getElementById("theme");
  const repaint = () => {
    button.textContent = isDark() ? "light" : "dark";
    root.classList.toggle("dark", isDark());
    for (const chart of charts) chart.draw();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.style.colorScheme = isDark() ? "light" : "dark";
    repaint();
  });
  dark.addEventListener("change", repaint);
  repaint();
}

function followPrinter() {
  let before = null;
  addEventListener("beforeprint", () => {
    if (before !== null) return;
    const folded = [...document.querySelectorAll("details:not([open])")];
    before = { folded, scheme: root.style.colorScheme };
    for (const details of folded) details.open = true;
    root.style.colorScheme = "light";
    for (const chart of charts) chart.draw(680);
  });
  addEventListener("afterprint", () => {
    for (const details of before.folded) details.open = false;
    root.style.colorScheme = before.scheme;
    before = null;
    for (const chart of charts) chart.draw();
  });
}

function followWidth() {
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    for (const chart of charts) chart.draw();
  });
}

async function begin() {
  const packed = document.getElementById("plotly");
  if (packed) {
    await unpack(packed);
    for (const place of document.querySelectorAll(".plot")) charts.push(new Chart(place));
  }
  for (const table of document.querySelectorAll("table.sortable")) sortable(table);
  for (const place of document.querySelectorAll(".heat")) heatMap(place);
  for (const place of document.querySelectorAll(".live")) follow(place);
  followTheme();
  followPrinter();
  followWidth();
  root.dataset.ready = "yes";
}

begin();
