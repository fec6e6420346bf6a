// The details of one CPU: a card beside it, for the pointer and for the keyboard.

import { cacheUse } from "./cache.js";
import { colour } from "./colours.js";
import { command, copied } from "./copy.js";
import { spaced } from "./cpus.js";
import { clock, make, named, plural, span } from "./text.js";
import { keyOf, POOLS, poolOf } from "./view.js";

const NAMED = 4;
const LONGEST_WHY = 600;

export class Card {
  #described = null;
  #shown = "";

  /** `close` is called when the user closes a card that is held open. */
  constructor(element, close) {
    this.element = element;
    this.close = close;
  }

  get isShown() {
    return !this.element.hidden;
  }

  /** Whether it shows this CPU, and in this way: a button in it must stay the same between press and release. */
  shows(cpu, held) {
    return this.isShown && this.#shown === `${cpu} ${held}`;
  }

  hide() {
    this.element.hidden = true;
    this.#described?.removeAttribute("aria-describedby");
    this.#described = null;
  }

  /** Stay beside the CPU when the page moves. */
  follow() {
    if (!this.element.hidden) this.#put(this.#described.getBoundingClientRect());
  }

  /** Show the details of a CPU in `view`, beside its element; `now` is the time of the view, `held` whether it stays. */
  show(cpu, view, place, beside, now, held = false) {
    const owner = view.containers.get(view.owners.get(cpu));
    const pool = poolOf(view, cpu);
    const isolated = view.isolated.has(cpu) ? " · isolated from the kernel's scheduler" : "";
    const head = make("p", { class: "head" }, make("strong", {}, `CPU ${cpu}`), make("span", { class: "soft" }, `${POOLS[pool]}${isolated}`));
    const rows = owner ? this.#owner(owner, now) : this.#unowned(pool, view);
    const asked = owner ? command("pinfold", "explain", keyOf(owner)) : command("pinfold", "history", "--cpu", String(cpu));
    if (held) head.append(this.#closeButton());
    this.element.replaceChildren(head, ...rows, make("p", { class: "soft place" }, place), ...(held ? [copied(asked)] : []));
    this.element.classList.toggle("held", held);
    this.#shown = `${cpu} ${held}`;
    this.element.hidden = false;
    this.#described?.removeAttribute("aria-describedby");
    this.#described = beside;
    beside.setAttribute("aria-describedby", this.element.id);
    this.#put(beside.getBoundingClientRect());
  }

  #closeButton() {
    const button = make("button", { type: "button", class: "icon close", "aria-label": "Close" }, "\u00d7");
    button.addEventListener("click", () => this.close());
    return button;
  }

  #owner(container, now) {
    const swatch = make("span", { class: `swatch exclusive ${colour(keyOf(container))}`, "aria-hidden": "true" });
    const name = make("p", { class: "owner" }, swatch, make("span", {}, named(container.namespace, "soft"), " / ", named(container.pod), " / ", named(container.container, "strong")));
    const list = make("dl", {});
    const add = (term, ...text) => list.append(make("dt", {}, term), make("dd", {}, ...text));
    if (Number.isFinite(container.since) && container.since > 0) add("Since", `${clock(container.since, now)} (${span(now - container.since)})`);
    add("CPUs", spaced(container.cpus));
    const spread = alignment(container.alignment);
    if (spread) add("On", spread);
    if (cacheUse(container)) add("Uses", cacheUse(container));
    if (exclusivity(container.exclusivity)) add("Others", exclusivity(container.exclusivity));
    if (container.why) add("Why", named(container.why, "", LONGEST_WHY));
    return [name, list];
  }

  #unowned(pool, view) {
    const text = {
      reserved: "Kept for the system: never given to one container alone. The shared pool may run here.",
      offline: "Switched off; nothing runs here.",
      idle: "Online, but in no pool.",
      shared: "No container has it exclusively.",
    }[pool];
    const sharing = [...view.containers.values()].filter((container) => !container.exclusive);
    const parts = [make("p", {}, pool === "reserved" && !view.shared.size ? "Kept for the system." : text)];
    if ((pool === "shared" || pool === "reserved") && sharing.length) {
      const names = sharing.slice(0, NAMED).flatMap((container, index) => [index ? ", " : "", named(`${container.pod}/${container.container}`, "", 40)]);
      const rest = sharing.length > NAMED ? ` and ${sharing.length - NAMED} more` : "";
      parts.push(make("p", {}, `Shared by ${plural(sharing.length, "container")}: `, ...names, rest));
    }
    return parts;
  }

  /** Below the CPU if there is room, else above it; always within the window. */
  #put(at) {
    const { width, height } = this.element.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left + at.width / 2 - width / 2, document.documentElement.clientWidth - width - 8));
    const below = at.bottom + 8;
    const wanted = below + height <= window.innerHeight - 8 ? below : at.top - height - 8;
    const top = Math.max(8, Math.min(wanted, window.innerHeight - height - 8));
    this.element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }
}

/** What others have used of a container's CPUs since it got them, in words. */
export function exclusivity(score) {
  if (!score) return "";
  const throttled = score.throttled ? `, throttled ${score.throttled.toFixed(3)} s` : "";
  return `ran ${score.foreign.toFixed(3)} s of ${Math.round(score.seconds)} s here; ${plural(score.interrupts, "interrupt")}, ${plural(score.preempted, "preemption")}${throttled}`;
}

/** How many groups CPUs are on, in words; and the minimum where it is lower, if that is known. */
export function alignment(counts) {
  if (!counts) return "";
  const parts = [
    ["cores", "core", "cores"],
    ["uncore_caches", "L3", "L3"],
    ["numa_nodes", "NUMA node", "NUMA nodes"],
    ["sockets", "socket", "sockets"],
  ];
  const said = parts.filter(([name]) => counts[name]).map(([name, one, many]) => {
    const fewest = counts.fewest?.[name] ?? counts[name];
    return plural(counts[name], one, many) + (fewest < counts[name] ? ` (${fewest} would be enough)` : "");
  });
  return said.join(" · ");
}
