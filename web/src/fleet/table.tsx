// The table draws the rows that are in sight and a few more, so that 2,000 dependencies cost what 40 do. All rows have
// the same height, which is also in fleet.css.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Dependency } from "../wire";
import { typing } from "./filters";
import { place } from "./page";
import { Row } from "./row";

const ROW = 44;
const MORE = 8; // rows drawn beyond each edge

export function Table({ rows, now }: { rows: Dependency[]; now: number }) {
  const box = useRef<HTMLDivElement>(null);
  const [sight, setSight] = useState({ top: place.top, height: window.innerHeight });
  const focus = useRef(place.name); // the row that has or had the focus
  const wanted = useRef(place.name !== ""); // it must get it back after this drawing

  const first = Math.max(0, Math.min(Math.floor(sight.top / ROW) - MORE, rows.length - 1));
  const last = Math.min(rows.length, Math.ceil((sight.top + sight.height) / ROW) + MORE);

  useLayoutEffect(() => {
    const b = box.current!;
    b.scrollTop = place.top;
    const look = () => {
      place.top = b.scrollTop;
      setSight((s) => (s.top === b.scrollTop && s.height === b.clientHeight ? s : { top: b.scrollTop, height: b.clientHeight }));
    };
    b.addEventListener("scroll", look, { passive: true });
    const resized = new ResizeObserver(look);
    resized.observe(b);
    look();
    return () => {
      b.removeEventListener("scroll", look);
      resized.disconnect();
    };
  }, []);

  // Rows that change places are taken out of the document for a moment and lose the focus: give it back.
  useLayoutEffect(() => {
    if (!focus.current) return;
    const lost = wanted.current || document.activeElement === document.body;
    const link = lost && box.current!.querySelector<HTMLElement>(`tr[data-name="${CSS.escape(focus.current)}"] a`);
    if (!link) return;
    link.focus({ preventScroll: true });
    wanted.current = false;
  });

  const go = (to: number) => {
    const d = rows[Math.max(0, Math.min(to, rows.length - 1))];
    if (!d) return;
    focus.current = place.name = d.name;
    wanted.current = true;
    const b = box.current!;
    const head = b.querySelector("thead")!.clientHeight;
    const y = rows.indexOf(d) * ROW;
    if (y < b.scrollTop) b.scrollTop = y;
    else if (y + ROW > b.scrollTop + b.clientHeight - head) b.scrollTop = y + ROW - b.clientHeight + head;
    setSight({ top: b.scrollTop, height: b.clientHeight });
  };
  const latest = useRef({ go, rows });
  latest.current = { go, rows };

  useLayoutEffect(() => {
    const onKey = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || typing(e.target)) return;
      const inside = box.current!.contains(e.target as Node) && e.target !== box.current;
      const at = latest.current.rows.findIndex((d) => d.name === focus.current);
      const page = Math.max(1, Math.floor(box.current!.clientHeight / ROW) - 2);
      const step: Record<string, number> = { j: at + 1, k: at - 1 };
      if (inside) {
        Object.assign(step, {
          ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: latest.current.rows.length - 1,
        });
      }
      const to = step[e.key];
      if (to === undefined) return;
      e.preventDefault();
      latest.current.go(to);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  const onFocusIn = (e: FocusEvent) => {
    const name = (e.target as HTMLElement).closest<HTMLElement>("tr[data-name]")?.dataset.name;
    if (name) focus.current = place.name = name;
  };
  const onFocusOut = (e: FocusEvent) => {
    // Somebody moved on by himself; a row that was moved has no next target.
    if (e.relatedTarget) focus.current = "";
  };

  return (
    <div class="table" ref={box} tabIndex={0} role="region" aria-label="Dependencies by severity" onFocusIn={onFocusIn} onFocusOut={onFocusOut}>
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            <th scope="col">Dependency</th>
            <th scope="col" class="c-state">
              State
            </th>
            <th scope="col" class="c-since n">
              For
            </th>
            <th scope="col" class="c-rate n">
              Requests/s
            </th>
            <th scope="col" class="c-failure n">
              Failures
            </th>
            <th scope="col" class="c-retry">
              Retry ratio / budget
            </th>
            <th scope="col" class="c-instances n">
              Instances
            </th>
          </tr>
        </thead>
        <tbody>
          <Gap rows={first} />
          {rows.slice(first, last).map((d, i) => (
            <Row key={d.name} d={d} now={now} index={first + i + 2} />
          ))}
          <Gap rows={rows.length - last} />
        </tbody>
      </table>
    </div>
  );
}

/** Stands for rows that are not drawn. */
function Gap({ rows }: { rows: number }) {
  return (
    <tr class="gap" aria-hidden="true" style={{ height: `${Math.max(0, rows) * ROW}px` }}>
      <td colSpan={7} />
    </tr>
  );
}
