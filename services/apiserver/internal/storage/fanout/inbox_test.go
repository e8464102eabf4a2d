package fanout

import (
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

func TestInboxJoin(t *testing.T) {
	const silence, request = time.Hour, 7
	for name, c := range map[string]struct {
		frames          []frame
		applied, wanted int64
		want            bool
	}{
		"no message":                    {nil, 10, 10, false},
		"reached exactly":               {[]frame{{previous: 5, revision: 10}}, 10, 10, true},
		"past the wanted revision":      {[]frame{{previous: 5, revision: 10}}, 12, 10, true},
		"behind":                        {[]frame{{previous: 5, revision: 9}}, 10, 10, false},
		"a waiting message continues":   {[]frame{{previous: 5, revision: 12}}, 10, 10, true},
		"a waiting message is beyond":   {[]frame{{previous: 11, revision: 12}}, 10, 10, false},
		"a passed one, then a gap":      {[]frame{{previous: 5, revision: 9}, {previous: 11, revision: 12}}, 10, 10, false},
		"a waiting message is withheld": {[]frame{{previous: 5, revision: 12, withheld: true}}, 10, 10, false},
		"a passed message was withheld": {[]frame{{previous: 5, revision: 10, withheld: true}}, 10, 10, true},
		"the publisher resigned":        {[]frame{{previous: 5, revision: 10}, {revision: 10, end: true}}, 10, 10, false},
		"the next publisher began": {[]frame{
			{previous: 5, revision: 10},
			{revision: 10, end: true},
			{epoch: 1, previous: 10, revision: 10},
		},
			10, 10, true},
		"the next publisher is behind": {[]frame{{previous: 5, revision: 10}, {epoch: 1, previous: 8, revision: 8}}, 10, 10, false},
		"no answer":                    {[]frame{{chain: 1, previous: 5, revision: 10}}, 10, 10, false},
		"another request was answered": {[]frame{{chain: 1, previous: 5, revision: 10, answers: []uint64{request + 1}}},
			10, 10, false},
		"one of many was answered": {[]frame{{chain: 1, previous: 5, revision: 10, answers: []uint64{request + 1, request}}},
			10, 10, true},
		"only a chain without answer is ahead": {[]frame{{previous: 5, revision: 9}, {chain: 9, previous: 5, revision: 10}}, 10, 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox()
			in.begin()
			in.awaitChain(request)
			for _, f := range c.frames {
				if f.chain == 0 {
					f.chain, f.answers = 1+f.epoch, []uint64{request}
				}
				in.push(f)
				in.chainMissing(silence)
			}
			at := storage.Position{Revision: c.applied}
			if got := in.join(at, c.wanted, silence); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			in.broken(reasonLink)
			if in.join(at, c.wanted, silence) {
				t.Error("broken stream can be joined")
			}
		})
	}
}

func TestInboxDropsOldestMessages(t *testing.T) {
	in := newInbox()
	in.begin()
	in.awaitChain(1)
	const n = 3*inboxFrames + 7
	for i := range int64(n) {
		in.push(frame{chain: 1, answers: []uint64{1}, previous: i, revision: i + 1})
	}
	applied := int64(n - inboxFrames)
	for i := range inboxFrames {
		f, gap, ok := in.next(storage.Position{Revision: applied})
		if !ok || gap != noReason || f.previous != applied {
			t.Fatalf("message %d: got %+v, %q, %v", i, f, gap, ok)
		}
		applied = f.revision
	}
	if _, _, ok := in.next(storage.Position{Revision: applied}); ok || in.bytes != 0 {
		t.Errorf("%d bytes are left in the inbox", in.bytes)
	}
}
