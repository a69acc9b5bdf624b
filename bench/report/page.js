// Filters only: what is shown was drawn by Plotly from the figures themselves.
const state = {};

function passes(meta) {
  return Object.entries(state).every(([name, value]) => !value || !(name in meta) || meta[name] === value);
}

function filterChart(card) {
  const chart = card.querySelector(".js-plotly-plot");
  const seen = new Set();
  const visible = chart.data.map((trace) => passes(trace.meta));
  const legend = chart.data.map((trace, at) => {
    const group = trace.legendgroup || trace.name;
    if (!visible[at] || seen.has(group)) return false;
    seen.add(group);
    return true;
  });
  // roofs alone show nothing
  card.hidden = !chart.data.some((trace, at) => visible[at] && !trace.meta.roof);
  if (card.hidden) return;
  Plotly.restyle(chart, { visible: visible, showlegend: legend });
  Plotly.Plots.resize(chart);
}

function apply() {
  document.querySelectorAll(".card").forEach(filterChart);
  document.querySelectorAll("main section").forEach((section) => {
    const cards = [...section.querySelectorAll(".card")];
    const note = section.querySelector(":scope > p.none");
    if (note) note.hidden = !cards.length || cards.some((card) => !card.hidden);
  });
  const rows = [...document.querySelectorAll("#table tbody tr")];
  rows.forEach((row) => { row.hidden = !passes(JSON.parse(row.dataset.meta)); });
  const shown = rows.filter((row) => !row.hidden).length;
  document.getElementById("count").textContent = `${shown} of ${rows.length} figures`;
}

document.getElementById("filters").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { filter, value } = button.dataset;
  state[filter] = value;
  document.querySelectorAll(`button[data-filter="${filter}"]`).forEach((one) => {
    one.classList.toggle("on", one === button);
    one.setAttribute("aria-pressed", String(one === button));
  });
  apply();
});

window.addEventListener("load", apply);
