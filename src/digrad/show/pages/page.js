"use strict";
// What the page does: hand the data to plotly.js, follow the controls, the theme and the printer.

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star"];
const HUES = 7;
const CONFIG = { displayModeBar: false }; // it would lie over the legend
// Where there are hardly two powers of ten, 0.02, 0.05 and 0.1 read better than these.
const CLOSE = { dtick: "D2", tickformat: "~g" };
const FAR = { exponentformat: "power" };
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

class Chart {
  constructor(place) {
    this.data = JSON.parse(place.querySelector("script").textContent);
    const { metrics, along } = this.data;
    const bar = element("div", { className: "controls" });
    const names = Object.fromEntries(Object.keys(metrics).map((m) => [m, metrics[m].label]));
    this.metric = chooser(bar, "metric", names);
    this.along = chooser(bar, "along", along);
    this.log = element("input", { type: "checkbox" });
    this.log.dataset.control = "log";
    const save = element("button", { type: "button", textContent: "save SVG" });
    bar.append(labelled("log scale", this.log), save);
    this.div = element("div", { className: "chart" });
    place.append(bar, this.div);
    this.metric.addEventListener("change", () => this.begin());
    for (const control of [this.along, this.log])
      control.addEventListener("change", () => this.draw());
    save.addEventListener("click", () =>
      Plotly.downloadImage(this.div, { format: "svg", filename: this.metric.value }),
    );
    this.begin();
  }

  begin() {
    const { scale, range } = this.data.metrics[this.metric.value];
    this.log.checked = scale === "log";
    this.log.disabled = range.log === null;
    this.draw();
  }

  draw(width = this.div.clientWidth) {
    const { traces, styles } = this.traces();
    return Plotly.react(this.div, traces, this.layout(width, styles), CONFIG);
  }

  traces() {
    const { metrics, styles, x } = this.data;
    const { curves, range } = metrics[this.metric.value];
    const scale = this.log.checked ? "log" : "linear";
    const [floor, top] = range[scale].map((end) => (this.log.checked ? 10 ** end : end));
    const shown = new Set();
    const traces = [];
    for (const curve of curves) {
      const style = styles[curve.style];
      const ink = `--c${style.hue % HUES}`;
      const at = x[curve.x[this.along.value]];
      const common = {
        legendgroup: String(curve.style),
        xaxis: axis("x", curve.panel),
        yaxis: axis("y", curve.panel),
        showlegend: false,
      };
      const add = (kind, trace) =>
        traces.push({ uid: `${curve.style}-${curve.panel}-${kind}`, ...common, ...trace });
      if (curve.low) add("band", band(curve, at, floor, colour(ink, 0.16)));
      const line = { color: colour(ink), dash: DASHES[style.dash % DASHES.length], width: 2 };
      add("line", {
        x: at,
        y: curve.mean,
        name: style.label,
        meta: "line",
        mode: "lines+markers",
        line,
        marker: { symbol: SYMBOLS[style.hue % SYMBOLS.length], size: 7, maxdisplayed: 7 },
        text: curve.mean.map((_, k) => spread(curve, k)),
        hovertemplate: "<b>%{fullData.name}</b><br>%{x:,} · %{y:.4g}%{text}<extra></extra>",
        showlegend: !shown.has(curve.style),
      });
      shown.add(curve.style);
      if (curve.rest)
        add("rest", { x: at, y: curve.rest, mode: "lines", line: { ...line, width: 1 }, hoverinfo: "skip" });
      if (curve.fell) add("cross", cross(curve, at, top, colour(ink)));
    }
    return { traces, styles: [...shown].map((k) => styles[k]) };
  }

  layout(width, styles) {
    const { panels, metrics, along } = this.data;
    const { label, range } = metrics[this.metric.value];
    const scale = this.log.checked ? "log" : "linear";
    const columns = panels.length > 1 && width > 640 ? 2 : 1;
    const rows = Math.ceil(panels.length / columns);
    const entry = 6.8 * Math.max(...styles.map((style) => style.letters)); // px of its words
    const [left, right] = [72, 12];
    const room = width - left - right; // plotly breaks a legend at the width of the panels
    const across = Math.max(1, Math.floor(room / (entry + 46)));
    const lines = Math.ceil(styles.length / across);
    const even = Math.ceil(styles.length / lines); // 3 and 3, not 5 and 1
    const legend = 20 * lines;
    const margin = { l: left, r: right, t: legend + 34, b: 50 };
    const [tall, gapX, gapY] = [width > 640 ? 320 : 270, 34, 92]; // of a panel and between, in px
    const inner = [room, rows * tall + (rows - 1) * gapY];
    const decades = range[scale][1] - range[scale][0];
    const [ink, soft, grid] = ["--ink", "--soft", "--line"].map((name) => colour(name));
    const layout = {
      width,
      height: inner[1] + margin.t + margin.b,
      margin,
      autosize: false,
      uirevision: "kept", // which curves are hidden stays so from metric to metric
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, size: 13, family: getComputedStyle(document.body).fontFamily },
      hovermode: "closest",
      hoverlabel: { bgcolor: colour("--paper"), bordercolor: soft, font: { color: ink }, align: "left" },
      legend: {
        orientation: "h",
        entrywidth: even === 1 ? width - 60 : lines === 1 ? entry : Math.floor(room / even) - 46,
        tracegroupgap: 0,
        font: { size: 13 },
        ...{ xref: "container", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top" },
      },
      annotations: [],
    };
    const common = { gridcolor: grid, zeroline: false, linecolor: grid, tickcolor: grid, tickfont: { size: 12 }, automargin: false };
    panels.forEach((name, k) => {
      const [row, column] = [Math.floor(k / columns), k % columns];
      const w = (inner[0] - (columns - 1) * gapX) / columns;
      const [start, up] = [column * (w + gapX), inner[1] - row * (tall + gapY)];
      const x = [start / inner[0], (start + w) / inner[0]];
      const y = [Math.max(0, (up - tall) / inner[1]), up / inner[1]];
      layout[axis("xaxis", k)] = {
        ...common,
        domain: x,
        anchor: axis("y", k),
        title: { text: along[this.along.value], standoff: 8, font: { size: 13 } },
        nticks: width > 640 ? 8 : 5,
        uirevision: this.along.value,
        ...(k > 0 && { matches: "x" }),
      };
      layout[axis("yaxis", k)] = {
        ...common,
        domain: y,
        anchor: axis("x", k),
        type: scale,
        range: range[scale],
        ...(scale === "log" && (decades < 2 ? CLOSE : { ...FAR, dtick: Math.ceil(decades / 7) })),
        showticklabels: column === 0,
        ...(column === 0 && { title: { text: label, standoff: 6, font: { size: 13 } } }),
        uirevision: `${this.metric.value} ${scale}`,
        ...(k > 0 && { matches: "y" }),
      };
      layout.annotations.push({
        text: `<b>${name}</b>`,
        showarrow: false,
        xref: "paper",
        yref: "paper",
        x: (x[0] + x[1]) / 2,
        y: y[1],
        yanchor: "bottom",
        yshift: 2,
      });
    });
    return layout;
  }
}

function axis(name, k) {
  return k ? `${name}${k + 1}` : name;
}

// The outline of the band. A logarithmic axis has no place for 0: the band ends at its foot there.
function band(curve, at, floor, fillcolor) {
  const there = at.map((_, k) => k).filter((k) => curve.low[k] !== null && curve.high[k] !== null);
  const back = [...there].reverse();
  return {
    x: [...there, ...back].map((k) => at[k]),
    y: [...there.map((k) => curve.high[k]), ...back.map((k) => curve.low[k])].map((y) => Math.max(y, floor)),
    meta: "band",
    mode: "lines",
    line: { width: 0 },
    fill: "toself",
    fillcolor,
    hoverinfo: "skip",
  };
}

// Where a line ends, or leaves the panel before.
function cross(curve, at, top, color) {
  const last = curve.mean.findLastIndex((y) => y !== null);
  const out = curve.mean.findIndex((y) => y !== null && y > top);
  const k = out < 0 ? last : out;
  return {
    x: k < 0 ? [] : [at[k]],
    y: k < 0 ? [] : [Math.min(curve.mean[k], top)],
    meta: "cross",
    mode: "markers",
    cliponaxis: false,
    marker: { symbol: "x-thin", size: 11, line: { width: 3, color }, color },
    text: `diverged:<br>${curve.fell.join("<br>")}`,
    hovertemplate: "%{text}<extra></extra>",
  };
}

function spread(curve, k) {
  if (!curve.low || curve.low[k] === null || curve.high[k] === null) return "";
  return `<br>${curve.seeds} seeds: ${curve.low[k].toPrecision(4)} to ${curve.high[k].toPrecision(4)}`;
}

function element(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

function labelled(text, control) {
  const label = element("label", { textContent: text });
  label.append(control);
  return label;
}

function chooser(bar, name, options) {
  const select = element("select");
  select.dataset.control = name;
  for (const [value, text] of Object.entries(options)) select.append(new Option(text, value));
  const label = labelled(name, select);
  label.hidden = select.options.length < 2;
  bar.append(label);
  return select;
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
  followTheme();
  followPrinter();
  followWidth();
  root.dataset.ready = "yes";
}

begin();
