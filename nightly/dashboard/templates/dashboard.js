// Sorting and filters of the dashboard. Text reaches a page by textContent or escaped, never as markup.
"use strict";

// Tables and lists: a row is shown if it matches both the selection and the typed text.
function applyFilters(name) {
  const list = document.getElementById(name);
  const rows = [...(list.tBodies ? list.tBodies[0].rows : list.children)];
  const input = document.querySelector(`[data-filter="${name}"]`);
  const words = input.value.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  const choices = [...document.querySelectorAll(`[data-choose="${name}"]`)].filter((select) => select.value);
  let count = 0;
  for (const row of rows) {
    const text = row.textContent.toLocaleLowerCase();
    row.hidden = !(words.every((word) => text.includes(word)) && choices.every((select) => row.dataset[select.dataset.field] === select.value));
    count += row.hidden ? 0 : 1;
  }
  document.querySelector(`[data-count="${name}"]`).value = `${count} of ${rows.length}`;
}

function sortRows(table, key, header) {
  const falls = header.getAttribute("aria-sort") ? header.getAttribute("aria-sort") === "ascending" : !["name", "outcome"].includes(key);
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", falls ? "descending" : "ascending");
  const isWords = ["name", "outcome"].includes(key);
  const compare = (one, two) => {
    const [a, b] = [one.dataset[key], two.dataset[key]];
    if (a === "" || b === "") return (a === "") - (b === ""); // undefined values are last in both directions
    const order = isWords ? a.localeCompare(b, undefined, { numeric: true }) : Number(a) - Number(b);
    return falls ? -order : order;
  };
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort(compare));
}

function prepareTables() {
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const button of table.querySelectorAll("[data-sort]")) {
      button.addEventListener("click", () => sortRows(table, button.dataset.sort, button.closest("th")));
    }
    table.tBodies[0].addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !event.target.closest("a") && !String(window.getSelection())) window.location.href = row.dataset.href;
    });
    table.tBodies[0].addEventListener("keydown", (event) => {
      const row = event.target.closest("tr");
      const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
      if (event.key === "Enter" && event.target === row) window.location.href = row.dataset.href;
      if (!step) return;
      event.preventDefault();
      let next = row[step];
      while (next && next.hidden) next = next[step];
      if (next) next.focus();
    });
  }
  for (const input of document.querySelectorAll("[data-filter]")) input.addEventListener("input", () => applyFilters(input.dataset.filter));
  for (const select of document.querySelectorAll("[data-choose]")) select.addEventListener("change", () => applyFilters(select.dataset.choose));
  for (const input of document.querySelectorAll("[data-filter]")) applyFilters(input.dataset.filter); // browsers restore typed text
  for (const select of document.querySelectorAll("[data-order]")) {
    const list = document.getElementById(select.dataset.order), rows = [...list.children];
    const order = () => list.append(...(select.value === "best" ? rows.slice().reverse() : rows));
    select.addEventListener("change", order);
    if (select.value === "best") order();
  }
}

prepareTables();
