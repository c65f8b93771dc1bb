// How long an order stands.

export const MINUTE = 60_000;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;
export const LONGEST = 7 * DAY; // the server refuses more

export const presets = [
  { label: "15 m", ms: 15 * MINUTE },
  { label: "1 h", ms: HOUR },
  { label: "4 h", ms: 4 * HOUR },
  { label: "24 h", ms: DAY },
];

export const units = [
  { label: "minutes", ms: MINUTE },
  { label: "hours", ms: HOUR },
  { label: "days", ms: DAY },
];

export interface Term {
  preset: number; // in ms; 0 = custom
  amount: string; // as typed
  unit: number; // in ms
}

/** The term in ms, or what is wrong with it. */
export function parseTerm(t: Term): { ms: number } | { wrong: string } {
  if (t.preset > 0) return { ms: t.preset };
  const amount = Number(t.amount.trim().replace(",", "."));
  if (t.amount.trim() === "" || !Number.isFinite(amount) || amount <= 0) return { wrong: "Enter a number above 0." };
  const ms = Math.round(amount * t.unit);
  if (ms < MINUTE) return { wrong: "At least one minute." };
  if (ms > LONGEST) return { wrong: "At most 7 days." };
  return { ms };
}
