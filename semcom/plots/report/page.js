// The page: tables that are sorted by a click on their heads, a filter, and the menus of figures.

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

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    cell.firstElementChild.addEventListener("click", () => sort(table, column));
  });
}

for (const filter of document.querySelectorAll(".filter")) {
  const block = filter.closest(".block");
  const rows = [...block.querySelectorAll("tbody tr")];
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const held = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => held.includes(word));
    }
    block.querySelector(".count").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  });
}

for (const menu of document.querySelectorAll(".figure select")) {
  const plot = menu.closest(".figure").querySelector(".plotly-graph-div");
  menu.addEventListener("change", () => {
    const { traces, layout } = JSON.parse(menu.value);
    const shown = new Set(traces);
    Plotly.update(plot, { visible: plot.data.map((_, i) => shown.has(i)) }, layout);
  });
}
