// Sets of CPUs, as Linux writes them: "0-3,8".

const HIGHEST = 65535;

/** The CPUs of a list, ascending; none if the text is not a list. */
export function parseCpus(text) {
  const cpus = new Set();
  for (const part of String(text ?? "").split(",")) {
    const found = /^\s*(\d{1,5})(?:-(\d{1,5}))?\s*$/.exec(part);
    if (!found) continue;
    const last = Math.min(Number(found[2] ?? found[1]), HIGHEST);
    for (let cpu = Number(found[1]); cpu <= last; cpu += 1) cpus.add(cpu);
  }
  return cpus;
}

/** The list of CPUs (or of other numbers). */
export function formatCpus(cpus) {
  const runs = [];
  for (const cpu of [...cpus].sort((a, b) => a - b)) {
    const run = runs.at(-1);
    if (run && run[1] === cpu - 1) run[1] = cpu;
    else runs.push([cpu, cpu]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

/** A list with room to break after its commas. */
export const spaced = (text) => String(text ?? "").replaceAll(",", ", ");
