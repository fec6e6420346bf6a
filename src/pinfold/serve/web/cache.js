// What containers use of the L3 cache and of the memory bandwidth, where the processor counts it.

import { bytes } from "./text.js";
import { keyOf } from "./view.js";

const LEAST = 1; // seconds between two counts that make a rate

let seen = new Map(); // by container: the bytes that it had moved, when they were counted, and the rate until then

/** Work out how many bytes a second each container moves, from these counts and the last ones; `now` in seconds. */
export function measure(containers, now) {
  const counted = containers.filter((container) => Number.isFinite(container.cache?.traffic));
  seen = new Map(counted.map((container) => [keyOf(container), next(seen.get(keyOf(container)), container.cache.traffic, now)]));
  return counted.length > 0;
}

function next(before, traffic, at) {
  if (!before || traffic < before.traffic) return { traffic, at, rate: null };
  if (at - before.at < LEAST) return before;
  return { traffic, at, rate: (traffic - before.traffic) / (at - before.at) };
}

/** What a container uses, in words; empty if nothing is counted. */
export function cacheUse(container) {
  const { occupancy, traffic } = container.cache ?? {};
  const rate = seen.get(keyOf(container))?.rate ?? null;
  const parts = [Number.isFinite(occupancy) && `${bytes(occupancy)} of L3`];
  if (rate !== null) parts.push(`memory ${bytes(rate)}/s`);
  else if (Number.isFinite(traffic)) parts.push(`memory ${bytes(traffic)} so far`);
  return parts.filter(Boolean).join(" · ");
}
