// Sorts a table of offers by the header that is clicked. Without it the table is a plain one.
(function () {
  "use strict";

  function value(row, column) {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  }

  function sort(table, column, down) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    rows.sort(function (a, b) {
      const x = value(a, column);
      const y = value(b, column);
      // what is not known stays last, whichever way
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = typeof x === "number" && typeof y === "number"
        ? x - y
        : String(x).localeCompare(String(y), undefined, { numeric: true });
      return down ? -order : order;
    });
    rows.forEach(function (row) { body.appendChild(row); });
  }

  function enable(table) {
    table.dataset.sortable = "ready";
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      head.tabIndex = 0;
      head.style.cursor = "pointer";
      head.title = table.dataset.sortBy.replace("%1", head.textContent);
      function click() {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach(function (other) {
          other.removeAttribute("aria-sort");
          other.dataset.mark = "";
        });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        head.dataset.mark = down ? " ▾" : " ▴";
        sort(table, column, down);
      }
      head.addEventListener("click", click);
      head.addEventListener("keydown", function (event) {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          click();
        }
      });
    });
  }

  // The same output may be on the page more than once, and so may others.
  document.querySelectorAll('table.jupyter-sky-offers[data-sortable="no"]').forEach(enable);
})();
