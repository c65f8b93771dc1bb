// The last hour: retries against the budget, and the load that made them.

import { useEffect, useState } from "preact/hooks";
import { ppm, rate, share } from "../format";
import { dependencyPath, describe, Problem, read } from "../request";
import type { Dependency, Series } from "../wire";
import { Chart, type Line } from "./chart";
import { points } from "./points";

/** Rings move slowly, and each reading costs the server one look at them. */
const EVERY_MS = 5000;

type Reading = { series?: Series; trouble?: "none" | string };

export function History({ d }: { d: Dependency }) {
  const [reading, setReading] = useState<Reading>({});
  useEffect(() => {
    const gone = new AbortController();
    let timer = 0;
    const look = async () => {
      try {
        const series = await read<Series>(`${dependencyPath(d.name)}/series?window=1h`, { signal: gone.signal });
        setReading({ series });
      } catch (e) {
        if (gone.signal.aborted) return;
        const trouble = e instanceof Problem && e.status === 404 ? "none" : describe(e);
        setReading((r) => ({ series: r.series, trouble }));
      }
      timer = setTimeout(look, EVERY_MS);
    };
    void look();
    return () => {
      gone.abort();
      clearTimeout(timer);
    };
  }, [d.name]);

  const { series, trouble } = reading;
  return (
    <section class="panel history" aria-labelledby="history-title">
      <h2 id="history-title">
        Last hour {series && trouble && <span class="bad"> · {trouble}</span>}
      </h2>
      {series ? <Charts series={series} budget={d.budget.ratio_ppm / 1e6} /> : <NoHistory trouble={trouble} />}
    </section>
  );
}

function NoHistory({ trouble }: { trouble?: string }) {
  if (trouble === undefined) return <p class="hollow quiet">Reading …</p>;
  return (
    <div class="hollow">
      <p>
        <b>{trouble === "none" ? "No history yet" : "History cannot be read"}</b>
      </p>
      <p class="quiet">
        {trouble === "none" ? "Retry ratio and load appear here as instances report. The figures above are live." : `${trouble} The page tries again.`}
      </p>
    </div>
  );
}

function Charts({ series, budget }: { series: Series; budget: number }) {
  const p = points(series);
  const retry: Line[] = [
    { label: "Retry ratio", values: p.ratio, colour: "--accent", fill: true, show: share },
    { label: `Budget`, values: p.times.map(() => budget), colour: "--half", dashed: true, show: (x) => ppm(x * 1e6) },
  ];
  const load: Line[] = [
    { label: "Attempts/s", values: p.attempts, colour: "--half", show: rate },
    { label: "Requests/s", values: p.requests, colour: "--accent", show: rate },
    { label: "Failures/s", values: p.failures, colour: "--bad", show: rate },
  ];
  const peak = Math.max(0, ...p.ratio.map((x) => x ?? 0));
  return (
    <>
      <Chart
        title="Retry ratio against the budget"
        summary={`Highest retry ratio of the last hour ${share(peak)}, budget ${share(budget)}.`}
        times={p.times}
        lines={retry}
        floor={Math.max(budget * 1.5, 0.02)}
        axis={(x) => `${Number((x * 100).toFixed(1))} %`}
        height={220}
      />
      <Chart
        title="Load"
        summary={`Highest load of the last hour: ${rate(Math.max(0, ...p.attempts.map((x) => x ?? 0)))} attempts per second.`}
        times={p.times}
        lines={load}
        floor={1}
        axis={rate}
        height={180}
      />
    </>
  );
}
