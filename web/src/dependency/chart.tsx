// A time chart on a canvas, with its legend and its summary in text.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";

export interface Line {
  label: string;
  values: (number | null)[];
  colour: string; // a custom property of tokens.css
  fill?: boolean;
  dashed?: boolean;
  show(x: number): string;
}

interface Props {
  title: string;
  summary: string; // for those who do not see the lines
  times: number[];
  lines: Line[];
  floor: number; // the least top of the scale, so that noise around zero looks like noise
  axis(x: number): string;
  height: number;
}

/** Charts on the page share their cursor. */
const group = uPlot.sync("history");

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [at, setAt] = useState<number | null>(null);
  const data = [props.times, ...props.lines.map((l) => l.values)] as uPlot.AlignedData;

  useLayoutEffect(() => {
    const b = box.current!;
    const u = new uPlot({ ...options(latest, setAt), width: b.clientWidth || 600, height: props.height }, data, b);
    plot.current = u;
    const resized = new ResizeObserver(() => u.setSize({ width: b.clientWidth, height: props.height }));
    resized.observe(b);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => u.redraw(false, true);
    dark.addEventListener("change", redraw);
    return () => {
      dark.removeEventListener("change", redraw);
      resized.disconnect();
      u.destroy();
    };
  }, []);

  const drawn = useRef(data);
  useEffect(() => {
    // The page draws every second; the chart only when there is something new.
    const same = drawn.current[0].length === data[0].length && data.every((list, i) => sameValues(list, drawn.current[i]!));
    if (!same) plot.current?.setData(data);
    drawn.current = data;
  });

  const index = at ?? props.times.length - 1;
  return (
    <figure class="chart">
      <figcaption>
        <b>{props.title}</b>
        <span class="unseen">{props.summary}</span>
        <span class="legend" aria-hidden="true">
          {props.lines.map((l) => (
            <span key={l.label}>
              <Swatch line={l} />
              {l.label} <b>{value(l, index)}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={box} class="plot" aria-hidden="true" />
    </figure>
  );
}

function Swatch({ line }: { line: Line }) {
  return (
    <svg width="16" height="8" viewBox="0 0 16 8">
      <path d="M0 4h16" style={{ stroke: `var(${line.colour})` }} stroke-width="2" stroke-dasharray={line.dashed ? "4 3" : undefined} />
    </svg>
  );
}

const value = (l: Line, i: number) => {
  const v = l.values[i];
  return v === null || v === undefined ? "–" : l.show(v);
};

function sameValues(a: ArrayLike<unknown>, b: ArrayLike<unknown>): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** Read at every drawing: the colour scheme may change. */
const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(props: { current: Props }, setAt: (i: number | null) => void): Omit<uPlot.Options, "width" | "height"> {
  const font = '11px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const grid = { stroke: () => colour("--line"), width: 1 };
  return {
    legend: { show: false },
    cursor: { sync: { key: group.key }, drag: { x: false, y: false }, points: { size: 6 } },
    scales: {
      x: { time: true },
      y: { range: (_u, _min, max) => [0, Math.max(props.current.floor, (max ?? 0) * 1.1)] },
    },
    axes: [
      {
        stroke: () => colour("--quiet"),
        grid: { show: false },
        ticks: { ...grid, size: 4 },
        font,
        size: 26,
        values: (_u, splits) => splits.map((s) => new Date(s * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })),
        space: 70,
      },
      { stroke: () => colour("--quiet"), grid, ticks: { show: false }, font, size: 52, space: 34, values: (_u, splits) => splits.map((s) => props.current.axis(s)) },
    ],
    series: [
      {},
      ...props.current.lines.map(
        (l): uPlot.Series => ({
          label: l.label,
          stroke: () => colour(l.colour),
          width: 1.5,
          dash: l.dashed ? [5, 4] : undefined,
          fill: l.fill ? () => `${colour(l.colour)}22` : undefined,
          points: { show: false },
          spanGaps: false,
        }),
      ),
    ],
    hooks: { setCursor: [(u) => setAt(u.cursor.idx ?? null)] },
  };
}
