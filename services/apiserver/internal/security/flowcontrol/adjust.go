package flowcontrol

import (
	"math"
	"slices"
	"time"
)

// smoothing is the weight of the previous smoothed demand (KEP-1040).
const smoothing = 0.977

// demandStats describes the demand of a level in the last period, in seats.
type demandStats struct{ average, deviation, max, smoothed float64 }

// integral integrates a value, and its square, over time.
type integral struct {
	since, last       time.Time
	x                 float64
	area, square, max float64
}

func (i *integral) begin(now time.Time) {
	i.since = now
	i.last = now
}

func (i *integral) set(now time.Time, x float64) {
	d := now.Sub(i.last).Seconds()
	if d > 0 {
		i.area += d * i.x
		i.square += d * i.x * i.x
		i.last = now
	}
	i.x, i.max = x, max(i.max, x)
}

// window returns statistics since its last call and starts a new window.
func (i *integral) window(now time.Time) (average, deviation, most float64) {
	i.set(now, i.x)
	if d := now.Sub(i.since).Seconds(); d > 0 {
		average = i.area / d
		deviation = math.Sqrt(max(i.square/d-average*average, 0))
	}
	most = i.max
	*i = integral{since: now, last: now, x: i.x, max: i.x}
	return average, deviation, most
}

func (s *demandStats) update(i *integral, now time.Time) {
	s.average, s.deviation, s.max = i.window(now)
	envelope := s.average + s.deviation
	s.smoothed = max(envelope, smoothing*s.smoothed+(1-smoothing)*envelope)
}

// claim is a level's bounds and target in the division of seats.
type claim struct{ lower, upper, target float64 }

// minTarget replaces a target of zero, so that levels without demand get a share of surplus seats.
const minTarget = 0.001

// Adjust sets the limit of each level by its demand. A level keeps the seats of its maximum demand,
// up to its nominal limit. The rest is divided in proportion to demand, within the lending and
// borrowing limits (KEP-1040, "Dispatching").
func (c *Controller) Adjust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	remaining := 0
	lowest := 0
	needed := 0
	var shared []*level
	var claims []claim
	for name, l := range c.levels {
		l.mu.Lock()
		l.stats.update(&l.demand, now)
		remaining += l.nominal
		keeps := max(l.lower, min(l.nominal, int(math.Ceil(l.stats.max))))
		gone := l.quiescing && l.idle()
		switch {
		case gone:
		case l.spec.kind == kindExempt:
			l.limit = keeps
			remaining -= keeps
			l.metrics.recordAdjustment(l, float64(keeps))
		default:
			shared = append(shared, l)
			claims = append(claims, claim{float64(keeps), float64(l.upper), max(float64(keeps), l.stats.smoothed, minTarget)})
			lowest, needed = lowest+l.lower, needed+keeps
		}
		l.mu.Unlock()
		if gone {
			c.removeLevel(name)
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
		limits, fraction = shareSeats(float64(remaining), claims)
	}
	c.Metrics.setFairFraction(fraction)
	for i, l := range shared {
		l.mu.Lock()
		l.advance(now)
		l.limit = int(math.Round(limits[i]))
		l.resizeQueues()
		l.metrics.recordAdjustment(l, claims[i].target)
		l.admitWaiting(now)
		l.mu.Unlock()
	}
}

// shareSeats gives each claim its target times a common fraction, within its bounds. The fraction
// is such that all seats are given, or as many as the bounds allow.
func shareSeats(all float64, claims []claim) (given []float64, fraction float64) {
	// The sum is a piecewise linear, increasing function of the fraction. It bends where a claim
	// reaches a bound.
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
