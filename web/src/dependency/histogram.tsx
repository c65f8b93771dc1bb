import { count, percent } from "../format";
import type { Dependency } from "../wire";

const labels = ["1", "2", "3", "4", "5+"];

/** How many attempts the requests of the window took. */
export function Histogram({ d }: { d: Dependency }) {
  const list = labels.map((_, i) => d.window.attempts_per_request[i] ?? 0);
  const all = list.reduce((a, b) => a + b, 0);
  return (
    <section class="panel histogram" aria-labelledby="histogram-title">
      <h2 id="histogram-title">
        Attempts per request <span class="quiet">last {d.budget.window_ms / 1000} s</span>
      </h2>
      {all === 0 ? (
        <p class="quiet hollow small">No request ended in the window.</p>
      ) : (
        <table>
          <thead class="unseen">
            <tr>
              <th scope="col">Attempts</th>
              <th scope="col">Share as a bar</th>
              <th scope="col">Requests</th>
              <th scope="col">Share</th>
            </tr>
          </thead>
          <tbody>
            {labels.map((label, i) => (
              <tr key={label}>
                <th scope="row">{label}</th>
                <td class="wide">
                  <span class="bar" aria-hidden="true">
                    <span class={i > 0 ? "retry" : ""} style={{ width: `${((100 * list[i]!) / all).toFixed(1)}%` }} />
                  </span>
                </td>
                <td class="n">{count(list[i]!)}</td>
                <td class="n quiet">{percent(list[i]!, all)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
