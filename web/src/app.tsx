// The frame around both pages: who is asking, how fresh it is, and what stands in the way.

import { useEffect, useRef } from "preact/hooks";
import { DependencyPage } from "./dependency/page";
import { FleetPage } from "./fleet/page";
import { useFeed, useRoute } from "./hooks";
import { Announcer } from "./page/announcer";
import { Header } from "./page/header";
import { Notice } from "./page/notice";
import { Login, NoAccess } from "./page/login";

export function App() {
  const { access, status } = useFeed();
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <Header />
      {status?.degraded && (
        <p class="banner" role="status">
          <strong>Degraded.</strong> The store does not answer. Figures are the last known ones, and orders are refused
          until it is back.
        </p>
      )}
      {access === "token" ? <Login /> : access === "role" ? <NoAccess /> : <Page />}
      <Announcer />
    </>
  );
}

/** The address after '#' is the route, so the link may not change it. */
function skip(e: Event) {
  e.preventDefault();
  document.getElementById("main")?.focus();
}

function Page() {
  const route = useRoute();
  const main = useRef<HTMLElement>(null);
  const shown = useRef(route.page + route.name);

  // A new page is read from its top by those who do not see it.
  useEffect(() => {
    if (shown.current === route.page + route.name) return;
    shown.current = route.page + route.name;
    scrollTo(0, 0);
    if (route.page !== "fleet") main.current?.focus({ preventScroll: true }); // the fleet gives the focus back to its row
  }, [route.page, route.name]);

  return (
    <main id="main" tabIndex={-1} ref={main} class={route.page}>
      {route.page === "fleet" && <FleetPage query={route.query} />}
      {route.page === "dependency" && <DependencyPage key={route.name} name={route.name} />}
      {route.page === "missing" && (
        <Notice title="There is no such page" alone>
          <p>
            Perhaps a link was cut short. <a href="#/">All dependencies</a>
          </p>
        </Notice>
      )}
    </main>
  );
}
