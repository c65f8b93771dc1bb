import { expect, test } from "vitest";
import { dependencyHash, fleetHash, parse } from "./route";

test("names survive the address, whatever is in them", () => {
  for (const name of ["payments", "billing/invoices", "a%2fb", "x@y.z/-_"]) {
    expect(parse(dependencyHash(name))).toMatchObject({ page: "dependency", name });
  }
});

test("the fleet's filter lives in the address", () => {
  const query = new URLSearchParams({ q: "pay & more", state: "open" });
  expect(parse(fleetHash(query)).query.get("q")).toBe("pay & more");
  expect(parse("").page).toBe("fleet");
  expect(parse("#/").page).toBe("fleet");
});

test("what is no address of ours is missing", () => {
  for (const hash of ["#/nothing", "#/dependencies/", "#/dependencies/a/b", "#/dependencies/%E0%A4%A"]) {
    expect(parse(hash).page).toBe("missing");
  }
});
