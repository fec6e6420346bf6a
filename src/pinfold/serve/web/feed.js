// The daemon's API: answers to requests, and the event stream, which reconnects after every loss.

const SILENT = 40_000; // the daemon is heard every 15 s, if only by a heartbeat
const LONGEST_QUERY = 6000;
const LONGEST_ANSWER = 10_000;
const FIRST_WAIT = 400;
const LONGEST_WAIT = 5_000;

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The JSON at a path of the API. */
export async function ask(path, query = {}, signal = undefined) {
  const known = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const search = known.length ? `?${new URLSearchParams(known.map(([name, value]) => [name, String(value)]))}` : "";
  if (search.length > LONGEST_QUERY) throw new Failure(414, "a name is too long to ask for it");
  const within = AbortSignal.timeout(LONGEST_ANSWER);
  const signals = signal ? AbortSignal.any([signal, within]) : within;
  const response = await fetch(`/api/v1/${path}${search}`, { signal: signals, cache: "no-store", credentials: "omit" });
  if (response.ok) return response.json();
  const said = await response.json().catch(() => ({}));
  throw new Failure(response.status, said.message ?? `${path}: status ${response.status}`);
}

/** Follows /events for ever: calls `heard(entry)`, `connected(again)` and `lost(error)`; resumes where it was cut off. */
export class Stream {
  #last = null;
  #wait = FIRST_WAIT;
  #wake = null;
  #lost = false;
  #anew = false;
  #cancel = null;

  constructor(handlers) {
    this.handlers = handlers;
  }

  /** The entry after which to begin. */
  after(number) {
    this.#last = number;
  }

  /** The last entry that the daemon has; one that has forgotten its numbers begins anew. */
  reset(number) {
    if (this.#last === null || (number !== null && number >= this.#last)) return;
    this.#last = number;
    this.#anew = true;
    this.#cancel?.abort();
  }

  async follow() {
    for (;;) {
      try {
        await this.#listen();
        throw new Failure(0, "the daemon has closed the stream");
      } catch (error) {
        if (this.#anew) {
          this.#anew = false;
          continue;
        }
        this.#lost = true;
        this.handlers.lost(error);
      }
      await new Promise((done) => {
        this.#wake = done;
        setTimeout(done, this.#wait);
      });
      this.#wait = Math.min(this.#wait * 1.6, LONGEST_WAIT);
    }
  }

  /** Do not wait any longer for the next attempt. */
  hurry() {
    this.#wait = FIRST_WAIT;
    this.#wake?.();
  }

  async #listen() {
    const cancel = new AbortController();
    this.#cancel = cancel;
    let timer = setTimeout(() => cancel.abort(), SILENT);
    const headers = { accept: "text/event-stream" };
    if (this.#last !== null) headers["last-event-id"] = String(this.#last);
    try {
      const response = await fetch("/events", { headers, signal: cancel.signal, cache: "no-store", credentials: "omit" });
      if (!response.ok) throw new Failure(response.status, `the stream answers with status ${response.status}`);
      this.#wait = FIRST_WAIT;
      this.handlers.connected(this.#lost);
      this.#lost = false;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => cancel.abort(), SILENT);
        const blocks = (rest + value).split(/\r?\n\r?\n/);
        rest = blocks.pop();
        for (const block of blocks) this.#event(block);
      }
    } finally {
      clearTimeout(timer);
      cancel.abort();
    }
  }

  #event(block) {
    const fields = { event: "message", data: [] };
    for (const line of block.split(/\r?\n/)) {
      const [, name, value] = /^([a-z]+):? ?(.*)$/.exec(line) ?? [];
      if (name === "data") fields.data.push(value);
      else if (name) fields[name] = value;
    }
    if (/^\d+$/.test(fields.id ?? "")) this.#last = Number(fields.id);
    if (fields.event !== "change" || !fields.data.length) return;
    try {
      this.handlers.heard(JSON.parse(fields.data.join("\n")));
    } catch (error) {
      console.warn("an event that cannot be read", error);
    }
  }
}
