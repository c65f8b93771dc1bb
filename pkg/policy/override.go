package policy

import "time"

// Mode is what an operator put over the automatic state.
type Mode string

// The modes.
const (
	ModeNone        Mode = ""
	ModeForceOpen   Mode = "force_open"   // every call is rejected
	ModeForceClosed Mode = "force_closed" // every call passes, the budget goes on
	ModeNoRetries   Mode = "no_retries"   // the automatic state applies, the budget is zero
)

// Valid reports whether m can be put over an automatic state.
func (m Mode) Valid() bool {
	return m == ModeForceOpen || m == ModeForceClosed || m == ModeNoRetries
}

// Override is an operator's decision about one dependency. It beats the automatic state until Expires and touches
// nothing of it. The zero value is none.
type Override struct {
	Mode     Mode
	Revision int64 // of two, the higher one wins, deletions included
	Reason   string
	Actor    string
	Created  time.Time
	Expires  time.Time
}

// InForce reports whether the override applies at now.
func (o Override) InForce(now time.Time) bool {
	return o.Mode != ModeNone && now.Before(o.Expires)
}

// Effective is the state that calls meet at now: the override's while it is in force, else the automatic one.
func Effective(b Breaker, o Override, now time.Time) State {
	if o.InForce(now) {
		switch o.Mode {
		case ModeForceOpen:
			return Open
		case ModeForceClosed:
			return Closed
		}
	}
	return b.At(now).State
}

// Grants reports whether the budget may grant retries at now: only while the effective state is closed, which
// a ramp is not, and no operator turned retries off.
func Grants(b Breaker, o Override, now time.Time) bool {
	if o.InForce(now) && o.Mode == ModeNoRetries {
		return false
	}
	return Effective(b, o, now) == Closed
}
