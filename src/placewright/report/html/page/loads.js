// The stages of a pipeline: what each device does per input, or micro-batch, along the data.

const MOST_STAGES = 64;

function loadsSection(plan) {
  const { loads } = plan, most = loads.load.reduce((high, each) => Math.max(high, each), 0) || 1;
  const shown = loads.devices.slice(0, MOST_STAGES);
  const way = loads.step ? "A device does one part after the other, for each micro-batch; the timeline shows when."
    : { sum: "A device does one part after the other; the longest bar is the pipeline's time per input.",
    overlap: "Computing and transfers go on at once: the longer of the two counts.",
    duplex: "Computing, transfers in and transfers out go on at once: the longest counts." }[loads.way];
  const rows = shown.map((device, k) => el("tr", {},
    el("th", { scope: "row" }, swatch(device), named(plan.deviceName(device)), replicaWords(plan, device)),
    el("td", { class: "load" }, loadBars(loads, k, device, most)),
    ...loads.parts.map((part) => el("td", { class: "number" }, formatSeconds(part.seconds[k]))),
    el("td", { class: "number" }, el("strong", {}, formatSeconds(loads.load[k])))));
  const titles = [{ text: "stage" }, { text: loads.step ? "per micro-batch" : "per input" },
    ...loads.parts.map((part) => ({ text: part.name, number: true })), { text: "load", number: true }];
  const left = loads.devices.length - shown.length;
  return section("loads", "Stages of the pipeline", way,
    el("ul", { class: "legend" }, loads.parts.map((part) => el("li", {},
      el("span", { class: `swatch part ${partClass(part.name)}` }), part.name))),
    wide("Stages", tableOf("Stages of the pipeline", titles, rows)),
    left > 0 ? el("p", { class: "hint" }, `${left} more stages, not shown.`) : null);
}

function partClass(name) {
  return `part-${name.split(" ")[0]}`;
}

function replicaWords(plan, device) {
  const stage = plan.loads.replicas.find((each) => each.includes(device));
  if (!stage) return null;
  const words = device === stage[0]
    ? `replicated on ${stage.length} devices` : `a replica of ${plan.deviceName(stage[0])}`;
  const shares = plan.loads.shares[plan.loads.replicas.indexOf(stage)];
  return el("span", { class: "kind" }, shares
    ? `${words}, ${Math.round(100 * shares[stage.indexOf(device)])}% of the inputs` : words);
}

// One bar of all parts where they add up, else a bar for each part.
function loadBars(loads, k, device, most) {
  const part = (each) => el("span", {
    class: `part ${partClass(each.name)}`, title: `${each.name} ${formatSeconds(each.seconds[k])}`,
    style: { width: `${(100 * each.seconds[k]) / most}%`, "background-color": deviceColour(device) },
  });
  if (loads.sums) return el("span", { class: "stack" }, loads.parts.map(part));
  return loads.parts.map((each) => el("span", { class: "stack thin" }, part(each)));
}
