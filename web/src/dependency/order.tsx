// The dialog of an order: mode, reason, term. What was typed stays until the server took it.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { feed } from "../feed";
import { announce } from "../page/announcer";
import { dependencyPath, describe, Problem, read } from "../request";
import type { Dependency, Mode } from "../wire";
import { HOUR, parseTerm, presets, units, type Term } from "./term";

export type Choice = Mode | "automatic";

const MIN_REASON = 8;

const choices: { choice: Choice; label: string; effect: string }[] = [
  { choice: "force_open", label: "Force open", effect: "Every call is rejected at once, in the whole fleet." },
  { choice: "force_closed", label: "Force closed", effect: "Every call passes, whatever the failures. Retries keep their budget." },
  { choice: "no_retries", label: "No retries", effect: "First attempts pass as the breaker says; nobody retries." },
  { choice: "automatic", label: "Back to automatic", effect: "The calculated state applies again at once." },
];

interface Wrong {
  reason?: string;
  term?: string;
  other?: string;
}

export function OrderDialog({ d, choice: begin, onClose }: { d: Dependency; choice: Choice; onClose(): void }) {
  const [choice, setChoice] = useState(begin);
  const [reason, setReason] = useState("");
  const [term, setTerm] = useState<Term>({ preset: HOUR, amount: "", unit: HOUR });
  const [wrong, setWrong] = useState<Wrong>({});
  const [busy, setBusy] = useState(false);
  // The order is made against what the reader saw when the dialog opened, so that two operators do not undo each other
  // unseen. After a refusal it is what he sees then.
  const seen = useRef(d.breaker.override?.revision ?? 0);
  const sending = useRef(false); // at once, where a state would come with the next drawing: a double click is one order
  const dialog = useRef<HTMLDialogElement>(null);
  const automatic = choice === "automatic";
  const override = d.breaker.override;

  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    const own = dialog.current!;
    own.showModal();
    own.querySelector<HTMLElement>(begin === "automatic" ? "button[type=submit]" : "#reason")?.focus();
    return () => {
      own.close(); // the rest of the page is inert until then
      before?.focus();
    };
  }, []);

  const submit = async (e: Event) => {
    e.preventDefault();
    if (sending.current) return;
    const parsed = parseTerm(term);
    const found: Wrong = {};
    if (!automatic && reason.trim().length < MIN_REASON) found.reason = `At least ${MIN_REASON} characters, for whoever reads the log.`;
    if (!automatic && "wrong" in parsed) found.term = parsed.wrong;
    setWrong(found);
    const field = found.reason ? "#reason" : found.term ? "#amount" : "";
    if (field) {
      dialog.current!.querySelector<HTMLElement>(field)?.focus();
      return;
    }
    sending.current = true;
    setBusy(true);
    try {
      const path = `${dependencyPath(d.name)}/override`;
      const headers = { "If-Match": `"${seen.current}"` };
      const body = automatic || "wrong" in parsed ? undefined : { mode: choice, reason: reason.trim(), expires_in_ms: parsed.ms };
      feed.put(await read<Dependency>(path, { method: automatic ? "DELETE" : "PUT", body, headers }));
      announce(`${d.name}: ${choices.find((c) => c.choice === choice)!.label}, ordered`);
      onClose();
    } catch (err) {
      setWrong(refusal(err));
      seen.current = feed.dependencies.get(d.name)?.breaker.override?.revision ?? 0;
    } finally {
      sending.current = false;
      setBusy(false);
    }
  };

  return (
    <dialog
      ref={dialog}
      class="order"
      aria-labelledby="order-title"
      onCancel={(e) => {
        e.preventDefault(); // the component goes, and takes the dialog with it
        if (!busy) onClose();
      }}
    >
      <form onSubmit={submit} noValidate aria-busy={busy}>
        <h2 id="order-title">
          Order for <span class="name">{d.name}</span>
        </h2>
        <fieldset class="modes">
          <legend>Mode</legend>
          {choices
            .filter((c) => c.choice !== "automatic" || override)
            .map((c) => (
              <label key={c.choice}>
                <input type="radio" name="mode" value={c.choice} checked={choice === c.choice} onChange={() => setChoice(c.choice)} />
                <span>
                  <b>{c.label}</b>
                  <small>{c.effect}</small>
                </span>
              </label>
            ))}
        </fieldset>
        {!automatic && (
          <>
            <Reason value={reason} wrong={wrong.reason} onInput={setReason} />
            <TermField term={term} wrong={wrong.term} onChange={setTerm} />
          </>
        )}
        {wrong.other && (
          <p class="error" role="alert">
            {wrong.other}
          </p>
        )}
        <div class="actions">
          <button type="button" onClick={onClose} disabled={busy}>
            Cancel
          </button>
          <button type="submit" class={choice === "force_open" ? "primary danger" : "primary"} aria-busy={busy}>
            {busy ? "Sending …" : choices.find((c) => c.choice === choice)!.label}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** Sorts a refusal to the fields that it names. */
function refusal(err: unknown): Wrong {
  if (!(err instanceof Problem)) return { other: `${describe(err)} Nothing was changed as far as this page knows.` };
  if (err.status === 412 || err.status === 409) {
    return { other: "Somebody else gave an order meanwhile. The page shows it now; send again to replace it." };
  }
  const wrong: Wrong = {};
  const rest: string[] = [];
  for (const f of err.fields) {
    if (f.field === "reason") wrong.reason = `Must be ${f.limit}.`;
    else if (f.field === "expires_in_ms") wrong.term = `Must be ${f.limit} ms.`;
    else rest.push(`${f.field}: ${f.limit}`);
  }
  if (rest.length > 0 || err.fields.length === 0) wrong.other = [err.message, ...rest].join("; ");
  return wrong;
}

function Reason({ value, wrong, onInput }: { value: string; wrong?: string; onInput(v: string): void }) {
  return (
    <div class="field">
      <label for="reason">Reason</label>
      <input
        id="reason"
        type="text"
        autocomplete="off"
        maxLength={500}
        value={value}
        placeholder="Provider maintenance until 14:00"
        required
        aria-invalid={wrong ? true : undefined}
        aria-describedby={wrong ? "reason-wrong" : undefined}
        onInput={(e) => onInput(e.currentTarget.value)}
      />
      {wrong && (
        <p class="error" id="reason-wrong" role="alert">
          {wrong}
        </p>
      )}
    </div>
  );
}

function TermField({ term, wrong, onChange }: { term: Term; wrong?: string; onChange(t: Term): void }) {
  return (
    <fieldset class="field term">
      <legend>For</legend>
      <div class="presets">
        {[...presets, { label: "Custom", ms: 0 }].map((p) => (
          <label key={p.ms}>
            <input type="radio" name="term" checked={term.preset === p.ms} onChange={() => onChange({ ...term, preset: p.ms })} />
            <span>{p.label}</span>
          </label>
        ))}
      </div>
      {term.preset === 0 && (
        <div class="custom">
          <input
            id="amount"
            type="text"
            inputMode="decimal"
            aria-label="Amount"
            autocomplete="off"
            value={term.amount}
            aria-invalid={wrong ? true : undefined}
            aria-describedby={wrong ? "term-wrong" : undefined}
            onInput={(e) => onChange({ ...term, amount: e.currentTarget.value })}
          />
          <select aria-label="Unit" value={String(term.unit)} onChange={(e) => onChange({ ...term, unit: Number(e.currentTarget.value) })}>
            {units.map((u) => (
              <option key={u.ms} value={String(u.ms)}>
                {u.label}
              </option>
            ))}
          </select>
          <span class="quiet">at most 7 days</span>
        </div>
      )}
      {wrong && (
        <p class="error" id="term-wrong" role="alert">
          {wrong}
        </p>
      )}
    </fieldset>
  );
}
