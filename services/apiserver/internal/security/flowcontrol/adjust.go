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

// timeIntegral integrates a value, and its square, over time.
type timeIntegral struct {
	since, last       time.Time
	value             float64
	area, square, max float64
}

func (i *timeIntegral) startWindow(now time.Time) {
	i.since = now
	i.last = now
}

// setValue sets the value from now on.
func (i *timeIntegral) setValue(now time.Time, value float64) {
	elapsed := now.Sub(i.last).Seconds()
	if elapsed > 0 {
		i.area += elapsed * i.value
		i.square += elapsed * i.value * i.value
		i.last = now
	}
	i.value, i.max = value, max(i.max, value)
}

// finishWindow returns statistics of the current window and starts a new one.
func (i *timeIntegral) finishWindow(now time.Time) (average, deviation, maximum float64) {
	i.setValue(now, i.value)
	if elapsed := now.Sub(i.since).Seconds(); elapsed > 0 {
		average = i.area / elapsed
		deviation = math.Sqrt(max(i.square/elapsed-average*average, 0))
	}
	maximum = i.max
	*i = timeIntegral{since: now, last: now, value: i.value, max: i.value}
	return average, deviation, maximum
}

// update sets the statistics of the last window.
func (s *demandStats) update(i *timeIntegral, now time.Time) {
	s.average, s.deviation, s.max = i.finishWindow(now)
	envelope := s.average + s.deviation
	s.smoothed = max(envelope, smoothing*s.smoothed+(1-smoothing)*envelope)
}

// seatDemand is what a level claims in the division of seats: at least lower, at most upper, and in
// proportion to target.
type seatDemand struct{ lower, upper, target float64 }

// minTarget is the minimum target, so that levels without demand get a share of surplus seats.
const minTarget = 0.001

// Adjust sets the limit of each level by its demand. A level keeps the seats of its maximum demand,
// up to its nominal limit. The remaining seats are divided in proportion to demand, within the
// lending and borrowing limits (KEP-1040, "Dispatching").
func (c *Controller) Adjust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	// 1. Collect the claims of the limited levels. Exempt levels take their seats first, and levels
	// that are no longer used are removed.
	available := 0
	var limited []*level
	var claims []seatDemand
	for name, l := range c.levels {
		l.mu.Lock()
		l.stats.update(&l.demand, now)
		available += l.nominal
		retained := max(l.lower, min(l.nominal, int(math.Ceil(l.stats.max))))
		removable := l.quiescing && l.isIdle()
		switch {
		case removable:
		case l.spec.kind == kindExempt:
			l.limit = retained
			available -= retained
			l.metrics.recordAdjustment(l, float64(retained))
		default:
			limited = append(limited, l)
			claims = append(claims, seatDemand{float64(retained), float64(l.upper), max(float64(retained), l.stats.smoothed, minTarget)})
		}
		l.mu.Unlock()
		if removable {
			c.removeLevel(name)
		}
	}
	// 2. Divide the available seats.
	limits, fraction := divideSeats(float64(available), limited, claims)
	c.Metrics.fairFraction.Set(fraction)
	// 3. Apply the limits.
	for i, l := range limited {
		l.mu.Lock()
		l.advanceVirtualTime(now)
		l.limit = int(math.Round(limits[i]))
		l.resizeQueues()
		l.metrics.recordAdjustment(l, claims[i].target)
		l.admitWaiting(now)
		l.mu.Unlock()
	}
}

// divideSeats returns the limit of each level, given its claim, and the fraction of its target that
// each level gets. If the seats do not suffice for what the levels keep, each gets at least its
// lower limit, and the fraction is 0.
func divideSeats(available float64, levels []*level, claims []seatDemand) (limits []float64, fraction float64) {
	lowest, retained := 0.0, 0.0
	for i, l := range levels {
		lowest += float64(l.lower)
		retained += claims[i].lower
	}
	if available > retained {
		return shareSeats(available, claims)
	}
	share := 0.0
	if available > lowest {
		share = (available - lowest) / (retained - lowest)
	}
	limits = make([]float64, len(levels))
	for i, l := range levels {
		limits[i] = float64(l.lower) + share*(claims[i].lower-float64(l.lower))
	}
	return limits, 0
}

// shareSeats gives each claim its target times a common fraction, within its bounds. The fraction
// is such that all seats are given, or as many as the bounds allow.
func shareSeats(total float64, claims []seatDemand) (shares []float64, fraction float64) {
	// The sum of all shares is a piecewise linear, increasing function of the fraction. It bends
	// where a claim reaches a bound. So find the two bends between which the sum reaches the total,
	// and interpolate between them.
	var bends []float64
	for _, c := range claims {
		bends = append(bends, c.lower/c.target, c.upper/c.target)
	}
	slices.Sort(bends)
	sum := func(f float64) (seats float64) {
		for _, c := range claims {
			seats += c.seatsAt(f)
		}
		return seats
	}
	i, _ := slices.BinarySearchFunc(bends, total, func(f, total float64) int {
		if sum(f) < total {
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
			fraction = low + (high-low)*(total-from)/(to-from)
		}
	}
	shares = make([]float64, len(claims))
	for i, c := range claims {
		shares[i] = c.seatsAt(fraction)
	}
	return shares, fraction
}

// seatsAt returns the seats of the claim at a fraction of its target.
func (c seatDemand) seatsAt(fraction float64) float64 {
	return min(max(c.target*fraction, c.lower), c.upper)
}
