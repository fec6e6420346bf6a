// The page: asks the daemon, keeps its answers, and has every part draw them.

import { measure } from "./cache.js";
import { Card } from "./card.js";
import { choose } from "./colours.js";
import { copyButton, kubeletConfiguration } from "./copy.js";
import { ask, Stream } from "./feed.js";
import { MachineMap } from "./map.js";
import { Activity, Refusals } from "./notes.js";
import { PodList } from "./pods.js";
import { everyCpu, Pools } from "./pools.js";
import { clock, cut, make, put, span } from "./text.js";
import { Timeline } from "./timeline.js";
import { cpusOf, past, poolOf, present } from "./view.js";

const $ = (id) => document.getElementById(id);
const SOON = 40; // one change mostly comes as several entries
const AGAIN = 250; // the least time between two looks while much happens
const RETRY = 1500;
const COUNTED = 5000; // the time between two counts of cache and memory bandwidth
const PAGE = 1000;
const KEPT = 5000;
const ROUNDED = 0.001; // times are told in milliseconds; at the time of a change, it has happened
const RULES = new Set(["reconfigured", "runtime", "weaker"]);

const data = { layout: null, pools: {}, containers: [], config: null };
let entries = []; // oldest first
const byNumber = new Map();
let first = null; // the time of the first entry that the daemon keeps
let read = null; // the number of the last entry that the history has told; null until it was asked
let view = null;
let then = null; // the answer of /at, while another time is shown
let pointed = null; // what the pointer or the focus is on: {cpu} or {key}
let picked = null; // the container that stays lit
let held = null; // the CPU whose card stays open
let streaming = false;
let lostAt = null;
let machine = "";

const now = () => timeline.at ?? Date.now() / 1000;
const card = new Card($("card"), () => hold(null));
const map = new MachineMap($("map"), {
  point: (cpu, element, focused) => point(cpu === null ? null : { cpu, element, focused }),
  pick: (cpu) => hold(cpu === held ? null : cpu),
});
const pods = new PodList(
  { list: $("pods"), filter: $("filter"), count: $("count"), found: $("found"), empty: $("no-pods") },
  { point: (key) => point(key === null ? null : { key }), pick: (key) => pick(key), filter: () => light() },
);
const pools = new Pools({ bar: $("pool-bar"), table: $("pool-rows") });
const refusals = new Refusals({ section: $("refusals"), list: $("refusal-rows"), count: $("refusal-count") });
const activity = new Activity({ list: $("activity"), empty: $("no-activity") }, (time) => timeline.set(time));
const timeline = new Timeline(
  { slider: $("slider"), ticks: $("ticks"), label: $("when"), from: $("from"), live: $("live"), back: $("back"), next: $("next"), play: $("play"), range: $("range") },
  (time) => travel(time),
);
const stream = new Stream({
  heard,
  connected,
  lost: () => {
    streaming = false;
    lost();
  },
});

// -- what is drawn

function draw(flash = false) {
  if (!data.layout) return;
  view = then && timeline.at !== null ? past(data, then, (key, cpus) => timeline.since(key, cpus, timeline.at)) : present(data);
  const owners = [...view.containers.entries()].filter(([, container]) => container.exclusive);
  choose(owners.sort(([, a], [, b]) => a.since - b.since).map(([key]) => key), map.neighbours(view.owners));
  map.show(view, { flash });
  pods.show(view, now(), timeline.at !== null);
  pools.show(view, everyCpu(data.pools));
  drawNotes();
  light();
  if (card.isShown) showCard(true);
  document.body.classList.toggle("past", timeline.at !== null);
  $("past").hidden = timeline.at === null;
  put($("past"), timeline.describe(then?.known ?? true));
  drawLegend();
}

/** Hide the legend's rows that this machine does not need. */
function drawLegend() {
  const all = everyCpu(data.pools);
  const pools = new Set(all.map((cpu) => poolOf(view, cpu)));
  $("legend-isolated").hidden = !all.some((cpu) => view.isolated.has(cpu));
  $("legend-offline").hidden = !pools.has("offline");
  $("legend-idle").hidden = !pools.has("idle");
}

function drawNotes() {
  const until = timeline.at ?? Infinity;
  refusals.show(until === Infinity ? entries : entries.filter((entry) => entry.time <= until), now());
  activity.show(entries, timeline.at, Date.now() / 1000);
}

function drawConfig() {
  const config = data.config;
  if (!config) return;
  const options = Object.entries(config.options ?? {}).filter(([, value]) => value && value !== "false").map(([name, value]) => (value === true || value === "true" ? name : `${name}=${value}`));
  const topology = config.topology_policy && config.topology_policy !== "none" ? `topology ${config.topology_policy}` : "";
  const parts = [`policy ${config.policy}`, ...options, topology, config.runtime && `runtime ${config.runtime}`];
  const text = cut(parts.filter(Boolean).join(" · "), 200);
  put($("policy"), text);
  $("copy-config").replaceChildren(copyButton(kubeletConfiguration(config), "Copy as YAML"));
  put($("host"), cut(config.host ?? "", 60));
  document.title = config.host ? `${cut(config.host, 60)} · pinfold` : "pinfold";
  const isCut = config.link?.state === "closed";
  $("link").hidden = !isCut;
  if (isCut) put($("link"), cut(`The daemon is not connected to its runtime${config.link.detail ? `: ${config.link.detail}` : ""}`, 300));
  const weaker = (config.weaker ?? []).map((line) => cut(line, 300));
  $("weaker").hidden = !weaker.length;
  put($("weaker-count"), weaker.length === 1 ? "1 guarantee does not fully hold on this host" : `${weaker.length} guarantees do not fully hold on this host`);
  $("weaker-rows").replaceChildren(...weaker.map((line) => make("li", {}, line)));
}

// -- what is pointed at

function point(to) {
  pointed = to;
  showCard();
  light();
}

/** Show the card of the CPU that is pointed at, or else of the one that is held; `anew` also if it is shown already. */
function showCard(anew = false) {
  const cpu = pointed?.cpu ?? held;
  const element = cpu === null ? null : map.element(cpu);
  if (!element || !view) card.hide();
  else if (anew || !card.shows(cpu, cpu === held)) card.show(cpu, view, map.place(cpu), element, now(), cpu === held);
}

/** Keep the card of a CPU open, with its container in the list; null closes both. */
function hold(cpu) {
  held = cpu;
  const owner = cpu === null ? null : (view?.owners.get(cpu) ?? null);
  if (pods.opened !== owner) pods.pick(owner ?? pods.opened);
  if (cpu === null) pointed = null;
  showCard();
  light();
}

function pick(key) {
  picked = key;
  light();
}

/** Light up the CPUs of what is pointed at, or else picked; and the containers of a CPU. */
function light() {
  if (!view) return;
  if (pointed?.cpu !== undefined) {
    const owner = view.owners.get(pointed.cpu);
    const sharing = owner === undefined && view.shared.has(pointed.cpu);
    const keys = sharing ? [...view.containers].filter(([, container]) => !container.exclusive).map(([key]) => key) : [owner];
    pods.mark(keys, owner !== undefined);
    map.light(owner === undefined ? (picked === null ? null : cpusOf(view, picked)) : cpusOf(view, owner));
    return;
  }
  const key = [pointed?.key, picked].find((each) => view.containers.has(each)) ?? null;
  pods.mark(key === null ? [] : [key]);
  map.light(key === null ? filtered() : cpusOf(view, key));
}

/** The CPUs of the containers that match the filter; null if there is none. */
function filtered() {
  const keys = pods.matching;
  return keys === null ? null : new Set(keys.flatMap((key) => [...cpusOf(view, key)]));
}

// -- the present

async function load(everything) {
  const [found, containers] = await Promise.all([ask("pools"), ask("containers"), read === null ? null : loadNews()]);
  const isSame = ["online", "offline", "isolated", "reserved"].every((name) => found[name] === data.pools[name]);
  if (everything || !isSame) {
    const [layout, config] = await Promise.all([ask("layout"), ask("config")]);
    loaded(layout, config);
  }
  data.pools = found;
  data.containers = containers;
  clearTimeout(load.counting);
  if (measure(containers, Date.now() / 1000)) load.counting = setTimeout(() => look(), COUNTED);
}

function loaded(layout, config) {
  data.layout = layout;
  data.config = config;
  const text = JSON.stringify(layout);
  if (text !== machine) {
    machine = text;
    map.build(layout);
    $("empty").hidden = layout.boxes.length > 0;
  }
  put($("machine"), layout.summary);
  drawConfig();
}

/** The newest entries that are kept. */
async function loadHistory() {
  const said = await ask("history", { newest: true, brief: true, limit: KEPT });
  byNumber.clear();
  read = 0;
  keep(said);
}

/** Read the history since the last time: it has more than the stream, which only says that something happened. */
async function loadNews() {
  const said = await ask("history", { after: read, brief: true, limit: PAGE });
  return said.more ? loadHistory() : keep(said);
}

function keep(said) {
  first = said.first ?? null;
  for (const entry of said.entries) {
    const known = byNumber.get(entry.number);
    if (!known || Object.keys(known).length < Object.keys(entry).length) byNumber.set(entry.number, entry);
    read = Math.max(read, entry.number);
  }
  sort();
}

function sort() {
  entries = [...byNumber.values()].sort((a, b) => a.number - b.number).slice(-KEPT);
  for (const number of [...byNumber.keys()].slice(0, Math.max(0, byNumber.size - 1.2 * KEPT))) byNumber.delete(number);
  timeline.fill(entries, first);
}

let wanted = null; // {everything} while a look is due
let looking = false;

/** Refresh soon; several requests for it become one. */
function look(everything = false) {
  wanted = { everything: everything || (wanted?.everything ?? false) };
  if (!looking) look.timer ??= setTimeout(lookNow, SOON);
}

async function lookNow() {
  look.timer = null;
  looking = true;
  const { everything } = wanted;
  wanted = null;
  let wait = AGAIN;
  try {
    await load(everything || !data.layout);
    draw(timeline.at === null);
    document.body.classList.remove("loading");
    if (streaming) found();
  } catch {
    wait = RETRY;
    wanted = { everything: everything || (wanted?.everything ?? false) };
    lost();
  }
  looking = false;
  if (wanted) look.timer = setTimeout(lookNow, wait);
}

// -- the stream

function heard(entry) {
  if (!byNumber.has(entry.number)) byNumber.set(entry.number, entry);
  if (entry.what === "refused") refusals.forget();
  look(RULES.has(entry.what));
}

/** After a loss everything may be different, also when the stream resumes where it was cut off. */
async function connected(again) {
  streaming = true;
  if (again || read === null) {
    try {
      await loadHistory();
      stream.reset(entries.at(-1)?.number ?? null);
    } catch {
      lost();
    }
  }
  look(true);
}

async function begin() {
  look(true);
  try {
    await loadHistory();
    stream.after(entries.at(-1)?.number ?? null);
  } catch {
    lost();
  }
  stream.follow();
}

function lost() {
  lostAt ??= Date.now() / 1000;
  status("lost");
}

function found() {
  lostAt = null;
  status("live");
}

function status(state) {
  const dot = $("status");
  if (dot.dataset.state !== state) dot.dataset.state = state;
  document.body.classList.toggle("stale", state !== "live");
  put($("status-text"), state === "live" ? "Connected" : `Connection lost, since ${clock(lostAt)}`);
  put($("status-ago"), state === "live" ? "" : `(${span(Date.now() / 1000 - lostAt)})`);
}

// -- other times

let travelling = null;

async function travel(time) {
  travelling?.abort();
  if (time === null) {
    then = null;
    draw();
    return;
  }
  travelling = new AbortController();
  const { signal } = travelling;
  try {
    const said = await ask("at", { time: (time + ROUNDED).toFixed(6) }, signal);
    if (signal.aborted) return;
    then = said;
    draw();
  } catch (error) {
    if (error.name !== "AbortError") {
      $("past").hidden = false;
      put($("past"), `This time cannot be shown: ${cut(error.message, 200)}`);
    }
  }
}

// -- the frame around it

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("pinfold-theme", root.dataset.theme);
  } catch {
    // It is kept for this visit only.
  }
}

$("theme").addEventListener("click", theme);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    card.hide();
    if (held !== null) hold(null);
    else if (picked !== null) pods.pick(picked);
    else if (event.target === $("filter")) {
      $("filter").value = "";
      $("filter").dispatchEvent(new Event("input"));
    }
  } else if (event.key === "/" && !event.ctrlKey && !event.altKey && !event.metaKey && event.target !== $("filter")) {
    event.preventDefault();
    $("filter").focus();
  }
});
document.addEventListener("click", (event) => {
  if (held !== null && !event.target.closest?.("#card, .cpu, .container")) hold(null);
});
addEventListener("scroll", () => card.follow(), { passive: true });
addEventListener("resize", () => map.fit());
addEventListener("online", () => stream.hurry());
document.addEventListener("visibilitychange", () => document.hidden || stream.hurry());
setInterval(() => {
  if (document.hidden) return;
  if (lostAt !== null) status("lost");
  timeline.draw();
}, 1000);

begin();
