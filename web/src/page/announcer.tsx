// Says aloud what changed, for those who do not see it: transitions that matter, and the loss of the connection.

import { useEffect, useRef, useState } from "preact/hooks";
import { wordOf } from "../condition";
import { useFeed, useNow } from "../hooks";
import { freshness } from "./freshness";

let say: (text: string) => void = () => {};

/** Says something to screen readers that the eye sees by itself. */
export const announce = (text: string) => say(text);

export function Announcer() {
  const feed = useFeed();
  useNow();
  const [text, setText] = useState("");
  say = setText;
  const newest = feed.transitions[0];
  const kind = freshness(feed, Date.now(), navigator.onLine);
  const was = useRef(kind);

  useEffect(() => {
    // Reopenings and probings come every few seconds while something is down.
    if (newest && newest.cause !== "reopen" && newest.cause !== "probe") {
      setText(`${newest.dependency}: ${wordOf(newest.to)}`);
    }
  }, [newest]);

  useEffect(() => {
    if (was.current !== kind && (was.current === "live" || kind === "live") && was.current !== "connecting") {
      setText(kind === "live" ? "Live again" : "Connection lost, figures are old");
    }
    was.current = kind;
  }, [kind]);

  return (
    <p class="unseen" role="status" aria-live="polite">
      {text}
    </p>
  );
}
