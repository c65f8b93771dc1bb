import { expect, test } from "vitest";
import { freshness } from "./freshness";

test("only a connection that is heard is live", () => {
  const now = 1_000_000;
  expect(freshness({ connected: false, heard: 0 }, now, true)).toBe("connecting");
  expect(freshness({ connected: true, heard: now - 1000 }, now, true)).toBe("live");
  expect(freshness({ connected: true, heard: now - 21_000 }, now, true)).toBe("stale");
  expect(freshness({ connected: false, heard: now - 1000 }, now, true)).toBe("stale");
  expect(freshness({ connected: false, heard: now - 31_000 }, now, true)).toBe("offline");
  expect(freshness({ connected: true, heard: now }, now, false)).toBe("offline");
});
