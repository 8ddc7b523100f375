// Finding ops by a part of their name.

const LISTED = 30;

class Search {
  // `found(matches, op)`: `matches[op]` is 1 for those found, or null; the op to show, or -1.
  constructor(model, found) {
    this.model = model;
    this.found = found;
    this.hits = [];
    this.at = -1;
    this.count = el("output", { class: "search-count" });
    this.input = el("input", {
      type: "search", placeholder: "Find an op", "aria-label": "Find an op by name",
      spellcheck: "false", autocomplete: "off",
      oninput: () => this.look(), onkeydown: (event) => this.key(event),
    });
    this.list = el("ul", { class: "hits", hidden: true, "aria-label": "Ops found" });
    this.box = el("div", { class: "search" }, this.input, this.count, this.list);
  }

  look() {
    const text = this.input.value.trim().toLowerCase();
    this.lower = this.lower || this.model.ops.map((name) => name.toLowerCase());
    this.at = -1;
    if (!text) {
      this.hits = [];
      this.tell();
      this.found(null, -1);
      return;
    }
    const matches = new Uint8Array(this.lower.length);
    this.hits = [];
    this.lower.forEach((name, op) => {
      if (!name.includes(text)) return;
      matches[op] = 1;
      this.hits.push(op);
    });
    this.tell();
    this.found(matches, -1);
  }

  tell() {
    const { hits } = this;
    if (!this.input.value.trim()) this.count.textContent = "";
    else this.count.textContent = this.at < 0 ? `${formatCount(hits.length)} ops` : `${this.at + 1} of ${formatCount(hits.length)}`;
    this.list.hidden = !hits.length;
    this.list.replaceChildren(...hits.slice(0, LISTED).map((op, k) =>
      el("li", {}, el("button", { onclick: () => this.go(k) }, named(this.model.ops[op])))));
  }

  go(at) {
    if (!this.hits.length) return;
    this.at = (at + this.hits.length) % this.hits.length;
    const op = this.hits[this.at];
    this.tell();
    this.list.hidden = true;
    const matches = new Uint8Array(this.lower.length);
    for (const each of this.hits) matches[each] = 1;
    this.found(matches, op);
  }

  key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      this.go(this.at + (event.shiftKey ? -1 : 1));
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.look();
    }
  }
}
