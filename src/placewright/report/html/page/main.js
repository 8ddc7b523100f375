// The page: a header, the comparison of several plans, and the sections of the plan that is shown.

function main() {
  const record = JSON.parse(document.getElementById("data").textContent);
  const models = record.models.map((each) => new Model(each));
  const plans = record.plans.map((each) => new Plan(each, models));
  const shown = el("main", {});
  const root = document.getElementById("page");
  readStyle();
  const show = (number) => {
    redraws.clear();
    shown.replaceChildren(...planSections(plans[number]));
    tabs.forEach((tab, k) => tab.setAttribute("aria-pressed", k === number));
  };
  const tabs = plans.map((plan, k) => el("button", {
    class: "tab", "aria-pressed": "false", onclick: () => show(k),
  }, named(plan.label)));
  root.append(header(record, plans));
  if (record.comparison) {
    const jump = (number) => { show(number); shown.scrollIntoView(); };
    root.append(el("div", { class: "above" }, comparisonSection(record.comparison, plans, jump)),
      el("nav", { class: "tabs", "aria-label": "Plans" }, tabs));
  }
  root.append(shown, el("footer", {}, `placewright ${record.version}`));
  show(0);
  readyForPrinting();
  document.documentElement.dataset.ready = "yes";
}

// Parts of the page in their order; those without `always` are there where the plan has figures for them.
const PARTS = [
  { id: "answer", title: "Answer", always: true }, { id: "timeline", title: "Timeline" },
  { id: "loads", title: "Stages" }, { id: "subgraphs", title: "Invocations" },
  { id: "devices", title: "Devices", always: true }, { id: "memory", title: "Memory" },
  { id: "convergence", title: "Planning" }, { id: "sensitivities", title: "Other hardware" },
  { id: "model", title: "Blocks", always: true },
];

function header(record, plans) {
  const there = PARTS.filter((part) => part.always || plans[0][part.id]);
  const links = [...(record.comparison ? [["comparison", "Plans"]] : []), ...there.map(({ id, title }) => [id, title])];
  return el("header", {},
    el("span", { class: "brand" }, "placewright"),
    el("nav", { class: "places", "aria-label": "Parts of the page" },
      links.map(([id, text]) => el("a", { href: `#${id}` }, text))),
    themeButton());
}

function planSections(plan) {
  const timeline = plan.timeline ? new Timeline(plan) : null;
  const showOp = timeline ? (op) => {
    timeline.showOp(op);
    timeline.section.scrollIntoView();
  } : null;
  return [
    answerSection(plan),
    timeline ? timeline.section : null,
    plan.loads ? loadsSection(plan) : null,
    plan.subgraphs ? subgraphsSection(plan) : null,
    devicesSection(plan),
    plan.memory ? memorySection(plan) : null,
    plan.convergence ? convergenceSection(plan) : null,
    plan.sensitivities ? sensitivitiesSection(plan) : null,
    new ModelTree(plan, showOp).section,
  ].filter(Boolean);
}

main();
