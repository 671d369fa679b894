// Sorting, filtering and choosing columns of the table of configurations.

const tableState = {sort: null, down: true, text: "", hidden: new Set()};

function cellKey(cell) {
  const sort = cell?.dataset.sort;
  return sort !== undefined && sort !== "" && !isNaN(sort) ? Number(sort) : cell?.textContent ?? "";
}

function sortRows(table) {
  if (tableState.sort === null) return;
  const body = table.tBodies[0], column = tableState.sort, sign = tableState.down ? -1 : 1;
  const compare = (a, b) => {
    const x = cellKey(a.cells[column]), y = cellKey(b.cells[column]);
    if (typeof x === "number" && typeof y === "number") return sign * (x - y);
    if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;  // rows without a figure go last
    return -sign * x.localeCompare(y);
  };
  body.append(...[...body.rows].sort(compare));
}

function applyTable(table) {
  sortRows(table);
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    if (index === tableState.sort) head.ariaSort = tableState.down ? "descending" : "ascending";
    else head.removeAttribute("aria-sort");
  });
  const words = tableState.text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  for (const row of table.rows)
    [...row.cells].forEach((cell, index) => { cell.hidden = tableState.hidden.has(index); });
  const count = document.getElementById("shown");
  if (count) count.textContent = `${shown} of ${table.tBodies[0].rows.length}`;
}

function sortBy(table, column) {
  tableState.down = tableState.sort === column ? !tableState.down : true;
  tableState.sort = column;
  applyTable(table);
}

function makeTools(table) {
  const tools = document.createElement("div");
  tools.className = "tools";
  const search = Object.assign(document.createElement("input"), {
    type: "search", id: "filter", placeholder: "filter, e.g. isa=avx2 auto", value: tableState.text});
  search.setAttribute("aria-label", "Show only configurations that contain all these words");
  search.addEventListener("input", () => { tableState.text = search.value; applyTable(table); });
  const count = Object.assign(document.createElement("span"), {id: "shown", className: "faint"});
  const columns = Object.assign(document.createElement("span"), {className: "columns"});
  columns.setAttribute("role", "group");
  columns.setAttribute("aria-label", "Columns");
  tools.append(search, count, columns);
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    if (index === 0) return;
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), {
      type: "checkbox", checked: !tableState.hidden.has(index)});
    box.addEventListener("change", () => {
      tableState.hidden[box.checked ? "delete" : "add"](index);
      applyTable(table);
    });
    label.append(box, " " + head.textContent);
    columns.append(label);
  });
  table.before(tools);
}

// Called again whenever the table has been replaced.
function wakeTables() {
  const table = document.querySelector("table.candidates");
  if (!table) return;
  if (table.tBodies[0].rows.length > 1) makeTools(table);
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    const button = Object.assign(document.createElement("button"), {type: "button"});
    button.append(...head.childNodes);  // reachable by keyboard
    head.append(button);
    head.addEventListener("click", () => sortBy(table, index));
  });
  applyTable(table);
}
