// Memory over time of each device: what ops keep, tensors alive on top of it, and the capacity.

const MEMORY_HEIGHT = 64, MOST_CHARTS = 24;

function memorySection(plan) {
  const { memory } = plan;
  const charts = memory.devices.slice(0, MOST_CHARTS).map((record) => memoryChart(plan, record));
  const counted = memory.counted ? "The plan counts both."
    : "The plan counts what ops keep (memory option resident); the tensors come on top.";
  const stashed = memory.training && !memory.counted
    ? " In training what ops keep has the tensors that the backward pass needs in it already." : "";
  const left = memory.devices.length - charts.length;
  return section("memory", "Memory over time",
    `Solid: what ops keep. Light: tensors that are alive besides. Line: what the device has. ${counted}${stashed}`,
    el("div", { class: "charts" }, charts),
    left > 0 ? el("p", { class: "hint" }, `${left} more devices, not shown.`) : null);
}

function memoryChart(plan, record) {
  const row = plan.rows[record.device], alive = column(record.alive);
  const most = alive.reduce((high, each) => Math.max(high, each), 0);
  const words = `${formatBytes(record.kept)} kept, at most ${formatBytes(most)} alive besides`
    + (row.capacity === null ? "" : `, of ${formatBytes(row.capacity)}`);
  const canvas = el("canvas", { role: "img", "aria-label": `${row.name}: ${words}` });
  const frame = el("figure", { class: "chart" },
    el("figcaption", {}, swatch(record.device), named(row.name), el("span", { class: "kind" }, words)), canvas);
  const tip = new Tip(frame);
  const top = 1.05 * Math.max(record.kept + most, row.capacity || 0, 1);
  const draw = onceAFrame(() => {
    const width = frame.clientWidth;
    if (width) paint(canvas, width, MEMORY_HEIGHT, (context) => drawMemory(context, width, record, alive, top, row.capacity));
  });
  canvas.addEventListener("pointermove", (event) => {
    const k = Math.min(alive.length - 1, Math.max(0, Math.floor((event.offsetX / canvas.clientWidth) * alive.length)));
    const moment = (k / alive.length) * plan.memory.seconds;
    tip.show(event.offsetX, canvas.offsetTop + event.offsetY, row.name, [["at", formatSeconds(moment)],
      ["kept", formatBytes(record.kept)], ["alive", formatBytes(alive[k])]]);
  });
  canvas.addEventListener("pointerleave", () => tip.hide());
  redraws.add(draw);
  new ResizeObserver(draw).observe(frame);
  return frame;
}

function drawMemory(context, width, record, alive, top, capacity) {
  const y = (bytes) => MEMORY_HEIGHT * (1 - bytes / top);
  const floor = record.kept ? Math.min(y(record.kept), MEMORY_HEIGHT - 2.5) : MEMORY_HEIGHT; // a little is seen too
  context.fillStyle = deviceColour(record.device, 0.4);
  alive.forEach((bytes, k) => {
    const tall = Math.max(floor - y(record.kept + bytes), bytes ? 1 : 0);
    context.fillRect((k / alive.length) * width, floor - tall, width / alive.length + 0.6, tall);
  });
  context.fillStyle = deviceColour(record.device);
  context.fillRect(0, floor, width, MEMORY_HEIGHT - floor);
  context.fillStyle = style.line;
  context.fillRect(0, MEMORY_HEIGHT - 1, width, 1);
  if (capacity === null) return;
  context.strokeStyle = style.ink;
  context.setLineDash([5, 4]);
  context.beginPath();
  context.moveTo(0, y(capacity));
  context.lineTo(width, y(capacity));
  context.stroke();
  context.setLineDash([]);
}
