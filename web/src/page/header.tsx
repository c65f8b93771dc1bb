import { severity } from "../condition";
import { feed } from "../feed";
import { useFeed, useRoute } from "../hooks";
import { hasToken } from "../request";
import { FreshnessBadge } from "./freshness";
import { Mark } from "./icon";
import { useEffect } from "preact/hooks";

export function Header() {
  const { dependencies, whoami, status, access } = useFeed();
  const route = useRoute();
  let unwell = 0;
  for (const d of dependencies.values()) if (severity(d) < 2) unwell++;

  // A tab in the background shows its title only.
  useEffect(() => {
    document.title = `${unwell ? `(${unwell}) ` : ""}${route.name ? `${route.name} · ` : ""}Retryplane`;
  }, [unwell, route.name]);

  return (
    <header class="top">
      <a class="brand" href="#/">
        <Mark />
        Retryplane
      </a>
      <div class="aside">
        {access === "granted" && whoami && (
          <p class="who">
            {whoami.name}
            <span class="quiet"> · {whoami.roles.includes("operate") ? "may operate" : "read only"}</span>
          </p>
        )}
        {status && <p class="who quiet store">{status.store === "embedded" ? "embedded store" : status.store}</p>}
        <FreshnessBadge />
        {hasToken() && (
          <button type="button" class="small" onClick={() => feed.logout()}>
            Forget token
          </button>
        )}
      </div>
    </header>
  );
}
