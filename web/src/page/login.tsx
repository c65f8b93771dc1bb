import { useEffect, useRef, useState } from "preact/hooks";
import { feed } from "../feed";
import { useFeed } from "../hooks";

/** Shown on 401. The token stays in this tab. */
export function Login() {
  const { refusal } = useFeed();
  const [token, setToken] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = (e: Event) => {
    e.preventDefault();
    const t = token.trim();
    if (t) feed.login(t);
  };
  return (
    <main id="main" class="gate" tabIndex={-1}>
      <form class="panel login" onSubmit={submit}>
        <h1>Token needed</h1>
        <p>
          This control plane shows its dependencies to tokens with the role <code>read</code>; orders need{" "}
          <code>operate</code>.
        </p>
        {refusal && (
          <p class="error" role="alert" id="refusal">
            {capital(refusal)}.
          </p>
        )}
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          spellcheck={false}
          required
          aria-describedby={refusal ? "refusal token-hint" : "token-hint"}
          value={token}
          onInput={(e) => setToken(e.currentTarget.value)}
          ref={field}
        />
        <p id="token-hint" class="quiet">
          It is kept in this tab until you close it. <code>controlplane token</code> makes a new one.
        </p>
        <button type="submit" class="primary">
          Show dependencies
        </button>
      </form>
    </main>
  );
}

/** Shown on 403: the token is known, and that is all. */
export function NoAccess() {
  const { refusal } = useFeed();
  return (
    <main id="main" class="gate" tabIndex={-1}>
      <section class="panel login">
        <h1>No access</h1>
        <p class="error">{capital(refusal)}</p>
        <p class="quiet">Ask whoever runs this control plane for a token with the role “read”.</p>
        <button type="button" class="primary" onClick={() => feed.logout()}>
          Use another token
        </button>
      </section>
    </main>
  );
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
