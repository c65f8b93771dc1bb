// The bar above the table: what the fleet does as a whole, and what of it is shown. Both live in the address.

import { useLayoutEffect, useRef } from "preact/hooks";
import { passes, requestRate, type Filter } from "../condition";
import { count, percent, rate } from "../format";
import { StateIcon } from "../page/icon";
import type { Dependency, State } from "../wire";

const choices: { filter: Filter; label: string; icon?: State }[] = [
  { filter: "", label: "All" },
  { filter: "open", label: "Open", icon: "open" },
  { filter: "half_open", label: "Half-open", icon: "half_open" },
  { filter: "forced", label: "Overridden" },
  { filter: "closed", label: "Closed", icon: "closed" },
];

interface Props {
  all: Dependency[]; // that the words match
  words: string;
  filter: Filter;
  onChange(words: string, filter: Filter): void;
}

export function Filters({ all, words, filter, onChange }: Props) {
  const search = useRef<HTMLInputElement>(null);
  // Before the first painting: who sees the key's name may press it.
  useLayoutEffect(() => {
    const onKey = (e: KeyboardEvent) => {
      if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || typing(e.target)) return;
      e.preventDefault();
      search.current?.focus();
      search.current?.select();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  return (
    <div class="filters">
      <label class="search">
        <span class="unseen">Search dependencies by name</span>
        <input
          ref={search}
          type="search"
          placeholder="Search by name"
          autocomplete="off"
          spellcheck={false}
          value={words}
          onInput={(e) => onChange(e.currentTarget.value, filter)}
        />
        <kbd aria-hidden="true">/</kbd>
      </label>
      <div class="choices" role="group" aria-label="Show">
        {choices.map((c) => (
          <button
            type="button"
            key={c.filter}
            aria-pressed={filter === c.filter}
            onClick={() => onChange(words, filter === c.filter ? "" : c.filter)}
          >
            {c.icon && <StateIcon state={c.icon} />}
            {c.label} <b>{count(all.filter((d) => passes(d, c.filter)).length)}</b>
          </button>
        ))}
      </div>
      <Totals all={all} />
    </div>
  );
}

function Totals({ all }: { all: Dependency[] }) {
  let perSecond = 0;
  let requests = 0;
  let retries = 0;
  for (const d of all) {
    perSecond += requestRate(d);
    requests += d.window.requests;
    retries += Math.max(0, d.window.attempts - d.window.requests);
  }
  return (
    <dl class="totals">
      <div>
        <dt>Requests/s</dt>
        <dd>{rate(perSecond)}</dd>
      </div>
      <div>
        <dt>Retry ratio</dt>
        <dd>{percent(retries, requests)}</dd>
      </div>
    </dl>
  );
}

export function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.closest("dialog") !== null);
}
