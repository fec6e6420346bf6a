// The time slider: from the first entry of the history until now, with a tick for every change.

import { cut, moment, plural, put, span } from "./text.js";
import { calm } from "./map.js";
import { keyOf } from "./view.js";

const STEPS = 10_000;
const SHORTEST = 60;
const PLAY_EVERY = 700;
const TOLD_LATER = 0.5; // who got CPUs is told after the change
const SVG = "http://www.w3.org/2000/svg";

export class Timeline {
  #entries = [];
  #times = [];
  #assigned = new Map(); // who was given CPUs, by name
  #first = null;
  #at = null; // null: live
  #range = Infinity;
  #playing = null;

  /** `go(time | null)` is called when another time is wanted; null means live. */
  constructor(parts, go) {
    Object.assign(this, parts);
    this.go = go;
    this.slider.max = STEPS;
    this.slider.addEventListener("input", () => this.#slid());
    this.slider.addEventListener("keydown", (event) => this.#key(event));
    this.back.addEventListener("click", () => this.step(-1));
    this.next.addEventListener("click", () => this.step(1));
    this.live.addEventListener("click", () => this.set(null));
    this.play.addEventListener("click", () => (this.#playing ? this.#stop() : this.#start()));
    this.range.addEventListener("change", () => {
      this.#range = Number(this.range.value) || Infinity;
      this.#first_drawn = null;
      this.draw();
    });
    this.paths = ["change", "refused"].map((name) => {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      this.ticks.append(path);
      return path;
    });
  }

  #first_drawn = null;

  get at() {
    return this.#at;
  }

  /** The entries of the history, oldest first, and the time from which on something is known. */
  fill(entries, first) {
    this.#entries = entries;
    this.#first = first ?? entries[0]?.time ?? null;
    this.#times = [...new Set(entries.filter(isChange).map((entry) => entry.time))];
    this.#assigned = Map.groupBy(entries.filter((entry) => GIVES.includes(entry.what)), keyOf);
    this.draw();
  }

  #bounds() {
    const now = Date.now() / 1000;
    const first = Math.max(this.#first ?? now - SHORTEST, now - this.#range);
    return [Math.min(first, now - SHORTEST), Math.max(now, this.#at ?? 0)];
  }

  draw() {
    const [from, to] = this.#bounds();
    const value = this.#at === null ? STEPS : Math.round(((this.#at - from) / (to - from)) * STEPS);
    if (Number(this.slider.value) !== value) this.slider.value = value;
    const text = this.#at === null ? "now, live" : `${moment(this.#at)}, ${span(to - this.#at)} ago`;
    if (this.slider.getAttribute("aria-valuetext") !== text) this.slider.setAttribute("aria-valuetext", text);
    const label = this.#at === null ? "Now" : moment(this.#at);
    put(this.label, label);
    put(this.from, this.#first === null ? "" : `${span(to - from)} ago`);
    this.live.setAttribute("aria-pressed", String(this.#at === null));
    this.back.disabled = !this.#times.some((time) => time < (this.#at ?? Infinity) && time >= from);
    this.next.disabled = this.#at === null;
    this.play.disabled = !this.#times.length;
    this.#ticks(from, to);
  }

  #ticks(from, to) {
    const drawn = `${Math.round(from)} ${Math.round((to - from) / 200)} ${this.#entries.length} ${this.#entries.at(-1)?.number}`;
    if (drawn === this.#first_drawn) return;
    this.#first_drawn = drawn;
    const places = [new Set(), new Set()];
    for (const entry of this.#entries) {
      const refused = entry.what === "refused";
      if (entry.time < from || !(isChange(entry) || refused)) continue;
      // A clock that was set back leaves entries of the future: they are at the end.
      places[Number(refused)].add(Math.round((Math.min(entry.time - from, to - from) / (to - from)) * 1000));
    }
    this.paths.forEach((path, index) => path.setAttribute("d", [...places[index]].map((x) => `M${x} 0V10`).join("")));
  }

  /** Go to a time, or live with null. */
  set(time) {
    this.#stop();
    this.#go(time);
  }

  #go(time) {
    this.#at = time !== null && time >= Date.now() / 1000 ? null : time;
    this.draw();
    this.go(this.#at);
  }

  #slid() {
    this.#stop();
    const [from, to] = this.#bounds();
    const value = Number(this.slider.value);
    this.#go(value >= STEPS ? null : from + (value / STEPS) * (to - from));
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (event.key === "End") this.set(null);
    else if (step) this.step(step);
    else return;
    event.preventDefault();
  }

  /** Go to the change before, or to the next one; after the last comes the present. */
  step(direction) {
    this.#stop();
    this.#step(direction);
  }

  #step(direction) {
    const at = this.#at ?? Infinity;
    const times = this.#times;
    const found = direction < 0 ? times.findLast((time) => time < at - 1e-4) : times.find((time) => time > at + 1e-4);
    if (found !== undefined) this.#go(found);
    else if (direction > 0) this.#go(null);
    return this.#at !== null;
  }

  #start() {
    const [from] = this.#bounds();
    if (this.#at === null) {
      const first = this.#times.find((time) => time >= from);
      if (first === undefined) return;
      this.#go(first);
    }
    this.#playing = setInterval(() => this.#step(1) || this.#stop(), calm() ? PLAY_EVERY * 2 : PLAY_EVERY);
    this.#playable("Stop", "stop");
  }

  #stop() {
    if (!this.#playing) return;
    clearInterval(this.#playing);
    this.#playing = null;
    this.#playable("Replay", "play");
  }

  #playable(name, icon) {
    this.play.setAttribute("aria-label", name);
    this.play.title = name;
    this.play.dataset.icon = icon;
  }

  /** Since when a container has the CPUs that it has at a time, as far as the entries go back. */
  since(key, cpus, time) {
    const entry = this.#assigned.get(key)?.findLast((each) => each.time <= time + TOLD_LATER);
    return entry?.cpus === cpus ? Math.min(entry.time, time) : NaN;
  }

  /** In one line, what is shown. */
  describe(known) {
    if (this.#at === null) return "";
    const ago = span(Date.now() / 1000 - this.#at);
    if (!known) return `No history for this time. The history begins ${moment(this.#first)}.`;
    const later = this.#times.filter((time) => time > this.#at).length;
    return cut(`The node as it was ${ago} ago; ${later ? plural(later, "change") : "nothing"} since then.`, 200);
  }
}

const GIVES = ["assigned", "resized", "moved"]; // the events with which a container has CPUs
const isChange = (entry) => entry.what === "state";
