package fanout

import (
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// TestReplicaContinuesWithWaitingMessages checks when a replica at a position can continue with the waiting messages.
func TestReplicaContinuesWithWaitingMessages(t *testing.T) {
	const silence, request = time.Hour, 7
	for name, c := range map[string]struct {
		frames          []frame
		applied, wanted int64
		want            bool
	}{
		"no message":                  {applied: 10, wanted: 10},
		"reached exactly":             {frames: []frame{{previous: 5, revision: 10}}, applied: 10, wanted: 10, want: true},
		"past the wanted revision":    {frames: []frame{{previous: 5, revision: 10}}, applied: 12, wanted: 10, want: true},
		"behind":                      {frames: []frame{{previous: 5, revision: 9}}, applied: 10, wanted: 10},
		"a waiting message continues": {frames: []frame{{previous: 5, revision: 12}}, applied: 10, wanted: 10, want: true},
		"a waiting message is beyond": {frames: []frame{{previous: 11, revision: 12}}, applied: 10, wanted: 10},
		"a passed one, then a gap": {
			frames:  []frame{{previous: 5, revision: 9}, {previous: 11, revision: 12}},
			applied: 10,
			wanted:  10,
		},
		"a waiting message is withheld": {
			frames:  []frame{{previous: 5, revision: 12, withheld: true}},
			applied: 10,
			wanted:  10,
		},
		"a passed message was withheld": {
			frames:  []frame{{previous: 5, revision: 10, withheld: true}},
			applied: 10,
			wanted:  10,
			want:    true,
		},
		"the publisher resigned": {
			frames:  []frame{{previous: 5, revision: 10}, {revision: 10, end: true}},
			applied: 10,
			wanted:  10,
		},
		"the next publisher began": {
			frames: []frame{
				{previous: 5, revision: 10},
				{revision: 10, end: true},
				{epoch: 1, previous: 10, revision: 10},
			},
			applied: 10,
			wanted:  10,
			want:    true,
		},
		"the next publisher is behind": {
			frames:  []frame{{previous: 5, revision: 10}, {epoch: 1, previous: 8, revision: 8}},
			applied: 10,
			wanted:  10,
		},
		"no answer": {frames: []frame{{chain: 1, previous: 5, revision: 10}}, applied: 10, wanted: 10},
		"another request was answered": {
			frames:  []frame{{chain: 1, previous: 5, revision: 10, answers: []uint64{request + 1}}},
			applied: 10,
			wanted:  10,
		},
		"one of many was answered": {
			frames:  []frame{{chain: 1, previous: 5, revision: 10, answers: []uint64{request + 1, request}}},
			applied: 10,
			wanted:  10,
			want:    true,
		},
		"only a chain without answer is ahead": {
			frames:  []frame{{previous: 5, revision: 9}, {chain: 9, previous: 5, revision: 10}},
			applied: 10,
			wanted:  10,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox()
			in.startFollowing()
			in.awaitChain(request)
			for _, f := range c.frames {
				if f.chain == 0 {
					f.chain = 1 + f.epoch
					f.answers = []uint64{request}
				}
				in.push(f)
				in.chainMissing(silence)
			}
			at := storage.Position{Revision: c.applied}
			if got := in.canContinue(at, c.wanted, silence); got != c.want {
				t.Errorf("canContinue(%+v, wanted revision %d) = %t, want %t", at, c.wanted, got, c.want)
			}
			in.markLost(reasonLink)
			if in.canContinue(at, c.wanted, silence) {
				t.Error("canContinue after markLost = true, want false")
			}
		})
	}
}

// TestInboxDropsOldestMessages checks that a full inbox keeps the newest messages.
func TestInboxDropsOldestMessages(t *testing.T) {
	in := newInbox()
	in.startFollowing()
	in.awaitChain(1)
	const n = 3*inboxFrames + 7
	for i := range int64(n) {
		in.push(frame{chain: 1, answers: []uint64{1}, previous: i, revision: i + 1})
	}
	applied := int64(n - inboxFrames)
	for i := range inboxFrames {
		f, gap, ok := in.takeNext(storage.Position{Revision: applied})
		if !ok || gap != noReason || f.previous != applied {
			t.Fatalf("message %d: got %+v, gap %q, %t, want one that follows %d", i, f, gap, ok, applied)
		}
		applied = f.revision
	}
	if _, _, ok := in.takeNext(storage.Position{Revision: applied}); ok || in.bytes != 0 {
		t.Errorf("emptied inbox: got a message: %t, %d bytes, want none", ok, in.bytes)
	}
}
