// Chooses how many columns the boxes of each level have, so that the machine fits its place and its letters stay large.

const SIZES = [
  // name, narrowest and widest CPU, its height, its letters, room around boxes and cores, height of a label; see map.css
  { name: "large", least: 74, most: 150, height: 46, letter: 15, pad: 10, core: 3, label: 26, gap: 8 },
  { name: "roomy", least: 46, most: 90, height: 33, letter: 13, pad: 8, core: 3, label: 23, gap: 6 },
  { name: "medium", least: 31, most: 64, height: 25, letter: 11.5, pad: 7, core: 3, label: 22, gap: 5 },
  { name: "small", least: 16, most: 40, height: 18, letter: 10, pad: 5, core: 2, label: 18, gap: 3 },
  { name: "tiny", least: 16, most: 30, height: 16, letter: 9, pad: 4, core: 1, label: 16, gap: 3 },
];
const SMALL_FROM = 560; // narrower pages are touched with a finger, for which small CPUs are too small

/** The best plan for a place: its size, `across` (CPUs of a core side by side) and `columns` of each level. */
export function arrange(layout, place) {
  const sizes = place.width < SMALL_FROM ? SIZES.filter((size) => size.height > 24) : SIZES;
  let best = null;
  for (const size of sizes) {
    best = bestOf(layout, size, place.width) ?? best;
    if (best && best.height <= place.height) break;
  }
  return best ?? narrowest(layout, sizes.at(-1));
}

function bestOf(layout, size, width) {
  const shapes = shapesOf(layout, size);
  let best = null;
  for (const across of divisors(shapes.threads)) {
    for (const columns of plans(shapes.most)) {
      const fit = measure(shapes, size, columns, across, "least");
      if (fit.w > width) continue;
      const cost = fit.h * (1 + fit.waste);
      if (!best || cost < best.cost) best = { cost, height: fit.h, size, across, columns };
    }
  }
  if (best) best.width = measure(shapes, size, best.columns, best.across, "most").w;
  return best;
}

function narrowest(layout, size) {
  const columns = shapesOf(layout, size).most.map(() => 1);
  return { size, across: 1, columns, width: Infinity, height: Infinity };
}

/** The distinct shapes of boxes, inner ones first; regular machines have few. */
function shapesOf(layout, size) {
  const { depth } = layout;
  const most = Array(depth + 1).fill(1);
  const index = new Map();
  const list = [];
  let highest = 0;
  const add = (shape) => {
    const name = JSON.stringify(shape);
    if (!index.has(name)) index.set(name, list.push(shape) - 1);
    return index.get(name);
  };
  const visit = (box, level) => {
    if (box.boxes.length) {
      most[level + 1] = Math.max(most[level + 1], box.boxes.length);
      return add({ level, label: box.label.length, inner: box.boxes.map((inner) => visit(inner, level + 1)) });
    }
    most[depth] = Math.max(most[depth], box.cores.length);
    for (const core of box.cores) highest = Math.max(highest, ...core);
    return add({ level, label: box.label.length, cores: box.cores.length });
  };
  most[0] = layout.boxes.length;
  const root = layout.boxes.map((box) => visit(box, 0));
  const digits = String(highest).length * size.letter * 0.62 + 4;
  return { list, root, most, threads: layout.threads, digits };
}

function measure(shapes, size, columns, across, which) {
  const cpu = Math.max(size[which], shapes.digits);
  const stacked = Math.ceil(shapes.threads / across);
  const around = shapes.threads > 1 ? size.core : 0;
  const between = Math.max(1, size.core - 1);
  const core = { w: across * (cpu + between) - between + 2 * around, h: stacked * (size.height + between) - between + 2 * around };
  let waste = 0;
  columns.forEach((number, level) => {
    waste += 1 - shapes.most[level] / (number * Math.ceil(shapes.most[level] / number));
  });
  const sizes = [];
  for (const shape of shapes.list) {
    const inside = shape.inner
      ? grid(shape.inner.map((inner) => sizes[inner]), columns[shape.level + 1], size.gap)
      : even(core, shape.cores, columns[shape.level + 1], Math.max(2, size.gap - 1));
    const label = shape.label * size.letter * 0.55 + 2 * size.pad;
    sizes.push({ w: Math.max(inside.w + 2 * size.pad + 2, Math.min(label, 120)), h: inside.h + size.pad + size.label + 2 });
  }
  return { ...grid(shapes.root.map((shape) => sizes[shape]), columns[0], size.gap + 2), waste };
}

/** The size of a grid whose columns are all as wide as the widest. */
function grid(sizes, columns, gap) {
  const across = Math.min(columns, sizes.length);
  const rows = Math.ceil(sizes.length / across);
  let w = 0;
  let h = (rows - 1) * gap;
  for (let row = 0; row < rows; row += 1) {
    let highest = 0;
    for (let at = row * across; at < Math.min((row + 1) * across, sizes.length); at += 1) {
      w = Math.max(w, sizes[at].w);
      highest = Math.max(highest, sizes[at].h);
    }
    h += highest;
  }
  return { w: w * across + (across - 1) * gap, h };
}

/** The size of a grid of so many times the same. */
function even(size, number, columns, gap) {
  const across = Math.min(columns, number);
  const rows = Math.ceil(number / across);
  return { w: across * (size.w + gap) - gap, h: rows * (size.h + gap) - gap };
}

/** All ways to choose a number of columns for each level; only numbers that fill their rows evenly, and not too many. */
function* plans(most) {
  if (!most.length) {
    yield [];
    return;
  }
  const [first, ...rest] = most;
  const filled = [...new Set(Array.from({ length: first }, (_, rows) => Math.ceil(first / (rows + 1))))];
  const tried = filled.filter((columns, index) => columns <= 32 || index % 4 === 0);
  for (const columns of tried) for (const inner of plans(rest)) yield [columns, ...inner];
}

const divisors = (number) => Array.from({ length: number }, (_, i) => i + 1).filter((i) => number % i === 0);
