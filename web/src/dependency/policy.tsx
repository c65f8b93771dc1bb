// The numbers that steer a dependency, the ones that people ask for.

import { ppm, span } from "../format";
import type { Dependency } from "../wire";

export function PolicySummary({ d }: { d: Dependency }) {
  const p = d.policy;
  return (
    <section class="panel policy" aria-labelledby="policy-title">
      <h2 id="policy-title">
        Policy <span class="quiet">{p.version === 0 ? "default" : `${p.source}, version ${p.version}`}</span>
      </h2>
      <dl>
        {rows(d).map(([term, text]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

/** A field that is missing comes from a server that says it in another way: its row is left out. */
function rows({ policy: p }: Dependency): [string, string][] {
  const b = (p.breaker ?? {}) as Record<string, number>;
  const g = (p.budget ?? {}) as Record<string, number>;
  const r = (p.retry ?? {}) as Record<string, number>;
  const all: [string, string | false][] = [
    ["Trips at", has(b.failure_rate_ppm, b.min_attempts) && `${ppm(b.failure_rate_ppm!)} of at least ${b.min_attempts} attempts`],
    ["or after", has(b.consecutive_failures) && (b.consecutive_failures! > 0 ? `${b.consecutive_failures} failures in a row` : "off")],
    ["Quorum", has(b.min_failing_instances, b.min_failing_share_ppm) && `${b.min_failing_instances} instances, ${ppm(b.min_failing_share_ppm!)}`],
    ["Opens for", has(b.open_for_ms, b.open_max_ms) && `${span(b.open_for_ms!)} up to ${span(b.open_max_ms!)}`],
    ["Probes", has(b.probes, b.probe_successes) && `${b.probe_successes} of ${b.probes} must succeed`],
    ["Budget", has(g.ratio_ppm, g.floor, g.window_ms) && `${ppm(g.ratio_ppm!)} + ${g.floor} per ${span(g.window_ms!)}`],
    ["Attempts", has(r.attempts, r.deadline_ms) && `${r.attempts} within ${span(r.deadline_ms!)}`],
    ["Timeout", has(r.attempt_timeout_ms) && `${span(r.attempt_timeout_ms!)} per attempt`],
    ["Backoff", has(r.base_ms, r.cap_ms) && `${span(r.base_ms!)} to ${span(r.cap_ms!)}, ${String(r.jitter ?? "")} jitter`],
  ];
  return all.filter((row): row is [string, string] => row[1] !== false);
}

const has = (...fields: (number | undefined)[]) => fields.every((f) => f !== undefined);
