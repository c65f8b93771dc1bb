// What is drawn, out of what was counted.

import type { Series } from "../wire";

export interface Points {
  times: number[]; // seconds since 1970
  ratio: (number | null)[]; // retries per request; null without requests
  requests: (number | null)[]; // per second, as the rest
  attempts: (number | null)[];
  failures: (number | null)[];
}

export function points(s: Series): Points {
  const begin = typeof s.start === "number" ? s.start : Date.parse(s.start);
  const step = s.step_ms / 1000;
  const each = (list: number[] | undefined) => s.requests.map((_, i) => (list?.[i] ?? 0) / step);
  return {
    times: s.requests.map((_, i) => begin / 1000 + i * step),
    ratio: s.requests.map((r, i) => (r > 0 ? Math.max(0, (s.attempts[i] ?? 0) - r) / r : null)),
    requests: each(s.requests),
    attempts: each(s.attempts),
    failures: each(s.failure),
  };
}
