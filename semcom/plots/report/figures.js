// The figures of a study: from its numbers and the state to Plotly's traces and layouts.

const COLOURS = ["#0072b2", "#d55e00", "#000000", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star", "pentagon"];
const STROKES = { solid: "", dash: "6 4", dot: "2 3", dashdot: "6 3 2 3", longdash: "10 4" };
const COSTS = {
  floats: "floats", uses: "channel uses", bits: "bits", airtime_s: "airtime in s", energy_j: "energy in J",
  samples: "training samples", rounds: "rounds",
};
const SHADES = [[0, "#ffffff"], [1, "#6baed6"]]; // dark text is readable on all of them
const FIRST = "first of each method";

const style = (i) => ({
  colour: COLOURS[i % COLOURS.length], dash: DASHES[i % DASHES.length], symbol: SYMBOLS[i % SYMBOLS.length],
});
// Plotly reads some HTML in its texts: names are to be shown as they are.
const text = (value) => String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const percent = (value) => (value === null ? "none" : (100 * value).toFixed(1) + " %");
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const pale = (colour) => colour + "59"; // a third of it
const wide = () => window.innerWidth > 640;

// Whether a row lies at the chosen point, but for one axis that the figure shows. A method that has one value of a
// field, which others vary, is a reference, and shown whatever value is chosen.
const here = (part, row, but = -1) => row.at.every((value, a) =>
  a === but || value === part.state.at[a] || part.values[row.variant][a].size === 1);
const runsHere = (part, variant) => Object.entries(part.data.runs)
  .filter(([, run]) => run.variant === variant && here(part, run));

// For each method and axis the values of its runs.
function valuesOf(data) {
  const found = data.variants.map(() => data.axes.map(() => new Set()));
  for (const run of Object.values(data.runs)) run.at.forEach((value, a) => found[run.variant][a].add(value));
  return found;
}
const viewOf = (part, run) => (part.state.view === FIRST ? run.headline : part.state.view);
const varies = (part) => [...part.data.axes.keys()].filter((a) => part.values.some((of) => of[a].size > 1));
// The chosen point in words, but for one axis that the figure shows; then the references that lie elsewhere.
function place(part, but = -1) {
  const { data, state, values } = part;
  const shown = varies(part).filter((a) => a !== but);
  const words = shown.map((a) => data.axes[a].words[state.at[a]]);
  const own = data.variants.flatMap((name, i) => data.axes.flatMap((axis, a) => {
    const [only] = values[i][a].size === 1 ? values[i][a] : [state.at[a]];
    return shown.includes(a) && only !== state.at[a] ? [`${name} at ${axis.words[only]}`] : [];
  }));
  return [...words, ...own].join(", ");
}
const hover = (part, key) => {
  const run = part.data.runs[key];
  const words = run.words.replace(/, /g, "\n");
  return text(`${part.data.variants[run.variant]}\n${words}`).replace(/\n/g, "<br>") + `<br>run ${text(key)}`;
};
const visible = (part, i) => (part.state.hidden.has(i) ? "legendonly" : true);
const HOVER = "%{text}<extra></extra>";

function layout(x, y, more = {}) {
  const axis = { automargin: true, zeroline: false, gridcolor: "#e6e6e6", linecolor: "#888", ticks: "outside" };
  return {
    margin: { l: 50, r: 15, t: 36, b: 45 }, height: 430, font: { size: 13, color: "#1a1a1a" },
    paper_bgcolor: "#fff", plot_bgcolor: "#fff", hovermode: "closest", hoverlabel: { align: "left" },
    legend: { orientation: "h", x: 0, y: -0.2, yanchor: "top" }, showlegend: true,
    xaxis: { ...axis, title: { text: text(x) } }, yaxis: { ...axis, title: { text: text(y) } }, ...more,
  };
}

// Make a layout that of a matrix: its first row on top, no lines between its cells.
function blank(made) {
  made.yaxis.autorange = "reversed";
  made.xaxis.showgrid = made.yaxis.showgrid = false;
}

// -- figures: each returns its traces and layout, or null where there is nothing to show ------------------------------

const along = ({ state }) => (state.x.startsWith("axis") ? Number(state.x.slice(4)) : -1);

// Accuracy along an axis: means with their intervals, and single runs.
function accuracy(part) {
  const { data } = part;
  const a = along(part);
  const axis = data.axes[a];
  const numeric = Boolean(axis && axis.numeric);
  const at = (row) => (axis ? axis.values[row.at[a]] : text(data.variants[row.variant]));
  const words = (row) => (axis ? axis.words[row.at[a]] : "");
  const traces = data.variants.flatMap((_, i) => {
    const rows = data.means.filter((row) => row.variant === i && here(part, row, a));
    if (numeric) rows.sort((one, other) => at(one) - at(other));
    const points = Object.entries(data.runs)
      .filter(([, run]) => run.variant === i && run.status === "done" && here(part, run, a))
      .map(([key, run]) => ({ key, x: at(run), y: run.accuracy }));
    return [runsTrace(part, i, points), meansTrace(part, i, rows, at, words, numeric)];
  });
  const made = layout(axis ? axis.label : "method", "accuracy in %");
  if (!numeric) made.xaxis.type = "category";
  else if (axis && axis.values.length <= 15) made.xaxis.tickvals = axis.values;
  return { data: traces, layout: made };
}

// Single runs of a method, pale.
function runsTrace(part, i, points) {
  const { colour, symbol } = style(i);
  return {
    type: "scatter", mode: "markers", name: text(part.data.variants[i]), legendgroup: String(i), meta: i,
    x: points.map((p) => p.x), y: points.map((p) => 100 * p.y), customdata: points.map((p) => [p.key]),
    text: points.map((p) => `${hover(part, p.key)}<br>${percent(p.y)}`), hovertemplate: HOVER, showlegend: false,
    visible: visible(part, i), marker: { color: pale(colour), symbol, size: 6 },
  };
}

// Means of a method with their intervals; a click on one leads to the runs that it is over.
function meansTrace(part, i, rows, at, words, numeric) {
  const { runs, variants } = part.data;
  const { colour, dash, symbol } = style(i);
  const over = (row) => Object.keys(runs).filter((key) =>
    runs[key].variant === i && runs[key].status === "done" && String(runs[key].at) === String(row.at));
  const said = (row) => {
    const ends = row.low === null ? "no interval" : `${percent(row.low)} to ${percent(row.high)}`;
    const seeds = row.n > 1 ? `mean of ${row.n} seeds` : "one seed";
    return `${text(variants[i])}<br>${text(words(row))}<br>${percent(row.mean)} (${seeds}; ${ends})`;
  };
  const reach = (end) => rows.map((row) => (row[end] === null ? 0 : 100 * Math.abs(row[end] - row.mean)));
  return {
    type: "scatter", mode: numeric ? "lines+markers" : "markers", name: text(variants[i]), legendgroup: String(i), meta: i,
    x: rows.map(at), y: rows.map((row) => 100 * row.mean), text: rows.map(said), hovertemplate: HOVER,
    customdata: rows.map(over), visible: visible(part, i), line: { color: colour, dash, width: 2.2 },
    marker: { color: colour, symbol, size: 9 },
    error_y: {
      type: "data", symmetric: false, color: colour, thickness: 1.2, width: 4,
      array: reach("high"), arrayminus: reach("low"),
    },
  };
}

// Learning curves: single runs thin, the mean over those rounds in which all of them were evaluated thick.
function curves(part) {
  const { data, state } = part;
  const loss = state.quantity === "loss";
  const factor = loss ? 1 : 100;
  const traces = data.variants.flatMap((name, i) => {
    const { colour, dash } = style(i);
    const found = runsHere(part, i).flatMap(([key, run]) => {
      const curve = loss ? data.curves.loss[key] : (data.curves.accuracy[key] || {})[viewOf(part, run)];
      return curve ? [[key, curve]] : [];
    });
    if (!found.length) return [];
    const thin = found.map(([key, [rounds, values]]) => ({
      type: "scatter", mode: rounds.length > 1 ? "lines" : "markers", name: text(name), legendgroup: String(i), meta: i,
      showlegend: false, x: rounds, y: values.map((v) => factor * v), customdata: rounds.map(() => [key]),
      text: rounds.map((r, j) => `${hover(part, key)}<br>round ${r}: ${loss ? values[j] : percent(values[j])}`),
      hovertemplate: HOVER, visible: visible(part, i), line: { color: pale(colour), width: 1 },
      marker: { color: pale(colour) },
    }));
    const of = new Map();
    for (const [, [rounds, values]] of found) {
      rounds.forEach((r, j) => of.set(r, [...(of.get(r) || []), values[j]]));
    }
    const common = [...of].filter(([, values]) => values.length === found.length).sort((a, b) => a[0] - b[0]);
    const seeds = found.length > 1 ? `mean of ${found.length} runs` : "one run";
    const thick = {
      type: "scatter", mode: common.length > 1 ? "lines" : "markers", name: text(name), legendgroup: String(i), meta: i,
      x: common.map(([r]) => r), y: common.map(([, values]) => factor * mean(values)), visible: visible(part, i),
      customdata: common.map(() => found.map(([key]) => key)), line: { color: colour, dash, width: 2.4 },
      marker: { color: colour }, hovertemplate: HOVER,
      text: common.map(([r, v]) => `${text(name)}<br>round ${r}<br>${loss ? mean(v) : percent(mean(v))} (${seeds})`),
    };
    return [...thin, thick];
  });
  const made = layout("round", loss ? "training loss" : "accuracy in %");
  if (Math.max(...traces.flatMap((trace) => trace.x.slice(-1))) <= 12) made.xaxis.dtick = 1;
  return traces.length ? { data: traces, layout: made } : null;
}

// Accuracies of single clients, of all seeds.
function clients(part) {
  const { data } = part;
  const traces = data.variants.flatMap((name, i) => {
    const { colour, symbol } = style(i);
    const points = runsHere(part, i).flatMap(([key, run]) => {
      const [ids, values] = (data.clients.accuracy[key] || {})[viewOf(part, run)] || [[], []];
      return ids.map((id, j) => ({ key, id, value: values[j] }));
    });
    if (!points.length) return [];
    return [{
      type: "box", name: text(name), meta: i, y: points.map((p) => 100 * p.value), customdata: points.map((p) => [p.key]),
      text: points.map((p) => `${hover(part, p.key)}<br>client ${p.id}: ${percent(p.value)}`), hovertemplate: HOVER,
      boxpoints: points.length > 5000 ? "outliers" : "all", jitter: 0.5, pointpos: 0, visible: visible(part, i),
      line: { color: colour, width: 1.3 }, fillcolor: "rgba(0,0,0,0)",
      marker: { color: pale(colour), symbol, size: 6 }, hoveron: "points",
    }];
  });
  const made = layout("", "accuracy of a client in %");
  return traces.length ? { data: traces, layout: { ...made, showlegend: wide() } } : null;
}

// Accuracy by class: a row per method, means over seeds.
function classes(part) {
  const { data, state } = part;
  const rows = data.variants.flatMap((name, i) => {
    const found = runsHere(part, i).flatMap(([key, run]) => {
      const values = (data.classes[key] || {})[viewOf(part, run)];
      return values ? [[key, values]] : [];
    });
    if (!found.length || state.hidden.has(i)) return [];
    const size = Math.max(...found.map(([, values]) => values.length));
    const averages = [...Array(size).keys()].map((c) => {
      const known = found.map(([, values]) => values[c]).filter((value) => value !== null && value !== undefined);
      return known.length ? 100 * mean(known) : null;
    });
    return [{ name: text(name), keys: found.map(([key]) => key), averages }];
  });
  if (!rows.length) return null;
  const count = Math.max(...rows.map((row) => row.averages.length));
  const written = count * rows.length <= 300 && wide();
  const made = layout("class", "", { height: 160 + 34 * rows.length, showlegend: false });
  blank(made);
  made.xaxis.dtick = count <= 20 ? 1 : undefined;
  return {
    data: [{
      type: "heatmap", x: [...Array(count).keys()], y: rows.map((row) => row.name), z: rows.map((row) => row.averages),
      customdata: rows.map((row) => row.averages.map(() => row.keys)), zmin: 0, zmax: 100, colorscale: SHADES,
      xgap: 1, ygap: 1, colorbar: { title: { text: "%" }, thickness: 12 },
      texttemplate: written ? "%{z:.0f}" : undefined, textfont: { color: "#1a1a1a" },
      hovertemplate: "%{y}<br>class %{x}: %{z:.1f} %<extra></extra>",
    }],
    layout: made,
  };
}

// Test images of one run by true and predicted class.
function confusion(part) {
  const { data, state } = part;
  const kept = Object.keys(data.confusion.of);
  if (!kept.length) return null;
  const key = kept.includes(state.run) ? state.run : kept[0];
  const views = data.confusion.of[key];
  const run = data.runs[key];
  const view = views[viewOf(part, run)] ? viewOf(part, run) : Object.keys(views)[0];
  const counts = views[view];
  const shares = counts.map((row) => {
    const sum = row.reduce((a, b) => a + b, 0);
    return row.map((count) => (sum ? (100 * count) / sum : null));
  });
  const made = layout("predicted class", "true class", { height: 520, showlegend: false });
  blank(made);
  if (counts.length <= 20) [made.xaxis.dtick, made.yaxis.dtick] = [1, 1];
  return {
    note: `View ${view}. Shares of the test images of a true class, of all clients; a class without any is blank.`,
    data: [{
      type: "heatmap", z: shares, text: counts.map((row, i) => row.map((n, j) => (shares[i][j] === null ? "" : n))), zmin: 0, zmax: 100, colorscale: SHADES, xgap: 1, ygap: 1,
      customdata: counts.map((row) => row.map(() => [key])), colorbar: { title: { text: "%" }, thickness: 12 },
      texttemplate: counts.length <= 12 ? "%{text}" : undefined, textfont: { color: "#1a1a1a" },
      hovertemplate: "true %{y}, predicted %{x}<br>%{text} images, %{z:.1f} %<extra></extra>",
    }],
    layout: made,
  };
}

// Accuracy against cost; the line joins the efficient methods.
function costs(part) {
  const { data, state } = part;
  const all = (data.costs[state.cost] || []).filter((row) => here(part, row) && row.cost !== null);
  if (!all.length) return null;
  const traces = all.map((row) => {
    const { colour, symbol } = style(row.variant);
    const name = data.variants[row.variant];
    const keys = runsHere(part, row.variant).filter(([, run]) => run.status === "done").map(([key]) => key);
    const ends = row.low === null ? [0, 0] : [row.high - row.accuracy, row.accuracy - row.low];
    return {
      type: "scatter", mode: "markers", name: text(name), meta: row.variant, x: [row.cost], y: [100 * row.accuracy],
      customdata: [keys], visible: visible(part, row.variant), hovertemplate: HOVER,
      text: [`${text(name)}<br>${percent(row.accuracy)}<br>${row.cost.toPrecision(4)} ${COSTS[state.cost]}` +
        (row.efficient ? "<br>efficient" : "")],
      marker: { color: row.efficient ? colour : "#fff", symbol, size: 11, line: { color: colour, width: 2 } },
      error_y: { type: "data", symmetric: false, array: [100 * ends[0]], arrayminus: [100 * ends[1]], color: colour,
        thickness: 1.2, width: 4 },
    };
  });
  const front = all.filter((row) => row.efficient).sort((one, other) => one.cost - other.cost);
  const line = {
    type: "scatter", mode: "lines", x: front.map((row) => row.cost), y: front.map((row) => 100 * row.accuracy),
    line: { color: "#999", width: 1, dash: "dot" }, hoverinfo: "skip", showlegend: false,
  };
  const made = layout(`${COSTS[state.cost]} of the whole run, all clients and directions`, "accuracy in %");
  const spent = all.map((row) => row.cost).filter((cost) => cost > 0);
  if (spent.length === all.length && Math.max(...spent) > 20 * Math.min(...spent)) made.xaxis.type = "log";
  return { data: [line, ...traces], layout: made };
}
