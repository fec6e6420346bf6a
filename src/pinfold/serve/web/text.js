// Text for people. Names come from pods and are untrusted: they only ever become text, never markup.

const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]/gu;
const LONGEST = 80;
const LONGEST_TITLE = 2000;
const LATELY = 20 * 3600; // a time of the day is not taken for another day's

/** Text with invisible characters (control characters, marks that change its direction) made visible. */
export const visible = (text) => String(text ?? "").replace(UNSEEN, "\uFFFD");

/** At most `most` characters, the middle cut out. */
export function cut(text, most = LONGEST) {
  const whole = visible(String(text ?? "").slice(0, 20000));
  if (whole.length <= most) return whole;
  const half = Math.floor((most - 1) / 2);
  return `${whole.slice(0, half)}…${whole.slice(-half)}`;
}

/** An element with text, which cannot change the direction of the text around it. */
export function named(text, className = "", most = LONGEST) {
  const element = document.createElement("bdi");
  if (className) element.className = className;
  write(element, text, most);
  return element;
}

/** Write a name into an element, and into its title if it is cut; changes only what differs. */
export function write(element, text, most = LONGEST) {
  const short = cut(text, most);
  if (element.textContent !== short) element.textContent = short;
  const title = short === String(text ?? "") ? "" : visible(String(text).slice(0, LONGEST_TITLE));
  if (element.title !== title) element.title = title;
}

/** Write text into an element, unless it is there. */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** An element with attributes and children; text children become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const plural = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const WHOLE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** A time of the day, with the date unless it is of the last hours. */
export function clock(seconds, now = Date.now() / 1000) {
  if (!Number.isFinite(seconds) || Math.abs(seconds) > 8e12) return "?";
  const then = new Date(seconds * 1000);
  const time = CLOCK.format(then);
  return Math.abs(now - seconds) < LATELY ? time : `${DAY.format(then)}, ${time}`;
}

/** Date and time. */
export const moment = (seconds) => (Number.isFinite(seconds) && Math.abs(seconds) < 8e12 ? WHOLE.format(seconds * 1000) : "?");

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A number of bytes in the largest unit of which there is at least one. */
export function bytes(number) {
  const unit = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(number, 1)) / 10)));
  const amount = number / 1024 ** unit;
  return `${amount < 10 && unit ? amount.toFixed(1) : Math.round(amount)} ${UNITS[unit]}`;
}

/** How long something takes, in its two largest units. */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(whole, 60, "min", "s");
  if (whole < 86400) return pair(Math.floor(whole / 60), 60, "h", "min");
  return pair(Math.floor(whole / 3600), 24, "d", "h");
}

function pair(number, base, large, small) {
  const rest = number % base;
  return rest ? `${Math.floor(number / base)} ${large} ${rest} ${small}` : `${Math.floor(number / base)} ${large}`;
}
