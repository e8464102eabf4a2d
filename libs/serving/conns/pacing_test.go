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
	buckets, now := newAddressBuckets(addressFactor*resetRate), time.Unix(0, 0)
	addressA, addressB := "192.0.2.1", "192.0.2.2"
	firstConn, secondConn, otherConn := buckets.addConn(addressA, now), buckets.addConn(addressA, now), buckets.addConn(addressB, now)
	if firstConn != secondConn || firstConn == otherConn {
		t.Fatalf("two connections of %s share a bucket: %t, another of %s shares it: %t; want true, false",
			addressA, firstConn == secondConn, addressB, firstConn == otherConn)
	}
	buckets.removeConn(firstConn)
	if buckets.addConn(addressA, now) != secondConn {
		t.Errorf("addConn(%s) beside another connection of it returned a new bucket, want the shared one", addressA)
	}
	buckets.removeConn(secondConn)
	buckets.removeConn(secondConn)
	buckets.removeConn(otherConn)
	if len(buckets.buckets) != 0 {
		t.Errorf("%d buckets remain, want 0", len(buckets.buckets))
	}
}

// TestDebtRemainsAfterDelay checks that a debt longer than one delay causes further delays.
func TestDebtRemainsAfterDelay(t *testing.T) {
	metrics, err := NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		spend func(c *pacedConn)
		again bool
	}{
		"nothing": {spend: func(*pacedConn) {}, again: false},
		"resets":  {spend: func(c *pacedConn) { c.spendResets(resetStart + 3*resetRate) }, again: true},
		"control": {spend: func(c *pacedConn) { c.controlBucket.tokens -= controlStart + 3*controlRate }, again: true},
		"no more": {spend: func(c *pacedConn) { c.spendResets(resetStart) }, again: false},
	} {
		t.Run(name, func(t *testing.T) {
			buckets := newAddressBuckets(addressFactor * resetRate)
			now := time.Now()
			c := &pacedConn{
				metrics: metrics, addresses: buckets, sharedBucket: buckets.addConn("", now),
				resetBucket:   tokenBucket{tokens: resetStart, rate: resetRate, burst: resetBurst, refilledAt: now},
				controlBucket: tokenBucket{tokens: controlStart, rate: controlRate, burst: controlBurst, refilledAt: now},
			}
			test.spend(c)
			for i := range 2 {
				if owed, _ := c.readDelay(); (owed > 0) != test.again {
					t.Errorf("call %d: got debt %v, want one: %t", i+1, owed, test.again)
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
	buckets, addressA, addressB := newAddressBuckets(addressFactor*resetRate), "192.0.2.1", "192.0.2.2"
	conn := func(from string) *pacedConn {
		now := time.Now()
		full := tokenBucket{tokens: resetBurst, rate: resetRate, burst: resetBurst, refilledAt: now}
		return &pacedConn{
			metrics:       metrics,
			addresses:     buckets,
			sharedBucket:  buckets.addConn(from, now),
			resetBucket:   full,
			controlBucket: full,
		}
	}
	for range addressFactor + 1 {
		conn(addressA).spendResets(resetBurst) // each resets its whole burst
	}
	for name, test := range map[string]struct {
		from   string
		resets int
		owes   bool
	}{
		"resetting connection":                    {from: addressA, resets: 1, owes: true},
		"connection without resets":               {from: addressA, resets: 0, owes: false},
		"resetting connection of another address": {from: addressB, resets: 1, owes: false},
	} {
		c := conn(test.from)
		c.spendResets(test.resets)
		if owed, _ := c.readDelay(); (owed > 0) != test.owes {
			t.Errorf("%s: got debt %v, want one: %t", name, owed, test.owes)
		}
	}
}

// TestUnfinishedHTTP2HeadersAreLimited checks the limit on reserved bytes of header sections for
// the connections of one address.
func TestUnfinishedHTTP2HeadersAreLimited(t *testing.T) {
	buckets := newAddressBuckets(addressFactor * resetRate)
	headerLimits := NewHeaderLimits(1)
	address := "192.0.2.1"
	conn := func() *pacedConn {
		return &pacedConn{headers: headerLimits, sharedBucket: buckets.addConn(address, time.Now())}
	}
	firstConn, secondConn := conn(), conn()
	for i, test := range []struct {
		conn  *pacedConn
		bytes int
		want  bool
		kept  int
	}{
		{conn: firstConn, bytes: MaxReservedHeaders / 4, want: true, kept: MaxReservedHeaders / 4},
		{conn: firstConn, bytes: MaxReservedHeaders / 4, want: true, kept: MaxReservedHeaders / 4},
		{conn: secondConn, bytes: MaxReservedHeaders / 4, want: true, kept: MaxReservedHeaders / 2},
		{conn: firstConn, bytes: MaxReservedHeaders/4 + 1, want: false, kept: MaxReservedHeaders / 2},
		{conn: secondConn, bytes: MaxReservedHeaders/4 + 1, want: false, kept: MaxReservedHeaders / 2},
		{conn: firstConn, bytes: 0, want: true, kept: MaxReservedHeaders / 4},
		{conn: secondConn, bytes: MaxReservedHeaders / 2, want: true, kept: MaxReservedHeaders / 2},
		{conn: secondConn, bytes: 0, want: true, kept: 0},
	} {
		if got := test.conn.ReserveHeader(test.bytes); got != test.want || headerLimits.reserved != test.kept {
			t.Errorf("step %d: ReserveHeader() = %v, %d bytes are reserved; want %v, %d", i, got, headerLimits.reserved, test.want, test.kept)
		}
	}
}
