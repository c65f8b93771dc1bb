// One dependency: what it does now, what it did in the last hour, and the levers.

import { leftAlone, requestRate, retriesRest, since, stateWord } from "../condition";
import { place } from "../fleet/page";
import { BudgetBar, stateWords } from "../fleet/row";
import { count, duration, percent, ppm, rate, spoken } from "../format";
import { useFeed, useNow } from "../hooks";
import { StateIcon } from "../page/icon";
import { Notice } from "../page/notice";
import type { Dependency } from "../wire";
import { Histogram } from "./histogram";
import { History } from "./history";
import { Levers } from "./levers";
import { PolicySummary } from "./policy";
import { Transitions } from "./transitions";

export function DependencyPage({ name }: { name: string }) {
  const feed = useFeed();
  const now = useNow();
  const d = feed.dependencies.get(name);
  return (
    <>
      <nav aria-label="Breadcrumb">
        <a href={place.hash}>← All dependencies</a>
      </nav>
      {d ? (
        <>
          <Head d={d} now={now} />
          <Figures d={d} />
          <div class="columns">
            <History d={d} />
            <div class="stack">
              <Histogram d={d} />
              <PolicySummary d={d} />
            </div>
            <Transitions name={name} now={now} />
          </div>
        </>
      ) : feed.loaded ? (
        <Notice title={`No dependency “${name}”`} alone>
          <p>No instance has reported it, or it was forgotten after a day without traffic.</p>
          <p>
            It appears here by itself with the next call. <a href={place.hash}>All dependencies</a>
          </p>
        </Notice>
      ) : (
        <h1 class="waiting">{name}</h1>
      )}
    </>
  );
}

function Head({ d, now }: { d: Dependency; now: number }) {
  const b = d.breaker;
  const from = since(d);
  const asked = leftAlone(d, now);
  return (
    <section class={`head ${b.effective}`} data-name={d.name} data-state={b.effective} data-generation={b.automatic.generation}>
      <div class="title">
        <h1>{d.name}</h1>
        <p class={`state ${b.effective}`}>
          <StateIcon state={b.effective} />
          {stateWords(d)}
          {from !== undefined && <span class="quiet"> for {duration(now - from)}</span>}
        </p>
        <p class="quiet">{why(d)}</p>
        {asked && <p class="asked">{asked}</p>}
      </div>
      <Levers d={d} />
      {b.override && (
        <p class="override">
          <strong>{b.override.actor}</strong>: “{b.override.reason}”
          <span class="quiet">
            {" "}
            · ends in {duration(Date.parse(b.override.expires_at) - now)} · applied by {count(b.override.applied_by)} of{" "}
            {count(b.override.instances)} instances
            {b.override.mode !== "no_retries" && ` · calculated state: ${(stateWord[b.automatic.state] ?? b.automatic.state).toLowerCase()}`}
          </span>
        </p>
      )}
    </section>
  );
}

function left(d: Dependency): string {
  const { remaining, allowed, floor } = d.budget;
  if (retriesRest(d)) return "granted again once closed";
  return remaining < 0 ? `${count(-remaining)} overdrawn` : `of ${count(allowed)}, floor ${count(floor)}`;
}

/** Why the calculated state is what it is. */
function why(d: Dependency): string {
  const a = d.breaker.automatic;
  if (a.state === "closed") return "";
  const parts = [spoken(a.reason)];
  if (a.reopenings > 0) parts.push(`reopened ${count(a.reopenings)}×`);
  if (a.state === "half_open") parts.push(a.admit_ppm > 0 ? `admits ${ppm(a.admit_ppm)} of the calls` : "probing");
  return parts.join(" · ");
}

function Figures({ d }: { d: Dependency }) {
  const w = d.window;
  const seconds = d.budget.window_ms / 1000;
  return (
    <section aria-label={`Figures of the last ${seconds} seconds`} class="figures-row">
      <dl>
        <div>
          <dt>Requests/s</dt>
          <dd>{rate(requestRate(d))}</dd>
          <dd class="more">{w.rejected_breaker > 0 ? `${count(w.rejected_breaker)} rejected by the breaker` : "none rejected"}</dd>
        </div>
        <div>
          <dt>Failures</dt>
          <dd class={w.failure > 0 && w.failure >= w.success ? "bad" : ""}>{percent(w.failure, w.success + w.failure)}</dd>
          <dd class="more">
            {count(w.failure)} of {count(w.success + w.failure)} attempts{w.throttled > 0 && `, ${count(w.throttled)} throttled`}
          </dd>
        </div>
        <div class="wide">
          <dt>Retry ratio / budget</dt>
          <dd>
            <BudgetBar d={d} />
          </dd>
        </div>
        <div>
          <dt>Retries left</dt>
          <dd>{retriesRest(d) ? "–" : count(Math.max(0, d.budget.remaining))}</dd>
          <dd class="more">{left(d)}</dd>
        </div>
        <div>
          <dt>Instances</dt>
          <dd>{count(w.instances)}</dd>
          <dd class="more">{w.failing_instances > 0 ? `${count(w.failing_instances)} failing` : "reporting"}</dd>
        </div>
      </dl>
    </section>
  );
}
