// What stands where content would: nothing there yet, nothing found, something wrong.

import type { ComponentChildren } from "preact";

interface Props {
  title: string;
  bad?: boolean;
  alone?: boolean; // its title is the page's
  children?: ComponentChildren;
}

export function Notice({ title, bad, alone, children }: Props) {
  const Title = alone ? "h1" : "h2";
  return (
    <section class={bad ? "notice bad" : "notice"}>
      <Title>{title}</Title>
      {children}
    </section>
  );
}
