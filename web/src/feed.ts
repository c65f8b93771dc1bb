// What the page knows, kept current by the stream. Every connection begins with the whole state, so nothing that was
// missed has to be replayed.

import { EventParser, type ServerEvent } from "./events";
import { ask, hasToken, Problem, read, setToken } from "./request";
import type { Dependency, Status, Transition, Whoami } from "./wire";

/** The server pings every 15 s: this long without a byte is a dead connection. */
export const SILENCE_MS = 20_000;

export type Access = "unknown" | "granted" | "token" | "role";

export class Feed {
  readonly dependencies = new Map<string, Dependency>();
  /** Transitions since the page was opened, the newest first. */
  transitions: Transition[] = [];
  access: Access = "unknown";
  refusal = "";
  whoami: Whoami | undefined;
  status: Status | undefined;
  /** Whether a first state has come. */
  loaded = false;
  connected = false;
  /** When the last byte came, on the browser's clock; 0 = never. */
  heard = 0;
  /** Server's clock minus the browser's, in ms. */
  skew = 0;

  private listeners = new Set<() => void>();
  private scheduled = false;
  private current: AbortController | undefined;

  subscribe(fn: () => void): () => void {
    this.listeners.add(fn);
    return () => this.listeners.delete(fn);
  }

  /** Now on the server's clock, which is the one that made the page's times. */
  now = () => Date.now() + this.skew;

  start(): void {
    this.connect();
    addEventListener("online", () => this.connect());
    addEventListener("offline", () => this.changed());
    setInterval(() => {
      if (this.connected && Date.now() - this.heard > SILENCE_MS) this.connect(); // died without telling
    }, 1000);
    setInterval(() => {
      void this.readStatus();
      if (!this.whoami && this.access === "granted") void this.readWhoami(this.current!.signal);
    }, 5000);
  }

  login(token: string): void {
    this.forget();
    setToken(token);
    this.connect();
  }

  logout(): void {
    this.forget();
    setToken("");
    this.connect();
  }

  /** What another token showed must not stay. */
  private forget(): void {
    this.dependencies.clear();
    this.transitions = [];
    this.whoami = this.status = undefined;
    this.loaded = false;
    this.heard = 0;
    this.access = "unknown";
    this.refusal = "";
    this.changed();
  }

  /** A newer version of a dependency, from the stream or from the answer to an order. */
  put(d: Dependency): void {
    this.dependencies.set(d.name, d);
    this.clock(d);
    this.changed();
  }

  /** One connection at a time: a new one ends the one before. */
  private connect(): void {
    this.current?.abort();
    const mine = (this.current = new AbortController());
    void this.run(mine.signal);
  }

  private async run(signal: AbortSignal): Promise<void> {
    for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 8000)) {
      const began = Date.now();
      try {
        void this.readWhoami(signal);
        void this.readStatus();
        await this.follow(signal);
      } catch (e) {
        if (signal.aborted) return;
        if (e instanceof Problem && (e.status === 401 || e.status === 403)) {
          this.refuse(e.status === 401 ? "token" : "role", e.message);
          return;
        }
      }
      if (signal.aborted) return;
      this.connected = false;
      this.changed();
      if (Date.now() - began > 10_000) wait = 500;
      // Spread, so that the pages of a replica that went away do not come back all at once.
      await new Promise((r) => setTimeout(r, wait * (0.5 + Math.random())));
    }
  }

  private async follow(signal: AbortSignal): Promise<void> {
    const answer = await ask("v1/stream?counters=1", { signal });
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      this.heard = Date.now();
      if (!this.connected) {
        this.connected = true;
        this.changed();
      }
      for (const e of parser.push(value)) {
        if (e.name === "goaway") return;
        this.handle(e);
      }
    }
  }

  private handle(e: ServerEvent): void {
    switch (e.name) {
      case "state": {
        const all = (JSON.parse(e.data) as { dependencies: Dependency[] | null }).dependencies ?? [];
        this.dependencies.clear();
        for (const d of all) this.dependencies.set(d.name, d);
        this.skew = all[0] ? Date.parse(all[0].as_of) - Date.now() : 0;
        this.loaded = true;
        this.access = "granted";
        break;
      }
      case "change": {
        const d = JSON.parse(e.data) as Dependency;
        this.dependencies.set(d.name, d);
        this.clock(d);
        break;
      }
      case "transition":
        this.transitions = [JSON.parse(e.data) as Transition, ...this.transitions].slice(0, 500);
        break;
      case "forget":
        this.dependencies.delete((JSON.parse(e.data) as { name: string }).name);
        break;
      default:
        return; // from a newer server
    }
    this.changed();
  }

  /** What arrives was made at or before now, so the greatest difference is the nearest to the truth. */
  private clock(d: Dependency): void {
    this.skew = Math.max(this.skew, Date.parse(d.as_of) - Date.now());
  }

  private async readWhoami(signal: AbortSignal): Promise<void> {
    try {
      this.whoami = await read<Whoami>("v1/whoami", { signal });
      // A token that only reports may follow the stream, but it may read nothing else.
      if (!this.whoami.roles.includes("read")) {
        this.current?.abort();
        this.refuse("role", `The token “${this.whoami.name}” may not read. This page needs the role “read”.`);
      }
      this.changed();
    } catch {
      // The stream tells of it.
    }
  }

  private async readStatus(): Promise<void> {
    if (this.access === "token" || this.access === "role") return;
    try {
      this.status = await read<Status>("v1/status", { signal: AbortSignal.timeout(3000) });
      this.changed();
    } catch {
      // As above.
    }
  }

  private refuse(access: Access, why: string): void {
    this.dependencies.clear();
    this.connected = this.loaded = false;
    this.access = access;
    this.refusal = access === "token" && !hasToken() ? "" : why;
    this.changed();
  }

  /**
   * Tells the page at most once a frame, however much came. A hidden page gets no frames, but its title must be right, so
   * it is told a little later.
   */
  private changed(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    const tell = () => {
      if (!this.scheduled) return;
      this.scheduled = false;
      for (const fn of this.listeners) fn();
    };
    requestAnimationFrame(tell);
    setTimeout(tell, 250);
  }
}

export const feed = new Feed();
