package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMaxMin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		avail int64
		wants []int64
		want  []int64
	}{
		{"nobody", 5, nil, []int64{}},
		{"all fit", 60, []int64{10, 20, 30}, []int64{10, 20, 30}},
		{"nothing there", 0, []int64{1, 2}, []int64{0, 0}},
		{"overdrawn", -3, []int64{1, 2}, []int64{0, 0}},
		{"many small before one big", 20, []int64{90, 2, 2, 2, 2, 2}, []int64{10, 2, 2, 2, 2, 2}},
		{"in equal parts", 9, []int64{90, 80, 1, 70}, []int64{3, 3, 1, 2}},
		{"not asked is not given", 9, []int64{0, 4, -7, 9}, []int64{0, 4, 0, 5}},
		{"huge wants", math.MaxInt64, []int64{math.MaxInt64, math.MaxInt64, 1}, []int64{math.MaxInt64 / 2, math.MaxInt64 / 2, 1}},
	} {
		wants := make([]Want, len(c.wants))
		for i, n := range c.wants {
			wants[i] = Want{N: n}
		}
		if got := MaxMin(c.avail, wants); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestMaxMinIsFair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		avail := rapid.Int64Range(0, 200).Draw(t, "avail")
		var wants []Want
		var total int64
		for range rapid.IntRange(0, 30).Draw(t, "instances") {
			w := Want{
				N:      rapid.Int64Range(0, 30).Draw(t, "want"),
				Waited: time.Duration(rapid.Int64Range(-1_000, 100_000).Draw(t, "waited")) * time.Millisecond,
				Draw:   rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "draw"),
			}
			wants, total = append(wants, w), total+w.N
		}
		shares := MaxMin(avail, wants)
		var sum int64
		least := int64(math.MaxInt64) // of those who got less than they wanted
		for i, n := range shares {
			if n < 0 || n > wants[i].N {
				t.Fatalf("%d of %d", n, wants[i].N)
			}
			sum += n
			if n < wants[i].N {
				least = min(least, n)
			}
		}
		if want := min(avail, total); sum != want {
			t.Fatalf("%d in all, want %d", sum, want)
		}
		for i, n := range shares { // nobody has more than one above somebody who wanted more
			if least != math.MaxInt64 && n > least+1 {
				t.Fatalf("%d got %d while another has %d: %v of %v", i, n, least, shares, wants)
			}
		}
		if !slices.Equal(shares, MaxMin(avail, wants)) {
			t.Fatal("the same draws, another result")
		}
	})
}

// TestOneWithMostFailures: one instance with 90 % of the failures does not starve the others.
func TestOneWithMostFailures(t *testing.T) {
	t.Parallel()
	wants := []Want{{N: 90, Waited: time.Minute}}
	for range 10 {
		wants = append(wants, Want{N: 1})
	}
	shares := MaxMin(20, wants)
	if shares[0] != 10 || slices.Min(shares[1:]) != 1 {
		t.Errorf("got %v, want 10 and one each", shares)
	}
}

// TestLot: below one each, the chance grows with the time waited, newcomers have one too, and who waited alike is
// drawn alike.
func TestLot(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	const rounds = 10_000
	won := make([]int64, 4)
	for range rounds {
		wants := []Want{{N: 1}, {N: 1}, {N: 5, Waited: 90 * time.Millisecond}, {N: 1, Waited: 190 * time.Millisecond}}
		for i := range wants {
			wants[i].Draw = random.Float64()
		}
		for i, n := range MaxMin(1, wants) {
			won[i] += n
		}
	}
	for i, weight := range []float64{10, 10, 100, 200} {
		if want := weight / 320 * rounds; math.Abs(float64(won[i])-want) > 5*math.Sqrt(want) {
			t.Errorf("%d won %d times of %d, want about %.0f", i, won[i], rounds, want)
		}
	}
}
