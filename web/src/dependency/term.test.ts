import { expect, test } from "vitest";
import { DAY, HOUR, MINUTE, parseTerm } from "./term";

test("presets count as they are", () => {
  expect(parseTerm({ preset: HOUR, amount: "nonsense", unit: HOUR })).toEqual({ ms: HOUR });
});

test("a custom term lies between a minute and 7 days", () => {
  const custom = (amount: string, unit: number) => parseTerm({ preset: 0, amount, unit });
  expect(custom("90", MINUTE)).toEqual({ ms: 90 * MINUTE });
  expect(custom("1,5", HOUR)).toEqual({ ms: 1.5 * HOUR });
  expect(custom("7", DAY)).toEqual({ ms: 7 * DAY });
  for (const [amount, unit] of [["", HOUR], ["0", HOUR], ["-1", HOUR], ["soon", HOUR], ["0.5", MINUTE], ["169", HOUR], ["Infinity", DAY]] as const) {
    expect(custom(amount, unit)).toHaveProperty("wrong");
  }
});
