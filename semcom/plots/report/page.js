// The page: its panel, tables, buttons and menus. One state per study says which methods and which point are shown;
// each change of it draws all figures anew.

const CONFIG = { responsive: true, displaylogo: false, showSendToCloud: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") Object.entries(value).forEach(([event, act]) => made.addEventListener(event, act));
    else if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function menu(label, choices, chosen, act) {
  const options = choices.map(([value, shown]) => {
    const option = element("option", { value }, shown);
    option.selected = value === chosen;
    return option;
  });
  const select = element("select", { on: { change: () => act(select.value) } }, ...options);
  return element("label", {}, label + " ", select);
}

// -- the panel with commands ----------------------------------------------------------------------------------------

const panel = document.querySelector(".panel");
panel.querySelector(".close").addEventListener("click", () => { panel.hidden = true; });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") panel.hidden = true; });

function copy(button, pre) {
  const range = document.createRange();
  range.selectNodeContents(pre);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  button.textContent = document.execCommand("copy") ? "copied" : "press Ctrl+C";
}

function show(part, keys) {
  const content = panel.querySelector(".content");
  content.replaceChildren(...keys.slice(0, 50).flatMap((key) => {
    const run = part.data.runs[key];
    const row = [...part.root.querySelectorAll("table[data-table=runs] tr[data-run]")].find((r) => r.dataset.run === key.split(" ")[0]);
    const command = row.querySelector("code").textContent;
    const head = run ? `${part.data.variants[run.variant]}, ${run.words}: ` : "";
    const said = run && run.accuracy !== null ? percent(run.accuracy) : run ? run.status : "pending";
    const pre = element("pre", {}, command || "The command of the study repeats it.");
    const button = element("button", { type: "button", on: { click: () => copy(button, pre) } }, "copy");
    return [element("p", {}, `${head}${said}, run ${key} `, command ? button : ""), pre];
  }));
  panel.hidden = false;
}

// -- tables ---------------------------------------------------------------------------------------------------------

function sort(table, column) {
  const head = table.tHead.rows[0].cells[column];
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const cell of table.tHead.rows[0].cells) cell.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => row.cells[column].dataset.sort;
  const number = (value) => (value === "inf" ? Infinity : Number(value));
  const rows = [...table.tBodies[0].rows];
  const numeric = rows.every((row) => !Number.isNaN(number(key(row))));
  const compare = (a, b) => {
    if (!numeric) return key(a).localeCompare(key(b)) * (down ? -1 : 1);
    const [one, other] = [number(key(a)), number(key(b))];
    if (one === other) return 0;
    if (!Number.isFinite(one) || !Number.isFinite(other)) return one === Infinity ? 1 : -1; // none comes last
    return (one - other) * (down ? -1 : 1);
  };
  table.tBodies[0].append(...rows.sort(compare));
}

function tables(part) {
  for (const table of part.root.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      cell.firstElementChild.addEventListener("click", () => sort(table, column));
    });
    for (const row of table.querySelectorAll("tr[data-run]")) {
      row.addEventListener("click", () => { if (getSelection().isCollapsed) show(part, [row.dataset.run]); });
    }
  }
  const filter = part.root.querySelector(".filter");
  const rows = [...part.root.querySelectorAll("table[data-table=runs] tbody tr")];
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const held = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => held.includes(word));
    }
    part.root.querySelector(".count").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  });
}

// -- the state ------------------------------------------------------------------------------------------------------

function chip(part, i) {
  const { colour, dash } = style(i);
  const line = `<svg width="28" height="10" aria-hidden="true"><line x1="1" x2="27" y1="5" y2="5" stroke="${colour}"` +
    ` stroke-width="2.5" stroke-dasharray="${STROKES[dash]}"/></svg>`;
  const act = () => toggle(part, i);
  const made = element("button", { type: "button", class: "method", "data-variant": i, on: { click: act } });
  made.innerHTML = line;
  made.append(part.data.variants[i]);
  return made;
}

function bar(part) {
  const { data, state } = part;
  const all = (hidden) => () => { state.hidden = new Set(hidden ? data.variants.keys() : []); draw(part); };
  const word = (shown, hidden) => element("button", { type: "button", class: "plain", on: { click: all(hidden) } }, shown);
  const chips = data.variants.map((_, i) => chip(part, i));
  const axes = varies(part).map((a) => {
    const axis = data.axes[a];
    const choices = axis.values.map((value, i) => [String(i), String(value)]);
    return menu(axis.label, choices, String(state.at[a]), (i) => { state.at[a] = Number(i); draw(part); });
  });
  const views = data.views.length > 1
    ? [menu("view", [FIRST, ...data.views].map((v) => [v, v]), state.view, (v) => { state.view = v; draw(part); })] : [];
  part.root.querySelector(".bar").append(...chips, ...(chips.length > 2 ? [word("all", false), word("none", true)] : []),
    ...axes, ...views);
}

function toggle(part, i) {
  const { hidden } = part.state;
  if (!hidden.delete(i)) hidden.add(i);
  draw(part);
}

function only(part, i) {
  const others = [...part.data.variants.keys()].filter((other) => other !== i);
  const alone = others.every((other) => part.state.hidden.has(other)) && !part.state.hidden.has(i);
  part.state.hidden = new Set(alone ? [] : others);
  draw(part);
}

// -- drawing ----------------------------------------------------------------------------------------------------------

function accuracyMenu(part) {
  const { data, state } = part;
  const axes = varies(part).map((a) => [`axis${a}`, data.axes[a].label]);
  const choices = [...axes, ["method", "method"]];
  return [menu("along", choices, state.x, (x) => { state.x = x; draw(part); })];
}
const FIGURES = {
  accuracy: {
    title: "Accuracy", make: accuracy, menus: accuracyMenu,
    note: () => "Large: means over seeds with 95 % intervals, where there are several seeds. Small: single runs.",
  },
  curves: {
    title: "Learning curves", make: curves,
    menus: (part) => [menu("show", [["accuracy", "accuracy"], ["loss", "training loss"]], part.state.quantity,
      (q) => { part.state.quantity = q; draw(part); })],
    note: ({ data }) => "Thin: single runs. Thick: their mean, over rounds in which all of them were evaluated." +
      (data.curves.every > 1 ? ` To save room, one evaluation of ${data.curves.every} is shown.` : ""),
  },
  clients: {
    title: "Clients", make: clients, menus: () => [],
    note: ({ data }) => "A point per client and seed; boxes from the lower to the upper quartile, with the median." +
      (data.clients.every > 1 ? ` To save room, one client of ${data.clients.every} is shown.` : ""),
  },
  classes: {
    title: "Classes", make: classes, menus: () => [],
    note: () => "Accuracy in % by class over all clients, mean over seeds; a class that nobody tests is blank.",
  },
  confusion: {
    title: "Confusion", make: confusion,
    menus: (part) => {
      const { data, state } = part;
      const choices = Object.keys(data.confusion.of).map((key) =>
        [key, `${data.variants[data.runs[key].variant]}, ${data.runs[key].words} (${key})`]);
      return choices.length ? [menu("run", choices, state.run, (run) => { state.run = run; draw(part); })] : [];
    },
    note: ({ data }) => {
      const held = Object.keys(data.confusion.of).length;
      return held < data.confusion.kept ? `To save room, the matrices of ${held} of ${data.confusion.kept} runs are here.` : "";
    },
  },
  costs: {
    title: "Accuracy against cost", make: costs,
    menus: (part) => [menu("cost", Object.keys(part.data.costs).map((c) => [c, COSTS[c]]), part.state.cost,
      (cost) => { part.state.cost = cost; draw(part); })],
    note: () => "Filled: efficient methods, which no other one beats in accuracy at no higher cost. This compares means.",
  },
};
const MISSING = {
  confusion: "No run kept its confusion matrices: train with --keep confusion.", costs: "No cost is known here.",
};

function build(part) {
  for (const group of part.root.querySelectorAll(".figures")) {
    for (const id of group.dataset.figures.split(" ")) {
      const figure = FIGURES[id];
      const plot = element("div", { class: "plot" });
      const note = element("p", { class: "note" });
      const menus = element("p", { class: "controls" }, ...figure.menus(part));
      const box = element("section", { class: "figure", "data-figure": id }, element("h3", {}, figure.title), note, menus, plot);
      group.append(box);
      part.figures[id] = { plot, note, box };
    }
  }
}

function listen(part, plot) {
  if (plot.dataset.listens) return;
  plot.dataset.listens = "yes";
  plot.on("plotly_click", (event) => {
    const keys = event.points[0].customdata;
    if (Array.isArray(keys)) show(part, keys);
  });
  const variant = (event) => event.data[event.curveNumber].meta;
  plot.on("plotly_legendclick", (event) => { toggle(part, variant(event)); return false; });
  plot.on("plotly_legenddoubleclick", (event) => { only(part, variant(event)); return false; });
}

function draw(part) {
  for (const made of part.root.querySelectorAll(".method")) {
    made.setAttribute("aria-pressed", String(!part.state.hidden.has(Number(made.dataset.variant))));
  }
  for (const [id, { plot, note }] of Object.entries(part.figures)) {
    const made = FIGURES[id].make(part);
    const words = id === "confusion" ? "" : place(part, id === "accuracy" ? along(part) : -1);
    const point = words ? words + ". " : "";
    const empty = MISSING[id] || "No run has this here.";
    note.textContent = made ? point + FIGURES[id].note(part) + (made.note ? ` ${made.note}` : "") : point + empty;
    plot.hidden = !made;
    if (made) {
      Plotly.react(plot, made.data, made.layout, CONFIG);
      listen(part, plot);
    }
  }
}

function start(root) {
  const data = JSON.parse(root.querySelector(".data").textContent);
  const first = Object.values(data.runs).find((run) => run.status === "done") || Object.values(data.runs)[0];
  const values = valuesOf(data);
  const longest = (a) => (data.axes[a].numeric ? 1000 : 1) * Math.max(...values.map((of) => of[a].size));
  const [x] = varies({ data, values }).sort((a, b) => longest(b) - longest(a));
  const state = {
    hidden: new Set(), at: first ? [...first.at] : data.axes.map(() => 0), view: FIRST,
    x: x !== undefined ? `axis${x}` : "method",
    quantity: "accuracy", cost: data.costs.uses ? "uses" : Object.keys(data.costs)[0], run: Object.keys(data.confusion.of)[0],
  };
  const part = { root, data, state, values, figures: {} };
  tables(part);
  bar(part);
  build(part);
  draw(part);
}

document.querySelectorAll(".part").forEach(start);
