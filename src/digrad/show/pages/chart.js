// An interactive plot: data and controls in, plotly.js out.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star"];
const HUES = 7;
const SCALE = ["--s0", "--s1", "--s2", "--s3", "--s4"]; // the colours that step sizes are spread over
const CONFIG = { displayModeBar: false }; // it would lie over the legend

class Chart {
  constructor(place) {
    this.data = JSON.parse(place.querySelector("script").textContent);
    const { metrics, along, views } = this.data;
    const bar = element("div", { className: "controls" });
    const names = Object.fromEntries(Object.keys(metrics).map((m) => [m, metrics[m].label]));
    this.metric = chooser(bar, "metric", names);
    this.view = chooser(bar, "step size", views, "view");
    this.along = chooser(bar, "along", along);
    this.log = element("input", { type: "checkbox" });
    this.log.dataset.control = "log";
    const save = element("button", { type: "button", textContent: "save SVG" });
    bar.append(labelled("log scale", this.log), save);
    this.div = element("div", { className: "chart" });
    place.append(bar, this.div);
    this.metric.addEventListener("change", () => this.begin());
    for (const control of [this.view, this.along, this.log])
      control.addEventListener("change", () => this.draw());
    save.addEventListener("click", () =>
      Plotly.downloadImage(this.div, { format: "svg", filename: this.metric.value }),
    );
    this.begin();
    this.div.on("plotly_relayout", (change) => this.zoomed(change));
  }

  // Show other numbers, as they come in; what was chosen stays so.
  update(data) {
    const chosen = [this.metric, this.view, this.along].map((control) => control.value);
    this.data = data;
    const { metrics, along, views } = data;
    const names = Object.fromEntries(Object.keys(metrics).map((m) => [m, metrics[m].label]));
    [[this.metric, names], [this.view, views], [this.along, along]].forEach(([control, options], k) => {
      fill(control, options);
      if (chosen[k] in options) control.value = chosen[k];
    });
    this.draw();
  }

  begin() {
    this.log.checked = this.data.metrics[this.metric.value].scale === "log";
    this.draw();
  }

  draw(width = this.div.clientWidth) {
    const { metrics, views } = this.data;
    const { range } = metrics[this.metric.value];
    if (!(this.view.value in range)) this.view.value = Object.keys(views).find((view) => view in range);
    this.log.disabled = range[this.view.value].log === null;
    if (this.log.disabled) this.log.checked = false;
    const { traces, entries, panels } = this.traces();
    return Plotly.react(this.div, traces, this.layout(width, entries, panels), CONFIG);
  }

  // Every step size at once is spaghetti: then each method has a panel, and sizes have the colours.
  get apart() {
    return this.view.value === "all" && this.data.sizes.length > 1;
  }

  get scale() {
    return this.log.checked ? "log" : "linear";
  }

  get range() {
    return this.data.metrics[this.metric.value].range[this.view.value][this.scale];
  }

  traces() {
    const { networks, methods, sizes, metrics, x } = this.data;
    const curves = metrics[this.metric.value].curves.filter((c) => c.views.includes(this.view.value));
    const [floor, top] = this.range.map((end) => (this.log.checked ? 10 ** end : end));
    const name = (c) =>
      !this.apart ? networks[c.network] : networks.length > 1 ? `${methods[c.method]} on ${networks[c.network]}` : methods[c.method];
    const panels = [...new Set(curves.map(name))];
    const entries = new Map();
    const traces = [];
    for (const curve of curves) {
      const kind = this.apart ? curve.size : curve.method;
      const [ink, faint] = this.apart ? shades(curve.size, sizes.length) : hue(curve.method);
      const at = x[curve.x[this.along.value]];
      const panel = panels.indexOf(name(curve));
      const common = { legendgroup: String(kind), xaxis: axis("x", panel), yaxis: axis("y", panel), showlegend: false };
      const add = (part, trace) =>
        traces.push({ uid: `${this.view.value}-${kind}-${panel}-${curve.size}-${part}`, ...common, ...trace });
      const line = { color: ink, width: 2, dash: this.apart ? "solid" : DASHES[Math.floor(curve.method / HUES) % DASHES.length] };
      const label = this.apart ? sizes[curve.size] : methods[curve.method];
      const told = sizes.length > 1 ? `<b>${methods[curve.method]}</b>, ${sizes[curve.size]}` : `<b>${methods[curve.method]}</b>`;
      if (curve.low && !this.apart) add("band", band(curve, at, floor, faint));
      add("line", {
        x: at,
        y: curve.mean,
        name: label,
        meta: "line",
        mode: this.apart ? "lines" : "lines+markers",
        line,
        marker: { symbol: SYMBOLS[curve.method % SYMBOLS.length], size: 7, maxdisplayed: 7 },
        text: curve.mean.map((_, k) => told + spread(curve, k)),
        hovertemplate: "%{text}<br>%{x:,} · %{y:.4g}<extra></extra>",
        showlegend: !entries.has(kind),
        legendrank: kind,
      });
      entries.set(kind, label);
      if (curve.rest)
        add("rest", { x: at, y: curve.rest, mode: "lines", line: { ...line, width: 1 }, hoverinfo: "skip" });
      if (curve.fell) add("cross", cross(curve, at, top, ink));
    }
    return { traces, entries: [...entries.values()], panels };
  }

  layout(width, entries, panels) {
    const { metrics, along, methods } = this.data;
    const [left, right] = [72, 22];
    const room = width - left - right; // plotly breaks a legend at the width of the panels
    const { lines, entrywidth } = legendSize(entries, room, width);
    const across = this.apart ? (methods.length <= 4 ? methods.length : 3) : 2; // a network a row, if that fits
    const columns = Math.min(panels.length, width > 640 ? across : 1);
    const rows = Math.ceil(panels.length / columns);
    const margin = { l: left, r: right, t: 20 * lines + 34, b: 50 };
    const [tall, gapX, gapY] = [width <= 640 ? 240 : columns > 2 ? 210 : 320, 30, 58]; // in px
    const inner = [room, rows * tall + (rows - 1) * gapY];
    const [ink, soft, grid] = ["--ink", "--soft", "--line"].map((name) => colour(name));
    const layout = {
      width,
      height: inner[1] + margin.t + margin.b,
      margin,
      autosize: false,
      uirevision: this.apart ? "sizes" : "methods", // what is hidden stays so from metric to metric
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, size: 13, family: getComputedStyle(document.body).fontFamily },
      hovermode: "closest",
      hoverlabel: { bgcolor: colour("--paper"), bordercolor: soft, font: { color: ink }, align: "left" },
      legend: {
        orientation: "h",
        entrywidth,
        tracegroupgap: 0,
        font: { size: 13 },
        ...{ xref: "container", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top" },
      },
      showlegend: true,
      annotations: [],
    };
    const common = { gridcolor: grid, zeroline: false, linecolor: grid, tickcolor: grid, tickfont: { size: 12 }, automargin: false };
    const title = (text, standoff) => ({ title: { text, standoff, font: { size: 13 } } });
    const ticks = this.log.checked ? logTicks(...this.range, tall) : { tickformat: "~g" };
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
        ...(k >= panels.length - columns && title(along[this.along.value], 8)),
        nticks: Math.max(3, Math.floor(w / 80)),
        ...(this.along.value === "step" ? { tickformat: ",~r" } : { tickformat: "~s" }),
        rangemode: "tozero",
        uirevision: this.along.value,
        ...(k > 0 && { matches: "x" }),
      };
      layout[axis("yaxis", k)] = {
        ...common,
        domain: y,
        anchor: axis("x", k),
        type: this.scale,
        range: this.range,
        ...ticks,
        showticklabels: column === 0,
        ...(column === 0 && title(metrics[this.metric.value].label, 6)),
        uirevision: `${this.metric.value} ${this.scale} ${this.view.value}`,
        ...(k > 0 && { matches: "y" }),
      };
      layout.annotations.push({
        text: `<b>${shortened(name, Math.floor(w / 7))}</b>`,
        showarrow: false,
        xref: "paper",
        yref: "paper",
        x: (x[0] + x[1]) / 2,
        xanchor: "center",
        y: y[1],
        yanchor: "bottom",
        yshift: 2,
        font: { size: columns > 2 ? 12 : 13 },
      });
    });
    this.tall = tall;
    return layout;
  }

  // The ticks of a logarithmic axis are chosen here, so they have to follow the reader.
  zoomed(change) {
    if (!this.log.checked || !Object.keys(change).some((key) => /^yaxis\d*\.(range|autorange)/.test(key))) return;
    const ticks = logTicks(...this.div._fullLayout.yaxis.range, this.tall);
    const axes = Object.keys(this.div._fullLayout).filter((key) => /^yaxis\d*$/.test(key));
    Plotly.relayout(this.div, Object.fromEntries(axes.flatMap((key) => Object.entries(ticks).map(([name, value]) => [`${key}.${name}`, value]))));
  }
}

// Ticks between two powers of ten: powers where there are many, else 1, 2, 5, else round numbers.
function logTicks(low, high, px) {
  const most = Math.max(4, Math.floor(px / 34));
  const within = (v) => v >= 10 ** low * 0.9999 && v <= 10 ** high * 1.0001;
  for (const factors of [[1], [1, 2, 5], [1, 2, 3, 5, 7], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const found = [];
    for (let k = Math.floor(low); k <= Math.ceil(high); k++) for (const f of factors) found.push(f * 10 ** k);
    const shown = found.filter(within);
    if (shown.length >= 4 && shown.length <= most) return shownTicks(shown);
  }
  const decades = high - low;
  if (decades > 2) {
    const every = Math.ceil(decades / most);
    const found = [];
    for (let k = Math.ceil(low / every) * every; k <= high; k += every) found.push(10 ** k);
    return shownTicks(found);
  }
  const [from, to] = [10 ** low, 10 ** high];
  const rough = (to - from) / Math.max(2, most / 1.5);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * unit).find((s) => s >= rough);
  const found = [];
  for (let v = Math.ceil(from / step) * step; v <= to; v += step) found.push(Number(v.toPrecision(12)));
  return shownTicks(found);
}

function shownTicks(tickvals) {
  const plain = tickvals.every((v) => v >= 1e-4 && v < 1e6);
  const power = (v) => {
    const k = Math.floor(Math.log10(v) + 1e-9);
    const f = Number((v / 10 ** k).toPrecision(4));
    return f === 1 ? `10<sup>${k}</sup>` : `${f}·10<sup>${k}</sup>`;
  };
  const text = (v) => (plain ? v.toLocaleString("en", { maximumSignificantDigits: 6 }) : power(v)).replace("-", "−");
  return { tickmode: "array", tickvals, ticktext: tickvals.map(text) };
}

function legendSize(entries, room, width) {
  const entry = 7.6 * Math.max(...entries.map((text) => written(text).length)) + 6; // px of its words
  const across = Math.max(1, Math.floor(room / (entry + 46)));
  const lines = Math.ceil(entries.length / across);
  const even = Math.ceil(entries.length / lines); // 3 and 3, not 5 and 1
  return { lines, entrywidth: even === 1 ? width - 60 : lines === 1 ? entry : Math.floor(room / even) - 46 };
}

// Names come escaped, since plotly knows tags.
function written(escaped) {
  return new DOMParser().parseFromString(escaped, "text/html").documentElement.textContent;
}

function shortened(escaped, most) {
  const text = written(escaped);
  if (text.length <= most) return escaped;
  return element("i", { textContent: `${text.slice(0, most - 1)}…` }).innerHTML;
}

function hue(k) {
  return [colour(`--c${k % HUES}`), colour(`--c${k % HUES}`, 0.16)];
}

// The k-th of some shades from one end of the scale to the other.
function shades(k, count) {
  const at = count > 1 ? (k / (count - 1)) * (SCALE.length - 1) : 0;
  const low = Math.min(Math.floor(at), SCALE.length - 2);
  const [a, b] = [SCALE[low], SCALE[low + 1]].map((name) => colour(name).match(/[\d.]+/g).map(Number));
  const mix = [0, 1, 2].map((i) => Math.round(a[i] + (at - low) * (b[i] - a[i])));
  return [`rgb(${mix.join(", ")})`, `rgba(${mix.join(", ")}, 0.16)`];
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
