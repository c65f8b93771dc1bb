// Package policy decides: when a breaker opens and closes, how many retries a budget has left, how long to wait, and
// whether to try again. Values go in, values come out; the time and the random draws are arguments. There is no clock
// in here, no lock, no log and no I/O, so that the control plane decides for the fleet and each instance for itself
// with the same code, and tests can replay any history.
//
// # The breaker
//
// One breaker per dependency, shared by the fleet. Each arrow is one transition, raises the generation by one, and
// starts the rule counters from nothing.
//
//	                 trip: a rule and the quorum
//	     +-------------------------------------------------+
//	     |                                                 v
//	+---------+                                       +---------+
//	| closed  |                                       |  open   |<-----------------+
//	+---------+                                       +---------+                  |
//	  ^     ^                                              |                       |
//	  |     |                                              | probe: the open time  |
//	  |     |                                              | is over and somebody  |
//	  |     |                                              | asks or looks         |
//	  |     |          half_open                           v                       |
//	  |     |         +----------------------------------------------------+       |
//	  |     |         |  ramping  <--- enough successes, long -- probing   |       |
//	  |     |         +----------------------------------------------------+       |
//	  |     |              |   |                             |   |                 |
//	  |     +--------------+   +-- reopen: a rule and the ---|---+-----------------+
//	  |   recovered: last step     quorum, >= 10 failures    |     reopen: the successes
//	  |                                                      |     cannot be reached
//	  +------------------------------------------------------+
//	      recovered: enough successes after a short episode
//
// An open breaker whose time is over is shown as half-open before anybody has committed that ([Breaker.At]). It never
// closes because time passes. Operators' overrides lie above all of this and touch nothing of it ([Effective]).
package policy
