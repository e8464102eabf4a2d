package fanout

import (
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// TestReplicaContinuesWithWaitingMessages checks when a replica at a position can continue with the waiting messages.
func TestReplicaContinuesWithWaitingMessages(t *testing.T) {
	const silence, request = time.Hour, 7
	for name, test := range map[string]struct {
		frames                          []message
		appliedRevision, wantedRevision int64
		want                            bool
	}{
		"no message": {appliedRevision: 10, wantedRevision: 10},
		"reached exactly": {
			frames:          []message{{previous: 5, revision: 10}},
			appliedRevision: 10,
			wantedRevision:  10,
			want:            true,
		},
		"past the wanted revision": {
			frames:          []message{{previous: 5, revision: 10}},
			appliedRevision: 12,
			wantedRevision:  10,
			want:            true,
		},
		"behind": {frames: []message{{previous: 5, revision: 9}}, appliedRevision: 10, wantedRevision: 10},
		"a waiting message continues": {
			frames:          []message{{previous: 5, revision: 12}},
			appliedRevision: 10,
			wantedRevision:  10,
			want:            true,
		},
		"a waiting message is beyond": {frames: []message{{previous: 11, revision: 12}}, appliedRevision: 10, wantedRevision: 10},
		"a passed one, then a gap": {
			frames:          []message{{previous: 5, revision: 9}, {previous: 11, revision: 12}},
			appliedRevision: 10,
			wantedRevision:  10,
		},
		"a waiting message is withheld": {
			frames:          []message{{previous: 5, revision: 12, withheld: true}},
			appliedRevision: 10,
			wantedRevision:  10,
		},
		"a passed message was withheld": {
			frames:          []message{{previous: 5, revision: 10, withheld: true}},
			appliedRevision: 10,
			wantedRevision:  10,
			want:            true,
		},
		"the publisher resigned": {
			frames:          []message{{previous: 5, revision: 10}, {revision: 10, end: true}},
			appliedRevision: 10,
			wantedRevision:  10,
		},
		"the next publisher began": {
			frames: []message{
				{previous: 5, revision: 10},
				{revision: 10, end: true},
				{epoch: 1, previous: 10, revision: 10},
			},
			appliedRevision: 10,
			wantedRevision:  10,
			want:            true,
		},
		"the next publisher is behind": {
			frames:          []message{{previous: 5, revision: 10}, {epoch: 1, previous: 8, revision: 8}},
			appliedRevision: 10,
			wantedRevision:  10,
		},
		"no answer": {frames: []message{{chain: 1, previous: 5, revision: 10}}, appliedRevision: 10, wantedRevision: 10},
		"another request was answered": {
			frames:          []message{{chain: 1, previous: 5, revision: 10, answers: []uint64{request + 1}}},
			appliedRevision: 10,
			wantedRevision:  10,
		},
		"one of many was answered": {
			frames:          []message{{chain: 1, previous: 5, revision: 10, answers: []uint64{request + 1, request}}},
			appliedRevision: 10,
			wantedRevision:  10,
			want:            true,
		},
		"only a chain without answer is ahead": {
			frames:          []message{{previous: 5, revision: 9}, {chain: 9, previous: 5, revision: 10}},
			appliedRevision: 10,
			wantedRevision:  10,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox()
			in.startFollowing()
			in.awaitJoinAnswer(request)
			for _, f := range test.frames {
				if f.chain == 0 {
					f.chain = 1 + f.epoch
					f.answers = []uint64{request}
				}
				in.push(f)
				in.joinAnswerMissing(silence)
			}
			at := storage.Position{Revision: test.appliedRevision}
			if got := in.canContinue(at, test.wantedRevision, silence); got != test.want {
				t.Errorf("canContinue(%+v, wanted revision %d) = %t, want %t", at, test.wantedRevision, got, test.want)
			}
			in.markLost(reasonLink)
			if in.canContinue(at, test.wantedRevision, silence) {
				t.Error("canContinue after markLost = true, want false")
			}
		})
	}
}

// TestInboxDropsOldestMessages checks that a full inbox keeps the newest messages.
func TestInboxDropsOldestMessages(t *testing.T) {
	in := newInbox()
	in.startFollowing()
	in.awaitJoinAnswer(1)
	const n = 3*inboxFrames + 7
	for i := range int64(n) {
		in.push(message{chain: 1, answers: []uint64{1}, previous: i, revision: i + 1})
	}
	appliedRevision := int64(n - inboxFrames)
	for i := range inboxFrames {
		f, gap, ok := in.takeNext(storage.Position{Revision: appliedRevision})
		if !ok || gap != noReason || f.previous != appliedRevision {
			t.Fatalf("message %d: got %+v, gap %q, %t, want one that follows %d", i, f, gap, ok, appliedRevision)
		}
		appliedRevision = f.revision
	}
	if _, _, ok := in.takeNext(storage.Position{Revision: appliedRevision}); ok || in.bytes != 0 {
		t.Errorf("emptied inbox: got a message: %t, %d bytes, want none", ok, in.bytes)
	}
}
