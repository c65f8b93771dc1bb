// The page's address lives behind the '#': the server serves one file, and a bookmark still finds everything.
//
//   #/?q=pay&state=open         the fleet, filtered
//   #/dependencies/billing%2Fv1 one dependency

export interface Route {
  page: "fleet" | "dependency" | "missing";
  name: string; // of the dependency
  query: URLSearchParams;
}

const listeners = new Set<() => void>();

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  const params = new URLSearchParams(query);
  if (path === "" || path === "/") return { page: "fleet", name: "", query: params };
  const found = /^\/dependencies\/([^/]+)$/.exec(path);
  if (found) {
    try {
      return { page: "dependency", name: decodeURIComponent(found[1]!), query: params };
    } catch {
      // a broken escape
    }
  }
  return { page: "missing", name: "", query: params };
}

export const route = () => parse(location.hash);

export const dependencyHash = (name: string) => `#/dependencies/${encodeURIComponent(name)}`;

export function fleetHash(query: URLSearchParams): string {
  const text = query.toString();
  return text ? `#/?${text}` : "#/";
}

/** Changes the address without a new entry in the history: typing in a filter is one step, not ten. */
export function replaceHash(hash: string): void {
  history.replaceState(history.state, "", hash);
  for (const fn of listeners) fn();
}

export function onRoute(fn: () => void): () => void {
  listeners.add(fn);
  addEventListener("hashchange", fn);
  return () => {
    listeners.delete(fn);
    removeEventListener("hashchange", fn);
  };
}
