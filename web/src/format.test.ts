import { expect, test } from "vitest";
import { duration, percent, ppm, rate, share, span } from "./format";

test("durations have two units at most", () => {
  const got = [-5, 0, 999, 4_000, 67_000, 3_600_000, 7_500_000, 90_000_000].map(duration);
  expect(got).toEqual(["0 s", "0 s", "0 s", "4 s", "1 m 07 s", "1 h 00 m", "2 h 05 m", "1 d 01 h"]);
});

test("shares", () => {
  expect([0, 0.0001, 0.033, 0.5, 1, 2.5].map(share)).toEqual(["0 %", "< 0.1 %", "3.3 %", "50.0 %", "100 %", "250 %"]);
  expect(percent(1, 0)).toBe("–");
  expect(percent(1, 8)).toBe("12.5 %");
  expect([100_000, 12_345, 1_000_000].map(ppm)).toEqual(["10 %", "1.2345 %", "100 %"]);
});

test("rates and spans", () => {
  expect([0, 0.3, 42, 1234.6].map(rate)).toEqual(["0", "0.3", "42.0", "1,235"]);
  expect([0, 500, 15_000, 1500, 300_000, 7_200_000].map(span)).toEqual(["0", "500 ms", "15 s", "1.5 s", "5 min", "2 h"]);
});
