package fanout

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/storage"
)

func sampleMessage() *message {
	return &message{
		cluster:  "c",
		epoch:    7,
		chain:    3,
		previous: 10,
		revision: 15,
		events: []storage.Event{
			{Type: storage.Created, Key: "/registry/a", Revision: 11, CreateRevision: 11, Value: []byte("x")},
			{Type: storage.Updated, Key: "/registry/b", Revision: 13, CreateRevision: 4, Value: []byte{}},
			{Type: storage.Deleted, Key: "/registry/c", Revision: 13},
		},
	}
}

// withChecksum appends a valid checksum.
func withChecksum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func encodedBody(m *message) []byte {
	b := appendMessage(nil, m)
	return b[:len(b)-checksumBytes]
}

// TestMessageRoundTrip checks that random messages survive encoding and decoding, within the
// estimated size.
func TestMessageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &message{
			cluster:  rapid.StringMatching(`[A-Za-z0-9_-]{1,63}`).Draw(t, "cluster"),
			epoch:    rapid.Int64Range(0, 1<<62).Draw(t, "epoch"),
			chain:    rapid.Int64Range(0, math.MaxInt64).Draw(t, "chain"),
			loaded:   rapid.Bool().Draw(t, "loaded"),
			previous: rapid.Int64Range(0, 1<<40).Draw(t, "previous"),
		}
		want.revision = want.previous
		want.last = storage.ChangeID{Revision: rapid.Int64Range(0, want.previous).Draw(t, "last"), Sum: rapid.Uint32().Draw(t, "sum")}
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			want.withheld = true
		case 1:
			want.end = true
		case 2:
			want.answers = rapid.SliceOfN(rapid.Uint64(), 1, maxAnswers).Draw(t, "answers")
		default:
			n := rapid.IntRange(0, 5).Draw(t, "n")
			for i := range n {
				least := int64(0)
				if i == 0 {
					least = 1
				}
				want.revision += rapid.Int64Range(least, 1000).Draw(t, "step")
				e := storage.Event{
					Type:     storage.EventType(rapid.IntRange(1, 3).Draw(t, "type")),
					Revision: want.revision,
					Key:      rapid.StringN(1, -1, 300).Draw(t, "key"),
				}
				if rapid.Bool().Draw(t, "aged") {
					e.CreateRevision = rapid.Int64Range(1, e.Revision).Draw(t, "create")
				}
				if e.Type != storage.Deleted {
					e.Value = append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "value")...)
				}
				want.events = append(want.events, e)
			}
		}
		b := appendMessage([]byte("before"), want)[len("before"):]
		size := messageSize(want.cluster) + answerBytes*len(want.answers)
		for i := range want.events {
			size += eventSize(&want.events[i])
		}
		if len(b) > size {
			t.Fatalf("got a message of %d bytes, want at most the estimate of %d", len(b), size)
		}
		got, err := decodeMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// TestDamagedMessagesAreRejected checks that messages that violate the format, or are cut, are
// rejected.
func TestDamagedMessagesAreRejected(t *testing.T) {
	good := sampleMessage()
	whole := appendMessage(nil, good)
	if _, err := decodeMessage(whole); err != nil {
		t.Fatal(err)
	}
	changed := func(f func(m *message)) []byte {
		m := sampleMessage()
		f(m)
		return appendMessage(nil, m)
	}
	// withByte returns the good message with another byte at an index.
	withByte := func(i int, v byte) []byte {
		b := encodedBody(good)
		b[i] = v
		return withChecksum(b)
	}
	// messageWith returns a message of cluster c with the given numbers after the cluster.
	messageWith := func(fields ...uint64) []byte {
		b := []byte{magic[0], magic[1], formatVersion, 0, 1, 'c'}
		for _, f := range fields {
			b = binary.AppendUvarint(b, f)
		}
		return withChecksum(b)
	}
	// afterHead returns a message with a valid head up to the advance, and then the given bytes: the
	// count and the content.
	afterHead := func(flags byte, content ...byte) []byte {
		b := []byte{magic[0], magic[1], formatVersion, flags, 1, 'c', 1, 1, 1, 0, 0, 0, 0, 0, 1}
		return withChecksum(append(b, content...))
	}
	for name, data := range map[string][]byte{
		"empty":                      nil,
		"only a checksum":            withChecksum(nil),
		"other magic":                withByte(0, 'x'),
		"other version":              withByte(2, formatVersion+1),
		"unknown flag":               withByte(3, 32),
		"part without data":          withByte(3, flagPart),
		"part that ends":             afterHead(flagPart|flagEnd, 0, 0, 2, 1, 'x'),
		"part beyond the last":       afterHead(flagPart, 0, 2, 2, 1, 'x'),
		"part of one":                afterHead(flagPart, 0, 0, 1, 1, 'x'),
		"part with changes":          afterHead(flagPart, 1, 0, 2, 1, 'x'),
		"empty part":                 afterHead(flagPart, 0, 0, 2, 0),
		"answer that ends":           afterHead(flagAnswer|flagEnd, 1, 1, 2, 3, 4, 5, 6, 7, 8),
		"answer of nothing":          afterHead(flagAnswer, 0),
		"answer that is cut off":     afterHead(flagAnswer, 1, 1, 2, 3, 4, 5, 6, 7),
		"answer to too many":         afterHead(flagAnswer, append([]byte{maxAnswers + 1}, make([]byte, answerBytes*(maxAnswers+1))...)...),
		"flag with changes":          withByte(3, flagWithheld),
		"cluster without name":       withByte(4, 0),
		"cluster beyond the end":     withByte(4, 250),
		"wrong checksum":             append(append([]byte{}, whole[:len(whole)-1]...), whole[len(whole)-1]^1),
		"bytes left over":            withChecksum(append(encodedBody(good), 0)),
		"epoch too large":            messageWith(1<<63, 1, 1, 0, 0, 0, 0, 0, 0, 0),
		"last after previous":        messageWith(1, 1, 1, 2, 0, 0, 0, 0, 1, 0),
		"sum cut off":                withChecksum([]byte{magic[0], magic[1], formatVersion, 0, 1, 'c', 1, 1, 1, 1, 9, 9, 9}),
		"revision too large":         messageWith(1, 1, 1<<62, 0, 0, 0, 0, 0, 1<<62, 0),
		"count without changes":      messageWith(1, 1, 1, 0, 0, 0, 0, 0, 1, 3),
		"count too large":            messageWith(1, 1, 1, 0, 0, 0, 0, 0, 1, maxEvents+1),
		"unknown type":               changed(func(m *message) { m.events[0].Type = 4 }),
		"no type":                    changed(func(m *message) { m.events[2].Type = 0 }),
		"change at the previous":     changed(func(m *message) { m.events[0].Revision, m.events[0].CreateRevision = 10, 0 }),
		"change beyond the revision": changed(func(m *message) { m.events[2].Revision = 16 }),
		"created before history":     messageWith(1, 1, 10, 0, 0, 0, 0, 0, 1, 1, 1, 1, 13, 1, 'k', 0),
		"empty key":                  changed(func(m *message) { m.events[1].Key = "" }),
		"key too long":               changed(func(m *message) { m.events[1].Key = string(make([]byte, maxKeyBytes+1)) }),
		"too large":                  make([]byte, maxMessageBytes+1),
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := decodeMessage(data); !errors.Is(err, errDamaged) {
				t.Errorf("got %+v, %v, want errDamaged", m, err)
			}
		})
	}
	for n := range whole {
		if m, err := decodeMessage(whole[:n]); err == nil {
			t.Errorf("first %d bytes: got message %+v, want an error", n, m)
		}
		if n < len(whole)-checksumBytes {
			if m, err := decodeMessage(withChecksum(whole[:n:n])); err == nil {
				t.Errorf("first %d bytes with a checksum: got message %+v, want an error", n, m)
			}
		}
	}
}

// FuzzDecodeMessage checks that every accepted message is consistent and survives a round trip.
func FuzzDecodeMessage(f *testing.F) {
	f.Add(encodedBody(sampleMessage()))
	f.Add(encodedBody(&message{cluster: "c", epoch: 1, previous: 2, revision: 3, withheld: true}))
	f.Add(encodedBody(&message{cluster: "c", epoch: 1, previous: 2, revision: 2, end: true}))
	f.Add(encodedBody(&message{cluster: "c", epoch: 1, chain: 9, previous: 2, revision: 2, loaded: true, answers: []uint64{1, 2}}))
	piece := appendPart(nil, sampleMessage(), part{index: 1, total: 3, data: []byte("data")})
	f.Add(piece[:len(piece)-checksumBytes])
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeMessage(withChecksum(data[:len(data):len(data)]))
		if err != nil {
			if !errors.Is(err, errDamaged) {
				t.Errorf("got error %v, want errDamaged", err)
			}
			return
		}
		last := m.previous
		for i, e := range m.events {
			if e.Revision < last || e.Revision > m.revision || e.Revision == m.previous {
				t.Errorf("event %d: got revision %d, want an ascending one in (%d, %d]", i, e.Revision, m.previous, m.revision)
			}
			if e.CreateRevision > e.Revision || e.CreateRevision < 0 {
				t.Errorf("event %d: got creation at %d, want from 0 to its revision %d", i, e.CreateRevision, e.Revision)
			}
			if e.Key == "" {
				t.Errorf("event %d: got no key, want one", i)
			}
			last = e.Revision
		}
		encoded := appendMessage(nil, m)
		if m.part != nil {
			encoded = appendPart(nil, m, *m.part)
		}
		decoded, err := decodeMessage(encoded)
		if err != nil || !reflect.DeepEqual(decoded, m) {
			t.Errorf("after a round trip: got %+v, %v, want %+v", decoded, err, m)
		}
	})
}
