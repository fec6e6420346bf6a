// How the groups of a machine nest, as pinfold.core.layout does it: groups are drawn whole, so an L3 that spans NUMA
// nodes is outside of them; and groups of different kinds with the very same CPUs throughout are one box.

import { plural } from "./text.js";
import { formatCpus, parseCpus } from "./cpus.js";

const KINDS = [
  { field: "socket", name: "Socket" },
  { field: "numa", name: "NUMA" },
  { field: "uncore", name: "L3" },
];

/** The boxes of a topology: `levels` of kinds from the outside in, and the outermost `boxes`; `threads` is the largest core. */
export function nest(topology) {
  const rows = [...topology.cpus].sort((a, b) => a.cpu - b.cpu);
  const known = KINDS.filter((kind) => rows.some((row) => row[kind.field] !== null));
  let best = known;
  let fewest = Infinity;
  for (const order of orders(known)) {
    const needed = pieces(rows, order);
    if (needed < fewest) [best, fewest] = [order, needed];
  }
  const levels = merged(rows, best);
  if (!levels.length) levels.push([]);
  const sizes = new Map(known.map((kind) => [kind, counts(rows, kind.field)]));
  const threads = Math.max(1, ...counts(rows.filter((row) => row.core !== null), "core").values());
  return { levels, boxes: boxes(rows, levels, sizes), threads };
}

function* orders(kinds) {
  if (!kinds.length) yield [];
  for (const kind of kinds) for (const rest of orders(kinds.filter((other) => other !== kind))) yield [kind, ...rest];
}

/** How many boxes an order needs: a group that an outer one cuts counts twice. */
function pieces(rows, order) {
  let number = 0;
  for (let depth = 1; depth <= order.length; depth += 1) {
    const labels = new Set();
    for (const row of rows) {
      if (row[order[depth - 1].field] !== null) labels.add(key(row, order.slice(0, depth)));
    }
    number += labels.size;
  }
  return number;
}

const key = (row, kinds) => kinds.map((kind) => row[kind.field]).join(" ");
const distinct = (rows, kinds) => new Set(rows.map((row) => key(row, kinds))).size;

function merged(rows, order) {
  const levels = [];
  for (const kind of order) {
    const outer = levels.at(-1)?.at(-1);
    const both = outer && distinct(rows, [outer, kind]);
    if (outer && both === distinct(rows, [outer]) && both === distinct(rows, [kind])) levels.at(-1).push(kind);
    else levels.push([kind]);
  }
  return levels;
}

function counts(rows, field) {
  const number = new Map();
  for (const row of rows) number.set(row[field], (number.get(row[field]) ?? 0) + 1);
  return number;
}

function boxes(rows, levels, sizes) {
  const [kinds, ...inner] = levels;
  if (!kinds) return [];
  const groups = by(rows, (row) => key(row, kinds));
  const found = [...groups.values()].map((members) => ({
    label: kinds.map((kind) => label(kind, members, sizes)).join(" · ") || "Machine",
    kind: kinds[0]?.field ?? "socket",
    order: kinds.map((kind) => members[0][kind.field] ?? Infinity),
    cores: cores(members),
    boxes: boxes(members, inner, sizes),
  }));
  return found.sort((a, b) => compare(a.order, b.order));
}

function compare(a, b) {
  const at = a.findIndex((value, index) => value !== b[index]);
  return at < 0 ? 0 : a[at] < b[at] ? -1 : 1;
}

function label(kind, members, sizes) {
  const id = members[0][kind.field];
  if (id === null) return `${kind.name} unknown`;
  return `${kind.name} ${id}${sizes.get(kind).get(id) === members.length ? "" : " (part)"}`;
}

const cores = (rows) => [...by(rows, (row) => row.core ?? `cpu ${row.cpu}`).values()].map((core) => core.map((row) => row.cpu));

function by(rows, name) {
  const groups = new Map();
  for (const row of rows) {
    const group = groups.get(name(row));
    if (group) group.push(row);
    else groups.set(name(row), [row]);
  }
  return groups;
}

/** The machine in one line, as `pinfold topology` says it. */
export function summary(topology) {
  const rows = topology.cpus;
  const number = (field) => new Set(rows.map((row) => row[field]).filter((id) => id !== null)).size;
  const memory = memoryOnly(topology);
  const parts = [
    [number("socket"), "socket", "sockets"],
    [number("numa") + memory.length, "NUMA node", "NUMA nodes"],
    [number("uncore"), "L3", "L3"],
    [number("core"), "core", "cores"],
    [rows.length, "CPU", "CPUs"],
  ];
  const known = parts.filter(([count]) => count).map(([count, one, many]) => plural(count, one, many));
  const offline = parseCpus(topology.offline).size;
  return known.join(" · ") + (offline ? `, ${offline} offline` : "");
}

/** NUMA nodes without CPUs. */
export const memoryOnly = (topology) =>
  Object.entries(topology.nodes ?? {}).filter(([, cpus]) => !cpus).map(([node]) => Number(node)).sort((a, b) => a - b);

export const memoryText = (nodes) => `${plural(nodes.length, "NUMA node")} without CPUs: ${formatCpus(nodes)}`;
