// What a chart is made of: ticks, names, colours, bands and crosses.

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
