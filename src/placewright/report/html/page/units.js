// Seconds and bytes as text, as `units.py` has them.

function formatSeconds(seconds) {
  for (const [scale, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (Math.abs(seconds) >= scale) return `${(seconds / scale).toFixed(3)} ${unit}`;
  }
  return seconds ? `${(seconds * 1e9).toFixed(1)} ns` : "0 s";
}

function formatBytes(amount) {
  if (amount === null) return "unlimited";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(amount) < 1024) return `${amount.toFixed(unit === "B" ? 0 : 1)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

function formatCount(number) {
  return number.toLocaleString("en");
}

function formatShare(share) {
  if (share > 0 && share < 0.005) return "< 1%";
  return `${Math.round(100 * share)}%`;
}

// "model.layers 0–38" for the first and last of a run of numbered names.
function runName(first, last) {
  const [one, two] = [first, last].map((name) => name.split("."));
  const number = one.length - 1;
  return one.length > 1 && one.slice(0, number).join(".") === two.slice(0, number).join(".")
    ? `${one.slice(0, number).join(".")} ${one[number]}–${two[number]}` : `${first} … ${last}`;
}

const FORMATS = { seconds: formatSeconds, bytes: formatBytes, count: formatCount };

// Round steps of an axis: about `count` of them over `span`, from 1, 2 or 5 times a power of ten.
function roundStep(span, count) {
  const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
}

// A moment on an axis whose steps are `step` seconds long: no more digits than it needs.
function formatMoment(seconds, step) {
  const [scale, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]
    .find(([size]) => Math.max(Math.abs(seconds), step) >= size) || [1e-9, "ns"];
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / scale) + 1e-9)));
  return `${(seconds / scale).toFixed(digits)} ${unit}`;
}
