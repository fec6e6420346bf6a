// Which colour an owner has: chosen when it comes, and kept. Eight hues in two shades, which most colour-blind readers
// can distinguish, each plain, with a line or with a dashed one: 48 owners look different from each other.

const HUES = 8;
const SHADES = 2;
const COLOURS = HUES * SHADES;
const TEXTURES = 3;
const LOOKS = COLOURS * TEXTURES;
const KEPT = 400;

const chosen = new Map();

/** The colour and texture of an owner, as class names. */
export function colour(owner) {
  const look = chosen.get(owner) ?? 0;
  return `hue${look % COLOURS} texture${Math.floor(look / COLOURS)}`;
}

/** Give these owners colours; an owner keeps its colour. Owners that are `near` each other never look alike. */
export function choose(owners, near = () => []) {
  if (chosen.size > KEPT) for (const owner of chosen.keys()) if (!owners.includes(owner)) chosen.delete(owner);
  const uses = new Array(LOOKS).fill(0);
  for (const owner of owners) if (chosen.has(owner)) uses[chosen.get(owner)] += 1;
  for (const owner of owners) {
    if (chosen.has(owner)) continue;
    const look = best(hash(owner), uses, [...near(owner)].filter((other) => chosen.has(other)).map((other) => chosen.get(other)));
    uses[look] += 1;
    chosen.set(owner, look);
  }
}

/** The look with the least against it: that of a neighbour, one in use, the hue of a neighbour, a texture, a shade. */
function best(number, uses, near) {
  const [looks, hues] = [new Set(near), new Set(near.map((look) => look % HUES))];
  const cost = (look) =>
    1e6 * looks.has(look) + 1e4 * uses[look] + 500 * hues.has(look % HUES) + 200 * Math.floor(look / COLOURS) + 50 * (look % COLOURS >= HUES) + ((look + HUES - (number % HUES)) % HUES);
  const all = [...uses.keys()];
  return all.reduce((found, look) => (cost(look) < cost(found) ? look : found));
}

/** FNV-1a. */
function hash(text) {
  let number = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) {
    number = Math.imul(number ^ text.charCodeAt(at), 0x01000193) >>> 0;
  }
  return number;
}
