package fanout

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestLargeObjectsStayOnTheStream checks that large objects make no replica read from the store,
// because messages above the payload limit are sent in parts.
func TestLargeObjectsStayOnTheStream(t *testing.T) {
	inSuite(t, 4096, func(t *testing.T, s *suite) {
		changes := func() (out []int) {
			for _, r := range s.replicas {
				out = append(out, r.State().Changes)
			}
			return out
		}
		before := changes()
		for i := range 20 {
			s.store.write(1, 5_000*(1+i))
			s.store.write(1, 10)
			s.settle(10 * time.Millisecond)
		}
		s.store.write(50, 2_000) // at one revision
		s.settle(time.Second)
		if err := s.checkConverged(); err != nil {
			t.Error(err)
		}
		if after := changes(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("source changes: got %v, want %v", after, before)
		}
	})
}

// TestFaultyPartsAreReadFromStore checks that a part that is lost, repeated, damaged or reordered
// is a gap, which is filled from the store.
func TestFaultyPartsAreReadFromStore(t *testing.T) {
	for name, addFaults := range map[string]func(*busNode){
		"lost":    func(n *busNode) { n.setFaults(faults{drop: 2}) },
		"doubled": func(n *busNode) { n.setFaults(faults{repeat: 2}) },
		"damaged": func(n *busNode) { n.setFaults(faults{damage: 2}) },
		"swapped": func(n *busNode) { n.setFaults(faults{swap: 2}) },
	} {
		t.Run(name, func(t *testing.T) {
			inSuite(t, 4096, func(_ *testing.T, s *suite) {
				for range 5 {
					addFaults(s.anyListener().node)
					s.store.write(1, 30_000)
					s.store.write(1, 10)
					s.settle(5 * time.Second)
				}
			})
		})
	}
}

// TestPayloadLimitTooSmallForPartsUsesStore checks that replicas read large changes from the store if
// the payload limit is too small for parts.
func TestPayloadLimitTooSmallForPartsUsesStore(t *testing.T) {
	inSuite(t, minPartPayload-1, func(_ *testing.T, s *suite) {
		for range 3 {
			s.store.write(1, 5_000)
			s.settle(time.Second)
		}
	})
}

// TestPartsFormMessageInOrderOnly checks which sequences of parts form a message.
func TestPartsFormMessageInOrderOnly(t *testing.T) {
	whole := appendMessage(nil, sampleMessage())
	piece := func(index, total int, change func(*message)) *message {
		size := (len(whole) + total - 1) / total
		m := *sampleMessage()
		m.events = nil
		m.part = &part{index: index, total: total, data: whole[index*size : min((index+1)*size, len(whole))]}
		if change != nil {
			change(&m)
		}
		return &m
	}
	for name, test := range map[string]struct {
		parts []*message
		want  bool
	}{
		"in order": {parts: []*message{piece(0, 3, nil), piece(1, 3, nil), piece(2, 3, nil)}, want: true},
		"after an unfinished one": {
			parts: []*message{piece(0, 3, nil), piece(1, 3, nil), piece(0, 2, nil), piece(1, 2, nil)},
			want:  true,
		},
		"begun twice":         {parts: []*message{piece(0, 2, nil), piece(0, 2, nil), piece(1, 2, nil)}, want: true},
		"the first is lost":   {parts: []*message{piece(1, 3, nil), piece(2, 3, nil)}, want: false},
		"one is lost":         {parts: []*message{piece(0, 3, nil), piece(2, 3, nil)}, want: false},
		"one is doubled":      {parts: []*message{piece(0, 3, nil), piece(1, 3, nil), piece(1, 3, nil), piece(2, 3, nil)}, want: false},
		"two are swapped":     {parts: []*message{piece(0, 3, nil), piece(2, 3, nil), piece(1, 3, nil)}, want: false},
		"of another revision": {parts: []*message{piece(0, 2, nil), piece(1, 2, func(m *message) { m.revision++ })}, want: false},
		"of another previous": {parts: []*message{piece(0, 2, nil), piece(1, 2, func(m *message) { m.previous-- })}, want: false},
		"of another chain":    {parts: []*message{piece(0, 2, nil), piece(1, 2, func(m *message) { m.chain++ })}, want: false},
		"of another epoch":    {parts: []*message{piece(0, 2, nil), piece(1, 2, func(m *message) { m.epoch++ })}, want: false},
		"larger than any message": {
			parts: []*message{
				piece(0, 2, nil), piece(1, 2, func(m *message) { m.part.data = make([]byte, maxMessageBytes) }),
			},
			want: false,
		},
		"empty": {want: false},
	} {
		t.Run(name, func(t *testing.T) {
			var assembler partAssembler
			var got []byte
			done := false
			for _, m := range test.parts {
				if b, ok := assembler.addPart(m); ok {
					got = b
					done = true
				}
			}
			if done != test.want || test.want && !bytes.Equal(got, whole) {
				t.Errorf("got a whole message: %t, with %d bytes, want %t", done, len(got), test.want)
			}
			if test.want && assembler.data != nil {
				t.Error("partAssembler keeps the data of a complete message, want none")
			}
		})
	}
}

// countChanges returns a function that counts the changes published on a bus.
func countChanges(t *testing.T, b *bus) func() int {
	tap := newBusNode(b)
	changes := 0
	if _, err := tap.dial(linkEvents{onUp: func() {}, onDown: func(error) {}}); err != nil {
		t.Fatal(err)
	}
	if err := tap.subscribe("binnacle.default.changes", func(data []byte) {
		if m, err := decodeMessage(data); err != nil || len(m.events) > 0 {
			changes++
		}
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tap.close)
	return func() int {
		synctest.Wait()
		return changes
	}
}

// TestChangesAreEncodedOnlyForListeners checks that a publisher without listeners encodes nothing.
// A new replica receives the stream immediately and stays on it even if it sends nothing.
func TestChangesAreEncodedOnlyForListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suite := newSuite(t, 1, 4096)
		published := countChanges(t, suite.bus)
		suite.startAll()
		defer suite.stopAll()
		suite.settle(2 * subscriberHeartbeats * DefaultHeartbeat)
		before := published()
		for range 100 {
			suite.store.write(1, 100)
			suite.settle(100 * time.Millisecond)
		}
		if n := published() - before; n != 0 {
			t.Errorf("published %d messages without listeners, want 0", n)
		}
		if err := suite.onStream(); err != nil {
			t.Error(err)
		}
		listener := suite.addReplica(t, 1)
		suite.replicas = append(suite.replicas, listener)
		listener.recorded.applied = suite.store.newest()
		listener.from = suite.store.newest()
		listener.startRun()
		listener.startFollow(suite.store)
		for range 1000 {
			suite.store.write(1, 100)
			suite.settle(100 * time.Millisecond)
		}
		if n := published() - before; n < 900 {
			t.Errorf("published %d messages for a listener, want at least 900", n)
		}
		if err := suite.checkConverged(); err != nil {
			t.Error(err)
		}
		if err := suite.onStream(); err != nil {
			t.Error(err)
		}
		if c := listener.State().Changes; c > 2 {
			t.Errorf("source changed %d times, want at most 2", c)
		}
		listener.stop()
		suite.replicas = suite.replicas[:1]
		suite.settle(2 * subscriberHeartbeats * DefaultHeartbeat)
		before = published()
		suite.store.write(1, 100)
		suite.settle(time.Second)
		if n := published() - before; n != 0 {
			t.Errorf("published %d messages after the listener left, want 0", n)
		}
	})
}
