package serving

import (
	"net/netip"
	"testing"
	"time"
)

// alike is how many times the resets of a connection those of its address are in these tests.
const alike = 5

// TestPurseOfAnAddress is shared as long as one of its connections is there.
func TestPurseOfAnAddress(t *testing.T) {
	all, now := newAddresses(alike*resetRate), time.Unix(0, 0)
	here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	first, second, other := all.join(here, now), all.join(here, now), all.join(there, now)
	if first != second || first == other {
		t.Fatal("not one purse for each address")
	}
	all.leave(first)
	if all.join(here, now) != second {
		t.Error("a connection that leaves takes the others' purse away")
	}
	all.leave(second)
	all.leave(second)
	all.leave(other)
	if len(all.purses) != 0 {
		t.Errorf("%d purses are nobody's", len(all.purses))
	}
}

// TestDebtsStay: who waited once for what it owes, and owes more, waits again.
func TestDebtsStay(t *testing.T) {
	m, err := newClientMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		spend func(c *pacedConn)
		again bool
	}{
		"nothing": {func(*pacedConn) {}, false},
		"resets":  {func(c *pacedConn) { c.spend(resetStart + 3*resetRate) }, true},
		"control": {func(c *pacedConn) { c.control.left -= controlStart + 3*controlRate }, true},
		"no more": {func(c *pacedConn) { c.spend(resetStart) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			all := newAddresses(alike * resetRate)
			now := time.Now()
			c := &pacedConn{
				metrics: m, all: all, from: all.join(netip.Addr{}, now),
				resets:  purse{left: resetStart, rate: resetRate, most: resetBurst, at: now},
				control: purse{left: controlStart, rate: controlRate, most: controlBurst, at: now},
			}
			tc.spend(c)
			for i := range 2 {
				if owed, _ := c.owed(); (owed > 0) != tc.again {
					t.Errorf("look %d: %v is owed", i+1, owed)
				}
			}
		})
	}
}

// TestDebtsOfAnAddress: who resets pays for all of its address, who does not for nobody.
func TestDebtsOfAnAddress(t *testing.T) {
	m, err := newClientMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	all, here, there := newAddresses(alike*resetRate), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	conn := func(from netip.Addr) *pacedConn {
		now := time.Now()
		full := purse{left: resetBurst, rate: resetRate, most: resetBurst, at: now}
		return &pacedConn{metrics: m, all: all, from: all.join(from, now), resets: full, control: full}
	}
	for range alike + 1 {
		conn(here).spend(resetBurst) // each has as many
	}
	for name, tc := range map[string]struct {
		from   netip.Addr
		resets int
		owes   bool
	}{
		"one that resets":                     {here, 1, true},
		"one that resets nothing":             {here, 0, false},
		"one that resets, of another address": {there, 1, false},
	} {
		c := conn(tc.from)
		c.spend(tc.resets)
		if owed, _ := c.owed(); (owed > 0) != tc.owes {
			t.Errorf("%s: %v is owed", name, owed)
		}
	}
}

// TestListsThatDoNotEnd of connections of one address may take so much together, and give it back.
func TestListsThatDoNotEnd(t *testing.T) {
	all, h, here := newAddresses(alike*resetRate), newHeads(1), netip.MustParseAddr("192.0.2.1")
	conn := func() *pacedConn { return &pacedConn{heads: h, from: all.join(here, time.Now())} }
	one, other := conn(), conn()
	for i, c := range []struct {
		of   *pacedConn
		n    int
		want bool
		kept int
	}{
		{one, keptHeads / 4, true, keptHeads / 4},
		{one, keptHeads / 4, true, keptHeads / 4},
		{other, keptHeads / 4, true, keptHeads / 2},
		{one, keptHeads/4 + 1, false, keptHeads / 2},
		{other, keptHeads/4 + 1, false, keptHeads / 2},
		{one, 0, true, keptHeads / 4},
		{other, keptHeads / 2, true, keptHeads / 2},
		{other, 0, true, 0},
	} {
		if got := c.of.KeepLarge(c.n); got != c.want || h.kept != c.kept {
			t.Errorf("step %d: %v, %d bytes are kept; want %v, %d", i, got, h.kept, c.want, c.kept)
		}
	}
}
