// How components follow what changes outside of them.

import { useEffect, useState } from "preact/hooks";
import { feed } from "./feed";
import { onRoute, route } from "./route";

/** Renders again whenever the feed changed. */
export function useFeed() {
  const [, set] = useState(0);
  useEffect(() => feed.subscribe(() => set((n) => n + 1)), []);
  return feed;
}

export function useRoute() {
  const [, set] = useState(0);
  useEffect(() => onRoute(() => set((n) => n + 1)), []);
  return route();
}

/** The time on the server's clock, at least once a second. */
export function useNow(): number {
  const [, set] = useState(0);
  useEffect(() => {
    const t = setInterval(() => set((n) => n + 1), 1000);
    return () => clearInterval(t);
  }, []);
  return feed.now();
}
