// What a dependency's numbers mean: how bad, since when, in which words.

import { duration, moment } from "./format";
import type { Dependency, Mode, State } from "./wire";

export const stateWord: Record<State, string> = { closed: "Closed", half_open: "Half-open", open: "Open" };

export const modeWord: Record<Mode, string> = {
  force_open: "Forced open",
  force_closed: "Forced closed",
  no_retries: "Retries off",
};

/** A word for a state that a newer server may have added to. */
export const wordOf = (state: string) => stateWord[state as State] ?? state;

/** Whether retries go out at all: the budget grants none while the breaker is not closed. */
export const retriesRest = (d: Dependency) => d.breaker.effective !== "closed";

/** Whether the fleet would retry more than it may. */
export function spent(d: Dependency): boolean {
  const { remaining, denied } = d.budget;
  return !retriesRest(d) && (remaining < 0 || (remaining === 0 && denied > 0));
}

/** The groups of the list, the most severe first; the first three are those of GET /v1/dependencies. */
export function severity(d: Dependency): number {
  const b = d.breaker;
  if (b.effective === "open") return 0;
  if (b.effective === "half_open") return 1;
  if (b.override) return 2;
  return spent(d) ? 3 : 4;
}

/** Within a group by name: an order by figures would move rows under the reader's eyes every second. */
export function bySeverity(a: Dependency, b: Dependency): number {
  return severity(a) - severity(b) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
}

/** Since when the effective state stands, on the server's clock; undefined if it never changed. */
export function since(d: Dependency): number | undefined {
  const { automatic, override } = d.breaker;
  if (override && override.mode !== "no_retries") return Date.parse(override.created_at);
  return automatic.since ? Date.parse(automatic.since) : undefined;
}

/** The calculated state where an override hides it. */
export function hidden(d: Dependency): State | undefined {
  const { automatic, override } = d.breaker;
  return override && override.mode !== "no_retries" ? automatic.state : undefined;
}

/** That the dependency asked not to be retried, while that lasts; "" if it did not. */
export function leftAlone(d: Dependency, now: number): string {
  const until = d.not_before ? Date.parse(d.not_before) : 0;
  return until > now ? `no retries before ${moment(until, now)} (in ${duration(until - now)}), as it asked` : "";
}

export const requestRate = (d: Dependency) => (d.window.requests * 1000) / (d.budget.window_ms || 10_000);

/** How the list is narrowed down. */
export type Filter = "" | "open" | "half_open" | "forced" | "closed";

export function passes(d: Dependency, filter: Filter): boolean {
  switch (filter) {
    case "":
      return true;
    case "forced":
      return d.breaker.override !== null;
    default:
      return d.breaker.effective === filter;
  }
}
