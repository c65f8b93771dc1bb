// Numbers and times as people read them. Everything that stands in a column keeps its width from second to second.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const count = (n: number) => whole.format(n);

export const rate = (perSecond: number) => (perSecond >= 100 || perSecond === 0 ? whole : tenth).format(perSecond);

/** A share of 1 as percent; "–" where there is nothing to take a share of. */
export function percent(part: number, all: number): string {
  if (!(all > 0)) return "–";
  return share(part / all);
}

export function share(x: number): string {
  const p = x * 100;
  if (p === 0) return "0 %";
  if (p > 0 && p < 0.1) return "< 0.1 %";
  return `${(p >= 100 ? whole : tenth).format(p)} %`;
}

/** A policy's share, which people wrote in round numbers. */
export const ppm = (n: number) => `${Number((n / 10_000).toFixed(4))} %`;

/** Two units at most: "4 s", "3 m 07 s", "2 h 05 m", "3 d 04 h". */
export function duration(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  const pad = (n: number) => String(n).padStart(2, "0");
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${pad(s % 60)} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${pad(Math.floor(s / 60) % 60)} m`;
  return `${Math.floor(s / 86_400)} d ${pad(Math.floor(s / 3600) % 24)} h`;
}

/** A duration of a policy: 500 ms, 15 s, 5 min. */
export function span(ms: number): string {
  if (ms === 0) return "0";
  if (ms < 1000) return `${ms} ms`;
  if (ms % 60_000 === 0) return ms % 3_600_000 === 0 ? `${ms / 3_600_000} h` : `${ms / 60_000} min`;
  return `${Number((ms / 1000).toFixed(1))} s`;
}

/** A moment: the time alone today, else with its date. */
export function moment(at: number, now: number): string {
  const d = new Date(at);
  const time = d.toLocaleTimeString("en-GB");
  if (d.toDateString() === new Date(now).toDateString()) return time;
  return `${d.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

/** Words that are identifiers in JSON. */
export const spoken = (word: string) => word.replaceAll("_", " ");
