// The table of devices, and the subgraphs of accelerators that are invoked.

const MOST_DEVICES = 64, FEW_IDLE = 3;

function devicesSection(plan) {
  const used = plan.rows.filter((row) => row.ops || row.load);
  const idle = plan.rows.filter((row) => !row.ops && !row.load);
  const shown = (idle.length > FEW_IDLE ? used : plan.rows).slice(0, MOST_DEVICES);
  const left = used.length - shown.length;
  const titles = ["device", "ops", "load", "idle", ...plan.devices.columns.map((each) => each.title),
    "memory", "blocks"].map((text, k, all) => ({ text, number: k > 0 && k < all.length - 2 }));
  return section("devices", "Devices", null,
    wide("Devices", tableOf("Devices", titles, shown.map((row) => deviceRow(plan, row)))),
    left > 0 ? el("p", { class: "hint" }, `${left} more devices, not shown.`) : null,
    idle.length > FEW_IDLE ? el("p", { class: "hint idle" }, `${idle.length} devices do nothing: `,
      named(idle.slice(0, MOST_DEVICES).map((row) => row.name).join(", "), { class: "name wraps" })) : null);
}

function deviceRow(plan, row) {
  const device = plan.rows.indexOf(row), value = plan.answer.value;
  const share = value ? row.load / value : 0;
  return el("tr", { class: row.ops ? null : "unused" },
    el("th", { scope: "row" }, swatch(device), named(row.name),
      el("span", { class: "kind" }, named([row.kind, row.host].filter(Boolean).join(", ")))),
    el("td", { class: "number" }, formatCount(row.ops)),
    el("td", { class: "number" }, `${formatSeconds(row.load)} `, el("span", { class: "share" }, formatShare(share)),
      meter(share, deviceColour(device))),
    el("td", { class: "number" }, formatSeconds(row.idle)),
    ...plan.devices.columns.map((each) => el("td", { class: "number" }, FORMATS[each.unit](each.values[device]))),
    el("td", { class: "room" }, memoryCell(row, device)),
    el("td", { class: "blocks" }, named(row.blocks, { class: "name wraps" })));
}

function meter(share, colour) {
  return el("span", { class: "meter", "aria-hidden": "true" },
    el("span", { style: { width: `${100 * Math.min(1, share)}%`, background: colour } }));
}

function memoryCell(row, device) {
  const share = row.capacity ? row.memory / row.capacity : 0;
  const words = row.capacity === null ? formatBytes(row.memory)
    : `${formatBytes(row.memory)} of ${formatBytes(row.capacity)}`;
  if (row.capacity === null) return [`${words} `, el("span", { class: "share" }, "no limit")];
  return [`${words} `, el("span", { class: "share" }, formatShare(share)), meter(share, deviceColour(device))];
}

function subgraphsSection(plan) {
  const titles = ["invocation", "ops", "from", "to", "starts", "reads", "computes", "writes"]
    .map((text, k) => ({ text, number: k === 1 || k > 3 }));
  const rows = plan.subgraphs.map((each) => el("tr", {},
    el("th", { scope: "row" }, swatch(each.device), named(plan.deviceName(each.device)),
      el("span", { class: "kind" }, `subgraph ${each.subgraph + 1}`)),
    el("td", { class: "number" }, formatCount(each.ops)),
    el("td", {}, named(each.first)), el("td", {}, named(each.last)),
    ...[each.start, each.incoming, each.compute, each.outgoing].map((seconds) =>
      el("td", { class: "number" }, formatSeconds(seconds)))));
  return section("subgraphs", "Invocations", "Each reads its inputs from host memory, computes, and writes its outputs back.",
    wide("Invocations", tableOf("Invocations", titles, rows)));
}
