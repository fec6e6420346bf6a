// One picture of the node: who has each CPU, now or at another time. Plain data that every part of the page draws.

import { parseCpus } from "./cpus.js";

export const POOLS = {
  exclusive: "exclusive",
  shared: "shared pool",
  reserved: "reserved",
  offline: "offline",
  idle: "in no pool",
};

export const keyOf = (container) => `${container.namespace}/${container.pod}/${container.container}`;

/** The node as it is now. */
export function present(data) {
  const owners = data.containers.filter((container) => container.exclusive).map((container) => [keyOf(container), container.cpus]);
  return build(owners, pools(data), new Map(data.containers.map((container) => [keyOf(container), container])));
}

/** The node as it was: the answer of /at beside what is known of containers; `since` says since when each has its CPUs. */
export function past(data, then, since) {
  const known = new Map(data.containers.map((container) => [keyOf(container), container]));
  const containers = new Map();
  for (const [key, cpus] of Object.entries(then.exclusive ?? {})) {
    const why = known.get(key)?.cpus === cpus ? known.get(key).why : ""; // other CPUs then had another reason
    containers.set(key, { ...remembered(key, known), exclusive: true, cpus, since: since(key, cpus), why });
  }
  // An older journal does not have the reserved and offline CPUs; then the present ones are used.
  const told = ["reserved", "offline"].filter((name) => then[name] !== undefined).map((name) => [name, parseCpus(then[name])]);
  const asThen = { ...pools(data), shared: parseCpus(then.shared), ...Object.fromEntries(told) };
  return build(Object.entries(then.exclusive ?? {}), asThen, containers);
}

function pools({ pools }) {
  return Object.fromEntries(["shared", "reserved", "offline", "isolated"].map((name) => [name, parseCpus(pools[name])]));
}

function remembered(key, known) {
  const [namespace, pod, ...rest] = key.split("/");
  const { qos = "", kind = "" } = known.get(key) ?? {};
  return { namespace, pod: pod ?? "", container: rest.join("/"), qos, kind, state: "", alignment: null };
}

function build(exclusive, pools, containers) {
  const owners = new Map();
  for (const [key, cpus] of exclusive) for (const cpu of parseCpus(cpus)) owners.set(cpu, key);
  return { owners, containers, ...pools };
}

/** The pool that a CPU is in. */
export function poolOf(view, cpu) {
  if (view.owners.has(cpu)) return "exclusive";
  if (view.offline.has(cpu)) return "offline";
  if (view.reserved.has(cpu)) return "reserved";
  return view.shared.has(cpu) ? "shared" : "idle";
}

/** The CPUs that a container runs on. */
export function cpusOf(view, key) {
  const container = view.containers.get(key);
  if (!container) return new Set();
  return container.exclusive ? parseCpus(container.cpus) : view.shared;
}
