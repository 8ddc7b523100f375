// What other hardware would do: a row for each change, with the plan found and the best there can be.

function sensitivitiesSection(plan) {
  const { seconds, rows } = plan.sensitivities;
  const titles = ["change", "value", "", "no plan is faster than", ""].map((text, k) => ({ text, number: k > 0 }));
  return section("sensitivities", "With other hardware",
    `Each change was planned anew, ${formatSeconds(seconds / Math.max(rows.length, 1))} each: the best plan found in that time, `
    + "and what no plan can beat. A plan not found may exist.",
    wide("With other hardware", tableOf("With other hardware", titles, rows.map(sensitivityRow))));
}

function sensitivityRow(row) {
  const name = el("th", { scope: "row" }, named(row.name, { class: "name wraps" }));
  if (row.value === null) return el("tr", {}, name, el("td", { colspan: 4 }, row.error));
  return el("tr", {}, name,
    el("td", { class: "number" }, formatSeconds(row.value)), el("td", { class: "number" }, changeWords(row.change)),
    el("td", { class: "number" }, formatSeconds(row.bound)), el("td", { class: "number" }, changeWords(row.least)));
}

function changeWords(share) {
  return `${share < 0 ? "−" : "+"}${(100 * Math.abs(share)).toFixed(1)}%`;
}
