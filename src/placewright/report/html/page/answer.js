// The answer: the sentence, its figures, what limits the plan, what its costs rest on.

const SOURCES = ["measured", "regressed", "predicted", "given", "datasheet"];
const SOURCE_WORDS = {
  measured: "measured here", regressed: "fitted to measurements", predicted: "predicted",
  given: "given in the file", datasheet: "from data sheets",
};

function answerSection(plan) {
  const answer = plan.answer;
  return el("section", { id: "answer", "aria-labelledby": "answer-title" },
    el("h1", { id: "answer-title" }, named(plan.title, { class: "name wraps" })),
    el("p", { class: "sentence" }, capital(answer.sentence)),
    boundBar(answer),
    figures(plan),
    limits(answer),
    costs(answer),
    answer.notes.length
      ? el("ul", { class: "notes" }, answer.notes.map((note) => el("li", {}, capital(note)))) : null,
    el("p", { class: "fine" }, capital(answer.provenance)));
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// The value as a bar, of which no plan can do without the part up to the bound.
function boundBar(answer) {
  if (!answer.value) return null;
  const share = 100 * Math.min(1, answer.bound / answer.value);
  const text = `lower bound ${formatSeconds(answer.bound)}, value ${formatSeconds(answer.value)}`;
  return el("div", { class: "bound", role: "img", "aria-label": text },
    el("div", { class: "bound-bar" },
      el("div", { class: "bound-proved", style: { width: `${share}%` } },
        share > 20 ? `${formatSeconds(answer.bound)} no plan can save` : ""),
      el("div", { class: "bound-gap" }, share < 75 ? "gap" : "")));
}

function figures(plan) {
  const answer = plan.answer;
  const cells = [
    [answer.words, formatSeconds(answer.value), answer.throughput],
    ["lower bound", formatSeconds(answer.bound), answer.bound_source],
    ["gap", `${(100 * answer.gap).toFixed(1)}%`, answer.status],
  ];
  if (answer.range && answer.range[0] < answer.range[1]) {
    cells.push(["if costs are off", `${formatSeconds(answer.range[0])} to ${formatSeconds(answer.range[1])}`,
      "5th to 95th percentile"]);
  }
  return el("dl", { class: "figures" }, cells.map(([what, figure, detail]) =>
    el("div", {}, el("dt", {}, what), el("dd", {},
      el("strong", {}, figure), detail ? el("span", {}, detail) : null))));
}

function limits(answer) {
  if (!answer.limits.length) return null;
  return el("div", { class: "limits" }, el("h2", {}, "What limits it"),
    el("ul", {}, answer.limits.map((limit) => el("li", {}, limit))));
}

function costs(answer) {
  const known = SOURCES.filter((source) => answer.costs[source]);
  if (!known.length) return null;
  const words = known.map((source) => `${formatShare(answer.costs[source])} ${SOURCE_WORDS[source]}`);
  return el("div", { class: "costs" },
    el("h2", {}, "What its times rest on"),
    el("span", { class: "cost-bar", role: "img", "aria-label": words.join(", ") },
      known.map((source) => el("span", {
        class: `cost-${source}`, style: { width: `${100 * answer.costs[source]}%` },
      }))),
    el("ul", { class: "legend" }, known.map((source, k) =>
      el("li", {}, el("span", { class: `swatch cost-${source}` }), words[k]))));
}
