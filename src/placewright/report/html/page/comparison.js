// Several plans side by side, and what they do differently.

const SAME = 1e-9; // values that differ by less are equal but for rounding

function comparisonSection(record, plans, show) {
  const most = plans.reduce((high, plan) => Math.max(high, plan.answer.value), 0) || 1;
  const best = plans.reduce((low, plan) => Math.min(low, plan.answer.value), Infinity);
  const isBest = (answer) => record.comparable && answer.value <= best * (1 + SAME);
  const hint = record.comparable ? null
    : "The plans are not for one problem, so that their values say little about one another. ";
  const marks = "Bar: the value. Mark: its lower bound.";
  const titles = ["plan", "value and bound", "value", "bound", "gap", "devices"]
    .map((text, k) => ({ text, number: k > 1 }));
  const rows = plans.map((plan, k) => {
    const { answer } = plan, is = isBest(answer);
    return el("tr", { class: is ? "best" : null },
      el("th", { scope: "row" }, el("button", { class: "link", onclick: () => show(k) }, named(record.labels[k])),
        is ? el("span", { class: "kind" }, "the best") : null),
      el("td", { class: "versus" }, versus(answer, most)),
      el("td", { class: "number" }, el("strong", {}, formatSeconds(answer.value)),
        answer.throughput ? el("span", { class: "kind" }, answer.throughput) : null),
      el("td", { class: "number" }, formatSeconds(answer.bound)),
      el("td", { class: "number" }, `${(100 * answer.gap).toFixed(1)}%`),
      el("td", { class: "number" }, `${plan.rows.filter((row) => row.ops).length} of ${plan.rows.length}`));
  });
  return section("comparison", `${plans.length} plans compared`, `${hint || ""}${marks}`,
    wide("Plans compared", tableOf("Plans compared", titles, rows)), differences(record, plans));
}

// The value as a bar, with a mark where the bound is.
function versus(answer, most) {
  return el("span", { class: "versus-bar", "aria-hidden": "true" },
    el("span", { class: "versus-value", style: { width: `${(100 * answer.value) / most}%` } }),
    el("span", { class: "versus-bound", style: { left: `${(100 * answer.bound) / most}%` } }));
}

// Blocks by plans: on which devices each has a block; rows that differ are marked.
function differences(record, plans) {
  const lanes = record.lanes.map((lane, k) => laneOf(lane, plans[k]));
  const count = record.differs.filter(Boolean).length;
  const body = el("tbody", {});
  const words = record.blocks.map((_, block) => lanes.map((lane, k) => placeWords(lane.get(block), plans[k])));
  const runs = runsOf(words.map((row) => row.join("|")));
  const row = ([from, to]) => el("tr", {},
    el("th", { scope: "row" }, el("span", { class: "mark" }, record.differs[from] ? "≠" : ""),
      named(to - from > 1 ? runName(record.blocks[from], record.blocks[to - 1]) : record.blocks[from]),
      to - from > 1 ? el("span", { class: "kind" }, `${to - from} blocks`) : null),
    lanes.map((lane, k) => el("td", {}, placeCell(lane.get(from), words[from][k]))));
  const fill = (only) => body.replaceChildren(...runs.filter(([from]) => !only || record.differs[from]).map(row));
  const only = el("input", { type: "checkbox", id: "only", onchange: (event) => fill(event.target.checked) });
  fill(false);
  return el("details", { class: "differences", open: runs.length <= 60 },
    el("summary", {}, `${count} of ${record.blocks.length} blocks are placed differently`),
    el("label", { class: "choice", for: "only" }, only, "only these"),
    wide("Blocks by plan", el("table", { class: "lanes" },
      el("caption", { class: "unseen" }, "Devices of each block, by plan"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "block"),
        record.labels.map((label) => el("th", { scope: "col" }, named(label))))), body)));
}

// Block → its devices with their shares.
function laneOf(lane, plan) {
  const share = column(lane.share), width = plan.rows.length;
  return new Map(lane.blocks.map((block, k) => [block,
    plan.rows.map((_, device) => [device, share[k * width + device]]).filter(([, each]) => each > 0)]));
}

function placeWords(shares, plan) {
  if (!shares) return "not in it";
  return shares.map(([device, share]) => (shares.length > 1
    ? `${plan.deviceName(device)} ${formatShare(share)}` : plan.deviceName(device))).join(", ");
}

function placeCell(shares, words) {
  return [shares ? shareBar(shares, words) : null, named(words, { class: "name place" })];
}
