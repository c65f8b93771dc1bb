package simulation

import (
	"sync"
	"time"
)

// Meter counts per second of a run what was offered, what reached the dependency and what came out.
type Meter struct {
	start time.Time

	mu      sync.Mutex
	seconds []Second
}

// Second is one second of a run. Requests are counted in the second in which they began.
type Second struct {
	Offered  int // requests begun
	Arrived  int // attempts that reached the dependency
	OK       int // of the requests begun, those that succeeded in the end
	Failed   int
	Rejected int // of those that failed, the ones that no attempt was sent for

	Ended   int // requests that ended in this second, whenever they began
	EndedOK int // those of them that succeeded
}

// NewMeter returns a meter whose second 0 begins now.
func NewMeter() *Meter { return &Meter{start: time.Now()} }

func (m *Meter) at(t time.Time, fn func(*Second)) {
	i := int(t.Sub(m.start) / time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.seconds) <= i {
		m.seconds = append(m.seconds, Second{})
	}
	fn(&m.seconds[i])
}

func (m *Meter) arrived(t time.Time) { m.at(t, func(s *Second) { s.Arrived++ }) }

// Begin counts a request; call the result with its end.
func (m *Meter) Begin() func(err error, rejected bool) {
	began := time.Now()
	m.at(began, func(s *Second) { s.Offered++ })
	return func(err error, rejected bool) {
		m.at(time.Now(), func(s *Second) {
			s.Ended++
			if err == nil {
				s.EndedOK++
			}
		})
		m.at(began, func(s *Second) {
			switch {
			case err == nil:
				s.OK++
			case rejected:
				s.Failed++
				s.Rejected++
			default:
				s.Failed++
			}
		})
	}
}

// Seconds returns what was counted so far.
func (m *Meter) Seconds() []Second {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Second(nil), m.seconds...)
}

// Sum adds up the seconds from, to (exclusive).
func (m *Meter) Sum(from, to int) Second {
	var sum Second
	seconds := m.Seconds()
	for _, s := range seconds[min(from, len(seconds)):min(to, len(seconds))] {
		sum.Offered += s.Offered
		sum.Arrived += s.Arrived
		sum.OK += s.OK
		sum.Failed += s.Failed
		sum.Rejected += s.Rejected
		sum.Ended += s.Ended
		sum.EndedOK += s.EndedOK
	}
	return sum
}

// Recovered returns the first second at or after from, from which on until to at least success of the requests of
// every second succeeded; -1 if there is none.
func (m *Meter) Recovered(from, to int, success float64) int {
	seconds := m.Seconds()
	recovered := -1
	for i := min(to, len(seconds)) - 1; i >= from; i-- {
		if s := seconds[i]; float64(s.OK) < success*float64(s.Offered) {
			break
		}
		recovered = i
	}
	return recovered
}
