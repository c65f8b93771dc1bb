// The JSON of /v1 as far as the page reads it. pkg/wire is the original.

export type State = "closed" | "half_open" | "open";
export type Mode = "force_open" | "force_closed" | "no_retries";

export interface Dependency {
  name: string;
  breaker: {
    effective: State;
    automatic: {
      state: State;
      reason: string;
      epoch: string;
      generation: number;
      since: string | null; // of the episode, or of the closed state
      reopenings: number;
      remaining_ms: number;
      admit_ppm: number;
    };
    override: Override | null;
  };
  budget: Budget;
  window: Window;
  policy: Policy;
  not_before: string | null;
  as_of: string;
}

export interface Override {
  mode: Mode;
  reason: string;
  actor: string;
  created_at: string;
  expires_at: string;
  revision: number;
  applied_by: number;
  instances: number;
}

export interface Budget {
  ratio_ppm: number;
  floor: number;
  window_ms: number;
  requests: number;
  retries: number;
  allowed: number;
  remaining: number; // below zero after retries that nobody granted
  denied: number;
}

export interface Window {
  requests: number;
  attempts: number;
  success: number;
  failure: number;
  throttled: number;
  ignored: number;
  retry_ratio: number;
  rejected_breaker: number;
  rejected_budget: number;
  attempts_per_request: number[]; // 1, 2, 3, 4, 5 and more
  instances: number;
  failing_instances: number;
}

export interface Policy {
  source: string;
  version: number;
  breaker?: Partial<Record<string, number | number[]>>;
  budget?: Partial<Record<string, number>>;
  retry?: Partial<Record<string, number | string | boolean>>;
  view_ttl_ms?: number;
}

export interface Transition {
  dependency: string;
  from: string;
  to: string;
  generation: number;
  reason: string;
  cause: string;
  actor: string; // "" = automatic
  at: string;
}

export interface TransitionList {
  transitions: Transition[];
  next?: string;
}

/** One number per step in each list, the oldest first. */
export interface Series {
  name: string;
  step_ms: number;
  start: string | number;
  requests: number[];
  attempts: number[];
  success: number[];
  failure: number[];
  throttled: number[];
  rejected_breaker: number[];
  rejected_budget: number[];
}

export interface Whoami {
  name: string;
  roles: string[];
  dependencies?: string[];
}

export interface Status {
  version: string;
  degraded: boolean;
  store: string;
}

export interface ProblemBody {
  title?: string;
  status?: number;
  code?: string;
  detail?: string;
  errors?: { field: string; limit: string }[];
}
