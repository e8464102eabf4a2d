package conns

import (
	"testing"
	"time"
)

// addressFactor is the ratio of the reset rate of an address to that of a connection in these
// tests.
const addressFactor = 5

// TestAddressBucketIsShared checks that connections of an address share a bucket, which is removed
// with the last of them.
func TestAddressBucketIsShared(t *testing.T) {
	all, now := newAddressBuckets(addressFactor*resetRate), time.Unix(0, 0)
	here, there := "192.0.2.1", "192.0.2.2"
	first, second, other := all.addConn(here, now), all.addConn(here, now), all.addConn(there, now)
	if first != second || first == other {
		t.Fatalf("two connections of %s share a bucket: %t, another of %s shares it: %t; want true, false",
			here, first == second, there, first == other)
	}
	all.removeConn(first)
	if all.addConn(here, now) != second {
		t.Errorf("addConn(%s) beside another connection of it returned a new bucket, want the shared one", here)
	}
	all.removeConn(second)
	all.removeConn(second)
	all.removeConn(other)
	if len(all.buckets) != 0 {
		t.Errorf("%d buckets remain, want 0", len(all.buckets))
	}
}

// TestDebtRemainsAfterDelay checks that a debt longer than one delay causes further delays.
func TestDebtRemainsAfterDelay(t *testing.T) {
	metrics, err := NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		spend func(c *pacedConn)
		again bool
	}{
		"nothing": {spend: func(*pacedConn) {}, again: false},
		"resets":  {spend: func(c *pacedConn) { c.spendResets(resetStart + 3*resetRate) }, again: true},
		"control": {spend: func(c *pacedConn) { c.controlBucket.tokens -= controlStart + 3*controlRate }, again: true},
		"no more": {spend: func(c *pacedConn) { c.spendResets(resetStart) }, again: false},
	} {
		t.Run(name, func(t *testing.T) {
			all := newAddressBuckets(addressFactor * resetRate)
			now := time.Now()
			c := &pacedConn{
				metrics: metrics, addresses: all, sharedBucket: all.addConn("", now),
				resetBucket:   tokenBucket{tokens: resetStart, rate: resetRate, burst: resetBurst, refilledAt: now},
				controlBucket: tokenBucket{tokens: controlStart, rate: controlRate, burst: controlBurst, refilledAt: now},
			}
			tc.spend(c)
			for i := range 2 {
				if owed, _ := c.readDelay(); (owed > 0) != tc.again {
					t.Errorf("call %d: got debt %v, want one: %t", i+1, owed, tc.again)
				}
			}
		})
	}
}

// TestAddressDebtDelaysOnlyResettingConnections checks that only connections that reset streams
// wait for the debt of their address.
func TestAddressDebtDelaysOnlyResettingConnections(t *testing.T) {
	metrics, err := NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	all, here, there := newAddressBuckets(addressFactor*resetRate), "192.0.2.1", "192.0.2.2"
	conn := func(from string) *pacedConn {
		now := time.Now()
		full := tokenBucket{tokens: resetBurst, rate: resetRate, burst: resetBurst, refilledAt: now}
		return &pacedConn{
			metrics:       metrics,
			addresses:     all,
			sharedBucket:  all.addConn(from, now),
			resetBucket:   full,
			controlBucket: full,
		}
	}
	for range addressFactor + 1 {
		conn(here).spendResets(resetBurst) // each resets its whole burst
	}
	for name, tc := range map[string]struct {
		from   string
		resets int
		owes   bool
	}{
		"resetting connection":                    {from: here, resets: 1, owes: true},
		"connection without resets":               {from: here, resets: 0, owes: false},
		"resetting connection of another address": {from: there, resets: 1, owes: false},
	} {
		c := conn(tc.from)
		c.spendResets(tc.resets)
		if owed, _ := c.readDelay(); (owed > 0) != tc.owes {
			t.Errorf("%s: got debt %v, want one: %t", name, owed, tc.owes)
		}
	}
}

// TestUnfinishedHTTP2HeadersAreLimited checks the limit on reserved bytes of header sections for
// the connections of one address.
func TestUnfinishedHTTP2HeadersAreLimited(t *testing.T) {
	all := newAddressBuckets(addressFactor * resetRate)
	headerLimits := NewHeaderLimits(1)
	here := "192.0.2.1"
	conn := func() *pacedConn {
		return &pacedConn{headers: headerLimits, sharedBucket: all.addConn(here, time.Now())}
	}
	one, other := conn(), conn()
	for i, test := range []struct {
		of   *pacedConn
		n    int
		want bool
		kept int
	}{
		{of: one, n: MaxReservedHeaders / 4, want: true, kept: MaxReservedHeaders / 4},
		{of: one, n: MaxReservedHeaders / 4, want: true, kept: MaxReservedHeaders / 4},
		{of: other, n: MaxReservedHeaders / 4, want: true, kept: MaxReservedHeaders / 2},
		{of: one, n: MaxReservedHeaders/4 + 1, want: false, kept: MaxReservedHeaders / 2},
		{of: other, n: MaxReservedHeaders/4 + 1, want: false, kept: MaxReservedHeaders / 2},
		{of: one, n: 0, want: true, kept: MaxReservedHeaders / 4},
		{of: other, n: MaxReservedHeaders / 2, want: true, kept: MaxReservedHeaders / 2},
		{of: other, n: 0, want: true, kept: 0},
	} {
		if got := test.of.ReserveHeader(test.n); got != test.want || headerLimits.reserved != test.kept {
			t.Errorf("step %d: ReserveHeader() = %v, %d bytes are reserved; want %v, %d", i, got, headerLimits.reserved, test.want, test.kept)
		}
	}
}
