// The pools: how many CPUs each has, and which.

import { formatCpus, parseCpus, spaced } from "./cpus.js";
import { make } from "./text.js";
import { poolOf } from "./view.js";

const ROWS = [
  ["exclusive", "Exclusive", "given to one container alone"],
  ["assignable", "Assignable", "in the shared pool, and can still become exclusive"],
  ["reserved", "Reserved", "never exclusive"],
  ["offline", "Offline", "switched off"],
];

export class Pools {
  #shown = "";

  constructor({ bar, table }) {
    Object.assign(this, { bar, table });
  }

  show(view, cpus) {
    const found = { exclusive: [], assignable: [], reserved: [], offline: [] };
    for (const cpu of cpus) {
      const pool = poolOf(view, cpu);
      found[pool === "shared" ? "assignable" : pool]?.push(cpu);
    }
    const text = JSON.stringify(found);
    if (text === this.#shown) return;
    this.#shown = text;
    const rows = ROWS.filter(([name]) => found[name].length || name === "exclusive" || name === "assignable");
    this.bar.replaceChildren(...rows.filter(([name]) => found[name].length).map(([name]) => this.#part(name, found[name].length)));
    this.table.replaceChildren(...rows.map((row) => line(row, found[row[0]])));
  }

  #part(name, number) {
    const part = make("span", { class: `part ${name} hue0` });
    part.style.flexGrow = number;
    return part;
  }
}

function line([name, title, meaning], cpus) {
  const swatch = make("span", { class: `swatch hue0 ${name === "assignable" ? "shared" : name}`, "aria-hidden": "true" });
  const head = make("th", { scope: "row", title: meaning }, swatch, title);
  return make("tr", {}, head, make("td", { class: "number" }, String(cpus.length)), make("td", { class: "list soft" }, spaced(formatCpus(cpus)) || "none"));
}

/** All CPUs of the machine: online, then offline. */
export const everyCpu = (pools) => [...parseCpus(pools.online), ...parseCpus(pools.offline)];
