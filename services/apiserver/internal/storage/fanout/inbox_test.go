package fanout

import (
	"cmp"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// TestReplicaContinuesWithWaitingMessages checks when a replica that has applied appliedRevision can
// continue with the waiting messages, or with a stream that has reached wantedRevision.
func TestReplicaContinuesWithWaitingMessages(t *testing.T) {
	const silence, request, wantedRevision = time.Hour, 7, 10
	for name, test := range map[string]struct {
		messages        []message
		appliedRevision int64 // 0 means wantedRevision
		want            bool
	}{
		"no message": {},
		"reached exactly": {
			messages: []message{{previous: 5, revision: 10}},
			want:     true,
		},
		"past the wanted revision": {
			messages:        []message{{previous: 5, revision: 10}},
			appliedRevision: 12,
			want:            true,
		},
		"behind": {messages: []message{{previous: 5, revision: 9}}},
		"a waiting message continues": {
			messages: []message{{previous: 5, revision: 12}},
			want:     true,
		},
		"a waiting message is beyond": {messages: []message{{previous: 11, revision: 12}}},
		"a passed one, then a gap": {
			messages: []message{{previous: 5, revision: 9}, {previous: 11, revision: 12}},
		},
		"a waiting message is withheld": {
			messages: []message{{previous: 5, revision: 12, withheld: true}},
		},
		"a passed message was withheld": {
			messages: []message{{previous: 5, revision: 10, withheld: true}},
			want:     true,
		},
		"the publisher resigned": {
			messages: []message{{previous: 5, revision: 10}, {revision: 10, end: true}},
		},
		"the next publisher began": {
			messages: []message{
				{previous: 5, revision: 10},
				{revision: 10, end: true},
				{epoch: 1, previous: 10, revision: 10},
			},
			want: true,
		},
		"the next publisher is behind": {
			messages: []message{{previous: 5, revision: 10}, {epoch: 1, previous: 8, revision: 8}},
		},
		"no answer": {messages: []message{{chain: 1, previous: 5, revision: 10}}},
		"another request was answered": {
			messages: []message{{chain: 1, previous: 5, revision: 10, answers: []uint64{request + 1}}},
		},
		"one of many was answered": {
			messages: []message{{chain: 1, previous: 5, revision: 10, answers: []uint64{request + 1, request}}},
			want:     true,
		},
		"only a chain without answer is ahead": {
			messages: []message{{previous: 5, revision: 9}, {chain: 9, previous: 5, revision: 10}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox()
			in.startFollowing()
			in.awaitJoinAnswer(request)
			for _, f := range test.messages {
				if f.chain == 0 {
					f.chain = 1 + f.epoch
					f.answers = []uint64{request}
				}
				in.push(f)
				in.joinAnswerMissing(silence)
			}
			at := storage.Position{Revision: cmp.Or(test.appliedRevision, int64(wantedRevision))}
			if got := in.canContinue(at, wantedRevision, silence); got != test.want {
				t.Errorf("canContinue(%+v, wanted revision %d): got %t, want %t", at, wantedRevision, got, test.want)
			}
			in.markLost(reasonLink)
			if in.canContinue(at, wantedRevision, silence) {
				t.Error("canContinue after markLost: got true, want false")
			}
		})
	}
}

// TestMessageAfterGapIsNotApplied checks that a waiting message that begins after the position of
// the replica makes it leave the stream, even if only one revision is missing.
func TestMessageAfterGapIsNotApplied(t *testing.T) {
	const appliedRevision = 10
	for previous, want := range map[int64]gapReason{
		appliedRevision - 1: noReason,
		appliedRevision:     noReason,
		appliedRevision + 1: reasonChain,
	} {
		in := newInbox()
		in.startFollowing()
		in.awaitJoinAnswer(1)
		in.push(message{chain: 1, answers: []uint64{1}, previous: previous, revision: appliedRevision + 2})
		if _, gap, ok := in.takeNext(storage.Position{Revision: appliedRevision}); !ok || gap != want {
			t.Errorf("message after %d at %d: got gap %q, %t, want gap %q", previous, appliedRevision, gap, ok, want)
		}
	}
}

// TestInboxDropsOldestMessages checks that a full inbox keeps the newest messages.
func TestInboxDropsOldestMessages(t *testing.T) {
	in := newInbox()
	in.startFollowing()
	in.awaitJoinAnswer(1)
	const sent = 3*maxInboxMessages + 7
	for i := range int64(sent) {
		in.push(message{chain: 1, answers: []uint64{1}, previous: i, revision: i + 1})
	}
	appliedRevision := int64(sent - maxInboxMessages)
	for i := range maxInboxMessages {
		next, gap, ok := in.takeNext(storage.Position{Revision: appliedRevision})
		if !ok || gap != noReason || next.previous != appliedRevision {
			t.Fatalf("message %d: got %+v, gap %q, %t, want one that follows %d", i, next, gap, ok, appliedRevision)
		}
		appliedRevision = next.revision
	}
	if _, _, ok := in.takeNext(storage.Position{Revision: appliedRevision}); ok || in.bytes != 0 {
		t.Errorf("emptied inbox: got a message: %t, %d bytes, want none", ok, in.bytes)
	}
}
