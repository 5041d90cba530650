// An interactive plot: data and controls in, plotly.js out.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star"];
const HUES = 7;
const SCALE = ["--s0", "--s1", "--s2", "--s3", "--s4"]; // the colours that step sizes are spread over
const TICKS = { step: ",~r", messages: "~s", bytes: "~s" }; // 1,000 steps, but 20M messages
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
        tickformat: TICKS[this.along.value] ?? "~g",
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
        ...(column === 0 && title(metrics[this.metric.value].label.replaceAll("<", "&lt;"), 6)),
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
