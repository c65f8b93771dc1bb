package policy

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Want is what one party asks for out of something that may not suffice.
type Want struct {
	N      int64         // how many; below 0 counts as 0
	Waited time.Duration // how long it has been waiting; what exceeds a minute makes no difference
	Draw   float64       // random, in [0, 1), one for each want: decides where the wants are equal
}

const (
	waitedMost  = time.Minute           // nobody buys every lot by a bold claim
	waitedLeast = 10 * time.Millisecond // who has just come has a chance too
)

// MaxMin shares avail among the wants and returns each one's share, in their order. Together they get all of avail
// that they want.
//
// If everything fits, everybody gets what they want. Otherwise the share is max-min fair: small wants are met before
// big ones get more, and nobody could get more without taking it from somebody who has no more. What then does not
// divide goes out one each by lot, and so does everything when there is less than one for each. The chance to be
// drawn grows with the time waited.
func MaxMin(avail int64, wants []Want) []int64 {
	shares := make([]int64, len(wants))
	order := make([]int, 0, len(wants)) // of those who want something, the most modest first
	for i, w := range wants {
		if w.N > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(cmp.Compare(wants[i].N, wants[j].N), cmp.Compare(i, j)) })

	avail = max(avail, 0)
	for len(order) > 0 && wants[order[0]].N <= avail/int64(len(order)) {
		shares[order[0]] = wants[order[0]].N
		avail -= wants[order[0]].N
		order = order[1:]
	}
	if len(order) == 0 {
		return shares
	}
	each := avail / int64(len(order))
	for _, i := range order {
		shares[i] = each
	}
	for _, i := range lot(wants, order)[:avail%int64(len(order))] {
		shares[i]++
	}
	return shares
}

// lot puts those in order into the order in which they are drawn: weighted sampling without replacement, by Efraimidis
// and Spirakis (2006), the smallest of -ln(1 - draw) / weight first.
func lot(wants []Want, order []int) []int {
	key := make(map[int]float64, len(order))
	for _, i := range order {
		waited := min(max(wants[i].Waited, 0), waitedMost)
		key[i] = -math.Log1p(-wants[i].Draw) / float64(waited+waitedLeast)
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(cmp.Compare(key[i], key[j]), cmp.Compare(i, j)) })
	return order
}
