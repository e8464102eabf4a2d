package flowcontrol

import (
	"math"
	"slices"
	"time"
)

// smoothing is the weight of the previous smoothed demand (KEP-1040).
const smoothing = 0.977

// demandStats describes the demand of a level in the last window, in seats. smoothed follows a rising
// demand immediately, and a falling one slowly.
type demandStats struct{ average, deviation, maximum, smoothed float64 }

// timeIntegral integrates a value, and its square, over a window of time.
type timeIntegral struct {
	windowStart    time.Time
	lastChange     time.Time // the integrals are complete up to here
	value          float64   // since lastChange
	integral       float64   // of the value, in value-seconds
	squareIntegral float64   // of the squared value
	maximum        float64
}

// startWindow starts the first window.
func (i *timeIntegral) startWindow(now time.Time) {
	i.windowStart = now
	i.lastChange = now
}

// setValue sets the value from now on.
func (i *timeIntegral) setValue(now time.Time, value float64) {
	elapsed := now.Sub(i.lastChange).Seconds()
	if elapsed > 0 {
		i.integral += elapsed * i.value
		i.squareIntegral += elapsed * i.value * i.value
		i.lastChange = now
	}
	i.value, i.maximum = value, max(i.maximum, value)
}

// finishWindow returns statistics of the current window and starts a new one.
func (i *timeIntegral) finishWindow(now time.Time) (average, deviation, maximum float64) {
	i.setValue(now, i.value)
	if elapsed := now.Sub(i.windowStart).Seconds(); elapsed > 0 {
		average = i.integral / elapsed
		deviation = math.Sqrt(max(i.squareIntegral/elapsed-average*average, 0))
	}
	maximum = i.maximum
	*i = timeIntegral{windowStart: now, lastChange: now, value: i.value, maximum: i.value}
	return average, deviation, maximum
}

// update finishes the current window of a demand and sets its statistics.
func (s *demandStats) update(demand *timeIntegral, now time.Time) {
	s.average, s.deviation, s.maximum = demand.finishWindow(now)
	envelope := s.average + s.deviation
	s.smoothed = max(envelope, smoothing*s.smoothed+(1-smoothing)*envelope)
}

// seatClaim is the claim of a level in the division of seats: at least lower and at most upper seats.
// Between these bounds, levels get seats in proportion to their targets.
type seatClaim struct{ lower, upper, target float64 }

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
	var claims []seatClaim
	for name, adjusted := range c.levels {
		adjusted.mu.Lock()
		adjusted.stats.update(&adjusted.demand, now)
		available += adjusted.nominal
		retained := max(adjusted.lower, min(adjusted.nominal, int(math.Ceil(adjusted.stats.maximum))))
		removable := adjusted.quiescing && adjusted.isIdle()
		switch {
		case removable: // removed below, without mu
		case adjusted.spec.kind == kindExempt:
			adjusted.limit = retained
			available -= retained
			adjusted.metrics.recordAdjustment(adjusted, float64(retained))
		default:
			limited = append(limited, adjusted)
			claims = append(claims, seatClaim{
				lower:  float64(retained),
				upper:  float64(adjusted.upper),
				target: max(float64(retained), adjusted.stats.smoothed, minTarget),
			})
		}
		adjusted.mu.Unlock()
		if removable {
			c.removeLevel(name)
		}
	}

	// 2. Divide the available seats.
	limits, fraction := divideSeats(float64(available), limited, claims)
	c.Metrics.fairFraction.Set(fraction)

	// 3. Apply the limits.
	for i, adjusted := range limited {
		adjusted.mu.Lock()
		adjusted.advanceVirtualTime(now)
		adjusted.limit = int(math.Round(limits[i]))
		adjusted.resizeQueues()
		adjusted.metrics.recordAdjustment(adjusted, claims[i].target)
		adjusted.admitWaiting(now)
		adjusted.mu.Unlock()
	}
}

// divideSeats returns the limit of each level, and the fraction of its target that each level gets.
// If there are fewer seats than the levels claim at least, each level gets its configured minimum and
// a part of the difference, and the fraction is 0.
func divideSeats(available float64, levels []*level, claims []seatClaim) (limits []float64, fraction float64) {
	configuredMinimum, claimedMinimum := 0.0, 0.0
	for i, l := range levels {
		configuredMinimum += float64(l.lower)
		claimedMinimum += claims[i].lower
	}
	if available > claimedMinimum {
		return shareSeats(available, claims)
	}
	share := 0.0
	if available > configuredMinimum {
		share = (available - configuredMinimum) / (claimedMinimum - configuredMinimum)
	}
	limits = make([]float64, len(levels))
	for i, l := range levels {
		limits[i] = float64(l.lower) + share*(claims[i].lower-float64(l.lower))
	}
	return limits, 0
}

// shareSeats gives each claim its target times a common fraction, within its bounds. The fraction
// is such that all seats are given, or as many as the bounds allow.
func shareSeats(total float64, claims []seatClaim) (shares []float64, fraction float64) {
	// The sum of all shares is a piecewise linear, increasing function of the fraction. Its slope
	// changes where a claim reaches a bound. So find the two neighboring changes between which the
	// sum reaches the total, and interpolate between them.
	var knots []float64
	for _, c := range claims {
		knots = append(knots, c.lower/c.target, c.upper/c.target)
	}
	slices.Sort(knots)
	sumAt := func(fraction float64) (seats float64) {
		for _, c := range claims {
			seats += c.seatsAt(fraction)
		}
		return seats
	}
	i, _ := slices.BinarySearchFunc(knots, total, func(fraction, total float64) int {
		if sumAt(fraction) < total {
			return -1
		}
		return 1
	})
	switch {
	case len(knots) == 0:
	case i == len(knots): // all claims are at their upper bounds
		fraction = knots[i-1]
	case i == 0: // all claims are at their lower bounds
		fraction = knots[0]
	default:
		low, high := knots[i-1], knots[i]
		fraction = high
		if from, to := sumAt(low), sumAt(high); to > from {
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
func (c seatClaim) seatsAt(fraction float64) float64 {
	return min(max(c.target*fraction, c.lower), c.upper)
}
