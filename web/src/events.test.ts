import { expect, test } from "vitest";
import { EventParser } from "./events";

const text = "retry: 1500\n\nevent: state\ndata: {\"a\":1}\n\n: ping\n\nevent: change\r\ndata: x\r\ndata: y\r\n\r\n";
const events = [
  { name: "state", data: '{"a":1}' },
  { name: "change", data: "x\ny" },
];

test("events come out the same wherever the network cuts them", () => {
  for (let cut = 1; cut < text.length; cut++) {
    const p = new EventParser();
    const got = [];
    for (let i = 0; i < text.length; i += cut) got.push(...p.push(text.slice(i, i + cut)));
    expect(got).toEqual(events);
  }
});

test("an event is out only when its empty line is", () => {
  const p = new EventParser();
  expect(p.push("event: goaway\ndata: {}\n")).toEqual([]);
  expect(p.push("\n")).toEqual([{ name: "goaway", data: "{}" }]);
});
