package flowcontrol

import (
	"math"
	"slices"
	"time"
)

// smoothing is how much of what was asked for in a period is left in the next.
const smoothing = 0.977

// demandStats tell what was asked of a level, in seats.
type demandStats struct{ average, deviation, most, smoothed float64 }

// integral of a number over time.
type integral struct {
	since, last      time.Time
	x                float64
	area, square, hi float64
}

func (i *integral) begin(now time.Time) { i.since, i.last = now, now }

func (i *integral) set(now time.Time, x float64) {
	d := now.Sub(i.last).Seconds()
	if d > 0 {
		i.area += d * i.x
		i.square += d * i.x * i.x
		i.last = now
	}
	i.x, i.hi = x, max(i.hi, x)
}

// take tells of the time since it was called last.
func (i *integral) take(now time.Time) (average, deviation, most float64) {
	i.set(now, i.x)
	if d := now.Sub(i.since).Seconds(); d > 0 {
		average = i.area / d
		deviation = math.Sqrt(max(i.square/d-average*average, 0))
	}
	most = i.hi
	*i = integral{since: now, last: now, x: i.x, hi: i.x}
	return average, deviation, most
}

func (s *demandStats) take(i *integral, now time.Time) {
	s.average, s.deviation, s.most = i.take(now)
	envelope := s.average + s.deviation
	s.smoothed = max(envelope, smoothing*s.smoothed+(1-smoothing)*envelope)
}

// claim is what a level wants of the seats that there are.
type claim struct{ lower, upper, target float64 }

// leastTarget stands for none, so that what nobody asks for is shared too.
const leastTarget = 0.001

// Adjust sets what each level may use by what was asked of it. A level keeps what
// it needed at most, up to its nominal limit; the rest is shared in proportion to
// what was asked for, within what may be lent and borrowed (KEP-1040, "Dispatching").
func (c *Controller) Adjust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	remaining, lowest, needed := 0, 0, 0
	var shared []*level
	var claims []claim
	for name, l := range c.levels {
		l.mu.Lock()
		l.stats.take(&l.demand, now)
		remaining += l.nominal
		keeps := max(l.lower, min(l.nominal, int(math.Ceil(l.stats.most))))
		gone := l.leaving && l.idle()
		switch {
		case gone:
		case l.plan.kind == exempt:
			l.limit = keeps
			remaining -= keeps
			l.metrics.adjusted(l, float64(keeps))
		default:
			shared = append(shared, l)
			claims = append(claims, claim{float64(keeps), float64(l.upper), max(float64(keeps), l.stats.smoothed, leastTarget)})
			lowest, needed = lowest+l.lower, needed+keeps
		}
		l.mu.Unlock()
		if gone {
			c.forget(name)
		}
	}
	limits, fraction := make([]float64, len(claims)), 0.0
	switch {
	case remaining <= lowest:
		for i, l := range shared {
			limits[i] = float64(l.lower)
		}
	case remaining <= needed:
		part := float64(remaining-lowest) / float64(needed-lowest)
		for i, l := range shared {
			limits[i] = float64(l.lower) + part*(claims[i].lower-float64(l.lower))
		}
	default:
		limits, fraction = share(float64(remaining), claims)
	}
	c.Metrics.fraction(fraction)
	for i, l := range shared {
		l.mu.Lock()
		l.advance(now)
		l.limit = int(math.Round(limits[i]))
		l.resize()
		l.metrics.adjusted(l, claims[i].target)
		l.admitWaiting(now)
		l.mu.Unlock()
	}
}

// share gives each claim its target times one and the same fraction, within its
// bounds, so that all of it is given, or as much as the bounds allow.
func share(all float64, claims []claim) (given []float64, fraction float64) {
	// The sum grows with the fraction, in straight pieces between those at which
	// a claim meets a bound.
	var bends []float64
	for _, c := range claims {
		bends = append(bends, c.lower/c.target, c.upper/c.target)
	}
	slices.Sort(bends)
	sum := func(f float64) (total float64) {
		for _, c := range claims {
			total += c.at(f)
		}
		return total
	}
	i, _ := slices.BinarySearchFunc(bends, all, func(f, all float64) int {
		if sum(f) < all {
			return -1
		}
		return 1
	})
	switch {
	case len(bends) == 0:
	case i == len(bends):
		fraction = bends[i-1]
	case i == 0:
		fraction = bends[0]
	default:
		low, high := bends[i-1], bends[i]
		fraction = high
		if from, to := sum(low), sum(high); to > from {
			fraction = low + (high-low)*(all-from)/(to-from)
		}
	}
	given = make([]float64, len(claims))
	for i, c := range claims {
		given[i] = c.at(fraction)
	}
	return given, fraction
}

func (c claim) at(fraction float64) float64 { return min(max(c.target*fraction, c.lower), c.upper) }
