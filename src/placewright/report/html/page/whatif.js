// What other hardware would do: a row for each change, with the plan found and the best there can be.

function sensitivitiesSection(plan) {
  const { seconds, rows } = plan.sensitivities;
  const titles = ["change", "value", "lower bound"].map((text, k) => ({ text, number: k > 0 }));
  return section("sensitivities", "With other hardware",
    `Each change was planned anew, ${formatSeconds(seconds / Math.max(rows.length, 1))} each: the best plan found in that time, `
    + "and what no plan can beat. A plan not found may exist.",
    wide("With other hardware", tableOf("With other hardware", titles, rows.map(sensitivityRow))));
}

function sensitivityRow(row) {
  const name = el("th", { scope: "row" }, named(row.name, { class: "name wraps" }));
  if (row.value === null) return el("tr", {}, name, el("td", { colspan: 2, class: "error" }, row.error));
  return el("tr", {}, name, changedCell(row.value, row.change), changedCell(row.bound, row.least));
}

// Seconds, and below them how far from the plan's own value.
function changedCell(seconds, share) {
  const words = `${share < 0 ? "−" : "+"}${(100 * Math.abs(share)).toFixed(1)}%`;
  return el("td", { class: "number" }, formatSeconds(seconds), el("span", { class: "kind" }, words));
}
