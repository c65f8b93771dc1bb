// Shapes that tell the states apart without colour: a stop sign, a half-filled diamond, a ring.

import type { State } from "../wire";

export function StateIcon({ state }: { state: State }) {
  return (
    <svg class={`icon ${state}`} viewBox="0 0 14 14" width="14" height="14" aria-hidden="true" focusable="false">
      {state === "open" && <path d="M4.4 1h5.2L13 4.4v5.2L9.6 13H4.4L1 9.6V4.4z" fill="currentColor" />}
      {state === "half_open" && (
        <>
          <path d="M7 1.2 12.8 7 7 12.8 1.2 7z" fill="none" stroke="currentColor" stroke-width="1.6" />
          <path d="M7 1.2v11.6L1.2 7z" fill="currentColor" />
        </>
      )}
      {state === "closed" && <circle cx="7" cy="7" r="4" fill="none" stroke="currentColor" stroke-width="1.8" />}
    </svg>
  );
}

export function Mark() {
  return (
    <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="7" fill="#1f5fbf" />
      <path d="M5 16h7l9-7M21 16h6" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" />
      <circle cx="12" cy="16" r="2.6" fill="#fff" />
      <circle cx="21" cy="16" r="2.6" fill="#fff" />
    </svg>
  );
}
