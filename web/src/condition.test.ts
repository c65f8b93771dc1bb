import { expect, test } from "vitest";
import { leftAlone } from "./condition";
import type { Dependency } from "./wire";

test("what a dependency asked for is told while it lasts", () => {
  const now = Date.parse("2026-05-04T12:00:00Z");
  const asked = (not_before: string | null) => leftAlone({ not_before } as Dependency, now);
  expect(asked(null)).toBe("");
  expect(asked("2026-05-04T11:59:59Z")).toBe("");
  expect(asked("2026-05-04T12:00:42Z")).toMatch(/^no retries before \d\d:\d\d:42 \(in 42 s\), as it asked$/);
});
