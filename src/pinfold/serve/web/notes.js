// What happened: refusals with their explanation, and the last entries of the history. Rows are made once and kept.

import { spaced } from "./cpus.js";
import { ask } from "./feed.js";
import { clock, cut, make, moment, named } from "./text.js";

const REFUSALS = 8;
const ENTRIES = 60;
const LONGEST = 600;
const FIXES = 5;
const NO_FIX = "no single change is enough";

const who = (entry) => [entry.namespace, entry.pod, entry.container].filter(Boolean).join("/");

/** Pods that were refused: why, and what would help. */
export class Refusals {
  #rows = new Map();
  #said = new Map();

  constructor({ section, list, count }) {
    Object.assign(this, { section, list, count });
  }

  /** Show the last refusals of these entries; of a pod that was refused often, the last time and how often. */
  show(entries, now) {
    const found = new Map();
    for (const entry of entries) {
      if (entry.what !== "refused") continue;
      const name = `${who(entry)} ${entry.reason}`;
      const times = (found.get(name)?.times ?? 0) + 1;
      found.delete(name);
      found.set(name, { entry, times });
    }
    const last = [...found.values()].slice(-REFUSALS).reverse();
    this.section.hidden = !last.length;
    this.count.textContent = found.size > REFUSALS ? `last ${REFUSALS} of ${found.size}` : String(found.size);
    const rows = last.map(({ entry, times }) => this.#row(entry, times, now));
    if (rows.length !== this.list.children.length || rows.some((row, at) => row !== this.list.children[at])) {
      this.list.replaceChildren(...rows);
    }
  }

  #row(entry, times, now) {
    const name = `${entry.number} ${times} ${who(entry).slice(0, 300)}`;
    let row = this.#rows.get(name);
    if (row) return row;
    const title = make("p", { class: "head" }, named(who(entry) || "a pod", "strong"), make("time", { class: "soft", title: moment(entry.time) }, clock(entry.time, now)));
    const often = times > 1 ? make("span", { class: "soft" }, ` ${times} times`) : null;
    const reason = make("p", {}, named(entry.reason, "reason", 60), often);
    const words = make("div");
    row = make("li", { class: "refusal" }, title, words, reason, make("p", { class: "soft" }, named(entry.message, "", LONGEST)));
    if (this.#rows.size > 200) this.#rows.clear();
    this.#rows.set(name, row);
    this.#explain(words, entry);
    return row;
  }

  /** Say in plain words, before the kubelet's, what is not available and what would help. */
  async #explain(words, entry) {
    const said = Array.isArray(entry.fixes) ? entry : await this.#ask(entry);
    const situation = [said?.need, said?.room].filter(Boolean).join(": ");
    if (situation) words.append(make("p", { class: "need" }, named(situation, "", LONGEST)));
    const fixes = Array.isArray(said?.fixes) ? said.fixes.slice(0, FIXES) : [];
    if (fixes.length) words.append(make("p", { class: "soft" }, "What would help"));
    else if (situation) fixes.push(NO_FIX);
    if (fixes.length) words.append(make("ul", { class: "fixes" }, ...fixes.map((fix) => make("li", {}, named(fix, "", LONGEST)))));
  }

  /** The daemon's explanation of a refusal whose entry has none; a pod can be asked for by its name alone. */
  async #ask(entry) {
    const container = entry.container ? who(entry) : entry.pod;
    if (!container) return null;
    if (!this.#said.has(container)) {
      if (this.#said.size > 100) this.#said.clear();
      this.#said.set(container, ask("explain", { container }).catch(() => null));
    }
    const said = await this.#said.get(container);
    return said?.container?.startsWith(who(entry)) ? said.refusal : null;
  }

  /** What helped before may not help now. */
  forget() {
    this.#said.clear();
  }
}

/** The last entries of the history; picking one goes to its time. */
export class Activity {
  #rows = new Map();

  constructor({ list, empty }, pick) {
    Object.assign(this, { list, empty });
    list.addEventListener("click", (event) => {
      const row = event.target.closest?.("button");
      if (row) pick(Number(row.dataset.time));
    });
  }

  show(entries, at, now) {
    const last = entries.filter((entry) => entry.what !== "state").slice(-ENTRIES).reverse();
    const kept = new Map();
    let place = this.list.firstChild;
    for (const entry of last) {
      const row = this.#rows.get(entry) ?? this.#row(entry, now);
      kept.set(entry, row);
      if (row === place) place = place.nextSibling;
      else this.list.insertBefore(row, place);
      row.classList.toggle("later", at !== null && entry.time > at);
    }
    for (const [entry, row] of this.#rows) if (!kept.has(entry)) row.remove();
    this.#rows = kept;
    this.empty.hidden = last.length > 0;
  }

  #row(entry, now) {
    const time = make("time", { class: "soft", title: moment(entry.time) }, clock(entry.time, now));
    const what = make("span", { class: `what ${entry.what === "refused" ? "bad" : ""}` }, cut(entry.what, 30));
    const button = make("button", { type: "button", class: "entry", "data-time": entry.time }, time, what, make("span", { class: "about" }, ...about(entry)));
    return make("li", {}, button);
  }
}

const TOLD = new Set(["number", "time", "what", "namespace", "pod", "container", "steps", "passed_over", "uid"]);

const PLAIN = new Set(["detail", "found", "message", "need", "promise", "reason", "room", "why"]); // these say themselves what they are

const CHANGED = [["before", "cpus", "CPUs"], ["cost", "lowered", "cost"]]; // fields that are two sides of one change
const isText = (value) => typeof value === "string" && value !== "";

/** Who an entry is about, then its other fields. */
function about(entry) {
  const parts = who(entry) ? [named(who(entry), "strong", 60)] : [];
  const pairs = CHANGED.filter(([from, to]) => isText(entry[from]) && isText(entry[to]));
  for (const [from, to, what] of pairs) parts.push(make("span", { class: "soft" }, named(`${what} ${spaced(entry[from])} → ${spaced(entry[to])}`, "", 160)));
  const told = new Set(pairs.flatMap(([from, to]) => [from, to]));
  if (isText(entry.need) && isText(entry.room)) {
    parts.push(make("span", { class: "soft" }, named(`${entry.need}: ${entry.room}`, "", 320)));
    told.add("need").add("room");
  }
  for (const [name, value] of Object.entries(entry)) {
    if (told.has(name) || TOLD.has(name) || value === null || value === "" || typeof value === "object") continue;
    const text = name === "cpus" ? `${/^\d+$/.test(value) ? "CPU" : "CPUs"} ${spaced(value)}` : PLAIN.has(name) ? value : `${name} ${value}`;
    parts.push(make("span", { class: "soft" }, named(text, "", 160)));
  }
  return parts;
}
