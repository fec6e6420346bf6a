// Which colour an owner has: chosen by its name, and kept. Eight hues that stay apart for colour-blind readers, each
// plain, with a line or with a dashed one, so that 24 owners look different from each other.

const HUES = 8;
const TEXTURES = 3;
const KEPT = 400;

const chosen = new Map();

/** The hue and texture of an owner, as class names. */
export function colour(owner) {
  const slot = chosen.get(owner) ?? 0;
  return `hue${slot % HUES} texture${Math.floor(slot / HUES)}`;
}

/** Give these owners colours; an owner keeps its colour, and two share one only when all are taken. */
export function choose(owners) {
  if (chosen.size > KEPT) for (const owner of chosen.keys()) if (!owners.includes(owner)) chosen.delete(owner);
  const taken = new Set(owners.filter((owner) => chosen.has(owner)).map((owner) => chosen.get(owner)));
  for (const owner of owners) {
    if (chosen.has(owner)) continue;
    const slot = free(hash(owner), taken);
    taken.add(slot);
    chosen.set(owner, slot);
  }
}

function free(number, taken) {
  for (let texture = 0; texture < TEXTURES; texture += 1) {
    for (let step = 0; step < HUES; step += 1) {
      const slot = ((number + step) % HUES) + texture * HUES;
      if (!taken.has(slot)) return slot;
    }
  }
  return number % (HUES * TEXTURES);
}

/** FNV-1a. */
function hash(text) {
  let number = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) {
    number = Math.imul(number ^ text.charCodeAt(at), 0x01000193) >>> 0;
  }
  return number;
}
