// Package storm runs fleets against a failing dependency, to measure what retries do to it: with the real client, the
// real control plane and the embedded store, in virtual time. Only tests and benchmarks use it.
package storm
