// The list of pods and their containers, with a filter. Rows are kept by name; only what changes is touched.

import { cacheUse } from "./cache.js";
import { alignment, exclusivity } from "./card.js";
import { colour } from "./colours.js";
import { command, copied } from "./copy.js";
import { parseCpus, spaced } from "./cpus.js";
import { ask } from "./feed.js";
import { clock, make, named, plural, put, span, write } from "./text.js";
import { keyOf } from "./view.js";

const LONGEST_STEP = 400;

export class PodList {
  #rows = new Map();
  #pods = new Map();
  #marked = [];
  #view = null;
  #open = null;
  #steps = 0;

  /** `handlers`: `point(key | null)` for the container under the pointer or with the focus, `pick(key | null)`, `filter()`. */
  constructor({ list, filter, count, found, empty }, handlers) {
    Object.assign(this, { list, filter, count, found, empty, handlers });
    filter.addEventListener("input", () => {
      this.#filter();
      this.found.textContent = this.count.textContent; // read aloud only when the user filters
      handlers.filter();
    });
    const row = (event) => event.target.closest?.(".container")?.dataset.index;
    const key = (event) => this.#keys[row(event)] ?? null;
    list.addEventListener("pointerover", (event) => handlers.point(key(event)));
    list.addEventListener("pointerleave", () => handlers.point(null));
    list.addEventListener("focusin", (event) => handlers.point(key(event)));
    list.addEventListener("focusout", () => handlers.point(null));
    list.addEventListener("click", (event) => event.target.closest?.(".container") && this.pick(key(event)));
    list.addEventListener("keydown", (event) => this.#key(event));
  }

  #keys = []; // names are untrusted and long; rows carry numbers

  /** Show the containers of a view; `now` is its time, `past` whether it is not the present. */
  show(view, now, past) {
    this.#view = view;
    this.#now = now;
    this.#past = past;
    const containers = [...view.containers.entries()].sort(([, a], [, b]) => order(a, b));
    const gone = new Set(this.#rows.keys());
    const pods = new Set();
    let before = null;
    for (const [key, container] of containers) {
      gone.delete(key);
      const pod = this.#pod(container);
      if (!pods.has(pod)) {
        pods.add(pod);
        const place = before ? before.nextSibling : this.list.firstChild;
        if (pod.element !== place) this.list.insertBefore(pod.element, place);
        before = pod.element;
        pod.last = null;
      }
      const row = this.#row(key);
      const place = pod.last ? pod.last.nextSibling : pod.inner.firstChild;
      if (row.element !== place) pod.inner.insertBefore(row.element, place);
      pod.last = row.element;
      this.#update(row, key, container);
    }
    for (const key of gone) this.#drop(key);
    for (const [name, pod] of this.#pods) {
      if (pods.has(pod)) continue;
      pod.element.remove();
      this.#pods.delete(name);
    }
    if (this.#open && !this.#rows.has(this.#open)) this.pick(null);
    this.#filter();
  }

  #now = 0;
  #past = false;

  #pod(container) {
    const name = `${container.namespace}/${container.pod}`;
    let pod = this.#pods.get(name);
    if (!pod) {
      const qos = make("span", { class: "qos" });
      const head = make("div", { class: "podhead" }, make("span", { class: "podname" }, named(container.pod, "strong"), named(container.namespace, "soft")), qos);
      const inner = make("ul", { class: "plain" });
      pod = { element: make("li", { class: "pod" }, head, inner), inner, qos, last: null };
      this.#pods.set(name, pod);
    }
    if (pod.qos.textContent !== container.qos) pod.qos.textContent = container.qos;
    return pod;
  }

  #row(key) {
    let row = this.#rows.get(key);
    if (row) return row;
    const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    const [name, cpus, state] = [make("bdi", { class: "name" }), make("span", { class: "cpus" }), make("span", { class: "soft state" })];
    const index = this.#keys.push(key) - 1;
    const attributes = { type: "button", class: "container", tabindex: "-1", "data-index": index, "aria-expanded": "false" };
    const button = make("button", attributes, swatch, name, cpus, state);
    const more = make("div", { class: "more", hidden: true });
    row = { element: make("li", {}, button, more), button, swatch, name, cpus, state, more, shown: "", text: "" };
    this.#rows.set(key, row);
    return row;
  }

  #update(row, key, container) {
    // A sharing container has the pool's CPUs, which change all the time and are not written in the row.
    const own = container.exclusive ? { ...container, cache: null } : { ...container, cpus: "", allowed: "", cache: null };
    if (this.#open === key && row.uses) put(row.uses, cacheUse(container)); // changes all the time, without a new row
    const shown = JSON.stringify([own, container.exclusive && colour(key), this.#past]);
    if (!container.exclusive) row.numbers = this.#view.shared;
    if (row.shown === shown) return;
    row.shown = shown;
    row.text = `${key} ${container.qos} ${container.state} ${container.exclusive ? "exclusive" : "shared"}`.toLowerCase();
    row.swatch.className = container.exclusive ? `swatch exclusive ${colour(key)}` : "swatch shared";
    write(row.name, container.container, 40);
    row.cpus.textContent = container.exclusive ? spaced(container.cpus) : "shared";
    row.cpus.classList.toggle("soft", !container.exclusive);
    row.state.textContent = state(container);
    if (container.exclusive) row.numbers = parseCpus(container.cpus);
    if (this.#open === key) this.#explain(row, key);
  }

  #drop(key) {
    const row = this.#rows.get(key);
    row.element.remove();
    this.#rows.delete(key);
    delete this.#keys[row.button.dataset.index];
  }

  #filter() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of this.#rows.values()) {
      const hidden = !words.every((word) => matches(row, word));
      if (row.element.hidden !== hidden) row.element.hidden = hidden;
      if (!hidden) shown += 1;
    }
    for (const pod of this.#pods.values()) {
      const hidden = ![...pod.inner.children].some((child) => !child.hidden);
      if (pod.element.hidden !== hidden) pod.element.hidden = hidden;
    }
    const all = this.#rows.size;
    const said = words.length ? `${shown} of ${plural(all, "container")}` : plural(all, "container");
    put(this.count, said);
    this.empty.hidden = shown > 0;
    this.empty.textContent = all ? "No container matches the filter." : this.#past ? "No container had CPUs of its own then." : "No containers yet. New ones appear here automatically.";
    this.#rove();
  }

  /** Exactly one visible row is reached by Tab; the arrow keys go on from there. */
  #rove(wanted = null) {
    const visible = this.#visible();
    const current = wanted ?? visible.find((row) => row.button.tabIndex === 0) ?? visible[0];
    for (const row of this.#rows.values()) {
      const index = row === current ? 0 : -1;
      if (row.button.tabIndex !== index) row.button.tabIndex = index;
    }
  }

  #visible() {
    const order = [...this.list.querySelectorAll(".container")].map((button) => this.#rows.get(this.#keys[button.dataset.index]));
    return order.filter((row) => !row.element.hidden);
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !event.target.matches(".container")) return;
    event.preventDefault();
    const visible = this.#visible();
    const at = visible.findIndex((row) => row.button === event.target);
    const row = visible[Math.max(0, Math.min(visible.length - 1, at + step))];
    this.#rove(row);
    row.button.focus();
  }

  /** The containers that match the filter; null if there is none. */
  get matching() {
    if (!this.filter.value.trim()) return null;
    return [...this.#rows].filter(([, row]) => !row.element.hidden).map(([key]) => key);
  }

  /** The container that is open. */
  get opened() {
    return this.#open;
  }

  /** Mark the rows of these containers; with `follow` the first of them comes into sight. */
  mark(keys, follow = false) {
    for (const row of this.#marked) row.button.classList.remove("lit");
    this.#marked = (keys ?? []).map((key) => this.#rows.get(key)).filter(Boolean);
    for (const row of this.#marked) row.button.classList.add("lit");
    const first = this.#marked[0];
    if (follow && first && this.list.scrollHeight > this.list.clientHeight + 1) {
      const [inner, outer] = [first.button.getBoundingClientRect(), this.list.getBoundingClientRect()];
      if (inner.top < outer.top) this.list.scrollTop += inner.top - outer.top - 8;
      else if (inner.bottom > outer.bottom) this.list.scrollTop += inner.bottom - outer.bottom + 8;
    }
  }

  /** Open a container, with why it has its CPUs; the open one, or null, closes. */
  pick(key) {
    const before = this.#rows.get(this.#open);
    if (before) {
      before.more.hidden = true;
      before.button.setAttribute("aria-expanded", "false");
    }
    this.#open = key === this.#open ? null : key;
    const row = this.#rows.get(this.#open);
    if (row) {
      row.more.hidden = false;
      row.button.setAttribute("aria-expanded", "true");
      this.#explain(row, this.#open);
    }
    this.handlers.pick(this.#open);
  }

  async #explain(row, key) {
    const container = this.#view.containers.get(key);
    const list = make("dl", {});
    const add = (term, ...text) => list.append(make("dt", {}, term), make("dd", {}, ...text));
    if (container.since > 0) add("Since", `${clock(container.since, this.#now)} (${span(this.#now - container.since)})`);
    if (container.allowed && container.allowed !== container.cpus) add("Allowed", spaced(container.allowed));
    if (alignment(container.alignment)) add("On", alignment(container.alignment));
    row.uses = cacheUse(container) ? make("dd", {}, cacheUse(container)) : null;
    if (row.uses) list.append(make("dt", {}, "Uses"), row.uses);
    if (exclusivity(container.exclusivity)) add("Others", exclusivity(container.exclusivity));
    if (container.restarts) add("Restarts", String(container.restarts));
    if (container.pid) add("Process", String(container.pid));
    if (container.why) add("Why", named(container.why, "", 600));
    row.more.replaceChildren(list, copied(command("pinfold", "explain", key)));
    if (this.#past) return;
    const turn = (this.#steps += 1);
    const said = await ask("explain", { container: key }).catch(() => null);
    const told = said?.steps?.join("; ") ?? "";
    if (turn !== this.#steps || !told || container.why?.includes(told)) return;
    const steps = said.steps.slice(0, 40).map((step) => make("li", {}, named(step, "", LONGEST_STEP)));
    row.more.append(make("p", { class: "soft" }, "How they were chosen"), make("ol", {}, ...steps));
  }
}

// app-2 comes before app-10; a collator is many times faster than localeCompare.
const COLLATOR = new Intl.Collator(undefined, { numeric: true });
const order = (a, b) => Number(b.exclusive) - Number(a.exclusive) || COLLATOR.compare(text(a), text(b));
const text = (container) => keyOf(container).slice(0, 300);

function state(container) {
  if (!container.state || container.state === "running") return "";
  return container.state === "ended" && container.code !== null ? `ended, ${container.code}` : container.state;
}

/** A word of the filter: a part of the name, class or state; a number is also a CPU. */
const matches = (row, word) => row.text.includes(word) || (/^(cpu:?)?\d+$/.test(word) && row.numbers?.has(Number(word.replace(/\D/g, ""))));
