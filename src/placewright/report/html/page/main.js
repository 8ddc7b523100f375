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
  document.documentElement.dataset.ready = "yes";
}

function header(record, plans) {
  const links = [["answer", "Answer"], ["timeline", "Timeline"], ["loads", "Stages"], ["devices", "Devices"],
    ["model", "Blocks"]].filter(([id]) => id === "answer" || id === "devices" || id === "model" || plans[0][id]);
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
