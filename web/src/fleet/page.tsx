// The fleet: every dependency, the most severe first.

import type { ComponentChildren } from "preact";
import { bySeverity, passes, type Filter } from "../condition";
import { useFeed, useNow } from "../hooks";
import { Notice } from "../page/notice";
import { fleetHash, replaceHash } from "../route";
import { Filters } from "./filters";
import { Table } from "./table";

/** Where the reader was, for the way back from a dependency. */
export const place = { hash: "#/", top: 0, name: "" };

export function FleetPage({ query }: { query: URLSearchParams }) {
  const feed = useFeed();
  const now = useNow();
  const words = query.get("q") ?? "";
  const filter = (query.get("state") ?? "") as Filter;
  place.hash = fleetHash(query);

  const change = (q: string, state: Filter) => {
    const next = new URLSearchParams();
    if (q) next.set("q", q);
    if (state) next.set("state", state);
    replaceHash(fleetHash(next));
  };

  if (!feed.loaded) return <Named page={<Waiting />} />;
  const all = [...feed.dependencies.values()];
  if (all.length === 0) return <Named page={<Empty />} />;

  const wanted = words.trim().toLowerCase();
  const found = all.filter((d) => d.name.includes(wanted));
  const shown = found.filter((d) => passes(d, filter)).sort(bySeverity);
  const page = (
    <>
      <Filters all={found} words={words} filter={filter} onChange={change} />
      {shown.length > 0 ? (
        <Table rows={shown} now={now} />
      ) : (
        <Notice title="Nothing matches">
          <p>
            None of {all.length} dependencies matches{words && ` “${words}”`}
            {filter && " in this state"}.
          </p>
          <button type="button" onClick={() => change("", "")}>
            Show all
          </button>
        </Notice>
      )}
    </>
  );
  return <Named page={page} />;
}

/** The page's heading is for those who cannot see what it is. */
function Named({ page }: { page: ComponentChildren }) {
  return (
    <>
      <h1 class="unseen">Dependencies</h1>
      {page}
    </>
  );
}

function Waiting() {
  const { heard, connected } = useFeed();
  const now = useNow();
  const failed = !connected && heard === 0 && now > 0 && performance.now() > 5000;
  return failed ? (
    <Notice title="The control plane cannot be reached" bad>
      <p>The page keeps trying and fills by itself as soon as there is an answer.</p>
      <p class="quiet">Instances go on meanwhile, each with its own breaker and its own budget.</p>
    </Notice>
  ) : (
    <p class="waiting quiet">Reading dependencies …</p>
  );
}

function Empty() {
  return (
    <Notice title="No dependency yet">
      <p>A dependency appears here with the first call that an instance guards:</p>
      <pre tabIndex={0}>
        <code>{`c, err := client.New("${location.origin}")
err = c.Dependency("payments").Do(ctx, pay)`}</code>
      </pre>
    </Notice>
  );
}
