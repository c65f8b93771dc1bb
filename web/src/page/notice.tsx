// What stands where content would: nothing there yet, nothing found, something wrong.

import type { ComponentChildren } from "preact";

export function Notice({ title, bad, children }: { title: string; bad?: boolean; children?: ComponentChildren }) {
  return (
    <section class={bad ? "notice bad" : "notice"}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}
