// Requests to the API, with the token of this tab.

import type { ProblemBody } from "./wire";

const KEY = "retryplane-token";

/** The token lives as long as the tab. A browser that forbids storage keeps it in memory only. */
let token = "";
try {
  token = sessionStorage.getItem(KEY) ?? "";
} catch {
  // stays ""
}

export const hasToken = () => token !== "";

export function setToken(to: string): void {
  token = to;
  try {
    if (to) sessionStorage.setItem(KEY, to);
    else sessionStorage.removeItem(KEY);
  } catch {
    // as above
  }
}

/** An error answer of the API. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly fields: { field: string; limit: string }[];

  constructor(status: number, body: ProblemBody) {
    super(body.detail || body.title || `The server answered ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.fields = body.errors ?? [];
  }
}

export interface Ask {
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** Paths are relative to the page, which may be served below a path. Throws Problem, or TypeError without a server. */
export async function ask(path: string, { method = "GET", body, signal, headers }: Ask = {}): Promise<Response> {
  const all: Record<string, string> = { ...headers };
  if (token) all.Authorization = `Bearer ${token}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method,
    headers: all,
    signal,
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
  });
  if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

export async function read<T>(path: string, options: Ask = {}): Promise<T> {
  return (await ask(path, options)).json() as Promise<T>;
}

/** Names contain slashes, which travel escaped. */
export const dependencyPath = (name: string) => `v1/dependencies/${encodeURIComponent(name)}`;

/** What went wrong, for people. */
export function describe(e: unknown): string {
  if (e instanceof Problem) return e.message;
  return "The control plane cannot be reached.";
}
