// How far what is on the screen can be trusted.

import { SILENCE_MS } from "../feed";
import { duration } from "../format";
import { useFeed, useNow } from "../hooks";

/** After this long without a connection nobody should take the figures for current. */
const OFFLINE_MS = 30_000;

export type Freshness = "connecting" | "live" | "stale" | "offline";

export function freshness(f: { connected: boolean; heard: number }, now: number, online: boolean): Freshness {
  const age = now - f.heard;
  if (online && f.connected && age < SILENCE_MS) return "live";
  if (online && f.heard === 0) return "connecting";
  if (!online || age >= OFFLINE_MS) return "offline";
  return "stale";
}

export function FreshnessBadge() {
  useNow();
  const f = useFeed();
  const kind = freshness(f, Date.now(), navigator.onLine);
  const age = f.heard ? duration(Date.now() - f.heard) : "";
  const text = { connecting: "Connecting", live: "Live", stale: `Stale ${age}`, offline: age ? `Offline ${age}` : "Offline" };
  return (
    <p class={`freshness ${kind}`} data-freshness={kind}>
      <span class="dot" aria-hidden="true" />
      {text[kind]}
    </p>
  );
}
