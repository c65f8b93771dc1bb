// The log of one dependency, the newest first: what the server remembers, and what came since by the stream.

import { useEffect, useState } from "preact/hooks";
import { wordOf } from "../condition";
import { moment, spoken } from "../format";
import { useFeed } from "../hooks";
import { StateIcon } from "../page/icon";
import { describe, read } from "../request";
import type { State, Transition, TransitionList } from "../wire";

const causeWord: Record<string, string> = {
  trip: "tripped",
  reopen: "reopened",
  probe: "time to probe",
  recovered: "recovered",
  operator: "order",
  expiry: "order ended",
  reset: "reset",
};

const within = (t: Transition) => t.cause === "reopen" || t.cause === "probe";
const keyOf = (t: Transition) => `${t.at} ${t.generation} ${t.to} ${t.cause}`;

export function Transitions({ name, now }: { name: string; now: number }) {
  const feed = useFeed();
  const [all, setAll] = useState(false); // also within episodes
  const [log, setLog] = useState<{ list: Transition[]; next: string; trouble: string } | undefined>();

  const load = async (cursor: string, before: Transition[], signal?: AbortSignal) => {
    const query = new URLSearchParams({ dependency: name, limit: "50" });
    if (all) query.set("reopenings", "true");
    if (cursor) query.set("cursor", cursor);
    try {
      const page = await read<TransitionList>(`v1/transitions?${query}`, { signal });
      setLog({ list: [...before, ...(page.transitions ?? [])], next: page.next ?? "", trouble: "" });
    } catch (e) {
      if (!signal?.aborted) setLog({ list: before, next: cursor, trouble: describe(e) });
    }
  };
  // Again after a reconnection: the stream does not repeat what was missed.
  useEffect(() => {
    if (!feed.connected) return;
    const gone = new AbortController();
    void load("", [], gone.signal);
    return () => gone.abort();
  }, [name, all, feed.connected]);

  const known = new Set<string>();
  const rows = [...feed.transitions.filter((t) => t.dependency === name && (all || !within(t))), ...(log?.list ?? [])]
    .filter((t) => !known.has(keyOf(t)) && known.add(keyOf(t)))
    .sort((a, b) => Date.parse(b.at) - Date.parse(a.at) || b.generation - a.generation);

  return (
    <section class="panel transitions" aria-labelledby="transitions-title">
      <h2 id="transitions-title">Transitions</h2>
      <label class="toggle">
        <input type="checkbox" checked={all} onChange={(e) => setAll(e.currentTarget.checked)} /> with probing and reopening
      </label>
      {rows.length > 0 ? (
        <div class="log" tabIndex={0} role="region" aria-label="Transitions, the newest first">
          <ol>
            {rows.map((t) => (
              <Entry key={keyOf(t)} t={t} now={now} />
            ))}
          </ol>
        </div>
      ) : (
        <p class="hollow small quiet">{!log ? "Reading …" : log.trouble || "It has never left closed."}</p>
      )}
      {rows.length > 0 && log?.trouble && <p class="error">{log.trouble}</p>}
      {log?.next && (
        <button type="button" class="small" onClick={() => void load(log.next, log.list)}>
          Older
        </button>
      )}
    </section>
  );
}

function Entry({ t, now }: { t: Transition; now: number }) {
  return (
    <li>
      <time dateTime={t.at} title={t.at}>
        {moment(Date.parse(t.at), now)}
      </time>
      <span class="to">
        <StateIcon state={t.to as State} />
        <span class="quiet">{wordOf(t.from)} → </span>
        <b>{wordOf(t.to)}</b>
      </span>
      <span class="why">
        {causeWord[t.cause] ?? t.cause}
        {t.actor && ` by ${t.actor}`}
        {t.reason && <span class="quiet"> · {t.actor ? `“${t.reason}”` : spoken(t.reason)}</span>}
      </span>
    </li>
  );
}
