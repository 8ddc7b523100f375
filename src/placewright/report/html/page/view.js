// The stretch of time that a timeline shows.

class View {
  constructor(end, changed) {
    this.whole = end || 1;
    this.changed = changed;
    this.from = 0;
    this.to = this.whole;
  }

  get span() { return this.to - this.from; }

  get isWhole() { return this.span >= this.whole * (1 - 1e-9); }

  set(from, to) {
    const span = Math.min(Math.max(to - from, this.whole * 1e-7), this.whole);
    const start = Math.min(Math.max(from, 0), this.whole - span);
    this.from = start;
    this.to = start + span;
    this.changed();
  }

  fit() { this.set(0, this.whole); }

  // What is at `share` of the width stays there; a factor below 1 shows more detail.
  zoom(factor, share = 0.5) {
    const at = this.from + share * this.span, span = this.span * factor;
    this.set(at - share * span, at + (1 - share) * span);
  }

  pan(share) { this.set(this.from + share * this.span, this.to + share * this.span); }

  // Show a slice: where it is, unless it is in sight, and no smaller than can be seen.
  reveal(start, finish) {
    const length = Math.max(finish - start, this.whole * 1e-7);
    let span = Math.min(this.span, Math.max(length * 40, this.whole * 1e-6));
    span = Math.max(span, length * 1.5);
    const middle = (start + finish) / 2;
    if (span === this.span && start >= this.from && finish <= this.to) return;
    this.set(middle - span / 2, middle + span / 2);
  }
}
