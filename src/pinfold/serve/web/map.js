// The machine as nested boxes: socket, NUMA node, L3, core, CPU. Built once; then only what changes is touched.

import { arrange } from "./arrange.js";
import { colour } from "./colours.js";
import { formatCpus, parseCpus } from "./cpus.js";
import { cut, make, plural } from "./text.js";
import { POOLS, poolOf } from "./view.js";

const TAGS = { reserved: "reserved", offline: "offline", idle: "no pool", shared: "shared" };
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class MachineMap {
  #cells = new Map(); // CPU → its button, its tag, and what they show
  #places = new Map(); // CPU → where it is, in words
  #siblings = new Map();
  #groups = []; // the CPUs of each innermost box, in order
  #lit = [];
  #current = null;
  #layout = null;
  #plan = "";

  /** `handlers`: `point(cpu | null, element)` for the CPU under the pointer or with the focus, `pick(cpu)`. */
  constructor(root, handlers) {
    this.root = root;
    this.handlers = handlers;
    root.addEventListener("pointerover", (event) => this.#point(event.target));
    root.addEventListener("pointerleave", () => handlers.point(null));
    root.addEventListener("focusin", (event) => this.#point(event.target, true));
    root.addEventListener("focusout", () => handlers.point(null));
    root.addEventListener("click", (event) => this.#click(event.target));
    root.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.fit()).observe(root.parentElement);
  }

  /** Draw a machine anew, by the answer of /layout. */
  build(layout) {
    this.#cells.clear();
    this.#places.clear();
    this.#siblings.clear();
    this.#groups = [];
    this.#layout = layout;
    this.#plan = "";
    const whole = make("div", { class: "grid level0" }, ...layout.boxes.map((box) => this.#box(box, 0, [])));
    this.root.replaceChildren(whole, ...this.#beside(layout));
    const first = this.#cells.keys().next().value;
    this.#current = null;
    if (first !== undefined) this.#move(first);
    this.fit();
  }

  #box(box, level, above) {
    const way = [...above, box.label];
    if (!box.boxes.length) this.#groups.push(box.cores.flat());
    const inside = box.boxes.length
      ? make("div", { class: `grid level${level + 1}` }, ...box.boxes.map((inner) => this.#box(inner, level + 1, way)))
      : make("div", { class: "grid cores" }, ...box.cores.map((core) => this.#core(core, way)));
    const label = make("div", { class: "label", "aria-hidden": "true" }, box.label);
    return make("div", { class: `box ${box.kind}`, role: "group", "aria-label": box.label }, label, inside);
  }

  #core(core, way) {
    const cells = core.map((cpu) => this.#cell(cpu, way, core));
    return this.#layout.threads > 1 ? make("div", { class: "core" }, ...cells) : cells[0];
  }

  #cell(cpu, way, core) {
    const tag = make("span", { class: "tag" });
    const button = make("button", { type: "button", class: "cpu", tabindex: "-1", "data-cpu": cpu }, String(cpu), tag);
    this.#cells.set(cpu, { button, tag, shown: "" });
    this.#places.set(cpu, way.join(" · "));
    this.#siblings.set(cpu, core);
    return button;
  }

  /** What has no place in a box: CPUs that are offline, NUMA nodes without CPUs, and devices. */
  #beside(layout) {
    const found = [];
    const offline = [...parseCpus(layout.offline)].filter((cpu) => !this.#cells.has(cpu));
    if (offline.length) {
      const cells = offline.map((cpu) => this.#cell(cpu, ["offline now, so its place is not known"], [cpu]));
      const label = make("div", { class: "label", "aria-hidden": "true" }, "Offline now");
      const inside = make("div", { class: "loose" }, ...cells);
      found.push(make("div", { class: "box apart", role: "group", "aria-label": "CPUs that are offline now" }, label, inside));
    }
    const nodes = layout.memory_only;
    if (nodes.length) {
      const text = `${plural(nodes.length, "NUMA node")} without CPUs: ${formatCpus(nodes)}`;
      found.push(make("div", { class: "box apart memory" }, make("div", { class: "label" }, text)));
    }
    if (layout.devices?.length) {
      const text = `Devices: ${layout.devices.join("; ")}`;
      found.push(make("div", { class: "box apart memory" }, make("div", { class: "label" }, text)));
    }
    return found;
  }

  /** Arrange the boxes for the room there is. */
  fit() {
    if (!this.#layout) return;
    const style = getComputedStyle(this.root.parentElement);
    const width = this.root.parentElement.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const height = Math.max(360, window.innerHeight - 215);
    const plan = arrange(this.#layout, { width, height });
    const text = JSON.stringify([plan.size.name, plan.across, plan.columns, plan.width]);
    if (width <= 0 || text === this.#plan) return;
    this.#plan = text;
    this.root.dataset.size = plan.size.name;
    this.root.style.setProperty("--across", plan.across);
    this.root.style.maxWidth = Number.isFinite(plan.width) ? `${Math.ceil(plan.width)}px` : "";
    plan.columns.forEach((columns, level) => this.root.style.setProperty(`--columns${level}`, columns));
    this.root.style.setProperty("--columns-cores", plan.columns.at(-1));
  }

  /** Show a view; returns how many CPUs look different from before. */
  show(view, { flash = false } = {}) {
    let changed = 0;
    for (const [cpu, cell] of this.#cells) {
      const pool = poolOf(view, cpu);
      const owner = view.owners.get(cpu) ?? "";
      const isolated = view.isolated.has(cpu);
      const shown = `${pool} ${isolated} ${owner}`;
      if (cell.shown === shown) continue;
      this.#draw(cpu, cell, { pool, owner, isolated, flash: flash && cell.shown !== "" });
      cell.shown = shown;
      changed += 1;
    }
    return changed;
  }

  #draw(cpu, cell, { pool, owner, isolated, flash }) {
    const lit = cell.button.classList.contains("lit") ? " lit" : "";
    cell.button.className = `cpu ${pool}${isolated ? " isolated" : ""}${owner ? ` ${colour(owner)}` : ""}${lit}`;
    cell.tag.textContent = owner ? cut(owner.split("/").slice(1).join("/"), 24) : TAGS[pool];
    const who = owner ? `, ${cut(owner)}` : "";
    cell.button.setAttribute("aria-label", `CPU ${cpu}, ${POOLS[pool]}${isolated ? ", isolated" : ""}${who}`);
    if (flash) cell.button.animate?.([{ filter: "brightness(1.6)" }, { filter: "none" }], { duration: calm() ? 0 : 600 });
  }

  /** Light up these CPUs, and dim the others; null for none. */
  light(cpus) {
    for (const button of this.#lit) button.classList.remove("lit");
    this.#lit = [];
    this.root.classList.toggle("dimmed", cpus !== null);
    for (const cpu of cpus ?? []) {
      const button = this.#cells.get(cpu)?.button;
      if (!button) continue;
      button.classList.add("lit");
      this.#lit.push(button);
    }
  }

  /** The owners that have CPUs in the same innermost box as an owner, or in the next one, by owner. */
  neighbours(owners) {
    const inside = this.#groups.map((cpus) => new Set(cpus.map((cpu) => owners.get(cpu)).filter((owner) => owner !== undefined)));
    const found = new Map();
    inside.forEach((here, at) => {
      for (const owner of here) {
        const near = found.get(owner) ?? found.set(owner, new Set()).get(owner);
        for (const group of [inside[at - 1], here, inside[at + 1]]) for (const other of group ?? []) if (other !== owner) near.add(other);
      }
    });
    return (owner) => found.get(owner) ?? [];
  }

  /** Where a CPU is, in words. */
  place(cpu) {
    const core = this.#siblings.get(cpu) ?? [cpu];
    return this.#places.get(cpu) + (core.length > 1 ? ` · core of CPUs ${core.join(", ")}` : "");
  }

  element(cpu) {
    return this.#cells.get(cpu)?.button ?? null;
  }

  #cpu(target) {
    const button = target.closest?.(".cpu");
    return button ? Number(button.dataset.cpu) : null;
  }

  #point(target, focused = false) {
    const cpu = this.#cpu(target);
    if (focused && cpu !== null) this.#move(cpu);
    this.handlers.point(cpu, cpu === null ? null : this.element(cpu), focused);
  }

  #click(target) {
    const cpu = this.#cpu(target);
    if (cpu === null) return;
    this.#move(cpu);
    this.handlers.pick(cpu);
  }

  /** Make a CPU the one that Tab comes to. */
  #move(cpu) {
    if (this.#current !== null) this.element(this.#current)?.setAttribute("tabindex", "-1");
    this.#current = cpu;
    this.element(cpu).setAttribute("tabindex", "0");
  }

  #key(event) {
    const cpu = this.#cpu(event.target);
    if (cpu === null || event.ctrlKey || event.altKey || event.metaKey) return;
    const all = [...this.#cells.keys()];
    const next = event.key === "Home" ? all[0] : event.key === "End" ? all.at(-1) : this.#beyond(cpu, ARROWS[event.key]);
    if (next === undefined) return;
    event.preventDefault();
    this.element(next).focus();
  }

  /** The nearest CPU in a direction, as it looks on the screen; a step aside counts more than a step ahead. */
  #beyond(cpu, direction) {
    if (!direction) return undefined;
    const from = centre(this.element(cpu));
    let best = cpu;
    let nearest = Infinity;
    for (const [other, { button }] of this.#cells) {
      const to = centre(button);
      const ahead = (to.x - from.x) * direction[0] + (to.y - from.y) * direction[1];
      const aside = Math.abs((to.x - from.x) * direction[1]) + Math.abs((to.y - from.y) * direction[0]);
      const cost = ahead + 3 * aside;
      if (ahead > 1 && cost < nearest) [best, nearest] = [other, cost];
    }
    return best;
  }
}

function centre(element) {
  const { left, top, width, height } = element.getBoundingClientRect();
  return { x: left + width / 2, y: top + height / 2 };
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
