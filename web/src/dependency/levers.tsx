// The operator's levers. Each opens the dialog; nothing happens on one click.

import { useRef, useState } from "preact/hooks";
import { useFeed } from "../hooks";
import type { Dependency } from "../wire";
import { OrderDialog, type Choice } from "./order";

const levers: { choice: Choice; label: string }[] = [
  { choice: "force_open", label: "Force open" },
  { choice: "force_closed", label: "Force closed" },
  { choice: "no_retries", label: "No retries" },
];

// The focus comes back to the lever when its dialog closes. A second Enter of a nervous hand must not open it again.
const settleMs = 500;

export function Levers({ d }: { d: Dependency }) {
  const { whoami } = useFeed();
  const [choice, setChoice] = useState<Choice>();
  const closed = useRef(-Infinity);
  const open = (c: Choice) => {
    if (performance.now() - closed.current >= settleMs) setChoice(c);
  };
  const override = d.breaker.override;
  if (whoami && !whoami.roles.includes("operate")) {
    return <p class="levers quiet">Orders need a token with the role “operate”.</p>;
  }
  return (
    <div class="levers" role="group" aria-label="Levers">
      {levers.map((l) => (
        <button
          type="button"
          key={l.choice}
          disabled={!whoami}
          aria-haspopup="dialog"
          aria-pressed={override ? override.mode === l.choice : undefined}
          onClick={() => open(l.choice)}
        >
          {l.label}
        </button>
      ))}
      {/* Not disabled: its own success would take the focus away from it. */}
      <button type="button" aria-disabled={!whoami || !override} aria-haspopup="dialog" onClick={() => override && open("automatic")}>
        Back to automatic
      </button>
      {choice && (
        <OrderDialog
          d={d}
          choice={choice}
          onClose={() => {
            closed.current = performance.now();
            setChoice(undefined);
          }}
        />
      )}
    </div>
  );
}
