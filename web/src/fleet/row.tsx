import { hidden, leftAlone, modeWord, requestRate, retriesRest, severity, since, spent, stateWord, wordOf } from "../condition";
import { count, duration, percent, ppm, rate, share, spoken } from "../format";
import { StateIcon } from "../page/icon";
import { dependencyHash } from "../route";
import type { Dependency } from "../wire";

const grades = ["open", "half", "forced", "spent", ""];

export function Row({ d, now, index }: { d: Dependency; now: number; index: number }) {
  const w = d.window;
  const b = d.breaker;
  const from = since(d);
  return (
    <tr
      class={grades[severity(d)]}
      data-name={d.name}
      data-state={b.effective}
      data-generation={b.automatic.generation}
      aria-rowindex={index}
    >
      <th scope="row">
        <a href={dependencyHash(d.name)} title={d.name}>
          {d.name}
        </a>
      </th>
      <td class="c-state">
        <StateIcon state={b.effective} />
        <span class={`word ${b.effective}`}>{stateWords(d)}</span>
        <Second text={[leftAlone(d, now), stateDetail(d, now)].filter(Boolean).join(" · ")} />
      </td>
      <td class="n">{from === undefined ? <span class="quiet">–</span> : duration(now - from)}</td>
      <td class="n">
        {rate(requestRate(d))}
        <Second text={w.rejected_breaker > 0 ? `${count(w.rejected_breaker)} rejected` : ""} />
      </td>
      <td class="n">
        <span class={w.failure > 0 && w.failure >= w.success ? "bad" : ""}>{percent(w.failure, w.success + w.failure)}</span>
        <Second text={w.throttled > 0 ? `${count(w.throttled)} throttled` : ""} />
      </td>
      <td class="c-retry">
        <BudgetBar d={d} />
      </td>
      <td class="n">
        {count(w.instances)}
        <Second text={w.failing_instances > 0 ? `${count(w.failing_instances)} failing` : ""} />
      </td>
    </tr>
  );
}

function Second({ text }: { text: string }) {
  return text ? <small title={text}>{text}</small> : null;
}

/** The state in words, with the operator's word where one gave an order. */
export function stateWords(d: Dependency): string {
  const { effective, override } = d.breaker;
  if (!override || override.mode === "no_retries") return stateWord[effective] ?? effective;
  return modeWord[override.mode] ?? override.mode;
}

function stateDetail(d: Dependency, now: number): string {
  const { effective, automatic, override } = d.breaker;
  if (override) {
    const calculated = hidden(d);
    const left = `${duration(Date.parse(override.expires_at) - now)} left`;
    return `${calculated ? `calculated: ${wordOf(calculated).toLowerCase()}` : modeWord[override.mode]} · ${left}`;
  }
  if (effective === "closed") return spent(d) ? "retry budget spent" : "";
  if (effective === "half_open" && automatic.admit_ppm > 0) return `admits ${ppm(automatic.admit_ppm)}`;
  const again = automatic.reopenings > 0 ? ` · reopened ${count(automatic.reopenings)}×` : "";
  return spoken(automatic.reason) + again;
}

/** How much of what the fleet may retry it has used, in the window. The text says it without the bar. */
export function BudgetBar({ d }: { d: Dependency }) {
  const { budget, window: w } = d;
  const retries = Math.max(0, w.attempts - w.requests);
  const used = budget.allowed > 0 ? Math.min(1, budget.retries / budget.allowed) : budget.retries > 0 ? 1 : 0;
  const rest = retriesRest(d);
  const level = rest ? "rest" : spent(d) || used >= 1 ? "over" : used >= 0.75 ? "near" : "";
  const denied = budget.denied > 0 ? ` · ${count(budget.denied)} denied` : "";
  return (
    <div class={`budget ${level}`}>
      <span class="bar" aria-hidden="true">
        <span style={{ width: rest ? "0" : `${(used * 100).toFixed(1)}%` }} />
      </span>
      <span class="figures">
        <span>{w.requests > 0 ? share(retries / w.requests) : "–"}</span>
        <span class="quiet"> / {ppm(budget.ratio_ppm)}</span>
      </span>
      <small>
        {rest
          ? `no retries while ${wordOf(d.breaker.effective).toLowerCase()}`
          : `${count(budget.retries)} of ${count(budget.allowed)} retries${denied}`}
      </small>
    </div>
  );
}
