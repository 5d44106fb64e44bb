// The dashboard's charts, sorting and filters. Text reaches a page by textContent or escaped, never as markup.
"use strict";

const holder = document.getElementById("data");
const data = holder ? JSON.parse(holder.textContent) : null;
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const still = { displayModeBar: false, responsive: true };
const DETAILED = 45; // points up to which each night has its own interval; beyond, a band
const THINNED = 200; // points of a line in the background

// Plotly reads some tags (links too) in names and hover texts.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const wrap = (text) => plain(text).replace(/(.{50,70}?) /g, "$1<br>");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const known = (value) => value !== null && value !== undefined;

function faded(hex, part) {
  const level = (at) => parseInt(hex.slice(at, at + 2), 16);
  return `rgba(${level(1)}, ${level(3)}, ${level(5)}, ${part})`;
}

function axis(extra) {
  return {
    gridcolor: colour("faint"), linecolor: colour("rule"), zerolinecolor: colour("rule"), tickcolor: colour("rule"),
    tickfont: { color: colour("soft"), size: 12 }, automargin: true, fixedrange: true, ...extra,
  };
}

function layout(extra) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: false,
    margin: { l: 44, r: 12, t: 26, b: 36 }, hovermode: "closest",
    font: { family: getComputedStyle(document.body).fontFamily, color: colour("ink"), size: 13 },
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("rule"), font: { color: colour("ink") }, align: "left" },
    ...extra,
  };
}

const isDated = (nights) => nights.every((night) => /^\d{4}-\d\d-\d\d$/.test(night));
const nightAxis = (nights) => axis({ type: isDated(nights) ? "date" : "category", showgrid: false, ...(isDated(nights) && nights.length <= 6 ? { tickvals: nights } : { nticks: 8 }) });

// The window of nights shown: from this place to the end.
const windows = new Map();
const first = (name, nights) => { const count = windows.get(name); return count ? Math.max(0, nights.length - count) : 0; };

function band(xs, low, high) {
  const x = [], y = [];
  let run = [];
  const close = () => {
    if (run.length > 1) {
      if (x.length) { x.push(null); y.push(null); }
      for (const at of run) { x.push(xs[at]); y.push(high[at]); }
      for (const at of run.slice().reverse()) { x.push(xs[at]); y.push(low[at]); }
    }
    run = [];
  };
  xs.forEach((_, at) => { if (known(low[at]) && known(high[at])) run.push(at); else close(); });
  close();
  return { x, y };
}

// A line with its interval: whiskers where there is room for them, else a band.
function lineWithInterval(xs, line, hue, name, more) {
  const count = line.value.filter(known).length;
  const text = line.value.map((value, at) => known(value)
    ? `${plain(name)}<br>${plain(xs[at])}: ${value.toFixed(1)}` + (known(line.low[at]) ? ` [${line.low[at].toFixed(1)}, ${line.high[at].toFixed(1)}]` : ", no interval")
    : "");
  const main = { type: "scatter", x: xs, y: line.value, mode: count > DETAILED ? "lines" : "lines+markers", line: { color: hue, width: 2 }, marker: { color: hue, size: 6 }, hovertext: text, hoverinfo: "text", ...more };
  if (count <= DETAILED) {
    const reach = (end, sign) => line.value.map((value, at) => known(value) && known(end[at]) ? sign * (end[at] - value) : 0);
    main.error_y = { type: "data", symmetric: false, array: reach(line.high, 1), arrayminus: reach(line.low, -1), color: faded(hue, 0.45), thickness: 2, width: 0 };
    return [main];
  }
  return [{ type: "scatter", ...band(xs, line.low, line.high), fill: "toself", mode: "lines", line: { width: 0 }, fillcolor: faded(hue, 0.2), hoverinfo: "skip", ...more }, main];
}

function marks(xs, values, found, from, more, size = 13) {
  const shown = found.filter((item) => item.at >= from);
  return {
    type: "scatter", mode: "markers", x: shown.map((item) => xs[item.at - from]), y: shown.map((item) => values[item.at - from]),
    marker: { symbol: "triangle-down", size, color: colour("alarm"), line: { color: colour("paper"), width: 1.5 } },
    hovertext: shown.map((item) => wrap(item.text)), hoverinfo: "text", cliponaxis: false, ...more,
  };
}

function changeLines(nights, changes, from) {
  const shown = changes.filter((item) => item.at >= from);
  const shapes = shown.map((item) => ({ type: "line", x0: nights[item.at], x1: nights[item.at], yref: "paper", y0: 0, y1: 1, line: { color: colour("soft"), width: 1, dash: "dot" } }));
  const labelled = shown.length <= 4 ? shown : [];
  const late = (at) => at - from > 0.6 * (nights.length - from);
  const annotations = labelled.map((item) => ({ x: nights[item.at], yref: "paper", y: 1, yanchor: "bottom", xanchor: late(item.at) ? "right" : "left", showarrow: false, text: plain(item.text.length > 34 ? `${item.text.slice(0, 33)}…` : item.text), font: { size: 11, color: colour("soft") } }));
  return { shapes, annotations };
}

const cut = (line, from) => ({ value: line.value.slice(from), low: line.low.slice(from), high: line.high.slice(from) });

function thin(xs, ys) {
  const step = Math.ceil(xs.length / THINNED);
  const keep = (_, at) => at % step === 0 || at === xs.length - 1;
  return { x: xs.filter(keep), y: ys.filter(keep) };
}

function drawTrend() {
  const place = document.getElementById("trend");
  const { nights, models, changes } = data.trend;
  if (!models.length) return;
  const chosen = Number(document.getElementById("trend-model").value) || 0;
  const what = document.getElementById("trend-what").value, isChange = what === "change";
  const lineOf = (model) => isChange ? model.change : model;
  const from = first("trend", nights), xs = nights.slice(from);
  const traces = models.flatMap((model, at) => at === chosen ? [] : [{
    type: "scatter", ...thin(xs, lineOf(model).value.slice(from)), mode: "lines", line: { color: faded(colour("rival"), 0.38), width: 1.2 },
    hovertext: plain(model.name), hoverinfo: "text",
  }, marks(xs, lineOf(model).value.slice(from), model.found, from, { opacity: 0.55 }, 9)]);
  const model = models[chosen], line = cut(lineOf(model), from);
  traces.push(...lineWithInterval(xs, line, colour("judge"), model.name));
  traces.push(marks(xs, line.value, model.found, from));
  const kind = isChange ? "change of Good in points" : model.kind === "corrected" ? "Good share, corrected" : "Good share, as judged";
  const upright = isChange ? { zeroline: true, zerolinecolor: colour("soft") } : { ticksuffix: " %" };
  Plotly.react(place, traces, layout({
    xaxis: nightAxis(nights), yaxis: axis(upright), ...changeLines(nights, changes, from),
    title: { text: `<b>${plain(model.name)}</b>, ${kind}`, font: { size: 14 }, x: 0, xanchor: "left", xref: "paper", y: 1, yref: "container", yanchor: "top", pad: { t: 8 } },
    margin: { l: 50, r: 12, t: 58, b: 36 },
  }), still);
  document.getElementById("trend-link").href = model.page;
}

function drawLabels() {
  const place = document.getElementById("labels");
  const { nights, labels, found, changes, kind } = data;
  const from = first("labels", nights), xs = nights.slice(from);
  const hues = { Good: colour("judge"), Okay: colour("rival"), Bad: colour("people") };
  const traces = [], extra = {}, headings = [];
  Object.entries(labels).forEach(([label, kinds], at) => {
    const name = at ? `y${at + 1}` : "y";
    const line = cut(kinds[kind], from);
    if (kind === "corrected") {
      traces.push({ type: "scatter", ...thin(xs, kinds.raw.value.slice(from)), mode: "lines", line: { color: hues[label], width: 1, dash: "dot" }, hovertext: `${label} as judged`, hoverinfo: "text", yaxis: name });
    }
    traces.push(...lineWithInterval(xs, line, hues[label], label, { yaxis: name }));
    if (label === "Good") traces.push(marks(xs, line.value, found, from, { yaxis: name }));
    const top = 1 - at / 3;
    extra[at ? `yaxis${at + 1}` : "yaxis"] = axis({ domain: [top - 0.27, top - 0.03], ticksuffix: " %", nticks: 5 });
    headings.push({ x: 0, xref: "paper", y: top - 0.025, yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, text: `<b>${plain(label)}</b>${at || kind !== "corrected" ? "" : "  line: corrected; dots: as judged"}`, font: { size: 13 } });
  });
  const lines = changeLines(nights, changes, from);
  const marksAbove = lines.annotations.map((item) => ({ ...item, y: 1.01 }));
  Plotly.react(place, traces, layout({ xaxis: { ...nightAxis(nights), anchor: "y3" }, ...extra, shapes: lines.shapes, annotations: [...headings, ...marksAbove], margin: { l: 50, r: 12, t: 40, b: 36 } }), still);
}

function drawHeat() {
  const place = document.getElementById("heat");
  if (!place) return;
  const { models, emotions, values, texts, positive } = data.emotions;
  const flat = values.flat().filter(known);
  const middle = flat.reduce((sum, value) => sum + value, 0) / flat.length;
  const reach = Math.max(5, ...flat.map((value) => Math.abs(value - middle)));
  const tint = (name, part) => `rgba(${colour(name).split(" ").join(", ")}, ${part})`;
  const parts = [0, 0.25, 0.5, 0.75, 1];
  const scale = parts.map((at) => [at, at < 0.5 ? tint("warm", 0.75 * (1 - 2 * at)) : tint("cool", 0.75 * (2 * at - 1))]);
  const hovers = texts.map((row, at) => row.map((text, column) => known(text) ? `${plain(models[at])}, ${plain(emotions[column])}<br>Good ${plain(text)}` : ""));
  const border = emotions.length - positive - 0.5;
  place.style.height = `${130 + 27 * models.length}px`;
  const shown = models.map((name, at) => plain(name.length > 22 ? `${name.slice(0, 21)}…` : name) + "\u200b".repeat(at)); // equal once cut, yet two rows
  Plotly.react(place, [{
    type: "heatmap", z: values, x: emotions.map(plain), y: shown, text: values.map((row) => row.map((value) => known(value) ? value.toFixed(0) : "")), texttemplate: "%{text}",
    textfont: { size: 11, color: colour("ink") }, hovertext: hovers, hoverinfo: "text", zmin: middle - reach, zmax: middle + reach, colorscale: scale, xgap: 1, ygap: 1,
    showscale: false, // the cells say their figures
  }], layout({
    xaxis: axis({ type: "category", side: "top", tickangle: -60, showgrid: false, tickfont: { color: colour("ink"), size: 12 } }),
    yaxis: axis({ type: "category", autorange: "reversed", showgrid: false, tickfont: { color: colour("ink"), size: 12 } }),
    shapes: positive && positive < emotions.length ? [{ type: "line", x0: border, x1: border, yref: "paper", y0: 0, y1: 1, line: { color: colour("ink"), width: 1.5 } }] : [],
    margin: { l: 10, r: 10, t: 90, b: 10 },
  }), still);
}

function drawHealth() {
  const { nights, changes, shift, moved, unscored, reasons, cost, per_thousand: rate } = data;
  const from = first("health", nights), xs = nights.slice(from);
  const lines = changeLines(nights, changes, from);
  const line = cut(shift, from);
  const found = moved.map((at) => ({ at, text: `${nights[at]}: the judge is shown to have moved` }));
  const many = found.length > DETAILED;
  Plotly.react("shift", [
    ...lineWithInterval(xs, line, colour("judge"), "Shift in points"),
    ...(many ? [] : [marks(xs, line.value, found, from)]),
  ], layout({ xaxis: nightAxis(nights), yaxis: axis({ zeroline: true, zerolinecolor: colour("soft") }), ...lines }), still);
  const bars = (ys, hue, texts) => [{ type: "bar", x: xs, y: ys.slice(from), marker: { color: faded(hue, 0.75), line: { width: 0 } }, hovertext: texts.slice(from), hoverinfo: "text", textposition: "none" }];
  const told = unscored.map((value, at) => known(value) ? wrap(`${nights[at]}: ${value.toFixed(1)} % ${reasons[at]}`) : "");
  const most = Math.max(1, ...unscored.slice(from).filter(known));
  Plotly.react("unscored", bars(unscored, colour("people"), told), layout({ xaxis: nightAxis(nights), yaxis: axis({ ticksuffix: " %", range: [0, most * 1.1] }), shapes: lines.shapes, bargap: 0.15 }), still);
  const spent = cost.map((value, at) => known(value) ? `${plain(nights[at])}: $${value.toFixed(4)}` + (known(rate[at]) ? `, $${rate[at].toFixed(4)} for 1,000 judged` : "") : "");
  Plotly.react("cost", bars(cost, colour("judge"), spent), layout({ xaxis: nightAxis(nights), yaxis: axis({ tickprefix: "$", rangemode: "tozero" }), shapes: lines.shapes, bargap: 0.15 }), still);
}

const charts = { trend: drawTrend, labels: drawLabels, heat: drawHeat, shift: drawHealth };
const owners = { trend: drawTrend, labels: drawLabels, health: drawHealth };

function drawAll() {
  for (const [name, draw] of Object.entries(charts)) if (document.getElementById(name)) draw();
}

function choose(name, count) {
  windows.set(name, count);
  for (const button of document.querySelectorAll(`[data-for="${name}"]`)) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.range) === count));
  }
}

function prepareRanges(nights) {
  for (const name of Object.keys(owners)) {
    const buttons = [...document.querySelectorAll(`[data-for="${name}"]`)];
    for (const button of buttons) {
      const count = Number(button.dataset.range);
      button.hidden = count >= nights;
      button.addEventListener("click", () => { choose(name, count); owners[name](); });
    }
    choose(name, nights > 90 ? 90 : 0);
    if (buttons.length && buttons.filter((button) => !button.hidden).length < 2) buttons[0].parentElement.hidden = true;
  }
}

// Tables and lists: what is chosen and what is written must both fit a row.
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
    if (a === "" || b === "") return (a === "") - (b === ""); // undefined stands last either way
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
  for (const input of document.querySelectorAll("[data-filter]")) applyFilters(input.dataset.filter); // a browser keeps what was typed
  for (const select of document.querySelectorAll("[data-order]")) {
    const list = document.getElementById(select.dataset.order), rows = [...list.children];
    const order = () => list.append(...(select.value === "best" ? rows.slice().reverse() : rows));
    select.addEventListener("change", order);
    if (select.value === "best") order();
  }
}

prepareTables();
if (data) {
  prepareRanges((data.trend || data).nights.length);
  const select = document.getElementById("trend-model");
  if (select) {
    const what = document.getElementById("trend-what");
    const hasChanges = data.trend.models.some((model) => model.change.value.some(known));
    if (!hasChanges) { what.value = "level"; what.parentElement.hidden = true; }
    for (const item of [select, what]) item.addEventListener("change", drawTrend);
  }
  drawAll();
  dark.addEventListener("change", drawAll);
}

// Drawn for the screen's width; with a view box paper of any width shows them whole.
addEventListener("beforeprint", () => {
  for (const drawn of document.querySelectorAll(".main-svg")) drawn.setAttribute("viewBox", `0 0 ${drawn.getAttribute("width")} ${drawn.getAttribute("height")}`);
});
