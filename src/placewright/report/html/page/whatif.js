// What other hardware would do: a row for each change, with the plan found and the best there can be.

function sensitivitiesSection(plan) {
  const { seconds, rows } = plan.sensitivities;
  const holds = rows.filter((row) => row.keeps && row.value !== null).reduce((most, row) => Math.max(most, row.bound), 0);
  const titles = ["change", "value", "lower bound"].map((text, k) => ({ text, number: k > 0 }));
  return section("sensitivities", "With other hardware",
    `Each change was planned anew, ${+(seconds / Math.max(rows.length, 1)).toPrecision(2)} s each: the best plan found in that time, `
    + "and what no plan can beat. A plan not found may exist."
    + (holds > plan.answer.bound * (1 + 1e-9)
      ? ` More memory and a faster link take nothing away, so that their bound of ${formatSeconds(holds)} holds for this plan too.` : ""),
    wide("With other hardware", tableOf("With other hardware", titles, rows.map(sensitivityRow))));
}

function sensitivityRow(row) {
  const name = el("th", { scope: "row" }, named(row.name, { class: "name wraps" }));
  if (row.value === null) return el("tr", {}, name, el("td", { colspan: 2, class: "error" }, row.error));
  return el("tr", {}, name, changedCell(row.value, row.change), changedCell(row.bound, row.least));
}

// Seconds, and below them how far from the plan's own value.
function changedCell(seconds, share) {
  const percent = (100 * Math.abs(share)).toFixed(1);
  const words = percent === "0.0" ? "the same" : `${share < 0 ? "−" : "+"}${percent}%`;
  return el("td", { class: "number" }, formatSeconds(seconds), el("span", { class: "kind" }, words));
}
